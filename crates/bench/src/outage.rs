//! `c-jdbc-outage`: how long C-JDBC is away without its controller, and how long a backend takes to return.
//!
//! Section 2.2.4 of the paper: "The failure of the request manager results in the system unavailability", and a failed
//! replica is brought back by replaying the updates in the log. Clients insert rows all the time. A server is killed that
//! lacks a number of transactions, because it was stopped before; then a replica is put back to a checkpoint, and rebuilt
//! from another one; then the controller is killed. The throughput beside each is compared with that just before, in the
//! same run. At the end every acknowledged row must be there, and all replicas must be identical.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;
use testbed::build;
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::machine::Circumstances;
use testbed::node::{self, Node, Shape};
use testbed::postgres::Binaries;
use testbed::program;
use testbed::scratch::Scratch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, Config, SimpleQueryMessage};

use crate::load::{open, runtime};

/// The server that is killed.
const KILLED: u64 = 3;
const REPLICAS: u64 = 3;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);
/// A client without a connection waits so long.
const PAUSE: Duration = Duration::from_millis(2);
/// For how long the throughput is measured before something is killed.
const BEFORE: Duration = Duration::from_secs(4);
/// What was acknowledged before a kill has been read by then.
const READ: Duration = Duration::from_millis(20);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(3);

/// `c-jdbc-outage`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of clients that write, each to a table of its own.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=100))]
    clients: u64,

    /// Transactions that the killed server lacks.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "0,1000,10000")]
    lacks: Vec<u64>,

    /// How often the controller is killed.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    kills: u32,

    /// `optimistic` or `pessimistic`.
    #[arg(long, value_name = "LEVEL", default_value = "optimistic")]
    level: String,

    /// Folder of postgres, initdb and psql [default: searched].
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,

    /// Program to measure [default: built from these sources].
    #[arg(long, value_name = "FILE")]
    onecopy: Option<PathBuf>,
}

/// What was measured once.
struct Row {
    what: String,
    seconds: f64,
    /// Transactions that the replica ran when it was back, at least.
    lacked: String,
    /// Transactions a second just before, and until it was over.
    rates: (f64, f64),
}

/// A cluster under load.
struct Bench<'a> {
    node: Node,
    acknowledged: Arc<Vec<AtomicU64>>,
    admin: Config,
    interrupt: &'a Interrupt,
    news: &'a dyn Fn(&str),
}

/// Runs the benchmark; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let binaries = Binaries::find(options.pg_bin.as_deref())?;
    let scratch = Scratch::new()?;
    let onecopy = match &options.onecopy {
        Some(program) => program.clone(),
        None => build::onecopy(&repository, &scratch, interrupt, news)?,
    };
    let words = ["--protocol", "c-jdbc", "--early-response", "first", "--transaction-level", &options.level];
    let arguments = words.map(str::to_owned);
    let shape = Shape {
        name: "onecopy",
        folder: None,
        replicas: REPLICAS,
        arguments: &arguments,
        placement: None,
        message_us: None,
        rule_off: None,
    };
    news("starting the servers");
    let node = Node::start_shaped(shape, &onecopy, &binaries, &scratch, interrupt)?;
    let port = node.port;
    let config = |database| {
        let mut config = Config::new();
        config.host("127.0.0.1").port(port).user("postgres").dbname(database);
        config
    };
    let acknowledged = Arc::new((0..options.clients).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let mut bench = Bench { node, acknowledged, admin: config("onecopy"), interrupt, news };
    let rows = runtime()?.block_on(bench.measure(options, &config("postgres")))?;
    news("comparing the replicas");
    let mut verify = program::command(&onecopy);
    verify.args(["verify", "--port", &port.to_string()]);
    program::run("onecopy verify", &mut verify, &scratch.path("verify.log"), interrupt)?;
    let endpoint = Endpoint { port, database: "postgres", options: None };
    for (n, acknowledged) in bench.acknowledged.iter().enumerate() {
        let found =
            binaries.ask(&endpoint, &format!("SELECT count(*) FROM entry{n}"), &scratch, interrupt)?;
        let acknowledged = acknowledged.load(Ordering::Relaxed);
        if !found.trim().parse::<u64>().is_ok_and(|found| found >= acknowledged) {
            return Err(Fault::Wrong(format!(
                "{acknowledged} rows were acknowledged, {} are there",
                found.trim()
            )));
        }
    }
    Ok(report(options, &Circumstances::now(&repository).to_string(), &rows))
}

