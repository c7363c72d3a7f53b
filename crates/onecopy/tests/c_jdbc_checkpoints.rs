//! Promise: a checkpoint of C-JDBC names a moment at which nothing was open, outlives kill -9, and keeps the log from there up to a
//! limit. A replica comes back from its copy and the log, with everything that was acknowledged.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use cluster::{Cluster, programs, rows, run};
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

/// What does not wait has ended after this time, and what waits has not.
const MOMENT: Duration = Duration::from_millis(700);
/// Nothing takes longer.
const LONG: Duration = Duration::from_mins(1);

async fn started(level: &str, more: &[&str]) -> Cluster {
    let words = ["--protocol", "c-jdbc", "--transaction-level", level];
    let cluster = Cluster::start_as(2, &[], &[&words[..], more].concat()).await;
    let client = cluster.client().await;
    run(&client, "CREATE TABLE item (id serial PRIMARY KEY, n int, text text)").await;
    cluster
}

async fn refused(client: &Client, sql: &str) -> String {
    let error = client.simple_query(sql).await.expect_err(sql);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}"));
    assert!(error.hint().is_some(), "{sql}: {error} has no hint");
    error.code().code().to_owned()
}

/// Clients that write until they are stopped.
struct Writers {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicI32>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Writers {
    async fn begin(cluster: &Cluster) -> Self {
        let (stop, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicI32>::default());
        let mut tasks = Vec::new();
        for n in 0..3 {
            let client = cluster.client().await;
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            tasks.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    run(&client, &format!("BEGIN; INSERT INTO item (n) VALUES ({n}); UPDATE item SET n = n + 1 WHERE id % 50 = {n}; COMMIT")).await;
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        Self { stop, acknowledged, tasks }
    }

    /// Waits for so many more transactions.
    async fn write(&self, more: i32) {
        let upto = self.acknowledged.load(Ordering::Relaxed) + more;
        let deadline = Instant::now() + LONG;
        while self.acknowledged.load(Ordering::Relaxed) < upto {
            assert!(Instant::now() < deadline, "the writers stand still");
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn end(self) -> i32 {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.acknowledged.load(Ordering::Relaxed)
    }
}

/// A checkpoint that waits for an open transaction, and has its version.
async fn made_when_idle(client: &Client, admin: &Client) -> BTreeMap<String, String> {
    run(client, "BEGIN; INSERT INTO item (n) VALUES (7)").await;
    let mut making = std::pin::pin!(rows(admin, "CREATE CHECKPOINT first"));
    assert!(timeout(MOMENT, &mut making).await.is_err(), "a transaction is open");
    run(client, "COMMIT").await;
    let made = timeout(LONG, making).await.unwrap().remove(0);
    assert_eq!((made["name"].as_str(), made["records_after"].as_str()), ("first", "0"));
    made
}

#[tokio::test]
async fn a_replica_comes_back_from_a_checkpoint_under_load() {
    let mut cluster = started("optimistic", &["--early-response", "first"]).await;
    let (client, admin) = (cluster.client().await, cluster.try_client("onecopy").await.unwrap());
    let made = made_when_idle(&client, &admin).await;
    let writers = Writers::begin(&cluster).await;
    writers.write(20).await;
    let second = rows(&admin, "CREATE CHECKPOINT second").await.remove(0);
    assert!(second["version"].parse::<u64>().unwrap() >= made["version"].parse::<u64>().unwrap() + 20);
    writers.write(100).await;
    for name in ["replica-1", "replica-2"] {
        let row = rows(&admin, &format!("REBUILD REPLICA {name} FROM CHECKPOINT first")).await.remove(0);
        assert_eq!(row["donor"], "checkpoint first");
        writers.write(20).await;
    }
    let acknowledged = writers.end().await + 1;
    assert_eq!(cluster.everywhere("SELECT count(*) FROM item").await, [[acknowledged.to_string()]]);
    cluster.verify().await;

    // What cannot be is refused with a hint, and changes nothing.
    for (sql, code) in [
        ("CREATE CHECKPOINT first", "55000"),
        ("DROP CHECKPOINT none", "42704"),
        ("REBUILD REPLICA replica-1 FROM CHECKPOINT none", "42704"),
        ("REBUILD REPLICA replica-9 FROM CHECKPOINT first", "42704"),
        ("CREATE CHECKPOINT a/b", "42601"),
        ("PLACE TABLE item ON replica-1", "55000"),
    ] {
        assert_eq!(refused(&admin, sql).await, code, "{sql}");
    }
    client.simple_query("CREATE CHECKPOINT a").await.expect_err("it is no statement of an ordinary database");
    // One that was not completed is gone after kill -9, and the others are there.
    let folder = cluster.data().join("checkpoints");
    std::fs::create_dir(folder.join("third.unfinished")).unwrap();
    drop((client, admin));
    cluster.kill_everything().await;
    refuses_pass_through(&cluster).await;
    cluster.up_again().await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    let names: Vec<String> =
        rows(&admin, "SHOW CHECKPOINTS").await.iter().map(|row| row["name"].clone()).collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    // The log still reaches back to it.
    cluster.everywhere("SELECT 1").await;
    returns_alone(&cluster, &admin).await;
    assert_eq!(cluster.everywhere("SELECT count(*) FROM item").await, [[acknowledged.to_string()]]);
    cluster.verify().await;
    run(&admin, "DROP CHECKPOINT first").await;
    run(&admin, "DROP CHECKPOINT second").await;
    assert!(rows(&admin, "SHOW CHECKPOINTS").await.is_empty());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    rows(&admin, "PLACE TABLE item ON replica-1").await;
    assert_eq!(
        refused(&admin, "CREATE CHECKPOINT first").await,
        "55000",
        "no replica has everything for the others"
    );
}

/// A replica whose data folder is gone comes back while no other one is up.
async fn returns_alone(cluster: &Cluster, admin: &Client) {
    let replicas = cluster.caught_up().await;
    // PostgreSQL does not start where others could read its data.
    let allow = |mode: u32| {
        let path = cluster.data().join(&replicas[0].name);
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    allow(0o755);
    cluster.kill_server(&replicas[0], true);
    cluster.kill_server(&replicas[1], true);
    std::fs::remove_dir_all(cluster.data().join(&replicas[1].name)).unwrap();
    let row = rows(admin, "REBUILD REPLICA replica-2 FROM CHECKPOINT second").await.remove(0);
    assert_eq!(row["donor"], "checkpoint second");
    let shown = rows(admin, "SHOW REPLICAS").await;
    assert_eq!((shown[0]["state"].as_str(), shown[1]["state"].as_str()), ("down", "up"));
    allow(0o700);
}

/// A start at this level would add transactions to the log that cannot be run again.
async fn refuses_pass_through(cluster: &Cluster) {
    let (port, data) = (cluster.port.to_string(), cluster.data());
    let words = ["up", "--data", data.to_str().unwrap(), "--port", &port, "--protocol", "c-jdbc"];
    let more = ["--transaction-level", "pass-through", "--pg-bin", programs::pg_bin().to_str().unwrap()]
        .map(str::to_owned);
    let words: Vec<&str> = words.into_iter().chain(more.iter().map(String::as_str)).collect();
    let said = programs::onecopy(&words).await;
    assert!(
        !said.status.success() && programs::text(&said).contains("DROP CHECKPOINT"),
        "{}",
        programs::text(&said)
    );
}

/// The log has segments of 64 MB.
#[tokio::test]
async fn the_log_is_kept_for_a_checkpoint_up_to_its_limit() {
    let mut cluster = started("pessimistic", &["--log-max-mb", "150"]).await;
    let (client, admin) = (cluster.client().await, cluster.try_client("onecopy").await.unwrap());
    let made = rows(&admin, "CREATE CHECKPOINT it").await.remove(0);
    let version: u64 = made["version"].parse().unwrap();
    let text = "a".repeat(4 << 20);
    let write = async |megabytes: usize| {
        for _ in 0..megabytes / 4 {
            client.execute("INSERT INTO item (n, text) VALUES (1, $1)", &[&text]).await.unwrap();
        }
    };
    let first = async || -> u64 { rows(&admin, "SHOW LOG").await[0]["first_version"].parse().unwrap() };
    write(80).await;
    // The version that is durable at the replicas is noted every 10 s.
    sleep(Duration::from_secs(22)).await;
    assert!(first().await <= version, "the log is kept");
    rows(&admin, "REBUILD REPLICA replica-2 FROM CHECKPOINT it").await;
    assert_eq!(cluster.everywhere("SELECT count(*) FROM item").await, [["20"]]);
    cluster.verify().await;
    write(80).await;
    let deadline = Instant::now() + LONG;
    while first().await <= version {
        assert!(Instant::now() < deadline, "the log is too long:\n{}", cluster.printed());
        sleep(Duration::from_millis(200)).await;
    }
    assert!(rows(&admin, "SHOW CHECKPOINTS").await.is_empty());
    // The line is written after the checkpoint is gone.
    while !cluster.printed().contains("the oldest checkpoint was dropped") {
        assert!(Instant::now() < deadline, "{}", cluster.printed());
        sleep(Duration::from_millis(20)).await;
    }
    cluster.verify().await;
    cluster.stop().await;
}
