//! Which replicas hold which tables and parts of tables, and which records a replica must therefore apply.
//!
//! The core owns the one [`Placement`] of its cluster. Everything else (drivers, agents, comparisons, copies) asks for the
//! [`Holdings`] of a replica, a cheap handle on the same map. With three replicas and table 7 restricted to the first
//! two, the third neither applies rows of table 7 nor serves reads of it, and its checksum of table 7 is not compared.
//!
//! A table is held as a whole, or in [`parts`]: then each part of its rows has holders of its own, and a replica may hold some.
//!
//! A transaction has its home where all is held that it [touches](Touches): an empty copy of a table must not answer. One whose
//! later statement touches more is over, and may begin again elsewhere ([`crate::event::AbortCause::NotHeld`]).
//!
//! Of the holders of a table some may be its *masters*: updates of it begin there as long as one of them can (lazy master and bowtie
//! replication in the paper). That is a preference; any holder will do.
//!
//! [`Holdings::must_apply`] is the only rule for whether a record concerns a replica. A replica counts as having applied
//! every record that it need not apply.
//!
//! Invariant: every table, and every part of a table that is split, has a holder, and the anchor holds everything.
//!
//! Partial replication is that of preventive replication section 3, and of C-JDBC's RAIDb-0 and RAIDb-2; both place tables, the parts are
//! ours. Not here: how a placement is chosen and kept, and how rows are copied to a new holder. The driver does that while the replica is
//! down, and then says so ([`crate::event::Event::Placed`]).

mod holdings;
mod parts;
mod replica_set;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{PartId, ReplicaId, TableId};

pub use holdings::{Changed, Holdings, Share, Touches, Writes};
pub use parts::{PARTS_MAX, PartSet, part_of, spread};
pub use replica_set::{REPLICAS_MAX, ReplicaSet};

/// The holders of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Copies {
    /// Of all its rows.
    Whole(ReplicaSet),
    /// Of each part of its rows.
    Parts {
        /// The column by whose value a row is in a part.
        column: Arc<str>,
        /// By the number of the part.
        holders: Arc<[ReplicaSet]>,
    },
}

impl Copies {
    /// The replicas that hold all rows.
    pub fn of_all_rows(&self, everyone: ReplicaSet) -> ReplicaSet {
        match self {
            Self::Whole(holders) => *holders,
            Self::Parts { holders, .. } => holders.iter().fold(everyone, |set, holders| set.and(*holders)),
        }
    }

    /// The holders of each set of rows that has holders of its own, with its part if it is one.
    pub fn sets(&self) -> impl Iterator<Item = (Option<PartId>, ReplicaSet)> {
        let (whole, parts): (_, &[ReplicaSet]) = match self {
            Self::Whole(holders) => (Some((None, *holders)), &[]),
            Self::Parts { holders, .. } => (None, holders),
        };
        whole.into_iter().chain((0..).map(PartId).map(Some).zip(parts.iter().copied()))
    }

    /// The same copies with other holders.
    #[must_use]
    pub fn map(&self, change: impl Fn(Option<PartId>, ReplicaSet) -> ReplicaSet) -> Self {
        match self {
            Self::Whole(holders) => Self::Whole(change(None, *holders)),
            Self::Parts { column, .. } => Self::Parts {
                column: Arc::clone(column),
                holders: self.sets().map(|(part, holders)| change(part, holders)).collect(),
            },
        }
    }

    /// The column by which the table is split, and the number of parts.
    pub fn split(&self) -> Option<(&Arc<str>, u8)> {
        match self {
            Self::Whole(_) => None,
            Self::Parts { column, holders } => {
                Some((column, u8::try_from(holders.len()).expect("at most PARTS_MAX")))
            }
        }
    }
}

/// Counts the changes of which tables are split, by what column, into how many parts. What was concluded under another edition may
/// be wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Edition(pub u32);

/// The map itself, which the placement and all holdings share.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Map {
    /// The tables that not all replicas hold, each with its holders. All replicas hold what is not listed.
    listed: BTreeMap<TableId, Copies>,
    /// The edition since which a table is split as it is, or whole again. Tables that were never split are not there.
    split_since: BTreeMap<TableId, Edition>,
    /// The replicas where updates of a table begin, if some were chosen.
    masters: BTreeMap<TableId, ReplicaSet>,
}

