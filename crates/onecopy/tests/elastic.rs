//! Promise: a parked replica comes back with everything, also over restarts and crashes, and holds back the log only up to
//! its limit. Replicas follow the load, and no client notices.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::http::get;
use cluster::plain::Plain;
use cluster::served::Setup;
use cluster::{Cluster, connect, folder, programs, rows, run, value};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

const WITHIN: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_millis(50);

async fn admin(cluster: &Cluster) -> Client {
    cluster.try_client("onecopy").await.unwrap()
}

async fn state(cluster: &Cluster, name: &str) -> String {
    cluster.replicas().await.into_iter().find(|replica| replica.name == name).unwrap().state
}

/// Whether any process of the replica's server runs.
fn is_running(cluster: &Cluster, name: &str) -> bool {
    !folder::processes_in(&cluster.data().join(name)).is_empty()
}

/// Asserts that the command is refused with this SQLSTATE and these words, and with a hint.
async fn refused(admin: &Client, command: &str, sqlstate: &str, words: &str) {
    let error = admin.simple_query(command).await.map(drop).unwrap_err();
    let error = error.as_db_error().unwrap_or_else(|| panic!("{command}: {error:?}"));
    assert_eq!(error.code().code(), sqlstate, "{command}: {error}");
    assert!(error.message().contains(words) && error.hint().is_some(), "{command}: {error:?}");
}

