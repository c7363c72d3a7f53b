//! `bench distance`: what onecopy costs, and reaches, when its servers are a network away.
//!
//! Whatever is bounded by the round trips of one connection, and not by work, shows only at a distance: above all how many
//! transactions a home commits in one. So each server stands behind a relay that delivers every byte a fixed time later, and
//! TPC-B runs by many clients, at a scale at which they seldom meet at a row. Onecopy is compared with one PostgreSQL
//! behind a relay of its own, whose clients wait for a round trip each statement. Onecopy, which is beside its clients, waits
//! in their place, and saves a round trip where it sends without waiting for the reply.
//!
//! All servers have `synchronous_commit=on`, PostgreSQL's default. All take turns within a round, and only what is of a
//! round is divided. After each run the sums of TPC-B must agree, the history must have what pgbench was told, and all
//! replicas must be identical, else there is no result. Transactions that failed, which a client would begin again, are counted.
//!
//! Another onecopy, such as one of before a change, can be measured beside.

mod relay;
mod report;
mod way;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use testbed::account::Account;
use testbed::build;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::machine::Circumstances;
use testbed::postgres::{Binaries, Likeness};
use testbed::scratch::Scratch;

use crate::pgbench::{Entry, Load, Mode, Script};
use report::Report;
use way::{Environment, Way};

/// The first run of each, which is not counted.
const WARM_UP: Duration = Duration::from_secs(2);
/// How many replicas onecopy has.
const REPLICAS: [usize; 2] = [1, 3];

/// `bench distance`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Delay of each byte between a server and its client, each way, in microseconds.
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    delay_us: u64,

    /// Length of a run, in seconds.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Number of rounds; each measures everything once.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,

    /// Number of clients.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=200))]
    clients: u32,

    /// Size of the database, as for `pgbench -s`.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    scale: u32,

    /// Folder of postgres, initdb, psql and pgbench [default: searched].
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,

    /// Program to measure [default: built from these sources].
    #[arg(long, value_name = "FILE")]
    onecopy: Option<PathBuf>,

    /// Older program to measure beside it, with replicas of its own.
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
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
    let likeness = Likeness::usual().with("synchronous_commit", "on");
    let environment = Environment {
        binaries: &binaries,
        account,
        likeness: &likeness,
        scratch: &scratch,
        interrupt,
        delay: Duration::from_micros(options.delay_us),
    };
    let mut ways = vec![Way::direct("direct", &environment)?];
    for replicas in REPLICAS {
        let versions = [(options.before.as_ref(), ", before"), (Some(&onecopy), "")];
        for (program, suffix) in versions.into_iter().filter_map(|(program, suffix)| Some((program?, suffix)))
        {
            let name = format!("onecopy x{replicas}{suffix}");
            news(&format!("starting {name}"));
            ways.push(Way::onecopy(&name, program, replicas, &environment)?);
        }
    }
    for way in &ways {
        news(&format!("filling the tables of {}", way.name));
        way.fill(options.scale, &environment)?;
    }
    let version = ways[0].version(&environment)?;
    let rows = in_turns(&mut ways, options, &environment, news)?;
    let head = format!(
        "{circumstances}; PostgreSQL {}. TPC-B, prepared, by {} clients at scale {}, {} rounds of {} s; each server is {} us away, \
         each way.",
        version, options.clients, options.scale, options.rounds, options.seconds, options.delay_us,
    );
    Ok(Report { head, rows }.to_string())
}

/// Measures all ways in turns; each with its samples, by round.
fn in_turns(
    ways: &mut [Way],
    options: &Options,
    environment: &Environment<'_>,
    news: &dyn Fn(&str),
) -> Result<Vec<(String, Vec<way::Sample>)>, Fault> {
    let load = |length, seed| Load {
        script: Script::TpcB,
        mode: Mode::Prepared,
        clients: options.clients,
        length,
        seed,
        entry: Entry::default(),
    };
    news("warming up");
    for way in ways.iter_mut() {
        way.measure(&load(WARM_UP, 0), environment)?;
    }
    let mut rows: Vec<_> = ways.iter().map(|way| (way.name.clone(), Vec::new())).collect();
    for round in 1..=options.rounds {
        // Each round begins with another way, so that none always follows the same neighbour after a pause.
        for turn in 0..ways.len() {
            let at = (turn + round as usize) % ways.len();
            let sample = ways[at].measure(&load(Duration::from_secs(options.seconds), round), environment)?;
            let name = &ways[at].name;
            news(&format!("round {round} of {}, {name}: {:.0} a second", options.rounds, sample.throughput));
            rows[at].1.push(sample);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &[&str]) -> Result<Options, clap::error::ErrorKind> {
        let line = Line::try_parse_from([&["distance"], words].concat());
        line.map(|line| line.options).map_err(|error| error.kind())
    }

    #[test]
    fn words_are_read() {
        let options = parse(&[]).unwrap();
        assert_eq!((options.delay_us, options.clients, options.scale), (250, 64, 100));
        let options = parse(&["--delay-us", "2000", "--clients", "8", "--before", "old"]).unwrap();
        assert_eq!((options.delay_us, options.clients), (2000, 8));
        assert_eq!(options.before, Some(PathBuf::from("old")));
    }

    #[test]
    fn what_has_no_sense_is_refused() {
        use clap::error::ErrorKind::{UnknownArgument, ValueValidation};
        for words in
            [["--clients", "0"], ["--clients", "201"], ["--delay-us", "-1"], ["--delay-us", "1000001"]]
        {
            let kind = parse(&words).map(|_| ()).unwrap_err();
            assert!([ValueValidation, UnknownArgument].contains(&kind), "{words:?}: {kind}");
        }
        assert_eq!(parse(&["--rounds", "0"]).map(|_| ()), Err(ValueValidation));
    }
}
