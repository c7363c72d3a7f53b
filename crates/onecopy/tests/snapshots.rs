//! Promise: all snapshots, whichever replicas they are taken at, are prefixes of one order.
//!
//! Each writer counts up in a table of its own, so writers do not wait for each other. Readers take snapshots of all tables.
//! If one snapshot is newer in one table and older in another, two readers have seen two transactions in opposite orders (a
//! long fork), which one PostgreSQL never shows. One transaction also writes a pair of tables; readers must never see half
//! of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::random::Random;
use cluster::{Cluster, run, table};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const TABLES: usize = 3;
const READERS: u64 = 4;
/// It runs for at least so long, and until there are so many snapshots.
const RUNS_FOR: Duration = Duration::from_secs(6);
const SNAPSHOTS_MIN: usize = 500;
const ENDS_WITHIN: Duration = Duration::from_mins(5);

/// A snapshot of one reader: a count from each table, and the replica that served it.
type Snapshot = (Vec<u64>, String);

#[tokio::test]
async fn snapshots_are_in_one_order() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    for n in 0..TABLES {
        run(&client, &format!("create table t{n} (v bigint); insert into t{n} values (0)")).await;
    }
    run(&client, "create table left_one (v bigint); create table right_one (v bigint)").await;
    run(&client, "insert into left_one values (0); insert into right_one values (0)").await;

    let over = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for n in 0..TABLES {
        let statement = format!("update t{n} set v = v + 1");
        writers.push(tokio::spawn(write(cluster.client().await, statement, Arc::clone(&over))));
    }
    let both = "update left_one set v = v + 1; update right_one set v = v + 1".to_owned();
    writers.push(tokio::spawn(write(cluster.client().await, both, Arc::clone(&over))));
    let taken = Arc::new(AtomicUsize::new(0));
    let mut readers = Vec::new();
    for reader in 0..READERS {
        readers.push(tokio::spawn(read(
            cluster.client().await,
            Random::seeded(reader + 1),
            (Arc::clone(&over), Arc::clone(&taken)),
        )));
    }
    let begun = Instant::now();
    while begun.elapsed() < RUNS_FOR
        || (taken.load(Ordering::Relaxed) < SNAPSHOTS_MIN && begun.elapsed() < ENDS_WITHIN)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    over.store(true, Ordering::Relaxed);

    let mut snapshots: Vec<Snapshot> = Vec::new();
    for reader in readers {
        snapshots.extend(reader.await.unwrap());
    }
    for writer in writers {
        assert!(writer.await.unwrap() > 0, "nothing was written");
    }
    assert!(snapshots.len() >= SNAPSHOTS_MIN, "{} snapshots mean nothing", snapshots.len());
    let servers: BTreeSet<&String> = snapshots.iter().map(|(_, server)| server).collect();
    assert!(servers.len() > 1, "all snapshots were taken at {servers:?}");
    // In order of the sum, each must be at or past the one before it in every table.
    snapshots.sort_by_key(|(counts, _)| counts.iter().sum::<u64>());
    let forks: Vec<_> = snapshots.windows(2).filter(|pair| !is_prefix(&pair[0].0, &pair[1].0)).collect();
    assert!(forks.is_empty(), "{} long forks, such as {:?}", forks.len(), forks[0]);
    cluster.verify().await;
    cluster.stop().await;
}

fn is_prefix(earlier: &[u64], later: &[u64]) -> bool {
    earlier.iter().zip(later).all(|(earlier, later)| earlier <= later)
}

async fn write(client: Client, statement: String, over: Arc<AtomicBool>) -> u64 {
    let mut done = 0;
    while !over.load(Ordering::Relaxed) {
        run(&client, &statement).await;
        done += 1;
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    done
}

/// Takes snapshots and counts them, until it is over.
async fn read(
    client: Client,
    mut random: Random,
    (over, taken): (Arc<AtomicBool>, Arc<AtomicUsize>),
) -> Vec<Snapshot> {
    let parts: Vec<String> = (0..TABLES).map(|n| format!("(select v from t{n})")).collect();
    let at_once = format!("select {}, current_setting('port')", parts.join(", "));
    let mut seen: Vec<Snapshot> = Vec::new();
    let mut last: Vec<u64> = vec![0; TABLES];
    while !over.load(Ordering::Relaxed) {
        let row = match random.below(3) {
            0 => in_transaction(&client, &mut random).await,
            1 => {
                pair(&client).await;
                continue;
            }
            _ => table(&client, &at_once).await.swap_remove(0),
        };
        let counts: Vec<u64> = row[..TABLES].iter().map(|cell| cell.parse().unwrap()).collect();
        assert!(is_prefix(&last, &counts), "a session went back in time: {last:?}, then {counts:?}");
        last.clone_from(&counts);
        seen.push((counts, row[TABLES].clone()));
        taken.fetch_add(1, Ordering::Relaxed);
    }
    seen
}

/// One snapshot, read table by table, in any order.
async fn in_transaction(client: &Client, random: &mut Random) -> Vec<String> {
    run(client, "begin isolation level repeatable read read only").await;
    let mut row = vec![String::new(); TABLES + 1];
    let first = usize::try_from(random.below(TABLES as u64)).unwrap();
    for n in (0..TABLES).map(|n| (first + n) % TABLES) {
        row[n] = cluster::value(client, &format!("select v from t{n}")).await;
    }
    row[TABLES] = cluster::value(client, "select current_setting('port')").await;
    run(client, "commit").await;
    row
}

/// A reader sees all or nothing of a transaction.
async fn pair(client: &Client) {
    let rows = table(client, "select l.v, r.v from left_one l, right_one r").await;
    assert_eq!(rows[0][0], rows[0][1], "half a transaction was seen");
}
