//! How far the log can be trimmed: which records each replica still needs, and which replicas are in quarantine.
//!
//! A replica needs every record that its server might lose in a crash. Replicas commit without waiting for their disks, so
//! only what the agent's flush has proven counts as durable there. The other cases:
//!
//! - A replica in quarantine needs no records: it will get the data of another one.
//! - A replica that is being rebuilt needs all records after the version that its donor had when the copy began.
//! - A replica whose server has refused a record needs the log as one that is down does. It has all records before that one, since
//!   what the refused record had done is undone, so together with the log it is a complete copy. It is tried again where no
//!   other replica could serve ([`crate::membership::resync`]).
//! - When the log grows past its limit, only connected replicas hold back trimming. The others must be rebuilt then; when
//!   they come back, the first missing version says so.
//!
//! A quarantine that the log cannot explain is also kept in a file ([`super::quarantines`]): a record that did not fit, data that
//! was changed behind our back.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::ids::{ReplicaId, Version};

use super::quarantines::{Quarantine, QuarantineDuration, Quarantines};

#[derive(Debug, Default)]
struct One {
    durable: Version,
    quarantine: Option<Quarantine>,
    needs_from: Option<Version>,
}

impl One {
    /// Up to here it does not need the log; what it has itself may count or not.
    fn needs(&self, counts: bool) -> Option<Version> {
        let may_come_back = self.quarantine.is_none() || self.may_be_tried_again();
        let own = (may_come_back && counts).then_some(self.durable);
        own.into_iter().chain(self.needs_from).min()
    }

    fn may_be_tried_again(&self) -> bool {
        self.quarantine.as_ref().is_some_and(|found| found.lasting == QuarantineDuration::UntilApplied)
    }
}

/// The retention of a node's log, with what outlives a restart.
#[derive(Debug)]
pub(crate) struct Retention {
    /// The quarantines that outlive a restart.
    pub(crate) quarantines: Quarantines,
    /// Past this the log is trimmed even where replicas that are down need it.
    pub(super) log_bytes_max: u64,
    log: Mutex<LogRetention>,
}

impl Retention {
    pub(super) fn new(log: LogRetention, quarantines: Quarantines, log_bytes_max: u64) -> Self {
        Self { quarantines, log_bytes_max, log: Mutex::new(log) }
    }

    /// Whether the replica serves nothing.
    pub(crate) fn is_quarantined(&self, replica: ReplicaId) -> bool {
        self.log().reason(replica).is_some()
    }

    /// Keeps the records after this version for the replica, which is being rebuilt.
    pub(crate) fn keep_from(&self, replica: ReplicaId, version: Version) {
        self.log().keep_from(replica, version);
    }

    pub(super) fn log(&self) -> MutexGuard<'_, LogRetention> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is remembered of all replicas.
#[derive(Debug, Default)]
pub(crate) struct LogRetention {
    replicas: BTreeMap<ReplicaId, One>,
}

impl LogRetention {
    /// Of replicas of which nothing is known.
    pub(crate) fn of(replicas: impl Iterator<Item = ReplicaId>) -> Self {
        Self { replicas: replicas.map(|replica| (replica, One::default())).collect() }
    }

    /// The replica is a member from now on.
    pub(crate) fn join(&mut self, replica: ReplicaId) {
        self.replicas.insert(replica, One::default());
    }

    /// A replica that has left may still be reported on.
    fn change(&mut self, replica: ReplicaId, change: impl FnOnce(&mut One)) {
        if let Some(one) = self.replicas.get_mut(&replica) {
            change(one);
        }
    }

    /// The replica is no longer a member.
    pub(crate) fn forget(&mut self, replica: ReplicaId) {
        self.replicas.remove(&replica);
    }

    /// The replica would have everything up to this version after a crash.
    pub(crate) fn note_durable(&mut self, replica: ReplicaId, upto: Version) {
        self.change(replica, |one| one.durable = upto);
    }

    /// The replica serves nothing.
    pub(crate) fn quarantine(&mut self, replica: ReplicaId, reason: &str, lasting: QuarantineDuration) {
        let quarantine = Quarantine { reason: reason.to_owned(), lasting };
        self.change(replica, |one| one.quarantine = Some(quarantine));
    }

    /// Those that could not apply a record.
    pub(crate) fn may_be_tried_again(&self) -> Vec<ReplicaId> {
        let all = self.replicas.iter().filter(|(_, one)| one.may_be_tried_again());
        all.map(|(replica, _)| *replica).collect()
    }

    /// The replica is out of quarantine with the data that it has.
    pub(crate) fn tried_again(&mut self, replica: ReplicaId) {
        self.change(replica, |one| one.quarantine = None);
    }

