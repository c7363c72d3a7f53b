//! What schedulers that ship statements promise, looked at when a run has ended.

use std::collections::{BTreeMap, BTreeSet};

use cluster::protocols::shipping::{SequenceNumber, StatementId};

use super::programs::{Rows, Seen, TABLES};

/// A transaction as its client knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Told {
    pub(crate) asked_us: u64,
    /// When its commit was acknowledged, if it was.
    pub(crate) committed_us: Option<u64>,
    /// The client has ended it without a commit, and was told so.
    pub(crate) is_undone: bool,
    pub(crate) writes: Vec<StatementId>,
    /// Each read: when it was asked and answered, and what it saw.
    pub(crate) reads: Vec<(u64, u64, Seen)>,
}

/// Compares what clients were told with the tables of all replicas.
pub(crate) fn judge(told: &[Told], replicas: &[&[Rows; TABLES]]) -> Vec<String> {
    let Some((first, others)) = replicas.split_first() else { return vec!["no replica is left".to_owned()] };
    let mut findings = Vec::new();
    for (number, other) in (2..).zip(others) {
        for (table, (ours, theirs)) in first.iter().zip(other.iter()).enumerate() {
            if ours != theirs {
                findings.push(format!(
                    "diverged: table {table} differs at replica {number}: {ours:?}, {theirs:?}"
                ));
            }
        }
    }
    let judge = Judge::new(told, first);
    judge.order(&mut findings);
    judge.writes(&mut findings);
    judge.reads(&mut findings);
    findings
}

struct Judge<'a> {
    told: &'a [Told],
    tables: &'a [Rows; TABLES],
    /// Where each write is: table, place and number.
    places: BTreeMap<StatementId, (usize, usize, SequenceNumber)>,
}

impl<'a> Judge<'a> {
    fn new(told: &'a [Told], tables: &'a [Rows; TABLES]) -> Self {
        let mut places = BTreeMap::new();
        for (table, rows) in tables.iter().enumerate() {
            for (place, (number, statement)) in rows.iter().enumerate() {
                places.insert(*statement, (table, place, *number));
            }
        }
        Self { told, tables, places }
    }

    /// "A total order identical at all replicas" (section 3.4), each write once.
    fn order(&self, findings: &mut Vec<String>) {
        for (table, rows) in self.tables.iter().enumerate() {
            if !rows.is_sorted_by_key(|(number, _)| *number) {
                findings.push(format!("order: table {table} was not written in the order of the numbers"));
            }
            let different: BTreeSet<_> = rows.iter().map(|(_, statement)| *statement).collect();
            if different.len() < rows.len() {
                findings.push(format!("twice: a write is in table {table} twice"));
            }
        }
    }

    fn writes(&self, findings: &mut Vec<String>) {
        for Told { committed_us, is_undone, writes, .. } in self.told {
            let there = writes.iter().filter(|write| self.places.contains_key(write)).count();
            if committed_us.is_some() && there < writes.len() {
                findings.push(format!("lost: of the acknowledged writes {writes:?}, {there} are there"));
            } else if *is_undone && there > 0 {
                findings.push(format!("undone: {there} of the writes {writes:?} are there"));
            } else if there > 0 && there < writes.len() {
                findings.push(format!("in part: of the writes {writes:?}, {there} are there"));
            }
        }
    }

    /// Each read sees one moment of the order, and all that was acknowledged or shown before it was asked.
    fn reads(&self, findings: &mut Vec<String>) {
        // For each answer, the least that later reads of a table see.
        let mut floors: Vec<(u64, usize, usize)> = Vec::new();
        for told in self.told {
            let places = told.writes.iter().filter_map(|write| self.places.get(write));
            let at = |at_us: u64| {
                move |(table, place, _): &(usize, usize, SequenceNumber)| (at_us, *table, place + 1)
            };
            floors.extend(told.committed_us.into_iter().flat_map(|at_us| places.clone().map(at(at_us))));
        }
        for told in self.told {
            for (asked_us, _, seen) in &told.reads {
                let lengths = match self.lengths(seen, &told.writes) {
                    Ok(lengths) => lengths,
                    Err(finding) => {
                        findings.push(finding);
                        continue;
                    }
                };
                for (table, length) in &lengths {
                    let least = floors.iter().filter(|(at_us, of, _)| at_us < asked_us && of == table);
                    let least = least.map(|(_, _, least)| *least).max().unwrap_or(0);
                    if *length < least {
                        findings
                            .push(format!("stale: a read of table {table} sees {length} of {least} writes"));
                    }
                }
                self.one_moment(&lengths, findings);
            }
        }
    }

    /// How many writes of others are seen of each table: the first ones, in their order.
    fn lengths(&self, seen: &Seen, own: &[StatementId]) -> Result<Vec<(usize, usize)>, String> {
        let of = |(table, statements): &(usize, Vec<StatementId>)| {
            let others: Vec<_> = statements.iter().filter(|statement| !own.contains(statement)).collect();
            let rows = &self.tables[*table];
            let agrees = others.len() <= rows.len()
                && others.iter().zip(rows).all(|(statement, (_, row))| *statement == row);
            let finding = || format!("phantom: a read of table {table} saw {statements:?} of {rows:?}");
            agrees.then_some((*table, others.len())).ok_or_else(finding)
        };
        seen.iter().map(of).collect()
    }

    fn one_moment(&self, lengths: &[(usize, usize)], findings: &mut Vec<String>) {
        let last = lengths
            .iter()
            .filter_map(|(table, length)| length.checked_sub(1).map(|last| self.tables[*table][last].0));
        let next = lengths
            .iter()
            .filter_map(|(table, length)| self.tables[*table].get(*length).map(|(number, _)| *number));
        if let (Some(last), Some(next)) = (last.max(), next.min())
            && last >= next
        {
            findings.push(format!("no moment: a read sees number {} but not {}", last.0, next.0));
        }
    }
}
