//! Promise: pgbench works as on one PostgreSQL, and the replicas are identical afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::programs::{done_without_failure, pgbench};
use cluster::{Cluster, run, table};

const SCALE: &str = "5";
const SECONDS: &str = "3";

#[tokio::test]
async fn tpc_b_in_all_modes_adds_up_everywhere() {
    let mut cluster = Cluster::start(3).await;
    let port = cluster.port;
    // Its own steps: drop and create, TRUNCATE and COPY FREEZE in one transaction, VACUUM, ALTER TABLE .. ADD PRIMARY KEY.
    pgbench(port, &["-i", "-q", "-s", SCALE]).await;
    assert_eq!(cluster.everywhere("select count(*) from pgbench_accounts").await, [["500000"]]);
    let keys = "select conrelid::regclass from pg_constraint where contype = 'p' and conrelid::regclass::text ~ '^pgbench' order by 1";
    assert_eq!(cluster.everywhere(keys).await.len(), 3);

    let mut done = 0;
    for mode in ["simple", "extended", "prepared"] {
        let report = pgbench(port, &["-n", "-M", mode, "-c", "8", "-j", "2", "-T", SECONDS]).await;
        done += done_without_failure(&report);
    }

    let sums =
        "select (select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers),
                       (select sum(bbalance) from pgbench_branches), (select sum(delta) from pgbench_history),
                       (select count(*) from pgbench_history)";
    let found = cluster.everywhere(sums).await.swap_remove(0);
    assert!(found[..4].iter().all(|sum| *sum == found[0]), "the sums differ: {found:?}");
    assert_eq!(found[4], done.to_string(), "as many rows of history as transactions");
    // The same through the front door, and every row, not only the sums.
    assert_eq!(table(&cluster.client().await, sums).await, [found]);
    for name in ["pgbench_accounts", "pgbench_tellers", "pgbench_branches", "pgbench_history"] {
        cluster
            .everywhere(&format!("select count(*), sum(hashtextextended(t::text, 0)) from {name} t"))
            .await;
    }
    cluster.verify().await;

    // A second initialisation drops, creates and truncates the existing tables.
    pgbench(port, &["-i", "-q", "-s", "1", "-I", "dtgvpf"]).await;
    assert_eq!(cluster.everywhere("select count(*) from pgbench_accounts").await, [["100000"]]);
    run(&cluster.client().await, "truncate pgbench_history").await;
    assert_eq!(cluster.everywhere("select count(*) from pgbench_history").await, [["0"]]);
    cluster.verify().await;
    cluster.stop().await;
}
