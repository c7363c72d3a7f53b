//! The captured changes of the open update transaction, in bounded memory.
//!
//! Rows arrive as notices while Onecopy relays a reply, and are added to the record. When the record is too large,
//! its rows are spilled as a chunk beside the log, and only their claims stay in memory. Meanwhile nothing more is
//! read from the server, so the server slows down to the pace of the disk.
//!
//! Invariant: code that adds to the record calls [`Capture::make_room`] before it adds much more. If that fails, the
//! transaction must be rolled back.

pub(crate) mod claims;
pub(crate) mod replay_chunks;
pub(crate) mod runs;
pub(crate) mod spill;
mod truncates;

use std::sync::Arc;

use cluster::ids::{Identity, TableId, Version};
use cluster::record::{RecordBuilder, Span};
use wire::backend::Fields;
use wire::sqlstate;

use crate::capture::{Captured, Decoder, Operation};
use crate::coordinator::Coordinator;
use crate::coordinator::splits::Splits;
use crate::error::{Fault, Refusal};
use crate::local::memory_budget::{Phase, Progress};
use claims::ClaimsSoFar;
use replay_chunks::ReplayOrder;
use runs::Runs;
use spill::Spill;
use truncates::Truncates;

#[derive(Debug)]
pub(crate) struct Capture {
    /// The record so far.
    pub(crate) record: RecordBuilder,
    pub(crate) runs: Runs,
    pub(crate) truncates: Truncates,
    /// OIDs of the tables that the present schema change has rewritten.
    pub(crate) rewritten: Vec<u32>,
    /// The reason why the transaction cannot be replicated.
    pub(crate) broken: Option<Captured>,
    /// The oldest catalogue that any conclusion is based on.
    pub(crate) generation: Version,
    /// The claims so far, without rows that are still in memory.
    pub(crate) claims: ClaimsSoFar,
    replay_order: ReplayOrder,
    spill: Spill,
    decoder: Decoder,
    splits: Arc<Splits>,
}

impl Capture {
    pub(crate) fn new(coordinator: Arc<Coordinator>, identity: Identity, progress: Arc<Progress>) -> Self {
        let mut record = RecordBuilder::new(coordinator.database.served.id);
        // The edition is no newer than the splits, so a table that is split in between is found.
        record.set_edition(coordinator.view.edition());
        let splits = coordinator.splits();
        Self {
            record,
            runs: Runs::default(),
            truncates: Truncates::default(),
            rewritten: Vec::new(),
            broken: None,
            generation: Version(u64::MAX),
            claims: ClaimsSoFar::new(identity.nonce),
            replay_order: ReplayOrder::default(),
            spill: Spill::new(coordinator, identity, progress),
            decoder: Decoder::default(),
            splits,
        }
    }

    /// Takes a notice; `true` if capture raised it.
    pub(crate) fn take(&mut self, body: &[u8]) -> bool {
        let element = self.record.elements();
        match self.decoder.capture(Fields::new(body), self.splits.as_ref(), &mut self.record) {
            Captured::NotOurs => return false,
            Captured::Row { table, xid, nested, operation } => {
                if nested && matches!(operation, Operation::Update | Operation::Delete) {
                    self.replay_order.note_nested(table);
                }
                self.truncates.note(table, nested, operation);
                self.note_split(table);
                self.note_run(element, xid, nested, operation == Operation::Delete);
            }
            Captured::Rewritten(oid) => self.rewritten.push(oid),
            broken => self.broken = Some(broken),
        }
        true
    }

    /// Takes a row that a query of Onecopy's own has read: one column, the row's image. `xid` is the transaction's
    /// id.
    pub(crate) fn take_row(&mut self, table: TableId, xid: u32, body: &[u8]) {
        let element = self.record.elements();
        let row = wire::backend::data_row(body).ok();
        let image = row.and_then(|row| row.into_iter().next().flatten());
        match image.map_or(Captured::Malformed, |image| {
            self.decoder.row(table, image, self.splits.as_ref(), &mut self.record)
        }) {
            Captured::Row { .. } => self.note_run(element, xid, false, false),
            broken => self.broken = Some(broken),
        }
    }

