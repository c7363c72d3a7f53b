//! What one replica holds, and what statements and records ask of that.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Copies, Edition, Map, PartSet};
use crate::ids::{PartId, ReplicaId, TableId};

/// What a statement may need where it runs: the tables that it reads and writes, and those that its triggers,
/// cascades and constraint checks reach.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Touches {
    /// It cannot be bounded.
    #[default]
    Anything,
    /// These tables.
    Tables(Arc<[TableId]>),
    /// These tables; of those that are split, rows of these parts only.
    Parts {
        /// The tables, split ones and others.
        tables: Arc<[TableId]>,
        /// The parts.
        parts: PartSet,
        /// The edition by which the parts were told. Under another one they count as all parts.
        edition: Edition,
    },
}

impl Touches {
    /// The tables; `None` if they are not bounded.
    pub fn tables(&self) -> Option<&Arc<[TableId]>> {
        match self {
            Self::Anything => None,
            Self::Tables(tables) | Self::Parts { tables, .. } => Some(tables),
        }
    }
}

/// A table of which rows are changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed {
    /// The table.
    pub table: TableId,
    /// The parts of the rows; `None` if they are not known, so that they may be any.
    pub parts: Option<PartSet>,
}

/// The writes of a record, as far as they decide which replicas must apply it.
pub trait Writes {
    /// Every replica must apply the record, whatever it holds: it may write everything, as a schema change, or moves
    /// sequences.
    fn is_for_all(&self) -> bool;

    /// The tables whose rows the record changes.
    fn changes(&self) -> impl Iterator<Item = Changed>;
}

/// How much of a table a replica holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// All rows.
    All,
    /// The rows of these parts, which are some.
    Parts(PartSet),
    /// No row.
    Nothing,
}

/// What one replica holds. Cheap to clone; while all replicas hold everything, each question is one branch.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    replica: ReplicaId,
    map: Arc<Map>,
}

impl Holdings {
    pub(super) fn new(replica: ReplicaId, map: Arc<Map>) -> Self {
        Self { replica, map }
    }

    /// Those of a replica that holds everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Whether the replica holds everything.
    pub fn is_everything(&self) -> bool {
        self.map.listed.keys().all(|table| self.holds(*table))
    }

    /// How much of a table the replica holds.
    pub fn share(&self, table: TableId) -> Share {
        let Some(copies) = self.map.listed.get(&table) else { return Share::All };
        match copies {
            Copies::Whole(holders) if holders.contains(self.replica) => Share::All,
            Copies::Whole(_) => Share::Nothing,
            Copies::Parts { holders: parts, .. } => {
                let held = copies.sets().filter(|(_, holders)| holders.contains(self.replica));
                let held: PartSet = held.filter_map(|(part, _)| part).collect();
                match held.iter().count() {
                    0 => Share::Nothing,
                    count if count == parts.len() => Share::All,
                    _ => Share::Parts(held),
                }
            }
        }
    }

    /// The column by which a table is split, and the number of parts.
    pub fn split(&self, table: TableId) -> Option<(&Arc<str>, u8)> {
        self.map.listed.get(&table).and_then(Copies::split)
    }

    /// Whether the replica holds all rows of this table.
    pub fn holds(&self, table: TableId) -> bool {
        self.map.listed.is_empty() || self.share(table) == Share::All
    }

    /// Whether the replica holds a row of this table that is in this part. A row whose part is not known is held where any row of the
    /// table is.
    pub fn holds_row(&self, table: TableId, part: Option<PartId>) -> bool {
        match self.map.listed.get(&table) {
            None => true,
            Some(Copies::Whole(holders)) => holders.contains(self.replica),
            Some(Copies::Parts { holders: parts, .. }) => match part {
                Some(part) => parts.get(usize::from(part.0)).is_some_and(|set| set.contains(self.replica)),
                None => parts.iter().any(|set| set.contains(self.replica)),
            },
        }
    }

    /// Whether the replica holds all of this.
    pub fn hold(&self, touches: &Touches) -> bool {
        match touches {
            Touches::Anything => self.is_everything(),
            Touches::Parts { tables, parts, edition } if self.map.tells(*edition, tables) => {
                let holds_part = |table: TableId, part| self.holds_row(table, Some(part));
                let holds = |table: &TableId| {
                    self.holds(*table)
                        || matches!(self.map.listed.get(table), Some(Copies::Parts { .. }))
                            && parts.iter().all(|part| holds_part(*table, part))
                };
                tables.iter().all(holds)
            }
            Touches::Tables(tables) | Touches::Parts { tables, .. } => {
                tables.iter().all(|table| self.holds(*table))
            }
        }
    }

    /// Whether the replica must apply a record. One that holds everything applies every record, also an empty one: so it can show
    /// that it lacks none.
    pub fn must_apply(&self, record: &impl Writes) -> bool {
        let concerns = |changed: Changed| match changed.parts {
            Some(parts) if !parts.is_empty() => {
                parts.iter().any(|part| self.holds_row(changed.table, Some(part)))
            }
            _ => self.holds_row(changed.table, None),
        };
        self.is_everything() || record.is_for_all() || record.changes().any(concerns)
    }

    /// Whether this replica holds all that the other one holds.
    pub fn cover(&self, other: &Self) -> bool {
        let mut listed = self.map.listed.keys().chain(other.map.listed.keys());
        listed.all(|table| match (self.share(*table), other.share(*table)) {
            (Share::All, _) | (_, Share::Nothing) => true,
            (Share::Parts(mine), Share::Parts(theirs)) => mine.union(theirs) == mine,
            _ => false,
        })
    }
}
