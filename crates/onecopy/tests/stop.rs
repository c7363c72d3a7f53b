//! Promise: a stop is orderly: open transactions may end for a while, and a second signal ends the node at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::{Duration, Instant};

use cluster::{Cluster, run, value};
use rustix::process::Signal;

/// Longer than any test waits, so that only a second signal can end it.
const PATIENCE_S: &str = "300";
const WITHIN: Duration = Duration::from_mins(1);

/// Waits until the node rejects new clients.
async fn accepts_no_more(node: &Cluster) {
    let deadline = Instant::now() + WITHIN;
    while node.try_client("postgres").await.is_ok() {
        assert!(Instant::now() < deadline, "new clients are still let in");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_open_transaction_may_end_after_the_signal_and_new_clients_are_refused() {
    let mut node = Cluster::start_as(2, &[], &["--stop-patience", PATIENCE_S]).await;
    let busy = node.client().await;
    let idle = node.client().await;
    run(&busy, "CREATE TABLE kept (a int PRIMARY KEY)").await;
    run(&busy, "BEGIN; INSERT INTO kept VALUES (1)").await;
    node.signal(Signal::TERM);
    accepts_no_more(&node).await;
    let deadline = Instant::now() + WITHIN;
    while idle.simple_query("SELECT 1").await.is_ok() {
        assert!(Instant::now() < deadline, "an idle session goes on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    run(&busy, "INSERT INTO kept VALUES (2)").await;
    assert!(node.is_running(), "it waits for the transaction");
    run(&busy, "COMMIT").await;
    let error = busy.simple_query("SELECT 1").await.expect_err("the session ends with its transaction");
    assert!(error.is_closed() || error.code().is_some_and(|code| code.code() == "57P01"), "{error:?}");
    node.stop().await;
    node.up_again().await;
    assert_eq!(value(&node.client().await, "SELECT count(*) FROM kept").await, "2");
    node.stop().await;
}

#[tokio::test]
async fn a_second_signal_ends_the_waiting_and_the_transaction_is_undone() {
    let mut node = Cluster::start_as(2, &[], &["--stop-patience", PATIENCE_S]).await;
    let busy = node.client().await;
    run(&busy, "CREATE TABLE kept (a int PRIMARY KEY)").await;
    run(&busy, "BEGIN; INSERT INTO kept VALUES (1)").await;
    node.signal(Signal::INT);
    accepts_no_more(&node).await;
    assert!(node.is_running(), "it waits for the transaction");
    // The harness sends the second one, and waits for the end.
    node.stop().await;
    assert!(node.printed().contains("1 sessions are in a transaction"), "{}", node.printed());
    node.up_again().await;
    assert_eq!(value(&node.client().await, "SELECT count(*) FROM kept").await, "0");
    node.stop().await;
}
