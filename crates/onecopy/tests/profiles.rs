//! Promise: the declared or learned profile of a transaction decides where it runs, and does not change its effect.
//!
//! A transaction that is expected to read only begins at any replica, and moves home when it does more. Each script prints
//! what it prints on one PostgreSQL; the counters of SHOW STATS prove that it was away.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::{Duration, Instant};

use cluster::plain::Plain;
use cluster::programs::assert_same;
use cluster::{Cluster, rows, run, table, value};
use tokio_postgres::{Client, SimpleQueryMessage};

const SCHEMA: &str = "
create table t (k int primary key, v text); insert into t select i, 'v' || i from generate_series(1, 40) i;
create table u (k int primary key, n int not null default 0, at timestamptz); insert into u values (1), (2);
create function hidden() returns int language plpgsql stable as $$ begin return touch(); end $$;
create function touch() returns int language plpgsql as $$ begin update u set n = n + 1 where k = 1; return 1; end $$;
create view clock as select k, now() as at from u;
";

/// The deadline of an expected event.
const WITHIN: Duration = Duration::from_mins(2);
/// Each script runs this many times, so that it has been at every replica.
const TIMES: usize = 6;

/// Statements of a transaction after it was expected to read only.
const SCRIPTS: [(&str, &str); 14] = [
    ("it reads", "begin /* onecopy: read t */; select v from t where k = 1; select count(*) from t; commit;"),
    (
        "it writes",
        "begin /* onecopy: read t */; select v from t where k = 1; update t set v = v || '+' where k = 1; select v from t where k = 1; commit; select v from t where k = 1;",
    ),
    (
        "it is rolled back",
        "begin /* onecopy: read t */; select v from t where k = 2; delete from t where k = 2; select count(*) from t; rollback; select v from t where k = 2;",
    ),
    ("it fails", "begin /* onecopy: read t */; select k / 0 from t; select 1; commit; select 1;"),
    (
        "it fails at home",
        "begin /* onecopy: read t */; select v from t where k = 3; insert into t values (3); select 1; commit; select v from t where k = 3;",
    ),
    (
        "settings",
        "begin /* onecopy: read t */; select 1 from t where k = 1; set local search_path = pg_temp, public; show search_path; select v from t where k = 4; set datestyle = 'German'; commit; show search_path; show datestyle; reset all;",
    ),
    (
        "savepoints",
        "begin /* onecopy: read t */; select 1 from t where k = 1; savepoint s; update t set v = 'x' where k = 5; rollback to s; select v from t where k = 5; release s; commit;",
    ),
    (
        "cursors",
        "begin /* onecopy: read t */; select 1 from t where k = 1; declare c cursor for select k from t order by k; fetch 2 from c; fetch 2 from c; close c; commit;",
    ),
    (
        "locks",
        "begin /* onecopy: read t */; select 1 from t where k = 1; select v from t where k = 6 for update; lock table t; commit;",
    ),
    (
        "prepared",
        "prepare p(int) as select v from t where k = $1; begin /* onecopy: read t */; select 1 from t where k = 1; execute p(7); commit; deallocate p;",
    ),
    (
        "the time at which it began",
        "begin /* onecopy: read t, u */; select 1 from t where k = 1; select now()::text as began from t where k = 1 \\gset
         update u set at = now() where k = 2; select at = :'began' from u where k = 2; commit;
         begin /* onecopy: read t, u */; select 1 from t where k = 1; select at::text as began from clock where k = 2 \\gset
         update u set at = now() where k = 2; select at = :'began' from u where k = 2; commit;
         begin /* onecopy: read t, u */; select 1 from t where k = 1; select timestamptz 'now'::text as began from u where k = 2 \\gset
         update u set at = now() where k = 2; select at = :'began' from u where k = 2; commit;\n",
    ),
    (
        "notifications",
        "begin /* onecopy: read t */; select 1 from t where k = 1; notify n, 'x'; commit; begin /* onecopy: read t */; select 1 from t where k = 1; listen n; unlisten n; commit;",
    ),
    (
        "a schema change",
        "begin /* onecopy: read t */; select 1 from t where k = 1; create table w (k int); insert into w values (1); select * from w; drop table w; commit;",
    ),
    (
        "a hidden write",
        "begin /* onecopy: read u */; select n > -1 from u where k = 1; select hidden(); select n > 0 from u where k = 1; commit;",
    ),
];

