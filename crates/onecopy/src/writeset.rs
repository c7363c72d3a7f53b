//! What capture has found in the open update transaction, in bounded memory.
//!
//! Rows come as notices while a reply is relayed. They are kept in the growing record; when that has grown too large,
//! what it holds leaves as a chunk of spilled rows beside the log, and its claims are kept in its place. Nothing
//! more is read from the server meanwhile, so it is slowed down to what the disk takes.
//!
//! Invariant: whoever adds to the record calls [`Capture::make_room`] before much more is added; when that fails the
//! transaction cannot be committed any more and has to be rolled back.

pub(crate) mod claims;
pub(crate) mod replay_chunks;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use cluster::ids::{Identity, TableId, Version};
use cluster::record::{Chunk, RecordBuilder};
use commitlog::SpillWriter;
use wire::backend::Fields;
use wire::sqlstate;

use crate::capture::{Captured, Decoder, Operation};
use crate::coordinator::Coordinator;
use crate::error::{Fault, Refusal};
use crate::local::memory_budget::{Phase, Progress};
use claims::ClaimsSoFar;
use replay_chunks::ReplayOrder;

/// A transaction that holds less is not counted among those that take memory.
const UNCOUNTED_BYTES: usize = 16 << 10;
/// The most runs: each is a piece written by another subtransaction than the one before.
const RUNS_MAX: usize = 100_000;

/// Rows that follow each other and were written by the same (sub)transaction; or that no exception block can concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The lower half of its number.
    pub(crate) xid: u32,
    /// The element that it begins with.
    pub(crate) from: u64,
    /// The element after its last.
    pub(crate) to: u64,
    /// A deletion is among them, whose number may be a multixact's.
    pub(crate) has_deletes: bool,
    /// Some were written inside a function, trigger or cascade: an exception block may have undone them.
    pub(crate) is_nested: bool,
    /// It has rows of several subtransactions, none of them nested.
    is_mixed: bool,
}

/// What capture has found in the open update transaction.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The growing record.
    pub(crate) record: RecordBuilder,
    /// Runs of rows by the (sub)transaction that wrote them.
    pub(crate) runs: Vec<Run>,
    /// Some row was written inside a function or cascade.
    pub(crate) nested: bool,
    /// A table was truncated inside a function: whether an exception block undid it cannot be told.
    pub(crate) has_nested_truncate: bool,
    /// A trigger wrote rows of a table while a TRUNCATE went on that is told to have emptied it only after that.
    pub(crate) has_torn_truncate: bool,
    /// Tables that functions have written since a TRUNCATE was told, as long as it may still go on.
    written_at_truncate: Option<BTreeSet<TableId>>,
    /// OIDs of the tables that the schema change at hand wrote anew.
    pub(crate) rewritten: Vec<u32>,
    /// Why the transaction cannot be replicated.
    pub(crate) broken: Option<Captured>,
    /// The oldest catalogue that anything was concluded from.
    pub(crate) generation: Version,
    /// What was claimed, rows that are still in memory aside.
    pub(crate) claims: ClaimsSoFar,
    replay_order: ReplayOrder,
    spilled: Option<Box<dyn SpillWriter>>,
    /// What of the record's memory the coordinator was told of.
    counted_bytes: usize,
    coordinator: Arc<Coordinator>,
    identity: Identity,
    progress: Arc<Progress>,
    decoder: Decoder,
}

impl Capture {
    pub(crate) fn new(coordinator: Arc<Coordinator>, identity: Identity, progress: Arc<Progress>) -> Self {
        Self {
            record: RecordBuilder::new(coordinator.database.served.id),
            runs: Vec::new(),
            nested: false,
            has_nested_truncate: false,
            has_torn_truncate: false,
            written_at_truncate: None,
            rewritten: Vec::new(),
            broken: None,
            generation: Version(u64::MAX),
            claims: ClaimsSoFar::new(identity.nonce),
            replay_order: ReplayOrder::default(),
            spilled: None,
            counted_bytes: 0,
            coordinator,
            identity,
            progress,
            decoder: Decoder::default(),
        }
    }

    /// Looks at a notice; whether it was ours.
    pub(crate) fn take(&mut self, body: &[u8]) -> bool {
        let element = self.record.elements();
        match self.decoder.capture(Fields::new(body), &mut self.record) {
            Captured::NotOurs => return false,
            Captured::Row { table, xid, nested, operation } => {
                self.nested |= nested;
                if nested && matches!(operation, Operation::Update | Operation::Delete) {
                    self.replay_order.note_nested(table);
                }
                self.has_nested_truncate |= nested && operation == Operation::Truncate;
                self.note_truncate(table, nested, operation);
                self.note_run(element, xid, nested, operation == Operation::Delete);
            }
            Captured::Rewritten(oid) => self.rewritten.push(oid),
            broken => self.broken = Some(broken),
        }
        true
    }

