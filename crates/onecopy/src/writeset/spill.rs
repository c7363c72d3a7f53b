//! Spills rows that do not fit into memory to a file beside the log, chunk after chunk.
//!
//! Invariant: dropping this returns the transaction's share of the memory budget, and deletes spilled rows unless
//! they were handed over to the log.

use std::io;
use std::sync::Arc;

use cluster::ids::Identity;
use cluster::record::{Chunk, RecordBuilder};
use commitlog::SpillWriter;
use wire::sqlstate;

use crate::coordinator::Coordinator;
use crate::error::{Fault, Refusal};
use crate::local::memory_budget::Progress;

/// A transaction that holds less does not count in the memory budget.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// Memory and spilled chunks of one transaction's rows.
#[derive(Debug)]
pub(super) struct Spill {
    writer: Option<Box<dyn SpillWriter>>,
    /// The part of the record's memory that was reported to the memory budget.
    counted_bytes: usize,
    pub(super) coordinator: Arc<Coordinator>,
    identity: Identity,
    pub(super) progress: Arc<Progress>,
}

impl Spill {
    pub(super) fn new(coordinator: Arc<Coordinator>, identity: Identity, progress: Arc<Progress>) -> Self {
        Self { writer: None, counted_bytes: 0, coordinator, identity, progress }
    }

    /// Reports the memory of the record; `true` if it is too much.
    pub(super) fn count(&mut self, held_bytes: usize) {
        if held_bytes >= UNCOUNTED_BYTES || self.counted_bytes > 0 {
            self.coordinator.local.memory_budget.hold(self.counted_bytes, held_bytes);
            self.counted_bytes = held_bytes;
        }
    }

    /// Updates SHOW TRANSACTIONS.
    pub(super) fn show(&self, record: &RecordBuilder) {
        let spilled_bytes = record.spilled_bytes();
        let bytes = spilled_bytes + record.len_bytes() as u64;
        self.progress.set_captured(record.rows(), bytes, spilled_bytes);
    }

    /// Whether any chunk was spilled.
    pub(super) fn has_begun(&self) -> bool {
        self.writer.is_some()
    }

    /// Writes a chunk that the record has given up. After an error the rows are lost.
    pub(super) async fn write(&mut self, chunk: Chunk) -> Result<(), Fault> {
        self.coordinator.local.memory_budget.hold(self.counted_bytes, 0);
        self.counted_bytes = 0;
        self.append(chunk).await.map_err(|error| not_written(&error))
    }

    /// After an error, or if this is dropped early, all spilled chunks are deleted.
    async fn append(&mut self, chunk: Chunk) -> io::Result<()> {
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.coordinator.spills.create(self.identity).await?,
        };
        writer.append(chunk).await?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Makes spilled rows durable and gives them to the log. `false` if there are none.
    pub(super) async fn hand_over(&mut self) -> Result<bool, Fault> {
        let Some(writer) = self.writer.take() else { return Ok(false) };
        writer.finish().await.map(|()| true).map_err(|error| not_written(&error))
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        self.coordinator.local.memory_budget.hold(self.counted_bytes, 0);
    }
}

/// Deletes the spilled rows of a record that was not appended.
pub(crate) async fn forget_spilled(coordinator: Arc<Coordinator>, identity: Identity) {
    if let Err(error) = coordinator.spills.remove(identity).await {
        tracing::warn!(%identity, %error, "cannot delete the spilled rows of a transaction that did not commit");
    }
}

fn not_written(error: &io::Error) -> Fault {
    tracing::warn!(%error, "cannot spill the rows of a transaction");
    let (code, what, hint) = if error.kind() == io::ErrorKind::StorageFull {
        (
            sqlstate::DISK_FULL,
            "no space is left on Onecopy's disk for the rows of the transaction".to_owned(),
            "Free some space there, or split it into smaller transactions.",
        )
    } else if error.kind() == io::ErrorKind::Unsupported {
        (
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            "a row is too large for a node that does not lead".to_owned(),
            "Run the statement at the node that leads, which SHOW NODES names.",
        )
    } else {
        (
            sqlstate::IO_ERROR,
            format!("the rows of the transaction could not be written to Onecopy's disk: {error}"),
            "Inquiry at the disk that holds Onecopy's data folder.",
        )
    };
    Fault::Refused(Refusal::new(code, what, hint))
}
