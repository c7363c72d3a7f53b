//! Decides how far the log can be trimmed: which records each replica still needs, and which replicas are in
//! quarantine.
//!
//! A replica needs every record that its server might lose in a crash. Replicas commit without waiting for their disks.
//! So only what the agent's flush has proven counts as durable there. The other cases:
//!
//! - A replica in quarantine needs no records: it will get the data of another one.
//! - A replica that is being rebuilt needs all records after the version that its donor had when the copy began.
//! - A replica whose server has refused a record needs the log like a replica that is down. The refused record was
//!   rolled back, so the replica has all records before it. Together with the log it is a complete copy. The node
//!   retries it when no other replica can serve ([`crate::membership::resync`]).
//! - A parked replica needs the log like a replica that is down, up to a smaller limit. Waking it after that rebuilds it.
//! - A checkpoint needs all records after its version ([`super::checkpoints`]).
//! - When the log grows past its limit, only connected replicas hold back trimming, and the oldest checkpoints are
//!   dropped. The other replicas must then be rebuilt.
//!   When they come back, the first missing version shows it.
//!
//! A quarantine that the log cannot explain is also kept in the register ([`super::quarantines`]): a record that did not fit,
//! or data that was changed behind Onecopy's back.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::ids::{ReplicaId, Version};

use super::quarantines::{Quarantine, QuarantineDuration, Quarantines};
use crate::local::limits::Limits;

#[derive(Debug, Default)]
struct One {
    durable: Version,
    quarantine: Option<Quarantine>,
    needs_from: Option<Version>,
}

impl One {
    /// The version up to which the replica does not need the log. `counts`: whether the replica's own durable version
    /// holds back trimming.
    fn needs(&self, counts: bool) -> Option<Version> {
        let may_come_back = self.quarantine.is_none() || self.may_be_tried_again();
        let own = (may_come_back && counts).then_some(self.durable);
        own.into_iter().chain(self.needs_from).min()
    }

    fn may_be_tried_again(&self) -> bool {
        self.quarantine.as_ref().is_some_and(|found| found.lasting == QuarantineDuration::UntilApplied)
    }
}

/// The retention of a node's log, with the quarantines that outlive a restart.
#[derive(Debug)]
pub(crate) struct Retention {
    /// The quarantines that outlive a restart.
    pub(crate) quarantines: Quarantines,
    /// Past this size the log is trimmed even if replicas that are down need it.
    pub(super) log_bytes_max: u64,
    /// Past this size the log is trimmed even if parked replicas need it.
    pub(super) parked_log_bytes_max: u64,
    log: Mutex<LogRetention>,
}

