//! Promise: C-JDBC on real servers. Each level lets the statements wait that its table says, an early response is early, a
//! deadlock inside the servers has one victim, what cannot be shipped is refused, and all replicas stay identical.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::Duration;

use cluster::{Cluster, folder, programs, rows, run, table, value};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

/// What does not wait has ended after this time, and what waits has not.
const MOMENT: Duration = Duration::from_millis(700);
/// Nothing takes longer.
const LONG: Duration = Duration::from_secs(30);

async fn started(level: &str, respond: &str) -> Cluster {
    let words = ["--protocol", "c-jdbc", "--transaction-level", level, "--early-response", respond];
    let cluster = Cluster::start_as(3, &[], &words).await;
    let client = cluster.client().await;
    run(&client, "CREATE TABLE item (id int PRIMARY KEY, name text); CREATE TABLE kind (id int PRIMARY KEY)")
        .await;
    run(&client, "CREATE TABLE sale (id int PRIMARY KEY, item int REFERENCES item, n int)").await;
    run(&client, "INSERT INTO item SELECT i, 'a' FROM generate_series(1, 9) i; INSERT INTO kind VALUES (1)")
        .await;
    cluster
}

/// The SQLSTATE with which a statement fails. One of what is not supported has a hint.
async fn refused(client: &Client, sql: &str) -> String {
    let error = client.simple_query(sql).await.expect_err(sql);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}"));
    assert!(error.code().code() != "0A000" || error.hint().is_some(), "{sql}: {error} has no hint");
    error.code().code().to_owned()
}

/// Whether a statement beside an open transaction waits for that. Ends both.
async fn waits(cluster: &Cluster, first: &str, second: &str) -> bool {
    let (one, other) = (cluster.client().await, cluster.client().await);
    run(&one, &format!("BEGIN; {first}")).await;
    let mut asking = std::pin::pin!(other.batch_execute(second));
    let waited = timeout(MOMENT, &mut asking).await.is_err();
    run(&one, "COMMIT").await;
    if waited {
        timeout(LONG, asking)
            .await
            .expect("what waited goes on")
            .unwrap_or_else(|error| panic!("{second}: {error}"));
    }
    waited
}

const FIRST: &str = "UPDATE item SET name = 'b' WHERE id = 1";
const SAME_ROW: &str = "UPDATE item SET name = name || '!' WHERE id = 1";
const OTHER_ROW: &str = "UPDATE item SET name = name || '!' WHERE id = 2";
const READ: &str = "SELECT * FROM item";

