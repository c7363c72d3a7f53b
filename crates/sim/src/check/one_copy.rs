//! One copy: could one PostgreSQL have produced this, at the levels that were asked for?
//!
//! One server has one order of commits, and every snapshot is the state between two of them. So: a point for each
//! commit, a point for each snapshot (of a statement at READ COMMITTED, of a transaction above it), edges for what each
//! saw and missed, real time between all of them; a cycle says that no such order exists. That a write starts from the
//! one before it is checked with the lists; that nobody commits a write to a row that another has locked is an edge from
//! the commit of the other, if it wrote something itself (docs/simulation.md, "What is known to be open").
//!
//! SERIALIZABLE transactions are one point each in a second graph, among themselves: PostgreSQL promises nothing about
//! them in the company of others. We promise real time, too.

use super::graph::{Edge, Graph};
use super::{Finding, Index};
use crate::history::{History, Level, Outcome, Seen, Statement, Transaction};

/// The graph of commits and snapshots.
pub(super) fn check_snapshots(history: &History, index: &Index) -> Option<Finding> {
    let mut graph = Graph::default();
    let commits: Vec<Option<usize>> = history
        .transactions
        .iter()
        .enumerate()
        .map(|(number, transaction)| commit_point(number, transaction, index, &mut graph))
        .collect();
    for list in index.finals.values() {
        let writers = list.iter().filter_map(|element| commits[*index.writers.get(element)?]);
        let writers: Vec<usize> = writers.collect();
        writers.windows(2).for_each(|pair| graph.edge(pair[0], pair[1], Edge::Ww));
    }
    for (number, transaction) in history.transactions.iter().enumerate() {
        let mut looks = Looks { number, commits: &commits, index, graph: &mut graph };
        looks.add(transaction);
    }
    graph.judge()
}

fn commit_point(number: usize, transaction: &Transaction, index: &Index, graph: &mut Graph) -> Option<usize> {
    let has_writes = transaction.statements.iter().any(|s| !s.writes.is_empty());
    if !has_writes || !index.is_in_effect[number] {
        return None;
    }
    let end_us = (transaction.outcome == Outcome::Committed).then_some(transaction.end_us);
    Some(graph.point(format!("T{number}"), transaction.finish_us, end_us))
}

/// Adds what one transaction saw.
struct Looks<'a> {
    number: usize,
    commits: &'a [Option<usize>],
    index: &'a Index,
    graph: &'a mut Graph,
}

impl Looks<'_> {
    fn add(&mut self, transaction: &Transaction) {
        let number = self.number;
        let answered = || transaction.statements.iter().enumerate().filter(|(_, s)| s.end_us != 0);
        let mut snapshot = None;
        for (place, statement) in answered() {
            let Statement { begin_us, end_us, .. } = *statement;
            if !statement.reads.is_empty() {
                let keeps = transaction.level != Level::ReadCommitted;
                let point = match snapshot.filter(|_| keeps) {
                    Some(point) => point,
                    None if keeps => {
                        // The snapshot is taken by the first statement, also if that one showed nothing of it.
                        let first = transaction.statements.first().filter(|first| first.end_us != 0);
                        let first = first.unwrap_or(statement);
                        self.graph.point(format!("S{number}"), first.begin_us, Some(first.end_us))
                    }
                    None => self.graph.point(format!("T{number}.{place}"), begin_us, Some(end_us)),
                };
                snapshot = Some(point);
                statement.reads.iter().for_each(|seen| self.look(point, seen));
            }
            // A locked row stays as it is until the transaction is over.
            if let Some(commit) = self.commits[number] {
                statement.locked.iter().for_each(|seen| self.look(commit, seen));
            }
            for seen in &statement.latest {
                let point = self.graph.point(format!("T{number}.{place}!"), begin_us, Some(end_us));
                self.look(point, seen);
            }
        }
    }

    fn look(&mut self, point: usize, seen: &Seen) {
        let list = self.index.without_own(self.number, &seen.list);
        if list.len() < seen.list.len() {
            // Its own write hides the snapshot.
            return;
        }
        let end = self.index.list(seen.row);
        let commit = |element: Option<&u64>| self.commits[*self.index.writers.get(element?)?];
        if let Some(writer) = commit(list.last()) {
            self.graph.edge(writer, point, Edge::Wr);
        }
        let next = end[list.len()..].iter().find(|e| self.index.writers.get(e) != Some(&self.number));
        if let Some(next) = commit(next) {
            self.graph.edge(point, next, Edge::Rw);
        }
        if let Some(own) = self.commits[self.number] {
            self.graph.edge(point, own, Edge::Within);
        }
    }
}

/// The graph of SERIALIZABLE transactions.
pub(super) fn check_serializable(history: &History, index: &Index) -> Option<Finding> {
    let mut graph = Graph::default();
    let is_one = |(number, t): &(usize, &Transaction)| {
        t.level == Level::Serializable
            && index.is_in_effect[*number]
            && (t.outcome == Outcome::Committed || t.statements.iter().any(|s| !s.writes.is_empty()))
    };
    let mut points = vec![None; history.transactions.len()];
    for (number, transaction) in history.transactions.iter().enumerate().filter(is_one) {
        let begin_us = transaction.statements.first().map_or(0, |statement| statement.begin_us);
        let end_us = (transaction.outcome == Outcome::Committed).then_some(transaction.end_us);
        points[number] = Some(graph.point(format!("T{number}"), begin_us, end_us));
    }
    let point_of = |element: &u64| points[*index.writers.get(element)?];
    for list in index.finals.values() {
        let writers: Vec<usize> = list.iter().filter_map(point_of).collect();
        writers.windows(2).for_each(|pair| graph.edge(pair[0], pair[1], Edge::Ww));
    }
    for (number, transaction) in history.transactions.iter().enumerate() {
        let Some(point) = points[number] else { continue };
        for seen in transaction.statements.iter().filter(|s| s.end_us != 0).flat_map(|s| &s.reads) {
            let list = index.without_own(number, &seen.list);
            if let Some(writer) = list.iter().rev().find_map(point_of) {
                graph.edge(writer, point, Edge::Wr);
            }
            let mut later = index.list(seen.row)[list.len()..].iter().filter_map(point_of);
            if let Some(next) = later.find(|next| *next != point) {
                graph.edge(point, next, Edge::Rw);
            }
        }
    }
    graph.judge()
}
