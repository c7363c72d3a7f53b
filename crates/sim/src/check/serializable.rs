//! The SERIALIZABLE transactions must have an order that keeps real time.
//!
//! Each is one point of a graph without transactions of other levels, since PostgreSQL guarantees nothing about those
//! together. Real time is our own guarantee. Statements that failed or were rolled back to a savepoint count as reads.
//!
//! Where snapshots may be old, a transaction that writes nothing may take any place before its end.

use super::graph::{Age, Edge, Graph, Kind};
use super::promise::{SessionOrder, Sessions};
use super::{Finding, Index};
use crate::history::{History, Level, Outcome, Transaction};

/// The graph of SERIALIZABLE transactions.
pub(super) fn check(history: &History, index: &Index, age: Age, sessions: Sessions) -> Option<Finding> {
    let mut graph = Graph::default();
    let mut order = SessionOrder::new(sessions);
    let mut points = vec![None; history.transactions.len()];
    for (number, transaction) in history.transactions.iter().enumerate() {
        if !counts(number, transaction, index) {
            continue;
        }
        let begin_us = transaction.statements.first().map_or(0, |statement| statement.begin_us);
        let end_us = (transaction.outcome == Outcome::Committed).then_some(transaction.end_us);
        let kind = if transaction.writes().next().is_some() { Kind::Commit } else { Kind::Snapshot };
        let point = graph.point(kind, format!("T{number}"), begin_us, end_us);
        points[number] = Some(point);
        if transaction.outcome == Outcome::Committed {
            order.follow(transaction.session, point, &mut graph);
        }
    }
    let point_of = |element: &u64| points[*index.writers.get(element)?];
    for list in index.finals.values() {
        let writers: Vec<usize> = list.iter().filter_map(point_of).collect();
        writers.windows(2).for_each(|pair| graph.edge(pair[0], pair[1], Edge::Ww));
    }
    for (number, transaction) in history.transactions.iter().enumerate() {
        let Some(point) = points[number] else { continue };
        for statement in transaction.statements.iter().filter(|s| s.end_us != 0) {
            for seen in statement.reads.iter().chain(statement.scans.iter().flat_map(|scan| &scan.found)) {
                let list = index.without_own(number, &seen.list);
                if let Some(writer) = list.iter().rev().find_map(point_of) {
                    graph.edge(writer, point, Edge::Wr);
                }
                let mut later = index.list(seen.row)[list.len()..].iter().filter_map(point_of);
                if let Some(next) = later.find(|next| *next != point) {
                    graph.edge(point, next, Edge::Rw);
                }
            }
            // Rows under rolled-back writes, and the reasons of errors.
            let undone = statement.writes.iter().filter(|_| statement.undone_by.is_some());
            let bases = undone.filter_map(|write| write.base.as_deref());
            for list in bases.chain(statement.latest.iter().map(|seen| seen.list.as_slice())) {
                if let Some(writer) = index.without_own(number, list).iter().rev().find_map(point_of) {
                    graph.edge(writer, point, Edge::Wr);
                }
            }
            for row in statement.scans.iter().flat_map(|scan| index.missed_by(number, transaction, scan)) {
                let mut later = row.iter().filter_map(point_of);
                if let Some(next) = later.find(|next| *next != point) {
                    graph.edge(point, next, Edge::Missed);
                }
            }
        }
    }
    graph.judge(age)
}

/// Whether it is SERIALIZABLE and took effect.
pub(super) fn counts(number: usize, transaction: &Transaction, index: &Index) -> bool {
    transaction.level == Level::Serializable
        && index.is_in_effect[number]
        && (transaction.outcome == Outcome::Committed || transaction.writes().next().is_some())
}
