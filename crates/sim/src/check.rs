//! The judges: what a history must not contain, one concern a file.
//!
//! | file | asks |
//! |---|---|
//! | `lists` | is every acknowledged write there, once, on top of what it was based on; was only what was committed read |
//! | `one_copy` | is there one order of commits in which each statement (READ COMMITTED) or transaction (REPEATABLE READ) saw the state of one moment between being sent and being answered; and are the SERIALIZABLE ones in some order that keeps real time |
//! | `graph` | the search for a cycle, and its name |
//!
//! Both need no knowledge of the system: they judge histories of real servers, too. What only the simulator can see
//! (copies that differ, integrity at every moment, endless waits) it finds by itself.

mod graph;
mod lists;
mod one_copy;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{Element, History, Outcome};

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
    /// A copy differs from the log.
    Diverged,
    /// Unique or foreign key broken in what is visible.
    Integrity,
    /// Somebody waits for ever.
    Stuck,
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
    let mut findings = lists::check(history, &index);
    if findings.is_empty() {
        findings.extend(one_copy::check_snapshots(history, &index));
        findings.extend(one_copy::check_serializable(history, &index));
    }
    findings
}

/// Who wrote what, and where it ended up.
#[derive(Debug)]
struct Index {
    /// Transaction of each element that a client knows of.
    writers: BTreeMap<Element, usize>,
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
        let mut writers = BTreeMap::new();
        let mut is_in_effect = Vec::new();
        for (number, transaction) in history.transactions.iter().enumerate() {
            let mut elements =
                transaction.statements.iter().flat_map(|s| &s.writes).map(|write| write.element).peekable();
            let has_writes = elements.peek().is_some();
            let mut is_there = false;
            for element in elements {
                writers.insert(element, number);
                is_there |= places.contains_key(&element);
            }
            let counts = if has_writes { is_there } else { transaction.outcome == Outcome::Committed };
            is_in_effect.push(counts);
        }
        Self { writers, places, finals, is_in_effect }
    }

    fn list(&self, row: u32) -> &[Element] {
        self.finals.get(&row).map(Vec::as_slice).unwrap_or_default()
    }

    /// Splits off the elements at the end that this transaction wrote itself.
    fn without_own<'a>(&self, transaction: usize, list: &'a [Element]) -> &'a [Element] {
        let own = list.iter().rev().take_while(|e| self.writers.get(e) == Some(&transaction)).count();
        &list[..list.len() - own]
    }
}
