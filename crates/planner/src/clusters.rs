//! Step 1: what must stay together, and why (section 4.1 of the paper).
//!
//! Columns are nodes, reasons are hubs: the hub "transaction Purchase" joins every column that Purchase touches and that
//! something updates. A class of columns that hubs connect is a service, if one of its columns is updated. So "the largest
//! number of services such that none spans two" needs no search: it is the connected components, and the chain of hubs
//! between two columns is the blame.
//!
//! The rules, each with its sentence in the paper:
//! - "all the data they access must be placed into the same service ... data columns that are never updated" are
//!   excepted: hubs of transactions;
//! - "only the columns that are updated must be local to the same data service": hubs of atomic sets, of which a single
//!   UPDATE, INSERT or DELETE is one;
//! - a table with INSERTs "cannot be easily split" (4.3.3): a hub of all its columns.
//!
//! The key of a table that is only updated is repeated in every part, so it joins nothing. A table without a key, or with
//! one that changes, stays whole, and so do the columns of a unique key, which one server has to check.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use sql::Table;

use crate::application::{Application, Query, UnitKind};
use crate::column::Column;

/// Why columns stay together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// The table gets or loses rows.
    Grows {
        /// The table.
        table: String,
        /// A statement by which it does.
        query: String,
    },
    /// The table cannot be split by column.
    Unsplittable {
        /// The table.
        table: String,
        /// Why.
        because: &'static str,
    },
    /// No two rows may have the same values in all of them.
    Unique(String, Vec<String>),
    /// A transaction touches them.
    Transaction(String),
    /// An atomic set writes them.
    AtomicSet(String),
    /// A single statement writes them.
    Single(String),
    /// No column of the table is updated, so splitting it would gain nothing.
    Whole(String),
    /// They decide the answer of a read, and nothing updates them.
    Decides(String),
    /// The same reads show them, and nothing updates them.
    SameReads(Vec<String>),
    /// The read-only table is only used together with another service.
    Attached(String),
    /// A read over them can neither be rewritten nor helped by copies.
    Merged(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grows { table, query } => write!(f, "{query} inserts or deletes rows of {table}"),
            Self::Unsplittable { table, because } => write!(f, "{table} {because}"),
            Self::Unique(table, columns) => write!(f, "{table}({}) is unique", columns.join(", ")),
            Self::Transaction(name) => write!(f, "transaction {name} touches both"),
            Self::AtomicSet(name) => write!(f, "atomic set {name} writes both"),
            Self::Single(name) => write!(f, "statement {name} writes both"),
            Self::Whole(table) => write!(f, "nothing updates {table}, so it stays whole"),
            Self::Decides(query) => write!(f, "both decide the answer of {query}, and nothing updates them"),
            Self::SameReads(queries) if queries.is_empty() => f.write_str("no read shows either"),
            Self::SameReads(queries) => write!(f, "only {} show them", queries.join(", ")),
            Self::Attached(table) => write!(f, "{table} is only used together with it"),
            Self::Merged(query) => {
                write!(
                    f,
                    "{query} can neither be rewritten nor be helped by copies of seldom updated columns"
                )
            }
        }
    }
}

/// Columns and the reasons that join them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Graph {
    /// Each reason with the columns that it joins, at least two.
    pub(crate) hubs: BTreeMap<Reason, BTreeSet<Column>>,
}

/// A step of a chain: this column and the next one are joined by the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joint {
    /// The column that is left.
    pub from: Column,
    /// Why it stays with the next.
    pub reason: Reason,
    /// The column that is reached.
    pub to: Column,
}

impl Graph {
    pub(crate) fn join(&mut self, reason: Reason, columns: BTreeSet<Column>) {
        if columns.len() > 1 {
            self.hubs.entry(reason).or_default().extend(columns);
        }
    }

    /// The classes of these columns, each in order of its least column.
    pub(crate) fn classes(&self, columns: &BTreeSet<Column>) -> Vec<BTreeSet<Column>> {
        let mut left = columns.clone();
        let mut classes = Vec::new();
        while let Some(first) = left.pop_first() {
            let class: BTreeSet<Column> =
                self.reach(&first).into_keys().filter(|c| columns.contains(c)).collect();
            left.retain(|column| !class.contains(column));
            classes.push(class);
        }
        classes
    }

    /// The columns that hubs connect with one, each with the joint by which the shortest chain comes to it.
    fn reach(&self, start: &Column) -> BTreeMap<Column, Option<Joint>> {
        let mut of: BTreeMap<&Column, Vec<&Reason>> = BTreeMap::new();
        for (reason, columns) in &self.hubs {
            for column in columns {
                of.entry(column).or_default().push(reason);
            }
        }
        let mut reached = BTreeMap::from([(start.clone(), None)]);
        let mut used = BTreeSet::new();
        let mut queue = VecDeque::from([start.clone()]);
        while let Some(from) = queue.pop_front() {
            for reason in of.get(&from).into_iter().flatten() {
                if !used.insert(*reason) {
                    continue;
                }
                for to in &self.hubs[*reason] {
                    if !reached.contains_key(to) {
                        let joint = Joint { from: from.clone(), reason: (*reason).clone(), to: to.clone() };
                        reached.insert(to.clone(), Some(joint));
                        queue.push_back(to.clone());
                    }
                }
            }
        }
        reached
    }

