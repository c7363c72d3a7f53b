//! Step 4: how each service is best hosted (section 5).
//!
//! What is only read, or seldom written, is replicated. A service with many writes is partitioned by a key, if each of its
//! writes names one value of the key: in TPC-W the shopping cart, because every statement of the Financial service that
//! writes names a cart, or is part of a transaction that does ("mark each row of ORDERS with a key equal to the shopping
//! cart id"). What such a write counts down outside of its cart, the stock, is dealt out in shares: *escrow*. Reads that
//! name no value of the key are asked everywhere and merged: *gathered*.
//!
//! Non-goal: how many servers; that takes a measurement, not a schema.

use std::collections::BTreeSet;
use std::fmt;

use sql::anatomy::{Change, Equal, StatementKind};

use crate::application::{Application, Query};
use crate::column::Column;
use crate::reads::{Answer, Reads};

/// Writes among all requests up to which replicas are enough.
const FEW_WRITES: f64 = 0.1;

/// How a service is best hosted.
#[derive(Clone, PartialEq, Debug)]
pub enum Hosting {
    /// Nothing is ever written: any number of copies.
    Replicas,
    /// One server takes the few writes, and copies answer reads.
    FewWrites {
        /// Writes among all requests.
        share: f64,
    },
    /// Rows are dealt out to servers by the value of a key.
    Partitioned(Partitioned),
    /// Many writes, and no key that all of them name.
    OnePrimary {
        /// Writes among all requests.
        share: f64,
        /// The first statement that names no value of the best key.
        because: Option<String>,
    },
}

/// A service that is partitioned.
#[derive(Clone, PartialEq, Debug)]
pub struct Partitioned {
    /// The key.
    pub key: Column,
    /// Columns of other tables that hold values of the key.
    pub members: BTreeSet<Column>,
    /// Tables whose rows get the key of the transaction that inserts them.
    pub tagged: BTreeSet<String>,
    /// Columns of which each server holds a share.
    pub escrow: BTreeSet<Column>,
    /// Reads that every server is asked.
    pub gathered: BTreeSet<String>,
}

