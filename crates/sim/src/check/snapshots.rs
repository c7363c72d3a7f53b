//! One copy: could one PostgreSQL have produced this history at its isolation levels?
//!
//! One server has one order of commits, and each snapshot is the state between two of them. The graph has a point for each
//! commit and each snapshot: of a statement at READ COMMITTED, of a transaction above. Its edges are what each snapshot
//! saw and missed, and real time. A cycle proves that no such order exists. The lists show that a write starts from the
//! write before it. A row lock is an edge from the holder's commit to later writers of the row, if the holder wrote
//! something itself (docs/explanation/simulation.md, "What is known to be open").
//!
//! So this judge covers READ COMMITTED, REPEATABLE READ (snapshot isolation) and stale reads at once.
//!
//! Where snapshots may be old (generalised snapshot isolation: Elnikety, Pedone, Zwaenepoel, SRDS 2005), each is still the state
//! between two commits, and commits keep their order in real time. A transaction above READ COMMITTED then overwrites only
//! what its snapshot has, except that it may insert a row again that was deleted since. Unless sessions keep their order,
//! a session need not see its own earlier commits.

use super::Index;
use super::graph::{Age, Edge, Graph, Kind};
use super::promise::{SessionOrder, Sessions};
use crate::history::{Element, History, Outcome, Seen, Statement, Transaction};

/// The graph of commits and snapshots.
pub(super) fn graph(history: &History, index: &Index, age: Age, sessions: Sessions) -> Graph {
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
    let mut order = SessionOrder::new(sessions);
    for (number, transaction) in history.transactions.iter().enumerate() {
        let mut looks = Looks { number, commits: &commits, index, graph: &mut graph, order: &mut order };
        let snapshot = looks.add(transaction);
        if let Some(snapshot) = snapshot.filter(|_| age == Age::Any && transaction.keeps_snapshot()) {
            looks.overwrite(snapshot, transaction);
        }
        if let Some(commit) = commits[number].filter(|_| transaction.outcome == Outcome::Committed) {
            order.follow(transaction.session, commit, &mut graph);
        }
    }
    graph
}

fn commit_point(number: usize, transaction: &Transaction, index: &Index, graph: &mut Graph) -> Option<usize> {
    if transaction.writes().next().is_none() || !index.is_in_effect[number] {
        return None;
    }
    let end_us = (transaction.outcome == Outcome::Committed).then_some(transaction.end_us);
    Some(graph.point(Kind::Commit, format!("T{number}"), transaction.finish_us, end_us))
}

/// Whether the reply shows that the statement took a snapshot. A failed one may not have taken any.
fn has_shown(statement: &Statement) -> bool {
    let Statement { reads, latest, locked, scans, total, writes, .. } = statement;
    let rows = reads.len() + latest.len() + locked.len() + scans.len() + writes.len();
    rows > 0 || total.is_some()
}

/// Adds the edges of one transaction's reads.
struct Looks<'a> {
    number: usize,
    commits: &'a [Option<usize>],
    index: &'a Index,
    graph: &'a mut Graph,
    order: &'a mut SessionOrder,
}

impl Looks<'_> {
    /// Returns the last snapshot.
    fn add(&mut self, transaction: &Transaction) -> Option<usize> {
        let number = self.number;
        let answered = || transaction.statements.iter().enumerate().filter(|(_, s)| s.end_us != 0);
        let mut snapshot = None;
        for (place, statement) in answered() {
            let Statement { begin_us, end_us, .. } = *statement;
            if !statement.reads.is_empty() || !statement.scans.is_empty() {
                let keeps = transaction.keeps_snapshot();
                let point = match snapshot.filter(|_| keeps) {
                    Some(point) => point,
                    None if keeps => {
                        // The first statement takes it, or a later one if the first failed before.
                        let mut data = transaction.statements.iter().filter(|first| !first.is_control);
                        let first = data.next().unwrap_or(statement);
                        let taken = std::iter::once(first).chain(data).find(|s| has_shown(s));
                        let taken = taken.filter(|s| s.end_us != 0).unwrap_or(statement);
                        let name = format!("S{number}");
                        self.graph.point(Kind::Snapshot, name, first.begin_us, Some(taken.end_us))
                    }
                    None => {
                        let name = format!("T{number}.{place}");
                        self.graph.point(Kind::Statement, name, begin_us, Some(end_us))
                    }
                };
                if snapshot != Some(point) {
                    self.order.follow(transaction.session, point, self.graph);
                }
                snapshot = Some(point);
                statement.reads.iter().for_each(|seen| self.look(point, seen));
                for scan in &statement.scans {
                    scan.found.iter().for_each(|seen| self.look(point, seen));
                    for missed in self.index.missed_by(number, transaction, scan) {
                        self.before(point, missed, Edge::Missed);
                    }
                }
            }
            // A locked row keeps its value until the transaction ends or rolls back to before the lock.
            if let Some(commit) = self.commits[number].filter(|_| statement.undone_by.is_none()) {
                statement.locked.iter().for_each(|seen| self.look(commit, seen));
            }
            for seen in &statement.latest {
                let name = format!("T{number}.{place}!");
                let point = self.graph.point(Kind::Check, name, begin_us, Some(end_us));
                self.look(point, seen);
            }
        }
        snapshot
    }

    /// What the transaction overwrote was in its snapshot. An INSERT has no row to start from.
    fn overwrite(&mut self, snapshot: usize, transaction: &Transaction) {
        for write in transaction.writes() {
            let Some((row, place)) = self.index.places.get(&write.element).copied() else { continue };
            let base = self.index.without_own(self.number, &self.index.list(row)[..place]);
            let last = base.last().filter(|element| !self.index.gone.contains(element));
            let writer = last.and_then(|element| self.commits[*self.index.writers.get(element)?]);
            if let Some(writer) = writer {
                self.graph.edge(writer, snapshot, Edge::Ww);
            }
        }
    }

    fn look(&mut self, point: usize, seen: &Seen) {
        let list = self.index.without_own(self.number, &seen.list);
        if list.len() < seen.list.len() {
            // The transaction's own write hides the snapshot's row.
            return;
        }
        let writer = list.last().and_then(|element| self.commits[*self.index.writers.get(element)?]);
        if let Some(writer) = writer {
            self.graph.edge(writer, point, Edge::Wr);
        }
        self.before(point, &self.index.list(seen.row)[list.len()..], Edge::Rw);
    }

    /// The point comes before the transaction that wrote the first of these, and before its own commit.
    fn before(&mut self, point: usize, missed: &[Element], why: Edge) {
        let next = missed.iter().find(|e| self.index.writers.get(e) != Some(&self.number));
        if let Some(next) = next.and_then(|element| self.commits[*self.index.writers.get(element)?]) {
            self.graph.edge(point, next, why);
        }
        if let Some(own) = self.commits[self.number] {
            self.graph.edge(point, own, Edge::Within);
        }
    }
}
