//! Read, compute, write: a transaction's write to a row must follow directly on the value that it had read.
//!
//! At REPEATABLE READ and above PostgreSQL guarantees this for every read, or answers 40001. At READ COMMITTED it holds for
//! rows locked by SELECT FOR UPDATE. The judge uses only what clients read themselves, not what the server says a write
//! was based on, so it finds lost updates in histories of real servers, too.

use super::{Anomaly, Finding, Index};
use crate::history::{History, Seen, Transaction};

pub(super) fn check(history: &History, index: &Index) -> Vec<Finding> {
    let numbered = history.transactions.iter().enumerate();
    let in_effect = numbered.filter(|(number, _)| index.is_in_effect[*number]);
    in_effect.filter_map(|(number, transaction)| check_transaction(number, transaction, index)).collect()
}

fn check_transaction(number: usize, transaction: &Transaction, index: &Index) -> Option<Finding> {
    let mut binding: Vec<&Seen> = Vec::new();
    for statement in &transaction.statements {
        if statement.end_us != 0 && transaction.keeps_snapshot() {
            binding.extend(&statement.reads);
        }
        if statement.end_us != 0 && statement.undone_by.is_none() {
            binding.extend(&statement.locked);
        }
        let writes = statement.writes.iter().filter(|_| statement.undone_by.is_none());
        for (write, (row, place)) in writes.filter_map(|w| Some((w, *index.places.get(&w.element)?))) {
            let base = index.without_own(number, &index.list(row)[..place]);
            if base.last().is_some_and(|last| index.gone.contains(last)) {
                // An INSERT has no row to start from.
                continue;
            }
            let read = binding.iter().filter(|seen| seen.row == row);
            let mut read = read.map(|seen| index.without_own(number, &seen.list));
            if let Some(read) = read.find(|read| *read != base) {
                let element = write.element;
                let text = format!("T{number} read {read:?} of row {row} and wrote {element} over {base:?}");
                return Some(Finding { anomaly: Anomaly::LostUpdate, text });
            }
        }
    }
    None
}
