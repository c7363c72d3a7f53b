//! When the settings change with which connections begin: ALTER ROLE and its kin, where statements are shipped.
//!
//! Example: a session began before `ALTER ROLE ann SET work_mem = '1GB'`. Some of its connections are from before, and others may
//! come, so it gets no kept answers any more. A session that begins while the change is committed gets none either: replicas
//! commit one after the other, so its connections may differ, too.
//!
//! Invariant: two sessions with the same number have connections that began with the same settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The changes so far.
#[derive(Debug, Default)]
pub(crate) struct RoleChanges {
    begun: AtomicU64,
    under_way: AtomicU64,
}

/// A change that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct RoleChange(Arc<RoleChanges>);

impl RoleChanges {
    /// The number of the changes that are over; `None` while one is under way.
    pub(crate) fn settled(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::SeqCst);
        (self.under_way.load(Ordering::SeqCst) == 0).then_some(begun)
    }

    /// A change begins, before any replica commits it.
    pub(crate) fn begin(self: &Arc<Self>) -> RoleChange {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        RoleChange(Arc::clone(self))
    }
}

impl Drop for RoleChange {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_while_a_change_is_under_way() {
        let changes: Arc<RoleChanges> = Arc::default();
        assert_eq!(changes.settled(), Some(0));
        let (one, other) = (changes.begin(), changes.begin());
        assert_eq!(changes.settled(), None);
        drop(one);
        assert_eq!(changes.settled(), None, "the other one is not over");
        drop(other);
        assert_eq!(changes.settled(), Some(2));
    }
}
