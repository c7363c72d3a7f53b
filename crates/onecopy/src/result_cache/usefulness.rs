//! Which templates' answers are seldom valid when they are asked for again. Keeping them costs, and wins nothing.
//!
//! Example: the best sellers of a shop read all orders. While orders come in, each answer that is found is stale. After
//! [`STALE_MIN`] of them only one answer in [`TRIED_AGAIN`] is kept, until some are found valid again.
//!
//! Templates share a bounded number of slots by their hash. Two in one slot share their fate, which costs hits and nothing
//! else.

use std::sync::atomic::{AtomicU32, Ordering};

const SLOTS: usize = 1_024;
/// Fewer answers that were found stale say nothing.
const STALE_MIN: u32 = 32;
/// A template is useful if at least one answer in so many is valid when it is found.
const VALID_ONE_IN: u32 = 8;
/// One answer in so many is kept of a template that is not useful.
const TRIED_AGAIN: u32 = 32;
/// Counts are halved past this sum, so that the recent past counts most.
const SUM_MAX: u32 = 1_024;

#[derive(Debug, Default)]
struct Slot {
    /// Found valid.
    given: AtomicU32,
    /// Found stale.
    stale: AtomicU32,
    /// Answers that could be kept while the template is not useful.
    offered: AtomicU32,
}

/// The recent usefulness of templates.
#[derive(Debug)]
pub(super) struct Usefulness(Box<[Slot]>);

impl Default for Usefulness {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| Slot::default()).collect())
    }
}

impl Usefulness {
    pub(super) fn note_given(&self, template: u64) {
        let slot = self.slot(template);
        // Most templates are read a hundred times for each write, so the count need not be exact.
        if slot.given.load(Ordering::Relaxed) < SUM_MAX {
            slot.given.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn note_stale(&self, template: u64) {
        let slot = self.slot(template);
        let stale = slot.stale.fetch_add(1, Ordering::Relaxed) + 1;
        let given = slot.given.load(Ordering::Relaxed);
        if stale + given > SUM_MAX {
            slot.stale.store(stale / 2, Ordering::Relaxed);
            slot.given.store(given / 2, Ordering::Relaxed);
        }
    }

    pub(super) fn is_worth_keeping(&self, template: u64) -> bool {
        let slot = self.slot(template);
        let (given, stale) = (slot.given.load(Ordering::Relaxed), slot.stale.load(Ordering::Relaxed));
        if stale < STALE_MIN || given.saturating_mul(VALID_ONE_IN) >= stale {
            return true;
        }
        slot.offered.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRIED_AGAIN)
    }

    fn slot(&self, template: u64) -> &Slot {
        &self.0[usize::try_from(template % SLOTS as u64).unwrap_or_default()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_always_stale_are_kept_now_and_then_until_some_are_valid() {
        let useful = Usefulness::default();
        for _ in 0..STALE_MIN {
            assert!(useful.is_worth_keeping(7));
            useful.note_stale(7);
        }
        let kept = |template| (0..10 * TRIED_AGAIN).filter(|_| useful.is_worth_keeping(template)).count();
        assert_eq!(kept(7), 10);
        assert_eq!(kept(8), 320, "another template");
        for _ in 0..STALE_MIN / VALID_ONE_IN {
            useful.note_given(7);
        }
        assert_eq!(kept(7), 320);
    }

    #[test]
    fn the_far_past_does_not_count() {
        let useful = Usefulness::default();
        (0..100_000).for_each(|_| useful.note_given(7));
        (0..3 * SUM_MAX).for_each(|_| useful.note_stale(7));
        assert!((0..TRIED_AGAIN).any(|_| !useful.is_worth_keeping(7)));
    }
}
