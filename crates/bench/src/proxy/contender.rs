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
/// The same with a result cache.
const CACHE: &str = "onecopy, cache";
/// Size of that cache.
pub(super) const CACHE_MB: &str = "64";
/// Of the answers to a load, this share is kept when it is measured, or it is not the cache that is measured.
const KEPT_SHARE: f64 = 0.98;
/// Most runs to fill it.
const FILLS_MAX: u32 = 120;
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
    /// Where its cache is looked at, if it has one.
    cache: Option<Endpoint>,
}

/// Our nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes<'a> {
    pub(super) own: &'a Node,
    pub(super) pools: &'a Node,
    pub(super) cache: &'a Node,
    pub(super) before: Option<&'a Node>,
}

impl Contender {
    /// All contenders, the direct way first.
    pub(super) fn all(
        plain: &Plain,
        pooler: Option<&Pooler>,
        Nodes { own, pools, cache, before }: Nodes<'_>,
    ) -> Vec<Self> {
        let synchronous = Some("-c synchronous_commit=on");
        let synchronous = Self { writes_only: true, ..Self::direct(plain, DIRECT_SYNCHRONOUS, synchronous) };
        let pooled = pooler.map(|pooler| Self::pooled(plain, pooler));
        let before = before.map(|node| Self::through(BEFORE, node));
        let admin = Endpoint { database: "onecopy", ..cache.endpoint.clone() };
        let cache = Self { cache: Some(admin), ..Self::through(CACHE, cache) };
        let ours = [Self::through(ONECOPY, own), Self::through(POOLS, pools), cache];
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
            cache: None,
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
            cache: None,
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

/// Counters of SHOW CACHE.
#[derive(Clone, Copy, Debug)]
struct Reads {
    hits: f64,
    misses: f64,
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

    /// Runs a load that is not counted: once, or until a cache has nearly all answers that it asks for.
    pub(super) fn warm_up(&self, contender: &Contender, load: &Load) -> Result<(), Fault> {
        self.run(contender, load)?;
        let Some(admin) = contender.cache.as_ref().filter(|_| load.script == Script::SelectOnly) else {
            return Ok(());
        };
        let mut before = self.reads(admin)?;
        for seed in 1..=FILLS_MAX {
            self.run(contender, &Load { seed: seed.into(), ..*load })?;
            let now = self.reads(admin)?;
            let (hits, misses) = (now.hits - before.hits, now.misses - before.misses);
            if hits >= KEPT_SHARE * (hits + misses) {
                return Ok(());
            }
            before = now;
        }
        let size =
            format!("a cache of {CACHE_MB} MB holds too few of the rows; measure at a smaller --scale");
        Err(Fault::Missing(size))
    }

    fn reads(&self, admin: &Endpoint) -> Result<Reads, Fault> {
        let shown = self.binaries.ask(admin, "SHOW CACHE", self.scratch, self.interrupt)?;
        let count = |name: &str| {
            let found =
                shown.lines().find_map(|line| line.split_once('\t').filter(|(first, _)| *first == name));
            let unreadable = || Fault::Unreadable { what: "SHOW CACHE".into(), said: shown.clone() };
            found.and_then(|(_, value)| value.parse().ok()).ok_or_else(unreadable)
        };
        Ok(Reads { hits: count("hits")?, misses: count("misses")? })
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
