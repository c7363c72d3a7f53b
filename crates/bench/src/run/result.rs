//! The results of a plan's runs, as written to `result.json`, and the conclusions from several of them.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::delay::Delays;
use super::origin::Lost;
use super::scaling::{Costs, Scaled};
use crate::drive::{Tally, Workload};

/// Everything.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    /// Title of the plan.
    pub(crate) title: String,
    /// Date, commit and machine.
    pub(crate) circumstances: String,
    /// Releases of what was compared.
    pub(crate) versions: Vec<String>,
    /// The plan's text.
    pub(crate) plan: String,
    /// The contestants, in the plan's order.
    pub(crate) contestants: Vec<String>,
    /// Remarks that a reader must know.
    pub(crate) notes: Vec<String>,
    /// Each run, in the order in which they were made.
    pub(crate) runs: Vec<Run>,
    /// The measured losses of replicas.
    pub(crate) losses: Vec<Loss>,
    /// The loads that grew and fell.
    pub(crate) sizes: Vec<Size>,
    /// The simulator's results for the same runs.
    pub(crate) simulated: Vec<Simulated>,
    /// Transactions that are ordered by stamps.
    pub(crate) stamped: Stamped,
}

/// The results of preventive replication.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Stamped {
    /// Single calls of known times.
    pub(crate) delays: Vec<Delays>,
    /// The same load on clusters of several sizes.
    pub(crate) scaled: Vec<Scaled>,
    /// The same load under several protocols.
    pub(crate) costs: Vec<Costs>,
    /// Calls that lost their server.
    pub(crate) lost: Vec<Lost>,
}

impl Stamped {
    /// Whether any data were wrong. A goal that was missed is not.
    pub(crate) fn is_wrong(&self) -> bool {
        let paid = self.costs.iter().flat_map(|costs| &costs.ways).map(|way| &way.point);
        let mut points = self.scaled.iter().flat_map(|scaled| &scaled.points).chain(paid);
        points.any(|point| !point.wrong.is_empty())
            || self.delays.iter().any(|delays| !delays.wrong.is_empty())
            || self.lost.iter().any(|lost| !lost.wrong.is_empty())
    }
}

/// A run and what was simulated in its place.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Simulated {
    pub(crate) load: String,
    pub(crate) contestant: String,
    pub(crate) servers: u16,
    pub(crate) clients: usize,
    /// Interactions in a second, the median of the rounds.
    pub(crate) measured: f64,
    pub(crate) expected: f64,
    /// Simulated over measured, less one.
    pub(crate) difference: f64,
    /// How much of what they may use the servers used, measured and simulated.
    pub(crate) busy: [f64; 2],
    /// Measured cost of an interaction at the servers, relative to its cost in the simulation.
    pub(crate) cost: f64,
    /// Share of the machine that all processes used together, from 0 to 1.
    pub(crate) machine: f64,
    /// How much of their one processor the clients used.
    pub(crate) driver: f64,
}

/// A simulation that is further off than this is given a reason.
pub(crate) const FAR: f64 = 0.15;
/// From here on a processor has nothing left to give.
const EXHAUSTED: f64 = 0.9;

impl Simulated {
    /// Where the difference comes from, if it is large: throughput is what servers work, over what an interaction costs them.
    pub(crate) fn reason(&self) -> Option<String> {
        if self.difference.abs() <= FAR {
            return None;
        }
        if !self.difference.is_finite() {
            return Some("no interaction ended in the measured time".to_owned());
        }
        let [busy, expected] = self.busy;
        let cause = if (busy / expected).ln().abs() < self.cost.ln().abs() {
            let more = (self.cost - 1.0) * 100.0;
            format!("an interaction costs the servers {more:+.0} % of what is simulated")
        } else {
            let (idle, idle_expected) = ((1.0 - busy) * 100.0, (1.0 - expected) * 100.0);
            let why = match () {
                () if busy > expected => "work is spread better, or waits are shorter, than simulated",
                () if self.machine > EXHAUSTED => "the machine has no processor left",
                () if self.driver > EXHAUSTED => "the clients' processor is busy",
                () => "statements wait longer for locks, messages, the log or their server's turn",
            };
            format!("servers idle {idle:.0} %, simulated {idle_expected:.0} %: {why}")
        };
        Some(cause)
    }
}

/// One run of one load on one contestant.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) load: String,
    pub(crate) contestant: String,
    pub(crate) family: String,
    pub(crate) servers: u16,
    pub(crate) round: u32,
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    /// Interactions in a second.
    pub(crate) throughput: f64,
    /// Interactions in a second that were committed; the rest was undone because its input demanded it.
    pub(crate) committed: f64,
    pub(crate) response_ms: Quantiles,
    pub(crate) kinds: BTreeMap<String, Kind>,
    pub(crate) failed: u64,
    pub(crate) retries: u64,
    /// How often clients were told 40001 and tried again, for each interaction that was committed.
    pub(crate) conflicts_each: f64,
    /// Due in an open loop, and not sent by the end.
    pub(crate) unsent: u64,
    /// Kinds of which fewer than nine in ten came within the limit of the workload.
    pub(crate) late: Vec<String>,
    /// How much of a processor the clients used.
    pub(crate) driver_cores: f64,
    pub(crate) middleware: Option<Middleware>,
    /// How much of a processor each server used.
    pub(crate) servers_cores: Vec<f64>,
    /// The processor time of all servers for each interaction.
    pub(crate) servers_us_each: f64,
    /// The same for each interaction that was committed.
    pub(crate) servers_us_per_commit: f64,
    /// Servers that used more than they may have: then it counts for nothing.
    pub(crate) beyond: Vec<String>,
    /// How much of the machine strangers used, from 0 to 1.
    pub(crate) strangers: f64,
    pub(crate) probe_reads: u64,
    pub(crate) stale_reads: u64,
    /// Errors found after it.
    pub(crate) wrong: Vec<String>,
}

