//! `rebuild`: the throughput of clients while a replica gets the data of another one.
//!
//! TPC-B runs through onecopy all the time; a replica is rebuilt in the middle. The throughput of each second is what
//! pgbench itself reports, so that before, during and after are of one run on one machine. At the end all replicas must
//! be identical.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::Signal;
use testbed::build;
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::machine::Circumstances;
use testbed::node::Node;
use testbed::postgres::Binaries;
use testbed::program::{self, Program};
use testbed::scratch::Scratch;

use crate::pgbench;

/// The replica that is rebuilt.
const REBUILT: &str = "replica-3";
/// Longer than any run; pgbench is stopped when it is over.
const LOAD_S: u32 = 24 * 3600;
/// How long pgbench may take to stop.
const STOP: Duration = Duration::from_secs(20);
/// The first seconds of a run, which do not count.
const WARM_UP_S: f64 = 3.0;

/// `rebuild`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Scale of `pgbench -i`; 65 makes about 1 GB.
    #[arg(long, value_name = "N", default_value_t = 65, value_parser = clap::value_parser!(u32).range(1..=1000))]
    scale: u32,

    /// Number of clients that write.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    clients: u32,

    /// Length of the measurements before and after the rebuild, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(5..=3600))]
    seconds: u32,

    /// Folder of postgres, initdb, psql and pgbench [default: searched].
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,

    /// Program to measure [default: built from these sources].
    #[arg(long, value_name = "FILE")]
    onecopy: Option<PathBuf>,
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
    news("starting the servers");
    let node = Node::start(&onecopy, &binaries, &scratch, interrupt)?;
    let endpoint = Endpoint { port: node.port, database: "postgres", options: None };
    let admin = Endpoint { database: "onecopy", ..endpoint.clone() };
    news(&format!("filling the tables of pgbench at scale {}", options.scale));
    pgbench::fill(&binaries, &endpoint, options.scale, &scratch, interrupt)?;
    let size = "SELECT pg_database_size(current_database()) >> 20";
    let megabytes = binaries.ask(&endpoint, size, &scratch, interrupt)?;

    let log = scratch.path("load.log");
    let mut command = program::command(binaries.program("pgbench"));
    command.args(["-h", "127.0.0.1", "-p", &endpoint.port.to_string(), "-U", "postgres", "-n", "-P", "1"]);
    command.args(["-c", &options.clients.to_string(), "-T", &LOAD_S.to_string(), endpoint.database]);
    let begun = Instant::now();
    let mut load = Program::start("pgbench", &mut command, log.clone(), Signal::INT, STOP)?;
    let aside = Duration::from_secs(options.seconds.into());
    news("writing, before the rebuild");
    interrupt.pause(aside)?;
    news(&format!("rebuilding {REBUILT}"));
    let from_s = begun.elapsed().as_secs_f64();
    let said = binaries.ask(&admin, &format!("REBUILD REPLICA {REBUILT}"), &scratch, interrupt)?;
    let upto_s = begun.elapsed().as_secs_f64();
    news("writing, after the rebuild");
    interrupt.pause(aside)?;
    load.check()?;
    drop(load);
    let text = fs::read_to_string(&log).map_err(Fault::system("read what pgbench said"))?;
    let seconds = seconds(&text)?;
    news("comparing the replicas");
    let mut verify = program::command(&onecopy);
    verify.args(["verify", "--port", &node.port.to_string()]);
    program::run("onecopy verify", &mut verify, &scratch.path("verify.log"), interrupt)?;

    let mut report = format!(
        "{}\n\n{} MB, {} clients of TPC-B; {REBUILT} was rebuilt in {:.1} s: {}\n\n\
         | | seconds | transactions a second | in the slowest second |\n|---|---|---|---|\n",
        Circumstances::now(&repository),
        megabytes.trim(),
        options.clients,
        upto_s - from_s,
        said.trim().lines().last().unwrap_or_default().replace('\t', ", "),
    );
    let end_s = f64::from(LOAD_S);
    for (name, from, upto) in
        [("before", WARM_UP_S, from_s), ("during", from_s, upto_s), ("after", upto_s, end_s)]
    {
        let rates: Vec<f64> =
            seconds.iter().filter(|(at, _)| *at > from && *at <= upto).map(|(_, rate)| *rate).collect();
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let _ = writeln!(report, "| {name} | {} | {mean:.0} | {slowest:.0} |", rates.len());
    }
    report.push_str("\nNo transaction failed, and all replicas are identical.\n");
    Ok(report)
}

/// The rate of each second, by its end; a client that gave up is a fault.
fn seconds(text: &str) -> Result<Vec<(f64, f64)>, Fault> {
    let unreadable = || Fault::Unreadable { what: "the progress of pgbench".into(), said: text.to_owned() };
    if text.contains("aborted") || text.contains("ERROR") {
        return Err(unreadable());
    }
    let mut found = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("progress: ")) {
        let mut numbers = line.split(", ").map(|part| part.split(' ').next()?.parse::<f64>().ok());
        let (Some(Some(at)), Some(Some(rate))) = (numbers.next(), numbers.next()) else {
            return Err(unreadable());
        };
        found.push((at, rate));
    }
    if found.is_empty() { Err(unreadable()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_of_pgbench_is_read() {
        let text = "pgbench (15.18)\nprogress: 1.0 s, 391.0 tps, lat 10.1 ms stddev 4.0, 0 failed\n\
                    progress: 2.0 s, 12.5 tps, lat 19.9 ms stddev 2.1, 0 failed\n";
        assert_eq!(seconds(text).unwrap(), [(1.0, 391.0), (2.0, 12.5)]);
        assert!(seconds("").is_err());
        assert!(seconds("progress: 1.0 s, 3.0 tps\npgbench: error: client 2 script 0 aborted").is_err());
    }
}