#[tokio::test]
async fn pessimistic_readers_and_writers_wait() {
    let mut cluster = started("pessimistic", "all").await;
    for (first, second, does) in [
        (FIRST, SAME_ROW, true),
        (FIRST, OTHER_ROW, true),
        (FIRST, READ, true),
        (READ, OTHER_ROW, true),
        (READ, READ, false),
        (FIRST, "INSERT INTO kind VALUES (2)", false),
        // A foreign key makes the insert a writer of the table that it refers to.
        ("INSERT INTO sale VALUES (1, 3, 1)", OTHER_ROW, true),
    ] {
        assert_eq!(waits(&cluster, first, second).await, does, "{first}; {second}");
    }
    let client = cluster.client().await;
    statements(&client).await;
    refusals(&client).await;
    errors(&client).await;
    run(&client, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT * FROM item; COMMIT").await;
    locks_deadlock(&cluster).await;
    cluster.verify().await;
    comes_back(&mut cluster).await;
}

#[tokio::test]
async fn optimistic_writers_wait_and_an_early_response_is_early() {
    let mut cluster = started("optimistic", "first").await;
    for (first, second, does) in [
        (FIRST, SAME_ROW, true),
        (FIRST, OTHER_ROW, true),
        (FIRST, READ, false),
        (READ, OTHER_ROW, false),
        ("INSERT INTO kind SELECT count(*) + 10 FROM item", OTHER_ROW, true),
    ] {
        assert_eq!(waits(&cluster, first, second).await, does, "{first}; {second}");
    }
    let client = cluster.client().await;
    assert_eq!(refused(&client, "BEGIN ISOLATION LEVEL SERIALIZABLE").await, "0A000");
    assert_eq!(refused(&client, "SET default_transaction_isolation = 'repeatable read'").await, "0A000");
    // A sequence has one writer at a time.
    run(&client, "CREATE TABLE drawn (id serial PRIMARY KEY, n int)").await;
    let (one, other) = (cluster.client().await, cluster.client().await);
    let draw = async |client: &Client, n: i32| {
        for _ in 0..20 {
            run(client, &format!("INSERT INTO drawn (n) VALUES ({n})")).await;
        }
    };
    tokio::join!(draw(&one, 1), draw(&other, 2));
    assert_eq!(cluster.everywhere("SELECT count(*), max(id) FROM drawn").await, [["40", "40"]]);
    // One replica has stopped: the others answer.
    let stopped = cluster.caught_up().await.remove(1);
    cluster.signal_server(&stopped, Signal::STOP);
    let early = timeout(LONG, client.batch_execute(FIRST)).await;
    cluster.signal_server(&stopped, Signal::CONT);
    early.expect("the first answers").unwrap();
    assert_eq!(cluster.everywhere("SELECT name FROM item WHERE id = 1").await, [["b"]]);
    cluster.verify().await;
    comes_back(&mut cluster).await;
}

#[tokio::test]
async fn pass_through_servers_wait_and_a_deadlock_has_one_victim() {
    let mut cluster = started("pass-through", "all").await;
    for (first, second, does) in [
        (FIRST, SAME_ROW, true),
        (FIRST, OTHER_ROW, false),
        (FIRST, READ, false),
        (READ, OTHER_ROW, false),
        (FIRST, "SELECT * FROM item WHERE id = 1 FOR UPDATE", true),
    ] {
        assert_eq!(waits(&cluster, first, second).await, does, "{first}; {second}");
    }
    for round in 0..5 {
        rows_deadlock(&cluster, round).await;
    }
    let client = cluster.client().await;
    run(&client, "CREATE TABLE drawn (id serial PRIMARY KEY, n int)").await;
    for sql in [
        "INSERT INTO drawn (n) VALUES (1)",
        "SELECT nextval('drawn_id_seq')",
        "SELECT setval('drawn_id_seq', 7)",
        "SELECT * FROM item FOR UPDATE SKIP LOCKED",
        "BEGIN; SAVEPOINT s",
        "SET deadlock_timeout = '1s'",
    ] {
        assert_eq!(refused(&client, sql).await, "0A000", "{sql}");
        run(&client, "ROLLBACK").await;
    }
    let admin = cluster.try_client("onecopy").await.unwrap();
    assert_eq!(refused(&admin, "CREATE CHECKPOINT it").await, "0A000");
    // With `all`, a replica that has stopped holds up the answer.
    let stopped = cluster.caught_up().await.remove(1);
    cluster.signal_server(&stopped, Signal::STOP);
    let mut asking = std::pin::pin!(client.batch_execute(OTHER_ROW));
    let is_early = timeout(MOMENT, &mut asking).await.is_ok();
    cluster.signal_server(&stopped, Signal::CONT);
    assert!(!is_early, "a replica has not executed what was answered");
    timeout(LONG, asking).await.expect("all answer").unwrap();
    cluster.verify().await;
    stays_out(&mut cluster).await;
}

/// Two transactions update two rows in opposite orders: one of them is the victim, everywhere.
async fn rows_deadlock(cluster: &Cluster, round: u32) {
    let (one, other) = (cluster.client().await, cluster.client().await);
    let update = |id: u32, who: &str| format!("UPDATE item SET name = '{who}{round}' WHERE id = {id}");
    run(&one, &format!("BEGIN; {}", update(5, "one"))).await;
    run(&other, &format!("BEGIN; {}", update(6, "other"))).await;
    let (first, second) = (update(6, "one"), update(5, "other"));
    let both = async { tokio::join!(one.batch_execute(&first), other.batch_execute(&second)) };
    let (first, second) = timeout(LONG, both).await.expect("the deadlock is found");
    let code = |ended: &Result<(), tokio_postgres::Error>| {
        ended.as_ref().err().map(|error| error.code().unwrap().code().to_owned())
    };
    assert_eq!((code(&first), code(&second)), (None, Some("40P01".to_owned())), "the youngest is the victim");
    assert_eq!(refused(&other, "SELECT 1").await, "25P02");
    run(&one, "COMMIT").await;
    run(&other, "ROLLBACK").await;
    assert_eq!(value(&other, "SELECT 7").await, "7");
    let name = format!("one{round}");
    let found = cluster.everywhere("SELECT name FROM item WHERE id IN (5, 6)").await;
    assert_eq!(found, [[name.clone()], [name]]);
}

/// The same by tables.
async fn locks_deadlock(cluster: &Cluster) {
    let (one, other) = (cluster.client().await, cluster.client().await);
    run(&one, "BEGIN; UPDATE item SET name = 'one'").await;
    run(&other, "BEGIN; INSERT INTO kind VALUES (70)").await;
    let both =
        async { tokio::join!(one.batch_execute("INSERT INTO kind VALUES (70)"), other.batch_execute(FIRST)) };
    let (first, second) = timeout(LONG, both).await.expect("the deadlock is found");
    first.unwrap();
    assert_eq!(second.unwrap_err().code().unwrap().code(), "40P01");
    run(&one, "COMMIT").await;
    run(&other, "ROLLBACK; INSERT INTO kind VALUES (71)").await;
}

async fn statements(client: &Client) {
    run(client, "CREATE TABLE made (id serial PRIMARY KEY, at timestamptz DEFAULT now(), r float8 DEFAULT random(), n int UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
    run(client, "INSERT INTO made (n) VALUES (1), (2); UPDATE made SET at = now() WHERE id = 2").await;
    assert_eq!(value(client, "SELECT nextval('made_id_seq')").await, "3");
    run(client, "BEGIN; INSERT INTO made (n) VALUES (3); SAVEPOINT s").await;
    assert_eq!(refused(client, "INSERT INTO made (id, n) VALUES (1, 9)").await, "23505");
    assert_eq!(refused(client, "SELECT 1").await, "25P02");
    run(client, "ROLLBACK TO s; INSERT INTO made (n) VALUES (4); COMMIT").await;
    run(client, "BEGIN; INSERT INTO made (n) VALUES (1)").await;
    assert_eq!(refused(client, "COMMIT").await, "23505");
    assert_eq!(value(client, "SELECT string_agg(n::text, ',' ORDER BY n) FROM made").await, "1,2,3,4");
    run(
        client,
        "BEGIN; SET LOCAL timezone = 'Asia/Tokyo'; INSERT INTO made (at, n) VALUES ('2020-01-01', 5); COMMIT",
    )
    .await;
    run(client, "BEGIN; CREATE TABLE gone (n int); ROLLBACK; ANALYZE").await;
    let insert = "INSERT INTO made (r, n) VALUES ($1, $2) RETURNING id";
    let id: i32 = client.query_one(insert, &[&0.5_f64, &6_i32]).await.unwrap().get(0);
    let found = client.query_one("SELECT r FROM made WHERE id = $1", &[&id]).await.unwrap();
    assert!((found.get::<_, f64>(0) - 0.5).abs() < 1e-9);
    // The transaction has locked the table at all replicas.
    run(client, "BEGIN; TRUNCATE kind").await;
    let sink = client.copy_in("COPY kind FROM STDIN WITH (FREEZE)").await.unwrap();
    futures_util::pin_mut!(sink);
    futures_util::SinkExt::send(&mut sink, bytes::Bytes::from_static(b"1\n20\n21\n")).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 3);
    run(client, "COMMIT").await;
}

async fn refusals(client: &Client) {
    for sql in [
        "INSERT INTO item (id, name) SELECT id + 100, name FROM item LIMIT 1",
        "UPDATE item SET name = random()::text",
        "COPY item TO STDOUT",
        "DO $$ BEGIN END $$",
        "CREATE TEMP TABLE away (n int)",
        "DECLARE c CURSOR FOR SELECT 1",
        "PREPARE p AS SELECT 1",
        "LISTEN away",
        "LOCK TABLE item",
        "SELECT currval('made_id_seq')",
        "SET LOCAL onecopy.access = 'read item'",
    ] {
        assert_eq!(refused(client, sql).await, "0A000", "{sql}");
    }
    run(client, "BEGIN; SELECT * FROM kind").await;
    assert_eq!(refused(client, "CREATE TABLE late (n int)").await, "0A000");
    run(client, "ROLLBACK; BEGIN READ ONLY").await;
    assert_eq!(refused(client, "DELETE FROM kind").await, "25006");
    run(client, "ROLLBACK").await;
}

/// A statement that fails does so at all replicas, and its transaction with it; its locks are free at once.
async fn errors(client: &Client) {
    assert_eq!(refused(client, "INSERT INTO kind VALUES (1)").await, "23505");
    run(client, "BEGIN; INSERT INTO kind VALUES (90)").await;
    assert_eq!(refused(client, "INSERT INTO kind VALUES (1)").await, "23505");
    assert_eq!(refused(client, "SELECT 1").await, "25P02");
    run(client, "COMMIT").await;
    assert_eq!(value(client, "SELECT count(*) FROM kind WHERE id = 90").await, "0", "COMMIT was a ROLLBACK");
}

/// A server dies under load, and everything dies: the replicas come back from the log, and no acknowledged commit is lost.
async fn comes_back(cluster: &mut Cluster) {
    let client = cluster.client().await;
    run(&client, "CREATE TABLE kept (n int PRIMARY KEY)").await;
    let replicas = cluster.caught_up().await;
    run(&client, "BEGIN; INSERT INTO kept VALUES (0)").await;
    cluster.kill_server(&replicas[0], true);
    run(&client, "COMMIT").await;
    for n in 1..60 {
        run(&client, &format!("INSERT INTO kept VALUES ({n})")).await;
        assert_eq!(value(&client, "SELECT count(*) FROM kept").await.parse::<i32>().unwrap(), n + 1);
        if n == 30 {
            cluster.caught_up().await;
            cluster.kill_server(&replicas[1], true);
        }
    }
    assert_eq!(cluster.everywhere("SELECT count(*) FROM kept").await, [["60"]]);
    cluster.verify().await;
    drop(client);
    cluster.kill_everything().await;
    cluster.up_again().await;
    assert_eq!(cluster.everywhere("SELECT count(*) FROM kept").await, [["60"]]);
    let client = cluster.client().await;
    run(&client, "INSERT INTO kept VALUES (60)").await;
    cluster.verify().await;
    cluster.stop().await;
    let port = cluster.port.to_string();
    let data = cluster.data();
    let words = ["up", "--data", data.to_str().unwrap(), "--port", &port, "--protocol", "eager"];
    let said =
        programs::onecopy(&[&words[..], &["--pg-bin", programs::pg_bin().to_str().unwrap()]].concat()).await;
    assert!(programs::text(&said).contains("c-jdbc"), "{}", programs::text(&said));
}

/// Under pass-through a replica that lacks transactions stays out until it is rebuilt; one that lacks none returns.
async fn stays_out(cluster: &mut Cluster) {
    let client = cluster.client().await;
    run(&client, "CREATE TABLE kept (n int PRIMARY KEY)").await;
    run(&client, "INSERT INTO kept VALUES (1)").await;
    let replicas = cluster.caught_up().await;
    cluster.crash_server(&replicas[0]).await;
    cluster.caught_up().await;
    cluster.kill_server(&replicas[0], true);
    for n in 2..20 {
        run(&client, &format!("INSERT INTO kept VALUES ({n})")).await;
    }
    let admin = cluster.try_client("onecopy").await.unwrap();
    let deadline = std::time::Instant::now() + LONG;
    loop {
        let shown = rows(&admin, "SHOW REPLICAS").await.remove(0);
        if shown.values().any(|value| value.contains("cannot be run again here")) {
            assert_eq!(shown["state"], "down", "{shown:?}");
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{shown:?}\n{}", cluster.printed());
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(rows(&admin, &format!("REBUILD REPLICA {}", replicas[0].name)).await.len(), 1);
    assert_eq!(cluster.everywhere("SELECT count(*) FROM kept").await, [["19"]]);
    cluster.verify().await;
    drop(client);
    cluster.kill_everything().await;
    cluster.up_again().await;
    assert_eq!(cluster.everywhere("SELECT count(*) FROM kept").await, [["19"]]);
}

/// All servers crash under open transactions of pass-through: a start at another level brings back what was acknowledged.
#[tokio::test]
async fn pass_through_comes_back_by_a_start_at_another_level() {
    let mut cluster = started("pass-through", "first").await;
    let mut writers = Vec::new();
    for n in 1..7 {
        let client = cluster.client().await;
        writers.push(tokio::spawn(async move {
            let mut acknowledged = 0;
            loop {
                let id = n * 100_000 + acknowledged;
                // The rows are those of others, too, in the same order.
                let update = "UPDATE item SET name = left(name || 'b', 40) WHERE id = 1";
                let (row, insert) = (n % 3 + 2, format!("INSERT INTO kind VALUES ({id})"));
                let sql = format!(
                    "BEGIN; {update}; UPDATE item SET name = '{id}' WHERE id = {row}; {insert}; COMMIT"
                );
                match client.batch_execute(&sql).await {
                    Ok(()) => acknowledged += 1,
                    // A queue is by table, so it may close a cycle.
                    Err(error) if error.as_db_error().is_some_and(|error| error.code().code() == "40P01") => {
                        if client.batch_execute("ROLLBACK").await.is_err() {
                            return (n, acknowledged);
                        }
                    }
                    Err(_) => return (n, acknowledged),
                }
            }
        }));
    }
    let open = cluster.client().await;
    run(&open, "BEGIN; UPDATE item SET name = 'open' WHERE id = 9").await;
    // Each replica lacks others when it is killed, and none is given up.
    let replicas = cluster.replicas().await;
    for stopped in [&replicas[2], &replicas[1]] {
        sleep(MOMENT).await;
        cluster.signal_server(stopped, Signal::STOP);
    }
    sleep(MOMENT).await;
    cluster.kill_everything().await;
    let words = ["--protocol", "c-jdbc", "--transaction-level"];
    for level in ["optimistic", "pass-through"] {
        cluster.has_arguments(&[&words[..], &[level]].concat());
        cluster.up_again().await;
        cluster.caught_up().await;
        cluster.verify().await;
        if level == "optimistic" {
            cluster.stop().await;
        }
    }
    for writer in writers {
        let (n, acknowledged) = timeout(LONG, writer).await.expect("the kill ends its connection").unwrap();
        assert!(acknowledged > 0, "writer {n} did nothing");
        let (first, next) = (n * 100_000, n * 100_000 + acknowledged);
        let found = cluster
            .everywhere(&format!("SELECT count(*) FROM kind WHERE id >= {first} AND id < {next}"))
            .await;
        assert_eq!(found, [[acknowledged.to_string()]], "writer {n}");
    }
    assert_eq!(cluster.everywhere("SELECT name FROM item WHERE id = 9").await, [["a"]]);
    run(&cluster.client().await, "INSERT INTO kind VALUES (2)").await;
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn settings_of_it_are_refused_elsewhere() {
    for words in [
        &["--protocol", "eager", "--transaction-level", "optimistic"][..],
        &["--early-response", "first"],
        &["--protocol", "c-jdbc", "--balancer", "weighted"],
        &["--protocol", "c-jdbc", "--balancer", "weighted", "--balancer-weights", "1,2"],
        &["--protocol", "c-jdbc", "--balancer-weights", "1,2,3"],
    ] {
        let data = folder::Folder::new("refused");
        let port = folder::free_port().to_string();
        let data = data.path().join("data");
        let pg_bin = programs::pg_bin();
        let common = ["up", "--replicas", "3", "--port", &port, "--data", data.to_str().unwrap()];
        let all = [&common[..], &["--pg-bin", pg_bin.to_str().unwrap()], words].concat();
        let said = programs::onecopy(&all).await;
        assert!(
            !said.status.success() && programs::text(&said).contains("balancer"),
            "{}",
            programs::text(&said)
        );
    }
}

#[tokio::test]
async fn reads_go_where_the_weights_say() {
    let words = ["--protocol", "c-jdbc", "--balancer", "weighted", "--balancer-weights", "3,1,0"];
    let mut cluster = Cluster::start_as(3, &[], &words).await;
    let client = cluster.client().await;
    let before = cluster.replicas().await;
    for _ in 0..40 {
        assert_eq!(table(&client, "SELECT 1").await, [["1"]]);
    }
    let after = cluster.replicas().await;
    let reads: Vec<u64> =
        after.iter().zip(&before).map(|(after, before)| after.reads - before.reads).collect();
    assert_eq!(reads, [30, 10, 0]);
    cluster.stop().await;
}
