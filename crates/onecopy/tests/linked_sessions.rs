//! Promise: sessions that reach the core over a link, as those of a node without the core do, get the same answers.
//!
//! The link is inside the process here ([`LINKED`]). So this test has what comes late on a link, and no lost link.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::{Cluster, rows, run, value};
use tokio_postgres::{Client, Error};

const LINKED: (&str, &str) = ("ONECOPY_TEST_LINKED_SESSIONS", "forever");
const CLIENTS: usize = 6;
/// Each client of the load commits at least so often, before and after the loss of a server.
const COMMITS_MIN: u64 = 60;
const WITHIN: Duration = Duration::from_mins(2);

#[tokio::test]
async fn linked_sessions_get_the_same_answers() {
    let mut cluster = Cluster::start_with(3, &[LINKED]).await;
    let client = cluster.client().await;
    let setup = "create table t (k int primary key, v int not null default 0);
                 create table odd (k int primary key, v text unique);
                 insert into t select g, 0 from generate_series(1, 20) g";
    run(&client, setup).await;
    are_linked(&cluster);
    a_statement_does_not_wait_that_must_not(&cluster).await;
    a_withdrawn_statement_leaves_its_transaction_open(&cluster).await;
    rows_that_were_not_foreseen_are_reserved(&cluster).await;
    schema_changes_meet_open_transactions(&cluster).await;
    a_drained_replica_is_left(&cluster).await;
    nothing_is_lost_under_load(&mut cluster).await;
    cluster.stop().await;
}

/// The link breaks after so many messages, again and again, and what is under way on it is lost.
const BREAKING: (&str, &str) = ("ONECOPY_TEST_LINKED_SESSIONS", "100");
/// Each client commits at least so often.
const BREAKING_COMMITS_MIN: u64 = 30;

#[tokio::test]
async fn a_link_that_breaks_leaves_no_outcome_unknown() {
    let mut cluster = Cluster::start_with(3, &[BREAKING]).await;
    let client = cluster.client().await;
    let setup = "create table t (k int primary key, v int not null); insert into t select g, 0 from generate_series(1, 6) g";
    run_patiently(&client, setup).await;
    are_linked(&cluster);
    let load = Arc::new(Load::default());
    let mut running = Vec::new();
    for number in 0..CLIENTS {
        let (load, client) = (Arc::clone(&load), cluster.client().await);
        running.push(tokio::spawn(count_up(load, client, number)));
    }
    load.reaches(BREAKING_COMMITS_MIN).await;
    load.is_over.store(true, Ordering::SeqCst);
    for client in running {
        let unexpected = client.await.unwrap();
        assert!(unexpected.is_empty(), "{unexpected:?}");
    }
    // The session that has changed the schema ends if its link broke before it had looked what it left at the server.
    let counting = cluster.client().await;
    let found: u64 = value(&counting, "select sum(v) from t").await.parse().unwrap();
    assert_eq!(found, load.acknowledged(), "each commit adds one");
    cluster.caught_up().await;
    cluster.stop().await;
}

/// Runs statements until they are not aborted because the link broke.
async fn run_patiently(client: &Client, statements: &str) {
    let deadline = Instant::now() + WITHIN;
    while let Err(error) = client.batch_execute(statements).await {
        assert!(code(&error) == "40001" && Instant::now() < deadline, "{error:?}");
    }
}

fn code(error: &Error) -> &str {
    error.code().map_or("", |code| code.code())
}

async fn at(cluster: &Cluster, home: &str) -> Client {
    let client = cluster.client().await;
    run(&client, &format!("set onecopy.home = '{home}'")).await;
    client
}

/// Otherwise this test would show nothing.
fn are_linked(cluster: &Cluster) {
    let said = cluster.printed();
    assert!(said.contains("sessions reach the core over a link"), "{said}");
}

async fn a_statement_does_not_wait_that_must_not(cluster: &Cluster) {
    let (holder, other) = (at(cluster, "replica-2").await, at(cluster, "replica-3").await);
    run(&holder, "begin; update t set v = v where k = 2").await;
    let refused = other.batch_execute("select from t where k = 2 for update nowait").await.unwrap_err();
    assert_eq!(code(&refused), "55P03", "{refused:?}");
    let refused = refused.as_db_error().unwrap();
    assert!(refused.message().contains("relation \"t\""), "{refused:?}");
    assert!(refused.detail().is_some_and(|detail| detail.contains("is held by session")), "{refused:?}");
    run(&holder, "rollback").await;
}

async fn a_withdrawn_statement_leaves_its_transaction_open(cluster: &Cluster) {
    let (holder, other) = (at(cluster, "replica-2").await, at(cluster, "replica-3").await);
    run(&holder, "begin; update t set v = v where k = 3").await;
    run(&other, "begin; update t set v = 1 where k = 4; savepoint s; set local lock_timeout = '100ms'").await;
    let refused = other.batch_execute("update t set v = 2 where k = 3").await.unwrap_err();
    assert_eq!(code(&refused), "55P03", "{refused:?}");
    run(&holder, "commit").await;
    run(&other, "rollback to s; update t set v = 2 where k = 3; commit").await;
    assert_eq!(value(&holder, "select sum(v) from t where k in (3, 4)").await, "3");
}

