//! Promise: the admin database shows sessions and their work; PAUSE, RESUME and KILL work as in PgBouncer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::{Duration, Instant};

use cluster::{Cluster, rows, run, until, value};

#[tokio::test]
async fn programs_made_for_pgbouncer_find_what_they_know() {
    let mut node = Cluster::start(2).await;
    let client = node.client().await;
    run(&client, "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let alias = node.try_client("pgbouncer").await.unwrap();
    let own = node.try_client("onecopy").await.unwrap();
    for (command, columns) in [
        (
            "SHOW POOLS",
            vec![
                "database",
                "user",
                "cl_active",
                "cl_waiting",
                "sv_active",
                "sv_idle",
                "maxwait",
                "pool_mode",
            ],
        ),
        (
            "SHOW CLIENTS",
            vec!["user", "database", "state", "addr", "port", "connect_time", "wait", "application_name"],
        ),
        ("SHOW SERVERS", vec!["user", "database", "state", "addr", "port", "remote_pid"]),
        (
            "SHOW DATABASES",
            vec!["name", "host", "port", "pool_mode", "current_connections", "paused", "disabled"],
        ),
        (
            "SHOW STATS",
            vec!["database", "total_xact_count", "total_received", "total_query_time", "avg_xact_time"],
        ),
        ("SHOW STATS_TOTALS", vec!["database", "xact_count"]),
        ("SHOW STATS_AVERAGES", vec!["database", "xact_count"]),
        ("SHOW LISTS", vec!["list", "items"]),
        ("SHOW USERS", vec!["name", "pool_mode"]),
        ("SHOW VERSION", vec!["version"]),
    ] {
        let found = rows(&alias, command).await;
        assert!(!found.is_empty(), "{command}");
        for column in columns {
            assert!(found[0].contains_key(column), "{command} has no {column}: {found:?}");
        }
        // Every driver that asks over the extended protocol gets the same.
        assert_eq!(alias.query(command, &[]).await.unwrap().len(), found.len(), "{command}");
    }
    // The counters rise just after the client has its answer.
    until("the session is counted", async || {
        let stats = &rows(&alias, "SHOW STATS").await[0];
        let number = |column: &str| stats[column].parse::<u64>().unwrap();
        number("total_xact_count") >= 1 && number("total_received") > 50
    })
    .await;
    let log = rows(&own, "SHOW LOG").await;
    assert!(log[0]["durable"].parse::<u64>().unwrap() >= 2, "{log:?}");
    assert!(rows(&own, "SHOW HELP").await.iter().any(|row| row["command"] == "KILL id"));
    let refused = own.simple_query("SHOW SECRETS").await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42601");
    node.stop().await;
}

#[tokio::test]
async fn pause_waits_for_transactions_and_holds_the_next_ones() {
    let mut node = Cluster::start(2).await;
    let admin = node.try_client("onecopy").await.unwrap();
    let other = node.try_client("onecopy").await.unwrap();
    let busy = node.client().await;
    let idle = node.client().await;
    run(&busy, "CREATE TABLE t (a int PRIMARY KEY)").await;
    run(&busy, "BEGIN; INSERT INTO t VALUES (1)").await;
    let pausing = tokio::spawn(async move {
        let ended = admin.simple_query("PAUSE").await.map(|_| ());
        (admin, ended)
    });
    until("PAUSE is seen", async || rows(&other, "SHOW DATABASES").await[0]["paused"] == "1").await;
    // An open transaction goes on; new ones wait.
    let held = tokio::spawn(async move {
        let count = value(&idle, "SELECT count(*) FROM t").await;
        (idle, count)
    });
    until("the new one is held", async || {
        rows(&other, "SHOW CLIENTS").await.iter().any(|row| row["state"] == "paused")
    })
    .await;
    assert!(!pausing.is_finished() && !held.is_finished());
    run(&busy, "INSERT INTO t VALUES (2)").await;
    run(&busy, "COMMIT").await;
    let (admin, ended) = pausing.await.unwrap();
    ended.unwrap();
    assert!(!held.is_finished());
    assert_eq!(admin.simple_query("PAUSE").await.unwrap_err().code().unwrap().code(), "55000");
    run(&admin, "RESUME").await;
    assert_eq!(held.await.unwrap().1, "2");
    assert!(admin.simple_query("RESUME").await.is_err());
    node.stop().await;
}

#[tokio::test]
async fn kill_ends_what_a_session_runs_and_the_session() {
    let mut node = Cluster::start(2).await;
    let admin = node.try_client("onecopy").await.unwrap();
    let victim = node.client().await;
    let number = rows(&admin, "SHOW CLIENTS").await[0]["id"].clone();
    let running = tokio::spawn(async move {
        let slept = victim.simple_query("SELECT pg_sleep(300)").await.map(|_| ());
        (victim, slept)
    });
    until("it runs", async || rows(&admin, "SHOW CLIENTS").await.iter().any(|row| row["state"] == "active"))
        .await;
    let began = Instant::now();
    // The statement may not have reached its server yet when it is first cancelled.
    until("it ends", async || {
        let _ = admin.simple_query(&format!("KILL {number}")).await;
        running.is_finished()
    })
    .await;
    let (victim, slept) = running.await.unwrap();
    slept.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(100));
    assert!(victim.simple_query("SELECT 1").await.is_err(), "the session goes on");
    until("it is gone", async || rows(&admin, "SHOW CLIENTS").await.is_empty()).await;
    let refused = admin.simple_query("KILL 4711").await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42704");
    node.stop().await;
}
