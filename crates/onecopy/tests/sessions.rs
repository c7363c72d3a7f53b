//! Promise: a session is one session, whichever replicas its statements run on.
//!
//! Settings, prepared statements, temporary tables and cursors are there for every later statement. Each script reads
//! so often that every replica has its turn, and prints what the same script prints on one PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::plain::Plain;
use cluster::programs::assert_same;
use cluster::{Cluster, rows, run, table, value};
use tokio_postgres::Client;

const SCHEMA: &str = "
create schema a; create schema b;
create table a.t (k int primary key, v text); create table b.t (k int primary key, v text);
insert into a.t values (1, 'in a'); insert into b.t values (1, 'in b');
create table big (k int primary key, v int); insert into big select i, i % 7 from generate_series(1, 2000) i;
";

/// `REPEAT x;` is x twelve times.
const SAME: [(&str, &str); 15] = [
    ("search path", "set search_path = a; REPEAT select v from t; set search_path = b; REPEAT select v from t;"),
    ("rolled back", "set search_path = a; begin; set search_path = b; select v from t; rollback; REPEAT select v from t;"),
    ("local", "set search_path = a; begin; set local search_path = b; select v from t; commit; REPEAT select v from t;"),
    (
        "savepoint",
        "set search_path = a; begin; savepoint s; set search_path = b; rollback to s; commit; REPEAT select v from t;",
    ),
    ("set_config", "select set_config('search_path', 'b', false); REPEAT select v from t;"),
    (
        "a role that may not what was set before",
        "create role joe; set log_min_messages = error; set session authorization joe; REPEAT select current_user;
         reset session authorization; REPEAT show log_min_messages; set role joe; REPEAT select current_user; reset role;
         REPEAT select current_user; reset log_min_messages; set role joe; select 1; reset role; REPEAT show log_min_messages; drop role joe;",
    ),
    (
        "backslashes in strings",
        "set standard_conforming_strings = off; create table o (k int primary key); insert into o values (1);
         alter table o add v text default 'plain'; REPEAT select * from o; create view seen as select * from o; table seen; drop table o cascade;",
    ),
    ("datestyle in parts", "set datestyle = 'SQL'; set datestyle = dmy; REPEAT show datestyle; set datestyle = iso; REPEAT show datestyle;"),
    ("reset", "set search_path = a; set datestyle = 'German'; reset all; REPEAT show search_path; REPEAT show datestyle;"),
    ("time zone", "set time zone 'Asia/Tokyo'; REPEAT select timestamptz '2024-01-01 00:00+00' from big where k = 1;"),
    ("prepared", "prepare p(int) as select v from big where k = $1; REPEAT execute p(5); deallocate p; execute p(1);"),
    (
        "temporary table",
        "create temp table mine (k int); insert into mine values (1), (2); REPEAT select sum(k) from mine;
         begin; insert into mine values (3); rollback; REPEAT select count(*) from mine; drop table mine; select * from mine;",
    ),
    (
        "a temporary table hides one",
        "set search_path = a; create temp table t as select 'temporary' as v; REPEAT select v from t; discard all; REPEAT select v from a.t;",
    ),
    (
        "cursor",
        "begin; declare c cursor with hold for select k from big order by k; fetch 2 from c; commit; fetch 2 from c; REPEAT select max(k) from big; fetch 2 from c; close c;",
    ),
    (
        "read only",
        "begin read only; select count(*) from big; insert into big values (9999, 1); rollback; set default_transaction_read_only = on;
         insert into big values (9999, 1); set default_transaction_read_only = off; insert into big values (9998, 1); delete from big where k = 9998; REPEAT select count(*) from big;",
    ),
];

