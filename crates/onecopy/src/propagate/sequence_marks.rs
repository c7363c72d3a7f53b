//! Marks in the record for the values that a transaction drew from sequences.
//!
//! No captured row shows that a sequence moved, and a crash of the home can take the move back. So a transaction that
//! may have drawn values asks at its end for the positions of its sequences. It adds a mark to its record where no
//! durable mark covers a position (`cluster::parts::sequences`). A transaction without any other change leaves a
//! record just for the mark. The question goes with the insert of the identity, if there is one. The tables that
//! statements write tell which sequences may have been used; where they are not known, the home names the sequences.
//!
//! Values of a transaction that did not commit may be drawn again after a crash, as on one PostgreSQL.

use std::collections::BTreeSet;

use cluster::ids::{ReplicaId, SequenceId};
use cluster::parts::sequences::{Draw, Reading, State, Verdict};
use wire::sqlstate;

use crate::capture::sequences::{STATES_CALL, put_sql};
use crate::error::{Fault, Refusal, broken};
use crate::propagate::Recorder;
use crate::propagate::table_rewrite::recorded_text;
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

/// How often to read the sequences again when other sessions set them back at the same moment.
const READINGS_MAX: u32 = 100;

impl View<'_> {
    /// Notes about how many more values than expected a transaction used of its leases.
    pub(crate) fn use_lease(self, ids: &BTreeSet<SequenceId>, replica: ReplicaId, values: u32) {
        if values == 0 {
            return;
        }
        let mut sequences = self.link.database().sequences();
        for id in ids {
            drop(sequences.leases.ask(*id, replica, values));
        }
        drop(sequences);
        self.link.coordinator().sequences.request();
    }

    /// Whether the open update transaction is at the anchor, where sequences count.
    pub(crate) fn is_at_anchor(self) -> bool {
        matches!(&self.txn.state, Transaction::Update(update) if update.replica == self.link.anchor())
    }
}

impl Recorder<'_> {
    /// Notes the tables whose rows were captured. Returns whether the transaction may have drawn from their sequences.
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

    /// Checks the draws of an open update transaction away from the anchor. Marks cover its leases already. Rejects a
    /// transaction that may have drawn more than its leases.
    pub(crate) async fn check_leases(&mut self) -> Result<(), Fault> {
        let Transaction::Update(update) = &self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        if update.sequences.is_leased
            && let Some(ids) = update.sequences.known()
            && !self.link.coordinator().core.voids_lent(update.generation).await
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

    /// Finds the marks that the record needs for the sequences of the open update transaction. `has_record` is false
    /// if the transaction leaves a record only for marks.
    pub(crate) async fn mark_sequences(&mut self, has_record: bool) -> Result<(), Fault> {
        if self.txn.sequences()?.is_marked() {
            return Ok(());
        }
        for _ in 0..READINGS_MAX {
            let (reading, states) = match self.txn.sequences()?.take_answer() {
                Some(told) => told,
                None => self.read_sequences().await?,
            };
            if self.judge_sequences(reading, states, has_record).await? {
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

    /// Records the positions of sequences before a schema change that has run here. Elsewhere they stand at their
    /// marks, which are ahead of the positions, and maybe beyond the new bounds.
    pub(crate) async fn record_positions(&mut self) -> Result<(), Fault> {
        let states = self.driver().own_text(&format!("SELECT {STATES_CALL}(NULL)")).await?;
        if states.is_empty() {
            return Ok(());
        }
        self.txn.push_statement(&recorded_text(put_sql(&states)))
    }

    async fn read_sequences(&mut self) -> Result<(Reading, Vec<State>), Fault> {
        let reading = self.link.coordinator().core.sequence_reading();
        let query = self.txn.sequences()?.query();
        let ended = self.driver().own_query(&query).await?;
        let answer = ended.row.and_then(|row| row.into_iter().next().flatten()).unwrap_or_default();
        let database = self.link.coordinator().database.served.id;
        let drawn = self.txn.sequences()?;
        drawn.tell(reading, &answer, database)?;
        drawn.take_answer().ok_or_else(|| broken("what was told is gone"))
    }

    /// Whether the record has its marks; otherwise the sequences must be read again.
    async fn judge_sequences(
        &mut self,
        reading: Reading,
        states: Vec<State>,
        has_record: bool,
    ) -> Result<bool, Fault> {
        let Transaction::Update(update) = &mut self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        let (holder, is_unknown) = (update.replica, update.sequences.known().is_none());
        let voids_leases = is_unknown && update.sequences.may_have_set();
        if is_unknown {
            self.link.servers.drew_at(holder, !states.is_empty());
        }
        let is_set = update.sequences.take_set();
        let draw = Draw { holder, reading, states, is_set, voids_leases, has_record };
        match self.link.worker.coordinator.core.judge_draw(draw).await {
            Some(Verdict::ReadAgain) => Ok(false),
            Some(Verdict::Add(marks)) => {
                self.txn.sequences()?.mark(marks);
                Ok(true)
            }
            // With the leader the transaction is lost, too.
            None => Err(Fault::Lost(holder)),
        }
    }
}