#[tokio::test]
async fn the_client_cannot_tell() {
    let (mut cluster, plain) = (Cluster::start(3).await, Plain::start().await);
    run(&cluster.client().await, SCHEMA).await;
    run(&plain.client().await, SCHEMA).await;
    let scripts: Vec<(&str, String)> =
        SCRIPTS.iter().map(|(name, script)| (*name, script.repeat(TIMES))).collect();
    for (name, script) in &scripts {
        let client = cluster.client().await;
        // Until the catalogue knows of the last schema change, everything is at home.
        explained(&client, "SELECT 1").await;
        let before = roamed(&cluster).await;
        assert_same(cluster.port, plain.port, &[(name, script)]).await;
        assert!(roamed(&cluster).await.0 > before.0, "{name}: it was never away");
    }
    it_says_so_itself(&cluster).await;
    portals_stay_where_they_are(&cluster).await;
    what_was_shown_is_not_run_again(&cluster).await;
    a_replica_may_be_lost(&cluster).await;
    cluster.caught_up().await;
    cluster.verify().await;
    cluster.stop().await;
}

/// How many transactions began away from home, and how many came back.
async fn roamed(cluster: &Cluster) -> (u64, u64) {
    let admin = cluster.try_client("onecopy").await.unwrap();
    let stats = rows(&admin, "SHOW STATS").await;
    let counter = |name: &str| {
        let row = stats.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        row["value"].parse().unwrap()
    };
    (counter("transactions_roamed"), counter("transactions_came_home"))
}

/// The warnings that came with a statement.
async fn refused(client: &Client, statement: &str) -> String {
    let error = client.simple_query(statement).await.expect_err(statement);
    let error = error.as_db_error().unwrap();
    format!("{} {}", error.code().code(), error.message())
}

/// Declarations in all their places, and mistakes in them.
async fn it_says_so_itself(cluster: &Cluster) {
    let client = cluster.client().await;
    for beginning in [
        "BEGIN /* onecopy: read t */; SELECT v FROM t WHERE k = 1; COMMIT",
        "BEGIN; /* onecopy: read t */ SELECT v FROM t WHERE k = 1; COMMIT",
        "/* onecopy: read t */ BEGIN; SELECT v FROM t WHERE k = 1; COMMIT",
        "BEGIN; SET LOCAL onecopy.access = 'read t'; SELECT v FROM t WHERE k = 1; COMMIT",
    ] {
        let before = roamed(cluster).await;
        run(&client, beginning).await;
        let after = roamed(cluster).await;
        assert_eq!((after.0, after.1), (before.0 + 1, before.1), "{beginning}");
    }
    // REPEATABLE READ transactions cannot move, and declared writers stay at home.
    for beginning in [
        "BEGIN ISOLATION LEVEL REPEATABLE READ /* onecopy: read t */; SELECT v FROM t WHERE k = 1; COMMIT",
        "BEGIN /* onecopy: write t */; SELECT v FROM t WHERE k = 1; COMMIT",
        "BEGIN; SET LOCAL onecopy.access = 'read t'; RESET onecopy.access; SELECT v, 'not learned' FROM t; COMMIT",
    ] {
        let before = roamed(cluster).await;
        run(&client, beginning).await;
        assert_eq!(roamed(cluster).await, before, "{beginning}");
    }
    run(&client, "BEGIN; SET LOCAL onecopy.access = 'reads u, \"T\"; write t'").await;
    assert_eq!(value(&client, "SHOW onecopy.access").await, "read u, T; write t");
    run(&client, "COMMIT").await;
    assert_eq!(value(&client, "SHOW onecopy.access").await, "");
    assert_eq!(
        refused(&client, "BEGIN; SET LOCAL onecopy.access = 'read t u'").await,
        "22023 invalid value for parameter \"onecopy.access\": a comma, a semicolon or the end expected at character 8"
    );
    run(&client, "ROLLBACK").await;
    assert!(refused(&client, "SET onecopy.access = 'read t'").await.starts_with("0A000 "));
    assert!(
        refused(&client, "SELECT set_config('onecopy.access', 'read t', true)").await.starts_with("0A000 ")
    );
    for (statement, warning) in [
        ("BEGIN /* onecopy: read nowhere, t */; ROLLBACK", "table \"nowhere\" is not known"),
        ("BEGIN /* onecopy: change t */; ROLLBACK", "read or write expected at character 2"),
        ("SET LOCAL onecopy.access = 'read t'", "can only be used in transaction blocks"),
    ] {
        let printed = cluster::programs::text(&cluster::programs::psql(cluster.port, statement).await);
        assert!(printed.contains("WARNING") && printed.contains(warning), "{statement}: {printed}");
    }
}

