//! `demo`: a first impression, in half a minute, on servers that are made for it and taken away again.
//!
//! Clients read accounts and move money between them, first on one PostgreSQL, then through onecopy over three, then on
//! the one again; so what is compared is of one run on one machine. In the middle of the second part a server is killed
//! and comes back. At the end the money must still be there and the replicas must be identical, or the demonstration
//! has failed; a client that is told of an error is one that the table names.

mod report;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use testbed::account::Account;
use testbed::build;
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::node::{self, Node};
use testbed::postgres::{Binaries, Likeness, Plain};
use testbed::program;
use testbed::scratch::Scratch;

use crate::pgbench;
use report::{Pace, Replica, Report, ServerLoss};

/// How many accounts there are, in hundred thousands.
const SCALE: u32 = 2;
/// For how long the single server is measured, before and after, in seconds.
const ALONE_S: u32 = 4;
/// The replica that is killed. It is not the first one, the anchor, whose place another one takes; `check-live` kills that.
const KILLED: u64 = 2;
/// How often the line is renewed.
const LOOK: Duration = Duration::from_secs(1);
/// How often the state is asked for while the killed server is awaited.
const CLOSE_LOOK: Duration = Duration::from_millis(250);
/// The time in which replicas must be level after the last write.
const LEVEL: Duration = Duration::from_mins(1);

/// `demo`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of clients.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    clients: u32,

    /// Time under load, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(6..=600))]
    seconds: u32,

    /// Folder of postgres, initdb, psql and pgbench [default: searched].
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,

    /// Program to show [default: the one beside this program, else built from these sources].
    #[arg(long, value_name = "FILE")]
    onecopy: Option<PathBuf>,
}

/// Everything that a part of the demonstration needs.
struct Stage<'a> {
    options: &'a Options,
    binaries: &'a Binaries,
    scratch: &'a Scratch,
    interrupt: &'a Interrupt,
    scripts: [PathBuf; 2],
}

/// Runs it; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let binaries = Binaries::find(options.pg_bin.as_deref())?;
    let scratch = Scratch::new()?;
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("onecopy"));
    let onecopy = match options.onecopy.clone().or_else(|| beside.filter(|program| program.is_file())) {
        Some(program) => program,
        None => build::onecopy(&repository, &scratch, interrupt, news)?,
    };
    news("starting three servers behind onecopy, and one beside it ..");
    let node = Node::start(&onecopy, &binaries, &scratch, interrupt)?;
    let endpoint = Endpoint { port: node.port, database: "postgres", options: None };
    let first =
        node::server(node.data(), 1).ok_or_else(|| Fault::Missing("there is no first replica".into()))?;
    let likeness =
        Likeness::of(&binaries, &Endpoint { port: first.port, ..endpoint.clone() }, &scratch, interrupt)?;
    let plain = Plain::start(&binaries, Account::choose()?, &likeness, &scratch, interrupt)?;
    news("filling both with accounts ..");
    for endpoint in [&endpoint, &plain.endpoint] {
        pgbench::fill(&binaries, endpoint, SCALE, &scratch, interrupt)?;
    }
    let scripts = scripts(&scratch)?;
    let stage = Stage { options, binaries: &binaries, scratch: &scratch, interrupt, scripts };
    news(&format!("{ALONE_S} s on the single server ..."));
    let before = stage.alone(&plain)?;
    news(&format!("{} s through onecopy ..", options.seconds));
    let (seen, loss, replicas) = stage.through(&node)?;
    news(&format!("{ALONE_S} s on the single server again ..."));
    let after = stage.alone(&plain)?;
    news("comparing the replicas ..");
    let compared = stage.settle(&onecopy, &node)?;
    let money = binaries.ask(&endpoint, "SELECT sum(abalance) FROM pgbench_accounts", &scratch, interrupt)?;
    let report = Report {
        version: likeness.version().to_owned(),
        clients: options.clients,
        alone: [before, after],
        seen,
        loss,
        replicas,
        money: money.trim().to_owned(),
        compared,
    };
    if report.is_right() { Ok(report.to_string()) } else { Err(Fault::Wrong(report.to_string())) }
}

/// The transactions of the clients: read an account, and move money from one to another.
fn scripts(scratch: &Scratch) -> Result<[PathBuf; 2], Fault> {
    let accounts = SCALE * 100_000;
    let read =
        format!("\\set a random(1, {accounts})\nSELECT abalance FROM pgbench_accounts WHERE aid = :a;\n");
    let transfer = format!(
        "\\set x random(1, {accounts})\n\\set y random(1, {accounts})\n\\set d random(1, 500)\n\
         \\set a least(:x, :y)\n\\set b greatest(:x, :y)\nBEGIN;\n\
         UPDATE pgbench_accounts SET abalance = abalance - :d WHERE aid = :a;\n\
         UPDATE pgbench_accounts SET abalance = abalance + :d WHERE aid = :b;\nEND;\n"
    );
    Ok([scratch.file("read.sql", &read)?, scratch.file("transfer.sql", &transfer)?])
}

