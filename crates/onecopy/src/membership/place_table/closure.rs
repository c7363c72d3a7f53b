//! What must be held together.
//!
//! A replica checks foreign keys where a client's transaction writes, and every replica checks them again when a schema change adds
//! one. So where a table is held, the tables that it refers to are held. A materialized view is filled by each replica from its own
//! rows, so what it shows is held everywhere.
//!
//! Example: with `line REFERENCES order`, `PLACE TABLE "order" ON a` is refused as long as `line` is also at b. Both can be placed
//! with one command.

use std::collections::BTreeMap;
use std::fmt;

use cluster::ids::{DatabaseId, TableId};
use cluster::placement::ReplicaSet;
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
}

#[derive(Deserialize)]
struct Pair {
    child: u32,
    child_name: String,
    parent: u32,
    parent_name: String,
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
    holders: impl Fn(TableId) -> ReplicaSet,
) -> Result<Option<Breach>, BackendError> {
    let together = together(told)?;
    let lacks_parent = |pair: &&Pair| {
        let [child, parent] = [pair.child, pair.parent].map(|number| holders(database.table(number)));
        child.and(parent) != child
    };
    if let Some(pair) = together.references.iter().find(lacks_parent) {
        let (child, parent) = (pair.child_name.clone(), pair.parent_name.clone());
        return Ok(Some(Breach::Reference { child, parent }));
    }
    let is_partial = |viewed: &&Viewed| everyone.and(holders(database.table(viewed.table))) != everyone;
    let found = together.views.iter().find(is_partial);
    Ok(found.map(|viewed| Breach::View { view: viewed.view.clone(), table: viewed.name.clone() }))
}

/// Where new tables are to be held, if not everywhere: as the rule for new ones says, and only where the tables are that they refer to.
/// `told` is what a server has told in the transaction that has made them.
pub(crate) fn of_new_tables(
    told: &[u8],
    database: DatabaseId,
    is_new: impl Fn(TableId) -> bool,
    by_rule: impl Fn(NewTable<'_>) -> Option<ReplicaSet>,
    everyone: ReplicaSet,
    holders: impl Fn(TableId) -> ReplicaSet,
) -> Result<BTreeMap<TableId, ReplicaSet>, BackendError> {
    let together = together(told)?;
    let tables = together.tables.iter();
    let tables = tables.map(|found| NewTable { id: database.table(found.number), names: &found.names });
    let mut new: BTreeMap<TableId, ReplicaSet> = tables
        .filter(|table| is_new(table.id))
        .filter_map(|table| Some((table.id, by_rule(table)?)))
        .collect();
    loop {
        let mut has_changed = false;
        for pair in &together.references {
            let [child, parent] = [pair.child, pair.parent].map(|number| database.table(number));
            if !is_new(child) {
                continue;
            }
            let of_parent = new.get(&parent).copied().unwrap_or_else(|| holders(parent));
            let before = new.get(&child).copied().unwrap_or(everyone);
            if before.and(of_parent) != before {
                new.insert(child, before.and(of_parent));
                has_changed = true;
            }
        }
        // A new table may refer to a new table.
        if !has_changed {
            return Ok(new);
        }
    }
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
    holders: impl Fn(TableId) -> ReplicaSet,
) -> Result<Vec<Otherwise>, BackendError> {
    let wanted = of_new_tables(told, database, |_| true, &by_rule, everyone, &holders)?;
    let wanted = |table: &Numbered| wanted.get(&database.table(table.number)).copied();
    let tables = together(told)?.tables;
    let mut found: Vec<Otherwise> = Vec::new();
    for table in &tables {
        let id = database.table(table.number);
        let (Some(replicas), held) = (wanted(table), holders(id)) else { continue };
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
mod tests {
    use super::*;
    use cluster::ids::ReplicaId;

    const TOLD: &[u8] =
        br#"{"tables": [], "references": [{"child": 2, "child_name": "line", "parent": 1, "parent_name": "orders"}],
        "views": [{"table": 3, "name": "item", "view": "best"}]}"#;

    fn found(orders: u16, line: u16, item: u16) -> Option<Breach> {
        let all = [orders, line, item].map(ReplicaSet::first);
        let holders = |table: TableId| all[table.number as usize - 1];
        breach(TOLD, DatabaseId::FIRST, ReplicaSet::first(3), holders).unwrap()
    }

    #[test]
    fn a_table_is_held_where_what_it_refers_to_is_and_what_a_view_shows_is_everywhere() {
        assert_eq!(found(3, 3, 3), None);
        assert_eq!(found(2, 2, 3), None);
        assert_eq!(found(3, 1, 3), None, "a parent may be held by more");
        let reference = Breach::Reference { child: "line".to_owned(), parent: "orders".to_owned() };
        assert_eq!(found(1, 2, 3), Some(reference));
        let view = Breach::View { view: "best".to_owned(), table: "item".to_owned() };
        assert_eq!(found(3, 3, 2), Some(view));
        let nothing =
            breach(b"{}", DatabaseId::FIRST, ReplicaSet::EMPTY.with(ReplicaId(0)), |_| ReplicaSet::EMPTY);
        assert!(nothing.is_err());
    }

    #[test]
    fn a_new_table_is_held_where_what_it_refers_to_is() {
        let told =
            br#"{"tables": [{"number": 1, "names": []}, {"number": 3, "names": []}, {"number": 5, "names": [
                {"schema": "public", "name": "log_1"}]}], "references": [
            {"child": 4, "child_name": "note", "parent": 3, "parent_name": "line"},
            {"child": 3, "child_name": "line", "parent": 1, "parent_name": "orders"},
            {"child": 2, "child_name": "old", "parent": 1, "parent_name": "orders"}], "views": []}"#;
        let everyone = ReplicaSet::first(3);
        let holders = |table: TableId| if table.number == 1 { ReplicaSet::first(2) } else { everyone };
        let is_new = |table: TableId| table.number > 2;
        let number = |number| DatabaseId::FIRST.table(number);
        let by_rule = |table: NewTable<'_>| {
            table.names.iter().any(|name| name.name == "log_1").then_some(ReplicaSet::first(1))
        };
        let placed = of_new_tables(told, DatabaseId::FIRST, is_new, by_rule, everyone, holders).unwrap();
        assert_eq!(
            placed,
            BTreeMap::from([(3, 2), (4, 2), (5, 1)].map(|(n, count)| (number(n), ReplicaSet::first(count))))
        );
    }
}
