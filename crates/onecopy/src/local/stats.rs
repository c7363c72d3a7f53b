//! Counters that SHOW STATS and the metrics read: why work ran at the anchor, and how often other things happened.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why statements and transactions ran at the anchor (`anchor_*`), and other things that are counted.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Reads that were spread.
    pub(crate) reads: AtomicU64,
    /// They write what no other replica may write.
    pub(crate) anchor_update: AtomicU64,
    /// They could not be bounded.
    pub(crate) anchor_unknown: AtomicU64,
    /// They read in a transaction that was not declared READ ONLY.
    pub(crate) anchor_interactive: AtomicU64,
    /// They read the catalogues.
    pub(crate) anchor_catalogue: AtomicU64,
    /// Update transactions that began there because elsewhere their kind waits more than it works.
    pub(crate) anchor_waits: AtomicU64,
    /// Update transactions that could run anywhere: it was chosen for them, or by the session's `onecopy.home`.
    pub(crate) anchor_chosen: AtomicU64,
    /// Transactions that began away from home because nothing but reads was foreseen.
    pub(crate) roamed: AtomicU64,
    /// Those of them that came home.
    pub(crate) came_home: AtomicU64,
    /// Records appended.
    pub(crate) records: AtomicU64,
    /// Transactions and statements run again, unseen by their clients.
    pub(crate) retried: AtomicU64,
    /// How often another replica became the anchor.
    pub(crate) takeovers: AtomicU64,
    /// Clients told 40001 by Onecopy itself.
    pub(crate) aborted: AtomicU64,
    /// Sessions at present.
    pub(crate) sessions: AtomicU64,
}

/// Counts one up.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
