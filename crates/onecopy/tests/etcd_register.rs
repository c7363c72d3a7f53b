//! Promise: with the log on etcd, a node on a machine that has nothing knows what the node before it knew: the members, the key that
//! proves identities, which replica holds what, which one is in quarantine, and which one is parked.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cluster::plain::Plain;
use cluster::served::{Setup, WITHIN};
use cluster::{connect, rows, run, table, value};
use etcdserver::Etcd;
use rustix::process::Signal;
use tokio_postgres::Client;

/// The files with the copy of the register, and its key on etcd.
const FILES: [&str; 5] =
    ["served.json", "identity.key", "log/placement", "log/quarantine-replica-2", "log/parked-replica-3"];

fn settings(etcd: &Etcd, node: &str) -> String {
    format!(
        "log = \"etcd\"\netcd = {:?}\nnode = \"{node}\"\nlog_patience = \"500ms\"\nlog_format = \"text\"\n",
        etcd.urls()
    )
}

async fn admin(setup: &Setup) -> Client {
    connect("127.0.0.1", setup.port, "onecopy").await.unwrap()
}

/// The state of each replica, by name.
async fn states(admin: &Client) -> BTreeMap<String, String> {
    let replicas = rows(admin, "SHOW REPLICAS").await;
    replicas.iter().map(|row| (row["name"].clone(), row["state"].clone())).collect()
}

fn files(setup: &Setup) -> BTreeMap<PathBuf, Vec<u8>> {
    let data = setup.folder.path().join("data");
    FILES.iter().map(|file| (PathBuf::from(file), std::fs::read(data.join(file)).unwrap())).collect()
}

/// Decisions that only the register remembers: a third member, a table that it does not hold, a quarantine, and a parked replica.
async fn decide(servers: &[Plain], third: &Plain, setup: &Setup) {
    let admin = admin(setup).await;
    run(&admin, &format!("ADD REPLICA 'postgresql://127.0.0.1:{}'", third.port)).await;
    run(&admin, "PLACE TABLE kept ON replica-1, replica-2").await;
    write_behind(&servers[1].client().await, "INSERT INTO noted VALUES (1000, 'behind')").await;
    run(&admin, "CHECK REPLICAS").await;
    run(&admin, "PARK REPLICA replica-3").await;
}

/// Writes past the guard of a server.
async fn write_behind(server: &Client, sql: &str) {
    let token = "SELECT substring(pg_get_triggerdef(oid) FROM '''([0-9a-f]{32})''') FROM pg_trigger \
                 WHERE tgname = '!onecopy_replica' LIMIT 1";
    let token = value(server, token).await;
    run(server, &format!("SET onecopy.via = '{token}'; SET session_replication_role = replica; {sql}")).await;
}

async fn must_be_known(setup: &Setup, expected: &[Vec<String>]) {
    let admin = admin(setup).await;
    let wanted = [("replica-1", "up"), ("replica-2", "quarantined"), ("replica-3", "parked")];
    let wanted: BTreeMap<String, String> =
        wanted.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect();
    assert_eq!(states(&admin).await, wanted);
    assert_eq!(table(&admin, "SHOW PLACEMENT").await, expected);
    // The applied sets of the servers are proven by the same key, so nothing seems lost.
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    run(&client, "INSERT INTO noted SELECT max(id) + 1, 'x' FROM noted WHERE id < 1000").await;
}

#[tokio::test]
async fn a_node_with_an_empty_folder_knows_what_the_one_before_it_knew() {
    let etcd = Etcd::start(1);
    let anchor = Plain::start().await;
    run(
        &anchor.client().await,
        "CREATE TABLE noted (id int PRIMARY KEY, v text); CREATE TABLE kept (id int PRIMARY KEY)",
    )
    .await;
    let other = anchor.copy().await;
    let servers = [anchor, other];
    let first = Setup::new(&servers.each_ref(), &settings(&etcd, "a"));
    let node = first.serve(&[]).await;
    let client = connect("127.0.0.1", first.port, "postgres").await.unwrap();
    run(&client, "INSERT INTO noted VALUES (1, 'x')").await;
    let third = servers[1].copy().await;
    decide(&servers, &third, &first).await;
    let placement = table(&admin(&first).await, "SHOW PLACEMENT").await;
    assert!(placement.iter().any(|row| row.concat().contains("kept")), "{placement:?}");
    node.signal(Signal::KILL);
    drop(node);
    // Its configuration names the first two servers, as that of the first machine does.
    let second = Setup::new(&servers.each_ref(), &settings(&etcd, "b"));
    let node = second.serve(&[]).await;
    must_be_known(&second, &placement).await;
    assert_eq!(files(&second), files(&first), "each machine that has led has a copy");
    node.stop();
    // What the first machine has by itself counts no more.
    for file in FILES {
        std::fs::remove_file(first.folder.path().join("data").join(file)).unwrap();
    }
    let node = first.serve(&[]).await;
    must_be_known(&first, &placement).await;
    assert_eq!(files(&first), files(&second));
    while_etcd_is_away_nothing_is_decided(&etcd, &first).await;
    node.stop();
    let node = second.serve(&[]).await;
    assert_eq!(states(&admin(&second).await).await["replica-3"], "up");
    let client = connect("127.0.0.1", second.port, "postgres").await.unwrap();
    assert_eq!(value(&client, "SELECT count(*) FROM noted WHERE id < 1000").await, "3");
    node.stop();
}

async fn while_etcd_is_away_nothing_is_decided(etcd: &Etcd, setup: &Setup) {
    let admin = admin(setup).await;
    etcd.kill(0);
    let refused = admin.simple_query("WAKE REPLICA replica-3").await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "57P03", "{refused}");
    assert!(refused.message().contains("etcd does not answer"), "{refused}");
    assert_eq!(states(&admin).await["replica-3"], "parked");
    etcd.restart_all();
    let deadline = Instant::now() + WITHIN;
    while admin.simple_query("WAKE REPLICA replica-3").await.is_err() {
        assert!(Instant::now() < deadline, "it is parked still");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
