//! A cluster under test: the real binary, real PostgreSQL servers, a temporary folder, a free port.
//!
//! A test drives it as a person would: `onecopy up` starts it, `SHOW REPLICAS` shows its state, SIGTERM or a kill ends it.
//! `Drop` ends every process that lives in the folder, and removes the folder.

#![allow(dead_code, reason = "each test file uses its own part of the harness")]

pub(crate) mod folder;
pub(crate) mod http;
pub(crate) mod nodes;
pub(crate) mod plain;
pub(crate) mod programs;
pub(crate) mod random;
pub(crate) mod raw;
pub(crate) mod script;
pub(crate) mod served;
pub(crate) mod tripwire;

use folder::Folder;
use rustix::process::{Signal, kill_process};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Creating servers takes a while on a slow machine.
const READY_WITHIN: Duration = Duration::from_mins(3);
const STOPPED_WITHIN: Duration = Duration::from_mins(2);
const CAUGHT_UP_WITHIN: Duration = Duration::from_mins(2);
/// A server that waits for the processor is not lost, so tests use a long deadline unless they are about it.
pub(crate) const HEALTH_DEADLINE_MS: &str = "60000";

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + served::WITHIN;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A row of `SHOW REPLICAS`.
#[derive(Debug, Clone)]
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) state: String,
    pub(crate) applied: u64,
    pub(crate) lag_versions: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) role: String,
}

/// A running (or stopped, or killed) onecopy and its servers.
pub(crate) struct Cluster {
    pub(crate) port: u16,
    pub(crate) folder: Folder,
    replicas: usize,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    child: Child,
    printed: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    /// Starts a new cluster and waits until it serves.
    pub(crate) async fn start(replicas: usize) -> Self {
        Self::start_with(replicas, &[]).await
    }

    /// The same, with environment variables for onecopy.
    pub(crate) async fn start_with(replicas: usize, environment: &[(&str, &str)]) -> Self {
        Self::start_as(replicas, environment, &[]).await
    }

    /// The same, with more arguments for `onecopy up`.
    pub(crate) async fn start_as(replicas: usize, environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let folder = Folder::new("up");
        let port = folder::free_port();
        let environment: Vec<(String, String)> =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let (child, printed) = spawn(&folder.path().join("data"), port, replicas, &environment, &arguments);
        let mut cluster = Self { port, folder, replicas, environment, arguments, child, printed };
        cluster.wait_ready().await;
        cluster
    }

    /// Runs `onecopy up` again on the same folder and port.
    pub(crate) async fn up_again(&mut self) {
        assert!(self.child.try_wait().unwrap().is_some(), "onecopy still runs");
        let Self { port, replicas, environment, arguments, .. } = &*self;
        (self.child, self.printed) = spawn(&self.data(), *port, *replicas, environment, arguments);
        self.wait_ready().await;
    }