/// The client can read on from a bound portal later, so such a transaction does not run away from home.
async fn portals_stay_where_they_are(cluster: &Cluster) {
    let mut client = cluster.client().await;
    for _ in 0..TIMES {
        let transaction = client.build_transaction().start().await.unwrap();
        transaction.batch_execute("SET LOCAL onecopy.access = 'read t'").await.unwrap();
        let first = transaction.query("SELECT count(*) FROM t", &[]).await.unwrap();
        assert_eq!(first[0].get::<_, i64>(0), 40);
        let portal = transaction.bind("SELECT k FROM t WHERE k > $1 ORDER BY k", &[&10]).await.unwrap();
        let some = transaction.query_portal(&portal, 3).await.unwrap();
        assert_eq!(some.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [11, 12, 13]);
        transaction.execute("UPDATE u SET n = n + 1 WHERE k = $1", &[&1]).await.unwrap();
        let rest = transaction.query_portal(&portal, 2).await.unwrap();
        assert_eq!(rest.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [14, 15]);
        transaction.commit().await.unwrap();
    }
}

/// A hidden write that comes after so many rows that the client has had some of them: it is told to begin again, and does
/// not see them twice. All that our analysis sees it knows, so the function is changed behind its back.
async fn what_was_shown_is_not_run_again(cluster: &Cluster) {
    let client = cluster.client().await;
    run(
        &client,
        "CREATE FUNCTION seems(g int) RETURNS int LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN 0; END $$",
    )
    .await;
    explained(&client, "SELECT 1").await;
    for replica in cluster.caught_up().await {
        run(&cluster.direct(&replica).await, BEHIND_OUR_BACK).await;
    }
    // Statements of different kinds, since of each it is known after the first time.
    let late = |kind: &str, g: u32| {
        format!("SELECT g AS {kind}, repeat('x', 4000), seems({g} - g) FROM generate_series(1, {g}) g")
    };
    let before = value(&client, "SELECT n FROM u WHERE k = 1").await;
    // In a transaction that is away, and alone.
    for (kind, begin) in [("away", AWAY), ("alone", "")] {
        let away = roamed(cluster).await;
        run(&client, begin).await;
        assert!(begin.is_empty() || roamed(cluster).await.0 > away.0, "it was never away");
        let found_out = refused(&client, &late(kind, 3000)).await;
        assert!(found_out.starts_with("40001"), "{found_out}");
        run(&client, "ROLLBACK").await;
    }
    assert_eq!(value(&client, "SELECT n FROM u WHERE k = 1").await, before);
    // The retry that the error asks for succeeds. With a few rows the client gets no error, even the first time.
    let mut done = 0;
    for (kind, rows) in [("away", 3000), ("alone", 3000), ("few", 3), ("fewer", 3), ("few", 3)] {
        run(&client, if kind == "away" || kind == "few" { AWAY } else { "" }).await;
        assert_eq!(table(&client, &late(kind, rows)).await.len(), rows as usize, "{kind}");
        run(&client, "COMMIT").await;
        done += 1;
    }
    let after = value(&client, "SELECT n FROM u WHERE k = 1").await;
    assert_eq!(after.parse::<u32>().unwrap(), before.parse::<u32>().unwrap() + done);
}

const AWAY: &str = "BEGIN /* onecopy: read u */; SELECT n FROM u WHERE k = 1";

/// A function that reads only, as Onecopy knows it, writes. A server that is killed later must not forget it alone.
const BEHIND_OUR_BACK: &str = "
SET synchronous_commit = on;
SET default_transaction_read_only = off;
ALTER EVENT TRIGGER onecopy_ddl DISABLE; ALTER EVENT TRIGGER onecopy_drop DISABLE;
CREATE OR REPLACE FUNCTION seems(g int) RETURNS int LANGUAGE plpgsql STABLE AS
    $$ BEGIN IF g = 0 THEN RETURN touch(); END IF; RETURN 0; END $$;
ALTER EVENT TRIGGER onecopy_ddl ENABLE ALWAYS; ALTER EVENT TRIGGER onecopy_drop ENABLE ALWAYS;
";

