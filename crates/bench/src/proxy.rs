//! `bench proxy`: the cost of a program between clients and PostgreSQL.
//!
//! The same pgbench loads run against one PostgreSQL server directly, through PgBouncer, and through onecopy with one
//! replica: with own connections, with shared ones, and with a result cache that holds nearly all answers. All take turns in
//! one run, so that other load on the machine affects all of them alike. The report has only ratios within a round. Every client connects over TCP; behind,
//! PgBouncer and onecopy both use Unix sockets.
//!
//! The direct server is a plain one beside onecopy's replica, because a replica refuses writes that go past onecopy. It
//! has the replica's settings, synchronous_commit=off among them. There onecopy and the plain server promise different things:
//! onecopy has the transaction on disk when it answers. So TPC-B is also measured with synchronous_commit=on.
//!
//! The cost of TLS and SCRAM is a comparison of its own, with servers of its own: `entrance`.
//!
//! Another onecopy, such as one of before a change, can be measured beside: two runs on different days say little.

mod contender;
pub(crate) mod crowd;
mod entrance;
mod identity;
mod node;
pub(crate) mod pooler;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use testbed::account::Account;
use testbed::build;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::machine::Circumstances;
use testbed::postgres::{Binaries, Likeness, Plain};
use testbed::scratch::Scratch;

use crate::pgbench::{self, Entry, Load, Mode, Script};
use contender::{Bench, CACHE_MB, Contender, Nodes, Sample};
use node::Node;
use pooler::{Pooler, Size};
use report::Report;

/// A run of a contender before it is measured.
const WARM_UP: Duration = Duration::from_secs(1);
const MODES: [Mode; 3] = [Mode::Simple, Mode::Extended, Mode::Prepared];
const SCRIPTS: [Script; 2] = [Script::SelectOnly, Script::TpcB];

/// `bench proxy`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Length of a run that measures throughput, in seconds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Length of a run that measures latency with one client, in seconds.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    latency_seconds: u64,

    /// Number of rounds; each measures everything once.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,

    /// Number of clients for throughput.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    clients: u32,

    /// Size of the pools of PgBouncer and onecopy [default: 8 more than clients].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=250))]
    pool: Option<u32>,

    /// Size of the database, as for `pgbench -s`.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    scale: u32,

    /// Folder of postgres, initdb, psql and pgbench [default: searched].
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,

    /// Program to measure [default: built from these sources].
    #[arg(long, value_name = "FILE")]
    onecopy: Option<PathBuf>,

    /// Older program to measure beside it, with a replica of its own.
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,

    /// Measure only this load.
    #[arg(long, value_enum)]
    script: Option<Script>,

    /// Measure only this protocol.
    #[arg(long, value_enum)]
    protocol: Option<Mode>,

    /// Measure the cost of TLS and SCRAM instead, for clients that stay and for clients that connect each time. Uses
    /// one load (`-S`) and one protocol (simple) unless others are named.
    #[arg(long, conflicts_with = "before")]
    secure: bool,
}

