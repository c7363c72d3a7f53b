//! PLACE TABLE: which replicas hold which tables (RAIDb-0, RAIDb-2), changed while nothing is under way.
//!
//! The paper replicates whole databases; RAIDb-0 and RAIDb-2 are C-JDBC's own. Example: `PLACE TABLE audit ON replica-1,
//! replica-3` in a cluster of four empties `audit` at the other two, and from then on its writes go to replica-1 and
//! replica-3 only. A sequence goes with the table whose column draws from it.
//!
//! All replicas take part, all transactions are over, and clients wait, so no replica is ever sent what it does not hold.
//! New holders first get the rows from a present one, on disk; then the scheduler and the file beside the log change, and
//! then the rows of former holders are deleted. If a replica is lost before that, nothing changes.
//!
//! Invariant: a holder has every row of the table that is committed there. What crashes leave at others is deleted when
//! they return ([`Placer::forget_unheld`]). While a table is restricted, the schema does not change, because tables are
//! numbered in the order of their names. Not here: tables by parts, masters, and placement under `pass-through`, where a
//! replica that has lacked transactions could only return as a copy of one that holds everything.

mod copy;
mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::ids::{ReplicaId, TableId};
use cluster::placement::{Copies, Placement, ReplicaSet};
use cluster::protocols::c_jdbc::Level;
use sql::Catalogue;

use copy::{SETTINGS, sequences};

use super::node::CJdbc;
use crate::backend::BackendError;
use crate::capture::shares::a_row_sql;
use crate::coordinator::node_kind::Order;
use crate::membership::place_table::{PlaceError, member, members, tables_of};
use crate::membership::verify::{NoOneVersion, at_one_version};
use crate::shipping::locks::sequence_lock;
use crate::shipping::recovery::{Mark, connect};
use crate::shipping::replica_run::{LaneHost, LeadingHost, ReplicaHost, ReplicaRun};

/// The holders of tables and of their sequences.
type Targets = BTreeMap<TableId, ReplicaSet>;

/// What changes the placement of a node.
pub(super) struct Placer<'a> {
    pub(super) node: &'a Arc<CJdbc>,
}