    /// Why a replica serves nothing.
    pub(crate) fn reason(&self, replica: ReplicaId) -> Option<&str> {
        self.replicas.get(&replica)?.quarantine.as_ref().map(|found| found.reason.as_str())
    }

    /// Everything after this version is kept for the replica, until [`LogRetention::forgo`].
    pub(crate) fn keep_from(&mut self, replica: ReplicaId, version: Version) {
        self.change(replica, |one| one.needs_from = Some(version));
    }

    /// The end of what [`LogRetention::keep_from`] began.
    pub(crate) fn forgo(&mut self, replica: ReplicaId) {
        self.change(replica, |one| one.needs_from = None);
    }

    /// The replica has the data of another one, which had at least what is kept for it.
    pub(crate) fn rebuilt(&mut self, replica: ReplicaId) {
        self.change(replica, |one| {
            one.durable = one.needs_from.unwrap_or_default();
            one.quarantine = None;
        });
    }

    /// No replica needs the log up to here; `None` when no replica needs it at all.
    pub(crate) fn unneeded(&self) -> Option<Version> {
        self.unneeded_but_by(|_| true)
    }

    /// The same, if only these replicas count.
    pub(crate) fn unneeded_but_by(&self, counts: impl Fn(ReplicaId) -> bool) -> Option<Version> {
        self.replicas.iter().filter_map(|(replica, one)| one.needs(counts(*replica))).min()
    }

    /// Up to here the replica does not need the log; `None` if it does not need it at all.
    pub(crate) fn needs(&self, replica: ReplicaId) -> Option<Version> {
        self.replicas.get(&replica)?.needs(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ReplicaId = ReplicaId(0);
    const B: ReplicaId = ReplicaId(1);
    const C: ReplicaId = ReplicaId(2);

    fn three_replicas() -> LogRetention {
        let mut retention = LogRetention::of([A, B, C].into_iter());
        for (replica, version) in [(A, 90), (B, 70), (C, 20)] {
            retention.note_durable(replica, Version(version));
        }
        retention
    }

    #[test]
    fn the_slowest_that_may_come_back_keeps_the_log() {
        let mut retention = three_replicas();
        assert_eq!(retention.unneeded(), Some(Version(20)));
        assert_eq!(retention.unneeded_but_by(|replica| replica != C), Some(Version(70)));
        retention.quarantine(C, "changed behind our back", QuarantineDuration::UntilRebuilt);
        assert_eq!(retention.unneeded(), Some(Version(70)));
        assert_eq!(retention.unneeded_but_by(|_| false), None);
        for replica in [A, B] {
            retention.quarantine(replica, "too", QuarantineDuration::UntilRebuilt);
        }
        assert_eq!(retention.unneeded(), None);
        // The log is not kept for a replica that is no longer a member.
        let mut retention = three_replicas();
        retention.forget(C);
        retention.note_durable(C, Version(30));
        assert_eq!(retention.unneeded(), Some(Version(70)));
        // One that has not said anything yet may need everything.
        assert_eq!(LogRetention::of([A, B].into_iter()).unneeded(), Some(Version::ZERO));
    }

    #[test]
    fn the_log_is_kept_for_one_that_may_be_tried_again() {
        let mut retention = three_replicas();
        retention.quarantine(C, "version 21 cannot be applied", QuarantineDuration::UntilApplied);
        assert_eq!(retention.unneeded(), Some(Version(20)));
        assert_eq!(retention.may_be_tried_again(), [C]);
        retention.tried_again(C);
        assert_eq!((retention.reason(C), retention.unneeded()), (None, Some(Version(20))));
        assert!(retention.may_be_tried_again().is_empty());
    }

    #[test]
    fn a_rebuild_keeps_what_it_will_need() {
        let mut retention = three_replicas();
        retention.quarantine(C, "is being rebuilt", QuarantineDuration::UntilRestart);
        retention.keep_from(C, Version(60));
        retention.note_durable(B, Version(95));
        assert_eq!(retention.unneeded(), Some(Version(60)));
        // Also when the log is past its limit: else the rebuild would have been for nothing.
        assert_eq!(retention.unneeded_but_by(|_| false), Some(Version(60)));
        retention.rebuilt(C);
        retention.forgo(C);
        assert_eq!((retention.reason(C), retention.unneeded()), (None, Some(Version(60))));
        // What its former data had survived says nothing about the new.
        let mut retention = three_replicas();
        retention.quarantine(A, "is being rebuilt", QuarantineDuration::UntilRestart);
        retention.keep_from(A, Version(65));
        retention.rebuilt(A);
        retention.forgo(A);
        retention.note_durable(C, Version(99));
        assert_eq!(retention.unneeded(), Some(Version(65)));
    }
}
