//! What must be held together.
//!
//! A replica checks foreign keys where a client's transaction writes, and every replica checks them again when a schema change adds
//! one. So where a table is held, the tables that it refers to are held. A materialized view is filled by each replica from its own
//! rows, so what it shows is held everywhere.
//!
//! A row of a split table refers to rows of its own part, or to a table that is held as a whole: a replica that holds the part has no
//! other row to check against. So a foreign key between split tables pairs the columns by which they are split, and every unique key
//! of a split table has its column.
//!
//! Example: with `line REFERENCES order`, `PLACE TABLE "order" ON a` is refused as long as `line` is also at b. Both can be placed
//! with one command.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cluster::ids::{DatabaseId, TableId};
use cluster::placement::{Copies, ReplicaSet};
use serde::Deserialize;

use crate::backend::BackendError;
use crate::config::placement::TableName;
use crate::coordinator::node_kind::NewTable;

/// Asks a server. The function and its search path are ours.
pub(crate) const HELD_TOGETHER_SQL: &str = "SELECT onecopy.held_together()";

/// A table would not be held where it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// One table refers to the other, and is held where that is not.
    Reference { child: String, parent: String },
    /// A materialized view shows the table, which would not be held everywhere.
    View { view: String, table: String },
    /// The table would be split by a column that it does not have, or by whose type no table can be split.
    Column { table: String, column: String },
    /// Rows of different parts could have the same values in a unique index.
    Key { table: String, column: String, index: String },
    /// Rows refer to rows of other parts.
    Across { child: String, parent: String },
    /// Tables would be held by different replicas, and share a foreign key or a sequence, where statements travel instead of rows.
    Apart { tables: [String; 2], shared: String },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reference { child, parent } => write!(
                f,
                "table {child} has a foreign key to table {parent}, and would be held by a replica that does not hold {parent}"
            ),
            Self::View { view, table } => write!(
                f,
                "materialized view {view} is filled by each replica, and table {table} would not be held by all of them"
            ),
            Self::Column { table, column } => {
                write!(f, "table {table} has no column \"{column}\" by which it can be split")
            }
            Self::Key { table, column, index } => write!(
                f,
                "table {table} is split by \"{column}\", which is not among the columns of its unique index \"{index}\""
            ),
            Self::Apart { tables: [table, other], shared } => {
                write!(
                    f,
                    "tables {table} and {other} share {shared}, and would be held by different replicas"
                )
            }
            Self::Across { child, parent } => write!(
                f,
                "rows of table {child} would refer to rows of table {parent} that a replica does not hold: the foreign key does not pair the columns by which both are split"
            ),
        }
    }
}

impl Breach {
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Reference { .. } => {
                "Place both with one command, as in PLACE TABLE parent, child ON replica-1, replica-2; or hold the parent wherever the child is."
            }
            Self::View { .. } => "PLACE TABLE .. EVERYWHERE, or a table in place of the materialized view.",
            Self::Column { .. } => {
                "It has to be of type smallint, integer, bigint, text, varchar or uuid, with a deterministic collation, and not computed."
            }
            Self::Key { .. } => {
                "Each replica checks uniqueness among the rows that it holds. Add the column to the index, or keep the table whole."
            }
            Self::Apart { .. } => {
                "Place both with one command, as in PLACE TABLE one, other ON replica-1, replica-2. Sequences of one name in two schemas count as one."
            }
            Self::Across { .. } => {
                "Split both by columns that a foreign key pairs, or keep the table that is referred to whole: PLACE TABLE .. EVERYWHERE."
            }
        }
    }
}

#[derive(Deserialize)]
struct Together {
    tables: Vec<Numbered>,
    references: Vec<Pair>,
    views: Vec<Viewed>,
}

/// A table with its own name, and those of the tables that it is a partition of.
#[derive(Deserialize)]
struct Numbered {
    number: u32,
    names: Vec<TableName>,
    /// The columns by which it can be split.
    columns: Vec<String>,
    keys: Vec<UniqueIndex>,
}

#[derive(Deserialize)]
struct UniqueIndex {
    name: String,
    columns: Vec<String>,
}

#[derive(Deserialize)]
struct Pair {
    child: u32,
    child_name: String,
    parent: u32,
    parent_name: String,
    /// Pairs of a column and the one that it refers to.
    columns: Vec<[String; 2]>,
}

impl Pair {
    /// The column of the child that refers to this one of the parent.
    fn following(&self, column: &str) -> Option<&str> {
        self.columns.iter().find(|[_, parent]| parent == column).map(|[child, _]| child.as_str())
    }

