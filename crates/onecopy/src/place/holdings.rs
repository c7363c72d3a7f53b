//! The tables that must be held where a transaction runs, if some replica holds only a part of the data.
//!
//! Example: after `PLACE TABLE audit ON replica-1, replica-2`, `INSERT INTO audit ..` begins at one of these two. A block that begins
//! with a SELECT of another table may begin anywhere, unless it was declared, or transactions like it went on with `audit`.
//! At REPEATABLE READ a block can not move later, so it begins where everything is held, unless its tables are predicted.
//!
//! The core has the last word ([`cluster::placement`]): a wrong prediction here costs time or 40001 only.
//!
//! Of a split table only the parts count whose rows the statement names: after `PLACE TABLE stock BY s_w_id`, a statement with
//! `s_w_id = 3` runs wherever the part of 3 is held.
//!
//! Invariant: no statement is sent to a replica that lacks a table which the statement may touch, since the copy there is empty.

use std::collections::BTreeSet;

use cluster::event::Reads;
use cluster::ids::TableId;
use cluster::placement::{Holdings, Touches};
use sql::Isolation;
use sql::accesses::Accesses;

use super::whole;
use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::transaction::open::Transaction;
use crate::transaction::update::Update;
use crate::transaction::view::View;

/// The tables of statements, against what replicas hold.
#[derive(Clone, Copy)]
pub(crate) struct HomeTables<'a> {
    view: View<'a>,
    analysis: &'a StatementAnalysis,
}

impl<'a> HomeTables<'a> {
    pub(crate) fn of(view: View<'a>, analysis: &'a StatementAnalysis) -> Self {
        Self { view, analysis }
    }

    /// Whether some replica holds only a part of the data.
    fn matter(self) -> bool {
        self.view.link.coordinator().view.is_partial()
    }

    /// The tables that must be held where the statements run. If all replicas hold everything, it does not matter.
    pub(crate) fn touched(self) -> Touches {
        if self.matter() { self.touches() } else { Touches::Anything }
    }

    /// The tables that the home of a transaction block must hold, as far as they can be foreseen.
    pub(super) fn of_block(self) -> Touches {
        let touched = self.touched();
        let Some(first) = touched.tables() else { return Touches::Anything };
        let together = whole::accesses_together(self.view);
        let predicted = together.or_else(|| self.view.prediction().map(|prediction| prediction.accesses));
        match predicted {
            Some(mut accesses) if accesses.unbounded.is_none() => {
                let tables = first.iter().copied().chain(tables_of(&accesses)).collect();
                // Without the rows of the first statement any part may be touched.
                let own = self.analysis.touched.as_deref().cloned();
                let all = own.map(|own| {
                    accesses.add(own);
                    accesses
                });
                self.view.link.coordinator().splits().touches(tables, all.as_ref())
            }
            _ if self.is_snapshot() => Touches::Anything,
            _ => touched,
        }
    }

    fn touches(self) -> Touches {
        self.analysis.touches(&self.view.link.coordinator().splits())
    }

    /// Whether the replica where the transaction is open lacks a table that the statements may touch.
    pub(crate) fn are_missing(self) -> bool {
        let Some(replica) = self.view.txn.open_at().filter(|_| self.matter()) else { return false };
        !self.view.link.coordinator().core.holdings(replica).hold(&self.touches())
    }

    /// The lines of EXPLAIN (ROUTING) about the replicas that hold what the statements touch.
    pub(crate) fn tell(self) -> Vec<String> {
        if !self.matter() {
            return Vec::new();
        }
        let coordinator = self.view.link.coordinator();
        let members: Vec<_> =
            coordinator.seats.iter().map(|seat| (seat, coordinator.core.holdings(seat.replica))).collect();
        let touches = self.touches();
        let held = members.iter().filter(|(_, holdings)| holdings.hold(&touches));
        let names: Vec<&str> = held.map(|(seat, _)| seat.name.as_str()).collect();
        let why = if touches == Touches::Anything { ", which hold everything" } else { "" };
        let mut lines = Vec::new();
        if let Touches::Parts { parts, .. } = &touches {
            let parts: Vec<String> = parts.iter().map(|part| part.to_string()).collect();
            lines.push(format!("parts       {}", parts.join(", ")));
        }
        lines.push(format!("held by     {}{why}", names.join(", ")));
        let written = self.analysis.written_tables();
        if !written.is_empty() {
            let takes = |(_, holdings): &&(_, Holdings)| takes(holdings, &written, &touches);
            let count = members.iter().filter(takes).count();
            lines.push(format!("travels to  {count} of {} replicas, its home included", members.len()));
        }
        lines
    }

    /// The reads of a query that can run beside the open transaction, at a replica that holds its tables: at READ COMMITTED each query
    /// sees what is committed when it begins, and the transaction itself has written none of it.
    pub(crate) fn reads_beside(self, requirements: &Requirements) -> Option<Reads> {
        let tables = self.analysis.access.as_ref().ok()?;
        let has_written =
            |update: &Update| tables.iter().any(|table| update.capture.record.tables().contains(table));
        let wrote = matches!(&self.view.txn.state, Transaction::Update(update) if has_written(update));
        let is_plain = self.analysis.is_movable_read(requirements) && self.view.link.settings.staged() == 0;
        (self.are_missing() && is_plain && !self.is_snapshot() && !wrote)
            .then(|| self.analysis.spread_reads(tables))
    }

    fn is_snapshot(self) -> bool {
        self.view.open_options().and_then(|options| options.isolation) >= Some(Isolation::RepeatableRead)
    }
}

/// Whether a replica takes rows of these tables, if they are in the parts that are touched.
fn takes(holdings: &Holdings, written: &BTreeSet<TableId>, touches: &Touches) -> bool {
    let holds_some = |table: &TableId| match touches {
        Touches::Parts { parts, .. } if holdings.split(*table).is_some() => {
            parts.iter().any(|part| holdings.holds_row(*table, Some(part)))
        }
        _ => holdings.holds_row(*table, None),
    };
    written.iter().any(holds_some)
}

/// The tables of which something is read, written, claimed or locked.
fn tables_of(accesses: &Accesses) -> impl Iterator<Item = TableId> {
    let rows = accesses.reads.iter().chain(&accesses.writes).map(|access| access.table);
    let claims = accesses.claims.iter().map(|claim| claim.table);
    rows.chain(claims).chain(accesses.locks.iter().map(|lock| lock.table))
}