/// Runs the comparison; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let account = Account::choose()?;
    let binaries = Binaries::find(options.pg_bin.as_deref())?;
    let scratch = Scratch::new()?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let circumstances = Circumstances::now(&repository);
    let onecopy = match &options.onecopy {
        Some(program) => program.clone(),
        None => build::onecopy(&repository, &scratch, interrupt, news)?,
    };

    if options.secure {
        let bench = Bench { binaries: &binaries, scratch: &scratch, interrupt };
        let circumstances = circumstances.to_string();
        let environment = entrance::Environment { bench, account, onecopy: &onecopy, circumstances };
        return entrance::run(options, &environment, news);
    }

    news("starting the servers");
    let pool = options.pool.unwrap_or(options.clients + 8);
    let node = Node::start(&onecopy, "onecopy", &[], &binaries, &scratch, interrupt)?;
    let size = pool.to_string();
    let pooled = ["--pool-mode", "transaction", "--pool-size", &size];
    let pools = Node::start(&onecopy, "pools", &pooled, &binaries, &scratch, interrupt)?;
    let cached = ["--result-cache-mb", CACHE_MB];
    let cache = Node::start(&onecopy, "cache", &cached, &binaries, &scratch, interrupt)?;
    let before = options.before.as_deref();
    let before = before
        .map(|program| Node::start(program, "before", &[], &binaries, &scratch, interrupt))
        .transpose()?;
    let likeness = Likeness::of(&binaries, &node.replica, &scratch, interrupt)?;
    let plain = Plain::start(&binaries, account, &likeness, &scratch, interrupt)?;
    let size = Size { servers: pool, clients: options.clients + 8 };
    let pooler = Pooler::start(&binaries, account, &plain, size, None, &scratch, interrupt)?;
    news("filling the tables");
    for endpoint in [&node.endpoint, &pools.endpoint, &cache.endpoint, &plain.endpoint]
        .into_iter()
        .chain(before.as_ref().map(|node| &node.endpoint))
    {
        pgbench::fill(&binaries, endpoint, options.scale, &scratch, interrupt)?;
    }

    let nodes = Nodes { own: &node, pools: &pools, cache: &cache, before: before.as_ref() };
    let contenders = Contender::all(&plain, pooler.as_ref(), nodes);
    let bench = Bench { binaries: &binaries, scratch: &scratch, interrupt };
    let mut report = Report::new(&circumstances, likeness.version(), pooler.as_ref(), options);
    for script in SCRIPTS.into_iter().filter(|script| options.script.is_none_or(|only| only == *script)) {
        for mode in MODES.into_iter().filter(|mode| options.protocol.is_none_or(|only| only == *mode)) {
            let taking: Vec<&Contender> = contenders.iter().filter(|c| c.takes(script)).collect();
            let samples = compare(&bench, &taking, options, script, mode, news)?;
            report.add(script, mode, taking.iter().map(|c| c.name).zip(samples).collect());
        }
    }
    Ok(report.to_string())
}

/// Measures all contenders under one load in turns; each with its samples, by round.
fn compare(
    bench: &Bench<'_>,
    contenders: &[&Contender],
    options: &Options,
    script: Script,
    mode: Mode,
    news: &dyn Fn(&str),
) -> Result<Vec<Vec<Sample>>, Fault> {
    let turns: Vec<Turn<'_>> =
        contenders.iter().map(|contender| Turn { contender, entry: Entry::default() }).collect();
    in_turns(bench, &turns, options, script, mode, news)
}

/// A contestant, and the way its clients connect.
struct Turn<'a> {
    contender: &'a Contender,
    entry: Entry,
}

/// Measures everything in turns; each with its samples, by round.
fn in_turns(
    bench: &Bench<'_>,
    turns: &[Turn<'_>],
    options: &Options,
    script: Script,
    mode: Mode,
    news: &dyn Fn(&str),
) -> Result<Vec<Vec<Sample>>, Fault> {
    let load = |entry, length, seed| Load { script, mode, clients: options.clients, length, seed, entry };
    for Turn { contender, entry } in turns {
        bench.warm_up(contender, &load(*entry, WARM_UP, 0))?;
    }
    let mut samples = vec![Vec::new(); turns.len()];
    for round in 1..=options.rounds {
        news(&format!("{script} {mode}, round {round} of {}", options.rounds));
        // Each round begins with another one, so that no contestant always follows the same one after a pause.
        for turn in 0..turns.len() {
            let at = (turn + round as usize) % turns.len();
            let Turn { contender, entry } = turns[at];
            let throughput = load(entry, Duration::from_secs(options.seconds), round);
            let latency =
                Load { clients: 1, length: Duration::from_secs(options.latency_seconds), ..throughput };
            samples[at].push(bench.measure(contender, &throughput, &latency)?);
        }
    }
    Ok(samples)
}
