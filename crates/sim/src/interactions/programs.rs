//! The transactions of a web interaction, as a run draws them: single reads, single updates, and transactions of several operations.

use std::collections::BTreeMap;

use cluster::ids::{DatabaseId, FragmentId};
use cluster::parts::lock_queues::{LockSet, Mode};
use cluster::protocols::shipping::{Choices, Ending, Kind, Operation, SequenceNumber, StatementId};
use cluster::protocols::{conflict_aware, eager, fr_c, fr_l, vr_l};

use crate::dice::Dice;

/// The number of tables.
pub(crate) const TABLES: usize = 4;
/// The protocols that ship statements.
pub(crate) const PROTOCOLS: [Choices; 5] =
    [conflict_aware::CONFLICT_AWARE, eager::EAGER, fr_l::FR_L, fr_c::FR_C, vr_l::VR_L];

/// The writes of a table: number and statement.
pub(crate) type Rows = Vec<(SequenceNumber, StatementId)>;
/// For each statement, the tables that it touches.
pub(crate) type Texts = BTreeMap<StatementId, Vec<usize>>;
/// What a read sees of each of its tables.
pub(crate) type Seen = Vec<(usize, Vec<StatementId>)>;

/// A transaction that a client is about to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Program {
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
    pub(crate) fn draw(dice: &mut Dice) -> Self {
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
pub(crate) fn locks(reads: &[usize], writes: &[usize]) -> LockSet {
    let of = |table: &usize, mode| (FragmentId::whole(DatabaseId::FIRST.table(*table as u32)), mode);
    let mut all: Vec<_> = reads.iter().map(|table| of(table, Mode::Read)).collect();
    all.extend(writes.iter().map(|table| of(table, Mode::Write)));
    all.sort_by_key(|(fragment, _)| *fragment);
    all.into()
}

/// An operation with a name of its own.
pub(crate) fn operation(kind: Kind, statement: StatementId, cost_us: u32) -> Operation {
    Operation { kind, statement, cost_us }
}
