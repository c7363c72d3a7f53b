//! Changes what each replica holds, in the file and in the core.

use std::collections::BTreeSet;
use std::io;
use std::sync::PoisonError;

use cluster::event::Event;
use cluster::ids::{ReplicaId, TableId};
use cluster::placement::{Copies, ReplicaSet};

use super::Leader;
use super::placement_file::{Holders, Placed, PlacedTable, PlacementFile};

impl Leader {
    /// Other replicas hold a table, or parts of it, from now on: first in the file, then in the core. Those that are new or left out are
    /// down, and new ones have its rows.
    pub(crate) fn place(&self, table: TableId, copies: &Copies) -> io::Result<()> {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        let mut restricted = self.core.restricted();
        restricted.retain(|(other, _)| *other != table);
        restricted.push((table, copies.clone()));
        self.write(&file, &restricted)?;
        self.core.tell(Event::Placed { table, copies: Some(copies.clone()) });
        Ok(())
    }

    /// Replaces the restricted tables in the file, durably.
    pub(crate) fn write_placement(&self, restricted: &[(TableId, Copies)]) -> io::Result<()> {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(&file, restricted)
    }

    /// Replicas that have yet to join will hold a table, too. Returns false, and changes nothing, if one has joined meanwhile that does
    /// not hold it. Here the core comes first: with the table in the file, a later replica holds less than it could.
    pub(crate) fn lift(&self, table: TableId) -> io::Result<bool> {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        self.core.tell(Event::Placed { table, copies: None });
        let restricted = self.core.restricted();
        self.write(&file, &restricted)?;
        Ok(restricted.iter().all(|(other, _)| *other != table))
    }

    /// A replica is no member any more, so it holds nothing. A later one of its name must not be taken for a holder.
    pub(super) fn holds_nothing(&self, replica: ReplicaId) {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        let restricted = self.core.restricted();
        let has_none = |placed: Placed| placed.parts.is_empty() && placed.masters.is_empty();
        if restricted.is_empty() && file.read().is_ok_and(has_none) {
            return;
        }
        if let Err(error) = self.write(&file, &restricted) {
            let name = &self.seats[replica].name;
            tracing::error!(replica = %name, %error, "the file of what each replica holds still has a replica that has left");
        }
    }

    /// Updates of a table begin at these replicas from now on; at any holder if there are none.
    pub(crate) fn set_masters(&self, table: TableId, masters: ReplicaSet) -> io::Result<()> {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        let mut placed = file.read()?;
        let former = if masters == ReplicaSet::EMPTY {
            placed.masters.remove(&table.number)
        } else {
            placed.masters.insert(table.number, self.names(masters))
        };
        if former != placed.masters.get(&table.number).cloned() {
            file.write(&placed)?;
            self.core.tell(Event::Mastered { table, masters });
        }
        Ok(())
    }

    /// The holders of each part of tables that are yet to be split, as PLACE PARTS has given them; empty before that.
    pub(crate) fn parts(&self) -> io::Result<Vec<ReplicaSet>> {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        let set = |names: &BTreeSet<String>| {
            let seats = names.iter().filter_map(|name| self.seats.named(name));
            seats.map(|seat| seat.replica).collect()
        };
        Ok(file.read()?.parts.iter().map(set).collect())
    }

    /// Gives each part its holders, for tables that are yet to be split.
    pub(crate) fn set_parts(&self, parts: &[ReplicaSet]) -> io::Result<()> {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = parts.iter().map(|holders| self.names(*holders)).collect();
        file.write(&Placed { parts, ..file.read()? })
    }

    fn write(&self, file: &PlacementFile, restricted: &[(TableId, Copies)]) -> io::Result<()> {
        let named = |(table, copies): &(TableId, Copies)| {
            let holders = match copies {
                Copies::Whole(holders) => Holders::Whole { holders: self.names(*holders) },
                Copies::Parts { column, holders } => Holders::Parts {
                    column: column.to_string(),
                    parts: holders.iter().map(|holders| self.names(*holders)).collect(),
                },
            };
            (table.number, PlacedTable { name: self.table_name(*table), holders })
        };
        let members: BTreeSet<String> = self.seats.iter().map(|seat| seat.name.clone()).collect();
        let Placed { mut parts, mut masters, .. } = file.read()?;
        for names in masters.values_mut() {
            names.retain(|name| members.contains(name));
        }
        masters.retain(|_, names| !names.is_empty());
        for names in &mut parts {
            names.retain(|name| members.contains(name));
        }
        if parts.iter().any(BTreeSet::is_empty) {
            parts.clear();
        }
        file.write(&Placed { tables: restricted.iter().map(named).collect(), parts, masters })
    }

    fn names(&self, holders: ReplicaSet) -> BTreeSet<String> {
        holders.iter().map(|replica| self.seats[replica].name.clone()).collect()
    }
}
