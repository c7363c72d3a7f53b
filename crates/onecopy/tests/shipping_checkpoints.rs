//! Promise: where statements are shipped, a checkpoint is made under load, and the log is kept from there over crashes. When the data of
//! all replicas is lost, each comes back from its copy and the log, with everything that was acknowledged.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use cluster::{Cluster, Replica, rows, run};
use tokio_postgres::Client;

/// The transactions of one client before and after a checkpoint.
const TRANSACTIONS: usize = 30;
/// The clients that write.
const CLIENTS: usize = 3;

/// One client's transactions, which conflict with those of the others.
async fn write(client: &Client) {
    for n in 0..TRANSACTIONS {
        let each = format!(
            "BEGIN; INSERT INTO item (n) VALUES ({n}); UPDATE item SET n = n + 1 WHERE id % 7 = 0; COMMIT"
        );
        run(client, &each).await;
    }
}

/// Several clients write at once.
async fn write_at_once(cluster: &Cluster) {
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let client = cluster.client().await;
        tasks.push(tokio::spawn(async move { write(&client).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// Ends a server, and removes its data.
fn lose(cluster: &Cluster, replica: &Replica) {
    let data = cluster.data().join(&replica.name);
    // PostgreSQL does not start where others could read its data, so nothing starts it before the data is gone.
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o755)).unwrap();
    cluster.kill_server(replica, true);
    std::fs::remove_dir_all(data).unwrap();
}

#[tokio::test]
async fn the_loss_of_all_replicas_is_restored_from_a_checkpoint_and_the_log() {
    let mut cluster = Cluster::start_as(2, &[], &["--protocol", "conflict-aware"]).await;
    let (client, admin) = (cluster.client().await, cluster.try_client("onecopy").await.unwrap());
    run(&client, "CREATE TABLE item (id serial PRIMARY KEY, n int, at timestamptz DEFAULT now())").await;
    write_at_once(&cluster).await;
    let (made, ()) = tokio::join!(rows(&admin, "CREATE CHECKPOINT nightly"), write_at_once(&cluster));
    let version: u64 = made[0]["version"].parse().unwrap();
    run(&client, "ALTER TABLE item ADD COLUMN note text DEFAULT 'none'").await;
    // A crash begins another term, whose transactions are counted from 1 again.
    drop((client, admin));
    cluster.kill_everything().await;
    cluster.up_again().await;
    write_at_once(&cluster).await;
    let all = "SELECT count(*), sum(n), count(DISTINCT at) > 1, max(note) FROM item";
    let before = cluster.everywhere(all).await;
    assert_eq!(before[0][0], (3 * CLIENTS * TRANSACTIONS).to_string());

    let admin = cluster.try_client("onecopy").await.unwrap();
    let shown = rows(&admin, "SHOW CHECKPOINTS").await.remove(0);
    assert_eq!((shown["name"].as_str(), shown["version"].parse()), ("nightly", Ok(version)));
    let first: u64 = rows(&admin, "SHOW LOG").await[0]["first_version"].parse().unwrap();
    assert!(first <= version + 1, "the log is kept from the checkpoint on, not from {first}");
    let replicas = cluster.caught_up().await;
    for replica in &replicas {
        lose(&cluster, replica);
    }
    for replica in &replicas {
        let rebuild = format!("REBUILD REPLICA {} FROM CHECKPOINT nightly", replica.name);
        // The node may have begun by itself to rebuild it from one that was put back before, and what is left of the killed
        // server may still have its port.
        let deadline = Instant::now() + Duration::from_mins(2);
        let passes = |message: &str| {
            message.contains("being rebuilt already")
                || message.contains("which is tried again until it is free")
        };
        while let Err(error) = admin.batch_execute(&rebuild).await {
            let may_pass = error.as_db_error().is_some_and(|error| passes(error.message()));
            assert!(may_pass && Instant::now() < deadline, "{rebuild}: {error:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert_eq!(cluster.everywhere(all).await, before);
    cluster.verify().await;
    write_at_once(&cluster).await;
    cluster.verify().await;
    run(&admin, "DROP CHECKPOINT nightly").await;
    assert_eq!(std::fs::read_dir(cluster.data().join("checkpoints")).unwrap().count(), 0);
    cluster.stop().await;
}
