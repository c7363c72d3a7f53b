//! `bench nodes`: what several nodes cost, at the node that leads, at one that follows, and against one node with its log in files.
//!
//! `onecopy up --nodes 3` and `onecopy up`, each with two replicas, take turns under pgbench, so that other load on the machine affects them
//! alike; nothing else works meanwhile at the others. The report has only ratios within a round, and how many reads of a follower were a
//! question to the leader. Absolute throughput is left out on purpose: it says more about the day than about the program.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use testbed::build;
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::machine::Circumstances;
use testbed::node::{Node, Shape};
use testbed::postgres::Binaries;
use testbed::scratch::Scratch;

use crate::pgbench::{self, Entry, Load, Mode, Script};
use crate::spread::Spread;

/// A run of each way before it is measured.
const WARM_UP: Duration = Duration::from_secs(2);
/// How many nodes, and how many replicas in each cluster.
const NODES: u16 = 3;
const REPLICAS: u64 = 2;
const SCRIPTS: [(Script, Mode); 4] = [
    (Script::SelectOnly, Mode::Simple),
    (Script::SelectOnly, Mode::Extended),
    (Script::SelectOnly, Mode::Prepared),
    (Script::TpcB, Mode::Prepared),
];

/// `bench nodes`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Length of a run, in seconds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Number of rounds; each measures everything once.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,

    /// Number of clients.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    clients: u32,

    /// Size of the database, as for `pgbench -s`.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    scale: u32,

    /// Measure only this load.
    #[arg(long, value_enum)]
    script: Option<Script>,

    /// Folder of postgres, initdb, psql and pgbench [default: searched].
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,

    /// Program to measure [default: built from these sources].
    #[arg(long, value_name = "FILE")]
    onecopy: Option<PathBuf>,
}

/// A way to the data.
struct Way {
    name: &'static str,
    endpoint: Endpoint,
}

/// The ways, the leader first: all are compared with it.
const LEADER: usize = 0;
const FOLLOWER: usize = 1;

/// What reads a node has served.
#[derive(Clone, Copy, Default)]
struct Reads {
    all: u64,
    placed: u64,
}

/// One load, with the throughput of each way in each round.
struct Row {
    script: Script,
    mode: Mode,
    rounds: Vec<Vec<f64>>,
    /// The reads of the follower, if it was asked for reads.
    follower: Reads,
}

struct Bench<'a> {
    binaries: &'a Binaries,
    scratch: &'a Scratch,
    interrupt: &'a Interrupt,
}

/// Runs the comparison; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (binaries, scratch) = (Binaries::find(options.pg_bin.as_deref())?, Scratch::new()?);
    let circumstances = Circumstances::now(&repository).to_string();
    let onecopy = match &options.onecopy {
        Some(program) => program.clone(),
        None => build::onecopy(&repository, &scratch, interrupt, news)?,
    };
    news("starting the servers");
    let etcd = repository.join("target/etcd/etcd");
    let mut several = vec!["--nodes".to_owned(), NODES.to_string()];
    if etcd.exists() {
        several.extend(["--etcd-bin".to_owned(), etcd.display().to_string()]);
    }
    let shape = |name, arguments| Shape {
        name,
        folder: None,
        replicas: REPLICAS,
        arguments,
        placement: None,
        message_us: None,
        rule_off: None,
    };
    let alone = Node::start_shaped(shape("alone", &[]), &onecopy, &binaries, &scratch, interrupt)?;
    let nodes = Node::start_shaped(shape("nodes", &several), &onecopy, &binaries, &scratch, interrupt)?;
    let bench = Bench { binaries: &binaries, scratch: &scratch, interrupt };
    let ways = bench.ways(&nodes, &alone)?;
    news("filling the tables");
    for way in [&ways[LEADER], &ways[ways.len() - 1]] {
        pgbench::fill(&binaries, &way.endpoint, options.scale, &scratch, interrupt)?;
    }
    let mut rows = Vec::new();
    for (script, mode) in
        SCRIPTS.into_iter().filter(|(script, _)| options.script.is_none_or(|only| only == *script))
    {
        rows.push(bench.measure(&ways, options, script, mode, news)?);
    }
    if bench.leader(&nodes)? != ways[LEADER].endpoint.port {
        return Err(Fault::Wrong(
            "another node leads than at the beginning, so nothing was compared".to_owned(),
        ));
    }
    Ok(report(options, &circumstances, &ways, &rows))
}

