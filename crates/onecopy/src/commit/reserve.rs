//! Reserves rows that an update transaction has written without a reservation.
//!
//! Once the rows are known we reserve them. If another home holds one, the transaction waits or ends with 40001.

use cluster::claims::{Claims, ROW_CLAIMS_MAX};
use cluster::event::{AbortCause, Effect, Event, Reads, Rival};
use cluster::placement::Touches;
use cluster::record::Mark;

use crate::commit::Committer;
use crate::error::{Fault, broken};
use crate::transaction::open::Transaction;
use crate::transaction::update::Boundary;
use crate::transaction::view::View;
use crate::writeset::claims::ClaimsSoFar;

/// The core always distinguishes fewer rows than this.
const LONG_ROWS_MIN: u64 = 64;

/// A query whose answer proves that the home is alive.
const ALIVE: &str = "SELECT";

impl View<'_> {
    /// Whether the core will not distinguish the rows of the transaction, because they are too many. A row without keys
    /// and references counts as `keyless` claims.
    pub(crate) fn has_many_rows(self, keyless: usize) -> bool {
        let Transaction::Update(update) = &self.txn.state else { return false };
        let rows = update.capture.record.rows();
        if rows < LONG_ROWS_MIN {
            return false;
        }
        let catalogue = self.link.database().catalogue();
        let claims_of = |table: &sql::Table| table.keys.len() + table.references.len();
        let tables = update.capture.record.tables().iter().filter_map(|id| catalogue.table(*id));
        let a_row = tables.map(claims_of).max().unwrap_or_default().max(keyless) as u64;
        rows * a_row * 2 >= ROW_CLAIMS_MAX as u64
    }
}

impl Committer<'_> {
    /// Reserves unreserved writes before the record goes to the core. Otherwise a transaction that has reserved the
    /// same rows would lose them.
    ///
    /// If another home holds a row, a single statement is rolled back and retried. A transaction waits for the other
    /// one, and goes on if that rolls back. A transaction with very many rows reserves whole tables. The core would not
    /// distinguish its rows, and would abort every other writer of these tables (40001).
    pub(crate) async fn reserve_unreserved(&mut self) -> Result<(), Fault> {
        let Transaction::Update(update) = &mut self.txn.state else { return Ok(()) };
        let has_unreserved_writes = std::mem::take(&mut update.has_unreserved_writes);
        let (is_alone, home) = (
            has_unreserved_writes && update.boundary == Boundary::Statement && !self.link.client.shown,
            update.replica,
        );
        match self.reserve_written_since(Mark::default()).await? {
            None => Ok(()),
            Some((rival, written)) if is_alone => {
                self.txn.retry_hints.unreserved = written;
                Err(self.view().aborted(AbortCause::Conflict(rival), home))
            }
            Some((_, written)) => {
                let touches = Touches::Tables([].into());
                self.driver().gate(Reads::Tables([].into()), touches, written, false).await?;
                self.link.executed();
                // The home has applied the versions that the transaction waited for. After that the home has to prove
                // that it is alive (see certification in `cluster`).
                self.driver().own_query(ALIVE).await?;
                Ok(())
            }
        }
    }

    /// Reserves the rows written since the mark. `None` if the transaction holds them now; otherwise the other holder,
    /// and the rows to reserve.
    pub(crate) async fn reserve_written_since(
        &mut self,
        mark: Mark,
    ) -> Result<Option<(Rival, Claims)>, Fault> {
        let catalogue = self.link.database().catalogue();
        let Transaction::Update(update) = &mut self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        let (nonce, record) = (update.identity.nonce, &mut update.capture.record);
        let (claims, held) = match record.rows_since(mark) {
            Some(rows) => ClaimsSoFar::of_rows(nonce, rows, &catalogue),
            None => (Claims { tables: record.tables().to_vec(), ..Claims::default() }, Claims::default()),
        };
        let mut written = claims.clone();
        written.add(&held);
        let event = Event::ReserveLate { session: self.link.id, claims, held };
        let (core, mailbox) = (&self.link.worker.coordinator.core, &self.link.session_registration.mailbox);
        let answer = core.ask_and_wait(self.link.id, mailbox, event).await;
        if let Some(Effect::LateReservation { rival, .. }) = answer {
            return Ok(rival.map(|rival| (rival, written)));
        }
        if self.driver().is_recalled() {
            return Err(self.driver().follow_recall().await);
        }
        // The core has ended the transaction.
        let cause = self.driver().why_aborted();
        let fault = cause
            .map_or(Fault::Lost(self.txn.last_home), |cause| self.view().aborted(cause, self.txn.last_home));
        self.driver().step_back().await;
        Err(fault)
    }
}
