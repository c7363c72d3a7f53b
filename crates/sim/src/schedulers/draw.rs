//! The plan of a run: its sizes, its faults, and what clients ask.

use cluster::ids::{DatabaseId, FragmentId};
use cluster::parts::lock_queues::{LockSet, Mode};
use cluster::protocols::shipping::{Choices, Ending, Kind, Operation, StatementId};
use cluster::protocols::{conflict_aware, eager, fr_c, fr_l, vr_l};

use crate::dice::Dice;

/// The number of tables.
pub(super) const TABLES: usize = 4;
/// Faults come within this time.
const FAULTS_WITHIN_US: u64 = 40_000;

const PROTOCOLS: [Choices; 5] =
    [conflict_aware::CONFLICT_AWARE, eager::EAGER, fr_l::FR_L, fr_c::FR_C, vr_l::VR_L];

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

/// A transaction that a client is about to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Program {
    SingleRead(Vec<usize>),
    SingleUpdate(usize),
    Transaction { reads: Vec<usize>, writes: Vec<usize>, operations: Vec<(Kind, usize)>, ending: Ending },
}

/// One or two different tables.
fn tables(dice: &mut Dice, most: u64) -> Vec<usize> {
    let mut tables: Vec<usize> = (0..dice.between(1, most)).map(|_| dice.index(TABLES)).collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

impl Program {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        match dice.below(10) {
            0..3 => Self::SingleRead(tables(dice, 3)),
            3..6 => Self::SingleUpdate(dice.index(TABLES)),
            _ => {
                let writes = tables(dice, 2);
                let mut reads = tables(dice, 2);
                reads.retain(|table| !writes.contains(table));
                let operations = (0..dice.between(1, 4))
                    .map(|_| {
                        let is_read = dice.percent(40);
                        let from = if is_read && !reads.is_empty() { &reads } else { &writes };
                        (if is_read { Kind::Read } else { Kind::Write }, *dice.pick(from))
                    })
                    .collect();
                let ending = if dice.percent(85) { Ending::Commit } else { Ending::Abort };
                Self::Transaction { reads, writes, operations, ending }
            }
        }
    }
}

/// Locks on whole tables.
pub(super) fn locks(reads: &[usize], writes: &[usize]) -> LockSet {
    let of = |table: &usize, mode| (FragmentId::whole(DatabaseId::FIRST.table(*table as u32)), mode);
    let mut all: Vec<_> = reads.iter().map(|table| of(table, Mode::Read)).collect();
    all.extend(writes.iter().map(|table| of(table, Mode::Write)));
    all.sort_by_key(|(fragment, _)| *fragment);
    all.into()
}

/// An operation with a name of its own.
pub(super) fn operation(kind: Kind, statement: StatementId, cost_us: u32) -> Operation {
    Operation { kind, statement, cost_us }
}