impl Map {
    /// Whether parts of these tables that were told by an edition are still right.
    fn tells(&self, edition: Edition, tables: &[TableId]) -> bool {
        tables.iter().all(|table| self.split_since.get(table).is_none_or(|since| *since <= edition))
    }
}

/// The map from tables to their holders.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Placement {
    /// Every replica of the cluster: holds what is not listed.
    everyone: ReplicaSet,
    edition: Edition,
    map: Arc<Map>,
}

impl Placement {
    /// All replicas hold everything.
    pub fn full(replicas: u16) -> Self {
        Self { everyone: ReplicaSet::first(replicas), edition: Edition::default(), map: Arc::default() }
    }

    /// Restricts a table to these replicas.
    pub fn restrict(&mut self, table: TableId, copies: Copies) {
        assert!(
            copies.sets().all(|(_, holders)| holders != ReplicaSet::EMPTY),
            "every table and part has a holder"
        );
        let former = self.map.listed.get(&table).and_then(Copies::split);
        if former != copies.split() {
            self.resplit(table);
        }
        Arc::make_mut(&mut self.map).listed.insert(table, copies);
    }

    fn resplit(&mut self, table: TableId) {
        self.edition.0 += 1;
        Arc::make_mut(&mut self.map).split_since.insert(table, self.edition);
    }

    /// Replicas that have yet to join will hold the table, too. Nothing changes unless every replica holds it: one that has
    /// joined meanwhile may not.
    pub fn lift(&mut self, table: TableId) {
        let Some(copies) = self.map.listed.get(&table) else { return };
        if self.everyone.and(copies.of_all_rows(self.everyone)) == self.everyone {
            if copies.split().is_some() {
                self.resplit(table);
            }
            Arc::make_mut(&mut self.map).listed.remove(&table);
        }
    }

    /// Chooses the replicas where updates of a table begin as long as one of them can; none, so that they begin at any holder.
    pub fn set_masters(&mut self, table: TableId, masters: ReplicaSet) {
        let all = &mut Arc::make_mut(&mut self.map).masters;
        if masters == ReplicaSet::EMPTY {
            all.remove(&table);
        } else {
            all.insert(table, masters);
        }
    }

    /// The replicas where updates of a table begin, if some were chosen; else none.
    pub fn masters(&self, table: TableId) -> ReplicaSet {
        self.map.masters.get(&table).copied().unwrap_or_default()
    }

    /// The tables with chosen masters.
    pub fn mastered(&self) -> impl Iterator<Item = (TableId, ReplicaSet)> {
        self.map.masters.iter().map(|(table, masters)| (*table, *masters))
    }

    /// Of these replicas, those where updates of all these tables begin, if masters were chosen. There may be none.
    pub fn masters_among(&self, eligible: ReplicaSet, tables: impl Iterator<Item = TableId>) -> ReplicaSet {
        if self.map.masters.is_empty() {
            return eligible;
        }
        let chosen = tables.filter_map(|table| self.map.masters.get(&table));
        chosen.fold(eligible, |set, masters| set.and(*masters))
    }

    /// Whether some table is restricted.
    pub fn is_partial(&self) -> bool {
        !self.map.listed.is_empty()
    }

    /// The present edition of which tables are split.
    pub fn edition(&self) -> Edition {
        self.edition
    }

    /// Whether a table is split.
    pub fn is_split(&self, table: TableId) -> bool {
        self.map.listed.get(&table).is_some_and(|copies| copies.split().is_some())
    }

    /// Whether rows of these tables, told apart by an edition, tell the parts that they are in now. If not, tables were split, or are
    /// whole again, since they were written. `untold` are the tables with rows that tell no part.
    pub fn tells_parts(
        &self,
        edition: Edition,
        mut tables: impl Iterator<Item = TableId>,
        untold: &BTreeSet<TableId>,
    ) -> bool {
        let is_told = |table: TableId| !self.is_split(table) || !untold.contains(&table);
        tables.all(|table| self.map.tells(edition, &[table]) && is_told(table))
    }

