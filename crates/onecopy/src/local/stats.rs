//! Counters for SHOW STATS and the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reasons why work ran at the anchor (`anchor_*`), and other counts.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Reads that any fresh replica could serve.
    pub(crate) reads: AtomicU64,
    /// Those of them that a session placed by itself, without a question to the core or to the leader.
    pub(crate) reads_placed: AtomicU64,
    /// Writes that only the anchor may do.
    pub(crate) anchor_update: AtomicU64,
    /// Statements whose rows Onecopy cannot predict.
    pub(crate) anchor_unknown: AtomicU64,
    /// Reads in a transaction that was not declared READ ONLY.
    pub(crate) anchor_interactive: AtomicU64,
    /// Reads of the system catalogues.
    pub(crate) anchor_catalogue: AtomicU64,
    /// Update transactions that started at the anchor because their kind waits longer than it works elsewhere.
    pub(crate) anchor_waits: AtomicU64,
    /// Update transactions that could run anywhere, and for which the anchor was chosen (by Onecopy or
    /// `onecopy.home`).
    pub(crate) anchor_chosen: AtomicU64,
    /// Transactions that started away from home, because only reads were predicted.
    pub(crate) roamed: AtomicU64,
    /// Those of them that moved home.
    pub(crate) came_home: AtomicU64,
    /// Appended records.
    pub(crate) records: AtomicU64,
    /// Transparent retries of transactions and statements.
    pub(crate) retried: AtomicU64,
    /// Changes of the anchor.
    pub(crate) takeovers: AtomicU64,
    /// Errors 40001 from Onecopy itself.
    pub(crate) aborted: AtomicU64,
    /// Present sessions.
    pub(crate) sessions: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
