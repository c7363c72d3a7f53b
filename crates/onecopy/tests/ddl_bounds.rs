//! Promise: a schema change delays only the users of its table, and no user delays it without bound.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::{Duration, Instant};

use cluster::{Cluster, rows, run, table, value};
use futures_util::TryStreamExt as _;
use tokio_postgres::{Client, SimpleQueryMessage};

/// How long a read may hold up a refresh in this test.
const PATIENCE: Duration = Duration::from_secs(3);
/// The deadline of an expected event.
const WITHIN: Duration = Duration::from_mins(2);

#[tokio::test]
async fn schema_changes_wait_for_readers_but_not_for_ever() {
    let mut cluster = Cluster::start_as(3, &[], &["--reader-patience", "3"]).await;
    let writer = cluster.client().await;
    run(
        &writer,
        "create table t (id int primary key); insert into t select generate_series(1, 10000);
         create table other (id int primary key); insert into other values (1)",
    )
    .await;
    cluster.caught_up().await;
    a_transaction_that_reads_is_told_to_run_again(&cluster, &writer).await;
    a_statement_whose_rows_were_shown_is_told_to_run_again(&cluster, &writer).await;
    a_statement_that_has_shown_nothing_is_run_again_unseen(&cluster, &writer).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// A read-only transaction that has read the table somewhere else than at the home, and stays open.
async fn reader_elsewhere(cluster: &Cluster) -> Client {
    loop {
        let reader = cluster.client().await;
        run(&reader, "begin read only").await;
        let port = value(&reader, "select current_setting('port') from t limit 1").await;
        if port != cluster.replicas().await[0].port.to_string() {
            return reader;
        }
        // It waits at the home; keep it from being idle at the same place again.
        run(&reader, "rollback").await;
    }
}

fn is_retry(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == "40001")
}

async fn lagging(cluster: &Cluster) -> usize {
    cluster.replicas().await.iter().filter(|replica| replica.lag_versions > 0).count()
}

async fn a_transaction_that_reads_is_told_to_run_again(cluster: &Cluster, writer: &Client) {
    let reader = reader_elsewhere(cluster).await;
    let began = Instant::now();
    run(writer, "alter table t add a int").await;
    assert_ne!(lagging(cluster).await, 0, "the change itself does not wait for a reader elsewhere");
    // Everybody else goes on, on other tables, with new versions, and on the table itself where it is changed already.
    let others = cluster.client().await;
    let mut answered = 0;
    loop {
        run(&others, "update other set id = id").await;
        assert_eq!(value(&others, "select count(*) from other").await, "1");
        assert_eq!(value(&others, "select count(*) from t where a is null").await, "10000");
        // Sessions that wait for the change are answered when it no longer waits for the reader.
        if lagging(cluster).await == 0 {
            break;
        }
        answered += 1;
        assert!(began.elapsed() < WITHIN, "the reader is waited for without end");
    }
    assert!(answered > 1, "only {answered} rounds while the reader was waited for");
    assert!(began.elapsed() >= PATIENCE, "the reader was waited for");
    cluster.caught_up().await;
    let error = reader.simple_query("select count(*) from t").await.expect_err("it was sent away");
    assert!(is_retry(&error), "{error:?}");
    run(&reader, "rollback").await;
    assert_eq!(value(&reader, "select count(a) from t").await, "0");
}

async fn a_statement_whose_rows_were_shown_is_told_to_run_again(cluster: &Cluster, writer: &Client) {
    let reader = reader_elsewhere(cluster).await;
    let slow = "select repeat('x', 1000), case when id > 9000 then pg_sleep(0.1) end from t where a is null order by id";
    let mut read = Box::pin(reader.simple_query_raw(slow).await.unwrap());
    // It is asked for its columns, and then for the first of its rows.
    for _ in 0..2 {
        read.try_next().await.unwrap().expect("it has rows");
    }
    run(writer, "alter table t add b int").await;
    let read: Result<Vec<SimpleQueryMessage>, _> = read.try_collect().await;
    let error = read.map(|messages| messages.len()).expect_err("it was cancelled");
    assert!(is_retry(&error), "{error:?}");
    run(&reader, "rollback").await;
    cluster.caught_up().await;
}

/// Waits until some server runs a read that takes its time.
async fn runs_somewhere(cluster: &Cluster) {
    const SLEEPS: &str = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    let deadline = Instant::now() + WITHIN;
    let replicas = cluster.replicas().await;
    loop {
        for replica in &replicas {
            if value(&cluster.direct(replica).await, SLEEPS).await != "0" {
                return;
            }
        }
        assert!(Instant::now() < deadline, "it runs nowhere");
    }
}

async fn a_statement_that_has_shown_nothing_is_run_again_unseen(cluster: &Cluster, writer: &Client) {
    let retried = || async {
        let admin = cluster.try_client("onecopy").await.unwrap();
        let all = rows(&admin, "SHOW STATS").await;
        let of = all.iter().find(|row| row.values().any(|value| value == "retried_unseen"));
        of.expect("SHOW STATS has retried_unseen").clone()
    };
    let before = retried().await;
    // Where a statement runs is not for the client to say; at the home it is the change that waits.
    let deadline = Instant::now() + WITHIN;
    let mut column = 0;
    while Instant::now() < deadline {
        column += 1;
        let client = cluster.client().await;
        let slow = "select count(*) from t where id <= 2 and pg_sleep(3) is not null";
        let change = format!("alter table t add c{column} int");
        let (read, ()) = tokio::join!(table(&client, slow), async {
            runs_somewhere(cluster).await;
            run(writer, &change).await;
        });
        assert_eq!(read, [["2"]]);
        cluster.caught_up().await;
        if retried().await != before {
            return;
        }
    }
    panic!("no statement was run again");
}
