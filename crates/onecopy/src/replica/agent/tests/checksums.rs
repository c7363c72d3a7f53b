//! Checksums run no code of users, and differ if roles differ.

use crate::capture::shares::Shares;
use std::collections::BTreeMap;

use super::Pair;
use crate::membership::checksum;

async fn sums(pair: &Pair, server: usize) -> BTreeMap<String, String> {
    let mut connection = pair.servers[server].own("").await;
    connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.unwrap();
    checksum::checksums(&mut connection, &Shares::everything()).await.unwrap().sums
}

#[tokio::test]
async fn a_cast_that_its_owner_made_for_a_table_is_not_run() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE ROLE mallory").await;
    for sql in [
        "CREATE TABLE bait (id int PRIMARY KEY, onecopy_row text)",
        "ALTER TABLE bait OWNER TO mallory",
        "CREATE FUNCTION spring(bait) RETURNS text LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'a cast of % was run', $1.id; END $$",
        "CREATE CAST (bait AS text) WITH FUNCTION spring(bait) AS IMPLICIT",
    ] {
        pair.ddl(sql).await;
    }
    let name = r#"table "public"."bait""#;
    let before = sums(&pair, 0).await;
    let record = pair.home.write("INSERT INTO bait VALUES (1, 'x')").await;
    pair.second.must_apply(vec![record]).await;
    let after = sums(&pair, 0).await;
    assert_ne!(before[name], after[name]);
    pair.assert_identical().await;
}

#[tokio::test]
async fn roles_that_differ_are_told() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE ROLE joe").await;
    pair.ddl("CREATE ROLE staff").await;
    pair.assert_identical().await;
    for (there, back, kind) in [
        ("ALTER ROLE joe SUPERUSER", "ALTER ROLE joe NOSUPERUSER", "roles"),
        ("ALTER ROLE joe BYPASSRLS", "ALTER ROLE joe NOBYPASSRLS", "roles"),
        ("GRANT staff TO joe", "REVOKE staff FROM joe", "roles"),
        ("ALTER ROLE joe SET work_mem = '1MB'", "ALTER ROLE joe RESET work_mem", "settings of roles"),
        ("ALTER ROLE joe PASSWORD 'x'", "ALTER ROLE joe PASSWORD NULL", "passwords of roles"),
    ] {
        let mut past = pair.servers[1].connect("").await;
        past.simple(there).await.unwrap();
        let (home, second) = (sums(&pair, 0).await, sums(&pair, 1).await);
        let differ: Vec<&String> = home.keys().filter(|name| home.get(*name) != second.get(*name)).collect();
        assert_eq!(differ, [kind], "{there}");
        past.simple(back).await.unwrap();
        pair.assert_identical().await;
    }
}
