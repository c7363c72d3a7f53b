//! Promise: monitoring finds its numbers over HTTP, and `/ready` tells when clients should go elsewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::http::get;
use cluster::{Cluster, folder, run};

/// The page that explains every number.
const REFERENCE: &str = include_str!("../../../docs/reference/metrics.md");

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
    for family in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(REFERENCE.contains(&format!("`{family}`")), "docs/reference/metrics.md has no {family}");
    }
    reasons_are_of_what_ran_at_the_anchor(&node, port).await;
    assert_eq!(get(port, "/health").await.0, 200);
    assert_eq!(get(port, "/ready").await, (200, "ready\n".to_owned()));
    assert_eq!(get(port, "/secrets").await.0, 404);
    let admin = node.try_client("onecopy").await.unwrap();
    run(&admin, "PAUSE").await;
    assert_eq!(get(port, "/ready").await, (503, "paused\n".to_owned()));
    run(&admin, "RESUME").await;
    node.stop().await;
}

/// The count of a reason in SHOW STATS, which must equal that of /metrics.
async fn counted(node: &Cluster, port: u16, because: &str) -> u64 {
    let admin = node.try_client("onecopy").await.unwrap();
    let name = format!("anchor_because.{because}");
    let stats = cluster::table(&admin, "SHOW STATS").await;
    let shown: u64 = stats.into_iter().find(|row| row[0] == name).unwrap()[1].parse().unwrap();
    let page = get(port, "/metrics").await.1;
    let told = number(&page, &format!("onecopy_anchor_total{{because=\"{because}\"}}"));
    assert!((told - shown as f64).abs() < 0.1, "{name} is {shown}, and {told} over HTTP");
    shown
}

/// Five statements, each with the reason whose count it raises.
async fn reasons_are_of_what_ran_at_the_anchor(node: &Cluster, port: u16) {
    const REASONS: [&str; 6] = ["update", "unknown", "interactive", "catalogue", "waits", "chosen"];
    let away = node.client().await;
    run(&away, "SET onecopy.home = 'replica-2'").await;
    let at_anchor = node.client().await;
    run(&at_anchor, "SET onecopy.home = anchor").await;
    let cases: [(&tokio_postgres::Client, &str, Option<&str>); 6] = [
        (&away, "UPDATE t SET a = a WHERE a = 1", None),
        (&away, "BEGIN; UPDATE t SET a = a WHERE a = 2; COMMIT", None),
        (&at_anchor, "UPDATE t SET a = a WHERE a = 1", Some("chosen")),
        (&away, "UPDATE t SET a = a WHERE a = 1 AND ctid IS NOT NULL", Some("update")),
        (&away, "SELECT count(*) FROM pg_class", Some("catalogue")),
        (&away, "DO 'BEGIN EXECUTE ''SELECT 1''; END'", Some("unknown")),
    ];
    for (client, statement, reason) in cases {
        let mut before = Vec::new();
        for because in REASONS {
            before.push(counted(node, port, because).await);
        }
        for _ in 0..5 {
            run(client, statement).await;
        }
        for (because, before) in REASONS.into_iter().zip(before) {
            let wanted = if reason == Some(because) { before + 5 } else { before };
            assert_eq!(counted(node, port, because).await, wanted, "{because}: {statement}");
        }
    }
    let before = counted(node, port, "update").await;
    run(&away, "CREATE TABLE u (a int PRIMARY KEY)").await;
    assert_eq!(counted(node, port, "update").await, before + 1);
}
