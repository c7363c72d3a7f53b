//! What must be held together.
//!
//! A replica checks foreign keys where a client's transaction writes, and every replica checks them again when a schema change adds
//! one. So where a table is held, the tables that it refers to are held. A materialized view is filled by each replica from its own
//! rows, so what it shows is held everywhere.
//!
//! Example: with `line REFERENCES order`, `PLACE TABLE "order" ON a` is refused as long as `line` is also at b. Both can be placed
//! with one command.

use std::fmt;

use cluster::ids::{DatabaseId, TableId};
use cluster::placement::ReplicaSet;
use serde::Deserialize;

use crate::backend::{BackendError, OwnConnection};

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
    references: Vec<Pair>,
    views: Vec<Viewed>,
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

/// The first table that would not be held where it is needed, if these are the holders. `everyone` are the members.
pub(super) async fn breach(
    connection: &mut OwnConnection,
    database: DatabaseId,
    everyone: ReplicaSet,
    holders: impl Fn(TableId) -> ReplicaSet,
) -> Result<Option<Breach>, BackendError> {
    let answer = connection.query(HELD_TOGETHER_SQL).await?;
    let told = answer.into_iter().flatten().flatten().next().unwrap_or_default();
    breach_in(told.as_bytes(), database, everyone, holders)
}

/// The same for what a server has told.
pub(crate) fn breach_in(
    told: &[u8],
    database: DatabaseId,
    everyone: ReplicaSet,
    holders: impl Fn(TableId) -> ReplicaSet,
) -> Result<Option<Breach>, BackendError> {
    const SHAPE: BackendError = BackendError::Protocol("what must be held together has an unexpected shape");
    let together: Together = serde_json::from_slice(told).map_err(|_| SHAPE)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::ids::ReplicaId;

    const TOLD: &[u8] =
        br#"{"references": [{"child": 2, "child_name": "line", "parent": 1, "parent_name": "orders"}],
        "views": [{"table": 3, "name": "item", "view": "best"}]}"#;

    fn found(orders: u16, line: u16, item: u16) -> Option<Breach> {
        let all = [orders, line, item].map(ReplicaSet::first);
        let holders = |table: TableId| all[table.number as usize - 1];
        breach_in(TOLD, DatabaseId::FIRST, ReplicaSet::first(3), holders).unwrap()
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
            breach_in(b"{}", DatabaseId::FIRST, ReplicaSet::EMPTY.with(ReplicaId(0)), |_| ReplicaSet::EMPTY);
        assert!(nothing.is_err());
    }
}
