//! The contenders, and one measurement of one of them.

use std::time::Instant;

use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::postgres::{Binaries, Plain};
use testbed::scratch::Scratch;

use super::node::Node;
use super::pooler::Pooler;
use crate::cpu::{Reading, SETTLE, Ticks};
use crate::pgbench::{self, Load, Mode, Outcome, Script};

/// The contender with which all are compared.
pub(super) const DIRECT: &str = "direct";
/// The same, with commits that wait for the disk.
const DIRECT_SYNCHRONOUS: &str = "direct, sync";
/// The pooler.
pub(super) const PGBOUNCER: &str = "PgBouncer";
/// Ourselves.
pub(super) const ONECOPY: &str = "onecopy";
/// The same where sessions share connections.
pub(super) const POOLS: &str = "onecopy, pools";
/// Another one of us.
const BEFORE: &str = "onecopy, before";

/// One way from a client to PostgreSQL.
#[derive(Debug)]
pub(super) struct Contender {
    /// How the report calls it.
    pub(super) name: &'static str,
    endpoint: Endpoint,
    /// Where clients with prepared statements go, if elsewhere.
    prepared_endpoint: Option<Endpoint>,
    /// The process in between.
    middleware: Option<u32>,
    /// The server's first process.
    server: u32,
    /// Whether it differs from another one only in how it commits.
    writes_only: bool,
}

impl Contender {
    /// All contenders, the direct way first.
    pub(super) fn all(
        plain: &Plain,
        pooler: Option<&Pooler>,
        before: Option<&Node>,
        [node, pools]: [&Node; 2],
    ) -> Vec<Self> {
        let synchronous = Some("-c synchronous_commit=on");
        let synchronous = Self { writes_only: true, ..Self::direct(plain, DIRECT_SYNCHRONOUS, synchronous) };
        let pooled = pooler.map(|pooler| Self::pooled(plain, pooler));
        let before = before.map(|node| Self::through(BEFORE, node));
        let ours = [Self::through(ONECOPY, node), Self::through(POOLS, pools)];
        let ways = [Self::direct(plain, DIRECT, None), synchronous];
        ways.into_iter().chain(pooled).chain(before).chain(ours).collect()
    }

    /// Without anything in between.
    pub(super) fn direct(plain: &Plain, name: &'static str, options: Option<&'static str>) -> Self {
        Self {
            name,
            endpoint: Endpoint { options, ..plain.endpoint.clone() },
            prepared_endpoint: None,
            middleware: None,
            server: plain.pid(),
            writes_only: false,
        }
    }

    /// PgBouncer before the plain server.
    pub(super) fn pooled(plain: &Plain, pooler: &Pooler) -> Self {
        Self {
            endpoint: pooler.endpoint.clone(),
            prepared_endpoint: Some(pooler.prepared_endpoint.clone()),
            middleware: Some(pooler.pid()),
            ..Self::direct(plain, PGBOUNCER, None)
        }
    }

    /// Onecopy.
    pub(super) fn through(name: &'static str, node: &Node) -> Self {
        Self {
            name,
            endpoint: node.endpoint.clone(),
            prepared_endpoint: None,
            middleware: Some(node.pid()),
            server: node.postmaster,
            writes_only: false,
        }
    }

    /// Whether it has anything to tell under that load.
    pub(super) fn takes(&self, script: Script) -> bool {
        script == Script::TpcB || !self.writes_only
    }

    fn endpoint(&self, mode: Mode) -> &Endpoint {
        self.prepared_endpoint.as_ref().filter(|_| mode == Mode::Prepared).unwrap_or(&self.endpoint)
    }
}

/// The result of one contender in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Transactions in a second.
    pub(super) throughput: f64,
    /// With one client.
    pub(super) latency_ms: f64,
    /// Processor time of the process in between, per transaction.
    pub(super) middleware_us: Option<f64>,
    /// Processor time of the server, per transaction.
    pub(super) servers_us: f64,
    /// How much of the machine's processors strangers used, from 0 to 1.
    pub(super) strangers: f64,
}

/// The programs and folders that a measurement uses.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) binaries: &'a Binaries,
    pub(super) scratch: &'a Scratch,
    pub(super) interrupt: &'a Interrupt,
}

impl Bench<'_> {
    /// Runs a load against a contender.
    pub(super) fn run(&self, contender: &Contender, load: &Load) -> Result<Outcome, Fault> {
        pgbench::run(self.binaries, contender.endpoint(load.mode), load, self.scratch, self.interrupt)
    }

    /// Measures a contender once.
    pub(super) fn measure(
        &self,
        contender: &Contender,
        throughput: &Load,
        latency: &Load,
    ) -> Result<Sample, Fault> {
        let alone = self.run(contender, latency)?;
        self.interrupt.pause(SETTLE)?;
        let read = || Reading::take(contender.middleware, &[contender.server]);
        let before = read()?;
        let begin = Instant::now();
        let outcome = self.run(contender, throughput)?;
        self.interrupt.pause(SETTLE)?;
        let length = begin.elapsed();
        let used = read()? - before;
        let each = |ticks: Ticks| ticks.micros() / outcome.transactions as f64;
        Ok(Sample {
            throughput: outcome.throughput,
            latency_ms: alone.latency_ms,
            middleware_us: contender.middleware.map(|_| each(used.middleware)),
            servers_us: each(used.servers),
            strangers: used.strangers(length),
        })
    }
}
