//! Real servers of the PostgreSQL on this machine, from nothing to the end, through everything that kills them.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::{fs, mem};

use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::{Client, NoTls};

use super::scratch::{Scratch, names};
use super::*;

fn options(data: &Path, replicas: u16) -> UpOptions {
    UpOptions { replicas: Some(replicas), data: Some(data.to_owned()), pg_bin: None }
}

fn silent() -> Arc<dyn Progress> {
    Arc::new(Silent)
}

async fn home(data: &Path, replicas: u16) -> Home {
    prepare(&options(data, replicas), &silent()).await.unwrap()
}

async fn session(server: &Server) -> Client {
    let config = format!("host={} port={} user=postgres dbname=postgres", server.host, server.port);
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn told(server: &Server, query: &str) -> String {
    session(server).await.query_one(query, &[]).await.unwrap().get(0)
}

fn pid(server: &Server) -> Pid {
    Pid::from_raw(server.process_id().unwrap().cast_signed()).unwrap()
}

/// A session, and the process that serves it.
async fn session_with_pid(server: &Server) -> (Client, Pid) {
    let client = session(server).await;
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    (client, Pid::from_raw(pid).unwrap())
}

/// Whether the process runs; one that ended and was not waited for does not.
fn is_alive(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

#[tokio::test]
async fn servers_live_from_start_to_start() {
    let scratch = Scratch::new();
    let data = scratch.path().join("data");
    let mut first = home(&data, 2).await;
    first.start().await.unwrap();
    let ports: Vec<u16> = first.servers.iter().map(|server| server.port).collect();
    assert_ne!(ports[0], ports[1]);
    for server in &first.servers {
        session(server).await.batch_execute("CREATE TABLE kept AS SELECT 'yes'::text AS it").await.unwrap();
        for (setting, expected) in [
            ("synchronous_commit", "off"),
            ("fsync", "on"),
            ("restart_after_crash", "off"),
            ("max_connections", "300"),
            ("listen_addresses", "127.0.0.1"),
            ("server_encoding", "UTF8"),
        ] {
            assert_eq!(told(server, &format!("SHOW {setting}")).await, expected, "{setting}");
        }
    }
    let ids = "SELECT system_identifier::text FROM pg_control_system()";
    assert_ne!(told(&first.servers[0], ids).await, told(&first.servers[1], ids).await);
    let pids: Vec<Pid> = first.servers.iter().map(pid).collect();
    first.stop().await;
    assert!(pids.into_iter().all(|pid| !is_alive(pid)));
    let cluster = first.cluster;
    drop(first);

    let mut second = home(&data, 2).await;
    assert_eq!(second.cluster, cluster);
    second.start().await.unwrap();
    assert_eq!(second.servers.iter().map(|server| server.port).collect::<Vec<_>>(), ports);
    for server in &second.servers {
        assert_eq!(told(server, "SELECT it FROM kept").await, "yes");
    }
    second.stop().await;
}

#[tokio::test]
async fn a_killed_server_is_noticed_and_starts_again() {
    let scratch = Scratch::new();
    let mut home = home(&scratch.path().join("data"), 1).await;
    home.start().await.unwrap();
    let server = &mut home.servers[0];
    session(server)
        .await
        .batch_execute("SET synchronous_commit = on; CREATE TABLE kept AS SELECT 'yes'::text AS it")
        .await
        .unwrap();
    // A backend that is busy outlives its postmaster.
    let (busy, backend) = session_with_pid(server).await;
    let endless = "SELECT sum(i) FROM generate_series(1, 1e12) i";
    let hanging = tokio::spawn(async move { busy.batch_execute(endless).await });
    while told(server, "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE 'SELECT sum%'").await
        == "0"
    {}

    let postmaster = pid(server);
    kill_process(postmaster, Signal::KILL).unwrap();
    let ending = server.exited().await.to_string();
    assert!(ending.starts_with("signal: 9 (SIGKILL)"), "{ending}");
    assert_eq!(server.process_id(), None);
    assert!(is_alive(backend));
    server.start().await.unwrap();
    assert!(!is_alive(backend));
    assert!(hanging.await.unwrap().is_err());
    assert_eq!(told(server, "SELECT it FROM kept").await, "yes");
    home.stop().await;
}

#[tokio::test]
async fn a_killed_backend_takes_its_server_with_it() {
    let scratch = Scratch::new();
    let mut home = home(&scratch.path().join("data"), 1).await;
    home.start().await.unwrap();
    let server = &mut home.servers[0];
    let (_held, backend) = session_with_pid(server).await;
    kill_process(backend, Signal::KILL).unwrap();
    let ending = server.exited().await.to_string();
    assert!(ending.contains("was terminated by signal 9: Killed"), "{ending}");
    server.start().await.unwrap();
    home.stop().await;
}

#[tokio::test]
async fn servers_of_a_killed_node_are_stopped_first() {
    let scratch = Scratch::new();
    let data = scratch.path().join("data");
    let mut killed = home(&data, 1).await;
    killed.start().await.unwrap();
    let server = killed.servers.remove(0);
    let (old, port) = (pid(&server), server.port);
    // Nobody is left to stop it, as after a kill; the lock goes.
    mem::forget(server);
    drop(killed);
    assert!(is_alive(old));

    let mut next = home(&data, 1).await;
    next.start().await.unwrap();
    assert_ne!(pid(&next.servers[0]), old);
    assert_eq!(next.servers[0].port, port);
    let log = fs::read_to_string(data.join("server-1.log")).unwrap();
    assert!(log.contains("received fast shutdown request"), "{log}");
    next.stop().await;
}

#[tokio::test]
async fn a_server_that_is_dropped_ends() {
    let scratch = Scratch::new();
    let data = scratch.path().join("data");
    let mut dropped = home(&data, 1).await;
    dropped.start().await.unwrap();
    let old = pid(&dropped.servers[0]);
    drop(dropped);
    let mut next = home(&data, 1).await;
    next.start().await.unwrap();
    assert_ne!(pid(&next.servers[0]), old);
    next.stop().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_changed_and_kept() {
    let scratch = Scratch::new();
    let mut home = home(&scratch.path().join("data"), 1).await;
    home.start().await.unwrap();
    home.stop().await;
    let server = &mut home.servers[0];
    let taken = server.port;
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).unwrap();
    server.start().await.unwrap();
    let moved = server.port;
    assert_ne!(moved, taken);
    assert_eq!(told(server, "SHOW port").await, moved.to_string());
    server.stop().await;
    drop(other);
    server.start().await.unwrap();
    assert_eq!(server.port, moved);
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_does_not_start_tells_why_and_takes_the_others_down() {
    let scratch = Scratch::new();
    let data = scratch.path().join("data");
    let mut home = home(&data, 2).await;
    fs::write(data.join("replica-2/postgresql.conf"), "loudness = 11\n").unwrap();
    let error = home.start().await.unwrap_err().to_string();
    assert!(error.starts_with("replica-2 did not start: exit status: 1; its log ends with:\n"), "{error}");
    assert!(error.contains("\"loudness\"") && error.contains("server-2.log"), "{error}");
    assert!(home.servers.iter().all(|server| server.process_id().is_none()));
}

#[tokio::test]
async fn an_existing_cluster_is_not_used_as_another() {
    let scratch = Scratch::new();
    let data = scratch.path().join("data");
    let held = home(&data, 1).await;
    let error = prepare(&options(&data, 1), &silent()).await.unwrap_err().to_string();
    assert!(error.contains(&format!("is in use by process {}", std::process::id())), "{error}");
    drop(held);
    let error = prepare(&options(&data, 3), &silent()).await.unwrap_err().to_string();
    assert!(error.contains("has 1 replicas") && error.contains("leave out --replicas 3"), "{error}");
    let unsaid = UpOptions { replicas: None, ..options(&data, 1) };
    assert_eq!(prepare(&unsaid, &silent()).await.unwrap().servers.len(), 1);
}

#[tokio::test]
async fn a_failed_initdb_leaves_nothing() {
    let scratch = Scratch::new();
    let bin = scratch.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let written = std::process::Command::new("sh")
        .current_dir(&bin)
        .arg("-c")
        .arg("printf '#!/bin/sh\\necho \"postgres (PostgreSQL) 15.3\"' > postgres; \
              printf '#!/bin/sh\\ntouch half; echo \"initdb: No space left on device\" >&2; exit 1' > initdb; \
              chmod 755 postgres initdb")
        .status()
        .unwrap();
    assert!(written.success());
    let asked = UpOptions { pg_bin: Some(bin), ..options(&scratch.path().join("new/data"), 3) };
    let error = prepare(&asked, &silent()).await.unwrap_err().to_string();
    assert!(error.ends_with("initdb says:\n  initdb: No space left on device"), "{error}");
    assert_eq!(names(scratch.path()), ["bin"]);
}

#[tokio::test]
async fn sockets_have_a_place_however_long_the_path() {
    let scratch = Scratch::new();
    let data = scratch.path().join("x".repeat(60)).join("y, \"z".repeat(12));
    let mut home = home(&data, 1).await;
    home.start().await.unwrap();
    let sockets = home.servers[0].socket_dir.clone();
    assert!(sockets.starts_with("/tmp") && !sockets.starts_with(scratch.path()), "{}", sockets.display());
    assert!(sockets.exists());
    home.stop().await;
    assert!(!sockets.exists());
}
