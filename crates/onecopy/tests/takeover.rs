//! Promise: the loss of the anchor is no outage. Another replica takes its place, nothing acknowledged is lost, sequences
//! hand out no value twice, and the old anchor comes back as an ordinary replica.
//!
//! A server that is stopped in its tracks (SIGSTOP) says nothing and closes nothing; it is down when it has not answered
//! for as long as `--health-deadline-ms` allows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::{Cluster, Replica, run, table, value};
use rustix::process::Signal;
use tokio::task::JoinHandle;

/// Far more than it takes; a loaded machine is slow.
const GOES_ON_WITHIN: Duration = Duration::from_mins(2);

/// A client that writes all the time: its acknowledged commits, and the longest time between two of them.
struct Writer {
    over: Arc<AtomicBool>,
    task: JoinHandle<(Vec<i64>, Duration)>,
}

impl Writer {
    fn start(cluster: &Cluster) -> Self {
        Self::start_at(cluster, "read committed")
    }

    /// The same at another level of isolation.
    fn start_at(cluster: &Cluster, level: &'static str) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (is_over, port) = (Arc::clone(&over), cluster.port);
        let task = tokio::spawn(async move {
            let client = cluster::connect("127.0.0.1", port, "postgres").await.unwrap();
            run(&client, &format!("set default_transaction_isolation = '{level}'")).await;
            let (mut ids, mut longest, mut last) = (Vec::new(), Duration::ZERO, Instant::now());
            while !is_over.load(Ordering::Relaxed) {
                match client.query_one("insert into noted default values returning id", &[]).await {
                    Ok(row) => {
                        ids.push(row.get(0));
                        longest = longest.max(last.elapsed());
                        last = Instant::now();
                    }
                    // The connection stays; it was open at the lost anchor.
                    Err(error) => assert_eq!(error.code().unwrap().code(), "40001", "{error:?}"),
                }
            }
            (ids, longest)
        });
        Self { over, task }
    }

    async fn end(self) -> (Vec<i64>, Duration) {
        self.over.store(true, Ordering::Relaxed);
        tokio::time::timeout(GOES_ON_WITHIN, self.task).await.expect("the writer goes on").unwrap()
    }
}

/// A killed server can be back within the time that is waited for it otherwise.
const AT_ONCE: &[&str] = &["--takeover-after-ms", "1"];

async fn begin(arguments: &[&str]) -> Cluster {
    let cluster = Cluster::start_as(3, &[], arguments).await;
    let client = cluster.client().await;
    run(&client, "create table noted (id bigserial primary key, at timestamptz default now())").await;
    cluster
}

async fn anchor(cluster: &Cluster) -> Replica {
    cluster.replicas().await.into_iter().find(|replica| replica.role == "anchor").unwrap()
}

