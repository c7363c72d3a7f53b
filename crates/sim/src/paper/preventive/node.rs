//! One node: a clock, the agent, the executions inside its database, and two stations with queues.
//!
//! An execution is held for a moment, then it is inside the database, where it needs the disk once, and then it is done until its
//! commit. An execution inside the database cannot be rolled back before it is done: section 5.1, "we cannot abort directly the
//! transactions and we must wait until the end of the transaction to abort it". One that is held has not begun, so taking it back
//! costs nothing.

use std::collections::{BTreeMap, VecDeque};

use cluster::ids::ReplicaId;
use cluster::parts::stamps::{Agent, Rules, Stamp, Stamper};
use cluster::time::Time;

use crate::dice::Dice;

/// All clocks show this at the start of a run, but for their skew.
const CLOCK_AT_0_US: u64 = 1_000_000;

/// An update, by its number in the order of submissions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WorkId(pub(super) usize);

/// How far an execution is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It has not started, or was rolled back.
    Idle,
    /// It starts soon.
    Held,
    /// It waits for the disk or is on it.
    Inside,
    /// The same, and it will be rolled back.
    Doomed,
    /// It has only to be committed.
    Done,
}

/// An update that has arrived here and is not committed.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) work: WorkId,
    pub(super) arrived_us: u64,
    pub(super) stage: Stage,
    /// Counts the starts, so that one that was taken back is not mistaken for the next.
    pub(super) attempt: u32,
    pub(super) is_refresh: bool,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) agent: Agent,
    pub(super) stamper: Stamper,
    skew_us: u64,
    pub(super) here: BTreeMap<Stamp, Here>,
    /// The executions on the disk; the first one is being served.
    pub(super) disk: VecDeque<Stamp>,
    /// The clients whose queries are at the processor; the first one is being served.
    pub(super) processor: VecDeque<u32>,
    /// The alarm that is set, by this node's clock.
    pub(super) alarm: Option<Time>,
    pub(super) committed: Option<Stamp>,
}

impl Node {
    pub(super) fn new(id: ReplicaId, rules: Rules, skew_most_us: u64, dice: &mut Dice) -> Self {
        Self {
            agent: Agent::new(id, rules),
            stamper: Stamper::new(id),
            skew_us: CLOCK_AT_0_US - skew_most_us + dice.between(0, 2 * skew_most_us),
            here: BTreeMap::new(),
            disk: VecDeque::new(),
            processor: VecDeque::new(),
            alarm: None,
            committed: None,
        }
    }

    /// What this node's clock shows.
    pub(super) fn clock(&self, now_us: u64) -> Time {
        Time { us: now_us + self.skew_us }
    }

    /// How long it is until this node's clock shows a time.
    pub(super) fn until_us(&self, now_us: u64, clock: Time) -> u64 {
        clock.since_us(self.clock(now_us))
    }
}
