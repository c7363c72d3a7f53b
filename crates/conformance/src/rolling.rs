//! `rolling`: several nodes are restarted one after the other, again and again, while clients work at all of them.
//!
//! Each client has a row of its own, so nothing but a restart can give it an error, and it gets none: it changes the row alone and in
//! transactions, in both protocols, and reads it by a statement that it has prepared at the beginning. Beside them one client
//! at each node has a temporary table. When its node is restarted it has to get 57P01, and comes again; when the leader changes
//! because another node is restarted, it has to go on.
//!
//! What is right at the end: every row counts what its client was told, and all replicas are the same.

mod clients;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use testbed::build;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::nodes::{NODES_MAX, Nodes, Shape, name};
use testbed::postgres::Binaries;
use testbed::scratch::Scratch;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use clients::{Client, Holder, connect, rows};
use report::{Restart, Work};

/// The table.
const TABLE: &str = "rolling";
/// Between two restarts every node serves for so long.
const CALM: Duration = Duration::from_secs(3);
/// How long a restart may take.
const RESTART_MAX: Duration = Duration::from_mins(1);
/// How long one question may take.
const QUESTION_MAX: Duration = Duration::from_secs(45);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Columns of SHOW NODES.
const ROLE: usize = 2;
const SINCE: usize = 8;

/// Options of `rolling`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Nodes.
    #[arg(long, value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(2..=NODES_MAX))]
    nodes: u64,

    /// Servers.
    #[arg(long, value_name = "COUNT", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=9))]
    replicas: u64,

    /// Clients that must get no error, dealt over the nodes.
    #[arg(long, value_name = "COUNT", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    clients: u32,

    /// How long they work, in seconds. The last restart may take longer.
    #[arg(long, value_name = "SECONDS", default_value_t = 120,
          value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// Folder for the nodes' configurations and logs, which is kept.
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,

    /// Folder of PostgreSQL's programs [default: ONECOPY_PG_BIN, else the newest installed release].
    #[arg(long, value_name = "FOLDER")]
    pg_bin: Option<PathBuf>,

    /// Program to restart [default: built from these sources].
    #[arg(long, value_name = "PROGRAM")]
    onecopy: Option<PathBuf>,
}

/// Runs it; the report, which is a fault if a client got an error, or anything else is wrong.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let scratch = Scratch::new()?;
    let binaries = Binaries::find(options.pg_bin.as_deref())?;
    let onecopy = if let Some(program) = &options.onecopy {
        program.clone()
    } else {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        build::onecopy(&repository, &scratch, interrupt, news)?
    };
    news("starting the servers");
    let nodes = usize::try_from(options.nodes).unwrap_or_default();
    let shape = Shape { nodes, replicas: options.replicas, settings: "", folder: options.data.as_deref() };
    let mut nodes = Nodes::start(shape, &onecopy, &binaries, &scratch, interrupt)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Fault::system("run clients"))?;
    news(&format!("{} clients work for {} s", options.clients, options.seconds));
    let work = runtime.block_on(drive(options, &nodes.ports(), interrupt, news));
    let ended = nodes.ended();
    interrupt.check()?;
    let mut work = work.map_err(Fault::Wrong)?;
    work.wrong
        .extend(ended.into_iter().map(|(node, words)| format!("node {} has ended: {words}", name(node))));
    report::conclude(&work)
}

