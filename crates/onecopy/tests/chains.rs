//! Promise: transactions that are known as a whole and conflict wait for each other instead of failing, under protocol
//! `gargamel` and for sessions that ask for it; their rivals fail.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::Duration;

use cluster::{Cluster, connect, rows, run, value};
use tokio_postgres::error::SqlState;

const CLIENTS: usize = 6;
const UPDATES_EACH: usize = 25;

const SCHEMA: &str = "
create table counter (k int primary key, n int not null);
insert into counter values (1, 0), (2, 0);
create procedure add(a int, b int) language plpgsql as $$
begin
    update counter set n = n + 1 where k = a;
    update counter set n = n + 1 where k = b;
end $$;
";

/// What one client does at REPEATABLE READ: statements, calls and blocks in one query string that all meet in two rows. Returns how many failed with 40001,
/// or 40P01; each of these was sent again.
async fn work(port: u16, settings: &str, number: usize) -> usize {
    let client = connect("127.0.0.1", port, "postgres").await.unwrap();
    run(&client, "set default_transaction_isolation = 'repeatable read'").await;
    run(&client, settings).await;
    let mut failed = 0;
    for n in 0..UPDATES_EACH {
        let statement = match (number + n) % 5 {
            3 => {
                "begin; update counter set n = n + 1 where k = 1; update counter set n = n + 1 where k = 2; commit"
            }
            4 => "update counter set n = n + 1 where k = 2; update counter set n = n + 1 where k = 1",
            0 => "update counter set n = n + 1 where k = 1",
            1 => "call add(1, 2)",
            _ => "call add(2, 1)",
        };
        while let Err(error) = client.batch_execute(statement).await {
            let code = error.code().unwrap();
            assert!(
                [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code),
                "{error}"
            );
            failed += 1;
            run(&client, "rollback").await;
        }
    }
    failed
}

/// All clients at once. Returns how many transactions failed with 40001.
async fn all_work(cluster: &Cluster, settings: &'static str) -> usize {
    let client = cluster.client().await;
    run(&client, "update counter set n = 0").await;
    let tasks: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(work(cluster.port, settings, number))).collect();
    let mut failed = 0;
    for task in tasks {
        failed += task.await.unwrap();
    }
    let calls = (0..CLIENTS).flat_map(|number| (0..UPDATES_EACH).map(move |n| (number + n) % 5));
    let expected: usize = calls.map(|kind| if kind == 0 { 1 } else { 2 }).sum();
    assert_eq!(value(&client, "select sum(n) from counter").await, expected.to_string(), "no update is lost");
    failed
}

async fn start(protocol: &[&str]) -> Cluster {
    let cluster = Cluster::start_as(3, &[], protocol).await;
    run(&cluster.client().await, SCHEMA).await;
    cluster.caught_up().await;
    cluster
}

#[tokio::test]
async fn known_transactions_wait_under_gargamel() {
    for rule in ["write-write", "read-write"] {
        let mut cluster = start(&["--protocol", "gargamel", "--rule", rule]).await;
        assert_eq!(all_work(&cluster, "").await, 0, "{rule}");
        let client = cluster.client().await;
        assert_eq!(value(&client, "show onecopy.ordering").await, "chains");
        is_shown(&cluster).await;
        cluster.caught_up().await;
        cluster.verify().await;
        cluster.stop().await;
    }
}

