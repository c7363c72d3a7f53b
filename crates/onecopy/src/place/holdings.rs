//! The tables that must be held where a transaction runs, if some replica holds only a part of the data.
//!
//! Example: after `PLACE TABLE audit ON replica-1, replica-2`, `INSERT INTO audit ..` begins at one of these two. A block that begins
//! with a SELECT of another table may begin anywhere, unless it was declared, or transactions like it went on with `audit`.
//! At REPEATABLE READ a block can not move later, so it begins where everything is held, unless its tables are predicted.
//!
//! The core has the last word ([`cluster::placement`]): a wrong prediction here costs time or 40001 only.
//!
//! Invariant: no statement is sent to a replica that lacks a table which the statement may touch, since the copy there is empty.

use std::collections::BTreeSet;

use cluster::event::Reads;
use cluster::ids::TableId;
use cluster::placement::Touches;
use sql::Isolation;
use sql::accesses::Accesses;

use super::whole;
use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::transaction::open::Transaction;
use crate::transaction::update::Update;
use crate::transaction::view::View;

impl View<'_> {
    /// Whether some replica holds only a part of the data.
    pub(crate) fn is_partial(self) -> bool {
        self.link.coordinator().view.is_partial()
    }

    /// The tables that the home of a transaction must hold which these statements are all of, or begin.
    pub(super) fn touches(self, analysis: &StatementAnalysis) -> Touches {
        if self.is_partial() { analysis.touches() } else { Touches::Anything }
    }

    /// The tables that the home of a transaction block must hold, as far as they can be foreseen.
    pub(super) fn touches_of_block(self, analysis: &StatementAnalysis) -> Touches {
        let Touches::Tables(first) = self.touches(analysis) else { return Touches::Anything };
        let together = whole::accesses_together(self);
        let predicted = together.or_else(|| self.prediction().map(|prediction| prediction.accesses));
        let is_snapshot =
            self.open_options().and_then(|options| options.isolation) >= Some(Isolation::RepeatableRead);
        match predicted {
            Some(accesses) if accesses.unbounded.is_none() => {
                let tables: BTreeSet<TableId> = first.iter().copied().chain(tables_of(&accesses)).collect();
                Touches::Tables(tables.into_iter().collect())
            }
            _ if is_snapshot => Touches::Anything,
            _ => Touches::Tables(first),
        }
    }

    /// Whether the replica where the transaction is open lacks a table that the statements may touch.
    pub(crate) fn lacks_table(self, analysis: &StatementAnalysis) -> bool {
        if !self.is_partial() {
            return false;
        }
        let (Transaction::Update(_) | Transaction::Read(_)) = &self.txn.state else { return false };
        let Some(replica) = self.txn.open_at() else { return false };
        let holdings = self.link.coordinator().core.holdings(replica);
        match analysis.touches() {
            Touches::Anything => !holdings.is_everything(),
            Touches::Tables(tables) => !tables.iter().all(|table| holdings.holds(*table)),
        }
    }

    /// The reads of a query that can run beside the open transaction, at a replica that holds its tables: at READ COMMITTED each query
    /// sees what is committed when it begins, and the transaction itself has written none of it.
    pub(crate) fn reads_beside(
        self,
        requirements: &Requirements,
        analysis: &StatementAnalysis,
    ) -> Option<Reads> {
        let tables = analysis.access.as_ref().ok()?;
        let is_snapshot =
            self.open_options().and_then(|options| options.isolation) >= Some(Isolation::RepeatableRead);
        let has_written =
            |update: &Update| tables.iter().any(|table| update.capture.record.tables().contains(table));
        let wrote = matches!(&self.txn.state, Transaction::Update(update) if has_written(update));
        let is_plain = analysis.is_movable_read(requirements) && self.link.settings.staged() == 0;
        (self.lacks_table(analysis) && is_plain && !is_snapshot && !wrote)
            .then(|| analysis.spread_reads(tables))
    }
}

/// The tables of which something is read, written, claimed or locked.
fn tables_of(accesses: &Accesses) -> impl Iterator<Item = TableId> {
    let rows = accesses.reads.iter().chain(&accesses.writes).map(|access| access.table);
    let claims = accesses.claims.iter().map(|claim| claim.table);
    rows.chain(claims).chain(accesses.locks.iter().map(|lock| lock.table))
}
