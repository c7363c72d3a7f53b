//! What became of reads and of their answers, for SHOW CACHE and the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters. They only grow.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Reads that were answered without a replica.
    pub(crate) hits: AtomicU64,
    /// Reads whose answers may be kept, and of which none was there.
    pub(crate) misses: AtomicU64,
    /// Answers that were found and were not valid any more.
    pub(crate) stale: AtomicU64,
    /// Answers that were kept.
    pub(crate) kept: AtomicU64,
    /// Answers that were not kept since something was written while they were read.
    pub(crate) overtaken: AtomicU64,
    /// Answers that were not kept for their form: too long, or with a notice.
    pub(crate) unfit: AtomicU64,
    /// Answers that were not kept since those of their template are seldom valid when they are asked for.
    pub(crate) seldom_valid: AtomicU64,
    /// Hits that a replica answered as well, in tests.
    pub(crate) audited: AtomicU64,
    /// Those of them that were answered otherwise.
    pub(crate) differences: AtomicU64,
}

impl Counts {
    /// The counters with their names, in the order of SHOW CACHE.
    pub(crate) fn shown(&self) -> [(&'static str, u64); 9] {
        [
            ("hits", &self.hits),
            ("misses", &self.misses),
            ("stale", &self.stale),
            ("kept", &self.kept),
            ("overtaken", &self.overtaken),
            ("unfit", &self.unfit),
            ("seldom_valid", &self.seldom_valid),
            ("audited", &self.audited),
            ("differences", &self.differences),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