    /// Why the child would not have its parents where it is held, if so.
    fn breach(&self, everyone: ReplicaSet, child: &Copies, parent: &Copies) -> Option<Breach> {
        let names = || (self.child_name.clone(), self.parent_name.clone());
        if let (Some((own, _)), Some((theirs, _))) = (child.split(), parent.split())
            && self.following(theirs) == Some(own)
        {
            let lacks = child.sets().zip(parent.sets()).any(|((_, own), (_, its))| own.and(its) != own);
            let (child, parent) = names();
            return lacks.then_some(Breach::Reference { child, parent });
        }
        let own = child.sets().fold(ReplicaSet::EMPTY, |all, (_, set)| all.or(set));
        let lacks = own.and(parent.of_all_rows(everyone)) != own;
        let is_split = parent.split().is_some();
        let (child, parent) = names();
        let breach =
            if is_split { Breach::Across { child, parent } } else { Breach::Reference { child, parent } };
        lacks.then_some(breach)
    }
}

impl Numbered {
    /// Why the table cannot be split by a column, if so.
    fn split_breach(&self, column: &str) -> Option<Breach> {
        let (table, column) = (self.names.first()?.to_string(), column.to_owned());
        if !self.columns.contains(&column) {
            return Some(Breach::Column { table, column });
        }
        let index = self.keys.iter().find(|key| !key.columns.contains(&column))?.name.clone();
        Some(Breach::Key { table, column, index })
    }
}

#[derive(Deserialize)]
struct Viewed {
    table: u32,
    name: String,
    view: String,
}

/// The first table that would not be held where it is needed, if these are the holders. `told` is what a server has told, `everyone` are
/// the members.
pub(crate) fn breach(
    told: &[u8],
    database: DatabaseId,
    everyone: ReplicaSet,
    copies: impl Fn(TableId) -> Copies,
) -> Result<Option<Breach>, BackendError> {
    let together = together(told)?;
    let lacks_parent = |pair: &Pair| {
        let [child, parent] = [pair.child, pair.parent].map(|number| copies(database.table(number)));
        pair.breach(everyone, &child, &parent)
    };
    let cannot_be_split = |table: &Numbered| {
        let copies = copies(database.table(table.number));
        table.split_breach(copies.split()?.0)
    };
    let first = together.tables.iter().find_map(cannot_be_split);
    if let Some(breach) = first.or_else(|| together.references.iter().find_map(lacks_parent)) {
        return Ok(Some(breach));
    }
    let of_all = |table: u32| copies(database.table(table)).of_all_rows(everyone);
    let is_partial = |viewed: &&Viewed| everyone.and(of_all(viewed.table)) != everyone;
    let found = together.views.iter().find(is_partial);
    Ok(found.map(|viewed| Breach::View { view: viewed.view.clone(), table: viewed.name.clone() }))
}

/// The tables that are split together with one, each with its column: those that refer to its column by a foreign key, and those that
/// refer to theirs. A table that is split already is left out.
pub(super) fn following(
    told: &[u8],
    database: DatabaseId,
    table: TableId,
    column: &str,
    is_split: impl Fn(TableId) -> bool,
) -> Result<BTreeMap<TableId, String>, BackendError> {
    let together = together(told)?;
    let mut found = BTreeMap::from([(table, column.to_owned())]);
    loop {
        let next = together.references.iter().find_map(|pair| {
            let [child, parent] = [pair.child, pair.parent].map(|number| database.table(number));
            let column = pair.following(found.get(&parent)?)?;
            let is_new = !found.contains_key(&child) && !is_split(child);
            is_new.then(|| (child, column.to_owned()))
        });
        match next {
            Some((child, column)) => _ = found.insert(child, column),
            None => return Ok(found),
        }
    }
}

/// What is known of tables that are to be placed as new ones.
pub(crate) struct Rules<'a> {
    /// Whether a table is new.
    pub(crate) is_new: &'a dyn Fn(TableId) -> bool,
    /// The holders by the rule for new tables.
    pub(crate) by_rule: &'a dyn Fn(NewTable<'_>) -> Option<ReplicaSet>,
    /// Whether a new table may be split: not if its rows are captured already.
    pub(crate) may_be_split: &'a dyn Fn(TableId) -> bool,
}