async fn drive(
    options: &Options,
    ports: &[u16],
    interrupt: &Interrupt,
    news: &dyn Fn(&str),
) -> Result<Work, String> {
    let first = connect(ports[0], "postgres").await?;
    for sql in [
        format!("DROP TABLE IF EXISTS {TABLE}"),
        format!("CREATE TABLE {TABLE} (k int PRIMARY KEY, v bigint NOT NULL)"),
        format!("INSERT INTO {TABLE} SELECT k, 0 FROM generate_series(0, {}) k", options.clients - 1),
    ] {
        first.batch_execute(&sql).await.map_err(|error| format!("{sql}: {error:?}"))?;
    }
    let (clock, is_over) = (Instant::now(), Arc::<AtomicBool>::default());
    let (mut clients, mut holders) = (JoinSet::new(), JoinSet::new());
    for (number, node) in (0..options.clients).zip((0..ports.len()).cycle()) {
        let client = Client::open(number, node, ports[node], clock).await?;
        clients.spawn(client.work(Arc::clone(&is_over)));
    }
    for (node, port) in ports.iter().enumerate() {
        holders.spawn(Holder::new(node, *port, clock).work(Arc::clone(&is_over)));
    }
    let mut work = Work::default();
    let end = clock + Duration::from_secs(options.seconds.into());
    let mut turn = 0;
    while Instant::now() < end && interrupt.check().is_ok() {
        sleep(CALM).await;
        let node = turn % ports.len();
        turn += 1;
        match restart(ports, node, clock).await {
            Ok(restart) => {
                news(&format!("{:.1} s: node {} restarted", restart.at.as_secs_f64(), name(node)));
                work.restarts.push(restart);
            }
            Err(why) => {
                work.wrong.push(format!("node {}: {why}", name(node)));
                break;
            }
        }
    }
    sleep(CALM).await;
    is_over.store(true, Ordering::Relaxed);
    for told in clients.join_all().await {
        work.clients.push(told);
    }
    for told in holders.join_all().await {
        work.ended.extend(told);
    }
    work.wrong.extend(compare(ports[0], &work).await?);
    Ok(work)
}

/// Restarts a node, and waits until all nodes serve again.
async fn restart(ports: &[u16], node: usize, clock: Instant) -> Result<Restart, String> {
    let before = look(ports[node], node).await?;
    let at = clock.elapsed();
    let admin = connect(ports[node], "onecopy").await?;
    rows(&admin, "RESTART NODE", QUESTION_MAX).await?;
    let deadline = Instant::now() + RESTART_MAX;
    loop {
        sleep(LOOK).await;
        let mut all_see_it = true;
        for port in ports {
            // A look that waits in the queue of the listener says nothing yet.
            let seen = look(*port, node).await;
            all_see_it &= seen.is_ok_and(|seen| seen.since != before.since && seen.role != "unlinked");
        }
        if all_see_it {
            let led = before.role == "leader";
            return Ok(Restart { node, led, at, back: clock.elapsed() });
        }
        if Instant::now() > deadline {
            return Err(format!("it does not serve {} s after its restart", RESTART_MAX.as_secs()));
        }
    }
}

/// A node, as another one sees it.
struct Seen {
    role: String,
    since: String,
}

async fn look(port: u16, node: usize) -> Result<Seen, String> {
    let admin = timeout(QUESTION_MAX, connect(port, "onecopy")).await.map_err(|_| "no answer")??;
    let shown = rows(&admin, "SHOW NODES", QUESTION_MAX).await?;
    let row = shown.get(node).filter(|row| row.len() > SINCE).ok_or("SHOW NODES does not show it")?;
    if row[SINCE].is_empty() {
        return Err("it does not answer".to_owned());
    }
    Ok(Seen { role: row[ROLE].clone(), since: row[SINCE].clone() })
}

/// What does not fit to what clients were told.
async fn compare(port: u16, work: &Work) -> Result<Vec<String>, String> {
    let session = connect(port, "postgres").await?;
    let found = rows(&session, &format!("SELECT k, v FROM {TABLE} ORDER BY k"), QUESTION_MAX).await?;
    let mut wrong = Vec::new();
    for told in &work.clients {
        let row = found.iter().find(|row| row[0] == told.number.to_string());
        let value = row.map(|row| row[1].clone()).unwrap_or_default();
        if told.error.is_none() && value != told.value.to_string() {
            wrong.push(format!("client {} was told {}, and its row has {value}", told.number, told.value));
        }
    }
    let admin = connect(port, "onecopy").await?;
    let verified = rows(&admin, "VERIFY", QUESTION_MAX).await?;
    let differ = verified.iter().filter(|row| row.last().is_none_or(|result| result != "identical"));
    wrong.extend(differ.map(|row| format!("VERIFY: {}", row.join(" | "))));
    Ok(wrong)
}
