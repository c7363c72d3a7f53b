//! Changes what each replica holds, in the register and in the core.
//!
//! Each change runs to its end on a thread for blocking work, so the two never differ because the command that asked for it has gone.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use cluster::event::Event;
use cluster::ids::{ReplicaId, TableId};
use cluster::placement::{Copies, ReplicaSet};
use commitlog::{Entry, RegisterError};
use tokio::task::spawn_blocking;

use super::Leader;
use super::placement_file::{Holders, Placed, PlacedTable, PlacementError, PlacementFile};

impl Leader {
    /// Other replicas hold a table, or parts of it, from now on: first in the register, then in the core. Those that are new or left
    /// out are down, and new ones have its rows.
    pub(crate) async fn place(
        self: &Arc<Self>,
        table: TableId,
        copies: &Copies,
    ) -> Result<(), PlacementError> {
        let copies = copies.clone();
        self.change_placement(move |leader| leader.place_now(table, &copies)).await
    }

    fn place_now(&self, table: TableId, copies: &Copies) -> Result<(), PlacementError> {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        let mut restricted = self.core.restricted();
        restricted.retain(|(other, _)| *other != table);
        restricted.push((table, copies.clone()));
        self.write(&file, &restricted)?;
        self.core.tell(Event::Placed { table, copies: Some(copies.clone()) });
        Ok(())
    }

    /// Replaces the restricted tables in the register, durably. For kinds of node with the log in files: it waits for the disk only.
    pub(crate) fn write_placement(&self, restricted: &[(TableId, Copies)]) -> Result<(), PlacementError> {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(&file, restricted)
    }

    /// Replicas that have yet to join will hold a table, too. Returns false, and changes nothing, if one has joined meanwhile that does
    /// not hold it. Here the core comes first: with the table in the register, a later replica holds less than it could.
    pub(crate) async fn lift(self: &Arc<Self>, table: TableId) -> Result<bool, PlacementError> {
        self.change_placement(move |leader| leader.lift_now(table)).await
    }

    fn lift_now(&self, table: TableId) -> Result<bool, PlacementError> {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        self.core.tell(Event::Placed { table, copies: None });
        let restricted = self.core.restricted();
        self.write(&file, &restricted)?;
        Ok(restricted.iter().all(|(other, _)| *other != table))
    }

    /// A replica is no member any more, so it holds nothing. A later one of its name must not be taken for a holder.
    pub(super) async fn holds_nothing(self: &Arc<Self>, replica: ReplicaId) {
        let written = self.change_placement(Self::drop_from_placement).await;
        if let Err(error) = written {
            let name = &self.seats[replica].name;
            tracing::error!(replica = %name, %error, "the entry of what each replica holds still has a replica that has left");
        }
    }

    fn drop_from_placement(&self) -> Result<(), PlacementError> {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        let restricted = self.core.restricted();
        let has_none = |placed: Placed| placed.parts.is_empty() && placed.masters.is_empty();
        if restricted.is_empty() && file.read().is_ok_and(has_none) {
            return Ok(());
        }
        self.write(&file, &restricted)
    }

    /// Updates of a table begin at these replicas from now on; at any holder if there are none.
    pub(crate) async fn set_masters(
        self: &Arc<Self>,
        table: TableId,
        masters: ReplicaSet,
    ) -> Result<(), PlacementError> {
        self.change_placement(move |leader| leader.set_masters_now(table, masters)).await
    }

    fn set_masters_now(&self, table: TableId, masters: ReplicaSet) -> Result<(), PlacementError> {
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
    pub(crate) async fn parts(self: &Arc<Self>) -> Result<Vec<ReplicaSet>, PlacementError> {
        self.change_placement(Self::parts_now).await
    }

    fn parts_now(&self) -> Result<Vec<ReplicaSet>, PlacementError> {
        let file = self.placement.lock().unwrap_or_else(PoisonError::into_inner);
        let set = |names: &BTreeSet<String>| {
            let seats = names.iter().filter_map(|name| self.seats.named(name));
            seats.map(|seat| seat.replica).collect()
        };
        Ok(file.read()?.parts.iter().map(set).collect())
    }

    /// Gives each part its holders, for tables that are yet to be split.
    pub(crate) async fn set_parts(self: &Arc<Self>, parts: &[ReplicaSet]) -> Result<(), PlacementError> {
        let parts = parts.iter().map(|holders| self.names(*holders)).collect();
        self.change_placement(move |leader| {
            let file = leader.placement.lock().unwrap_or_else(PoisonError::into_inner);
            file.write(&Placed { parts, ..file.read()? })
        })
        .await
    }

    /// Runs on a thread for blocking work, to its end.
    async fn change_placement<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&Self) -> Result<T, PlacementError> + Send + 'static,
    ) -> Result<T, PlacementError> {
        let leader = Arc::clone(self);
        let changed = spawn_blocking(move || change(&leader)).await;
        let unknown = || Err(RegisterError::InDoubt { entry: Entry::Placement }.into());
        changed.unwrap_or_else(|_| unknown())
    }

    fn write(&self, file: &PlacementFile, restricted: &[(TableId, Copies)]) -> Result<(), PlacementError> {
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
