//! The plan of a run: its sizes and its faults.

use cluster::protocols::shipping::Choices;

use crate::dice::Dice;
use crate::interactions::programs::PROTOCOLS;

/// Faults come within this time.
const FAULTS_WITHIN_US: u64 = 40_000;

/// A fault of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// One scheduler fails while another one lives.
    Scheduler(usize),
    /// One replica fails while another one lives.
    Replica(usize),
    /// All schedulers fail, and start again after this time; if so, with replicas that are back at their checkpoints.
    All { away_us: u64, loses_replicas: bool },
}

/// The plan of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) choices: Choices,
    pub(super) schedulers: usize,
    pub(super) replicas: usize,
    pub(super) clients: usize,
    pub(super) interactions: usize,
    /// The typical time of a message.
    pub(super) message_us: u64,
    /// The typical time of a query.
    pub(super) work_us: u64,
    /// The typical time that a log takes.
    pub(super) log_us: u64,
    pub(super) faults: Vec<(u64, Fault)>,
}

impl Plan {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let schedulers = *dice.pick(&[1, 2, 2, 3, 3, 3]);
        let replicas = *dice.pick(&[2, 2, 3]);
        let mut faults = Vec::new();
        for _ in 1..schedulers {
            faults.push((dice.below(FAULTS_WITHIN_US), Fault::Scheduler(dice.index(schedulers))));
        }
        if dice.percent(30) {
            faults.push((dice.below(FAULTS_WITHIN_US), Fault::Replica(dice.index(replicas))));
        }
        if dice.percent(40) {
            let all = Fault::All { away_us: dice.between(500, 4_000), loses_replicas: dice.percent(60) };
            faults.push((dice.below(FAULTS_WITHIN_US), all));
        }
        Self {
            choices: *dice.pick(&PROTOCOLS),
            schedulers,
            replicas,
            clients: dice.between(3, 8) as usize,
            interactions: dice.between(4, 10) as usize,
            message_us: *dice.pick(&[50, 200, 1_000]),
            work_us: *dice.pick(&[50, 300, 1_000]),
            log_us: *dice.pick(&[0, 200, 2_000]),
            faults,
        }
    }
}
