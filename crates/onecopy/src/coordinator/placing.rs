//! Changes what each replica holds, in the file and in the core.

use std::io;
use std::sync::PoisonError;

use cluster::event::Event;
use cluster::ids::{ReplicaId, TableId};
use cluster::placement::ReplicaSet;

use super::Coordinator;
use super::placement_file::{PlacedTable, Restricted};
use crate::capture::quoting::quoted;

impl Coordinator {
    /// The restricted tables with their holders, in the order of the tables' numbers.
    pub(crate) fn restricted(&self) -> Vec<(TableId, ReplicaSet)> {
        self.core.restricted()
    }

    /// Other replicas hold a table from now on: first in the file, then in the core. Those that are new or left out are down, and new
    /// ones have its rows.
    pub(crate) fn place(&self, table: TableId, holders: ReplicaSet) -> io::Result<()> {
        let file = self.lead.placement.lock().unwrap_or_else(PoisonError::into_inner);
        let mut restricted = self.restricted();
        restricted.retain(|(other, _)| *other != table);
        restricted.push((table, holders));
        file.write(&self.with_names(&restricted))?;
        self.core.tell(Event::Placed { table, holders: Some(holders) });
        Ok(())
    }

    /// Replicas that have yet to join will hold a table, too. Returns false, and changes nothing, if one has joined meanwhile that does
    /// not hold it. Here the core comes first: with the table in the file, a later replica holds less than it could.
    pub(crate) fn lift(&self, table: TableId) -> io::Result<bool> {
        let file = self.lead.placement.lock().unwrap_or_else(PoisonError::into_inner);
        self.core.tell(Event::Placed { table, holders: None });
        let restricted = self.restricted();
        file.write(&self.with_names(&restricted))?;
        Ok(restricted.iter().all(|(other, _)| *other != table))
    }

    /// A replica is no member any more, so it holds nothing. A later one of its name must not be taken for a holder.
    pub(super) fn holds_nothing(&self, replica: ReplicaId) {
        let file = self.lead.placement.lock().unwrap_or_else(PoisonError::into_inner);
        let restricted = self.restricted();
        if restricted.is_empty() {
            return;
        }
        if let Err(error) = file.write(&self.with_names(&restricted)) {
            let name = &self.seats[replica].name;
            tracing::error!(replica = %name, %error, "the file of what each replica holds still has a replica that has left");
        }
    }

    /// The name of a table for people: with its schema, in quotes where needed.
    pub(crate) fn table_name(&self, table: TableId) -> String {
        match self.database.catalogue().table(table) {
            Some(found) => format!("{}.{}", quoted(&found.schema), quoted(&found.name)),
            None => format!("table number {}", table.number),
        }
    }

    fn with_names(&self, restricted: &[(TableId, ReplicaSet)]) -> Restricted {
        let named = |(table, holders): &(TableId, ReplicaSet)| {
            let holders = holders.iter().map(|replica| self.seats[replica].name.clone()).collect();
            (table.number, PlacedTable { name: self.table_name(*table), holders })
        };
        restricted.iter().map(named).collect()
    }
}
