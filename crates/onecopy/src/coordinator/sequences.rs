//! What the coordinator knows of sequences: their marks, and what is lent of them.

use std::sync::atomic::Ordering;

use cluster::record::Sequence;

use super::Coordinator;

impl Coordinator {
    /// What was drawn from sequences to be lent needs these marks in the next record of the anchor's.
    pub(crate) fn wanted_marks(&self) -> Vec<Sequence> {
        if !self.wants_marks.load(Ordering::Acquire) {
            return Vec::new();
        }
        let (anchor, durable) = (self.view.anchor(), self.log.durable());
        self.database.sequences().wanted_marks(anchor, durable)
    }

    /// Whether what is known of sequences includes the log of before.
    pub(crate) fn knows_sequences(&self) -> bool {
        self.has_learned.load(Ordering::Acquire)
    }

    /// The log of before was read for them.
    pub(crate) fn sequences_known(&self) {
        self.has_learned.store(true, Ordering::Release);
    }
}