impl Run {
    /// Whether its numbers may be used.
    pub(crate) fn counts(&self) -> bool {
        self.beyond.is_empty()
    }
}

/// The program between clients and servers.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Middleware {
    /// How much of a processor it used.
    pub(crate) cores: f64,
    /// For each interaction.
    pub(crate) us_each: f64,
    /// The most memory it has had so far; what it has now, if it is several processes.
    pub(crate) peak_mb: f64,
}

/// Times of interactions.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Quantiles {
    /// In milliseconds.
    pub(crate) fn of(us: &Histogram<u64>) -> Self {
        let at = |quantile| us.value_at_quantile(quantile) as f64 / 1e3;
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
    }
}

/// One kind of interaction.
#[derive(Debug, Serialize)]
pub(crate) struct Kind {
    pub(crate) done: u64,
    pub(crate) response_ms: Quantiles,
    pub(crate) service_ms: Quantiles,
    pub(crate) retries: u64,
    /// Of these, because of 40001.
    pub(crate) conflicts: u64,
    /// Undone because the input demanded it.
    pub(crate) undone: u64,
    pub(crate) troubles: BTreeMap<String, u64>,
}

/// The measurements by kind of interaction.
pub(crate) fn kinds(tally: &Tally) -> BTreeMap<String, Kind> {
    let kind = |(name, kind): (&&str, &crate::drive::Kind)| {
        let result = Kind {
            done: kind.done(),
            response_ms: Quantiles::of(&kind.response_us),
            service_ms: Quantiles::of(&kind.service_us),
            retries: kind.tries.retries,
            conflicts: kind.tries.conflicts,
            undone: kind.tries.undone,
            troubles: kind.troubles.clone(),
        };
        ((*name).to_owned(), result)
    };
    tally.kinds.iter().map(kind).collect()
}

/// The kinds that were too slow.
pub(crate) fn late(workload: &dyn Workload, tally: &Tally) -> Vec<String> {
    let is_late = |(name, kind): &(&&'static str, &crate::drive::Kind)| {
        let limit = workload.limit(name).map(|limit| limit.as_secs_f64() * 1e6);
        limit.is_some_and(|limit| kind.response_us.value_at_quantile(0.9) as f64 > limit)
    };
    tally.kinds.iter().filter(is_late).map(|(name, _)| (*name).to_owned()).collect()
}

/// A replica that was killed, by pieces of 100 ms.
#[derive(Debug, Serialize)]
pub(crate) struct Loss {
    pub(crate) load: String,
    pub(crate) contestant: String,
    pub(crate) clients: usize,
    /// Which one was killed, counted from 1.
    pub(crate) killed: u16,
    /// When it was killed, in seconds.
    pub(crate) killed_s: f64,
    /// For how long it could not be started again, in seconds.
    pub(crate) away_s: f64,
    /// When it served again, if that was seen.
    pub(crate) back_s: Option<f64>,
    pub(crate) failed: u64,
    /// How much of a processor the clients used.
    pub(crate) driver_cores: f64,
    /// How much of the machine strangers used before the kill, from 0 to 1.
    pub(crate) strangers: f64,
    /// The longest time in which nothing succeeded, after the kill.
    pub(crate) silence_s: f64,
    pub(crate) phases: Vec<Phase>,
    pub(crate) timeline: Vec<Piece>,
    pub(crate) wrong: Vec<String>,
}

/// A load that grew and fell, and how many replicas there were for it.
#[derive(Debug, Serialize)]
pub(crate) struct Size {
    pub(crate) load: String,
    pub(crate) contestant: String,
    /// Interactions in a second, at factor 1.
    pub(crate) rate: f64,
    /// The most replicas that there may be.
    pub(crate) most: u16,
    /// The replica-hours, as a part of those of all replicas all the time.
    pub(crate) cost: f64,
    pub(crate) steps: Vec<Step>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) wrong: Vec<String>,
}

/// A phase of it.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) factor: f64,
    pub(crate) seconds: f64,
    /// Interactions in a second.
    pub(crate) throughput: f64,
    pub(crate) failed: u64,
    /// Due and not sent by the end.
    pub(crate) unsent: u64,
    /// Times from the moment when an interaction was due. Nothing if none succeeded.
    pub(crate) response_ms: Option<Quantiles>,
    /// How many served at the end.
    pub(crate) replicas: usize,
    /// How long after its begin there were that many, or one more or less, for the rest of the phase.
    pub(crate) followed_s: f64,
    /// When the number changed, in seconds, and to how many.
    pub(crate) sizes: Vec<(f64, usize)>,
}

/// A claim, and whether it holds.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) claim: String,
    pub(crate) measured: String,
    pub(crate) is_met: bool,
}

/// A part of a timeline: before the loss, while the replica is away, after it is back.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    /// Interactions in a second.
    pub(crate) throughput: f64,
    pub(crate) failed: u64,
    pub(crate) mean_ms: f64,
    pub(crate) max_ms: f64,
}

/// A piece of a timeline.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Piece {
    /// When it begins.
    pub(crate) at_s: f64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) mean_ms: f64,
    pub(crate) max_ms: f64,
}
