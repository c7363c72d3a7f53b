//! Promise: while the disk of the log is full, commits fail with a hint, and everything else works. Once there is room, commits
//! work again without a restart. The log keeps the records that an absent replica still needs, up to a limit.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::folder::{self, Folder};
use cluster::{Cluster, programs, rows, run, value};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const NOTICED_WITHIN: Duration = Duration::from_mins(1);
/// So many transactions of so many rows of about 2 kB fill a small disk.
const PARTS: u64 = 16;
const PART_ROWS: u64 = 2_000;
const TRIMMED_WITHIN: Duration = Duration::from_mins(2);

#[tokio::test]
async fn a_full_disk_refuses_commits_until_there_is_room() {
    let beside = Folder::new("reserve");
    let reserve = beside.path().join("megabytes");
    std::fs::write(&reserve, "0").unwrap();
    let environment = [("ONECOPY_TEST_LOG_RESERVE_FILE", reserve.to_str().unwrap())];
    let mut cluster = Cluster::start_with(2, &environment).await;
    let (client, other) = (cluster.client().await, cluster.client().await);
    run(&client, "create table t (id int primary key)").await;
    run(&client, "insert into t values (1)").await;
    run(&other, "begin; insert into t values (2)").await;

    // No disk has so much.
    std::fs::write(&reserve, "999999999").unwrap();
    let refused = refusal(&client).await;
    assert!(refused.contains("no space is left on the disk of Onecopy's log"), "{refused}");
    // A transaction that was open before is rolled back at its COMMIT.
    let error = other.batch_execute("commit").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "53100");
    assert!(error.as_db_error().unwrap().hint().unwrap().contains("Free some space"));
    assert_eq!(value(&client, "select count(*) from t").await, "1", "reads go on");
    assert!(cluster.is_running());

    std::fs::write(&reserve, "0").unwrap();
    let deadline = Instant::now() + NOTICED_WITHIN;
    while let Err(error) = client.batch_execute("insert into t values (3)").await {
        assert_eq!(error.code().unwrap().code(), "53100");
        assert!(Instant::now() < deadline, "the room is never noticed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    run(&other, "insert into t values (4)").await;
    assert_eq!(cluster.everywhere("select id from t order by id").await, [["1"], ["3"], ["4"]]);
    cluster.verify().await;
    cluster.stop().await;
}

/// A file system of its own, so small that it can be filled.
struct Small(PathBuf);

impl Small {
    /// Mounts it in the place of a folder, with the folder's content. None if mounting is not allowed.
    fn mount(folder: &Path, size: &str) -> Option<Self> {
        let beside = folder.with_extension("kept");
        std::fs::rename(folder, &beside).unwrap();
        std::fs::create_dir(folder).unwrap();
        let options = format!("size={size},mode=0700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).status();
        if !mounted.is_ok_and(|status| status.success()) {
            std::fs::remove_dir(folder).unwrap();
            std::fs::rename(&beside, folder).unwrap();
            return None;
        }
        let small = Self(folder.to_owned());
        let copied = Command::new("cp").arg("-a").arg(beside.join(".")).arg(folder).status().unwrap();
        assert!(copied.success(), "the data fits");
        folder::give_away(folder);
        std::fs::remove_dir_all(beside).unwrap();
        Some(small)
    }

    fn resize(&self, size: &str) {
        let options = format!("remount,size={size}");
        let done = Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap();
        assert!(done.success(), "there is room");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        folder::end_processes_in(&self.0);
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[tokio::test]
async fn a_replica_whose_disk_is_full_is_left_behind_and_follows_when_there_is_room() {
    let mut cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    run(&client, "create table t (id int primary key, text text)").await;
    let full = cluster.caught_up().await[1].clone();
    cluster.stop().await;
    let Some(small) = Small::mount(&cluster.data().join(&full.name), "90m") else {
        folder::say("no disk can be filled here: mounting is not allowed");
        return;
    };
    cluster.up_again().await;
    let client = cluster.client().await;
    run(&client, "set onecopy.home = 'anchor'").await;
    for part in 0..PARTS {
        let ids = format!("generate_series({part} * {PART_ROWS}, {part} * {PART_ROWS} + {PART_ROWS} - 1)");
        let text =
            "(select string_agg(md5(random()::text), '') from generate_series(1, 60) where i is not null)";
        run(&client, &format!("insert into t select i, {text} from {ids} i")).await;
    }
    // It is behind and serves nothing, but it is not quarantined; reads and writes elsewhere go on.
    let deadline = Instant::now() + NOTICED_WITHIN;
    while cluster.replicas().await[1].state == "up" {
        assert!(Instant::now() < deadline, "a full disk is never noticed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let count = (PARTS * PART_ROWS).to_string();
    for id in 0..20 {
        assert_eq!(value(&client, "select count(*) from t where id >= 0").await, count);
        run(&client, &format!("insert into t values (-1 - {id})")).await;
        let behind = &cluster.replicas().await[1];
        assert!(behind.state == "catching_up" || behind.state == "down", "{behind:?}");
    }
    small.resize("900m");
    cluster.caught_up().await;
    cluster.verify().await;
    cluster.stop().await;
}

/// The anchor's disk is full, first for rows, then for the server's own log, which ends the server.
#[tokio::test]
async fn a_full_disk_at_the_anchor_loses_nothing_and_ends_no_service() {
    let mut cluster = Cluster::start_as(3, &[], &["--takeover-after-ms", "1000"]).await;
    run(&cluster.client().await, "create table t (id int primary key, text text)").await;
    let full = cluster.caught_up().await[0].clone();
    assert_eq!(full.role, "anchor");
    cluster.stop().await;
    let Some(small) = Small::mount(&cluster.data().join(&full.name), "90m") else {
        folder::say("no disk can be filled here: mounting is not allowed");
        return;
    };
    cluster.up_again().await;
    let mut acknowledged = Vec::new();
    let (mut client, mut told, mut part) = (cluster.client().await, Vec::new(), 0);
    let deadline = Instant::now() + TRIMMED_WITHIN;
    // A write either succeeds or gets an error.
    while cluster.replicas().await[0].role == "anchor" {
        assert!(Instant::now() < deadline, "its place is never taken; clients were told {told:?}");
        run(&client, "set onecopy.home = 'anchor'").await;
        let first = part * 1_000;
        part += 1;
        let text =
            "(select string_agg(md5(random()::text), '') from generate_series(1, 60) where i is not null)";
        let sql = format!("insert into t select i, {text} from generate_series({first}, {first} + 999) i");
        match client.batch_execute(&sql).await {
            Ok(()) => acknowledged.push(first),
            Err(error) => {
                let code = error.code().map_or("closed", tokio_postgres::error::SqlState::code).to_owned();
                assert!(["53100", "40001", "57P01", "closed"].contains(&code.as_str()), "{error:?}");
                if client.is_closed() {
                    client = cluster.client().await;
                }
                told.push(code);
            }
        }
    }
    folder::say(&format!(
        "the anchor's disk was full after {} parts; clients were told {told:?}",
        acknowledged.len()
    ));
    // The others go on, with all that was acknowledged.
    let client = cluster.client().await;
    for id in 1..20 {
        run(&client, &format!("insert into t values (-{id})")).await;
    }
    let there = "select count(*) from t where id >= 0";
    assert_eq!(value(&client, there).await, (acknowledged.len() * 1_000).to_string());
    small.resize("900m");
    assert_eq!(cluster.everywhere(there).await, [[(acknowledged.len() * 1_000).to_string()]]);
    cluster.verify().await;
    cluster.stop().await;
}

/// Writes until it is refused with 53100; the message.
async fn refusal(client: &Client) -> String {
    let deadline = Instant::now() + NOTICED_WITHIN;
    loop {
        match client
            .batch_execute("begin; insert into t values (9); delete from t where id = 9; commit")
            .await
        {
            Ok(()) => assert!(Instant::now() < deadline, "a full disk is never noticed"),
            Err(error) => {
                assert_eq!(error.code().unwrap().code(), "53100", "{error:?}");
                client.batch_execute("rollback").await.unwrap();
                return error.as_db_error().unwrap().message().to_owned();
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_replica_that_was_away_for_longer_than_the_log_is_kept_must_be_rebuilt() {
    let mut cluster = Cluster::start_as(3, &[], &["--log-max-mb", "1"]).await;
    let client = cluster.client().await;
    run(&client, "create table t (id int primary key, text text)").await;
    let away = cluster.caught_up().await[2].clone();
    // PostgreSQL does not start where others could read its data.
    let data = cluster.data();
    let allow = |mode: u32| {
        std::fs::set_permissions(data.join(&away.name), PermissionsExt::from_mode(mode)).unwrap();
    };
    allow(0o755);
    cluster.kill_server(&away, true);
    // More than one segment of 64 MB, in transactions that fit into records.
    let admin = cluster.try_client("onecopy").await.unwrap();
    let deadline = Instant::now() + TRIMMED_WITHIN;
    let mut id = 0;
    while value_of_log(&admin).await <= away.applied + 1 {
        assert!(Instant::now() < deadline, "the log is never trimmed");
        let sql =
            "insert into t select i, repeat(md5(i::text), 100) from generate_series($1::int, $1 + 999) i";
        client.execute(sql, &[&id]).await.unwrap();
        id += 1_000;
    }
    cluster.stop().await;
    allow(0o700);
    // If the others are lost as well, nothing is served: no replica has the acknowledged records that left the log.
    let hide = |from: &str, to: &str| {
        for name in ["replica-1", "replica-2"] {
            let at = |suffix: &str| data.join(format!("{name}{suffix}"));
            std::fs::rename(at(from), at(to)).unwrap();
        }
    };
    hide("", "-hidden");
    let (folder, port) = (data.display().to_string(), cluster.port.to_string());
    let bin = programs::pg_bin().display().to_string();
    let refused = programs::onecopy(&["up", "--data", &folder, "--port", &port, "--pg-bin", &bin]).await;
    let said = programs::text(&refused);
    for words in ["no replica can serve", "replica-1: its data folder", "the log begins with version"] {
        assert!(!refused.status.success() && said.contains(words), "{words}: {said}");
    }
    hide("-hidden", "");
    cluster.up_again().await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    let deadline = Instant::now() + TRIMMED_WITHIN;
    let detail = loop {
        let row = rows(&admin, "SHOW REPLICAS").await.swap_remove(2);
        if row["state"] == "quarantined" {
            break row["detail"].clone();
        }
        assert!(Instant::now() < deadline, "it is never noticed: {row:?}\n{}", cluster.printed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(detail.contains("the log begins with version") && detail.contains("REBUILD REPLICA"), "{detail}");
    rows(&admin, &format!("REBUILD REPLICA {}", away.name)).await;
    cluster.caught_up().await;
    cluster.verify().await;
    cluster.stop().await;
}

/// The first version that the log has.
async fn value_of_log(admin: &Client) -> u64 {
    rows(admin, "SHOW LOG").await[0]["first_version"].parse().unwrap()
}