impl Placer<'_> {
    /// Has these replicas hold tables from now on.
    pub(super) async fn place_tables(&self, order: Order) -> Result<Vec<TableId>, PlaceError> {
        if self.node.choices.level == Level::PassThrough {
            return Err(PlaceError::NotOffered("under transaction_level = pass-through"));
        }
        let leader = Arc::clone(self.node.leader());
        let _turn = leader.parking.change.try_lock().map_err(|_| PlaceError::Busy)?;
        let everyone = members(&leader);
        let wished = match &order.holders {
            None => everyone,
            Some(names) => names.iter().map(|name| member(&leader, name)).collect::<Result<_, _>>()?,
        };
        let placed = at_one_version(&leader, async |_| {
            // A schema change numbers tables anew, so only now is it known which table has which number.
            let tables = tables_of(&leader, &order.tables)?;
            self.move_tables(&tables, wished).await.map(|()| tables)
        });
        let tables = placed.await.map_err(PlaceError::NoOneVersion)??;
        Ok(tables.into_iter().collect())
    }

    /// Moves rows, and places. Nothing else is under way.
    async fn move_tables(&self, tables: &BTreeSet<TableId>, wished: ReplicaSet) -> Result<(), PlaceError> {
        let leader = Arc::clone(self.node.leader());
        let everyone = members(&leader);
        let runs = self.present_runs(everyone)?;
        let former = self.node.lock().scheduler.placement().clone();
        let catalogue = leader.database.catalogue();
        let placement = after(&former, &with_sequences(tables, wished, &catalogue), everyone);
        if let Some(breach) = together::breach(&placement, &catalogue, &leader) {
            return Err(PlaceError::Breach(breach));
        }
        let filled = tokio::select! {
            filled = self.fill_and_mark(tables, wished, &former) => filled,
            replica = self.one_is_lost(&runs) => Err(self.lost(replica)),
        };
        let placed = match filled {
            Ok(()) => self.change(&runs, &former, placement),
            Err(error) => Err(error),
        };
        // Former holders, or if it has failed, those that have got rows for nothing.
        self.forget_unheld_at(&runs).await;
        placed
    }

    /// The runs of all replicas, which take part.
    fn present_runs(&self, everyone: ReplicaSet) -> Result<Vec<ReplicaRun>, PlaceError> {
        let state = self.node.lock();
        match everyone.iter().find(|replica| !state.scheduler.takes_part(*replica)) {
            Some(lost) => Err(PlaceError::NotUp { replica: self.node.leader().seats[lost].name.clone() }),
            None => Ok(everyone.iter().map(|replica| state.run(usize::from(replica.0))).collect()),
        }
    }

    /// Has new holders get the rows, and all note that they have everything in the log.
    async fn fill_and_mark(
        &self,
        tables: &BTreeSet<TableId>,
        wished: ReplicaSet,
        former: &Placement,
    ) -> Result<(), PlaceError> {
        let catalogue = self.node.leader().database.catalogue();
        for replica in wished.iter() {
            let gains = |table: &TableId| !former.holdings(replica).holds(*table);
            let gained: Vec<TableId> = tables.iter().copied().filter(gains).collect();
            copy::fill(self.node, replica, &gained, former, &catalogue).await?;
        }
        for replica in members(self.node.leader()).iter() {
            self.mark(replica).await?;
        }
        Ok(())
    }

    /// Changes the placement in memory and in the file, unless a replica was lost since: one that was, and came back, has
    /// deleted what it had got. No client sees the one without the other, because all wait.
    fn change(&self, runs: &[ReplicaRun], former: &Placement, to: Placement) -> Result<(), PlaceError> {
        let leader = self.node.leader();
        let count = u16::try_from(runs.len()).expect("replicas are counted by u16");
        let mut state = self.node.lock();
        let lost = runs.iter().find(|run| state.present(**run).is_none());
        let listed = restricted(&to);
        if let Some(lost) = lost {
            return Err(self.lost(lost.replica));
        }
        if !state.scheduler.place(to, count) {
            return Err(PlaceError::NoOneVersion(NoOneVersion));
        }
        if let Err(error) = leader.write_placement(&listed) {
            state.scheduler.place(former.clone(), count);
            return Err(PlaceError::Unwritten(error));
        }
        // What is not held together any more is refused, whatever was kept.
        leader.local.result_cache.forget();
        Ok(())
    }

    fn lost(&self, replica: ReplicaId) -> PlaceError {
        PlaceError::Lost { replica: self.node.leader().seats[replica].name.clone() }
    }

    /// Returns when a replica is lost, with its name. One that does not answer is, after a while.
    async fn one_is_lost(&self, runs: &[ReplicaRun]) -> ReplicaId {
        let mut changes = self.node.changes_from_now();
        loop {
            if let Some(run) = runs.iter().find(|run| !self.node.is_present(**run)) {
                return run.replica;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Deletes what replicas do not hold. One that is lost meanwhile does so when it returns.
    async fn forget_unheld_at(&self, runs: &[ReplicaRun]) {
        for run in runs {
            let own = std::slice::from_ref(run);
            let forgotten = tokio::select! {
                forgotten = self.forget_unheld(run.replica) => forgotten,
                _ = self.one_is_lost(own) => Ok(()),
            };
            if let Err(error) = forgotten {
                let reason = format!("it cannot delete the rows that it does not hold: {error}");
                Arc::clone(self.node).give_up(*run, &reason);
            }
        }
    }

    /// Notes at a replica that it has everything in the log, so that it is known later whether it lacks anything.
    async fn mark(&self, replica: ReplicaId) -> Result<(), PlaceError> {
        let over = self.node.lock().appended;
        let mut connection = connect(&**self.node, replica).await?;
        Mark::at(connection.exchange()).note(over).await?;
        Ok(())
    }

    /// Deletes the rows of tables that a replica does not hold. It runs nothing else.
    pub(super) async fn forget_unheld(&self, replica: ReplicaId) -> Result<(), BackendError> {
        let placement = self.node.lock().scheduler.placement().clone();
        let leader = self.node.leader();
        let catalogue = leader.database.catalogue();
        if !placement.is_partial() {
            return Ok(());
        }
        let is_unheld = |(table, copies): &(TableId, &Copies)| {
            let is_held = copies.sets().any(|(_, holders)| holders.contains(replica));
            !is_held && catalogue.table(*table).is_some()
        };
        let unheld = placement.restricted().filter(is_unheld);
        let names: Vec<String> = unheld.map(|(table, _)| leader.table_name(table)).collect();
        if names.is_empty() {
            return Ok(());
        }
        let mut connection = connect(&**self.node, replica).await?;
        connection.query(SETTINGS).await?;
        // A copy that was given up may still be about to commit.
        let list = names.join(", ONLY ");
        connection.query(&format!("BEGIN; LOCK TABLE ONLY {list} IN EXCLUSIVE MODE")).await?;
        for name in names {
            if !connection.query(&a_row_sql(&name, "true")).await?.is_empty() {
                connection.query(&format!("DELETE FROM ONLY {name}")).await?;
            }
        }
        connection.query("COMMIT").await?;
        Ok(())
    }
}

/// The tables and the sequences from which their columns draw.
fn with_sequences(tables: &BTreeSet<TableId>, wished: ReplicaSet, catalogue: &Catalogue) -> Targets {
    let mut targets: Targets = tables.iter().map(|table| (*table, wished)).collect();
    for table in tables {
        targets.extend(sequences(*table, catalogue).map(|name| (sequence_lock(&name.name), wished)));
    }
    targets
}

/// The placement after a change. What all hold is not listed.
fn after(former: &Placement, targets: &Targets, everyone: ReplicaSet) -> Placement {
    let mut placement = former.clone();
    for (table, holders) in targets {
        placement.restrict(*table, Copies::Whole(*holders));
        if *holders == everyone {
            placement.lift(*table);
        }
    }
    placement
}

fn restricted(placement: &Placement) -> Vec<(TableId, Copies)> {
    placement.restricted().map(|(table, copies)| (table, copies.clone())).collect()
}
