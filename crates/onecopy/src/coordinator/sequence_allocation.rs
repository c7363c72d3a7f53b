//! Messages about sequences between sessions, the agents' drivers and the leader's sequence allocator.
//!
//! A session whose home has used up its values of a sequence requests a range. The allocator draws one at the anchor,
//! and the next record of the anchor's brings the mark that covers it. For example, another home may use 32 values of
//! `orders_id_seq` once a durable record says that the sequence stands behind them.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OnceCell};

/// The demand for ranges of sequences, and for the marks that cover them.
#[derive(Debug, Default)]
pub(crate) struct SequenceAllocation {
    requested: Notify,
    wants_marks: AtomicBool,
    /// Set once the marks in the log from before this term are in memory. A driver that finds it unset reads them.
    pub(crate) earlier_marks: OnceCell<()>,
}

impl SequenceAllocation {
    /// Wakes the allocator: a session has asked for a range.
    pub(crate) fn request(&self) {
        self.requested.notify_one();
    }

    /// The next request.
    pub(crate) fn requested(&self) -> Notified<'_> {
        self.requested.notified()
    }

    /// Notes whether ranges were drawn at the anchor that no durable mark covers yet.
    pub(crate) fn set_wants_marks(&self, wants_marks: bool) {
        self.wants_marks.store(wants_marks, Ordering::Release);
    }

    pub(super) fn wants_marks(&self) -> bool {
        self.wants_marks.load(Ordering::Acquire)
    }
}
