//! A schema change in a cluster where some replica holds only a part of the data.
//!
//! Every replica runs the schema change, and checks a new foreign key in its own rows. So what is to be held together must stay so
//! ([`crate::membership::place_table`]). A new table that refers to a placed one is placed like it, before its record
//! goes to the log: no session knows it yet. Any other breach ends the transaction.
//!
//! A table that matches a rule of the configuration is placed by that rule. Each rule leaves a replica that can hold everything, but the
//! anchor may be another one at the time. The transaction has its rows at the anchor, and an anchor holds everything. So the new table
//! is refused then.
//!
//! Example: after `PLACE TABLE orders ON a, b`, `CREATE TABLE line (.. REFERENCES orders)` places `line` on a and b.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::ids::{TableId, Version};
use cluster::placement::{Copies, ReplicaSet};
use commitlog::RegisterError;
use wire::sqlstate;

use crate::coordinator::node_kind::NewTable;
use crate::coordinator::placement_file::PlacementError;
use crate::error::{Fault, Refusal, broken, register_sqlstate};
use crate::membership::place_table::closure;
use crate::propagate::Recorder;
use crate::transaction::open::Transaction;

impl Recorder<'_> {
    /// Places new tables, and refuses a schema change after which a table would not be held where it is needed.
    pub(super) async fn settle_placement(&mut self) -> Result<(), Fault> {
        if !self.txn.has_ddl() {
            return Ok(());
        }
        let coordinator = Arc::clone(&self.link.worker.coordinator);
        let (database, catalogue) = (coordinator.database.served.id, coordinator.database.catalogue());
        let everyone: ReplicaSet = coordinator.seats.iter().map(|seat| seat.replica).collect();
        let by_rule = |table: NewTable<'_>| coordinator.kind.holders_of_new(&coordinator, table);
        if !coordinator.view.is_partial() && !coordinator.kind.places_new() {
            return Ok(());
        }
        self.refuse_split_rows()?;
        let row = self.driver().own_query(closure::HELD_TOGETHER_SQL).await?.row.unwrap_or_default();
        let told = row.into_iter().next().flatten().unwrap_or_default();
        // By an old catalogue a table may seem new that sessions know already.
        let is_recent = !coordinator.view.is_outdated(Version(catalogue.generation()));
        let is_new = |table: TableId| is_recent && catalogue.table(table).is_none();
        let held = |table: TableId| coordinator.core.copies(table);
        let misread = |_| broken("what must be held together cannot be read");
        let has_rows = |table: TableId| self.written().contains(&table);
        let rules =
            closure::Rules { is_new: &is_new, by_rule: &by_rule, may_be_split: &|table| !has_rows(table) };
        let new = closure::of_new_tables(&told, database, &rules, everyone, held).map_err(misread)?;
        let after = |table: TableId| new.get(&table).cloned().unwrap_or_else(|| held(table));
        if let Some(breach) = closure::breach(&told, database, everyone, after).map_err(misread)? {
            let text = format!("this schema change is not possible as the tables are placed: {breach}");
            return Err(Refusal::new(sqlstate::FEATURE_NOT_SUPPORTED, text, breach.hint()).into());
        }
        let anchor = coordinator.view.anchor();
        if new.values().any(|copies| !copies.of_all_rows(everyone).contains(anchor)) {
            return Err(not_at_anchor(&coordinator.seats[anchor].name).into());
        }
        self.place_new(&new).await
    }

    /// The tables with captured rows.
    fn written(&self) -> &[TableId] {
        match &self.txn.state {
            Transaction::Update(update) => update.capture.record.tables(),
            _ => &[],
        }
    }

    /// The columns of a table may stand elsewhere after a schema change, so rows of split tables would go to wrong parts.
    fn refuse_split_rows(&self) -> Result<(), Fault> {
        let Transaction::Update(update) = &self.txn.state else { return Ok(()) };
        let Some(table) = update.capture.split_tables().next() else { return Ok(()) };
        let name = self.link.coordinator().table_name(table);
        let text = format!(
            "a transaction that changes the schema cannot change rows of {name}, whose rows are placed by the value of a column"
        );
        let hint = "Commit the schema change by itself. If it computes the rows itself, run PLACE TABLE .. EVERYWHERE first.";
        Err(Refusal::new(sqlstate::FEATURE_NOT_SUPPORTED, text, hint).into())
    }

    async fn place_new(&self, new: &BTreeMap<TableId, Copies>) -> Result<(), Fault> {
        if new.is_empty() {
            return Ok(());
        }
        let leader = self.link.worker.leading.must_lead()?;
        for (table, copies) in new {
            leader.place(*table, copies).await.map_err(|error| {
                tracing::error!(%error, "a new table could not be placed");
                let state = match &error {
                    PlacementError::Register(RegisterError::Io { .. }) | PlacementError::Damaged { .. } => {
                        sqlstate::IO_ERROR
                    }
                    PlacementError::Register(error) => register_sqlstate(error),
                };
                Refusal::new(
                    state,
                    format!("what each replica holds cannot be written: {error}"),
                    "Nothing has changed. When the cause is removed, run it again.",
                )
            })?;
        }
        Ok(())
    }
}

/// The anchor does not hold a new table, as the rules for new ones say.
fn not_at_anchor(anchor: &str) -> Refusal {
    Refusal::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!(
            "[placement] of the configuration does not let {anchor} hold this table, and {anchor} is the anchor, which holds every table"
        ),
        format!(
            "DRAIN REPLICA {anchor} makes another replica the anchor, UNDRAIN REPLICA lets it serve again; or name {anchor} in the list."
        ),
    )
}