/// Waits until another replica is the anchor.
async fn moved(cluster: &Cluster, from: &str) -> Replica {
    let deadline = Instant::now() + GOES_ON_WITHIN;
    loop {
        let now = anchor(cluster).await;
        if now.name != from {
            return now;
        }
        assert!(Instant::now() < deadline, "{from} is still the anchor:\n{}", cluster.printed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Everything acknowledged is there once, everywhere.
async fn check(cluster: &Cluster, mut ids: Vec<i64>) {
    let everywhere = cluster.everywhere("select id from noted order by id").await;
    let there: Vec<i64> = everywhere.iter().map(|row| row[0].parse().unwrap()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "a value was handed out twice");
    let lost: Vec<_> = ids.iter().filter(|id| there.binary_search(id).is_err()).collect();
    assert!(lost.is_empty(), "{} of {count} acknowledged commits are lost: {lost:?}", lost.len());
    cluster.verify().await;
}

#[tokio::test]
async fn another_replica_takes_the_place_of_a_killed_anchor() {
    let cluster = begin(AT_ONCE).await;
    let reader = cluster.client().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let writer = Writer::start(&cluster);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let old = anchor(&cluster).await;
        cluster.kill_server(&old, true);
        let new = moved(&cluster, &old.name).await;
        assert_ne!(new.name, old.name);
        // An older session goes on, also with statements that only the anchor serves.
        assert_eq!(
            value(&reader, "select count(*) from pg_catalog.pg_class where relname = 'noted'").await,
            "1"
        );
        run(&reader, "create table if not exists later (k int primary key)").await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (acknowledged, longest) = writer.end().await;
        cluster::folder::say(&format!("longest gap with a killed anchor: {longest:?}"));
        ids.extend(acknowledged);
        let replicas = cluster.caught_up().await;
        let back = replicas.iter().find(|replica| replica.name == old.name).unwrap();
        assert_eq!(back.role, "replica", "the old anchor is a replica like any other");
    }
    check(&cluster, ids).await;
}

#[tokio::test]
async fn a_server_that_hangs_is_down_when_it_has_not_answered_for_long_enough() {
    let cluster = begin(&["--health-deadline-ms", "5000"]).await;
    let old = anchor(&cluster).await;
    // Transactions at the server that hangs: one in the middle of a statement, one idle.
    let (asleep, idle) = (cluster.client().await, cluster.client().await);
    run(&idle, "begin; insert into noted default values").await;
    let sleeping = tokio::spawn(async move {
        asleep.batch_execute("begin; insert into noted default values; select pg_sleep(600)").await
    });
    cluster.is_running_at_anchor("select pg_sleep(600)").await;
    let writer = Writer::start(&cluster);
    tokio::time::sleep(Duration::from_millis(500)).await;
    cluster.signal_server(&old, Signal::STOP);
    moved(&cluster, &old.name).await;
    let told = tokio::time::timeout(GOES_ON_WITHIN, sleeping).await.expect("whoever waits is told");
    assert_eq!(told.unwrap().unwrap_err().code().unwrap().code(), "40001");
    let told = idle.batch_execute("insert into noted default values").await.unwrap_err();
    assert_eq!(told.code().unwrap().code(), "40001");
    run(&idle, "rollback").await;
    let states = cluster.replicas().await;
    assert_eq!(states.iter().find(|replica| replica.name == old.name).unwrap().state, "down");
    // A condition that holds now, but will not once the hanging server gets the statement.
    let soon = "insert into soon values (1, clock_timestamp() + interval '200 ms')";
    run(&idle, "create table soon (id int primary key, until timestamptz check (until > now()))").await;
    run(&idle, soon).await;
    let error = idle.batch_execute("alter table soon add check (until > now())").await.unwrap_err();
    let said = error.as_db_error().unwrap();
    assert!(said.code().code() == "0A000" && said.hint().unwrap().contains("NOT VALID"), "{said:?}");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (ids, longest) = writer.end().await;
    cluster::folder::say(&format!("longest gap with a hung anchor (deadline 5 s): {longest:?}"));
    // Nothing that was open there comes to life again.
    cluster.signal_server(&old, Signal::CONT);
    cluster.caught_up().await;
    let more = a_server_that_refuses_all_logins_is_down(&cluster).await;
    check(&cluster, [ids, more].concat()).await;
}

/// Only the postmaster is stopped: the server answers existing connections, but accepts no new ones.
async fn a_server_that_refuses_all_logins_is_down(cluster: &Cluster) -> Vec<i64> {
    let old = anchor(cluster).await;
    let writers = [(); 3].map(|()| Writer::start_at(cluster, "serializable"));
    let stop = |replica: &Replica, signal| {
        let postmaster = cluster::folder::postmaster(&cluster.data().join(&replica.name)).unwrap();
        cluster::folder::kill(postmaster, signal);
    };
    stop(&old, Signal::STOP);
    let port = cluster.port;
    let newcomer =
        tokio::spawn(async move { cluster::connect("127.0.0.1", port, "postgres").await.unwrap() });
    let new = moved(cluster, &old.name).await;
    let moved_at = Instant::now();
    let client =
        tokio::time::timeout(GOES_ON_WITHIN, newcomer).await.expect("a new client is let in").unwrap();
    cluster::folder::say(&format!(
        "after the take-over a client waits to be let in: {:?}",
        moved_at.elapsed()
    ));
    run(&client, "create table if not exists served (k int)").await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    let shown = cluster::rows(&admin, "SHOW REPLICAS").await;
    let detail = &shown.iter().find(|row| row["name"] == old.name).unwrap()["detail"];
    assert!(detail.contains("accepts no login"), "{detail}");
    stop(&old, Signal::CONT);
    cluster.caught_up().await;
    // The opposite at another replica: the server accepts new connections, but its backends hang.
    let other = cluster.replicas().await.into_iter().find(|replica| replica.name != new.name).unwrap();
    let folder = cluster.data().join(&other.name);
    let postmaster = cluster::folder::postmaster(&folder);
    let backends = || {
        let all = cluster::folder::processes_in(&folder);
        all.into_iter().filter(|process| Some(*process) != postmaster)
    };
    backends().for_each(|process| cluster::folder::kill(process, Signal::STOP));
    let deadline = Instant::now() + GOES_ON_WITHIN;
    while cluster.replicas().await.iter().all(|replica| replica.state != "down") {
        assert!(Instant::now() < deadline, "{} is not down:\n{}", other.name, cluster.printed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    backends().for_each(|process| cluster::folder::kill(process, Signal::CONT));
    let mut all = Vec::new();
    for writer in writers {
        let (ids, longest) = writer.end().await;
        cluster::folder::say(&format!(
            "longest gap with a server that accepts no login (deadline 5 s): {longest:?}"
        ));
        all.extend(ids);
    }
    cluster.caught_up().await;
    all
}

#[tokio::test]
async fn the_end_of_one_backend_is_not_the_loss_of_a_server() {
    let cluster = begin(&[]).await;
    let old = anchor(&cluster).await;
    let (victim, other) = (cluster.client().await, cluster.client().await);
    run(&victim, "begin; insert into noted default values").await;
    run(&other, "begin; insert into noted default values").await;
    let pid = value(&victim, "select pid from pg_stat_activity where pid = pg_backend_pid()").await;
    run(&cluster.direct(&old).await, &format!("select pg_terminate_backend({pid})")).await;
    let told = victim.batch_execute("insert into noted default values").await.unwrap_err();
    assert_eq!(told.code().unwrap().code(), "40001", "{told:?}");
    run(&victim, "rollback").await;
    run(&victim, "insert into noted default values").await;
    run(&other, "commit").await;
    assert_eq!(table(&victim, "select count(*) from noted").await, [["2"]]);
    let now = anchor(&cluster).await;
    assert_eq!((now.name, now.state.as_str()), (old.name, "up"));
    let admin = cluster.try_client("onecopy").await.unwrap();
    let stats = table(&admin, "SHOW STATS").await;
    assert!(stats.contains(&vec!["takeovers".to_owned(), "0".to_owned()]), "{stats:?}");
    assert!(!cluster.printed().contains("the replica is down"), "{}", cluster.printed());
}

#[tokio::test]
async fn what_a_session_had_at_the_lost_anchor_alone_is_not_missed_in_silence() {
    let cluster = begin(AT_ONCE).await;
    let (temporary, listening, plain) =
        (cluster.client().await, cluster.client().await, cluster.client().await);
    run(&temporary, "create temporary table mine (k int)").await;
    run(&listening, "listen news").await;
    let old = anchor(&cluster).await;
    cluster.kill_server(&old, true);
    moved(&cluster, &old.name).await;
    for client in [&temporary, &listening] {
        let told = client.batch_execute("select 1 from noted").await.unwrap_err();
        assert!(told.is_closed() || told.code().is_some_and(|code| code.code() == "57P01"), "{told:?}");
        assert!(client.batch_execute("select 1").await.unwrap_err().is_closed(), "the session has ended");
    }
    run(&plain, "insert into noted default values").await;
}