/// The port of the node that leads, of nodes with ports from `first` on, by what SHOW NODES says.
pub(crate) fn leader(first: u16, shown: &str) -> Result<u16, Fault> {
    let leads = |line: &str| line.split('\t').nth(2) == Some("leader");
    let unreadable = || Fault::Unreadable { what: "which node leads".into(), said: shown.to_owned() };
    let number = shown.lines().position(leads).and_then(|number| u16::try_from(number).ok());
    Ok(first + number.ok_or_else(unreadable)?)
}

impl Bench<'_> {
    fn ask(&self, port: u16, query: &str) -> Result<String, Fault> {
        let admin = Endpoint { port, database: "onecopy", options: None };
        self.binaries.ask(&admin, query, self.scratch, self.interrupt)
    }

    fn leader(&self, nodes: &Node) -> Result<u16, Fault> {
        leader(nodes.port, &self.ask(nodes.port, "SHOW NODES")?)
    }

    fn ways(&self, nodes: &Node, alone: &Node) -> Result<Vec<Way>, Fault> {
        let leader = self.leader(nodes)?;
        let follower = (nodes.port..nodes.port + NODES).find(|port| *port != leader).unwrap_or(leader);
        let way = |name, port| Way { name, endpoint: Endpoint { port, database: "postgres", options: None } };
        Ok(vec![way("leader", leader), way("follower", follower), way("file log", alone.port)])
    }

    fn reads(&self, way: &Way) -> Result<Reads, Fault> {
        let shown = self.ask(way.endpoint.port, "SHOW STATS")?;
        let unreadable = || Fault::Unreadable { what: "SHOW STATS".into(), said: shown.clone() };
        let count = |name: &str| {
            let found =
                shown.lines().find_map(|line| line.split_once('\t').filter(|(first, _)| *first == name));
            found.and_then(|(_, value)| value.trim().parse().ok()).ok_or_else(unreadable)
        };
        Ok(Reads { all: count("reads_spread")?, placed: count("reads_placed")? })
    }

    fn measure(
        &self,
        ways: &[Way],
        options: &Options,
        script: Script,
        mode: Mode,
        news: &dyn Fn(&str),
    ) -> Result<Row, Fault> {
        let entry = Entry::default();
        let load = |length, seed| Load { script, mode, clients: options.clients, length, seed, entry };
        let run =
            |way: &Way, load| pgbench::run(self.binaries, &way.endpoint, &load, self.scratch, self.interrupt);
        for way in ways {
            run(way, load(WARM_UP, 0))?;
        }
        let (mut rounds, mut follower) = (Vec::new(), Reads::default());
        for round in 1..=options.rounds {
            news(&format!("{script} {mode}, round {round} of {}", options.rounds));
            let mut throughputs = vec![0.0; ways.len()];
            // Each round begins with another one, so that no way always follows the same one after a pause.
            for turn in 0..ways.len() {
                let at = (turn + round as usize) % ways.len();
                let before = self.reads(&ways[at])?;
                let outcome = run(&ways[at], load(Duration::from_secs(options.seconds), round))?;
                let after = self.reads(&ways[at])?;
                throughputs[at] = outcome.throughput;
                if at == FOLLOWER {
                    follower.all += after.all - before.all;
                    follower.placed += after.placed - before.placed;
                }
            }
            rounds.push(throughputs);
        }
        Ok(Row { script, mode, rounds, follower })
    }
}

fn report(options: &Options, circumstances: &str, ways: &[Way], rows: &[Row]) -> String {
    let mut report = format!(
        "{circumstances}. Three nodes on etcd, and one node with its log in files, {REPLICAS} replicas each; {} rounds of {} s, {} clients, scale {}. \
         Throughput as a ratio to the leader in the same round: median (least to most).\n\n| load | protocol |",
        options.rounds, options.seconds, options.clients, options.scale
    );
    for way in &ways[FOLLOWER..] {
        let _ = write!(report, " {} : leader |", way.name);
    }
    report.push_str(" reads of the follower that asked the leader |\n|---|---|---|---|---|\n");
    for row in rows {
        let _ = write!(report, "| {} | {} |", row.script, row.mode);
        for at in FOLLOWER..ways.len() {
            let ratios = Spread::of(row.rounds.iter().map(|round| round[at] / round[LEADER]));
            let shown = ratios.map_or_else(|| "-".to_owned(), |ratios| format!("{ratios:.2}"));
            let _ = write!(report, " {shown} |");
        }
        let Reads { all, placed } = row.follower;
        let asked = if row.script == Script::SelectOnly {
            format!("{} of {all}", all - placed)
        } else {
            "-".to_owned()
        };
        let _ = writeln!(report, " {asked} |");
    }
    report
}
