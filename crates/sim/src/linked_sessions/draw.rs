//! The plan of a run: its sizes and its faults.

use cluster::protocols::shipping::Choices;

use crate::dice::Dice;
use crate::interactions::programs::PROTOCOLS;

/// The number of nodes.
pub(super) const NODES: usize = 3;
/// Faults come within this time.
const FAULTS_WITHIN_US: u64 = 60_000;

/// The node that a fault is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Leader,
    Node(usize),
}

/// A fault of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// A node dies, and returns after this time.
    Kill(Which, u64),
    /// A node does nothing for this time.
    Pause(Which, u64),
    /// A node does not reach the log for this time.
    Cut(Which, u64),
    /// The link of a node breaks.
    Break(usize),
    /// Another leader is chosen without need.
    Depose,
    /// A server crashes without so many of its last commits, and returns after this time.
    Crash { replica: usize, lost: usize, away_us: u64 },
}

/// The plan of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) choices: Choices,
    pub(super) replicas: usize,
    pub(super) clients: usize,
    pub(super) interactions: usize,
    /// The typical time of a message.
    pub(super) message_us: u64,
    /// The typical time of a query.
    pub(super) work_us: u64,
    /// The typical time of a message to the log or from there.
    pub(super) log_us: u64,
    /// The typical time until a failure is noticed.
    pub(super) notice_us: u64,
    /// How often, in a hundred looks, the leader begins to bring a replica back.
    pub(super) return_percent: u64,
    pub(super) faults: Vec<(u64, Fault)>,
}

impl Plan {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let replicas = *dice.pick(&[2, 2, 3]);
        let mut faults: Vec<_> = (0..dice.between(1, 7)).map(|_| Self::fault(dice, replicas)).collect();
        if dice.percent(25) {
            // A server crashes while it is asked to end what a lost node has begun.
            let (at_us, node) = (dice.below(FAULTS_WITHIN_US), dice.index(NODES));
            let lost = dice.between(1, 3) as usize;
            let crash = Fault::Crash { replica: dice.index(replicas), lost, away_us: dice.between(1, 300) };
            faults.push((at_us, Fault::Break(node)));
            faults.push((at_us + dice.below(4_000), crash));
        }
        Self {
            choices: *dice.pick(&PROTOCOLS),
            replicas,
            clients: dice.between(3, 8) as usize,
            interactions: dice.between(4, 10) as usize,
            message_us: *dice.pick(&[50, 200, 1_000]),
            work_us: *dice.pick(&[50, 300, 1_000]),
            log_us: *dice.pick(&[20, 200, 1_000]),
            notice_us: *dice.pick(&[200, 2_000, 5_000]),
            return_percent: *dice.pick(&[10, 40, 100]),
            faults,
        }
    }

    fn fault(dice: &mut Dice, replicas: usize) -> (u64, Fault) {
        let which = if dice.percent(60) { Which::Leader } else { Which::Node(dice.index(NODES)) };
        let away_us = dice.between(300, 20_000);
        let fault = match dice.below(14) {
            0..2 => Fault::Kill(which, away_us),
            2..4 => Fault::Pause(which, away_us),
            4..6 => Fault::Cut(which, 3 * away_us),
            6..9 => Fault::Break(dice.index(NODES)),
            9..11 => Fault::Depose,
            _ => Fault::Crash {
                replica: dice.index(replicas),
                lost: dice.index(4),
                away_us: dice.between(100, 4_000),
            },
        };
        (dice.below(FAULTS_WITHIN_US), fault)
    }
}