/// Where new tables are to be held, if not everywhere: as the rule for new ones says, and only where the tables are that they refer to.
/// One that refers to a split table is split like it, if the foreign key pairs a column with that of the other.
/// `told` is what a server has told in the transaction that has made them.
pub(crate) fn of_new_tables(
    told: &[u8],
    database: DatabaseId,
    rules: &Rules<'_>,
    everyone: ReplicaSet,
    copies: impl Fn(TableId) -> Copies,
) -> Result<BTreeMap<TableId, Copies>, BackendError> {
    let together = together(told)?;
    let tables = together.tables.iter();
    let tables = tables.map(|found| NewTable { id: database.table(found.number), names: &found.names });
    let mut new: BTreeMap<TableId, Copies> = tables
        .filter(|table| (rules.is_new)(table.id))
        .filter_map(|table| Some((table.id, Copies::Whole((rules.by_rule)(table)?))))
        .collect();
    loop {
        let mut has_changed = false;
        for pair in &together.references {
            let [child, parent] = [pair.child, pair.parent].map(|number| database.table(number));
            if !(rules.is_new)(child) {
                continue;
            }
            let of_parent = new.get(&parent).cloned().unwrap_or_else(|| copies(parent));
            let present = new.get(&child).cloned().unwrap_or(Copies::Whole(everyone));
            if pair.breach(everyone, &present, &of_parent).is_some() {
                let own = together.tables.iter().find(|table| table.number == pair.child);
                let may_be_split = !new.contains_key(&child) && (rules.may_be_split)(child);
                let after = below(pair, own.filter(|_| may_be_split), everyone, &present, &of_parent);
                has_changed |= new.get(&child) != Some(&after);
                new.insert(child, after);
            }
        }
        // A new table may refer to a new table.
        if !has_changed {
            return Ok(new);
        }
    }
}

/// The holders of a new table that would be held where this parent is not: the same parts, if it may be split, or only where the parent
/// is held.
fn below(
    pair: &Pair,
    may_be_split: Option<&Numbered>,
    everyone: ReplicaSet,
    present: &Copies,
    of_parent: &Copies,
) -> Copies {
    if let Copies::Parts { column, holders } = of_parent
        && let Some(column) = pair.following(column)
        && may_be_split.is_some_and(|table| table.split_breach(column).is_none())
    {
        return Copies::Parts { column: column.into(), holders: Arc::clone(holders) };
    }
    present.map(|_, holders| holders.and(of_parent.of_all_rows(everyone)))
}

/// A table that is held otherwise than it is to be.
pub(super) struct Otherwise {
    pub(super) name: TableName,
    pub(super) wanted: ReplicaSet,
}

/// The tables that would be held otherwise if all were new: those with a rule, and those that refer to them and are held elsewhere, too.
/// A partitioned table stands for its partitions where all of them are to be held by the same replicas.
pub(super) fn held_otherwise(
    told: &[u8],
    database: DatabaseId,
    by_rule: impl Fn(NewTable<'_>) -> Option<ReplicaSet>,
    everyone: ReplicaSet,
    copies: impl Fn(TableId) -> Copies,
) -> Result<Vec<Otherwise>, BackendError> {
    let rules = Rules { is_new: &|_| true, by_rule: &by_rule, may_be_split: &|_| false };
    let wanted = of_new_tables(told, database, &rules, everyone, &copies)?;
    let wanted = |table: &Numbered| match wanted.get(&database.table(table.number)) {
        Some(Copies::Whole(holders)) => Some(*holders),
        // No rule splits a table.
        _ => None,
    };
    let tables = together(told)?.tables;
    let mut found: Vec<Otherwise> = Vec::new();
    for table in &tables {
        let id = database.table(table.number);
        let (Some(replicas), Copies::Whole(held)) = (wanted(table), copies(id)) else { continue };
        let has_rule = by_rule(NewTable { id, names: &table.names }).is_some();
        if if has_rule { held == replicas } else { held.and(replicas) == held } {
            continue;
        }
        let stands_for_all = |name: &&TableName| {
            let mut below = tables.iter().filter(|other| other.names.contains(name));
            below.all(|other| wanted(other) == Some(replicas))
        };
        let Some(own) = table.names.first() else { continue };
        let name = table.names[1..].iter().find(stands_for_all).unwrap_or(own);
        if !found.iter().any(|other| other.name == *name) {
            found.push(Otherwise { name: name.clone(), wanted: replicas });
        }
    }
    Ok(found)
}

fn together(told: &[u8]) -> Result<Together, BackendError> {
    const SHAPE: BackendError = BackendError::Protocol("what must be held together has an unexpected shape");
    serde_json::from_slice(told).map_err(|_| SHAPE)
}

#[cfg(test)]
mod tests;
