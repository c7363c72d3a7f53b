//! The ways that are compared: one server, or onecopy before some, each server behind a relay. A way starts its programs,
//! measures a run and checks the rows that it leaves behind.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::account::Account;
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::postgres::{Binaries, Likeness, Plain, free_port};
use testbed::program::{self, Program};
use testbed::scratch::Scratch;

use super::relay::Relay;
use crate::cpu::{Reading, SETTLE, Ticks};
use crate::pgbench::{self, Load};

/// How long onecopy may take to stop in good order.
const STOP: Duration = Duration::from_mins(2);
/// Sums that every transaction of TPC-B changes by the same amount, and how many there were.
const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), \
                    (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history), \
                    (SELECT count(*) FROM pgbench_history)";

/// The programs, folders and settings that every way of access uses.
pub(super) struct Environment<'a> {
    pub(super) binaries: &'a Binaries,
    pub(super) account: Account,
    pub(super) likeness: &'a Likeness,
    pub(super) scratch: &'a Scratch,
    pub(super) interrupt: &'a Interrupt,
    /// Between a server and its client, each way.
    pub(super) delay: Duration,
}

/// Onecopy, running.
struct Middleware {
    program: Program,
    onecopy: PathBuf,
}

/// A way that is compared. Its parts are stopped in the order of the fields: none outlives one that it needs.
pub(super) struct Way {
    /// How the report calls it.
    pub(super) name: String,
    endpoint: Endpoint,
    middleware: Option<Middleware>,
    _relays: Vec<Relay>,
    servers: Vec<Plain>,
    /// How many transactions it has acknowledged.
    done: u64,
}

/// The result of one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Transactions in a second.
    pub(super) throughput: f64,
    /// On average.
    pub(super) latency_ms: f64,
    /// Transactions that failed and that a client would have to begin again.
    pub(super) failed: u64,
    /// Processor time for each transaction: of onecopy, of all servers, and of our relays.
    pub(super) middleware_us: Option<f64>,
    pub(super) servers_us: f64,
    pub(super) relays_us: f64,
    /// How much of the machine's processors strangers used, from 0 to 1.
    pub(super) strangers: f64,
}

impl Way {
    /// One server and nothing in between but its distance.
    pub(super) fn direct(name: &str, environment: &Environment<'_>) -> Result<Self, Fault> {
        let (server, relay) = distant("direct", environment)?;
        let endpoint = Endpoint { port: relay.port, ..server.endpoint.clone() };
        let (relays, servers) = (vec![relay], vec![server]);
        Ok(Self { name: name.to_owned(), endpoint, middleware: None, _relays: relays, servers, done: 0 })
    }

    /// A program of ours before so many servers.
    pub(super) fn onecopy(
        name: &str,
        onecopy: &Path,
        replicas: usize,
        environment: &Environment<'_>,
    ) -> Result<Self, Fault> {
        let folder = name.replace([' ', ','], "-");
        let both = (1..=replicas).map(|replica| distant(&format!("{folder}-{replica}"), environment));
        let (servers, relays): (Vec<Plain>, Vec<Relay>) =
            both.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let endpoint = Endpoint { port: free_port()?, database: "postgres", options: None };
        let scratch = environment.scratch;
        let mut settings = format!(
            "listen = \"127.0.0.1:{}\"\ndata = \"{}\"\nhba = \"host all all all trust\"\nhttp_listen = \"\"\n",
            endpoint.port,
            scratch.path(&format!("{folder}-data")).display()
        );
        for relay in &relays {
            settings.push_str(&format!("[[replica]]\nurl = \"postgresql://127.0.0.1:{}\"\n", relay.port));
        }
        let mut command = program::command(onecopy);
        command.args(["serve", "--config"]).arg(scratch.file(&format!("{folder}.toml"), &settings)?);
        let log = scratch.path(&format!("{folder}.log"));
        let mut program = Program::start("onecopy serve", &mut command, log, Signal::TERM, STOP)?;
        environment.binaries.wait_for(&mut program, &endpoint, scratch, environment.interrupt)?;
        let middleware = Some(Middleware { program, onecopy: onecopy.to_owned() });
        Ok(Self { name: name.to_owned(), endpoint, middleware, _relays: relays, servers, done: 0 })
    }

    /// Makes the tables; what that leaves to be written is written before anything is measured.
    pub(super) fn fill(&self, scale: u32, environment: &Environment<'_>) -> Result<(), Fault> {
        let Environment { binaries, scratch, interrupt, .. } = environment;
        pgbench::fill(binaries, &self.endpoint, scale, scratch, interrupt)?;
        self.compare(environment)?;
        for server in &self.servers {
            binaries.ask(&server.endpoint, "CHECKPOINT", scratch, interrupt)?;
        }
        Ok(())
    }

