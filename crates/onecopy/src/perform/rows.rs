//! The rows that an execution has captured, and whether they are all that it has changed.
//!
//! An exception block in PL/pgSQL rolls back rows whose notices were sent before. The home asks its server which are left
//! ([`crate::propagate::subtransactions`](crate::propagate)); an execution elsewhere fails instead, and its replica applies the record.
//!
//! Example: a procedure inserts a row in a block with EXCEPTION. The notice carries the number of the subtransaction, so the execution
//! fails, whether or not the block was rolled back.
//!
//! Invariant: [`CapturedRows::digest`] is given only for rows of the top transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::event::Digest;
use cluster::record::RecordBuilder;
use cluster::refresh::digest;
use wire::backend::Fields;

use crate::capture::{Captured, Decoder};
use crate::coordinator::Coordinator;
use crate::coordinator::splits::Splits;

/// An execution with more bytes of rows fails. Its rows are in memory at each replica that performs it.
const BYTES_MAX: usize = 1 << 20;

/// Whether the captured rows can stand for what an execution has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Completeness {
    Complete,
    Unknown,
}

/// The rows of one execution.
#[derive(Debug)]
pub(super) struct CapturedRows {
    record: RecordBuilder,
    decoder: Decoder,
    splits: Arc<Splits>,
    /// The lower halves of the transaction ids under which functions, triggers and cascades wrote.
    nested_xids: BTreeSet<u32>,
    completeness: Completeness,
}

impl CapturedRows {
    pub(super) fn new(coordinator: &Coordinator) -> Self {
        Self {
            record: RecordBuilder::new(coordinator.database.served.id),
            decoder: Decoder::default(),
            splits: coordinator.splits(),
            nested_xids: BTreeSet::new(),
            completeness: Completeness::Complete,
        }
    }

    /// Takes the body of a notice.
    pub(super) fn take(&mut self, notice: &[u8]) {
        if self.completeness == Completeness::Unknown {
            return;
        }
        match self.decoder.capture(Fields::new(notice), self.splits.as_ref(), &mut self.record) {
            Captured::NotOurs => {}
            Captured::Row { xid, nested, .. } => {
                if nested {
                    self.nested_xids.insert(xid);
                }
                if self.record.len_bytes() > BYTES_MAX {
                    self.completeness = Completeness::Unknown;
                }
            }
            _ => self.completeness = Completeness::Unknown,
        }
    }

    /// The digest of the rows, if they are all that the transaction with this id has changed.
    pub(super) fn digest(self, xid: u64) -> Option<Digest> {
        let Self { record, nested_xids, completeness, .. } = self;
        let is_of_top = |nested: &u32| u64::from(*nested) == xid & u64::from(u32::MAX);
        let is_whole =
            completeness == Completeness::Complete && !record.is_empty() && nested_xids.iter().all(is_of_top);
        is_whole.then(|| digest(&record.seal())).flatten()
    }
}
