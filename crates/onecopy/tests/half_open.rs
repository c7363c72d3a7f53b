//! Promise: connections that do not log in, or do not finish their request, keep no other client out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cluster::{Cluster, folder, rows, value};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than there may be.
const HALF_OPEN: usize = 1_050;
const LOGINS_MAX: usize = 1_000;
/// More than are answered at a time, and no more than the system lets wait to be accepted.
const SLOW: usize = 140;
/// Less than the minute after which a client is given up that does not log in.
const PATIENCE: Duration = Duration::from_secs(40);
/// Less than the five seconds of each of them, if some were answered after others.
const HEALTH_WITHIN: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);

#[tokio::test]
async fn clients_that_do_not_log_in_keep_no_others_out() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let port = folder::free_port();
    let mut cluster = Cluster::start_as(2, &[], &["--http-port", &port.to_string()]).await;
    let early = cluster.client().await;
    let waiting = half_open(cluster.port);
    let started = Instant::now();
    let client = loop {
        match cluster.try_client("postgres").await {
            Ok(client) => break client,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error:?}"),
        }
        tokio::time::sleep(PAUSE).await;
    };
    for client in [&client, &early] {
        assert_eq!(value(client, "select 1").await, "1");
    }
    let admin = cluster.try_client("onecopy").await.unwrap();
    while counted(&admin, "logins_cut").await < HALF_OPEN - LOGINS_MAX {
        assert!(started.elapsed() < PATIENCE, "none is cut");
        tokio::time::sleep(PAUSE).await;
    }
    assert!(counted(&admin, "logins").await <= LOGINS_MAX);
    assert!(is_closed(&waiting[0]), "the oldest are cut");

    let slow = slow_requests(port);
    let mut health = TcpStream::connect(("127.0.0.1", port)).unwrap();
    health.set_read_timeout(Some(HEALTH_WITHIN)).unwrap();
    health.write_all(b"GET /health HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    health.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("alive\n"), "{answer}");
    assert!(is_closed(&slow[0]));
    drop(waiting);
    while counted(&admin, "logins").await > 0 {
        assert!(started.elapsed() < PATIENCE * 2, "places are kept");
        tokio::time::sleep(PAUSE).await;
    }
    cluster.stop().await;
}

/// Connections that say nothing, half a start-up packet, or that they want encryption, and then no more.
fn half_open(port: u16) -> Vec<TcpStream> {
    let beginnings: [&[u8]; 3] = [b"", &[0, 0, 0, 50, 0, 3, 0, 0, b'u'], &[0, 0, 0, 8, 4, 210, 22, 47]];
    let open = |beginning: &&[u8]| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(beginning).unwrap();
        stream
    };
    beginnings.iter().cycle().take(HALF_OPEN).map(open).collect()
}

/// Connections that have sent a part of a request.
fn slow_requests(port: u16) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET /hea").unwrap();
        stream
    };
    (0..SLOW).map(open).collect()
}

/// Whether the other side has closed it, which it does soon if it does.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

async fn counted(admin: &tokio_postgres::Client, name: &str) -> usize {
    let stats = rows(admin, "SHOW STATS").await;
    stats.iter().find(|row| row["name"] == name).unwrap()["value"].parse().unwrap()
}