    /// The release of its servers.
    pub(super) fn version(&self, environment: &Environment<'_>) -> Result<String, Fault> {
        let said = environment.binaries.ask(
            &self.endpoint,
            "SHOW server_version",
            environment.scratch,
            environment.interrupt,
        )?;
        Ok(said.trim_end().to_owned())
    }

    /// Measures a run and looks at what it left.
    pub(super) fn measure(&mut self, load: &Load, environment: &Environment<'_>) -> Result<Sample, Fault> {
        let postmasters: Vec<u32> = self.servers.iter().map(Plain::pid).collect();
        let pid = self.middleware.as_ref().map(|middleware| middleware.program.pid());
        let Environment { binaries, scratch, interrupt, .. } = environment;
        interrupt.pause(SETTLE)?;
        let (begin, before) = (Instant::now(), Reading::take(pid, &postmasters)?);
        let (outcome, failed) =
            pgbench::run_counting_failures(binaries, &self.endpoint, load, scratch, interrupt)?;
        interrupt.pause(SETTLE)?;
        let (length, used) = (begin.elapsed(), Reading::take(pid, &postmasters)? - before);
        self.done += outcome.transactions;
        self.check(environment)?;
        let each = |ticks: Ticks| ticks.micros() / outcome.transactions as f64;
        Ok(Sample {
            throughput: outcome.throughput,
            latency_ms: outcome.latency_ms,
            failed,
            middleware_us: pid.map(|_| each(used.middleware)),
            servers_us: each(used.servers),
            relays_us: each(used.own),
            strangers: used.strangers(length),
        })
    }

    /// A fault unless what was acknowledged is there, whole, and everywhere.
    fn check(&self, environment: &Environment<'_>) -> Result<(), Fault> {
        let said =
            environment.binaries.ask(&self.endpoint, SUMS, environment.scratch, environment.interrupt)?;
        if let Some(wrong) = wrong(&said, self.done) {
            return Err(Fault::Wrong(format!("{}: {wrong}", self.name)));
        }
        self.compare(environment)
    }

    /// A fault unless all replicas have the same.
    fn compare(&self, environment: &Environment<'_>) -> Result<(), Fault> {
        let Some(Middleware { onecopy, .. }) = &self.middleware else { return Ok(()) };
        let mut verify = program::command(onecopy);
        verify.args(["verify", "--port", &self.endpoint.port.to_string()]);
        let log = environment.scratch.path("verify.log");
        program::run("onecopy verify", &mut verify, &log, environment.interrupt).map(drop)
    }
}

/// A server, and the relay through which it is reached.
fn distant(name: &str, environment: &Environment<'_>) -> Result<(Plain, Relay), Fault> {
    let Environment { binaries, account, likeness, scratch, interrupt, delay } = environment;
    let server = Plain::start_named(name, binaries, *account, likeness, scratch, interrupt)?;
    let relay = Relay::start(server.endpoint.port, *delay)?;
    Ok((server, relay))
}

/// Describes what is wrong with the sums after so many transactions.
fn wrong(said: &str, done: u64) -> Option<String> {
    let fields: Option<Vec<i64>> = said.trim_end().split('\t').map(|field| field.parse().ok()).collect();
    let Some([accounts, tellers, branches, history, count]) = fields.as_deref() else {
        return Some(format!("the sums cannot be read in: {said}"));
    };
    if [tellers, branches, history].iter().any(|sum| *sum != accounts) {
        return Some(format!(
            "accounts have {accounts}, tellers {tellers}, branches {branches}, and history says {history}"
        ));
    }
    let is_missing = u64::try_from(*count) != Ok(done);
    is_missing.then(|| format!("{done} transactions were acknowledged, and history has {count}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_update_and_a_lost_transaction_are_wrong() {
        assert_eq!(wrong("-5\t-5\t-5\t-5\t12\n", 12), None);
        assert_eq!(wrong("0\t0\t0\t0\t0\n", 0), None);
        for torn in ["-4\t-5\t-5\t-5\t12", "-5\t-4\t-5\t-5\t12", "-5\t-5\t-4\t-5\t12", "-5\t-5\t-5\t-4\t12"] {
            assert!(wrong(torn, 12).is_some_and(|wrong| wrong.contains("-4")), "{torn}");
        }
        for done in [11, 13] {
            assert!(wrong("-5\t-5\t-5\t-5\t12", done).is_some());
        }
        assert!(wrong("-5\t-5\t-5\t\t12", 12).is_some());
        assert!(wrong("", 0).is_some());
    }
}
