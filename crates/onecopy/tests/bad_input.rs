//! Promise: bad input gets a clear message, and nothing is left half started.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::folder::{self, Folder, free_port, processes_in};
use cluster::{Cluster, programs, run, table, value};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

async fn up(data: &Path, port: u16, replicas: &str, pg_bin: &Path) -> Output {
    let (data, port, pg_bin) = (data.to_str().unwrap(), port.to_string(), pg_bin.to_str().unwrap());
    programs::onecopy(&["up", "--replicas", replicas, "--port", &port, "--data", data, "--pg-bin", pg_bin])
        .await
}

/// It must have failed by itself, said these words to the person, and left no process in the folder.
fn assert_refused(output: &Output, words: &[&str], data: &Path) {
    let text = programs::text(output);
    assert!(!output.status.success(), "it went on: {text}");
    assert!(output.status.code().is_some_and(|code| code != 101), "it panicked: {text}");
    for word in words {
        assert!(text.to_lowercase().contains(&word.to_lowercase()), "`{word}` is not said in: {text}");
    }
    assert!(processes_in(data).is_empty(), "left running: {text}");
}

#[tokio::test]
async fn a_port_in_use() {
    let folder = Folder::new("port");
    let data = folder.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = up(&data, port, "1", &programs::pg_bin()).await;
    assert_refused(&output, &[&port.to_string(), "in use"], &data);
    assert!(!data.exists(), "nothing was made for a port that cannot be had");
}

#[tokio::test]
async fn postgresql_missing_or_too_old() {
    let folder = Folder::new("old");
    let data = folder.path().join("data");
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let output = up(&data, free_port(), "1", &empty).await;
    assert_refused(&output, &["postgres", empty.to_str().unwrap()], &data);

    let old = folder.path().join("old");
    std::fs::create_dir(&old).unwrap();
    for program in ["postgres", "initdb"] {
        let script = format!("#!/bin/sh\necho '{program} (PostgreSQL) 12.3'\n");
        std::fs::write(old.join(program), script).unwrap();
        std::fs::set_permissions(old.join(program), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let output = up(&data, free_port(), "1", &old).await;
    assert_refused(&output, &["12", "14"], &data);
    assert!(!data.exists());
}

#[tokio::test]
async fn a_folder_of_something_else() {
    let folder = Folder::new("other");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("letters.txt"), "dear").unwrap();
    let output = up(&data, free_port(), "1", &programs::pg_bin()).await;
    assert_refused(&output, &[data.to_str().unwrap()], &data);
    let left: Vec<_> = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["letters.txt"], "it was left as it was");
}

/// A disk of our own, as small as we like, needs a mount that only root may do; it goes with the process.
#[tokio::test]
async fn a_full_disk() {
    if folder::account().is_none() {
        folder::say("a_full_disk needs root for a small disk: not run");
        return;
    }
    let folder = Folder::new("full");
    let (mount, program) = (folder.path().display(), env!("CARGO_BIN_EXE_onecopy"));
    let script = format!(
        "mount -t tmpfs -o size=40m,mode=755 tmpfs '{mount}' || exit 77
         '{program}' up --replicas 2 --port {} --data '{mount}/data' --pg-bin '{}'
         ended=$?; ls -A '{mount}' | sed 's/^/left: /'; exit $ended",
        free_port(),
        programs::pg_bin().display()
    );
    let output =
        programs::finish("unshare", programs::command("unshare", &["--mount", "sh", "-c", &script]).output())
            .await;
    if output.status.code() == Some(77) || programs::text(&output).contains("unshare failed") {
        folder::say("a_full_disk cannot mount a small disk here: not run");
        return;
    }
    assert_refused(&output, &["too full", "MB"], folder.path());
    assert!(
        !programs::text(&output).contains("left: "),
        "it was left as it was: {}",
        programs::text(&output)
    );
}

#[tokio::test]
async fn unknown_arguments() {
    let folder = Folder::new("arguments");
    for replicas in ["0", "99", "many"] {
        let output = up(&folder.path().join("data"), free_port(), replicas, &programs::pg_bin()).await;
        assert_refused(&output, &["replicas"], folder.path());
    }
}