impl Stage<'_> {
    /// The clients, to their end; what pgbench reports.
    fn load(&self, endpoint: &Endpoint, seconds: u32, log: &Path) -> Result<String, Fault> {
        let mut command = program::command(self.binaries.program("pgbench"));
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            &endpoint.port.to_string(),
            "-U",
            "postgres",
            "-n",
            "-P",
            "1",
        ]);
        command.args(["-M", "prepared", "--max-tries", "20", "-c", &self.options.clients.to_string()]);
        command.args(["-T", &seconds.to_string(), "-j", "2"]);
        for (script, weight) in self.scripts.iter().zip([4, 1]) {
            command.arg("-f").arg(format!("{}@{weight}", script.display()));
        }
        program::run("pgbench", command.arg(endpoint.database), log, self.interrupt)
    }

    fn alone(&self, plain: &Plain) -> Result<Pace, Fault> {
        Pace::read(&self.load(&plain.endpoint, ALONE_S, &self.scratch.path("alone.log"))?)
    }

    /// The part through onecopy: the clients beside a line that tells what goes on.
    fn through(&self, node: &Node) -> Result<(Pace, ServerLoss, Vec<Replica>), Fault> {
        let endpoint = Endpoint { port: node.port, database: "postgres", options: None };
        let log = self.scratch.path("through.log");
        let before = self.replicas(node)?;
        let (said, loss) = std::thread::scope(|scope| {
            let load = scope.spawn(|| self.load(&endpoint, self.options.seconds, &log));
            let loss = self.watch(node, &log, || load.is_finished());
            let said = load.join().unwrap_or_else(|_| Err(Fault::Missing("the clients were lost".into())));
            Ok::<_, Fault>((said?, loss?))
        })?;
        let served = self.replicas(node)?.into_iter().zip(before).map(|(after, before)| after.since(&before));
        Ok((Pace::read(&said)?, loss, served.collect()))
    }

    /// Shows how it goes, and kills a server in the middle.
    fn watch(&self, node: &Node, log: &Path, is_over: impl Fn() -> bool) -> Result<ServerLoss, Fault> {
        let begun = Instant::now();
        let kill_at = Duration::from_secs(u64::from(self.options.seconds)) * 2 / 5;
        let name = format!("replica-{KILLED}");
        let (mut killed, mut back, mut shown) = (None, None, None);
        while !is_over() {
            let at = begun.elapsed();
            if killed.is_none() && at >= kill_at {
                if !node::kill_server(node.data(), KILLED) {
                    return Err(Fault::Missing(format!("{name} cannot be killed")));
                }
                killed = Some(at);
            }
            let replicas = self.replicas(node)?;
            // It is seen as lost a moment after it was killed.
            let is_up = replicas.iter().any(|replica| replica.name == name && replica.state == "up");
            if let Some(killed) = killed
                && back.is_none()
                && is_up
                && at > killed + CLOSE_LOOK
            {
                back = Some(at);
            }
            // Elsewhere than on a terminal one line a second is enough.
            if shown.is_none_or(|shown| at >= shown + LOOK) || std::io::stderr().is_terminal() {
                show(&line(at, log, &replicas));
                shown = Some(at);
            }
            let is_awaited = killed.is_some() && back.is_none();
            self.interrupt.pause(if is_awaited { CLOSE_LOOK } else { LOOK })?;
        }
        show("");
        Ok(ServerLoss { name, killed, back })
    }

    fn replicas(&self, node: &Node) -> Result<Vec<Replica>, Fault> {
        let endpoint = Endpoint { port: node.port, database: "onecopy", options: None };
        let shown = self.binaries.ask(&endpoint, "SHOW REPLICAS", self.scratch, self.interrupt)?;
        shown.lines().map(Replica::read).collect()
    }

    /// Waits until all replicas have everything, and compares them; how many things were compared.
    fn settle(&self, onecopy: &Path, node: &Node) -> Result<usize, Fault> {
        let begun = Instant::now();
        while self.replicas(node)?.iter().any(|replica| replica.state != "up") {
            if begun.elapsed() > LEVEL {
                return Err(Fault::Missing("the killed server did not come back".into()));
            }
            self.interrupt.pause(LOOK)?;
        }
        let mut verify = program::command(onecopy);
        verify.args(["verify", "--port", &node.port.to_string()]);
        let said =
            program::run("onecopy verify", &mut verify, &self.scratch.path("verify.log"), self.interrupt)?;
        Ok(said.lines().filter(|line| line.ends_with(": identical")).count())
    }
}

/// One line about the present moment.
fn line(at: Duration, log: &Path, replicas: &[Replica]) -> String {
    let said = std::fs::read_to_string(log).unwrap_or_default();
    let rate = report::seconds(&said).last().map_or(0.0, |(_, rate)| *rate);
    let reads: u64 = replicas.iter().map(|replica| replica.reads).sum();
    let each = replicas.iter().map(|replica| {
        let share = replica.reads * 100 / reads.max(1);
        let state =
            if replica.state == "up" { String::new() } else { format!(" {}", replica.state.to_uppercase()) };
        format!("{}{state} {share} %", replica.name)
    });
    let each: Vec<String> = each.collect();
    format!("{:>4.0} s  {rate:>6.0} transactions/s   reads: {}", at.as_secs_f64(), each.join(", "))
}

/// On a terminal the line takes the place of the last one; elsewhere it follows it.
#[expect(clippy::print_stderr, reason = "this is the line that moves")]
fn show(line: &str) {
    let mut to = std::io::stderr();
    if to.is_terminal() {
        eprint!("\r\x1b[K{line}");
        // A line that is not shown is not worth stopping for.
        let _ = to.flush();
    } else if !line.is_empty() {
        eprintln!("{line}");
    }
}
