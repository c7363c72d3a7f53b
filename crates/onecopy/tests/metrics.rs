//! Promise: what watches a node finds its numbers, and is told when clients should go elsewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::{Cluster, folder, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn get(port: u16, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

fn number(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
}

#[tokio::test]
async fn numbers_and_readiness_are_told_over_http() {
    let port = folder::free_port();
    let mut node = Cluster::start_as(2, &[], &["--http-port", &port.to_string()]).await;
    let client = node.client().await;
    run(&client, "CREATE TABLE t (a int PRIMARY KEY)").await;
    for n in 0..5 {
        run(&client, &format!("INSERT INTO t VALUES ({n})")).await;
    }
    let (status, page) = get(port, "/metrics").await;
    assert_eq!(status, 200);
    for name in ["onecopy_replica_up{replica=\"replica-1\"}", "onecopy_replica_up{replica=\"replica-2\"}"] {
        assert!((number(&page, name) - 1.0).abs() < 0.1, "{page}");
    }
    assert!(number(&page, "onecopy_log_durable_version") >= 6.0);
    assert!(number(&page, "onecopy_client_queries_total") >= 5.0);
    assert!(number(&page, "onecopy_records_total") >= 6.0);
    // Prometheus refuses a page with a sample of a family that was not announced.
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let family = line.split(['{', ' ']).next().unwrap();
        assert!(page.contains(&format!("# TYPE {family} ")), "{line}");
    }
    assert_eq!(get(port, "/health").await.0, 200);
    assert_eq!(get(port, "/ready").await, (200, "ready\n".to_owned()));
    assert_eq!(get(port, "/secrets").await.0, 404);
    let admin = node.try_client("onecopy").await.unwrap();
    run(&admin, "PAUSE").await;
    assert_eq!(get(port, "/ready").await, (503, "paused\n".to_owned()));
    run(&admin, "RESUME").await;
    node.stop().await;
}
