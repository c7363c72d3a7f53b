//! Promise: reads use every replica, also while writes go on elsewhere in the database.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::programs::{done_without_failure, pgbench};
use cluster::{Cluster, connect, run, value};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The least share of the reads that each of three replicas must have served.
const SHARE_PERCENT_MIN: u64 = 10;

#[tokio::test]
async fn reads_spread_over_all_replicas() {
    let mut cluster = Cluster::start(3).await;
    let port = cluster.port;
    pgbench(port, &["-i", "-q", "-s", "1"]).await;
    cluster.caught_up().await;

    for mode in ["simple", "extended", "prepared"] {
        let before = cluster.replicas().await;
        let report = pgbench(port, &["-n", "-S", "-M", mode, "-c", "6", "-j", "2", "-T", "2"]).await;
        let done = done_without_failure(&report);
        let after = cluster.replicas().await;
        let reads: Vec<u64> =
            before.iter().zip(&after).map(|(before, after)| after.reads - before.reads).collect();
        assert_shares(&reads, &format!("pgbench -S -M {mode}"));
        let counted: u64 = reads.iter().sum();
        assert!(counted >= done, "{done} reads were done and {counted} counted");
    }

    let client = cluster.client().await;
    run(&client, "create table other (k int primary key); insert into other select generate_series(1, 100)")
        .await;
    cluster.caught_up().await;
    let (report, served) =
        tokio::join!(pgbench(port, &["-n", "-c", "4", "-j", "1", "-T", "5"]), read_other(port, 4));
    done_without_failure(&report);
    // The anchor is busy with writes and may rightly get few of them; the other two share them.
    let mut reads: Vec<u64> = served.into_values().collect();
    reads.sort_unstable();
    assert!(reads.len() > 1, "under writes only one replica served reads of another table");
    assert_shares(&reads[reads.len() - 2..], "reads of another table under TPC-B");

    let replicas = cluster.caught_up().await;
    assert!(replicas.iter().any(|replica| replica.writes > 0), "writes are counted: {replicas:?}");
    cluster.verify().await;
    cluster.stop().await;
}

/// Reads another table from several sessions for some seconds; which server has served how many.
async fn read_other(port: u16, seconds: u64) -> BTreeMap<String, u64> {
    const SESSIONS: usize = 3;
    let mut tasks = Vec::new();
    for _ in 0..SESSIONS {
        tasks.push(tokio::spawn(async move {
            let client = connect("127.0.0.1", port, "postgres").await.unwrap();
            let mut served = BTreeMap::new();
            let end = Instant::now() + Duration::from_secs(seconds);
            while Instant::now() < end {
                // The server's own port tells which of them answers.
                let server = value(&client, "select current_setting('port') from other where k = 7").await;
                *served.entry(server).or_insert(0) += 1;
            }
            served
        }));
    }
    let mut served = BTreeMap::new();
    for task in tasks {
        for (server, count) in task.await.unwrap() {
            *served.entry(server).or_insert(0) += count;
        }
    }
    served
}

fn assert_shares(reads: &[u64], what: &str) {
    let all: u64 = reads.iter().sum();
    assert!(all > 0, "{what}: nothing was read");
    let fair = |share: &u64| *share * 100 >= all * SHARE_PERCENT_MIN;
    assert!(reads.iter().all(fair), "{what}: shares {reads:?}");
}
