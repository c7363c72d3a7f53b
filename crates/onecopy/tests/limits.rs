//! Promise: a statement or session over a limit gets a clear error, and existing sessions go on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
#[path = "limits/texts.rs"]
mod texts;

use cluster::{Cluster, run, value};
use std::time::{Duration, Instant};

/// More sessions than any server here takes.
const SESSIONS_MAX: usize = 600;
/// Far more than a session takes that does nothing large.
const SESSION_KB_MAX: u64 = 500;
const ROOM_AGAIN_WITHIN: Duration = Duration::from_mins(1);

#[tokio::test]
async fn too_many_sessions_are_turned_away() {
    // One thread has all sessions.
    let mut cluster = Cluster::start_with(2, &[("ONECOPY_TEST_THREADS", "1")]).await;
    let first = cluster.client().await;
    run(&first, "create table t (k int primary key)").await;
    let before_kb = resident_kb(&cluster);
    let mut sessions = Vec::new();
    let mut refused = None;
    while sessions.len() < SESSIONS_MAX && refused.is_none() {
        match cluster.try_client("postgres").await {
            // It is a session's statements that need connections to servers.
            Ok(client) => match client.batch_execute("delete from t where k < 0").await {
                Ok(()) => sessions.push(client),
                Err(error) => refused = Some(error),
            },
            Err(error) => refused = Some(error),
        }
    }
    let error = refused.unwrap_or_else(|| panic!("{} sessions were let in", sessions.len()));
    let code = error.code().map(|code| code.code().to_owned());
    assert_eq!(code.as_deref(), Some("53300"), "after {} sessions: {error:?}", sessions.len());
    assert!(sessions.len() >= 20, "only {} sessions", sessions.len());

    run(&first, "insert into t values (1)").await;
    assert_eq!(value(&sessions[0], "select count(*) from t").await, "1", "those inside go on");
    let states: Vec<String> = cluster.caught_up().await.into_iter().map(|replica| replica.state).collect();
    assert!(states.iter().all(|state| state == "up"), "the admin database still answers");

    // Each has a connection to the home and one to the other replica.
    for session in &sessions {
        value(session, "select count(*) from t").await;
    }
    let each_kb = (resident_kb(&cluster) - before_kb) / sessions.len() as u64;
    cluster::folder::say(&format!("{} sessions, {each_kb} kB each", sessions.len()));
    assert!(each_kb < SESSION_KB_MAX, "a session takes {each_kb} kB");

    // A waiting client gets the place of the next one that leaves.
    let port = cluster.port;
    let waiting = tokio::spawn(async move { cluster::connect("127.0.0.1", port, "postgres").await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "there is no place yet");
    drop(sessions.pop());
    let mut late = waiting.await.unwrap();
    // Clients wait only briefly, and on a slow machine the place of a client that has left becomes free late.
    let deadline = Instant::now() + ROOM_AGAIN_WITHIN;
    while late.is_err() && Instant::now() < deadline {
        late = cluster.try_client("postgres").await;
    }
    let late = late.expect("a place is free");
    run(&late, "insert into t values (3)").await;

    sessions.clear();
    let deadline = Instant::now() + ROOM_AGAIN_WITHIN;
    loop {
        match cluster.try_client("postgres").await {
            Ok(client) if client.batch_execute("insert into t values (2)").await.is_ok() => break,
            _ => assert!(Instant::now() < deadline, "no room after the others have left"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(cluster.everywhere("select count(*) from t").await, [["3"]]);
    texts::are_bounded(&cluster).await;
    cluster.stop().await;
}

/// The memory of the Onecopy process.
fn resident_kb(cluster: &Cluster) -> u64 {
    status_kb(cluster, "VmRSS:")
}

/// The most that it has had.
fn peak_kb(cluster: &Cluster) -> u64 {
    status_kb(cluster, "VmHWM:")
}

fn status_kb(cluster: &Cluster, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