#[tokio::test]
async fn a_parked_replica_comes_back_with_everything() {
    let port = folder::free_port();
    let mut cluster = Cluster::start_as(3, &[], &["--http-port", &port.to_string()]).await;
    let client = cluster.client().await;
    run(&client, "create table t (id serial primary key, text text); insert into t (text) values ('before')")
        .await;
    let parked = rows(&admin(&cluster).await, "PARK REPLICA replica-3").await;
    assert_eq!(parked[0]["replica"], "replica-3");
    let at: u64 = parked[0]["version"].parse().unwrap();
    assert!(at > 0, "what it has applied is durable");
    assert!(!is_running(&cluster, "replica-3"));
    assert_eq!(state(&cluster, "replica-3").await, "parked");
    assert_eq!(get(port, "/ready").await.0, 200);
    assert!(get(port, "/metrics").await.1.contains("onecopy_replica_parked{replica=\"replica-3\"} 1\n"));
    run(&client, "insert into t (text) values ('meanwhile'); create table u (id int primary key)").await;
    cluster.verify().await;
    let port_of_node = cluster.port.to_string();
    let checked = programs::onecopy(&["replica", "check", "--port", &port_of_node]).await;
    assert!(checked.status.success(), "a parked replica is no difference: {}", programs::text(&checked));
    // It stays parked over an orderly restart, and over a crash of everything.
    cluster.stop().await;
    cluster.up_again().await;
    assert_eq!(state(&cluster, "replica-3").await, "parked");
    assert!(!is_running(&cluster, "replica-3"));
    run(&cluster.client().await, "insert into t (text) values ('restarted'); insert into u values (1)").await;
    cluster.kill_everything().await;
    cluster.up_again().await;
    assert_eq!(state(&cluster, "replica-3").await, "parked");
    assert!(!is_running(&cluster, "replica-3"));
    let client = cluster.client().await;
    run(&client, "insert into t (text) values ('crashed'); alter table u add column n int default 7").await;
    let woken = rows(&admin(&cluster).await, "WAKE REPLICA replica-3").await;
    assert_eq!(woken[0]["donor"], "", "the log had what it lacked");
    let durable: u64 = rows(&admin(&cluster).await, "SHOW LOG").await[0]["durable"].parse().unwrap();
    assert_eq!(woken[0]["version"].parse::<u64>().unwrap(), durable);
    assert!(durable > at);
    assert_eq!(cluster.everywhere("select count(*), max(n) from t, u").await, [["4", "7"]]);
    cluster.verify().await;
    let deadline = Instant::now() + WITHIN;
    while cluster.replicas().await[2].reads == 0 {
        assert!(Instant::now() < deadline, "the woken replica is never read");
        assert_eq!(value(&client, "select count(*) from t").await, "4");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn what_cannot_be_parked_is_refused() {
    let mut cluster = Cluster::start(2).await;
    run(&cluster.client().await, "create table t (id int primary key)").await;
    cluster.caught_up().await;
    let admin = admin(&cluster).await;
    refused(&admin, "PARK REPLICA replica-9", "42704", "there is no replica").await;
    refused(&admin, "WAKE REPLICA replica-2", "55000", "it is not parked").await;
    // An anchor hands its role over first.
    run(&admin, "PARK REPLICA replica-1").await;
    let shown = cluster.replicas().await;
    assert_eq!((shown[0].state.as_str(), shown[1].role.as_str()), ("parked", "anchor"));
    run(&cluster.client().await, "insert into t values (1)").await;
    refused(&admin, "PARK REPLICA replica-2", "55000", "no other replica is up").await;
    for command in ["PARK", "DRAIN", "UNDRAIN", "REBUILD"] {
        refused(&admin, &format!("{command} REPLICA replica-1"), "55000", "it is parked").await;
    }
    let port = cluster.port.to_string();
    let woken = programs::onecopy(&["replica", "wake", "replica-1", "--port", &port]).await;
    assert!(woken.status.success(), "{}", programs::text(&woken));
    assert_eq!(cluster.everywhere("select * from t").await, [["1"]]);
    // A parked replica can be dropped, and nothing of it is left.
    let parked = programs::onecopy(&["replica", "park", "replica-1", "--port", &port]).await;
    assert!(parked.status.success(), "{}", programs::text(&parked));
    assert_eq!(rows(&admin, "DROP REPLICA replica-1").await[0]["members"], "1");
    assert!(
        !cluster.data().join("replica-1").exists() && !cluster.data().join("log/parked-replica-1").exists()
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_parked_replica_is_woken_if_no_other_can_serve() {
    let mut cluster = Cluster::start(2).await;
    run(&cluster.client().await, "create table t (id int primary key); insert into t values (1)").await;
    run(&admin(&cluster).await, "PARK REPLICA replica-2").await;
    run(&cluster.client().await, "insert into t values (2)").await;
    cluster.stop().await;
    let hidden = cluster.data().join("replica-1");
    // PostgreSQL does not start where others could read its data.
    std::fs::set_permissions(&hidden, PermissionsExt::from_mode(0o755)).unwrap();
    cluster.up_again().await;
    assert_eq!(value(&cluster.client().await, "select count(*) from t").await, "2");
    std::fs::set_permissions(&hidden, PermissionsExt::from_mode(0o700)).unwrap();
    cluster.caught_up().await;
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn past_its_limit_the_log_is_not_kept_and_waking_rebuilds() {
    let mut cluster = Cluster::start_as(2, &[], &["--parked-log-max-mb", "1"]).await;
    let client = cluster.client().await;
    run(&client, "create table t (id int primary key, text text)").await;
    cluster.caught_up().await;
    let admin = admin(&cluster).await;
    run(&admin, "PARK REPLICA replica-2").await;
    let first_version = async || rows(&admin, "SHOW LOG").await[0]["first_version"].parse::<u64>().unwrap();
    let parked_at = cluster.replicas().await[1].applied;
    // More than one segment of 64 MB.
    for part in 0..24 {
        let (from, to) = (part * 1_000, part * 1_000 + 999);
        let text = "repeat(md5(i::text), 100)";
        run(&client, &format!("insert into t select i, {text} from generate_series({from}, {to}) i")).await;
    }
    let deadline = Instant::now() + WITHIN;
    while first_version().await <= parked_at + 1 {
        assert!(Instant::now() < deadline, "the parked replica holds back the log");
        tokio::time::sleep(LOOK).await;
    }
    assert!(rows(&admin, "SHOW REPLICAS").await[1]["detail"].contains("WAKE REPLICA rebuilds it"));
    let woken = rows(&admin, "WAKE REPLICA replica-2").await;
    assert_eq!(woken[0]["donor"], "replica-1");
    assert_eq!(cluster.everywhere("select count(*) from t").await, [["24000"]]);
    cluster.verify().await;
    cluster.stop().await;
}

/// Clients that read and write until they are stopped. Any error ends the test.
struct Load {
    is_over: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    async fn start(port: u16, readers: u32) -> Self {
        let (is_over, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for number in 0..=readers {
            let client = connect("127.0.0.1", port, "postgres").await.unwrap();
            let (is_over, written) = (Arc::clone(&is_over), Arc::clone(&written));
            tasks.push(tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    if number == 0 {
                        let sql = "insert into noted (writer) values (0)";
                        client.batch_execute(sql).await.expect("a change of size disturbs no writer");
                        written.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(LOOK).await;
                    } else {
                        let sql = "select sum(id) from filler";
                        client.simple_query(sql).await.expect("a change of size disturbs no reader");
                    }
                }
            }));
        }
        Self { is_over, written, tasks }
    }

    async fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.written.load(Ordering::Relaxed)
    }
}

/// Waits until the replicas have these states in SHOW ELASTIC, and no decision is under way. Returns all rows.
async fn has_states(admin: &Client, states: &[&str]) -> Vec<BTreeMap<String, String>> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let shown = rows(admin, "SHOW ELASTIC").await;
        let found: Vec<&str> =
            shown.iter().map(|row| row["state"].as_str()).filter(|state| !state.is_empty()).collect();
        if found == states && shown.iter().all(|row| row["outcome"] != "under way") {
            return shown;
        }
        assert!(Instant::now() < deadline, "never {states:?}: {shown:#?}");
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test]
async fn replicas_follow_the_load_and_no_client_notices() {
    let settings = [
        "--elastic-replicas=1..2",
        "--elastic-spares=0",
        "--elastic-grow-after=1s",
        "--elastic-shrink-after=1s",
        "--elastic-price-per-hour=3600",
    ];
    let mut cluster = Cluster::start_as(1, &[], &settings).await;
    let client = cluster.client().await;
    run(
        &client,
        "create table noted (id serial primary key, writer int); create table filler (id int primary key);
         insert into filler select generate_series(1, 50000)",
    )
    .await;
    let admin = admin(&cluster).await;
    // The first time a server is made, later the parked one is woken.
    let mut written = 0;
    for (decision, members) in [("provision", "a server is made"), ("wake", "the parked one is woken")] {
        let load = Load::start(cluster.port, 4).await;
        let shown = has_states(&admin, &["anchor", "serving"]).await;
        assert_eq!(shown[2]["decision"], decision, "{members}: {shown:#?}");
        assert!(shown[2]["reason"].starts_with("busy for") && shown[2]["outcome"].starts_with("done in"));
        written += load.stop().await;
        let shown = has_states(&admin, &["anchor", "parked"]).await;
        assert_eq!((shown[2]["decision"].as_str(), shown[2]["replica"].as_str()), ("park", "replica-2"));
        assert!(!is_running(&cluster, "replica-2"), "{shown:#?}");
    }
    refused(&admin, "PARK REPLICA replica-1", "55000", "no other replica is up").await;
    let cost = rows(&admin, "SHOW COST").await;
    assert_eq!(cost.iter().map(|row| row["since"].as_str()).collect::<Vec<_>>(), ["start", "boot"]);
    let number = |column: &str| cost[1][column].parse::<f64>().unwrap();
    assert!(number("commits") >= written as f64 && number("replica_hours") > 0.0, "{cost:#?}");
    let each = number("cost") * 1e3 / number("commits");
    assert!((number("cost_per_1000_commits") - each).abs() < 0.01 * each, "{cost:#?}");
    cluster.has_replicas(2);
    run(&admin, "WAKE REPLICA replica-2").await;
    cluster.verify().await;
    let counted = value(&client, "select count(*) from noted").await;
    assert_eq!(counted, written.to_string());
    cluster.stop().await;
}

#[tokio::test]
async fn a_lost_replica_is_replaced_and_the_lower_bound_holds() {
    let settings = ["--elastic-replicas=2..3", "--elastic-grow-after=1s", "--elastic-spares=0"];
    let mut cluster = Cluster::start_as(3, &[], &settings).await;
    run(&cluster.client().await, "create table t (id int primary key)").await;
    cluster.caught_up().await;
    let admin = admin(&cluster).await;
    run(&admin, "PARK REPLICA replica-3").await;
    refused(&admin, "PARK REPLICA replica-2", "55000", "fewer than 2 replicas").await;
    // PostgreSQL does not start where others could read its data, so the lost server stays away.
    let lost = cluster.replicas().await[1].clone();
    let data = cluster.data().join("replica-2");
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o755)).unwrap();
    cluster.kill_server(&lost, true);
    let shown = has_states(&admin, &["anchor", "away", "serving"]).await;
    assert_eq!((shown[3]["decision"].as_str(), shown[3]["replica"].as_str()), ("wake", "replica-3"));
    assert!(shown[3]["reason"].contains("lower bound"), "{shown:#?}");
    run(&cluster.client().await, "insert into t values (1)").await;
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(cluster.everywhere("select * from t").await, [["1"]]);
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn the_operators_command_provides_a_server() {
    if !programs::is_new_enough("pg_dump", "a server that the command provides") {
        return;
    }
    let (first, empty) = (Plain::start().await, Plain::start().await);
    run(&first.client().await, "create table item (id int primary key); insert into item values (1)").await;
    let script = folder::Folder::new("provision");
    let marker = script.path().join("was-run");
    // It fails the first time.
    let command = format!(
        "test -e {0} || {{ touch {0}; exit 1; }}; echo postgresql://127.0.0.1:{1}",
        marker.display(),
        empty.port
    );
    let more = format!(
        "elastic.replicas = \"2..2\"\nelastic.spares = 0\nelastic.grow_after = \"500ms\"\nelastic.provision = '''{command}'''"
    );
    let setup = Setup::new(&[&first], &more);
    let node = setup.serve(&[]).await;
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    let shown = has_states(&admin, &["anchor", "serving"]).await;
    let outcomes: Vec<&str> = shown[2..].iter().map(|row| row["outcome"].as_str()).collect();
    assert_eq!(outcomes.len(), 2, "{shown:#?}");
    assert!(
        outcomes[0].starts_with("done in") && outcomes[1].contains("elastic.provision failed"),
        "{shown:#?}"
    );
    assert_eq!(value(&empty.client().await, "select count(*) from item").await, "1");
    assert!(rows(&admin, "VERIFY").await.iter().all(|row| row["result"] == "identical"));
    // Parking leaves the server alone; Onecopy has no connection to it then.
    refused(&admin, "PARK REPLICA replica-2", "55000", "fewer than 2 replicas").await;
    node.stop();
}