#[tokio::test]
async fn a_session_is_one_session() {
    let (mut cluster, plain) = (Cluster::start(3).await, Plain::start().await);
    run(&cluster.client().await, SCHEMA).await;
    run(&plain.client().await, SCHEMA).await;
    let scripts: Vec<(&str, String)> =
        SAME.iter().map(|(name, script)| (*name, spelled_out(script))).collect();
    let scripts: Vec<(&str, &str)> = scripts.iter().map(|(name, script)| (*name, script.as_str())).collect();
    assert_same(cluster.port, plain.port, &scripts).await;
    prepared_everywhere(&cluster).await;
    settings_have_one_value(&cluster).await;
    admin(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// SHOW, `current_setting` and `pg_settings` agree, whichever replica answers, whatever ALTER DATABASE and ALTER ROLE have set
/// since the session began or before.
async fn settings_have_one_value(cluster: &Cluster) {
    const NAMES: [&str; 6] = [
        "search_path",
        "random_page_cost",
        "default_transaction_isolation",
        "default_transaction_read_only",
        "transaction_isolation",
        "transaction_read_only",
    ];
    let agree = async |client: &Client, what: &str, expected: [&str; 6]| {
        for (name, expected) in NAMES.into_iter().zip(expected) {
            let asks = [
                format!("show {name}"),
                format!("select current_setting('{name}')"),
                format!("select current_setting(name) from (values ('{name}')) v (name)"),
                format!("select setting from pg_settings where name = '{name}'"),
            ];
            for ask in asks.iter().flat_map(|ask| [ask; 4]) {
                assert_eq!(value(client, ask).await, expected, "{what}: {ask}");
            }
        }
    };
    const BEFORE: [&str; 6] = ["\"$user\", public", "4", "read committed", "off", "read committed", "off"];
    const AFTER: [&str; 6] = ["a, public", "3", "serializable", "off", "serializable", "off"];
    let (old, altering) = (cluster.client().await, cluster.client().await);
    for alter in [
        "alter database postgres set search_path = a, public",
        "alter role postgres set random_page_cost = 3",
        "alter database postgres set default_transaction_isolation = serializable",
    ] {
        run(&altering, alter).await;
    }
    agree(&old, "a session of before", BEFORE).await;
    let new = cluster.client().await;
    agree(&new, "a session that began after it", AFTER).await;
    let prepared = new.prepare("select current_setting('default_transaction_isolation')").await.unwrap();
    run(&new, "set default_transaction_isolation = 'repeatable read'; set random_page_cost = 2").await;
    let isolation = "repeatable read";
    assert_eq!(new.query_one(&prepared, &[]).await.unwrap().get::<_, &str>(0), isolation);
    agree(&new, "SET", ["a, public", "2", isolation, "off", isolation, "off"]).await;
    for (begin, level, read_only) in [
        ("begin isolation level serializable", "serializable", "off"),
        ("begin isolation level read committed read only", "read committed", "on"),
    ] {
        run(&new, begin).await;
        agree(&new, begin, ["a, public", "2", isolation, "off", level, read_only]).await;
        run(&new, "commit").await;
    }
    for reset in [
        "alter database postgres reset search_path",
        "alter role postgres reset random_page_cost",
        "alter database postgres reset default_transaction_isolation",
    ] {
        run(&altering, reset).await;
    }
    agree(&cluster.client().await, "RESET", BEFORE).await;
}

fn spelled_out(script: &str) -> String {
    const TIMES: usize = 12;
    let line = |statement: &str| match statement.trim().strip_prefix("REPEAT ") {
        Some(repeated) => format!("{repeated};\n").repeat(TIMES),
        None => format!("{};\n", statement.trim()),
    };
    script.trim_end_matches(';').split(';').map(line).collect()
}

/// A named prepared statement, used on whichever replica serves each execution, also after the table has changed.
async fn prepared_everywhere(cluster: &Cluster) {
    const READS: usize = 300;
    let (client, other) = (cluster.client().await, cluster.client().await);
    let by_key = client.prepare("select v, current_setting('port') from big where k = $1").await.unwrap();
    let change = client.prepare("update big set v = v + $2 where k = $1").await.unwrap();
    let mut servers = std::collections::BTreeSet::new();
    for n in 0..READS {
        let key = i32::try_from(n).unwrap() + 1;
        let row = client.query_one(&by_key, &[&key]).await.unwrap();
        assert_eq!(row.get::<_, i32>(0), key % 7);
        servers.insert(row.get::<_, String>(1));
        assert_eq!(client.execute(&change, &[&key, &10]).await.unwrap(), 1);
        let row = client.query_one(&by_key, &[&key]).await.unwrap();
        assert_eq!(row.get::<_, i32>(0), key % 7 + 10, "a session reads its own writes");
        if n == READS / 2 {
            run(&other, "alter table big add column w int default 5").await;
        }
    }
    assert!(servers.len() > 1, "all reads went to {servers:?}");
    // Several statements under way at once, in the order they were sent.
    let (key, more) = (1, 100);
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&key, &more];
    let before = client.query(&by_key, &parameters[..1]);
    let changed = client.execute(&change, &parameters);
    let after = client.query(&by_key, &parameters[..1]);
    let (before, changed, after) = tokio::join!(before, changed, after);
    let (before, after) = (before.unwrap(), after.unwrap());
    assert_eq!(changed.unwrap(), 1);
    assert_eq!(before[0].get::<_, i32>(0) + 100, after[0].get::<_, i32>(0));
}

/// The admin database speaks both protocols.
async fn admin(cluster: &Cluster) {
    let client = cluster.try_client("onecopy").await.unwrap();
    let simple = rows(&client, "SHOW REPLICAS").await;
    let extended = client.query("SHOW REPLICAS", &[]).await.unwrap();
    assert_eq!((simple.len(), extended.len()), (3, 3));
    let names: Vec<&str> = extended[0].columns().iter().map(tokio_postgres::Column::name).collect();
    let wanted = ["name", "host", "port", "state", "applied", "lag_versions", "reads", "writes", "load"];
    assert!(wanted.iter().all(|name| names.contains(name)), "{names:?}");
    let stats = table(&client, "SHOW STATS").await.concat().join(" ");
    for reason in ["update", "unknown", "interactive", "catalogue"] {
        assert!(
            stats.contains(reason) || has_column(&client, reason).await,
            "SHOW STATS has no {reason}: {stats}"
        );
    }
    let version = table(&client, "SHOW VERSION").await;
    assert!(version[0].iter().any(|cell| cell.contains(env!("CARGO_PKG_VERSION"))), "{version:?}");
    let error = client.simple_query("select 1").await.expect_err("it only shows");
    assert!(error.as_db_error().is_some(), "{error:?}");
    assert_eq!(rows(&client, "show replicas").await.len(), 3, "it goes on, and letters may be small");
}

async fn has_column(client: &Client, part: &str) -> bool {
    rows(client, "SHOW STATS").await.iter().any(|row| row.keys().any(|name| name.contains(part)))
}
