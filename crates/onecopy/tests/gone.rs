//! Promise: a client that disconnects at any point leaves no lock and no half of a transaction. A client that does not read
//! takes no memory. The end of one backend is not the end of its server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
#[path = "gone/pipelines.rs"]
mod pipelines;

use cluster::raw::Raw;
use cluster::{Cluster, rows, run, table, value};
use std::time::{Duration, Instant};
use wire::encode;

/// A statement of a client that has gone is cancelled after a second.
const FREED_WITHIN: Duration = Duration::from_mins(1);
/// A result many times larger than the memory that it may take.
const RESULT_MB: u64 = 200;
/// The memory that a client which does not read may add to the node.
const SLOW_READER_KB_MAX: u64 = 30 << 10;

/// Waits until a write of this row succeeds, which shows that no transaction holds it, and until no more than `open`
/// transactions are open.
async fn is_free(cluster: &Cluster, row: u32, open: usize, what: &str) {
    let client = cluster.client().await;
    let deadline = Instant::now() + FREED_WITHIN;
    let sql = format!("set lock_timeout = '2s'; update t set seen = seen + 1 where k = {row}");
    while let Err(error) = client.batch_execute(&sql).await {
        assert!(Instant::now() < deadline, "{what}: the lock stays: {error:?}");
    }
    let admin = cluster.try_client("onecopy").await.unwrap();
    while rows(&admin, "SHOW TRANSACTIONS").await.len() > open {
        assert!(Instant::now() < deadline, "{what}: a transaction stays open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends a simple query without waiting for its answer.
fn say(out: &mut Vec<u8>, sql: &str) {
    encode::query(out, sql.as_bytes());
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_a_whole_transaction_or_none() {
    let mut cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    run(
        &client,
        "create table t (k int primary key, seen int default 0); insert into t select i from generate_series(1, 9) i;
         create table copied (k int primary key, filler text)",
    )
    .await;

    // In the middle of a transaction, between statements.
    let mut raw = Raw::connect(cluster.port);
    raw.exchange(|out| say(out, "begin; update t set seen = 100 where k = 1"));
    drop(raw);
    is_free(&cluster, 1, 0, "between statements").await;

    // While a statement of it runs, or waits for a lock of another session.
    let mut holder = Raw::connect(cluster.port);
    holder.exchange(|out| say(out, "begin; update t set seen = 100 where k = 2"));
    for statement in ["select pg_sleep(60)", "update t set seen = 100 where k = 2"] {
        let mut raw = Raw::connect(cluster.port);
        raw.exchange(|out| say(out, "begin; update t set seen = 100 where k = 3"));
        raw.send(|out| say(out, statement));
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(raw);
        is_free(&cluster, 3, 1, statement).await;
    }
    drop(holder);
    is_free(&cluster, 2, 0, "the one who was waited for").await;

    // Inside COPY, after a good part of the rows.
    let mut raw = Raw::connect(cluster.port);
    raw.exchange(|out| say(out, "begin; update t set seen = 100 where k = 4"));
    raw.send(|out| say(out, "copy copied from stdin"));
    for k in 0..2_000 {
        raw.send(|out| encode::copy_data(out, format!("{k}\t{}\n", "x".repeat(400)).as_bytes()));
    }
    drop(raw);
    is_free(&cluster, 4, 0, "inside COPY").await;
    assert_eq!(value(&client, "select count(*) from copied").await, "0");

    // While it is told of many rows and reads none of them.
    let mut raw = Raw::connect(cluster.port);
    raw.exchange(|out| say(out, "begin; update t set seen = 100 where k = 5"));
    raw.send(|out| say(out, "select repeat('x', 1000) from generate_series(1, 100000)"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(raw);
    is_free(&cluster, 5, 0, "inside a result").await;
    assert_eq!(table(&client, "select distinct seen >= 100 from t").await, [["f"]], "nothing was committed");

    // Inside COMMIT: either outcome is right, and both tables have it.
    run(&client, "create table a (k int primary key); create table b (k int primary key)").await;
    let mut raws = Vec::new();
    for k in 0..40 {
        let mut raw = Raw::connect(cluster.port);
        raw.exchange(|out| {
            say(out, &format!("begin; insert into a values ({k}); insert into b values ({k})"));
        });
        raw.send(|out| say(out, "commit"));
        if k % 2 == 0 {
            tokio::time::sleep(Duration::from_micros(500 * k)).await;
        }
        raws.push(raw);
        raws.drain(..raws.len().saturating_sub(usize::try_from(k % 3).unwrap()));
    }
    drop(raws);
    is_free(&cluster, 6, 0, "inside COMMIT").await;
    assert_eq!(table(&client, "select * from a except select * from b").await.len(), 0);
    assert_eq!(table(&client, "select * from b except select * from a").await.len(), 0);
    // Each key is free or present: no transaction holds one.
    let insert = "insert into a select i from generate_series(0, 39) i on conflict do nothing";
    run(&client, &format!("set lock_timeout = '1min'; {insert}; {}", insert.replace(" a ", " b "))).await;
    assert_eq!(cluster.everywhere("select count(*) from a").await, [["40"]]);
    cluster.verify().await;

    one_backend_is_not_a_server(&cluster).await;
    a_slow_reader_takes_no_memory(&cluster).await;
    pipelines::are_kept_in_hand(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// `pg_terminate_backend` of a session's backend: an open transaction fails with a retryable error, a session without one goes
/// on, no other session notices, and the replica stays up.
async fn one_backend_is_not_a_server(cluster: &Cluster) {
    let (open, idle, other) = (cluster.client().await, cluster.client().await, cluster.client().await);
    let failed = cluster.client().await;
    run(&failed, "begin; update t set seen = 200 where k = 6").await;
    failed.batch_execute("select 1 / 0").await.unwrap_err();
    let ending = cluster.client().await;
    run(&ending, "begin; update t set seen = 200 where k = 5").await;
    run(&open, "begin; update t set seen = 200 where k = 7").await;
    run(&idle, "update t set seen = seen + 1 where k = 8").await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    let servers = rows(&admin, "SHOW SERVERS").await;
    let before: Vec<u64> = cluster.replicas().await.iter().map(|replica| replica.applied).collect();
    let replicas = cluster.replicas().await;
    let mut ended = 0;
    for (client, sql) in [(&open, "select 1"), (&idle, "select 1")] {
        run(client, sql).await;
    }
    for server in &servers {
        let replica = replicas.iter().find(|replica| replica.name == server["replica"]).unwrap();
        let direct = cluster.direct(replica).await;
        let gone = value(&direct, &format!("select pg_terminate_backend({})", server["remote_pid"])).await;
        ended += usize::from(gone == "t");
    }
    assert!(ended >= 4, "the backends of all four sessions were there: {servers:?}");
    let lost = open.batch_execute("update t set seen = 201 where k = 7").await.unwrap_err();
    assert_eq!(lost.code().unwrap().code(), "40001");
    run(&open, "rollback").await;
    // That the backend is gone is found out by the ROLLBACK or COMMIT itself, which is the end of the transaction.
    let lost = ending.batch_execute("commit").await.unwrap_err();
    assert_eq!(lost.code().unwrap().code(), "40001");
    run(&ending, "update t set seen = seen + 1 where k = 5").await;
    run(&failed, "rollback").await;
    run(&failed, "update t set seen = seen + 1 where k = 6").await;
    run(&idle, "update t set seen = seen + 1 where k = 8").await;
    run(&other, "update t set seen = seen + 1 where k = 9").await;
    is_free(cluster, 7, 0, "its backend was ended").await;
    assert_eq!(value(&other, "select seen < 200 from t where k = 7").await, "t");
    let after = cluster.caught_up().await;
    assert!(after.iter().zip(before).all(|(replica, before)| replica.applied > before));
}

async fn a_slow_reader_takes_no_memory(cluster: &Cluster) {
    let before_kb = peak_kb(cluster);
    let mut slow = Raw::connect(cluster.port);
    let rows = RESULT_MB << 10;
    slow.send(|out| say(out, &format!("select repeat('x', 1024) from generate_series(1, {rows})")));
    // As much as there is room for is on its way; others go on meanwhile.
    let client = cluster.client().await;
    for _ in 0..50 {
        run(&client, "update t set seen = seen + 1 where k = 9").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let grown_kb = peak_kb(cluster).saturating_sub(before_kb);
    cluster::folder::say(&format!("a client that does not read: {grown_kb} kB more at the peak"));
    assert!(grown_kb < SLOW_READER_KB_MAX, "{grown_kb} kB for one who does not read");
    assert_eq!(slow.skip_to_ready(), rows + 2, "all of it comes in the end");
    let grown_kb = peak_kb(cluster).saturating_sub(before_kb);
    assert!(grown_kb < SLOW_READER_KB_MAX, "{grown_kb} kB for one who reads late");
}

/// The most that Onecopy itself has had in memory.
fn peak_kb(cluster: &Cluster) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
