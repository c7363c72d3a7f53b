//! Promise: after any kill, every acknowledged commit is on every replica, once.
//!
//! Writers insert numbers, each in a transaction that also counts up the writer's own row. A writer notes a number when its
//! commit is acknowledged. After the kill and the next start all noted numbers must be there. A table without a key shows a
//! record that was applied twice, and so does a count that differs from the number of rows.
//!
//! A killed process leaves its unsynchronised writes in the system's cache; a power cut loses them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::random::Random;
use cluster::{Cluster, Replica, connect, folder, run, table, value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

const WRITERS: u64 = 6;
const ROUNDS: u64 = 3;
const LOAD_MS_MAX: u64 = 1_200;
const GOES_ON_WITHIN: Duration = Duration::from_mins(1);

/// The acknowledged numbers of all rounds.
#[derive(Default)]
struct Book {
    next: AtomicU64,
    acknowledged: Mutex<BTreeSet<u64>>,
    over: AtomicBool,
}

#[tokio::test]
async fn onecopy_is_killed() {
    let mut random = Random::new();
    let (mut cluster, book) = begin().await;
    for _ in 0..rounds() {
        let load = start_load(&cluster, &book).await;
        wait_some(&book, &mut random).await;
        cluster.kill_onecopy().await;
        end_load(load, &book).await;
        cluster.up_again().await;
        check(&cluster, &book).await;
    }
    cluster.verify().await;
    cluster.stop().await;
    cluster.up_again().await;
    check(&cluster, &book).await;
    cluster.stop().await;
}

/// Transactions that commit together at their home need not all survive a crash of its server: here one in the midst of them
/// has not.
#[tokio::test]
async fn what_a_crash_left_out_is_applied_before_the_server_serves() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    run(&client, "create table numbers (n int primary key)").await;
    for n in 1..=20 {
        run(&client, &format!("insert into numbers values ({n})")).await;
    }
    let replicas = cluster.caught_up().await;
    let mut is_done = false;
    for replica in &replicas {
        let direct = cluster.direct(replica).await;
        // At its home it was a transaction of its own.
        let alone = "select count(*) from onecopy.applied a join numbers n on a.xmin = n.xmin where n.n = 15";
        if value(&direct, alone).await != "1" {
            continue;
        }
        let token = value(
            &direct,
            "select substring(pg_get_triggerdef(oid) from '''([0-9a-f]{32})''') from pg_trigger
             where tgname = '!onecopy_replica' limit 1",
        )
        .await;
        let undone = "delete from onecopy.applied a using numbers n where a.xmin = n.xmin and n.n = 15;
                      delete from numbers where n = 15";
        run(
            &direct,
            &format!("set onecopy.via = '{token}'; set session_replication_role = replica; {undone}"),
        )
        .await;
        run(&direct, "set synchronous_commit = on; select pg_current_xact_id(); checkpoint").await;
        cluster.kill_server(replica, true);
        is_done = true;
        break;
    }
    assert!(is_done, "no replica has committed it alone");
    let deadline = Instant::now() + GOES_ON_WITHIN;
    while client.simple_query("insert into numbers values (0)").await.is_err() {
        assert!(Instant::now() < deadline, "nothing is written any more");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.caught_up().await;
    assert_eq!(cluster.everywhere("select count(*) from numbers").await, [["21"]]);
    cluster.verify().await;
}

#[tokio::test]
async fn a_server_is_killed() {
    let mut random = Random::new();
    let (mut cluster, book) = begin().await;
    // Each server once, the anchor among them, whichever it is.
    for round in 0..rounds() {
        let load = start_load(&cluster, &book).await;
        wait_some(&book, &mut random).await;
        let replicas = cluster.replicas().await;
        let replica: &Replica = &replicas[usize::try_from(round).unwrap() % replicas.len()];
        let all_processes = random.below(2) == 0;
        cluster.kill_server(replica, all_processes);
        let before = book.acknowledged.lock().unwrap().len();
        assert!(cluster.is_running(), "onecopy outlives a server");
        goes_on(&book, before, &replica.name).await;
        end_load(load, &book).await;
        check(&cluster, &book).await;
    }
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn everything_is_killed() {
    let mut random = Random::new();
    let (mut cluster, book) = begin().await;
    for _ in 0..rounds() {
        let load = start_load(&cluster, &book).await;
        wait_some(&book, &mut random).await;
        cluster.kill_everything().await;
        end_load(load, &book).await;
        cluster.up_again().await;
        check(&cluster, &book).await;
    }
    cluster.verify().await;
    cluster.stop().await;
}

/// A disk of its own for a folder: a file with a file system in it. Data that no process has synchronised and the system has
/// not written is missing in the file.
struct Disk {
    folder: PathBuf,
    image: PathBuf,
}

const DISK_BYTES: u64 = 1 << 30;

impl Disk {
    /// Mounts it in the place of a folder, with the folder's content. None if mounting is not allowed.
    fn mount(folder: &Path) -> Option<Self> {
        let (kept, image) = (folder.with_extension("kept"), folder.with_extension("disk"));
        std::fs::rename(folder, &kept).unwrap();
        std::fs::create_dir(folder).unwrap();
        std::fs::File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        let disk = Self { folder: folder.to_owned(), image };
        let made = is_done(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.image)) && disk.attach();
        if !made {
            std::fs::remove_dir(folder).unwrap();
            std::fs::rename(&kept, folder).unwrap();
            return None;
        }
        assert!(is_done(Command::new("cp").arg("-a").arg(kept.join(".")).arg(folder)), "the data fits");
        assert!(is_done(Command::new("sync").arg("-f").arg(folder)));
        std::fs::remove_dir_all(kept).unwrap();
        Some(disk)
    }

    /// The file system writes its own journal when it is asked to synchronise, and hardly ever by itself.
    fn attach(&self) -> bool {
        let options = ["-o", "loop,commit=300,noatime"];
        is_done(Command::new("mount").args(options).arg(&self.image).arg(&self.folder))
    }

    /// Cuts the power once no process runs any more: only the content of the file survives.
    fn cut(&mut self) {
        let after = self.image.with_extension("after");
        let copied = is_done(Command::new("cp").arg("--sparse=always").arg(&self.image).arg(&after));
        assert!(copied && is_done(Command::new("umount").arg(&self.folder)));
        std::fs::rename(&after, &self.image).unwrap();
        assert!(self.attach(), "the disk is there again");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        folder::end_processes_in(&self.folder);
        is_done(Command::new("umount").arg("-l").arg(&self.folder));
    }
}

fn is_done(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn the_power_is_cut() {
    let mut random = Random::new();
    let (mut cluster, book) = begin().await;
    cluster.stop().await;
    let Some(mut disk) = Disk::mount(&cluster.data()) else {
        folder::say("no power can be cut here: mounting is not allowed");
        return;
    };
    cluster.up_again().await;
    for _ in 0..rounds() {
        let load = start_load(&cluster, &book).await;
        wait_some(&book, &mut random).await;
        cluster.kill_everything().await;
        disk.cut();
        end_load(load, &book).await;
        cluster.up_again().await;
        check(&cluster, &book).await;
    }
    cluster.verify().await;
    cluster.stop().await;
}

/// The number of kills of a test; `ONECOPY_TEST_ROUNDS` sets it.
fn rounds() -> u64 {
    std::env::var("ONECOPY_TEST_ROUNDS")
        .map_or(ROUNDS, |text| text.parse().expect("ONECOPY_TEST_ROUNDS is a number"))
}

async fn begin() -> (Cluster, Arc<Book>) {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    run(&client, "create table noted (n bigint, writer int); create table writers (writer int primary key, count bigint)").await;
    run(&client, &format!("insert into writers select i, 0 from generate_series(0, {}) i", WRITERS - 1))
        .await;
    (cluster, Arc::default())
}

async fn start_load(cluster: &Cluster, book: &Arc<Book>) -> Vec<JoinHandle<()>> {
    book.over.store(false, Ordering::Relaxed);
    let mut load = Vec::new();
    for writer in 0..WRITERS {
        load.push(tokio::spawn(write(cluster.port, cluster.client().await, writer, Arc::clone(book))));
    }
    load
}

async fn end_load(load: Vec<JoinHandle<()>>, book: &Book) {
    book.over.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
}

/// Writes until it is over, with a new connection whenever the old one breaks.
async fn write(port: u16, mut client: Client, writer: u64, book: Arc<Book>) {
    while !book.over.load(Ordering::Relaxed) {
        let n = book.next.fetch_add(1, Ordering::Relaxed);
        if write_one(&client, n, writer).await.is_ok() {
            book.acknowledged.lock().unwrap().insert(n);
            continue;
        }
        // The outcome of n is unknown, and n is never used again.
        drop(client.batch_execute("rollback").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
        while client.is_closed() && !book.over.load(Ordering::Relaxed) {
            match connect("127.0.0.1", port, "postgres").await {
                Ok(new) => client = new,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

async fn write_one(client: &Client, n: u64, writer: u64) -> Result<(), tokio_postgres::Error> {
    let insert = format!("insert into noted values ({n}, {writer})");
    let count = format!("update writers set count = count + 1 where writer = {writer}");
    if n.is_multiple_of(3) {
        // All in one message: one implicit transaction.
        return client.batch_execute(&format!("{insert}; {count}")).await;
    }
    client.batch_execute("begin").await?;
    client.batch_execute(&insert).await?;
    client.batch_execute(&count).await?;
    // A COMMIT of a failed transaction answers ROLLBACK and no error, but then a statement before it has failed.
    client.batch_execute("commit").await
}

/// Writers are at work for a while.
async fn wait_some(book: &Book, random: &mut Random) {
    let count = || book.acknowledged.lock().unwrap().len();
    let (before, deadline) = (count(), Instant::now() + GOES_ON_WITHIN);
    while count() == before {
        assert!(Instant::now() < deadline, "nothing is written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100 + random.below(LOAD_MS_MAX))).await;
}

/// Waits until writers were acknowledged again.
async fn goes_on(book: &Book, before: usize, lost: &str) {
    let deadline = Instant::now() + GOES_ON_WITHIN;
    while book.acknowledged.lock().unwrap().len() < before + 20 {
        assert!(Instant::now() < deadline, "nothing commits after {lost} was lost");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn check(cluster: &Cluster, book: &Book) {
    let found = cluster.everywhere("select n, count(*) from noted group by n order by n").await;
    let twice: Vec<&Vec<String>> = found.iter().filter(|row| row[1] != "1").collect();
    assert!(twice.is_empty(), "applied more than once: {twice:?}");
    let present: BTreeSet<u64> = found.iter().map(|row| row[0].parse().unwrap()).collect();
    let acknowledged = book.acknowledged.lock().unwrap().clone();
    let lost: Vec<&u64> = acknowledged.difference(&present).collect();
    assert!(
        lost.is_empty(),
        "{} of {} acknowledged commits are lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
    let wrong = "select w.writer, w.count, count(n.n) from writers w left join noted n using (writer)
                 group by w.writer, w.count having w.count <> count(n.n)";
    assert_eq!(
        cluster.everywhere(wrong).await,
        Vec::<Vec<String>>::new(),
        "half a transaction, or one twice"
    );
    // Through the front door it is the same.
    let through = table(&cluster.client().await, "select count(*) from noted").await;
    assert_eq!(through, [[present.len().to_string()]]);
    assert!(!acknowledged.is_empty(), "nothing was written");
}
