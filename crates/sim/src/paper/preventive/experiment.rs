//! One run: an experiment, a configuration, a number of nodes and of warehouses, a seed, and the setting that all figures share.

use cluster::parts::stamps::{Classes, Commit, Guards, Reach, Rules, Start};

use super::calibration::CALIBRATION;
use super::outcome::Outcome;
use super::workload::{Configuration, Update};
use super::world::{self, Plan, Service};
use crate::dice::Dice;
use crate::paper::open::arrivals;

/// Section 6.4: "The number of clients that submit queries is 128."
pub const QUERY_CLIENTS: u32 = 128;
/// Table 1: ten clients for each warehouse, and each submits a transaction every 10 s.
const PER_WAREHOUSE_PER_S: u32 = 1;
const CLIENT_GAP_S: u64 = 10;
/// Table 1: M.
const SUBMITTED: u64 = 100;
/// The same where queries are measured. There is no more to see: a run of 100 s has 80,000 queries and more.
const SUBMITTED_BESIDE_QUERIES: u64 = 10;
/// Section 6.5: "We submit 100 transactions in a low workload".
const DELAYED: u64 = 100;
/// The time between two of them, longer than any of them takes.
const DELAYED_GAP_US: u64 = 1_000_000;

/// What all figures share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Setting {
    /// When a transaction starts.
    pub start: Start,
    /// Which transactions conflict.
    pub classes: Classes,
    /// The younger transactions that mind an older one that waits or is late.
    pub reach: Reach,
    /// Whose the time on a disk is.
    pub times: Times,
    /// Which execution a disk serves next.
    pub discipline: Discipline,
}

/// Whose the time on a disk is; the paper does not say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Times {
    /// Each node has one of its own for each execution.
    OfExecution,
    /// All nodes take as long for a transaction.
    OfTransaction,
}

impl Default for Setting {
    /// The whole of section 5. The experiment of figure 13 is the one that had aborts (6.5), so it started transactions at once.
    fn default() -> Self {
        Self {
            start: Start::OnArrival,
            classes: Classes::ByClaims,
            reach: Reach::Younger,
            times: Times::OfExecution,
            discipline: Discipline::InTurn,
        }
    }
}

impl Setting {
    /// The name in every output.
    pub fn name(self) -> String {
        let start = match self.start {
            Start::Ordered => "start when ordered (4)",
            Start::OnArrival => "start on arrival (5.1)",
        };
        let classes = match (self.classes, self.reach) {
            (Classes::One, _) => "one at a time",
            (Classes::ByClaims, Reach::Younger) => "concurrent by classes (5.2)",
            (Classes::ByClaims, Reach::Conflicting) => "concurrent by classes, only conflicts wait (ours)",
        };
        let times = match self.times {
            Times::OfExecution => "",
            Times::OfTransaction => "; all nodes take as long for a transaction",
        };
        let discipline = match self.discipline {
            Discipline::InTurn => "",
            Discipline::OldestFirst => "; disks serve the oldest first",
        };
        format!("{start}; {classes}{times}{discipline}")
    }

    fn rules(self) -> Rules {
        let Self { start, classes, reach, .. } = self;
        Rules {
            wait_us: CALIBRATION.wait_us,
            start,
            classes,
            reach,
            commit: Commit::ByItself,
            guards: Guards::ALL,
        }
    }
}

/// Which execution a disk serves next; the paper does not say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Discipline {
    /// The one that came first.
    InTurn,
    /// The one with the oldest stamp, after the one that is being served.
    OldestFirst,
}

/// An experiment of section 6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Experiment {
    /// Updates only (6.3, and the messages of 6.5).
    ScaleUp,
    /// Updates and queries (6.4).
    SpeedUp,
    /// Single updates of a fixed size (6.5).
    Delay {
        /// The time that each takes.
        size_ms: u64,
    },
}

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cell {
    /// The experiment.
    pub experiment: Experiment,
    /// Which node holds what.
    pub configuration: Configuration,
    /// Warehouses.
    pub warehouses: u32,
    /// Nodes.
    pub nodes: u16,
    /// The seed of all random choices. The same seed and number of warehouses give the same updates at the same times.
    pub seed: u64,
}

/// Runs one cell.
pub fn measure(cell: Cell, setting: Setting) -> Outcome {
    let Cell { experiment, configuration, warehouses, nodes, seed } = cell;
    let submitted = if experiment == Experiment::ScaleUp { SUBMITTED } else { SUBMITTED_BESIDE_QUERIES };
    let phase_us = submitted * CLIENT_GAP_S * 1_000_000;
    let mut dice = Dice::new(seed.wrapping_mul(1_000).wrapping_add(u64::from(warehouses)));
    let drawn = match setting.times {
        Times::OfExecution => Service::OfExecution,
        Times::OfTransaction => Service::OfTransaction,
    };
    let (at_us, service) = match experiment {
        Experiment::ScaleUp | Experiment::SpeedUp => {
            (arrivals::poisson_us(warehouses * PER_WAREHOUSE_PER_S, phase_us, &mut dice), drawn)
        }
        Experiment::Delay { size_ms } => {
            let at_us = (0..DELAYED).map(|number| number * DELAYED_GAP_US);
            (at_us.collect(), Service::Fixed(size_ms * 1_000))
        }
    };
    let drawn: Vec<Update> =
        at_us.into_iter().map(|at_us| Update::draw(at_us, warehouses, &mut dice)).collect();
    let updates: Vec<Update> = drawn.into_iter().map(|update| update.sized(&mut dice)).collect();
    let plan = Plan {
        configuration,
        nodes,
        rules: setting.rules(),
        calibration: CALIBRATION,
        service,
        discipline: setting.discipline,
        query_clients: if experiment == Experiment::SpeedUp { QUERY_CLIENTS } else { 0 },
        phase_us,
    };
    world::run(plan, &updates, seed.wrapping_mul(1_000).wrapping_add(u64::from(nodes)))
}
