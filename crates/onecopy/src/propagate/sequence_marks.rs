//! What a transaction has drawn from sequences, and the marks that its record needs for that.
//!
//! A sequence's move is in no captured row, and a crash of the home can take it back. So a transaction that may have drawn
//! asks, at its end, how far the sequences are that it touched, and adds a mark to its record where the log has none that
//! covers that (`cluster::parts::sequences`); one without any other change leaves a record just for it. The question goes
//! with the insert of the identity where there is one. Which statements may draw is told by the tables that they write;
//! where that is not known, the home says which sequences it has touched.
//!
//! What was drawn by a transaction that did not commit may be drawn again after a crash, as on one PostgreSQL.

use std::collections::BTreeSet;

use cluster::ids::{ReplicaId, SequenceId};
use cluster::parts::sequences::{Question, Reading, State, Verdict};
use wire::sqlstate;

use crate::capture::sequences::{STATES_CALL, put_sql};
use crate::error::{Fault, Refusal, broken};
use crate::propagate::Recorder;
use crate::propagate::table_rewrite::recorded_text;
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

/// So often the sequences are read again because others set them back at that moment.
const READINGS_MAX: u32 = 100;

impl View<'_> {
    /// So many more values than were asked for were used up, about.
    pub(crate) fn use_lease(self, ids: &BTreeSet<SequenceId>, replica: ReplicaId, values: u32) {
        if values == 0 {
            return;
        }
        let mut sequences = self.link.database().sequences();
        for id in ids {
            drop(sequences.leases.ask(*id, replica, values));
        }
        drop(sequences);
        self.link.coordinator().lending.notify_one();
    }

    /// Whether the open update transaction is where sequences count.
    pub(crate) fn is_at_anchor(self) -> bool {
        matches!(&self.txn.state, Transaction::Update(update) if update.replica == self.link.anchor())
    }
}

impl Recorder<'_> {
    /// Notes the tables that rows were captured of: whether the transaction may have drawn.
    pub(crate) fn note_drawing(&mut self) -> Result<bool, Fault> {
        let catalogue = self.link.database().catalogue();
        let Transaction::Update(update) = &mut self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        for table in update.capture.record.tables() {
            update.sequences.written(*table, &catalogue);
        }
        Ok(update.sequences.is_any() && update.options.read_only != Some(true))
    }

    /// Checks what the open update transaction drew away from the anchor. Marks cover its leases already. A transaction that
    /// may have drawn more than its leases is refused.
    pub(crate) async fn check_leases(&mut self) -> Result<(), Fault> {
        let Transaction::Update(update) = &self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        if update.sequences.is_leased
            && let Some(ids) = update.sequences.known()
            && !self.link.coordinator().voids_lent(update.generation)
        {
            let rows = u32::try_from(update.capture.record.rows()).unwrap_or(u32::MAX);
            self.view().use_lease(ids, update.replica, rows.saturating_sub(1));
            return Ok(());
        }
        let (_, states) = match self.txn.sequences()?.take_answer() {
            Some(told) => told,
            None => self.read_all_sequences().await?,
        };
        if states.is_empty() && self.txn.sequences()?.known().is_none() {
            return Ok(());
        }
        Err(Fault::Rival(Refusal::retry(
            "the transaction drew from a sequence at a replica while the schema or the anchor changed",
        )))
    }

    async fn read_all_sequences(&mut self) -> Result<(Reading, Vec<State>), Fault> {
        self.txn.sequences()?.may_set_any();
        self.read_sequences().await
    }

    /// Finds the marks that the record of the open update transaction needs for what it has drawn. It leaves a record only
    /// for them, unless it has one in any case.
    pub(crate) async fn mark_sequences(&mut self, has_record: bool) -> Result<(), Fault> {
        if self.txn.sequences()?.is_marked() {
            return Ok(());
        }
        for _ in 0..READINGS_MAX {
            let (reading, states) = match self.txn.sequences()?.take_answer() {
                Some(told) => told,
                None => self.read_sequences().await?,
            };
            if self.judge_sequences(reading, &states, has_record)? {
                return Ok(());
            }
        }
        Err(Refusal::new(
            sqlstate::SERIALIZATION_FAILURE,
            "the sequences that the transaction has drawn from are set again and again",
            "Repeat the transaction.",
        )
        .into())
    }

    /// To be recorded before a schema change that has run here: elsewhere sequences stand at marks, ahead of what was drawn,
    /// and maybe beyond the bounds that they are about to get.
    pub(crate) async fn record_positions(&mut self) -> Result<(), Fault> {
        let states = self.driver().own_text(&format!("SELECT {STATES_CALL}(NULL)")).await?;
        if states.is_empty() {
            return Ok(());
        }
        self.txn.push_statement(&recorded_text(put_sql(&states)))
    }

    async fn read_sequences(&mut self) -> Result<(Reading, Vec<State>), Fault> {
        let reading = self.link.database().sequences().reading();
        let query = self.txn.sequences()?.query();
        let ended = self.driver().own_query(&query).await?;
        let answer = ended.row.and_then(|row| row.into_iter().next().flatten()).unwrap_or_default();
        let drawn = self.txn.sequences()?;
        drawn.tell(reading, &answer)?;
        drawn.take_answer().ok_or_else(|| broken("what was told is gone"))
    }

    /// Whether the record has what it needs; if not, the sequences must be read again.
    fn judge_sequences(
        &mut self,
        reading: Reading,
        states: &[State],
        has_record: bool,
    ) -> Result<bool, Fault> {
        let Transaction::Update(update) = &mut self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        let coordinator = &self.link.worker.coordinator;
        let durable = coordinator.log.durable();
        let mut sequences = coordinator.database.sequences();
        if update.sequences.known().is_none() {
            if update.sequences.may_have_set() {
                for state in states {
                    sequences.leases.void(state.id);
                }
            }
            self.link.servers.drew_at(update.replica, !states.is_empty());
        }
        let is_exact = update.sequences.take_set();
        if is_exact && sequences.set(states) {
            return Ok(false);
        }
        let holder = update.replica;
        match sequences.judge(Question { holder, reading, states, is_exact, has_record, durable }) {
            Verdict::ReadAgain => Ok(false),
            Verdict::Add(marks) => {
                update.sequences.mark(marks);
                Ok(true)
            }
        }
    }
}
