//! The peak throughput: clients are added until it no longer grows (section 8).
//!
//! Each number of clients is a run of its own. The numbers grow by a factor; the first that brings no more ends the search,
//! then the neighbours of the best are looked at. How long is measured depends on the throughput that the mean costs
//! would allow without conflicts, so that all points have about the same number of interactions behind them.
//!
//! Growth of a few hundredths is chance. So the peak is where the fewest clients come within that of the best: with more,
//! nothing grows but the time of a reply, and how far the search went past that point would decide what is reported as the
//! response time at the peak. Where clients wait for each other (with `eager` above all) the throughput rises,
//! stays, and with many times as many clients rises again, when thousands of reads wait for the end of each purchase and
//! then fill all replicas at once; replies take a quarter of a minute then. The peak is the first of these.

use super::run::{Outcome, run};
use super::scenario::Scenario;

/// Each step has so many more clients than the one before.
const STEP: f64 = 1.4;
/// The neighbours of the best.
const FINE_STEP: f64 = 1.18;
/// Databases must have done at least this part of the work of the interactions that ended.
const SUSTAINED: f64 = 0.93;
/// More interactions may wait at the end of a measurement than at its beginning by this part of those that ended.
const STEADY: f64 = 0.02;
/// Throughputs so near to the best are as good.
const AS_GOOD: f64 = 0.98;
/// Less growth than this in a step is none.
const GROWTH: f64 = 1.05;
/// The first number of clients, as a share of what would keep all replicas busy.
const FIRST_SHARE: f64 = 0.15;
/// The last number of clients, as the same share: with more, replies take longer than thinking does.
const LAST_SHARE: f64 = 2.5;
/// Interactions that a run is to measure, about.
const INTERACTIONS: f64 = 4_000.0;
/// A measurement is not shorter and not longer than this.
const MEASURE_S: (f64, f64) = (100.0, 1_500.0);
/// Not measured at the beginning: many times the think time.
pub const WARM_UP_US: u64 = 100_000_000;
/// Interactions from which the mean costs are taken.
const SAMPLE: u32 = 50_000;

/// The fewest clients with which throughput is at its best.
#[derive(Clone, PartialEq, Debug)]
pub struct Peak {
    /// With so many.
    pub clients: usize,
    /// What was measured with them.
    pub outcome: Outcome,
    /// Every number that was tried, with its throughput.
    pub tried: Vec<(usize, f64)>,
}

/// The throughput that there would be without conflicts: `N / (R + N W)`.
pub fn capacity_wips(scenario: &Scenario) -> f64 {
    scenario.replicas as f64 * 1e6 / cost_us(scenario)
}

/// What an interaction costs all databases together.
fn cost_us(scenario: &Scenario) -> f64 {
    let (reads_us, writes_us) = scenario.workload.mean_costs_us(SAMPLE);
    (reads_us + scenario.replicas as f64 * writes_us).max(1.0) / f64::from(scenario.speed)
}

/// A number of clients: whole, and at least one.
#[expect(clippy::cast_sign_loss, reason = "what is below 1 is 1")]
pub(super) fn clients(number: f64) -> usize {
    number.max(1.0) as usize
}

/// Finds the peak of a scenario, whatever number of clients it says.
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
    /// Of an interaction.
    cost_us: f64,
    tried: Vec<(usize, Outcome)>,
}

impl Search {
    fn best_wips(&self) -> f64 {
        self.tried.iter().map(|(_, outcome)| outcome.wips()).fold(0.0, f64::max)
    }

    /// The fewest clients that are as good as the best.
    fn knee(&self) -> Option<(usize, Outcome)> {
        let enough = self.best_wips() * AS_GOOD;
        let as_good = self.tried.iter().filter(|(_, outcome)| outcome.wips() >= enough);
        as_good.min_by_key(|(clients, _)| *clients).cloned()
    }

    /// Whether there is more throughput with so many clients than with any number before.
    fn grows_with(&mut self, clients: f64) -> bool {
        let clients = self::clients(clients);
        if self.tried.iter().any(|(tried, _)| *tried == clients) {
            return false;
        }
        self.scenario.clients = clients;
        let outcome = run(&self.scenario, None);
        let wips = outcome.wips();
        // What ends must have been worked for, and no more may wait from minute to minute: else updates pile up while reads
        // go on, and that does not last.
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
