//! Promise: `onecopy up --nodes 3` is one database behind three addresses. The loss of a process is no outage, each is started again,
//! and a stop leaves none behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::{Duration, Instant};

use cluster::{Cluster, connect, folder, programs, rows, value};
use rustix::process::Signal;

const WITHIN: Duration = Duration::from_mins(2);
const NAMES: [&str; 3] = ["a", "b", "c"];
const COUNT: &str = "SELECT count(*) FROM noted";

/// The port of a node.
fn port(up: &Cluster, node: usize) -> u16 {
    up.port + u16::try_from(node).unwrap()
}

/// Runs a statement at a node, again if it has to lose. It may run twice.
async fn at(up: &Cluster, node: usize, sql: &str) {
    let deadline = Instant::now() + WITHIN;
    loop {
        let run = async {
            let client = connect("127.0.0.1", port(up, node), "postgres").await?;
            client.batch_execute(sql).await
        };
        match run.await {
            Ok(()) => return,
            // On a busy machine the lead may change at any time.
            Err(error) => assert!(Instant::now() < deadline, "{sql}: {error:?}\n{}", up.printed()),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How many rows a node shows.
async fn count(up: &Cluster, node: usize) -> String {
    let client = connect("127.0.0.1", port(up, node), "postgres").await;
    value(&client.unwrap_or_else(|error| panic!("{error:?}\n{}", up.printed())), COUNT).await
}

/// The node that the others follow.
async fn leader(up: &Cluster) -> usize {
    let deadline = Instant::now() + WITHIN;
    loop {
        let admin = connect("127.0.0.1", port(up, 0), "onecopy").await.unwrap();
        let nodes = rows(&admin, "SHOW NODES").await;
        if let Some(leader) = nodes.iter().find(|node| node["role"] == "leader") {
            return NAMES.iter().position(|name| *name == leader["name"]).unwrap();
        }
        assert!(Instant::now() < deadline, "{nodes:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// kill -9 of all processes that work in this folder, or have it among their arguments; waits until others are there.
async fn is_started_again(up: &Cluster, below: &str) {
    let folder = up.data().join(below);
    let killed = folder::processes_in(&folder);
    assert!(!killed.is_empty(), "nothing runs in {}", folder.display());
    for id in &killed {
        folder::kill(*id, Signal::KILL);
    }
    let deadline = Instant::now() + WITHIN;
    while folder::processes_in(&folder).iter().all(|id| killed.contains(id)) {
        assert!(Instant::now() < deadline, "{below} is not started again\n{}", up.printed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a node serves again.
async fn serves(up: &Cluster, node: usize) {
    at(up, node, "SELECT 1").await;
}

#[tokio::test]
async fn three_nodes_outlive_any_process_and_start_again() {
    let etcd = std::env::var("ONECOPY_TEST_ETCD").ok();
    let given = etcd.iter().map(|path| ("ONECOPY_ETCD_BIN", path.as_str()));
    // A machine that is busy with other tests must not make nodes take each other for lost.
    let environment: Vec<(&str, &str)> = given.chain([("ONECOPY_TEST_SLOWER_TERMS", "4")]).collect();
    let mut up = Cluster::start_as(2, &environment, &["--nodes", "3"]).await;
    for node in 0..NAMES.len() {
        let line = format!("psql -h 127.0.0.1 -p {} -U postgres", port(&up, node));
        assert!(up.printed().contains(&line), "{}", up.printed());
    }
    at(&up, 0, "CREATE TABLE IF NOT EXISTS noted (id int PRIMARY KEY)").await;
    for node in 0..NAMES.len() {
        at(&up, node, &format!("INSERT INTO noted VALUES ({node}) ON CONFLICT DO NOTHING")).await;
        let other = (node + 1) % NAMES.len();
        assert_eq!(count(&up, other).await, (node + 1).to_string(), "written at one node, read at another");
    }
    // The others go on, and it comes back by itself.
    let lost = leader(&up).await;
    let others = [(lost + 1) % NAMES.len(), (lost + 2) % NAMES.len()];
    is_started_again(&up, &format!("nodes/{}", NAMES[lost])).await;
    at(&up, others[0], "INSERT INTO noted VALUES (3) ON CONFLICT DO NOTHING").await;
    assert_eq!(count(&up, others[1]).await, "4");
    serves(&up, lost).await;
    assert_eq!(count(&up, lost).await, "4");
    is_started_again(&up, "etcd/1").await;
    is_started_again(&up, "replica-2").await;
    at(&up, lost, "INSERT INTO noted VALUES (4) ON CONFLICT DO NOTHING").await;
    let said = up.printed();
    let log = up.data().join(format!("nodes/{}.log", NAMES[lost]));
    assert!(said.contains(&format!("node {} ended: signal: 9", NAMES[lost])), "{said}");
    assert!(said.contains(&log.display().to_string()) && log.exists(), "{said}");
    up.stop().await;

    // The folder knows how many nodes it has.
    let data = up.data().display().to_string();
    let refused = programs::onecopy(&["up", "--nodes", "5", "--data", &data]).await;
    assert!(programs::text(&refused).contains("has --nodes 3, not 5"), "{}", programs::text(&refused));
    up.has_arguments(&[]);
    up.up_again().await;
    for node in 0..NAMES.len() {
        assert_eq!(count(&up, node).await, "5");
    }

    // What `onecopy up` leaves when it is killed goes on, and ends with the next start.
    up.kill_onecopy().await;
    at(&up, 1, "INSERT INTO noted VALUES (5) ON CONFLICT DO NOTHING").await;
    up.up_again().await;
    assert!(up.printed().contains("node b still ran from an earlier time"), "{}", up.printed());
    assert_eq!(count(&up, 2).await, "6");
    up.stop().await;
}
