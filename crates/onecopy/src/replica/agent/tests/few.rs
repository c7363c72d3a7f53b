//! Writes of a few rows of a table at once: every number of rows, every type, every order that unique values allow.

use cluster::ids::DatabaseId;
use cluster::refresh::{ColumnSet, Kind, RefreshTables};

use super::*;
use crate::replica::agent::connect::SETTINGS;

const TABLES: &[&str] = &[
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN code AS varchar(8) CHECK (VALUE <> '')",
    "CREATE DOMAIN part AS int",
    // Keys that need a cast, a domain or another collation to be found; a computed column; one that only an INSERT can
    // write.
    "CREATE TABLE keyed (n numeric(6, 2), c code, m mood, v varchar(20) COLLATE \"C\", ch char(5), \
     id int GENERATED ALWAYS AS IDENTITY UNIQUE, parts part[], note text, double int GENERATED ALWAYS AS (length(note) * 2) STORED, \
     PRIMARY KEY (n, c, m, v, ch))",
    "CREATE TABLE lists (k int[] PRIMARY KEY, v int)",
    "CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree, name text UNIQUE)",
    "CREATE TABLE split (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
    "CREATE TABLE split_low PARTITION OF split FOR VALUES FROM (0) TO (4)",
    "CREATE TABLE split_high PARTITION OF split FOR VALUES FROM (4) TO (100)",
    "CREATE TABLE heap (a int, b text)",
    "CREATE TABLE late (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v int)",
    "CREATE TABLE spans (id int PRIMARY KEY, s int4range, EXCLUDE USING gist (s WITH &&))",
];

/// Writes of `count` rows. The tables are empty before and after.
fn writes(count: usize) -> Vec<String> {
    let rows = format!("generate_series(1, {count}) g");
    vec![
        format!(
            "INSERT INTO keyed (n, c, m, v, ch, parts, note) SELECT g, 'c' || g, 'ok', 'v' || g, 'x', \
             ARRAY[g, NULL], NULLIF('note ' || g, 'note 2') FROM {rows}"
        ),
        "UPDATE keyed SET note = note || '!', parts = parts || 7".to_owned(),
        // Each row changes other columns.
        "UPDATE keyed SET note = CASE WHEN n % 2 = 0 THEN 'even' ELSE note END, parts = CASE WHEN n % 3 = 0 THEN NULL ELSE parts END"
            .to_owned(),
        "UPDATE keyed SET note = note, parts = parts".to_owned(),
        "UPDATE keyed SET m = 'sad', id = DEFAULT".to_owned(),
        "DELETE FROM keyed".to_owned(),
        format!("INSERT INTO lists SELECT ARRAY[g], g FROM {rows}"),
        "UPDATE lists SET v = v + 1".to_owned(),
        "DELETE FROM lists".to_owned(),
        // Each row refers to the next one, which is not there yet.
        format!("INSERT INTO tree SELECT g, NULLIF(g % {count} + 1, 1), 'n' || g FROM {rows}"),
        // The same names come again, in other rows. Then all names move one row further.
        format!("DELETE FROM tree; INSERT INTO tree SELECT g + 50, NULL, 'n' || g FROM {rows}"),
        "UPDATE tree SET name = name || 'x'; UPDATE tree SET name = 'n' || (id - 49), parent = id".to_owned(),
        "DELETE FROM tree".to_owned(),
        format!("INSERT INTO split SELECT g, 'v' FROM {rows}; UPDATE split SET v = 'w'"),
        "UPDATE split SET id = id + 10; UPDATE split SET v = NULL".to_owned(),
        "DELETE FROM split".to_owned(),
        format!("INSERT INTO heap SELECT g % 2, NULL FROM {rows}"),
        "UPDATE heap SET b = 'b'".to_owned(),
        "DELETE FROM heap".to_owned(),
        format!("INSERT INTO late SELECT g, g FROM {rows}"),
        "UPDATE late SET id = id + 1".to_owned(),
        "DELETE FROM late".to_owned(),
        format!("INSERT INTO spans SELECT g, int4range(g, g + 1) FROM {rows}"),
        "UPDATE spans SET s = int4range(100 - id, 101 - id)".to_owned(),
        "DELETE FROM spans".to_owned(),
    ]
}

#[tokio::test]
async fn any_number_of_rows_arrives() {
    let mut pair = Pair::start().await;
    for sql in TABLES {
        pair.ddl(sql).await;
    }
    for count in 1..=9 {
        for sql in writes(count) {
            let record = pair.home.write(&sql).await;
            pair.second.must_apply(vec![record]).await;
            pair.assert_identical().await;
        }
    }
}