    /// All tables of a TRUNCATE are empty before the triggers of the first one run, but each is told when its own turn has
    /// come. What a trigger wrote meanwhile into one that is told later would be lost at the other replicas.
    fn note_truncate(&mut self, table: TableId, nested: bool, operation: Operation) {
        match (operation, &mut self.written_at_truncate) {
            (Operation::Truncate, Some(written)) => self.has_torn_truncate |= written.contains(&table),
            (Operation::Truncate, none) => *none = Some(BTreeSet::new()),
            (_, Some(written)) if nested => _ = written.insert(table),
            // Another statement has begun.
            (_, written) => *written = None,
        }
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
        let to = self.record.elements();
        if let Some(run) = self.runs.last_mut().filter(|run| run.to == from) {
            let same = run.xid == xid && !(run.is_mixed && is_nested);
            if same || (!run.is_nested && !is_nested) {
                run.is_mixed |= !same;
                run.is_nested |= is_nested;
                run.has_deletes |= is_delete;
                (run.xid, run.to) = (xid, to);
                return;
            }
        }
        self.runs.push(Run { xid, from, to, has_deletes: is_delete, is_nested, is_mixed: false });
    }

    /// Forgets the runs of elements from this one on.
    pub(crate) fn forget_runs(&mut self, from: u64) {
        self.runs.retain(|run| run.from < from);
        if let Some(last) = self.runs.last_mut() {
            last.to = last.to.min(from);
        }
    }

    /// To be called after rows were added. Writes to the disk when too many are in memory; an error has to roll the
    /// transaction back.
    pub(crate) async fn make_room(&mut self) -> Result<(), Fault> {
        let held_bytes = self.record.len_bytes();
        if held_bytes >= UNCOUNTED_BYTES || self.counted_bytes > 0 {
            self.coordinator.local.memory_budget.hold(self.counted_bytes, held_bytes);
            self.counted_bytes = held_bytes;
        }
        self.show();
        self.check_limits()?;
        if self.coordinator.local.memory_budget.is_too_much(held_bytes) {
            self.progress.set_phase(Phase::Spilling);
            self.spill().await?;
            self.progress.set_phase(Phase::Open);
            self.show();
        }
        Ok(())
    }

    fn show(&self) {
        let spilled_bytes = self.record.spilled_bytes();
        let bytes = spilled_bytes + self.record.len_bytes() as u64;
        self.progress.set_captured(self.record.rows(), bytes, spilled_bytes);
    }

    fn check_limits(&self) -> Result<(), Fault> {
        let limit_bytes = self.coordinator.local.memory_budget.limit_bytes();
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
        if self.nested && self.runs.len() > RUNS_MAX {
            return Err(Fault::Refused(Refusal::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "too many subtransactions have written rows in one transaction",
                "Use fewer exception blocks in one transaction.",
            )));
        }
        Ok(())
    }

    async fn spill(&mut self) -> Result<(), Fault> {
        let Some(chunk) = self.record.spill() else { return Ok(()) };
        // What the order of its rows depends on must not be missed.
        let Some(catalogue) = self.coordinator.fresh_catalogue().await else {
            self.broken = Some(Captured::TooLarge);
            return Err(Fault::Lost(self.coordinator.anchor()));
        };
        self.generation = self.generation.min(Version(catalogue.generation()));
        self.claims.add_rows(chunk.row_changes(), self.record.elements(), &catalogue);
        if let Err(refusal) = self.replay_order.follow(chunk.row_changes(), &catalogue) {
            self.broken = Some(Captured::TooLarge);
            return Err(refusal.into());
        }
        self.coordinator.local.memory_budget.hold(self.counted_bytes, 0);
        self.counted_bytes = 0;
        if let Err(error) = self.append(chunk).await {
            // The chunk is gone, so the transaction cannot be committed any more.
            self.broken = Some(Captured::TooLarge);
            return Err(not_written(&error));
        }
        Ok(())
    }

    /// An error, or to be dropped early, deletes all that was spilled.
    async fn append(&mut self, chunk: Chunk) -> io::Result<()> {
        let mut writer = match self.spilled.take() {
            Some(writer) => writer,
            None => self.coordinator.log.spills().create(self.identity).await?,
        };
        writer.append(chunk).await?;
        self.spilled = Some(writer);
        Ok(())
    }

    /// Makes spilled rows durable and gives them to the log; to be called last of all that can fail. Then the caller must
    /// either append the record, or call [`forget_spilled`]. Returns whether there are any.
    pub(crate) async fn hand_over(&mut self) -> Result<bool, Fault> {
        // The last chunk, unless it is the only one.
        if self.spilled.is_some() {
            self.spill().await?;
        }
        let Some(writer) = self.spilled.take() else { return Ok(false) };
        writer.finish().await.map(|()| true).map_err(|error| not_written(&error))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.coordinator.local.memory_budget.hold(self.counted_bytes, 0);
    }
}

/// The record will never be in the log, so nothing needs its spilled rows.
pub(crate) async fn forget_spilled(coordinator: Arc<Coordinator>, identity: Identity) {
    if let Err(error) = coordinator.log.spills().remove(identity).await {
        tracing::warn!(%identity, %error, "the rows of a transaction that did not commit could not be deleted");
    }
}

fn not_written(error: &io::Error) -> Fault {
    tracing::warn!(%error, "rows of a transaction could not be written");
    let (code, what, hint) = if error.kind() == io::ErrorKind::StorageFull {
        (
            sqlstate::DISK_FULL,
            "no space is left on Onecopy's disk for the rows of the transaction".to_owned(),
            "Free some space there, or split it into smaller transactions.",
        )
    } else {
        (
            sqlstate::IO_ERROR,
            format!("the rows of the transaction could not be written to Onecopy's disk: {error}"),
            "Look at the disk that holds Onecopy's data folder.",
        )
    };
    Fault::Refused(Refusal::new(code, what, hint))
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
