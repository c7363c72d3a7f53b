//! Promise: every read that begins after the acknowledgement of a commit sees that commit.
//!
//! Each writer counts up a row of its own and notes the number when its commit is acknowledged. A reader takes the noted
//! number of a row and then reads the row: it must find that number or a higher one. A session that locks the table directly
//! at one server again and again keeps that replica behind. The homes of the writers are the other two.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::random::Random;
use cluster::{Cluster, Replica, run, table, value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const ROWS: usize = 4;
const READERS: usize = 4;
const READS_MIN: u64 = 3_000;
const ENDS_WITHIN: Duration = Duration::from_mins(5);

/// Makes onecopy serve reads from any replica, however far behind: the rule under test is off.
const RULE_OFF: (&str, &str) = ("ONECOPY_TEST_RULE_OFF", "reads_wait");

struct Counts {
    acknowledged: [AtomicU64; ROWS],
    reads: AtomicU64,
    stale: AtomicU64,
    elsewhere: AtomicU64,
    over: AtomicBool,
    is_one_enough: bool,
}

impl Counts {
    fn are_enough(&self) -> bool {
        if self.is_one_enough {
            return self.stale.load(Ordering::Relaxed) > 0;
        }
        self.reads.load(Ordering::Relaxed) >= READS_MIN
    }
}

#[tokio::test]
async fn no_read_is_stale() {
    let counts = measure(&[], false).await;
    assert_eq!(counts.stale.load(Ordering::Relaxed), 0, "stale reads");
    assert!(counts.reads.load(Ordering::Relaxed) >= READS_MIN, "too few reads to mean anything");
    assert!(counts.elsewhere.load(Ordering::Relaxed) > 0, "no read was served away from the anchor");
}

#[tokio::test]
async fn without_the_rule_reads_are_stale() {
    let counts = measure(&[RULE_OFF], true).await;
    assert!(counts.stale.load(Ordering::Relaxed) > 0, "this test cannot see a stale read");
}

/// Statistics of rows that are not there yet would give bad plans until the next ANALYZE.
#[tokio::test]
async fn analyze_counts_at_each_replica_what_was_written_before_it() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    run(&client, "create table held (k int primary key); create table t (k int primary key)").await;
    let anchor = value(&client, "begin; select current_setting('port'); commit").await;
    let replicas = cluster.caught_up().await;
    let is_anchor = |replica: &&Replica| replica.port.to_string() == anchor;
    let at_anchor = cluster.direct(replicas.iter().find(is_anchor).unwrap()).await;
    let behind = replicas.iter().find(|replica| !is_anchor(replica)).unwrap();
    let holder = cluster.direct(behind).await;
    run(&holder, "begin; lock table held in share mode").await;
    run(&client, "begin; insert into held values (1); insert into t select generate_series(1, 1000); commit")
        .await;
    let analyze = tokio::spawn(async move { run(&client, "analyze t").await });
    let counted = "select reltuples from pg_class where relname = 't'";
    while value(&at_anchor, counted).await != "1000" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Time for it to be wrong at the replica that is behind.
    tokio::time::sleep(Duration::from_millis(300)).await;
    run(&holder, "commit").await;
    analyze.await.unwrap();
    for replica in &replicas {
        assert_eq!(value(&cluster.direct(replica).await, counted).await, "1000", "at {}", replica.name);
    }
    cluster.stop().await;
}