    /// The restricted tables, each with its holders.
    pub fn restricted(&self) -> impl Iterator<Item = (TableId, &Copies)> {
        self.map.listed.iter().map(|(table, copies)| (*table, copies))
    }

    /// A replica that holds whatever is not listed.
    pub fn join(&mut self, replica: ReplicaId) {
        self.everyone = self.everyone.with(replica);
    }

    /// A replica holds nothing any more, unless it is the last holder of something: then nothing changes.
    pub fn leave(&mut self, replica: ReplicaId) -> Result<(), LastHolder> {
        self.may_leave(replica)?;
        self.everyone = self.everyone.without(replica);
        if !self.map.masters.is_empty() {
            let masters = &mut Arc::make_mut(&mut self.map).masters;
            for set in masters.values_mut() {
                *set = set.without(replica);
            }
            masters.retain(|_, set| *set != ReplicaSet::EMPTY);
        }
        if !self.map.listed.is_empty() {
            for copies in Arc::make_mut(&mut self.map).listed.values_mut() {
                *copies = copies.map(|_, holders| holders.without(replica));
            }
        }
        Ok(())
    }

    /// Whether everything would still have a holder without this replica.
    pub fn may_leave(&self, replica: ReplicaId) -> Result<(), LastHolder> {
        for (table, copies) in &self.map.listed {
            let last = copies.sets().find(|(_, holders)| holders.without(replica) == ReplicaSet::EMPTY);
            if let Some((part, _)) = last {
                return Err(LastHolder { replica, table: *table, part });
            }
        }
        Ok(())
    }

    /// What a replica holds. One that has yet to join will hold everything that is not listed.
    pub fn holdings(&self, replica: ReplicaId) -> Holdings {
        Holdings::new(replica, Arc::clone(&self.map))
    }

    /// The holders of a table.
    pub fn copies(&self, table: TableId) -> Copies {
        self.map.listed.get(&table).cloned().unwrap_or(Copies::Whole(self.everyone))
    }

    /// The replicas that hold all of these tables.
    pub fn holders_of_all(&self, tables: &[TableId]) -> ReplicaSet {
        if self.map.listed.is_empty() {
            return self.everyone;
        }
        let listed = tables.iter().filter_map(|table| self.map.listed.get(table));
        listed.fold(self.everyone, |set, copies| set.and(copies.of_all_rows(self.everyone)))
    }

    /// The replicas where a statement may run that touches this.
    pub fn holders_of(&self, touches: &Touches) -> ReplicaSet {
        match touches {
            Touches::Anything => self.holders_of_everything(),
            Touches::Parts { tables, parts, edition } if self.map.tells(*edition, tables) => {
                let listed = tables.iter().filter_map(|table| self.map.listed.get(table));
                listed.flat_map(Copies::sets).fold(self.everyone, |set, (part, holders)| match part {
                    Some(part) if !parts.contains(part) => set,
                    _ => set.and(holders),
                })
            }
            Touches::Tables(tables) | Touches::Parts { tables, .. } => self.holders_of_all(tables),
        }
    }

    /// The replicas that hold everything: where a statement may run that cannot be bounded.
    pub fn holders_of_everything(&self) -> ReplicaSet {
        let all = |set: ReplicaSet, copies: &Copies| set.and(copies.of_all_rows(self.everyone));
        self.map.listed.values().fold(self.everyone, all)
    }
}

/// A replica cannot leave, since no other one holds this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastHolder {
    /// The replica.
    pub replica: ReplicaId,
    /// A table that only it holds.
    pub table: TableId,
    /// A part of it that only it holds, if the table is split.
    pub part: Option<PartId>,
}

impl fmt::Display for LastHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replica {} is the only holder of ", self.replica)?;
        if let Some(part) = self.part {
            write!(f, "part {part} of ")?;
        }
        write!(f, "table number {}", self.table.number)
    }
}

impl Error for LastHolder {}

#[cfg(test)]
mod tests;
