//! The parts of a plan that measure preventive replication: delays, scaling, costs and lost origins.
//!
//! For example `[[scaling]]` with `replicas = [1, 2, 4, 8]` makes four clusters, and sends each the same number of TPC-C calls
//! in a second. Every section has clusters of its own.

use serde::Deserialize;
use testbed::fault::Fault;

use super::{CLIENTS_MAX, Plan, Prepared, REPLICAS_MAX, SECONDS_MAX};
use crate::drive::Workload;
use crate::load::{Load, Size};
use crate::nap::Nap;

/// The longest time of a single call.
const CALL_MAX_MS: u32 = 10_000;

/// When a transaction starts at a replica (`--start`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Start {
    /// On its arrival.
    OnArrival,
    /// When nothing older can arrive any more.
    Ordered,
}

impl Start {
    /// As `onecopy up` calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::OnArrival => "on-arrival",
            Self::Ordered => "ordered",
        }
    }
}

/// Single calls that take a known time without using a processor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Delay {
    pub(crate) replicas: u16,
    /// Further words for `onecopy up`.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    pub(crate) start: Start,
    /// Max + epsilon (`--message-max-ms`).
    pub(crate) window_ms: u32,
    /// The times that calls take, one after the other.
    pub(crate) times_ms: Vec<u32>,
    /// Calls of each time.
    pub(crate) calls: u32,
}

impl Delay {
    /// All further words for `onecopy up`.
    pub(crate) fn words(&self) -> Vec<String> {
        let own = ["--start", self.start.word(), "--message-max-ms"].map(str::to_owned);
        self.arguments.iter().cloned().chain(own).chain([self.window_ms.to_string()]).collect()
    }
}

/// The procedures that clients call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Called {
    /// TPC-C.
    #[default]
    Tpcc,
    /// One row by its key, each client its own.
    Probe,
}

/// Calls at a rate that does not depend on the number of servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Steady {
    #[serde(default)]
    pub(crate) calls: Called,
    /// Interactions in a second, of all clients, at random moments.
    pub(crate) rate_total: f64,
    pub(crate) clients: usize,
    /// Warehouses in the tables. Clients may use fewer of them.
    pub(crate) scale: i32,
    pub(crate) items: Option<i32>,
    pub(crate) customers: Option<i32>,
}

impl Steady {
    /// The workload that fills the tables.
    pub(crate) fn workload(&self) -> Box<dyn Workload> {
        let size = Size { scale: self.scale, items: self.items, customers: self.customers };
        match self.calls {
            Called::Tpcc => Load::TpccCall.workload(&size),
            Called::Probe => Box::new(Nap { ms: 0 }),
        }
    }

    /// The name of the tables.
    pub(crate) fn tables(&self) -> &'static str {
        match self.calls {
            Called::Tpcc => Load::TpccCall.tables(),
            Called::Probe => "probe",
        }
    }
}

/// The same load on clusters of several sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scaling {
    /// Its name in the report.
    pub(crate) called: String,
    /// Servers of each cluster.
    pub(crate) replicas: Vec<u16>,
    pub(crate) arguments: Vec<String>,
    /// The mean delay of messages between agents, in microseconds; without it they take no time.
    pub(crate) message_us: Option<u32>,
    /// Statements that prepare the filled tables.
    #[serde(default)]
    pub(crate) prepared: Prepared,
    pub(crate) load: Steady,
    /// Warehouses that clients use, one run for each number.
    pub(crate) warehouses: Vec<i32>,
    /// Clients for each server that only read and are always busy, in runs of their own.
    #[serde(default)]
    pub(crate) readers_per_server: usize,
    /// Warehouses that clients use in these runs.
    #[serde(default)]
    pub(crate) reader_warehouses: Vec<i32>,
}

/// The processor time of the same load under several protocols.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cost {
    /// Its name in the report.
    pub(crate) called: String,
    pub(crate) replicas: u16,
    pub(crate) load: Steady,
    /// The others are compared with the first one.
    #[serde(rename = "way")]
    pub(crate) ways: Vec<Way>,
}

/// A protocol with its options.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Way {
    /// Its name in the report.
    pub(crate) called: String,
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
}

/// The server where a call runs is killed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Origin {
    pub(crate) replicas: u16,
    pub(crate) arguments: Vec<String>,
    /// The time that the call takes.
    pub(crate) call_ms: u32,
    /// The age of the call when its server is killed.
    pub(crate) killed_ms: u32,
    /// How often this is done.
    pub(crate) times: u32,
}