#[tokio::test]
async fn records_that_differ_are_found_among_rows_of_one_statement() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    let insert = pair.home.write("INSERT INTO t SELECT g, g FROM generate_series(1, 5) g").await;
    pair.second.must_apply(vec![insert]).await;
    let token = capture::apply_token(CLUSTER);
    let options = format!("-c session_replication_role=replica -c {}={token}", capture::VIA_SETTING);
    let mut vandal = pair.servers[1].connect(&options).await;
    vandal.simple("DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (8, 0)").await.unwrap();

    for (good, bad) in [
        ("UPDATE t SET v = 0 WHERE id IN (1, 2)", "UPDATE t SET v = 0 WHERE id IN (3, 4)"),
        ("DELETE FROM t WHERE id = 1", "DELETE FROM t WHERE id IN (3, 4)"),
        ("INSERT INTO t VALUES (6, 6), (7, 7)", "INSERT INTO t VALUES (8, 8), (9, 9)"),
    ] {
        let (good, bad) = (pair.home.write(good).await, pair.home.write(bad).await);
        let version = bad.header().last;
        match pair.second.apply(vec![good, bad]).await {
            AgentEvent::Diverged { version: found, .. } => assert_eq!(found, version),
            other => panic!("not diverged but {other:?}"),
        }
        // An agent ends every other session, so the former one must not come back.
        pair.second.events.close();
        pair.second = Running::start(&pair.servers[1]).await;
    }
    // The server has neither the bad records, nor the good ones before them in the same batch.
    let mut session = pair.servers[1].connect("").await;
    let left =
        session.simple("SELECT string_agg(concat(id, ' ', v), ', ' ORDER BY id) FROM t").await.unwrap();
    assert_eq!(left, [[Some("1 1, 2 2, 4 4, 5 5, 8 0".to_owned())]]);
}

/// A plan is kept when the table has grown. So even for a small table it must not read all rows, or all of an index.
#[tokio::test]
async fn rows_are_looked_up_however_small_the_table_is() {
    let server = Server::start();
    let _running = Running::start(&server).await;
    let mut home = Home::new(&server).await;
    home.ddl("CREATE TABLE one (id int PRIMARY KEY, v int)").await;
    home.ddl("CREATE TABLE two (a text, b int, v int, PRIMARY KEY (a, b))").await;
    home.write("INSERT INTO one VALUES (1, 1)").await;
    home.write("INSERT INTO two VALUES ('a', 1, 1)").await;
    let mut options = format!("-c {}={}", capture::VIA_SETTING, capture::apply_token(CLUSTER));
    for (name, value) in SETTINGS {
        options.push_str(&format!(" -c {name}={value}"));
    }
    let mut session = server.own(&options).await;
    session.query("VACUUM ANALYZE public.one").await.unwrap();
    session.query("VACUUM ANALYZE public.two").await.unwrap();
    let tables: RefreshTables =
        capture::catalogue::load_refresh_tables(&mut session, DatabaseId::FIRST).await.unwrap();
    assert_eq!(tables.iter().count(), 2);
    let all: ColumnSet = (0..64).collect();
    for table in tables.iter() {
        for kind in [
            Kind::UpdateFew(2, all),
            Kind::UpdateFew(7, all),
            Kind::DeleteFew(2),
            Kind::UpdateMany(all),
            Kind::KeepMany,
            Kind::DeleteMany,
        ] {
            let sql = table.sql(kind);
            let types: Vec<_> = sql.types.iter().map(|oid| format!("{oid}::regtype")).collect();
            let types = session.query(&format!("SELECT concat_ws(',', {})", types.join(", "))).await.unwrap();
            let types = types[0][0].clone().unwrap();
            let nulls = vec!["NULL"; sql.types.len()].join(", ");
            session.query(&format!("PREPARE p ({types}) AS {}", sql.text)).await.unwrap();
            let plan = session.query(&format!("EXPLAIN EXECUTE p ({nulls})")).await.unwrap();
            let lines: Vec<_> = plan.into_iter().filter_map(|row| row.into_iter().next()?).collect();
            let looks_up = lines.iter().any(|line| line.contains("Index Cond"));
            assert!(
                looks_up && !lines.iter().any(|line| line.contains("Join Filter")),
                "{kind:?}: {lines:#?}"
            );
            session.query("DEALLOCATE p").await.unwrap();
        }
    }
}