/// The replica under a transaction is killed: it goes on at home.
async fn a_replica_may_be_lost(cluster: &Cluster) {
    let away: Vec<_> = cluster.caught_up().await.into_iter().skip(1).collect();
    let ports: Vec<String> = away.iter().map(|replica| replica.port.to_string()).collect();
    let client = cluster.client().await;
    let deadline = Instant::now() + WITHIN;
    while Instant::now() < deadline {
        run(&client, "BEGIN /* onecopy: read t */").await;
        let port = value(&client, "SELECT current_setting('port') FROM t WHERE k = 1").await;
        if let Some(replica) = away.iter().find(|replica| replica.port.to_string() == port) {
            cluster.kill_server(replica, true);
            assert_eq!(value(&client, "SELECT count(*) FROM t").await, "40");
            run(&client, "UPDATE t SET v = 'after the loss' WHERE k = 9; COMMIT").await;
            assert_eq!(value(&client, "SELECT v FROM t WHERE k = 9").await, "after the loss");
            return;
        }
        run(&client, "COMMIT").await;
    }
    panic!("no transaction was at {ports:?}");
}

/// Onecopy learns the profiles of repeated transactions.
#[tokio::test]
async fn transactions_are_learned() {
    let mut cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    run(&client, SCHEMA).await;
    let reads =
        |key: i32| format!("BEGIN; SELECT v FROM t WHERE k = {key}; SELECT n FROM u WHERE k = {key}; COMMIT");
    let writes = |key: i32| {
        format!("BEGIN; SELECT v, k FROM t WHERE k = {key}; UPDATE u SET n = n + 1 WHERE k = {key}; COMMIT")
    };
    for key in 1..30 {
        run(&client, &reads(key)).await;
        run(&client, &writes(key)).await;
    }
    explained(&client, "SELECT 1").await;
    let before = roamed(&cluster).await;
    for key in 1..11 {
        run(&client, &reads(key)).await;
        run(&client, &writes(key)).await;
    }
    assert_eq!(
        roamed(&cluster).await,
        (before.0 + 10, before.1),
        "the ten that read only, and none came home"
    );
    // The same first statement, and then something else: at worst it comes home.
    let odd = "BEGIN; SELECT v FROM t WHERE k = 1; INSERT INTO u VALUES (7); COMMIT";
    run(&client, odd).await;
    assert_eq!(roamed(&cluster).await, (before.0 + 11, before.1 + 1));
    assert_eq!(value(&client, "SELECT count(*) FROM u WHERE k = 7").await, "1");

    it_is_told(&cluster, &client).await;
    cluster.verify().await;
    cluster.stop().await;
}

async fn explained(client: &Client, statement: &str) -> Vec<String> {
    let rows = table(client, &format!("EXPLAIN (ROUTING) {statement}")).await;
    rows.into_iter().map(|mut row| row.remove(0)).collect()
}

async fn it_is_told(cluster: &Cluster, client: &Client) {
    let has =
        |told: &[String], line: &str| assert!(told.iter().any(|l| l.contains(line)), "{line}: {told:#?}");
    let told = explained(client, "SELECT v, k FROM t WHERE k = 12").await;
    has(&told, "profile     learned of a transaction that begins so: ");
    has(&told, "expected    write u [n] {k = 12}");
    let told = explained(client, "SELECT 'never seen before' FROM t").await;
    has(&told, "profile     none");
    run(client, "BEGIN /* onecopy: read t; write u */; SELECT v FROM t WHERE k = 3").await;
    let told = explained(client, "SELECT 1").await;
    has(&told, "profile     declared: read t; write u");
    has(&told, "expected    write u");
    run(client, "COMMIT").await;

    let admin = cluster.try_client("onecopy").await.unwrap();
    let shown = rows(&admin, "SHOW TEMPLATES").await;
    let row = |text: &str| {
        shown.iter().find(|row| row["template"] == text).unwrap_or_else(|| panic!("no {text}: {shown:#?}"))
    };
    let writes = row("SELECT v, k FROM t WHERE k = ?");
    assert_eq!((writes["count"].as_str(), writes["begins"].as_str()), ("39", "39"));
    assert!(writes["expected"].contains("write u [n]"), "{writes:?}");
    assert!(writes["mean_ms"].parse::<f64>().unwrap() > 0.0);
    assert_eq!(row("UPDATE u SET n = n + ? WHERE k = ?")["begins"], "");
    let extended = admin.query("SHOW TEMPLATES", &[]).await.unwrap();
    assert_eq!(extended.len(), shown.len());
    let first = admin.simple_query("SHOW TEMPLATES").await.unwrap();
    assert!(first.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_))));
}