/// Two known transactions wait for an interactive one, and stand in one chain as long as it is open.
async fn is_shown(cluster: &Cluster) {
    let admin = connect("127.0.0.1", cluster.port, "onecopy").await.unwrap();
    let holder = cluster.client().await;
    run(&holder, "begin; update counter set n = n + 1 where k = 1").await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let client = cluster.client().await;
        waiting.push(tokio::spawn(async move { run(&client, "call add(1, 2)").await }));
    }
    loop {
        let chains = rows(&admin, "SHOW CHAINS").await;
        if let [chain] = chains.as_slice()
            && chain["transactions"] == "2"
        {
            assert_eq!(chain["sessions"].split(' ').count(), 2);
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    run(&holder, "commit").await;
    for call in waiting {
        call.await.unwrap();
    }
    assert_eq!(rows(&admin, "SHOW CHAINS").await.len(), 0);
    let stats = rows(&admin, "SHOW STATS").await;
    let misjudged = stats.iter().find(|row| row["name"] == "chains_misjudged").unwrap();
    assert_eq!(misjudged["value"], "0");
}

#[tokio::test]
async fn sessions_ask_for_chains_under_onecopy() {
    let mut cluster = start(&[]).await;
    assert_eq!(all_work(&cluster, "set onecopy.ordering = chains").await, 0);
    let client = cluster.client().await;
    assert_eq!(value(&client, "show onecopy.ordering").await, "statements");
    run(&client, "set onecopy.ordering = 'chains'").await;
    assert_eq!(value(&client, "show onecopy.ordering").await, "chains");
    run(&client, "reset onecopy.ordering").await;
    assert_eq!(value(&client, "show onecopy.ordering").await, "statements");
    let refused = client.batch_execute("set onecopy.ordering = rings").await.unwrap_err();
    assert_eq!(refused.code(), Some(&SqlState::INVALID_PARAMETER_VALUE));
    run(&client, "alter role postgres set onecopy.ordering = 'chains'").await;
    let after = cluster.client().await;
    assert_eq!(value(&after, "show onecopy.ordering").await, "chains");
    cluster.caught_up().await;
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn rivals_lose_nothing_and_round_robin_fails() {
    for (protocol, fails) in [("round-robin", true), ("centralised-writes", false)] {
        let mut cluster = start(&["--protocol", protocol]).await;
        let failed = all_work(&cluster, "").await;
        assert_eq!(failed > 0, fails, "{protocol}: {failed} of {} failed", CLIENTS * UPDATES_EACH);
        cluster.caught_up().await;
        cluster.verify().await;
        cluster.stop().await;
    }
}

/// At REPEATABLE READ the wait ends with the error that it replaces; at READ COMMITTED PostgreSQL would wait.
#[tokio::test]
async fn patience_ends_a_wait_but_not_at_read_committed() {
    let mut cluster = start(&["--chain-patience-ms", "200"]).await;
    let holder = cluster.client().await;
    run(&holder, "begin; update counter set n = n + 1 where k = 1").await;
    let read_committed = cluster.client().await;
    run(&read_committed, "set onecopy.ordering = chains").await;
    let waits = tokio::spawn(async move { run(&read_committed, "call add(1, 2)").await });
    let client = cluster.client().await;
    run(&client, "set onecopy.ordering = chains").await;
    run(&client, "set default_transaction_isolation = 'repeatable read'").await;
    let error = client.batch_execute("call add(2, 1)").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code(), &SqlState::T_R_SERIALIZATION_FAILURE);
    assert_eq!(error.message(), "could not serialize access: waited for others too long");
    assert!(error.detail().unwrap().contains("table \"counter\""), "{error:?}");
    assert!(!waits.is_finished(), "it waits for the row");
    run(&holder, "commit").await;
    waits.await.unwrap();
    run(&client, "call add(2, 1)").await;
    assert_eq!(value(&client, "select sum(n) from counter").await, "5");
    cluster.stop().await;
}

/// A query string whose transaction never began says nothing of the next one, here one of the extended protocol.
#[tokio::test]
async fn a_transaction_is_not_known_by_an_earlier_query_string() {
    let mut cluster = start(&["--protocol", "gargamel", "--chain-patience-ms", "200"]).await;
    let admin = connect("127.0.0.1", cluster.port, "onecopy").await.unwrap();
    let (holder, client) = (cluster.client().await, cluster.client().await);
    run(&holder, "begin; update counter set n = n + 1 where k = 1").await;
    run(&client, "set default_transaction_isolation = 'repeatable read'").await;
    let both = "update counter set n = n + 1 where k = 1; update counter set n = n + 1 where k = 2";
    let error = client.batch_execute(both).await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE));
    run(&holder, "commit").await;
    for statement in ["begin", "update counter set n = n + 1 where k = 1"] {
        client.execute(statement, &[]).await.unwrap();
    }
    assert_eq!(rows(&admin, "SHOW CHAINS").await.len(), 0, "later statements may do anything");
    run(&client, "commit").await;
    cluster.stop().await;
}