async fn rows_that_were_not_foreseen_are_reserved(cluster: &Cluster) {
    let (first, second) = (at(cluster, "replica-2").await, at(cluster, "replica-3").await);
    run(&first, "begin; insert into odd select k, 'same' from t where k = 1").await;
    let waits = tokio::spawn(async move {
        second.batch_execute("insert into odd select k, 'same' from t where k = 2").await
    });
    let admin = cluster.try_client("onecopy").await.unwrap();
    let deadline = Instant::now() + WITHIN;
    while rows(&admin, "SHOW TRANSACTIONS").await.iter().all(|row| row["waits_for"].is_empty()) {
        assert!(Instant::now() < deadline, "the second one does not wait");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run(&first, "commit").await;
    let refused = waits.await.unwrap().unwrap_err();
    assert_eq!(code(&refused), "23505", "{refused:?}");
}

/// Sessions change the schema at the same time, while others write.
async fn schema_changes_meet_open_transactions(cluster: &Cluster) {
    let changes = (0..3).map(async |number: usize| {
        let client = cluster.client().await;
        for round in 0..5 {
            let name = format!("s{number}_{round}");
            run(&client, &format!("create table {name} (a int primary key); insert into {name} values (1)"))
                .await;
            run(&client, &format!("alter table {name} add b int default 7")).await;
            run(&client, &format!("grant select on {name} to public")).await;
            assert_eq!(value(&client, &format!("select b from {name}")).await, "7");
        }
    });
    futures_util::future::join_all(changes).await;
    cluster.verify().await;
}

/// A session with an idle connection to a replica closes it when the replica is drained.
async fn a_drained_replica_is_left(cluster: &Cluster) {
    let (client, admin) = (at(cluster, "replica-3").await, cluster.try_client("onecopy").await.unwrap());
    run(&client, "set application_name = 'of drains'").await;
    run(&client, "update t set v = v where k = 5").await;
    let third = cluster.replicas().await.into_iter().find(|replica| replica.name == "replica-3").unwrap();
    let direct = cluster.direct(&third).await;
    let connections = "select count(*) from pg_stat_activity where application_name = 'of drains'";
    assert_eq!(value(&direct, connections).await, "1");
    run(&admin, "DRAIN REPLICA replica-3").await;
    let deadline = Instant::now() + WITHIN;
    while value(&direct, connections).await != "0" {
        assert!(Instant::now() < deadline, "its connection stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run(&admin, "UNDRAIN REPLICA replica-3").await;
}

/// Counters of acknowledged commits.
#[derive(Default)]
struct Load {
    commits: [AtomicU64; CLIENTS],
    is_over: AtomicBool,
}

impl Load {
    fn acknowledged(&self) -> u64 {
        self.commits.iter().map(|commits| commits.load(Ordering::SeqCst)).sum()
    }

    async fn reaches(&self, least: u64) {
        let deadline = Instant::now() + WITHIN;
        while self.commits.iter().any(|commits| commits.load(Ordering::SeqCst) < least) {
            assert!(Instant::now() < deadline, "{:?}", self.commits);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn nothing_is_lost_under_load(cluster: &mut Cluster) {
    let load = Arc::new(Load::default());
    let client = cluster.client().await;
    run(&client, "update t set v = 0").await;
    let mut running = Vec::new();
    for number in 0..CLIENTS {
        let (load, client) = (Arc::clone(&load), cluster.client().await);
        running.push(tokio::spawn(count_up(load, client, number)));
    }
    load.reaches(COMMITS_MIN).await;
    let lost = cluster.replicas().await.into_iter().find(|replica| replica.role != "anchor").unwrap();
    cluster.crash_server(&lost).await;
    load.reaches(2 * COMMITS_MIN).await;
    load.is_over.store(true, Ordering::SeqCst);
    for client in running {
        let unexpected = client.await.unwrap();
        assert!(unexpected.is_empty(), "{unexpected:?}");
    }
    let found: u64 = value(&client, "select sum(v) from t where k <= 6").await.parse().unwrap();
    assert_eq!(found, load.acknowledged(), "each commit adds one");
    cluster.caught_up().await;
    cluster.verify().await;
}

/// Adds to rows that other clients add to as well. Returns the errors that it should not have had.
async fn count_up(load: Arc<Load>, client: Client, number: usize) -> Vec<String> {
    let mut unexpected = Vec::new();
    for round in 0.. {
        if load.is_over.load(Ordering::SeqCst) {
            break;
        }
        let key = (number + round) % CLIENTS + 1;
        let change =
            format!("begin; select v from t where k = {key}; update t set v = v + 1 where k = {key}; commit");
        match client.batch_execute(&change).await {
            Ok(()) => drop(load.commits[number].fetch_add(1, Ordering::SeqCst)),
            Err(error) => match code(&error) {
                "40001" | "40P01" => run(&client, "rollback").await,
                _ => unexpected.push(format!("{error:?}")),
            },
        }
    }
    unexpected
}