impl Retention {
    pub(super) fn new(log: LogRetention, quarantines: Quarantines, limits: Limits) -> Self {
        let Limits { log_bytes_max, parked_log_bytes_max, .. } = limits;
        Self { quarantines, log_bytes_max, parked_log_bytes_max, log: Mutex::new(log) }
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

/// The log that each replica needs, and its quarantine.
#[derive(Debug, Default)]
pub(crate) struct LogRetention {
    replicas: BTreeMap<ReplicaId, One>,
}

impl LogRetention {
    /// Starts with replicas of which nothing is known.
    pub(crate) fn of(replicas: impl Iterator<Item = ReplicaId>) -> Self {
        Self { replicas: replicas.map(|replica| (replica, One::default())).collect() }
    }

    pub(crate) fn join(&mut self, replica: ReplicaId) {
        self.replicas.insert(replica, One::default());
    }

    /// Applies a change to a replica's state. Ignores a replica that has left, which may still be reported on.
    fn change(&mut self, replica: ReplicaId, change: impl FnOnce(&mut One)) {
        if let Some(one) = self.replicas.get_mut(&replica) {
            change(one);
        }
    }

    pub(crate) fn forget(&mut self, replica: ReplicaId) {
        self.replicas.remove(&replica);
    }

    /// After a crash the replica would have everything up to this version.
    pub(crate) fn note_durable(&mut self, replica: ReplicaId, upto: Version) {
        self.change(replica, |one| one.durable = upto);
    }

    /// The replica serves nothing.
    pub(crate) fn quarantine(&mut self, replica: ReplicaId, reason: &str, lasting: QuarantineDuration) {
        let quarantine = Quarantine { reason: reason.to_owned(), lasting };
        self.change(replica, |one| one.quarantine = Some(quarantine));
    }

    /// The replicas that could not apply a record.
    pub(crate) fn may_be_tried_again(&self) -> Vec<ReplicaId> {
        let all = self.replicas.iter().filter(|(_, one)| one.may_be_tried_again());
        all.map(|(replica, _)| *replica).collect()
    }

    /// The replica leaves quarantine with the data that it has.
    pub(crate) fn tried_again(&mut self, replica: ReplicaId) {
        self.change(replica, |one| one.quarantine = None);
    }

    pub(crate) fn reason(&self, replica: ReplicaId) -> Option<&str> {
        self.replicas.get(&replica)?.quarantine.as_ref().map(|found| found.reason.as_str())
    }

    /// Keeps everything after this version for the replica, until [`LogRetention::forgo`].
    pub(crate) fn keep_from(&mut self, replica: ReplicaId, version: Version) {
        self.change(replica, |one| one.needs_from = Some(version));
    }

    /// Ends what [`LogRetention::keep_from`] began.
    pub(crate) fn forgo(&mut self, replica: ReplicaId) {
        self.change(replica, |one| one.needs_from = None);
    }

    /// The replica has the data of another one, which had at least the versions before those kept for it.
    pub(crate) fn rebuilt(&mut self, replica: ReplicaId) {
        self.change(replica, |one| {
            one.durable = one.needs_from.unwrap_or_default();
            one.quarantine = None;
        });
    }

    /// No replica needs the log up to this version, if only these replicas hold back trimming. `None` when no replica needs
    /// the log at all.
    pub(crate) fn unneeded_but_by(&self, counts: impl Fn(ReplicaId) -> bool) -> Option<Version> {
        self.replicas.iter().filter_map(|(replica, one)| one.needs(counts(*replica))).min()
    }

    /// The replica does not need the log up to this version. `None` if it does not need the log at all.
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
        assert_eq!(retention.unneeded_but_by(|_| true), Some(Version(20)));
        assert_eq!(retention.unneeded_but_by(|replica| replica != C), Some(Version(70)));
        retention.quarantine(C, "changed behind our back", QuarantineDuration::UntilRebuilt);
        assert_eq!(retention.unneeded_but_by(|_| true), Some(Version(70)));
        assert_eq!(retention.unneeded_but_by(|_| false), None);
        for replica in [A, B] {
            retention.quarantine(replica, "too", QuarantineDuration::UntilRebuilt);
        }
        assert_eq!(retention.unneeded_but_by(|_| true), None);
        // The log is not kept for a replica that is no longer a member.
        let mut retention = three_replicas();
        retention.forget(C);
        retention.note_durable(C, Version(30));
        assert_eq!(retention.unneeded_but_by(|_| true), Some(Version(70)));
        // A replica that has not reported yet may need everything.
        assert_eq!(LogRetention::of([A, B].into_iter()).unneeded_but_by(|_| true), Some(Version::ZERO));
    }

    #[test]
    fn the_log_is_kept_for_one_that_may_be_tried_again() {
        let mut retention = three_replicas();
        retention.quarantine(C, "version 21 cannot be applied", QuarantineDuration::UntilApplied);
        assert_eq!(retention.unneeded_but_by(|_| true), Some(Version(20)));
        assert_eq!(retention.may_be_tried_again(), [C]);
        retention.tried_again(C);
        assert_eq!((retention.reason(C), retention.unneeded_but_by(|_| true)), (None, Some(Version(20))));
        assert!(retention.may_be_tried_again().is_empty());
    }

    #[test]
    fn a_rebuild_keeps_what_it_will_need() {
        let mut retention = three_replicas();
        retention.quarantine(C, "is being rebuilt", QuarantineDuration::UntilRestart);
        retention.keep_from(C, Version(60));
        retention.note_durable(B, Version(95));
        assert_eq!(retention.unneeded_but_by(|_| true), Some(Version(60)));
        // The same holds when the log is past its limit. Otherwise the rebuild would have been in vain.
        assert_eq!(retention.unneeded_but_by(|_| false), Some(Version(60)));
        retention.rebuilt(C);
        retention.forgo(C);
        assert_eq!((retention.reason(C), retention.unneeded_but_by(|_| true)), (None, Some(Version(60))));
        // The durable version of its former data does not apply to the new data.
        let mut retention = three_replicas();
        retention.quarantine(A, "is being rebuilt", QuarantineDuration::UntilRestart);
        retention.keep_from(A, Version(65));
        retention.rebuilt(A);
        retention.forgo(A);
        retention.note_durable(C, Version(99));
        assert_eq!(retention.unneeded_but_by(|_| true), Some(Version(65)));
    }
}