    /// The next start has these arguments.
    pub(crate) fn has_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    }

    /// So many replicas are members from now on.
    pub(crate) fn has_replicas(&mut self, replicas: usize) {
        self.replicas = replicas;
    }

    /// The data folder.
    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// The output of onecopy since its last start.
    pub(crate) fn printed(&self) -> String {
        self.printed.lock().unwrap().join("\n")
    }

    /// Whether the onecopy process is there.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The process id of onecopy.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().and_then(|id| i32::try_from(id).ok()).expect("onecopy runs")
    }

    async fn wait_ready(&mut self) {
        let line = format!("psql -h 127.0.0.1 -p {} -U postgres", self.port);
        let deadline = Instant::now() + READY_WITHIN;
        while !self.printed().contains(&line) {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("onecopy ended with {status} before it was ready:\n{}", self.printed());
            }
            assert!(Instant::now() < deadline, "not ready in time:\n{}", self.printed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A client of database `postgres`.
    pub(crate) async fn client(&self) -> Client {
        self.try_client("postgres").await.expect("onecopy accepts clients")
    }

    /// A client of the database, if onecopy lets it in.
    pub(crate) async fn try_client(&self, database: &str) -> Result<Client, tokio_postgres::Error> {
        connect("127.0.0.1", self.port, database).await
    }

    /// A connection to a server itself, past onecopy.
    pub(crate) async fn direct(&self, replica: &Replica) -> Client {
        connect(&replica.host, replica.port, "postgres").await.expect("a server can be reached directly")
    }

    /// `SHOW REPLICAS`.
    pub(crate) async fn replicas(&self) -> Vec<Replica> {
        let client = self.try_client("onecopy").await.expect("the admin database accepts clients");
        rows(&client, "SHOW REPLICAS").await.iter().map(Replica::from_row).collect()
    }

    /// Waits until every replica is up and has applied the same version; returns them.
    pub(crate) async fn caught_up(&self) -> Vec<Replica> {
        let deadline = Instant::now() + CAUGHT_UP_WITHIN;
        loop {
            let replicas = self.replicas().await;
            let same = replicas
                .iter()
                .all(|r| r.state == "up" && r.lag_versions == 0 && r.applied == replicas[0].applied);
            if same && replicas.len() == self.replicas {
                return replicas;
            }
            assert!(Instant::now() < deadline, "not caught up in time: {replicas:#?}\n{}", self.printed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the anchor's server runs this statement of a client.
    pub(crate) async fn is_running_at_anchor(&self, statement: &str) {
        let replicas = self.replicas().await;
        let anchor = self.direct(replicas.iter().find(|replica| replica.role == "anchor").unwrap()).await;
        let query = format!(
            "select count(*) from pg_stat_activity where state = 'active' and query like '%{}%' and pid <> pg_backend_pid()",
            statement.replace('\'', "''")
        );
        let deadline = Instant::now() + CAUGHT_UP_WITHIN;
        while value(&anchor, &query).await == "0" {
            assert!(Instant::now() < deadline, "`{statement}` does not run at the anchor");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Runs a query directly at every replica once all have caught up, asserts that they agree, and returns the answer.
    pub(crate) async fn everywhere(&self, query: &str) -> Vec<Vec<String>> {
        let mut answers = Vec::new();
        for replica in self.caught_up().await {
            let client = self.direct(&replica).await;
            answers.push((replica.name, table(&client, query).await));
        }
        for (name, answer) in &answers[1..] {
            assert!(
                *answer == answers[0].1,
                "{name} differs from {} in {query}:\n{answers:#?}",
                answers[0].0
            );
        }
        answers.swap_remove(0).1
    }

    /// Asserts that `onecopy verify` finds all replicas identical.
    pub(crate) async fn verify(&self) {
        self.try_verify().await.unwrap_or_else(|found| panic!("onecopy verify: {found}"));
    }

    /// The differences that `onecopy verify` finds.
    pub(crate) async fn try_verify(&self) -> Result<(), String> {
        let output = programs::onecopy(&["verify", "--port", &self.port.to_string()]).await;
        if output.status.success() { Ok(()) } else { Err(programs::text(&output)) }
    }

    /// Stops it as Ctrl-C and service managers do, and asserts that it went well and left no server behind.
    pub(crate) async fn stop(&mut self) {
        self.every_turn_has_ended().await;
        self.signal(Signal::TERM);
        let status = tokio::time::timeout(STOPPED_WITHIN, self.child.wait()).await;
        let status = status.unwrap_or_else(|_| panic!("did not stop in time:\n{}", self.printed())).unwrap();
        assert!(status.success(), "stopped with {status}:\n{}", self.printed());
        let left = folder::processes_in(&self.data());
        assert!(left.is_empty(), "servers {left:?} were left behind:\n{}", self.printed());
    }

    /// Asserts that whatever the test has done, each statement that had its turn at a replica was said to have ended: else it
    /// counts as load there. A node that stops already is not asked.
    async fn every_turn_has_ended(&self) {
        let Ok(admin) = self.try_client("onecopy").await else { return };
        let deadline = Instant::now() + CAUGHT_UP_WITHIN;
        loop {
            let Ok(stats) = admin.simple_query("SHOW STATS").await else { return };
            let unended = stats.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) if row.get("name") == Some("turns_unended") => row.get("value"),
                _ => None,
            });
            if unended.is_none_or(|count| count == "0") {
                return;
            }
            // The turns of a client that has just disconnected end after it.
            assert!(Instant::now() < deadline, "{unended:?} turns have not ended");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends onecopy a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(folder::pid(self.pid()), signal).expect("onecopy runs");
    }

    /// kill -9 of onecopy alone.
    pub(crate) async fn kill_onecopy(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().await.unwrap();
    }

    /// kill -9 of one server: its postmaster alone, or all its processes.
    pub(crate) fn kill_server(&self, replica: &Replica, all: bool) {
        let folder = self.data().join(&replica.name);
        let processes = folder::processes_in(&folder);
        assert!(!processes.is_empty(), "no process of {} in {}", replica.name, folder.display());
        let postmaster = folder::postmaster(&folder);
        for process in processes.into_iter().filter(|process| all || Some(*process) == postmaster) {
            folder::kill(process, Signal::KILL);
        }
    }

    /// kill -9 of all processes of one server, and waits until it is started again. Until then SHOW REPLICAS may say that it is up.
    pub(crate) async fn crash_server(&self, replica: &Replica) {
        let folder = self.data().join(&replica.name);
        let killed = folder::postmaster(&folder);
        self.kill_server(replica, true);
        let deadline = Instant::now() + CAUGHT_UP_WITHIN;
        while matches!(folder::postmaster(&folder), found if found.is_none() || found == killed) {
            assert!(Instant::now() < deadline, "{} is not started again\n{}", replica.name, self.printed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A signal to all processes of one server.
    pub(crate) fn signal_server(&self, replica: &Replica, signal: Signal) {
        for process in folder::processes_in(&self.data().join(&replica.name)) {
            folder::kill(process, signal);
        }
    }

    /// kill -9 of onecopy and every process of every server.
    pub(crate) async fn kill_everything(&mut self) {
        if self.is_running() {
            self.signal(Signal::KILL);
        }
        for process in folder::processes_in(&self.data()) {
            folder::kill(process, Signal::KILL);
        }
        self.child.wait().await.unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            folder::kill(id, Signal::KILL);
        }
        folder::end_processes_in(self.folder.path());
        if std::thread::panicking() {
            let mut printed = self.printed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
            printed.drain(..printed.len().saturating_sub(40));
            folder::say(&format!("--- onecopy printed last:\n{}\n---", printed.join("\n")));
        }
    }
}

impl Replica {
    fn from_row(row: &BTreeMap<String, String>) -> Self {
        let text = |column: &str| {
            row.get(column).unwrap_or_else(|| panic!("SHOW REPLICAS has no {column}: {row:?}")).clone()
        };
        let number =
            |column: &str| text(column).parse().unwrap_or_else(|_| panic!("{column} is no number: {row:?}"));
        assert!(row.contains_key("load"), "SHOW REPLICAS has no load: {row:?}");
        let state = text("state");
        assert!(
            [
                "up",
                "suspect",
                "catching_up",
                "down",
                "quarantined",
                "rebuilding",
                "joining",
                "draining",
                "drained",
                "parked",
                "waking"
            ]
            .contains(&state.as_str()),
            "state {state}"
        );
        Self {
            name: text("name"),
            host: text("host"),
            port: text("port").parse().expect("a port"),
            state,
            applied: number("applied"),
            lag_versions: number("lag_versions"),
            reads: number("reads"),
            writes: number("writes"),
            role: text("role"),
        }
    }
}

/// Connects as `postgres` without a password.
pub(crate) async fn connect(host: &str, port: u16, database: &str) -> Result<Client, tokio_postgres::Error> {
    let settings = format!("host={host} port={port} user=postgres dbname={database} connect_timeout=10");
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
    // The user of the client sees how the connection ends.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// The rows of a query over the simple protocol, by column name; a null is an empty text.
pub(crate) async fn rows(client: &Client, query: &str) -> Vec<BTreeMap<String, String>> {
    let messages = client.simple_query(query).await.unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let cells = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            let value = |n| row.get(n).unwrap_or_default().to_owned();
            Some(
                row.columns()
                    .iter()
                    .enumerate()
                    .map(|(n, column)| (column.name().to_owned(), value(n)))
                    .collect(),
            )
        }
        _ => None,
    };
    messages.iter().filter_map(cells).collect()
}

/// The same by position.
pub(crate) async fn table(client: &Client, query: &str) -> Vec<Vec<String>> {
    let messages = client.simple_query(query).await.unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let cells = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|n| row.get(n).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    };
    messages.iter().filter_map(cells).collect()
}

/// The first cell of a query's answer.
pub(crate) async fn value(client: &Client, query: &str) -> String {
    let mut rows = table(client, query).await;
    assert!(!rows.is_empty(), "no row from {query}");
    rows.swap_remove(0).swap_remove(0)
}

/// Runs statements that must succeed.
pub(crate) async fn run(client: &Client, statements: &str) {
    client.batch_execute(statements).await.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
}

fn spawn(
    data: &Path,
    port: u16,
    replicas: usize,
    environment: &[(String, String)],
    arguments: &[String],
) -> (Child, Arc<Mutex<Vec<String>>>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_onecopy"))
        .arg("up")
        .args(["--replicas", &replicas.to_string(), "--port", &port.to_string()])
        .arg("--data")
        .arg(data)
        .arg("--pg-bin")
        .arg(programs::pg_bin())
        .args(pool_mode(arguments))
        .args(health_deadline(arguments))
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be run");
    let printed = Arc::new(Mutex::new(Vec::new()));
    keep_lines(child.stdout.take().expect("it is piped"), Arc::clone(&printed));
    keep_lines(child.stderr.take().expect("it is piped"), Arc::clone(&printed));
    (child, printed)
}

/// Every test runs with shared connections where the environment says so.
fn pool_mode(arguments: &[String]) -> Vec<String> {
    let wanted = std::env::var("ONECOPY_TEST_POOL_MODE").ok();
    let is_said = arguments.iter().any(|argument| argument == "--pool-mode");
    wanted.filter(|_| !is_said).map_or_else(Vec::new, |mode| vec!["--pool-mode".to_owned(), mode])
}

fn health_deadline(arguments: &[String]) -> &'static [&'static str] {
    const FLAG: &str = "--health-deadline-ms";
    if arguments.iter().any(|argument| argument == FLAG) { &[] } else { &[FLAG, HEALTH_DEADLINE_MS] }
}

fn keep_lines(from: impl AsyncRead + Unpin + Send + 'static, into: Arc<Mutex<Vec<String>>>) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            into.lock().unwrap().push(line);
        }
    });
}
