//! Promise: a server that is lost or damaged while the node is stopped does not keep the others from serving. SHOW REPLICAS
//! shows it as down with the reason, no acknowledged commit is lost, and the replica comes back by itself or by a rebuild.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use cluster::folder::{self, Folder};
use cluster::plain::Plain;
use cluster::served::{Setup, WITHIN};
use cluster::{Cluster, connect, programs, rows, run, table, value};
use tokio_postgres::Client;

const COUNT: &str = "SELECT count(*) FROM noted";

/// Writes rows that must never be lost from now on; how many there are.
async fn note(client: &Client, rows: u64) -> u64 {
    for _ in 0..rows {
        run(client, "INSERT INTO noted DEFAULT VALUES").await;
    }
    value(client, COUNT).await.parse().unwrap()
}

/// Waits until a replica is in this state, and returns its row of SHOW REPLICAS.
async fn shown(port: u16, name: &str, state: &str) -> BTreeMap<String, String> {
    let admin = connect("127.0.0.1", port, "onecopy").await.unwrap();
    let deadline = Instant::now() + WITHIN;
    loop {
        let all = rows(&admin, "SHOW REPLICAS").await;
        if let Some(row) = all.iter().find(|row| row["name"] == name && row["state"] == state) {
            return row.clone();
        }
        assert!(Instant::now() < deadline, "{name} is not {state}: {all:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn overwrite(file: &Path, bytes: &[u8]) {
    std::fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn what_is_there_serves_and_what_is_lost_is_rebuilt() {
    let mut cluster = Cluster::start(3).await;
    let data = cluster.data();
    let replica = |number: u16| data.join(format!("replica-{number}"));
    run(&cluster.client().await, "CREATE TABLE noted (id bigserial PRIMARY KEY)").await;
    let mut count = note(&cluster.client().await, 20).await;

    // Two of three: a folder is gone, and in another one the control file is zeroed.
    cluster.stop().await;
    std::fs::remove_dir_all(replica(2)).unwrap();
    overwrite(&replica(3).join("global/pg_control"), &[0; 8192]);
    cluster.up_again().await;
    assert_eq!(value(&cluster.client().await, COUNT).await, count.to_string());
    count = note(&cluster.client().await, 20).await;
    assert_eq!(cluster.everywhere(COUNT).await, [[count.to_string()]]);
    cluster.verify().await;
    let said = cluster.printed();
    for words in ["replica-2: its data folder", "replica-3 did not start", "the others serve"] {
        assert!(said.contains(words), "{words}: {said}");
    }

    // The anchor, of which half a folder is left. Another replica takes its place.
    cluster.stop().await;
    for part in ["PG_VERSION", "pg_xact", "postgresql.conf"] {
        let part = replica(1).join(part);
        std::fs::remove_file(&part).or_else(|_| std::fs::remove_dir_all(&part)).unwrap();
    }
    cluster.up_again().await;
    assert_eq!(value(&cluster.client().await, COUNT).await, count.to_string());
    let ids = table(&cluster.client().await, "INSERT INTO noted DEFAULT VALUES RETURNING id").await;
    assert!(ids[0][0].parse::<u64>().unwrap() > count, "a value was handed out twice: {ids:?}");
    count = note(&cluster.client().await, 20).await;
    let anchor = cluster.replicas().await.into_iter().find(|replica| replica.role == "anchor").unwrap();
    assert_ne!(anchor.name, "replica-1");
    assert_eq!(cluster.everywhere(COUNT).await, [[count.to_string()]]);
    cluster.verify().await;

    // Damage that a copy cannot mend stays until an operator repairs the server or drops it.
    cluster.stop().await;
    let mut other = Cluster::start(1).await;
    run(&other.client().await, "CREATE TABLE theirs (id int)").await;
    other.stop().await;
    let theirs = other.data().join("replica-1");
    let away = Folder::new("away");
    std::fs::rename(replica(1), away.path().join("replica-1")).unwrap();
    std::fs::rename(&theirs, replica(1)).unwrap();
    std::fs::set_permissions(replica(3), PermissionsExt::from_mode(0o755)).unwrap();
    cluster.up_again().await;
    count = note(&cluster.client().await, 5).await;
    let foreign = shown(cluster.port, "replica-1", "down").await;
    assert!(foreign["detail"].contains("belongs to the cluster"), "{foreign:?}");
    let closed = shown(cluster.port, "replica-3", "down").await;
    assert!(closed["detail"].contains("invalid permissions"), "{closed:?}");
    std::fs::set_permissions(replica(3), PermissionsExt::from_mode(0o700)).unwrap();
    shown(cluster.port, "replica-3", "up").await;
    shown(cluster.port, "replica-1", "down").await;
    let rebuilt =
        programs::onecopy(&["replica", "rebuild", "replica-1", "--port", &cluster.port.to_string()]).await;
    assert!(rebuilt.status.success(), "{}", programs::text(&rebuilt));
    assert_eq!(cluster.everywhere(COUNT).await, [[count.to_string()]]);
    cluster.verify().await;
    cluster.stop().await;

    // Where nothing is left that may serve, that is said of each.
    overwrite(&data.join("log/quarantine-replica-2"), b"it differs\n");
    std::fs::remove_dir_all(replica(1)).unwrap();
    std::fs::remove_dir_all(replica(3)).unwrap();
    let said = refused(&cluster).await;
    for words in
        ["no replica can serve", "replica-1: its data folder", "replica-2: it differs", "replica-3: its"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    std::fs::remove_dir_all(replica(2)).unwrap();
    let said = refused(&cluster).await;
    assert!(said.contains("no server of the cluster starts") && said.contains("replica-2: its"), "{said}");
    assert!(folder::processes_in(&data).is_empty(), "{said}");
}

/// The output of an `onecopy up` that cannot serve.
async fn refused(cluster: &Cluster) -> String {
    let (data, port) = (cluster.data().display().to_string(), cluster.port.to_string());
    let bin = programs::pg_bin().display().to_string();
    let output = programs::onecopy(&["up", "--port", &port, "--data", &data, "--pg-bin", &bin]).await;
    assert!(!output.status.success(), "{}", programs::text(&output));
    programs::text(&output)
}

#[tokio::test]
async fn a_server_that_is_away_or_another_one_does_not_stop_the_others() {
    let (a, b, mut c) = (Plain::start().await, Plain::start().await, Plain::start().await);
    for server in [&a, &b, &c] {
        run(&server.client().await, "CREATE TABLE noted (id serial PRIMARY KEY)").await;
    }
    let setup = Setup::new(&[&a, &b, &c], "");
    let node = setup.serve(&[]).await;
    let mut count = note(&connect("127.0.0.1", setup.port, "postgres").await.unwrap(), 5).await;
    node.stop();

    // Another server has the address of the anchor, and a third one does not run.
    let stranger = Plain::start().await;
    let theirs = stranger.client().await;
    run(&theirs, "CREATE TABLE theirs (id int)").await;
    run(&theirs, "BEGIN").await;
    c.stop();
    setup.write(&[stranger.port, b.port, c.port], "");
    let node = setup.serve(&[]).await;
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    assert_eq!(value(&client, COUNT).await, count.to_string());
    count = note(&client, 5).await;
    let other = shown(setup.port, "replica-1", "down").await;
    assert!(
        other["detail"].contains("has nothing of the cluster") && other["role"] == "replica",
        "{other:?}"
    );
    let away = shown(setup.port, "replica-3", "down").await;
    assert!(away["detail"].contains("refused"), "{away:?}");
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    let refused = admin.simple_query("REBUILD REPLICA replica-1").await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert!(refused.message().contains("theirs") && refused.code().code() == "55000", "{refused:?}");
    // The replica that comes back joins, and gets the records that it lacks.
    c.start_again().await;
    shown(setup.port, "replica-3", "up").await;
    assert_eq!(value(&c.client().await, COUNT).await, count.to_string());
    // The stranger was left alone, its clients too.
    run(&theirs, "COMMIT").await;
    let ours = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'onecopy%'";
    assert_eq!(value(&theirs, ours).await, "0");
    node.stop();

    // A running server that is replaced by another one: as at the start.
    setup.write(&[a.port, b.port, c.port], "");
    let node = setup.serve(&[]).await;
    for name in ["replica-1", "replica-2", "replica-3"] {
        shown(setup.port, name, "up").await;
    }
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    assert!(rows(&admin, "VERIFY").await.iter().all(|row| row["result"] == "identical"));
    node.stop();
    // No replica is left that may serve.
    setup.write(&[stranger.port, folder::free_port(), folder::free_port()], "");
    let said = setup.refused().await;
    for words in [
        "no replica can serve",
        "replica-1: the server has nothing of the cluster",
        "replica-3: server connection",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
