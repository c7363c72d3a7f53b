//! What capture has found in the open update transaction, in bounded memory.
//!
//! Rows come as notices while a reply is relayed, and are kept in the growing record. When that has grown too large, its
//! rows leave as a chunk that is spilled beside the log, and only their claims are kept. Nothing more is read from
//! the server meanwhile, so the server is slowed down to the pace of the disk.
//!
//! Invariant: code that adds to the record calls [`Capture::make_room`] before it adds much more. When that fails the
//! transaction cannot be committed any more and has to be rolled back.

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
use crate::error::{Fault, Refusal};
use crate::local::memory_budget::{Phase, Progress};
use claims::ClaimsSoFar;
use replay_chunks::ReplayOrder;
use runs::Runs;
use spill::Spill;
use truncates::Truncates;

/// What capture has found in the open update transaction.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The growing record.
    pub(crate) record: RecordBuilder,
    pub(crate) runs: Runs,
    pub(crate) truncates: Truncates,
    /// OIDs of the tables that the schema change at hand wrote anew.
    pub(crate) rewritten: Vec<u32>,
    /// Why the transaction cannot be replicated.
    pub(crate) broken: Option<Captured>,
    /// The oldest catalogue that anything was concluded from.
    pub(crate) generation: Version,
    /// What was claimed, rows that are still in memory aside.
    pub(crate) claims: ClaimsSoFar,
    replay_order: ReplayOrder,
    spill: Spill,
    decoder: Decoder,
}

impl Capture {
    pub(crate) fn new(coordinator: Arc<Coordinator>, identity: Identity, progress: Arc<Progress>) -> Self {
        Self {
            record: RecordBuilder::new(coordinator.database.served.id),
            runs: Runs::default(),
            truncates: Truncates::default(),
            rewritten: Vec::new(),
            broken: None,
            generation: Version(u64::MAX),
            claims: ClaimsSoFar::new(identity.nonce),
            replay_order: ReplayOrder::default(),
            spill: Spill::new(coordinator, identity, progress),
            decoder: Decoder::default(),
        }
    }

    /// Looks at a notice; whether it was ours.
    pub(crate) fn take(&mut self, body: &[u8]) -> bool {
        let element = self.record.elements();
        match self.decoder.capture(Fields::new(body), &mut self.record) {
            Captured::NotOurs => return false,
            Captured::Row { table, xid, nested, operation } => {
                if nested && matches!(operation, Operation::Update | Operation::Delete) {
                    self.replay_order.note_nested(table);
                }
                self.truncates.note(table, nested, operation);
                self.note_run(element, xid, nested, operation == Operation::Delete);
            }
            Captured::Rewritten(oid) => self.rewritten.push(oid),
            broken => self.broken = Some(broken),
        }
        true
    }

    /// Takes a row that a query of our own read: one column, the row's image. `xid` is the transaction's number.
    pub(crate) fn take_row(&mut self, table: TableId, xid: u32, body: &[u8]) {
        let element = self.record.elements();
        let row = wire::backend::data_row(body).ok();
        let image = row.and_then(|row| row.into_iter().next().flatten());
        match image.map_or(Captured::Malformed, |image| self.decoder.row(table, image, &mut self.record)) {
            Captured::Row { .. } => self.note_run(element, xid, false, false),
            broken => self.broken = Some(broken),
        }
    }

    /// The elements from this one on are new.
    fn note_run(&mut self, from: u64, xid: u32, is_nested: bool, is_delete: bool) {
        self.runs.add(Span { from, to: self.record.elements() }, xid, is_nested, is_delete);
    }

    /// Must be called after rows were added. Writes to the disk when too many are in memory; after an error the transaction
    /// has to be rolled back.
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
        // The order of its rows depends on the catalogue, so it must be the present one.
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
            // The rows are gone, so the transaction cannot be committed any more.
            self.broken = Some(Captured::TooLarge);
        }
        written
    }

    /// Makes spilled rows durable and gives them to the log; must be the last step that can fail. Then the caller must
    /// either append the record, or call [`spill::forget_spilled`]. Returns whether there are any.
    pub(crate) async fn hand_over(&mut self) -> Result<bool, Fault> {
        // The last chunk, unless it is the only one.
        if self.spill.has_begun() {
            self.write_chunk().await?;
        }
        self.spill.hand_over().await
    }
}

/// The record cannot take what the transaction changes. Where rows are too many that is told when they come; this is
/// for a client that goes on regardless, and for a single statement that is longer than any record.
pub(crate) fn too_large() -> Refusal {
    Refusal::new(
        sqlstate::PROGRAM_LIMIT_EXCEEDED,
        "the changes of the transaction could not be kept; it is rolled back",
        "Split it into smaller transactions.",
    )
}
