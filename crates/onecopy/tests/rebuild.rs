//! Promise: a rebuilt replica gets the data of another one while clients write, joins again, and is identical to the others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
#[path = "rebuild/quarantined.rs"]
mod quarantined;

use cluster::{Cluster, rows, run, table, value};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const JOINS_WITHIN: Duration = Duration::from_mins(2);

/// Writers that count their acknowledged inserts.
struct Load {
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    async fn start(cluster: &Cluster, writers: u64) -> Self {
        let (is_over, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for writer in 0..writers {
            let client = cluster.client().await;
            let (is_over, acknowledged) = (Arc::clone(&is_over), Arc::clone(&acknowledged));
            tasks.push(tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let sql = format!("insert into noted (writer) values ({writer})");
                    client.batch_execute(&sql).await.expect("a rebuild disturbs no writer");
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        Self { is_over, acknowledged, tasks }
    }

    async fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.acknowledged.load(Ordering::Relaxed)
    }
}

/// A cluster with some of everything that a copy must bring along.
async fn begin(replicas: usize) -> Cluster {
    let cluster = Cluster::start(replicas).await;
    let client = cluster.client().await;
    run(
        &client,
        "create table noted (id bigserial primary key, writer int, at timestamptz default now());
         create table filler (id int primary key, text text);
         insert into filler select i, repeat(md5(i::text), 20) from generate_series(1, 20000) i",
    )
    .await;
    for sql in [
        "create type mood as enum ('sad', 'glad')",
        "create table people (name text primary key, mood mood)",
        "create role clerk login",
        "create sequence counter",
        "grant select on people to clerk",
        "insert into people values ('ann', 'glad')",
        "select nextval('counter')",
    ] {
        run(&client, sql).await;
    }
    cluster
}

#[tokio::test]
async fn a_replica_is_rebuilt_while_clients_write() {
    let mut cluster = begin(3).await;
    let before = cluster.caught_up().await;
    let broken = &before[2];
    let load = Load::start(&cluster, 4).await;
    // Schema changes come in between as well.
    let client = cluster.client().await;
    run(&client, "create table during (id int primary key)").await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    let rebuilt = rows(&admin, &format!("REBUILD REPLICA {}", broken.name)).await;
    run(&client, "alter table during add column mood mood default 'sad'; insert into during values (1)")
        .await;
    let acknowledged = load.stop().await;
    assert!(acknowledged > 0);
    assert_eq!(rebuilt[0]["replica"], broken.name);
    assert_eq!(rebuilt[0]["donor"], before[1].name, "the home of updates is spared");
    let counted = cluster.everywhere("select count(*) from noted").await;
    assert_eq!(counted, [[acknowledged.to_string()]]);
    cluster.verify().await;
    // It serves reads, also of user-defined types, and applies schema changes.
    let reads = cluster.replicas().await[2].reads;
    let deadline = Instant::now() + JOINS_WITHIN;
    while cluster.replicas().await[2].reads < reads + 5 {
        assert!(Instant::now() < deadline, "the rebuilt replica is never read");
        assert_eq!(table(&client, "select name, mood from people").await, [["ann", "glad"]]);
    }
    run(
        &client,
        "create table after (id serial primary key, mood mood); insert into after (mood) values ('sad')",
    )
    .await;
    cluster.everywhere("select * from after").await;
    // And once more from the start.
    cluster.stop().await;
    cluster.up_again().await;
    cluster.caught_up().await;
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn the_home_of_updates_is_rebuilt_when_another_one_has_taken_its_place() {
    let mut cluster = begin(2).await;
    let replicas = cluster.caught_up().await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    let rebuilt = rows(&admin, "REBUILD REPLICA replica-1").await;
    assert_eq!(rebuilt[0]["donor"], replicas[1].name);
    let roles: Vec<String> =
        rows(&admin, "SHOW REPLICAS").await.iter().map(|row| row["role"].clone()).collect();
    assert_eq!(roles, ["replica", "anchor"]);
    run(&cluster.client().await, "insert into noted (writer) select nextval('counter')").await;
    cluster.caught_up().await;
    cluster.verify().await;
    cluster.stop().await;
}

/// The rows of SHOW REPLICAS, as name, state and role.
async fn shown(cluster: &Cluster) -> Vec<[String; 3]> {
    cluster.replicas().await.into_iter().map(|replica| [replica.name, replica.state, replica.role]).collect()
}

/// The state in which an order has left a replica.
async fn ordered(admin: &tokio_postgres::Client, order: &str) -> String {
    rows(admin, order).await[0]["state"].clone()
}

async fn reads_of(cluster: &Cluster, name: &str) -> u64 {
    cluster.replicas().await.iter().find(|replica| replica.name == name).unwrap().reads
}

/// Reads until this replica has served some; it must have the newest row each time.
async fn is_read_at(cluster: &Cluster, name: &str) {
    let client = cluster.client().await;
    let before = reads_of(cluster, name).await;
    let deadline = Instant::now() + JOINS_WITHIN;
    while reads_of(cluster, name).await < before + 5 {
        assert!(Instant::now() < deadline, "{name} is never read");
        assert_eq!(table(&client, "select name, mood from people").await, [["ann", "glad"]]);
    }
}

/// A drain waits for a transaction at the replica, but not for a session with an idle connection there whose transaction is
/// elsewhere.
async fn drains_wait_for_users(cluster: &Cluster, admin: &tokio_postgres::Client) {
    let third = cluster.replicas().await.into_iter().find(|replica| replica.name == "replica-3").unwrap();
    let direct = cluster.direct(&third).await;
    let there = |state: &'static str| {
        let direct = &direct;
        async move {
            let sql = format!(
                "select count(*) from pg_stat_activity where application_name = 'of drains' and state like '{state}'"
            );
            value(direct, &sql).await
        }
    };
    let (reader, writer) = (cluster.client().await, cluster.client().await);
    for client in [&reader, &writer] {
        run(client, "set application_name = 'of drains'").await;
    }
    let deadline = Instant::now() + JOINS_WITHIN;
    while there("idle%").await == "0" {
        assert!(Instant::now() < deadline, "the writer has never read there");
        run(&writer, "select count(*) from people").await;
    }
    run(&writer, "set onecopy.home = 'replica-1'; begin; insert into people values ('eve', 'sad')").await;
    while there("idle in transaction").await == "0" {
        assert!(Instant::now() < deadline, "the reader never begins there");
        run(&reader, "rollback; begin read only; select count(*) from people").await;
    }
    let waiting = cluster.try_client("onecopy").await.unwrap();
    let (drained, ()) = tokio::join!(ordered(&waiting, "DRAIN REPLICA replica-3"), async {
        while shown(cluster).await[2][1] != "draining" {
            tokio::task::yield_now().await;
        }
        while there("%").await != "1" {
            assert!(Instant::now() < deadline, "the writer's connection stays");
        }
        run(&reader, "select count(*) from people; commit").await;
    });
    assert_eq!(drained, "drained", "the writer works elsewhere");
    while there("%").await != "0" {
        assert!(Instant::now() < deadline, "the reader's connection stays");
    }
    run(&writer, "rollback").await;
    assert_eq!(ordered(admin, "UNDRAIN REPLICA replica-3").await, "serving");
}

#[tokio::test]
async fn replicas_join_are_drained_and_leave_while_clients_write() {
    let mut cluster = begin(2).await;
    let mut admin = cluster.try_client("onecopy").await.unwrap();
    let load = Load::start(&cluster, 4).await;
    let added = rows(&admin, "ADD REPLICA").await;
    assert_eq!((&*added[0]["replica"], &*added[0]["donor"]), ("replica-3", "replica-2"));
    cluster.has_replicas(3);
    is_read_at(&cluster, "replica-3").await;
    drains_wait_for_users(&cluster, &admin).await;
    // A drained replica has every version and takes no new transaction, whatever home a client asks for.
    assert_eq!(ordered(&admin, "DRAIN REPLICA replica-3").await, "drained");
    let before = reads_of(&cluster, "replica-3").await;
    let client = cluster.client().await;
    run(&client, "set onecopy.home = 'replica-3'; insert into people values ('bob', 'sad')").await;
    run(&client, "delete from people where name = 'bob'").await;
    for _ in 0..30 {
        assert_eq!(value(&client, "select count(*) from people").await, "1");
    }
    assert_eq!(reads_of(&cluster, "replica-3").await, before);
    assert_eq!(ordered(&admin, "UNDRAIN REPLICA replica-3").await, "serving");
    is_read_at(&cluster, "replica-3").await;
    // The anchor hands over its role; sessions between transactions do not notice.
    assert_eq!(ordered(&admin, "DRAIN REPLICA replica-1").await, "drained");
    assert_ne!(shown(&cluster).await[0][2], "anchor");
    assert_eq!(rows(&admin, "DROP REPLICA replica-1").await[0]["members"], "2");
    let acknowledged = load.stop().await;
    cluster.has_replicas(2);
    assert_eq!(cluster.everywhere("select count(*) from noted").await, [[acknowledged.to_string()]]);
    cluster.verify().await;
    assert!(!cluster.data().join("replica-1").exists(), "its data is gone");
    // A restart knows the members; a number that is free then is given again.
    cluster.stop().await;
    cluster.up_again().await;
    let names: Vec<String> = shown(&cluster).await.into_iter().map(|[name, ..]| name).collect();
    assert_eq!(names, ["replica-2", "replica-3"]);
    admin = cluster.try_client("onecopy").await.unwrap();
    assert_eq!(rows(&admin, "ADD REPLICA").await[0]["replica"], "replica-1");
    cluster.has_replicas(3);
    let sql = "insert into noted (writer) select nextval('counter')";
    run(&cluster.client().await, sql).await;
    // The anchor can leave with its transactions: they are rolled back after a while, and can be run again.
    let open = cluster.client().await;
    run(&open, "begin; insert into noted (writer) values (-1)").await;
    assert_eq!(rows(&admin, "DROP REPLICA replica-2").await[0]["members"], "2");
    let lost = open.batch_execute("commit").await.unwrap_err();
    assert_eq!(lost.code().unwrap().code(), "40001");
    cluster.has_replicas(2);
    run(&cluster.client().await, sql).await;
    cluster.everywhere("select count(*), max(id) from noted").await;
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_donor_that_hangs_holds_up_no_rebuild() {
    let cluster = Cluster::start_as(3, &[], &["--health-deadline-ms", "2000"]).await;
    let replicas = cluster.caught_up().await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    cluster.signal_server(&replicas[1], Signal::STOP);
    let rebuild = format!("REBUILD REPLICA {}", replicas[2].name);
    let rebuilt = tokio::time::timeout(JOINS_WITHIN, rows(&admin, &rebuild)).await.expect("it ends");
    assert_eq!(rebuilt[0]["donor"], replicas[0].name, "the one that hangs is left:\n{}", cluster.printed());
    // Without another donor it fails, with a hint.
    cluster.signal_server(&replicas[0], Signal::STOP);
    let error = tokio::time::timeout(JOINS_WITHIN, admin.simple_query(&rebuild)).await.expect("it ends");
    let error = error.unwrap_err();
    let said = error.as_db_error().unwrap();
    assert_eq!(said.code().code(), "55000", "{said:?}");
    cluster.signal_server(&replicas[0], Signal::CONT);
    cluster.signal_server(&replicas[1], Signal::CONT);
    let deadline = Instant::now() + JOINS_WITHIN;
    while admin.simple_query(&rebuild).await.is_err() {
        assert!(Instant::now() < deadline, "{}", cluster.printed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.caught_up().await;
    cluster.verify().await;
}

#[tokio::test]
async fn what_cannot_be_rebuilt_is_refused() {
    let mut cluster = Cluster::start(1).await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    for (sql, state, words) in [
        ("REBUILD REPLICA replica-1", "55000", "no other replica is up"),
        ("REBUILD REPLICA nobody", "42704", "there is no replica"),
        ("CHECK REPLICAS", "57P03", "no two replicas"),
        ("DROP REPLICA replica-1", "55000", "no other replica is up"),
        ("DRAIN REPLICA replica-1", "55000", "no other replica is up"),
        ("DROP REPLICA nobody", "42704", "there is no replica"),
        ("ADD REPLICA 'postgresql://127.0.0.1:1'", "0A000", "cannot join servers of `onecopy up`"),
    ] {
        let error = admin.simple_query(sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), state, "{sql}");
        assert!(error.message().contains(words) && error.hint().is_some(), "{sql}: {error}");
    }
    let replicas = cluster.caught_up().await;
    assert_eq!(replicas[0].state, "up");
    cluster.stop().await;
}
