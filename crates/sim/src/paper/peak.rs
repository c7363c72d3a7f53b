//! The peak throughput: clients are added until it no longer grows (section 8).
//!
//! Each number of clients is a run of its own. The numbers grow by a factor until one brings no more throughput; then
//! numbers beside the best are tried. The measured time depends on the throughput that the mean costs would allow without
//! conflicts, so that all points rest on about the same number of interactions.
//!
//! Growth of a few per cent is chance. So the peak is the smallest number of clients that comes within that of the best.
//! With more clients only the response time grows, and the reported response time would depend on how far the search
//! went. Where clients wait for each other, above all with `eager`, throughput rises, stays flat, and rises again with
//! many times as many clients: then thousands of reads wait for each purchase and fill all replicas at once, and replies
//! take 15 seconds. The first of these is the peak.

use super::run::{Outcome, run};
use super::scenario::Scenario;

/// Each step has so many more clients than the one before.
const STEP: f64 = 1.4;
/// Factors for the numbers beside the best.
const FINE_STEP: f64 = 1.18;
/// Databases must have done at least this part of the work of the finished interactions.
const SUSTAINED: f64 = 0.93;
/// How many more interactions may wait at the end than at the beginning, as a part of the finished ones.
const STEADY: f64 = 0.02;
/// Throughputs within this part of the best count as equal.
const AS_GOOD: f64 = 0.98;
/// Less growth than this in a step counts as none.
const GROWTH: f64 = 1.05;
/// The first number of clients, as a share of what would keep all replicas busy.
const FIRST_SHARE: f64 = 0.15;
/// The last number of clients, as the same share: with more, replies take longer than thinking does.
const LAST_SHARE: f64 = 2.5;
/// About how many interactions a run measures.
const INTERACTIONS: f64 = 4_000.0;
/// The limits of the measured time.
const MEASURE_S: (f64, f64) = (100.0, 1_500.0);
/// The warm-up, in think times.
pub const WARM_UP_US: u64 = 100_000_000;
/// The number of interactions for the mean costs.
const SAMPLE: u32 = 50_000;

/// The smallest number of clients with the best throughput.
#[derive(Clone, PartialEq, Debug)]
pub struct Peak {
    /// The number of clients.
    pub clients: usize,
    /// The measurement with that number.
    pub outcome: Outcome,
    /// Every number tried, with its throughput.
    pub tried: Vec<(usize, f64)>,
}

/// The throughput without conflicts: `N / (R + N W)`.
pub fn capacity_wips(scenario: &Scenario) -> f64 {
    scenario.replicas as f64 * 1e6 / cost_us(scenario)
}

/// The cost of an interaction for all databases together.
fn cost_us(scenario: &Scenario) -> f64 {
    let (reads_us, writes_us) = scenario.workload.mean_costs_us(SAMPLE);
    (reads_us + scenario.replicas as f64 * writes_us).max(1.0) / f64::from(scenario.speed)
}

/// A number of clients: whole, and at least one.
#[expect(clippy::cast_sign_loss, reason = "what is below 1 is 1")]
pub(super) fn clients(number: f64) -> usize {
    number.max(1.0) as usize
}

/// Finds the peak of a scenario; its own number of clients is ignored.
pub fn peak(scenario: &Scenario) -> Peak {
    let capacity = capacity_wips(scenario);
    let measure_s = (INTERACTIONS / capacity).clamp(MEASURE_S.0, MEASURE_S.1);
    let cost_us = cost_us(scenario);
    let mut search = Search { scenario: scenario.clone(), cost_us, tried: Vec::new() };
    search.scenario.measure_us = clients(measure_s * 1e6) as u64;
    let full = capacity * scenario.think_us as f64 / 1e6;
    let mut clients = (full * FIRST_SHARE).max(1.0);
    while clients <= (full * LAST_SHARE).max(8.0) && (search.grows_with(clients) || search.tried.is_empty()) {
        clients = (clients * STEP).max(clients + 1.0);
    }
    let around = search.knee().map_or(1.0, |(clients, _)| clients as f64);
    search.grows_with(around / FINE_STEP);
    search.grows_with(around * FINE_STEP);
    let (clients, outcome) = search.knee().unwrap_or_default();
    let tried = search.tried.iter().map(|(clients, outcome)| (*clients, outcome.wips())).collect();
    Peak { clients, outcome, tried }
}

struct Search {
    scenario: Scenario,
    /// The mean cost of an interaction.
    cost_us: f64,
    tried: Vec<(usize, Outcome)>,
}

impl Search {
    fn best_wips(&self) -> f64 {
        self.tried.iter().map(|(_, outcome)| outcome.wips()).fold(0.0, f64::max)
    }

    /// The smallest number of clients that is as good as the best.
    fn knee(&self) -> Option<(usize, Outcome)> {
        let enough = self.best_wips() * AS_GOOD;
        let as_good = self.tried.iter().filter(|(_, outcome)| outcome.wips() >= enough);
        as_good.min_by_key(|(clients, _)| *clients).cloned()
    }

    /// Whether this number of clients has more throughput than every number before.
    fn grows_with(&mut self, clients: f64) -> bool {
        let clients = self::clients(clients);
        if self.tried.iter().any(|(tried, _)| *tried == clients) {
            return false;
        }
        self.scenario.clients = clients;
        let outcome = run(&self.scenario, None);
        let wips = outcome.wips();
        // The finished interactions must be fully paid for, and the number that waits must not grow. Otherwise updates pile
        // up while reads go on, which cannot last.
        let worked_us = (outcome.busy.reads_us + outcome.busy.writes_us) as f64;
        let has_worked = worked_us >= SUSTAINED * outcome.interactions as f64 * self.cost_us;
        if !has_worked || outcome.backlog() > STEADY {
            return false;
        }
        let best = self.best_wips();
        self.tried.push((clients, outcome));
        wips > best * GROWTH
    }
}