#[tokio::test]
async fn a_folder_in_use_and_one_of_another_cluster() {
    let mut one = Cluster::start(2).await;
    let data = one.data();
    let output = up(&data, free_port(), "2", &programs::pg_bin()).await;
    let text = programs::text(&output);
    assert!(!output.status.success() && text.contains("in use"), "{text}");
    assert_eq!(value(&one.client().await, "select 1").await, "1", "the first one goes on");
    one.stop().await;

    let output = up(&data, free_port(), "3", &programs::pg_bin()).await;
    assert_refused(&output, &["2", "3", "replicas"], &data);

    // The log of another cluster in the place of our own.
    let mut two = Cluster::start(1).await;
    run(&two.client().await, "create table t (k int primary key); insert into t values (1)").await;
    two.stop().await;
    std::fs::rename(data.join("log"), one.folder.path().join("away")).unwrap();
    std::fs::rename(two.data().join("log"), data.join("log")).unwrap();
    let output = up(&data, free_port(), "2", &programs::pg_bin()).await;
    assert_refused(&output, &["cluster"], &data);
    std::fs::rename(data.join("log"), two.data().join("log")).unwrap();
    std::fs::rename(one.folder.path().join("away"), data.join("log")).unwrap();
    one.up_again().await;
    one.stop().await;
}

#[tokio::test]
async fn a_server_written_behind_our_back() {
    let mut cluster = Cluster::start(2).await;
    run(&cluster.client().await, "create table t (k int primary key, v text); insert into t values (1, 'a')")
        .await;
    for replica in cluster.caught_up().await {
        let direct = cluster.direct(&replica).await;
        for statement in [
            "insert into t values (2, 'b')",
            "update t set v = 'c'",
            "delete from t",
            "truncate t",
            "drop table t",
            "create table u (k int)",
        ] {
            let error = direct.simple_query(statement).await.expect_err(statement);
            let error = error.as_db_error().expect("the server answers").clone();
            let words = format!("{} {}", error.message(), error.detail().unwrap_or_default());
            assert!(words.contains("Onecopy") && error.hint().is_some(), "{statement}: {error:?}");
        }
        assert_eq!(table(&direct, "select * from t").await, [["1", "a"]], "reading is allowed");
    }
    cluster.verify().await;

    // A superuser can switch triggers off; a check finds the difference.
    let replica = cluster.caught_up().await.pop().unwrap();
    let direct = cluster.direct(&replica).await;
    run(
        &direct,
        "alter event trigger onecopy_ddl disable; alter table t disable trigger all; \
         update t set v = 'behind our back'; alter table t enable trigger \"!onecopy\"; alter table t enable replica trigger \"!onecopy_replica\"; \
         alter table t enable always trigger \"!onecopy_insert\", enable always trigger \"!onecopy_truncate\"; alter event trigger onecopy_ddl enable always",
    )
    .await;
    let output = programs::onecopy(&["verify", "--port", &cluster.port.to_string()]).await;
    let text = programs::text(&output);
    assert!(!output.status.success(), "verify found nothing: {text}");
    assert!(
        text.contains(&replica.name) && text.contains("\"public\".\"t\""),
        "verify names the replica and the table: {text}"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn requests_that_cannot_be_served_fail() {
    let mut cluster = Cluster::start(1).await;
    let error = cluster.try_client("elsewhere").await.map(drop).expect_err("there is one database");
    assert!(error.as_db_error().is_some(), "a clear message: {error:?}");
    let client = cluster.client().await;
    run(&client, "create table t (k int primary key)").await;
    for statement in [
        "prepare transaction 'a'",
        "create unlogged table u (k int)",
        "create materialized view u as select random()",
        "create database d",
        "alter table t add column r regclass",
        "alter system set work_mem = '1MB'",
        "copy t to '/tmp/onecopy-test-t'",
        "alter table t disable trigger all",
    ] {
        let error = client.simple_query(statement).await.expect_err(statement);
        let error = error.as_db_error().expect("an error with a code").clone();
        assert_eq!(error.code().code(), "0A000", "{statement}: {error:?}");
        assert!(error.hint().is_some(), "{statement} says what to do instead: {error:?}");
        assert_eq!(value(&client, "select count(*) from t").await, "0", "the session goes on");
    }
    let error = client.simple_query("set client_encoding = 'LATIN1'").await.expect_err("only UTF8");
    assert!(error.as_db_error().is_some());
    cluster.stop().await;
}