    /// The parts of a table's rows were told by the catalogue of the splits.
    fn note_split(&mut self, table: TableId) {
        if self.splits.has(table) {
            self.generation = self.generation.min(Version(self.splits.generation()));
        }
    }

    /// The tables with captured rows that are split.
    pub(crate) fn split_tables(&self) -> impl Iterator<Item = TableId> {
        self.record.tables().iter().copied().filter(|table| self.splits.has(*table))
    }

    /// Notes that the elements from this one on are new.
    fn note_run(&mut self, from: u64, xid: u32, is_nested: bool, is_delete: bool) {
        self.runs.add(Span { from, to: self.record.elements() }, xid, is_nested, is_delete);
    }

    /// Spills rows if too many are in memory. Call it after adding rows. After an error the transaction must be
    /// rolled back.
    pub(crate) async fn make_room(&mut self) -> Result<(), Fault> {
        let held_bytes = self.record.len_bytes();
        self.spill.count(held_bytes);
        self.spill.show(&self.record);
        self.check_limits()?;
        if self.spill.coordinator.local.memory_budget.is_too_much(held_bytes) {
            self.spill.progress.set_phase(Phase::Spilling);
            self.write_chunk().await?;
            self.spill.progress.set_phase(Phase::Open);
            self.spill.show(&self.record);
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), Fault> {
        let limit_bytes = self.spill.coordinator.local.memory_budget.limit_bytes();
        let captured_bytes = self.record.spilled_bytes() + self.record.len_bytes() as u64;
        if captured_bytes > limit_bytes || self.broken == Some(Captured::TooLarge) {
            return Err(Fault::Refused(Refusal::new(
                sqlstate::CONFIGURATION_LIMIT_EXCEEDED,
                format!(
                    "the changes of the transaction take more than the limit of {} MB",
                    limit_bytes.div_ceil(1 << 20)
                ),
                "Split it into smaller transactions, or start onecopy up with a higher --transaction-max-mb.",
            )));
        }
        if self.runs.are_too_many() {
            return Err(Fault::Refused(Refusal::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "too many subtransactions have written rows in one transaction",
                "Use fewer exception blocks in one transaction.",
            )));
        }
        Ok(())
    }

    async fn write_chunk(&mut self) -> Result<(), Fault> {
        let Some(chunk) = self.record.spill() else { return Ok(()) };
        // The order of its rows depends on the catalogue, so the catalogue must be the present one.
        let Some(catalogue) = self.spill.coordinator.fresh_catalogue().await else {
            self.broken = Some(Captured::TooLarge);
            return Err(Fault::Lost(self.spill.coordinator.view.anchor()));
        };
        self.generation = self.generation.min(Version(catalogue.generation()));
        self.claims.add_rows(chunk.row_changes(), self.record.elements(), &catalogue);
        if let Err(refusal) = self.replay_order.follow(chunk.row_changes(), &catalogue) {
            self.broken = Some(Captured::TooLarge);
            return Err(refusal.into());
        }
        let written = self.spill.write(chunk).await;
        if written.is_err() {
            // The rows are lost, so the transaction can no longer commit.
            self.broken = Some(Captured::TooLarge);
        }
        written
    }

    /// Makes spilled rows durable and gives them to the log. This must be the last step that can fail. Then the
    /// caller must append the record or call [`spill::forget_spilled`]. `false` if nothing was spilled.
    pub(crate) async fn hand_over(&mut self) -> Result<bool, Fault> {
        // The last chunk, unless it is the only one.
        if self.spill.has_begun() {
            self.write_chunk().await?;
        }
        self.spill.hand_over().await
    }
}

/// The error for changes that do not fit into a record. Usually it is reported when the rows arrive. This one is for
/// a client that goes on regardless, and for a single statement that is longer than any record.
pub(crate) fn too_large() -> Refusal {
    Refusal::new(
        sqlstate::PROGRAM_LIMIT_EXCEEDED,
        "the changes of the transaction could not be kept; it is rolled back",
        "Split it into smaller transactions.",
    )
}
