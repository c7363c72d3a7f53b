//! PLACE TABLE: which replicas hold which tables (RAIDb-0, RAIDb-2), changed while nothing is under way.
//!
//! The paper replicates whole databases; RAIDb-0 and RAIDb-2 are C-JDBC's own. Example: `PLACE TABLE audit ON replica-1,
//! replica-3` in a cluster of four empties `audit` at the other two, and from then on its writes go to replica-1 and
//! replica-3 only. A sequence goes with the table whose column draws from it.
//!
//! All replicas take part, all transactions are over, and clients wait, so no replica is ever sent what it does not hold.
//! New holders first get the rows from a present one, on disk; then the file beside the log changes, then the scheduler, and
//! then the rows of former holders are deleted.
//!
//! Invariant: a holder has every row of the table that is committed there. What crashes leave at others is deleted when
//! they return ([`Placer::forget_unheld`]). While a table is restricted, the schema does not change, because tables are
//! numbered in the order of their names. Not here: tables by parts, masters, and placement under `pass-through`, where a
//! replica that has lacked transactions could only return as a copy of one that holds everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use cluster::ids::{ReplicaId, TableId};
use cluster::placement::{Copies, Placement, ReplicaSet};
use cluster::protocols::c_jdbc::Level;
use sql::{Catalogue, ColumnDefault, Name};
use wire::backend::tag;
use wire::{encode, frame};

use super::node::CJdbc;
use crate::backend::{BackendError, Connection};
use crate::capture::quoting::quoted;
use crate::capture::shares::a_row_sql;
use crate::coordinator::node_kind::Order;
use crate::membership::place_table::{PlaceError, member, members, tables_of};
use crate::membership::verify::at_one_version;
use crate::shipping::locks::{is_sequence, sequence_lock};
use crate::shipping::recovery::{Mark, connect};
use crate::shipping::replica_run::LaneHost;

/// No trigger and no foreign key takes part in the copy of a table, and it is on disk when it ends.
const SETTINGS: &str =
    "SET session_replication_role = replica; SET synchronous_commit = on; SET row_security = off";

/// The holders of tables and of their sequences.
type Targets = BTreeMap<TableId, ReplicaSet>;

/// What changes the placement of a node.
pub(super) struct Placer<'a> {
    pub(super) node: &'a CJdbc,
}