    /// The reads for whose sake services are one.
    pub(crate) fn merged(&self) -> impl Iterator<Item = &String> {
        self.hubs.keys().filter_map(|reason| match reason {
            Reason::Merged(query) => Some(query),
            _ => None,
        })
    }

    /// The shortest chain of reasons between two columns; `None` if nothing joins them.
    pub(crate) fn chain(&self, from: &Column, to: &Column) -> Option<Vec<Joint>> {
        let reached = self.reach(from);
        let mut chain = Vec::new();
        let mut at = reached.get(to)?;
        while let Some(joint) = at {
            chain.push(joint.clone());
            at = &reached[&joint.from];
        }
        chain.reverse();
        Some(chain)
    }
}

/// What nothing updates, and which keys are repeated in all parts of their tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Changes {
    /// Tables that get or lose rows, each with the first statement by which they do.
    pub(crate) grown: BTreeMap<String, String>,
    /// Columns that something updates; of grown tables, all.
    pub(crate) updated: BTreeSet<Column>,
    /// Columns of keys of tables that are not grown and have other columns, too.
    pub(crate) repeated: BTreeSet<Column>,
}

impl Changes {
    pub(crate) fn of(application: &Application) -> Self {
        let mut changes = Self::default();
        for (name, query) in &application.queries {
            changes.updated.extend(application.written(query));
            for table in application.effects(query).grown {
                changes.grown.entry(table).or_insert_with(|| name.clone());
            }
        }
        for table in application.catalogue.tables() {
            let key = application.primary_key(&table.name);
            let is_repeated = !changes.grown.contains_key(&table.name)
                && unsplittable(application, &changes.updated, table).is_none()
                && key.len() < table.columns.len()
                && key.iter().all(|column| !changes.updated.contains(column));
            if is_repeated {
                changes.repeated.extend(key);
            }
        }
        changes
    }
}

/// Why a table cannot be split by column, if it cannot: its parts must share a key that never changes.
fn unsplittable(
    application: &Application,
    updated: &BTreeSet<Column>,
    table: &Table,
) -> Option<&'static str> {
    let key = application.primary_key(&table.name);
    if key.is_empty() {
        return Some("has no primary key");
    }
    if key.iter().any(|column| updated.contains(column)) {
        return Some("has a primary key that is updated");
    }
    table.columns.iter().any(|column| column.generated).then_some("has a generated column")
}

/// What the definitions of tables keep together, whatever the workload.
fn definitions(application: &Application, changes: &Changes, graph: &mut Graph) {
    for table in application.catalogue.tables() {
        let column = |at: usize| Column::new(&table.name, &table.columns[at].name);
        if let Some(because) = unsplittable(application, &changes.updated, table) {
            let columns = (0..table.columns.len()).map(column).collect();
            graph.join(Reason::Unsplittable { table: table.name.clone(), because }, columns);
        }
        for key in table.keys.iter().filter(|key| !key.primary) {
            let columns: BTreeSet<Column> = key.columns.iter().map(|&at| column(at)).collect();
            let names = columns.iter().map(|column| column.name.clone()).collect();
            let own = columns.into_iter().filter(|column| !changes.repeated.contains(column)).collect();
            graph.join(Reason::Unique(table.name.clone(), names), own);
        }
    }
}

/// The graph of step 1.
pub(crate) fn clusters(application: &Application, changes: &Changes) -> Graph {
    let mut graph = Graph::default();
    definitions(application, changes, &mut graph);
    for (table, query) in &changes.grown {
        let columns = application.columns().into_iter().filter(|column| column.table == *table).collect();
        graph.join(Reason::Grows { table: table.clone(), query: query.clone() }, columns);
    }
    let updated = |columns: BTreeSet<Column>| -> BTreeSet<Column> {
        columns.into_iter().filter(|column| changes.updated.contains(column)).collect()
    };
    for (name, unit) in &application.units {
        let queries = || unit.queries.iter().filter_map(|query| application.queries.get(query));
        let written = queries().flat_map(|query| application.written(query));
        match unit.kind {
            UnitKind::Transaction => {
                let read = queries().flat_map(|query| application.read(query));
                graph.join(Reason::Transaction(name.clone()), updated(read.chain(written).collect()));
            }
            UnitKind::AtomicSet => graph.join(Reason::AtomicSet(name.clone()), written.collect()),
        }
    }
    let alone = |(_, query): &(&String, &Query)| query.alone && query.writes();
    for (name, query) in application.queries.iter().filter(alone) {
        graph.join(Reason::Single(name.clone()), application.written(query));
    }
    graph
}
