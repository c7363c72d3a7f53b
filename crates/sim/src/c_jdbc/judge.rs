//! The judges of C-JDBC: one function for each column of the table of guarantees (docs/explanation/protocols/c-jdbc.md).
//!
//! *Copies* is judged in two parts: the world compares the replicas, and [`crate::check::integrity`] looks for lost, doubled and
//! aborted writes.

use std::collections::{BTreeMap, BTreeSet};

use cluster::protocols::c_jdbc::Level;
use cluster::protocols::c_jdbc::early_response::Respond;

use crate::check::{self, Anomaly, Finding};
use crate::history::{self, Element, History, Outcome, Statement, Transaction};

/// The columns of one row of the table, beside *copies* and *whole*, which are promised everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guarantees {
    /// A read sees every transaction whose commit was answered before the read was sent.
    pub is_fresh: bool,
    /// Transactions that only write are strictly serializable among themselves.
    pub orders_writers: bool,
    /// All transactions are strictly serializable.
    pub is_serializable: bool,
}

/// The row of the table.
pub fn guarantees(level: Level, respond: Respond) -> Guarantees {
    Guarantees {
        is_fresh: level == Level::Pessimistic || respond == Respond::All,
        orders_writers: level != Level::PassThrough,
        is_serializable: level == Level::Pessimistic,
    }
}

/// Judges a history by the row of the table.
pub fn judge(history: &History, level: Level, respond: Respond) -> Vec<Finding> {
    let promised = guarantees(level, respond);
    let mut findings = check::integrity(history);
    findings.extend(whole(history));
    if promised.is_fresh {
        findings.extend(fresh(history));
    }
    if !findings.is_empty() {
        return findings;
    }
    if promised.orders_writers {
        findings.extend(check::strict_serializability(&only_writers(history)));
    }
    if promised.is_serializable {
        findings.extend(check::strict_serializability(history));
    }
    findings
}

fn answered(transaction: &Transaction) -> impl Iterator<Item = &Statement> {
    transaction.statements.iter().filter(|statement| statement.end_us != 0)
}

/// A statement sees each transaction completely or not at all.
fn whole(history: &History) -> Option<Finding> {
    let mut writers: BTreeMap<Element, usize> = BTreeMap::new();
    for (number, transaction) in history.transactions.iter().enumerate() {
        writers.extend(transaction.writes().map(|write| (write.element, number)));
    }
    for (number, transaction) in history.transactions.iter().enumerate() {
        for statement in answered(transaction) {
            let seen: BTreeSet<Element> =
                statement.reads.iter().flat_map(|seen| seen.list.iter().copied()).collect();
            let rows: BTreeSet<u32> = statement.reads.iter().map(|seen| seen.row).collect();
            let others: BTreeSet<usize> =
                seen.iter().filter_map(|element| writers.get(element).copied()).collect();
            for other in others.into_iter().filter(|other| *other != number) {
                let mut there =
                    history.transactions[other].writes().filter(|write| rows.contains(&write.row));
                if let Some(missed) = there.find(|write| !seen.contains(&write.element)) {
                    let text = format!("T{number} saw a part of T{other}, but not {}", missed.element);
                    return Some(Finding { anomaly: Anomaly::ReadSkew, text });
                }
            }
        }
    }
    None
}

/// A read sees every transaction whose commit was answered before the read was sent.
fn fresh(history: &History) -> Option<Finding> {
    let mut written: BTreeMap<u32, Vec<(u64, Element, usize)>> = BTreeMap::new();
    for (number, transaction) in history.transactions.iter().enumerate() {
        if transaction.outcome == Outcome::Committed {
            for write in transaction.writes() {
                written.entry(write.row).or_default().push((transaction.end_us, write.element, number));
            }
        }
    }
    for (number, transaction) in history.transactions.iter().enumerate() {
        for statement in answered(transaction) {
            for seen in &statement.reads {
                let before = written.get(&seen.row).into_iter().flatten();
                let mut before = before.filter(|(end_us, ..)| *end_us < statement.begin_us);
                if let Some((_, element, writer)) =
                    before.find(|(_, element, _)| !seen.list.contains(element))
                {
                    let text = format!(
                        "T{number} read {:?} of row {} without {element} of T{writer}",
                        seen.list, seen.row
                    );
                    return Some(Finding { anomaly: Anomaly::StaleRead, text });
                }
            }
        }
    }
    None
}

/// The history as if there were only the transactions that only write.
fn only_writers(history: &History) -> History {
    let is_writer = |transaction: &&Transaction| {
        transaction.statements.iter().all(|statement| !statement.writes.is_empty())
    };
    let mut kept: Vec<Transaction> = history.transactions.iter().filter(is_writer).cloned().collect();
    let elements: BTreeSet<Element> =
        kept.iter().flat_map(Transaction::writes).map(|write| write.element).collect();
    let keep = |list: &mut Vec<Element>| list.retain(|element| elements.contains(element));
    for transaction in &mut kept {
        transaction.level = history::Level::Serializable;
        for statement in &mut transaction.statements {
            for seen in &mut statement.reads {
                keep(&mut seen.list);
            }
            statement.writes.iter_mut().filter_map(|write| write.base.as_mut()).for_each(keep);
        }
    }
    let mut finals = history.finals.clone();
    for seen in &mut finals {
        keep(&mut seen.list);
    }
    History { transactions: kept, finals, total: history.total }
}