/// Checks these sections of a plan.
pub(super) fn check(plan: &Plan) -> Result<(), Fault> {
    let must = |holds: bool, what: &str| if holds { Ok(()) } else { Err(Fault::Missing(what.to_owned())) };
    let counts = |replicas: u16| (1..=REPLICAS_MAX).contains(&replicas);
    for Delay { replicas, times_ms, calls, .. } in &plan.delays {
        must(counts(*replicas), "delay: replicas from 1 to 16")?;
        let fits = times_ms.iter().all(|ms| *ms <= CALL_MAX_MS);
        must(fits && !times_ms.is_empty(), "delay: times_ms up to 10,000")?;
        must((1..=SECONDS_MAX).contains(calls), "delay: calls above 0")?;
    }
    for scaling in &plan.scalings {
        must(!scaling.replicas.is_empty(), "scaling: replicas, a list")?;
        must(scaling.replicas.iter().all(|count| counts(*count)), "scaling: replicas from 1 to 16")?;
        check_load(&scaling.load)?;
        let mut used = scaling.warehouses.iter().chain(&scaling.reader_warehouses);
        must(used.all(|count| (1..=scaling.load.scale).contains(count)), "scaling: warehouses up to scale")?;
        let both = (scaling.readers_per_server > 0) != scaling.reader_warehouses.is_empty();
        must(both, "scaling: readers_per_server and reader_warehouses go together")?;
        must(scaling.readers_per_server <= CLIENTS_MAX / usize::from(REPLICAS_MAX), "readers_per_server")?;
    }
    for Cost { replicas, load, ways, .. } in &plan.costs {
        must(counts(*replicas) && !ways.is_empty(), "cost: replicas from 1 to 16, and a way")?;
        check_load(load)?;
    }
    for Origin { replicas, call_ms, killed_ms, times, .. } in &plan.origins {
        must((2..=REPLICAS_MAX).contains(replicas), "origin: replicas from 2 to 16")?;
        must(killed_ms < call_ms && *call_ms <= CALL_MAX_MS, "origin: killed_ms before the end of call_ms")?;
        must((1..=100).contains(times), "origin: times from 1 to 100")?;
    }
    Ok(())
}

fn check_load(load: &Steady) -> Result<(), Fault> {
    let holds = load.rate_total.is_finite()
        && load.rate_total > 0.0
        && (1..=CLIENTS_MAX).contains(&load.clients)
        && (1..=10_000).contains(&load.scale);
    let what = "load: rate_total above 0, clients from 1 to 2,000, scale from 1 to 10,000";
    if holds { Ok(()) } else { Err(Fault::Missing(what.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "title = 't'\nrounds = 1\nwarm_up_s = 1\nseconds = 3\n\
        [[contestant]]\nkind = 'onecopy'\nreplicas = 1\n\
        [[delay]]\nreplicas = 8\narguments = ['--protocol', 'preventive']\nstart = 'ordered'\nwindow_ms = 200\n\
        times_ms = [10, 400]\ncalls = 4\n\
        [[scaling]]\ncalled = 'FR'\nreplicas = [1, 2]\narguments = []\nmessage_us = 1200\nwarehouses = [1, 5]\n\
        readers_per_server = 4\nreader_warehouses = [5]\n\
        [scaling.load]\nrate_total = 10.0\nclients = 40\nscale = 5\n\
        [[cost]]\ncalled = 'c'\nreplicas = 4\n[cost.load]\nrate_total = 10.0\nclients = 40\nscale = 5\n[[cost.way]]\ncalled = 'a'\n\
        [[origin]]\nreplicas = 3\narguments = []\ncall_ms = 1500\nkilled_ms = 700\ntimes = 2\n";

    #[test]
    fn sections_are_read() {
        let plan = Plan::parse(TEXT).unwrap();
        assert_eq!(plan.delays[0].start, Start::Ordered);
        let words = "--protocol preventive --start ordered --message-max-ms 200";
        assert_eq!(plan.delays[0].words().join(" "), words);
        assert_eq!((plan.scalings[0].message_us, plan.scalings[0].load.clients), (Some(1200), 40));
        assert_eq!((plan.costs[0].ways.len(), plan.origins[0].times), (1, 2));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (from, to) in [
            ("start = 'ordered'", "start = 'later'"),
            ("times_ms = [10, 400]", "times_ms = [10, 10001]"),
            ("times_ms = [10, 400]", "times_ms = []"),
            ("replicas = [1, 2]", "replicas = [1, 17]"),
            ("replicas = [1, 2]", "replicas = []"),
            ("warehouses = [1, 5]", "warehouses = [1, 6]"),
            ("reader_warehouses = [5]", ""),
            ("rate_total = 10.0", "rate_total = 0.0"),
            ("[[cost.way]]\ncalled = 'a'\n", "way = []\n"),
            ("killed_ms = 700", "killed_ms = 1500"),
            ("times = 2", "times = 0"),
            ("replicas = 3", "replicas = 1"),
        ] {
            let text = TEXT.replacen(from, to, 1);
            assert_ne!(text, TEXT, "{from}");
            assert!(matches!(Plan::parse(&text), Err(Fault::Missing(_))), "{to}");
        }
    }
}
