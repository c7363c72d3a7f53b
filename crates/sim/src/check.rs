//! The judges: what a history must not contain, one concern a file.
//!
//! | file | asks |
//! |---|---|
//! | `writes` | is every acknowledged write there, once, whole, on top of what it was based on |
//! | `reads` | was only what was committed read, and everything that one wrote oneself |
//! | `registers` | is what was computed from a read written over that very read |
//! | `bank` | do all accounts hold the same together, always |
//! | `snapshots` | is there one order of commits in which each statement (READ COMMITTED) or transaction (REPEATABLE READ) saw the state of one moment between being sent and being answered |
//! | `serializable` | are the SERIALIZABLE transactions in some order that keeps real time |
//! | `graph` | the search for a cycle, and its name |
//!
//! They need no knowledge of the system: they judge histories of real servers, too. What only the simulator can see
//! (copies that differ, integrity at every moment, endless waits) it finds by itself.

mod bank;
mod graph;
mod reads;
mod registers;
mod serializable;
mod snapshots;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::history::{Element, History, Outcome, Scan, Transaction};

/// What is wrong, by its name in the literature where it has one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Anomaly {
    /// A cycle of overwriting (Adya's G0).
    DirtyWrite,
    /// What was read was never committed (G1a).
    AbortedRead,
    /// What was read was overwritten by the same transaction (G1b).
    IntermediateRead,
    /// Information flows in a circle (G1c).
    CircularFlow,
    /// A read that misses what had ended before it began.
    StaleRead,
    /// One read sees part of a transaction, or of a prefix (G-single).
    ReadSkew,
    /// Two readers see two writes in different orders.
    LongFork,
    /// Each misses what the other wrote (G2).
    WriteSkew,
    /// The same, or a skewed read, where one missed a row that a predicate should have found (G2 with predicates).
    Phantom,
    /// A write that is not based on the write before it.
    LostUpdate,
    /// Acknowledged or read, and not there.
    LostCommit,
    /// There twice, or run twice.
    AppliedTwice,
    /// A transaction does not see its own writes.
    OwnWriteMissed,
    /// Part of a transaction is there.
    TornCommit,
    /// The accounts of the bank do not hold what they should.
    WrongTotal,
    /// A copy differs from the log.
    Diverged,
    /// Unique or foreign key broken in what is visible.
    Integrity,
    /// Somebody waits for ever.
    Stuck,
    /// A transaction was ended to break a deadlock that was none.
    NoDeadlock,
    /// The core told its driver something out of order, or its own check failed.
    Order,
}

/// Something wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Its name.
    pub anomaly: Anomaly,
    /// Who did what.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.anomaly, self.text)
    }
}

/// Judges a history; empty means that nothing is wrong with it.
pub fn judge(history: &History) -> Vec<Finding> {
    let index = Index::new(history);
    let mut findings = writes::check(history, &index);
    findings.extend(reads::check(history, &index));
    if findings.is_empty() {
        findings.extend(registers::check(history, &index));
        findings.extend(bank::check(history));
        findings.extend(snapshots::check(history, &index));
        findings.extend(serializable::check(history, &index));
    }
    findings
}

/// Who wrote what, and where it ended up.
#[derive(Debug)]
struct Index {
    /// Transaction of each element that a client knows of.
    writers: BTreeMap<Element, usize>,
    /// Those that were rolled back to a savepoint.
    undone: BTreeSet<Element>,
    /// Those with which a row went away.
    gone: BTreeSet<Element>,
    /// Row and place of each element that is there at the end.
    places: BTreeMap<Element, (u32, usize)>,
    /// The rows at the end.
    finals: BTreeMap<u32, Vec<Element>>,
    /// Whether each transaction is in effect, as far as it wrote.
    is_in_effect: Vec<bool>,
}

impl Index {
    fn new(history: &History) -> Self {
        let finals: BTreeMap<u32, Vec<Element>> =
            history.finals.iter().map(|seen| (seen.row, seen.list.clone())).collect();
        let mut places = BTreeMap::new();
        for (row, list) in &finals {
            places.extend(list.iter().enumerate().map(|(place, element)| (*element, (*row, place))));
        }
        let mut index = Self {
            writers: BTreeMap::new(),
            undone: BTreeSet::new(),
            gone: BTreeSet::new(),
            places,
            finals,
            is_in_effect: Vec::new(),
        };
        for (number, transaction) in history.transactions.iter().enumerate() {
            for statement in &transaction.statements {
                for write in &statement.writes {
                    index.writers.insert(write.element, number);
                    if write.is_gone {
                        index.gone.insert(write.element);
                    }
                    if statement.undone_by.is_some() {
                        index.undone.insert(write.element);
                    }
                }
            }
            let mut writes = transaction.writes().peekable();
            let counts = match writes.peek() {
                Some(_) => writes.any(|write| index.places.contains_key(&write.element)),
                None => transaction.outcome == Outcome::Committed,
            };
            index.is_in_effect.push(counts);
        }
        index
    }

    fn list(&self, row: u32) -> &[Element] {
        self.finals.get(&row).map(Vec::as_slice).unwrap_or_default()
    }

    /// Splits off the elements at the end that this transaction wrote itself.
    fn without_own<'a>(&self, transaction: usize, list: &'a [Element]) -> &'a [Element] {
        let own = list.iter().rev().take_while(|e| self.writers.get(e) == Some(&transaction)).count();
        &list[..list.len() - own]
    }

    /// Of each row that a scan did not find: what was written to it after the last moment at which it was not there.
    ///
    /// A row that the transaction wrote itself is left out: it may have deleted it.
    fn missed_by<'a>(&'a self, number: usize, transaction: &Transaction, scan: &Scan) -> Vec<&'a [Element]> {
        let is_own = |row: &u32| transaction.statements.iter().flat_map(|s| &s.writes).any(|w| w.row == *row);
        let is_found = |row: &u32| scan.found.iter().any(|seen| seen.row == *row);
        let missing = scan.of.iter().filter(|row| !is_found(row) && !is_own(row));
        let later = missing.map(|row| {
            let list = self.list(*row);
            let last = list.iter().rposition(|element| self.gone.contains(element));
            &list[last.map_or(0, |last| last + 1)..]
        });
        let others = |element: &Element| self.writers.get(element) != Some(&number);
        later.filter(|list| list.first().is_some_and(others)).collect()
    }
}