impl Placer<'_> {
    /// Has these replicas hold tables from now on.
    pub(super) async fn place_tables(&self, order: Order) -> Result<Vec<TableId>, PlaceError> {
        if self.node.choices.level == Level::PassThrough {
            return Err(PlaceError::NotOffered("under transaction_level = pass-through"));
        }
        let coordinator = Arc::clone(self.node.coordinator());
        let _turn = coordinator.lead.parking.change.try_lock().map_err(|_| PlaceError::Busy)?;
        let everyone = members(&coordinator);
        let wished = match &order.holders {
            None => everyone,
            Some(names) => names.iter().map(|name| member(&coordinator, name)).collect::<Result<_, _>>()?,
        };
        let tables = tables_of(&coordinator, &order.tables)?;
        let placed = at_one_version(&coordinator, async |_| self.move_tables(&tables, wished).await).await;
        placed.map_err(PlaceError::NoOneVersion)??;
        Ok(tables.into_iter().collect())
    }

    /// Moves rows, and places. Nothing else is under way.
    async fn move_tables(&self, tables: &BTreeSet<TableId>, wished: ReplicaSet) -> Result<(), PlaceError> {
        let coordinator = Arc::clone(self.node.coordinator());
        let everyone = members(&coordinator);
        let former = {
            let state = self.node.lock();
            if let Some(lost) = everyone.iter().find(|replica| !state.scheduler.takes_part(*replica)) {
                return Err(PlaceError::NotUp { replica: coordinator.seats[lost].name.clone() });
            }
            state.scheduler.placement().clone()
        };
        let catalogue = coordinator.database.catalogue();
        let targets = with_sequences(tables, wished, &catalogue);
        for replica in wished.iter() {
            let gains = |table: &TableId| !former.holdings(replica).holds(*table);
            let gained: Vec<TableId> = tables.iter().copied().filter(gains).collect();
            if let Err(error) = self.fill(replica, &gained, &former, &catalogue).await {
                self.forget_unheld_everywhere(wished).await?;
                return Err(error);
            }
        }
        for replica in everyone.iter() {
            self.mark(replica).await?;
        }
        let placement = after(&former, &targets, everyone);
        coordinator.write_placement(&restricted(&placement)).map_err(PlaceError::Unwritten)?;
        let count = u16::try_from(everyone.iter().count()).unwrap_or(u16::MAX);
        let is_placed = self.node.lock().scheduler.place(placement, count);
        if !is_placed {
            coordinator.write_placement(&restricted(&former)).map_err(PlaceError::Unwritten)?;
            self.forget_unheld_everywhere(wished).await?;
            return Err(PlaceError::Lost { replica: "a replica".to_owned() });
        }
        self.forget_unheld_everywhere(everyone).await?;
        Ok(())
    }

    /// Deletes the rows of tables that these replicas do not hold.
    async fn forget_unheld_everywhere(&self, replicas: ReplicaSet) -> Result<(), BackendError> {
        for replica in replicas.iter() {
            self.forget_unheld(replica).await?;
        }
        Ok(())
    }

    /// Copies tables and the states of their sequences from present holders to a replica.
    async fn fill(
        &self,
        to: ReplicaId,
        tables: &[TableId],
        former: &Placement,
        catalogue: &Catalogue,
    ) -> Result<(), PlaceError> {
        if tables.is_empty() {
            return Ok(());
        }
        let mut new = connect(self.node, to).await?;
        new.query(SETTINGS).await?;
        new.query("BEGIN").await?;
        for table in tables {
            let donor = former.holders_of_all(&[*table]).iter().next().ok_or(PlaceError::NoDonor)?;
            let mut old = connect(self.node, donor).await?;
            let name = self.node.coordinator().table_name(*table);
            new.query(&format!("DELETE FROM ONLY {name}")).await?;
            copy_rows(old.exchange(), new.exchange(), &name).await?;
            for sequence in sequences(*table, catalogue) {
                let name = sequence_name(sequence);
                let state = old.query(&format!("SELECT last_value, is_called FROM {name}")).await?;
                let [Some(last), Some(is_called)] = state.first().map_or(&[][..], Vec::as_slice) else {
                    return Err(BackendError::Protocol("a sequence did not report its state").into());
                };
                let literal = name.replace('\'', "''");
                let set = format!(
                    "SELECT pg_catalog.setval('{literal}'::pg_catalog.regclass, {last}, '{is_called}')"
                );
                new.query(&set).await?;
            }
        }
        new.query("COMMIT").await?;
        Ok(())
    }

    /// Notes at a replica that it has everything in the log, so that it is known later whether it lacks anything.
    async fn mark(&self, replica: ReplicaId) -> Result<(), PlaceError> {
        let over = self.node.lock().appended;
        let mut connection = connect(self.node, replica).await?;
        Mark::at(connection.exchange()).note(over).await?;
        Ok(())
    }

    /// Deletes the rows of tables that a replica does not hold. It runs nothing else.
    pub(super) async fn forget_unheld(&self, replica: ReplicaId) -> Result<(), BackendError> {
        let placement = self.node.lock().scheduler.placement().clone();
        let coordinator = self.node.coordinator();
        let catalogue = coordinator.database.catalogue();
        if !placement.is_partial() {
            return Ok(());
        }
        let mut connection = connect(self.node, replica).await?;
        let mut sql = String::new();
        for (table, copies) in placement.restricted() {
            let is_held = copies.sets().any(|(_, holders)| holders.contains(replica));
            if is_held || catalogue.table(table).is_none() {
                continue;
            }
            let name = coordinator.table_name(table);
            if !connection.query(&a_row_sql(&name, "true")).await?.is_empty() {
                let _ = write!(sql, "DELETE FROM ONLY {name}; ");
            }
        }
        if !sql.is_empty() {
            connection.query(SETTINGS).await?;
            connection.query(&sql).await?;
        }
        Ok(())
    }

    /// Who holds which tables, without their sequences.
    pub(super) fn placement_of_tables(&self) -> Placement {
        let state = self.node.lock();
        let replicas = u16::try_from(state.replicas.len()).unwrap_or(u16::MAX);
        let mut placement = Placement::full(replicas);
        for (table, copies) in state.scheduler.placement().restricted() {
            if !is_sequence(table) {
                placement.restrict(table, copies.clone());
            }
        }
        placement
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

/// The sequences from which the columns of a table draw.
fn sequences(table: TableId, catalogue: &Catalogue) -> impl Iterator<Item = &Name> {
    let columns = catalogue.table(table).map_or(&[][..], |table| &table.columns);
    columns.iter().filter_map(|column| match &column.default {
        ColumnDefault::Sequence(name) => Some(name),
        _ => None,
    })
}

fn sequence_name(name: &Name) -> String {
    match &name.schema {
        Some(schema) => format!("{}.{}", quoted(schema), quoted(&name.name)),
        None => quoted(&name.name),
    }
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

/// Copies the rows of a table from one server to another, where it is empty.
async fn copy_rows(old: &mut Connection, new: &mut Connection, name: &str) -> Result<(), BackendError> {
    encode::query(&mut old.output, format!("COPY {name} TO STDOUT").as_bytes());
    old.flush().await?;
    encode::query(&mut new.output, format!("COPY {name} FROM STDIN").as_bytes());
    let mut failed = None;
    loop {
        let (kind, total) = old.message().await?;
        let body = &old.input.data()[frame::HEADER_BYTES..total];
        match kind {
            tag::COPY_DATA => encode::copy_data(&mut new.output, body),
            tag::ERROR_RESPONSE => failed = Some(BackendError::Server(body.to_vec())),
            _ => {}
        }
        old.input.consume(total);
        new.flush().await?;
        if kind == tag::READY_FOR_QUERY {
            break;
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    encode::copy_done(&mut new.output);
    new.flush().await?;
    new.drain().await.map(drop)
}