fn report(options: &Options, circumstances: &str, rows: &[Row]) -> String {
    let mut report = format!(
        "{circumstances}\n\n{REPLICAS} replicas, {} clients that insert rows, level {}, early response first\n\n\
         | what | lacked | seconds | transactions a second before | meanwhile | ratio |\n|---|---|---|---|---|---|\n",
        options.clients, options.level
    );
    for Row { what, seconds, lacked, rates: (before, meanwhile) } in rows {
        let ratio = meanwhile / before.max(1.0);
        let _ = writeln!(
            report,
            "| {what} | {lacked} | {seconds:.2} | {before:.0} | {meanwhile:.0} | {ratio:.2} |"
        );
    }
    report.push_str("\nEvery acknowledged row is there, and all replicas are identical.\n");
    report
}

impl Bench<'_> {
    async fn measure(&mut self, options: &Options, to: &Config) -> Result<Vec<Row>, Fault> {
        let client = open(to).await?;
        for n in 0..options.clients {
            ask(&client, &format!("CREATE TABLE entry{n} (id bigint PRIMARY KEY, n int)")).await?;
        }
        drop(client);
        let is_over = Arc::new(AtomicBool::new(false));
        let clients = self.clients(to, &is_over);
        sleep(BEFORE).await;
        let admin = open(&self.admin).await?;
        ask(&admin, "CREATE CHECKPOINT begin").await?;
        drop(admin);
        let mut rows = Vec::new();
        for lacks in &options.lacks {
            rows.push(self.kill_backend(*lacks).await?);
        }
        rows.push(self.rebuild("put back to a checkpoint", "FROM CHECKPOINT begin").await?);
        rows.push(self.rebuild("rebuilt from another replica", "").await?);
        for _ in 0..options.kills {
            rows.push(self.kill_controller().await?);
        }
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.map_err(|error| Fault::Database(error.to_string()))?;
        }
        self.until_up().await?;
        Ok(rows)
    }

    /// Starts clients that insert rows, and connect again when they lose their connection.
    fn clients(&self, to: &Config, is_over: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
        let start = |n: usize| {
            let (to, is_over) = (to.clone(), Arc::clone(is_over));
            let acknowledged = Arc::clone(&self.acknowledged);
            tokio::spawn(async move {
                let (mut id, mut connected) = (0_u64, None);
                while !is_over.load(Ordering::Relaxed) {
                    let Some(client) = &connected else {
                        connected = open(&to).await.ok();
                        sleep(PAUSE).await;
                        continue;
                    };
                    id += 1;
                    match Client::batch_execute(client, &format!("INSERT INTO entry{n} VALUES ({id}, {n})"))
                        .await
                    {
                        Ok(()) => _ = acknowledged[n].fetch_add(1, Ordering::Relaxed),
                        Err(_) => connected = None,
                    }
                }
            })
        };
        (0..self.acknowledged.len()).map(start).collect()
    }

    fn done(&self) -> u64 {
        self.acknowledged.iter().map(|one| one.load(Ordering::Relaxed)).sum()
    }

    /// The throughput of undisturbed clients.
    async fn rate_before(&self) -> Result<f64, Fault> {
        self.until_up().await?;
        let (from, begun) = (self.done(), Instant::now());
        sleep(BEFORE).await;
        Ok((self.done() - from) as f64 / begun.elapsed().as_secs_f64())
    }

    /// Kills a server that lacks transactions, until it takes part again.
    async fn kill_backend(&self, lacks: u64) -> Result<Row, Fault> {
        let before = self.rate_before().await?;
        (self.news)(&format!("killing replica-{KILLED}, which lacks {lacks} transactions"));
        let folder = self.node.data().join(format!("replica-{KILLED}"));
        let from = self.done();
        if lacks > 0 {
            node::signal_all(&folder, Signal::STOP);
            self.until(async || Ok(self.done() - from >= lacks)).await?;
        }
        let (killed, at) = (self.done(), Instant::now());
        node::signal_all(&folder, Signal::KILL);
        let admin = open(&self.admin).await?;
        self.until(async || Ok(!is_up(&admin).await?)).await?;
        self.until(async || is_up(&admin).await).await?;
        let (seconds, upto) = (at.elapsed().as_secs_f64(), self.done());
        let rates = (before, (upto - killed) as f64 / seconds);
        Ok(Row { what: "backend killed".to_owned(), seconds, lacked: (killed - from).to_string(), rates })
    }

    /// Gives a replica other data.
    async fn rebuild(&self, what: &str, words: &str) -> Result<Row, Fault> {
        let before = self.rate_before().await?;
        (self.news)(&format!("replica-{KILLED} is {what}"));
        let admin = open(&self.admin).await?;
        let (from, at) = (self.done(), Instant::now());
        let lacked = if words.is_empty() {
            "all".to_owned()
        } else {
            let shown = ask(&admin, "SHOW CHECKPOINTS").await?;
            shown.first().and_then(|row| row.last().cloned()).unwrap_or_default()
        };
        ask(&admin, &format!("REBUILD REPLICA replica-{KILLED} {words}")).await?;
        let seconds = at.elapsed().as_secs_f64();
        let rates = (before, (self.done() - from) as f64 / seconds);
        Ok(Row { what: what.to_owned(), seconds, lacked, rates })
    }

    /// Kills the controller, and starts it again at once, until a transaction is acknowledged.
    async fn kill_controller(&mut self) -> Result<Row, Fault> {
        let before = self.rate_before().await?;
        (self.news)("killing the controller");
        let at = Instant::now();
        self.node.kill();
        self.node.start_again(self.interrupt)?;
        sleep(READ).await;
        let from = self.done();
        self.until(async || Ok(self.done() > from)).await?;
        let seconds = at.elapsed().as_secs_f64();
        Ok(Row { what: "controller killed".to_owned(), seconds, lacked: String::new(), rates: (before, 0.0) })
    }

    /// Waits until the killed replica takes part.
    async fn until_up(&self) -> Result<(), Fault> {
        self.until(async || match open(&self.admin).await {
            Ok(admin) => is_up(&admin).await,
            Err(_) => Ok(false),
        })
        .await
    }

    async fn until(&self, is_so: impl AsyncFn() -> Result<bool, Fault>) -> Result<(), Fault> {
        let end = Instant::now() + PATIENCE;
        while !is_so().await? {
            self.interrupt.check()?;
            if Instant::now() > end {
                let seconds = PATIENCE.as_secs();
                return Err(Fault::Database(format!(
                    "what was waited for did not happen within {seconds} s"
                )));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }
}

/// Whether all replicas take part.
async fn is_up(admin: &Client) -> Result<bool, Fault> {
    let shown = ask(admin, "SHOW REPLICAS").await?;
    Ok(shown.iter().all(|row| row.get(3).is_some_and(|state| state == "up")))
}

/// The rows of an answer.
async fn ask(client: &Client, sql: &str) -> Result<Vec<Vec<String>>, Fault> {
    let said = |error: tokio_postgres::Error| Fault::Database(format!("{sql}: {error}"));
    let messages = client.simple_query(sql).await.map_err(said)?;
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    };
    Ok(messages.iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_times_and_ratios() {
        let options = Options {
            clients: 4,
            lacks: Vec::new(),
            kills: 1,
            level: "optimistic".to_owned(),
            pg_bin: None,
            onecopy: None,
        };
        let row = Row { what: "it".to_owned(), seconds: 1.5, lacked: "7".to_owned(), rates: (200.0, 50.0) };
        assert!(report(&options, "here", &[row]).contains("| it | 7 | 1.50 | 200 | 50 | 0.25 |"));
    }
}
