//! Stage *propagate*: completes the record of a transaction at its home.
//!
//! Row changes arrive with the statements ([`crate::writeset`]). Before the commit [`subtransactions`] removes rows
//! that the server has rolled back, [`uncaptured_writes`] rejects writes that no trigger saw, [`sequence_marks`] adds
//! the positions of sequences, and [`table_rewrite`] the rows that schema changes have written.
//! `new_placement` says which replicas hold a new table.

mod new_placement;
pub(crate) mod sequence_marks;
pub(crate) mod subtransactions;
pub(crate) mod table_rewrite;
pub(crate) mod uncaptured_writes;

use std::pin::pin;

use crate::drive::Driver;
use crate::error::{Fault, broken};
use crate::logging::{in_stage, stage_span};
use crate::transaction::open::Transaction;
use crate::transaction::stage::stage;

stage! {
    /// Completes the record of the open transaction at its home.
    Recorder calls { driver: Driver }
}

/// The traces of the open update transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survey {
    /// The transaction has to leave a record, whether or not it drew from sequences.
    pub(crate) leaves_record: bool,
    /// It drew from sequences, and a mark has to cover that.
    pub(crate) draws: bool,
}

impl Recorder<'_> {
    /// Finds the traces of the open update transaction. Writes that cannot be replicated are rejected.
    pub(crate) async fn survey(&mut self) -> Result<Survey, Fault> {
        let stage = pin!(async move {
            let Transaction::Update(update) = &self.txn.state else {
                return Err(broken("no update transaction is open"));
            };
            let has_rows = !update.capture.record.is_empty();
            let must_ask = update.unseen.must_ask_home(has_rows);
            let leaves_record = if must_ask { self.check_uncaptured().await? } else { has_rows };
            let leaves_record = leaves_record || self.txn.must_certify();
            let mut draws = self.note_drawing()?;
            if draws && !self.view().is_at_anchor() {
                self.check_leases().await?;
                draws = false;
            }
            if !leaves_record && draws {
                self.mark_sequences(false).await?;
            }
            Ok(Survey { leaves_record, draws })
        });
        in_stage(stage_span!("propagate"), stage).await
    }

    /// Completes the record of the open update transaction, the last step that can fail before the record goes to the
    /// log.
    pub(crate) async fn complete_record(&mut self, draws: bool) -> Result<(), Fault> {
        let stage = pin!(async move {
            if let Transaction::Update(update) = &self.txn.state
                && (update.capture.broken.is_some() || update.capture.runs.has_nested())
            {
                self.check_capture().await?;
            }
            self.settle_placement().await?;
            // The home may have become the anchor meanwhile.
            if draws || (self.view().is_at_anchor() && self.note_drawing()?) {
                self.mark_sequences(true).await?;
            }
            let Transaction::Update(update) = &mut self.txn.state else {
                return Err(broken("the update transaction is gone"));
            };
            update.preparation.has_file = update.capture.hand_over().await?;
            // Marks stay out of the file, since the core looks at them when it orders the record.
            let mut marks = update.sequences.take_marks();
            if update.replica == self.link.worker.coordinator.view.anchor() {
                marks.append(&mut self.link.worker.coordinator.wanted_marks());
            }
            for mark in marks {
                update
                    .capture
                    .record
                    .push_sequence(&mark)
                    .map_err(|_| broken("a mark is too long for a record"))?;
            }
            tracing::debug!(rows = update.capture.record.rows(), "the record is complete");
            Ok(())
        });
        in_stage(stage_span!("propagate"), stage).await
    }
}