/// Reads so many times, or if one is enough until the first one is stale.
async fn measure(environment: &[(&str, &str)], is_one_enough: bool) -> Arc<Counts> {
    let mut cluster = Cluster::start_with(3, environment).await;
    let client = cluster.client().await;
    run(&client, "create table counter (k int primary key, v bigint); create table calm (k int)").await;
    for row in 0..ROWS {
        run(&client, &format!("insert into counter values ({row}, 0)")).await;
    }
    let anchor = value(&client, "begin; select current_setting('port'); commit").await;
    let replicas = cluster.caught_up().await;
    let slowed =
        replicas.iter().find(|replica| replica.port.to_string() != anchor).expect("two are not the anchor");
    let counts = Arc::new(Counts {
        acknowledged: [const { AtomicU64::new(0) }; ROWS],
        reads: AtomicU64::new(0),
        stale: AtomicU64::new(0),
        elsewhere: AtomicU64::new(0),
        over: AtomicBool::new(false),
        is_one_enough,
    });

    let mut tasks = vec![tokio::spawn(slow_down(cluster.direct(slowed).await, Arc::clone(&counts)))];
    for row in 0..ROWS {
        let client = cluster.client().await;
        // Not at the replica with the direct lock: its writers would wait for the lock, and refreshes for both.
        let homes: Vec<&str> = replicas
            .iter()
            .map(|replica| replica.name.as_str())
            .filter(|name| *name != slowed.name)
            .collect();
        run(&client, &format!("set onecopy.home = '{}'", homes[row % homes.len()])).await;
        tasks.push(tokio::spawn(write(client, row, Arc::clone(&counts))));
    }
    for reader in 0..READERS {
        let client = cluster.client().await;
        tasks.push(tokio::spawn(read(client, reader, anchor.clone(), Arc::clone(&counts))));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let last: u64 = counts.acknowledged.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert_eq!(cluster.everywhere("select sum(v) from counter").await, [[last.to_string()]]);
    cluster.stop().await;
    counts
}

/// Keeps refreshes of the table waiting at one server, most of the time.
async fn slow_down(client: Client, counts: Arc<Counts>) {
    while !counts.over.load(Ordering::Relaxed) {
        run(&client, "begin; lock table counter in share mode; select pg_sleep(0.02); commit").await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn write(client: Client, row: usize, counts: Arc<Counts>) {
    let mut value = 0;
    while !counts.over.load(Ordering::Relaxed) {
        value += 1;
        if value % 2 == 0 {
            run(&client, &format!("update counter set v = {value} where k = {row}")).await;
        } else {
            run(&client, "begin").await;
            run(&client, &format!("update counter set v = {value} where k = {row}")).await;
            run(&client, "commit").await;
        }
        counts.acknowledged[row].store(value, Ordering::SeqCst);
        // Readers share this thread, and a row that stands still for a moment is the harder case.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn read(client: Client, reader: usize, anchor: String, counts: Arc<Counts>) {
    let query = "select v, current_setting('port') from counter where k = $1";
    let prepared = client.prepare(query).await.unwrap();
    let mut random = Random::seeded(reader as u64 + 1);
    let end = Instant::now() + ENDS_WITHIN;
    while !counts.are_enough() && Instant::now() < end {
        let row = usize::try_from(random.below(ROWS as u64)).unwrap();
        let mut floor = counts.acknowledged[row].load(Ordering::SeqCst);
        let (found, server) = match random.below(20) {
            0..5 => {
                let key = i32::try_from(row).unwrap();
                let row = client.query_one(&prepared, &[&key]).await.unwrap();
                (row.get::<_, i64>(0).cast_unsigned(), row.get::<_, String>(1))
            }
            5..10 => read_in_transaction(&client, "begin read only", row).await,
            10..15 => {
                read_in_transaction(&client, "begin isolation level repeatable read read only", row).await
            }
            15 => {
                // SAVEPOINT takes no snapshot, so this statement sees commits after the savepoint.
                run(&client, "begin isolation level repeatable read read only; savepoint s").await;
                tokio::time::sleep(Duration::from_millis(5)).await;
                floor = counts.acknowledged[row].load(Ordering::SeqCst);
                let found = parse(&table(&client, &query.replace("$1", &row.to_string())).await);
                run(&client, "commit").await;
                found
            }
            _ => parse(&table(&client, &query.replace("$1", &row.to_string())).await),
        };
        counts.reads.fetch_add(1, Ordering::Relaxed);
        counts.stale.fetch_add(u64::from(found < floor), Ordering::Relaxed);
        counts.elsewhere.fetch_add(u64::from(server != anchor), Ordering::Relaxed);
    }
    counts.over.store(true, Ordering::Relaxed);
}

/// The row as the second statement of a transaction sees it, after one on a table without writers.
async fn read_in_transaction(client: &Client, begin: &str, row: usize) -> (u64, String) {
    run(client, begin).await;
    run(client, "select count(*) from calm").await;
    let query = format!("select v, current_setting('port') from counter where k = {row}");
    let found = parse(&table(client, &query).await);
    run(client, "commit").await;
    found
}

fn parse(rows: &[Vec<String>]) -> (u64, String) {
    (rows[0][0].parse().unwrap(), rows[0][1].clone())
}
