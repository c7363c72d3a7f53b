//! The judges of histories, one property a file.
//!
//! | file | property |
//! |---|---|
//! | `writes` | every acknowledged write is there once, whole, after the write that it was based on |
//! | `reads` | a transaction reads committed data and its own writes only |
//! | `registers` | a value computed from a read replaces exactly the value that was read |
//! | `bank` | the total of all accounts is always the same |
//! | `promise` | what the judges hold a history to |
//! | `snapshots` | in one order of commits each statement (READ COMMITTED) or transaction (REPEATABLE READ) saw the state of one moment between being sent and being answered |
//! | `parallel` | Parallel Snapshot Isolation: each snapshot has, with a commit, all that this commit saw |
//! | `serializable` | the SERIALIZABLE transactions have an order that keeps real time |
//! | `allowed` | how often a clean history shows what its promise allows |
//! | `graph` | the search for a cycle, and its name |
//!
//! The judges know nothing of the system, so they judge histories of real servers, too. The simulator itself checks
//! what only it can see: replicas that differ, violated constraints, transactions that wait for ever.

mod allowed;
mod bank;
mod graph;
mod parallel;
mod promise;
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

pub use allowed::Allowed;
pub use promise::{Promise, Sessions, UnknownPromise};

/// The kind of a violation, with its name in the literature if it has one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Anomaly {
    /// A cycle of overwriting (Adya's G0).
    DirtyWrite,
    /// A read of a write that was never committed (G1a).
    AbortedRead,
    /// A read of a write that its own transaction overwrote (G1b).
    IntermediateRead,
    /// A cycle of reads and overwrites (G1c).
    CircularFlow,
    /// A read that misses a transaction that had ended before it began.
    StaleRead,
    /// A snapshot with part of a transaction, or of a prefix (G-single).
    ReadSkew,
    /// Two readers see two writes in different orders.
    LongFork,
    /// Two transactions that each miss the other's write (G2).
    WriteSkew,
    /// Write or read skew where a predicate missed a row (G2 with predicates).
    Phantom,
    /// A write that is not based on the write before it.
    LostUpdate,
    /// A write that was acknowledged or read is missing.
    LostCommit,
    /// A write is there twice.
    AppliedTwice,
    /// A transaction does not see its own writes.
    OwnWriteMissed,
    /// Part of a transaction is missing.
    TornCommit,
    /// The total of the accounts is wrong.
    WrongTotal,
    /// A replica differs from the log.
    Diverged,
    /// A unique or foreign key is violated in visible rows.
    Integrity,
    /// A transaction or a replica waits for ever.
    Stuck,
    /// A transaction was aborted for a deadlock that did not exist.
    NoDeadlock,
    /// An effect of the core came out of order, or an assertion of the core failed.
    Order,
}

/// A violation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Its kind.
    pub anomaly: Anomaly,
    /// The transactions and rows involved.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.anomaly, self.text)
    }
}

/// What the judges say of a history.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Judgement {
    /// What is wrong; empty if nothing is.
    pub findings: Vec<Finding>,
    /// What the promise allows and one PostgreSQL might not show; counted only if nothing is wrong.
    pub allowed: Allowed,
}

/// Judges only that acknowledged writes are there once and whole, and that reads are of committed data or a transaction's own.
pub fn integrity(history: &History) -> Vec<Finding> {
    let index = Index::new(history);
    let mut findings = writes::check(history, &index);
    findings.extend(reads::check(history, &index));
    findings
}

/// Judges that the SERIALIZABLE transactions are strictly serializable, by locks or otherwise: the statements of one need not have
/// the snapshot of its beginning, as they have in PostgreSQL.
pub fn strict_serializability(history: &History) -> Option<Finding> {
    serializable::check(history, &Index::new(history), graph::Age::Present, Sessions::Apart)
}

/// Judges whether a history keeps a promise.
pub fn judge(history: &History, promise: Promise) -> Judgement {
    let index = Index::new(history);
    let mut findings = writes::check(history, &index);
    findings.extend(reads::check(history, &index));
    if !findings.is_empty() {
        return Judgement { findings, allowed: Allowed::default() };
    }
    findings.extend(registers::check(history, &index));
    findings.extend(bank::check(history));
    let (age, sessions) = (promise.age(), promise.sessions());
    let graph = snapshots::graph(history, &index, age, sessions);
    let allowed = Allowed::count(&graph, promise);
    if let Promise::Parallel(_) = promise {
        findings.extend(parallel::check(graph));
    } else {
        findings.extend(graph.judge(age));
        findings.extend(serializable::check(history, &index, age, sessions));
    }
    let allowed = if findings.is_empty() { allowed } else { Allowed::default() };
    Judgement { findings, allowed }
}

/// The writes of all transactions, and their final positions.
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
