//! One run of pgbench, and what it reports.

use std::fmt;
use std::time::Duration;

use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::postgres::Binaries;
use testbed::program;
use testbed::scratch::Scratch;

/// The file of its output.
const LOG: &str = "pgbench.log";

/// The clients' script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Script {
    /// One row by its key.
    #[value(alias = "select")]
    SelectOnly,
    /// Three updates, a select and an insert in a transaction.
    TpcB,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SelectOnly => "`-S`",
            Self::TpcB => "TPC-B",
        })
    }
}

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Query messages, values in the text.
    Simple,
    /// Parse, Bind and Execute each time.
    Extended,
    /// Parse once, then Bind and Execute.
    Prepared,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        })
    }
}

/// The role of clients that log in with a password, and this password.
pub(crate) const PROVEN: (&str, &str) = ("proven", "a password of the benchmark");

/// How clients come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Over TLS.
    pub(crate) is_encrypted: bool,
    /// As a role of which a password is asked, by SCRAM.
    pub(crate) is_proven: bool,
    /// Anew for every transaction.
    pub(crate) is_repeated: bool,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_encrypted { "TLS" } else { "plain" })?;
        f.write_str(if self.is_proven { ", SCRAM" } else { "" })
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The clients' script.
    pub(crate) script: Script,
    /// How they say it.
    pub(crate) mode: Mode,
    /// How many there are.
    pub(crate) clients: u32,
    /// For how long.
    pub(crate) length: Duration,
    /// Where random choices begin; the same for all contenders.
    pub(crate) seed: u64,
    /// How they come in.
    pub(crate) entry: Entry,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// How many transactions committed.
    pub(crate) transactions: u64,
    /// In a second.
    pub(crate) throughput: f64,
    /// On average.
    pub(crate) latency_ms: f64,
}

/// Makes the four tables and fills them.
pub(crate) fn fill(
    binaries: &Binaries,
    endpoint: &Endpoint,
    scale: u32,
    scratch: &Scratch,
    interrupt: &Interrupt,
) -> Result<(), Fault> {
    let mut command = command(binaries, endpoint, Entry::default());
    command.args(["-i", "-q", "-s", &scale.to_string(), endpoint.database]);
    program::run("pgbench -i", &mut command, &scratch.path(LOG), interrupt).map(drop)
}

/// Runs a load; a failed transaction is a fault, since the comparison would be of different work.
pub(crate) fn run(
    binaries: &Binaries,
    endpoint: &Endpoint,
    load: &Load,
    scratch: &Scratch,
    interrupt: &Interrupt,
) -> Result<Outcome, Fault> {
    let (outcome, failed) = run_counting_failures(binaries, endpoint, load, scratch, interrupt)?;
    if failed == 0 {
        return Ok(outcome);
    }
    let said = std::fs::read_to_string(scratch.path(LOG)).map_err(Fault::system("read what pgbench said"))?;
    Err(Fault::Program { name: "pgbench".into(), what: format!("had {failed} failed transactions"), said })
}

/// Runs a load; with what came out, how many transactions failed with something after which clients try again.
pub(crate) fn run_counting_failures(
    binaries: &Binaries,
    endpoint: &Endpoint,
    load: &Load,
    scratch: &Scratch,
    interrupt: &Interrupt,
) -> Result<(Outcome, u64), Fault> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32).min(load.clients);
    let mut command = command(binaries, endpoint, load.entry);
    if load.entry.is_repeated {
        command.arg("-C");
    }
    if load.script == Script::SelectOnly {
        command.arg("-S");
    }
    command
        .args(["-n", "-M", &load.mode.to_string()])
        .args(["-c", &load.clients.to_string(), "-j", &threads.to_string()])
        .args(["-T", &load.length.as_secs().to_string()])
        .args([&format!("--random-seed={}", load.seed), endpoint.database]);
    let text = program::run("pgbench", &mut command, &scratch.path(LOG), interrupt)?;
    Outcome::parse(&text)
        .ok_or_else(|| Fault::Unreadable { what: "the report of pgbench".into(), said: text })
}

fn command(binaries: &Binaries, endpoint: &Endpoint, entry: Entry) -> std::process::Command {
    let mut command = program::command(binaries.program("pgbench"));
    command.args(["-h", "127.0.0.1", "-p", &endpoint.port.to_string()]);
    command.args(["-U", if entry.is_proven { PROVEN.0 } else { "postgres" }]);
    command.env("PGSSLMODE", if entry.is_encrypted { "require" } else { "disable" });
    if entry.is_proven {
        command.env("PGPASSWORD", PROVEN.1);
    }
    if let Some(options) = endpoint.options {
        command.env("PGOPTIONS", options);
    }
    command
}

impl Outcome {
    /// Reads the report; with it, how many transactions failed.
    fn parse(text: &str) -> Option<(Self, u64)> {
        let after = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
        let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
        let transactions: u64 = after("number of transactions actually processed: ")?.parse().ok()?;
        // Releases before 15 stop a client at its first failure and do not count them.
        let failed = match after("number of failed transactions: ") {
            Some(line) => first(line)?.parse().ok()?,
            None => 0,
        };
        let outcome = Self {
            transactions: Some(transactions).filter(|&n| n > 0)?,
            throughput: first(after("tps = ")?)?.parse().ok()?,
            latency_ms: first(after("latency average = ")?)?.parse().ok()?,
        };
        Some((outcome, failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "pgbench (15.18)\nnumber of transactions actually processed: 18\n\
        number of failed transactions: 2 (10.000%)\nlatency average = 1.250 ms\n\
        initial connection time = 8.003 ms\ntps = 800.125 (without initial connection time)\n";

    #[test]
    fn a_report_is_read() {
        let outcome = Outcome { transactions: 18, throughput: 800.125, latency_ms: 1.25 };
        assert_eq!(Outcome::parse(REPORT), Some((outcome, 2)));
    }

    #[test]
    fn a_report_without_work_or_torn_is_not() {
        assert_eq!(Outcome::parse(&REPORT.replace(": 18", ": 0")), None);
        assert_eq!(Outcome::parse(&REPORT.replace("tps", "")), None);
    }
}