impl fmt::Display for Hosting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |set: Vec<String>| set.join(", ");
        match self {
            Self::Replicas => f.write_str("replicas; nothing is written"),
            Self::FewWrites { share } => {
                write!(f, "a primary and replicas; {:.1} % of requests write", share * 100.0)
            }
            Self::OnePrimary { share, because } => {
                write!(f, "one primary; {:.1} % of requests write", share * 100.0)?;
                match because {
                    Some(query) => write!(f, ", and {query} names no value of a key to partition by"),
                    None => f.write_str(", and no key is common to them"),
                }
            }
            Self::Partitioned(by) => {
                write!(f, "partitioned by {}", by.key)?;
                let members: Vec<String> = by.members.iter().map(Column::to_string).collect();
                let escrow: Vec<String> = by.escrow.iter().map(Column::to_string).collect();
                for (words, names) in [
                    ("with", members),
                    ("rows tagged in", by.tagged.iter().cloned().collect()),
                    ("escrow of", escrow),
                    ("gathered:", by.gathered.iter().cloned().collect()),
                ] {
                    if !names.is_empty() {
                        write!(f, "; {words} {}", list(names))?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// The requests of one service.
struct Requests<'a> {
    application: &'a Application,
    home: &'a BTreeSet<Column>,
    queries: Vec<(&'a String, &'a Query)>,
}

pub(crate) fn hosting(application: &Application, reads: &Reads, service: usize) -> Hosting {
    let is_asked = |name: &String| match reads.answers.get(name) {
        Some(Answer::Whole(at)) => *at == Some(service),
        Some(Answer::Rewritten(rewritten)) => rewritten.steps.iter().any(|step| step.service == service),
        None => false,
    };
    let queries: Vec<_> = application.queries.iter().filter(|(name, _)| is_asked(name)).collect();
    let rate = |writes_only: bool| -> f64 {
        queries.iter().filter(|(_, query)| query.writes() || !writes_only).map(|(_, query)| query.rate).sum()
    };
    if !queries.iter().any(|(_, query)| query.writes()) {
        return Hosting::Replicas;
    }
    let share = rate(true) / rate(false).max(f64::MIN_POSITIVE);
    if share <= FEW_WRITES {
        return Hosting::FewWrites { share };
    }
    let requests = Requests { application, home: &reads.layout.services[service], queries };
    let mut because: Option<Obstacle> = None;
    let mut best: Option<(f64, Partitioned)> = None;
    for key in requests.keys() {
        match requests.partitioned(&key) {
            Ok(by) => {
                let bound = requests.bound_rate(&by);
                if best.as_ref().is_none_or(|(most, _)| bound > *most) {
                    best = Some((bound, by));
                }
            }
            Err(obstacle) => {
                if because.as_ref().is_none_or(|other| obstacle.bound > other.bound) {
                    because = Some(obstacle);
                }
            }
        }
    }
    let because = because.map(|obstacle| obstacle.query);
    best.map_or(Hosting::OnePrimary { share, because }, |(_, by)| Hosting::Partitioned(by))
}

/// A statement that forbids a key, and how often others are sent that write and name its values.
struct Obstacle {
    query: String,
    bound: f64,
}

impl Requests<'_> {
    /// The keys of one column of the tables that are here.
    fn keys(&self) -> Vec<Column> {
        let tables: BTreeSet<&str> = self.home.iter().map(|column| column.table.as_str()).collect();
        let single = |table: &str| match self.application.primary_key(table).as_slice() {
            [key] if self.home.contains(key) => Some(key.clone()),
            _ => None,
        };
        tables.into_iter().filter_map(single).collect()
    }

    /// Whether a statement names one value of the key.
    fn is_bound(&self, query: &Query, class: &BTreeSet<Column>) -> bool {
        let anatomy = &query.anatomy;
        let named = anatomy.equalities.iter().any(|equality| {
            !matches!(equality.to, Equal::Column(_))
                && class.contains(&self.application.column(anatomy, equality.column))
        });
        // A new row of the key's own table begins a value of its own.
        let begins = anatomy.kind == StatementKind::Insert
            && self.application.grown(query).is_some_and(|table| {
                let own: BTreeSet<Column> = self.application.primary_key(&table.name).into_iter().collect();
                class.iter().any(|column| self.application.is_unique(column) && own.contains(column))
            });
        named || begins
    }

    /// The service partitioned by a key, or the statement that forbids it.
    fn partitioned(&self, key: &Column) -> Result<Partitioned, Obstacle> {
        let refers = |column: &&Column| self.application.reference(column).as_ref() == Some(key);
        let members: BTreeSet<Column> = self.home.iter().filter(refers).cloned().collect();
        let class: BTreeSet<Column> = members.iter().cloned().chain([key.clone()]).collect();
        let mut by = Partitioned {
            key: key.clone(),
            members,
            tagged: BTreeSet::new(),
            escrow: BTreeSet::new(),
            gathered: BTreeSet::new(),
        };
        for (name, query) in &self.queries {
            if self.is_bound(query, &class) {
                continue;
            }
            match query.anatomy.kind {
                StatementKind::Read => {
                    by.gathered.insert((*name).clone());
                }
                StatementKind::Insert if self.has_bound_companion(name, &class) => {
                    by.tagged.extend(self.application.grown(query).map(|table| table.name.clone()));
                }
                StatementKind::Update if self.counts(query) => {
                    by.escrow.extend(self.application.set(query));
                }
                _ => {
                    let bound = self
                        .queries
                        .iter()
                        .filter(|(_, query)| query.writes() && self.is_bound(query, &class));
                    let bound = bound.map(|(_, query)| query.rate).sum();
                    return Err(Obstacle { query: (*name).clone(), bound });
                }
            }
        }
        Ok(by)
    }

    /// Whether every unit that the statement is part of names a value of the key.
    fn has_bound_companion(&self, name: &str, class: &BTreeSet<Column>) -> bool {
        let mut units = self.application.units.values().filter(|unit| unit.queries.contains(name)).peekable();
        let alone = self.application.queries.get(name).is_none_or(|query| query.alone);
        let bound = |query: &String| {
            self.application
                .queries
                .get(query)
                .is_some_and(|query| query.writes() && self.is_bound(query, class))
        };
        units.peek().is_some() && !alone && units.all(|unit| unit.queries.iter().any(bound))
    }

    /// Whether a statement only adds to or takes from columns of a table without new rows.
    fn counts(&self, query: &Query) -> bool {
        let grows = |table: &str| {
            self.application
                .queries
                .values()
                .any(|other| self.application.grown(other).is_some_and(|grown| grown.name == table))
        };
        query.anatomy.written.iter().all(|written| written.how != Change::Value)
            && self.application.set(query).iter().all(|column| !grows(&column.table))
    }

    fn bound_rate(&self, by: &Partitioned) -> f64 {
        let bound = self.queries.iter().filter(|(name, _)| !by.gathered.contains(*name));
        bound.map(|(_, query)| query.rate).sum()
    }
}
