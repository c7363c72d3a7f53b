//! The coordinator's records about replicas that the core does not keep: quarantines, durable versions, and how far the
//! log can be trimmed.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::ids::{Identity, ReplicaId, Version};
use cluster::parts::replica::State;
use cluster::placement::Holdings;
use commitlog::LogError;
use tokio::runtime::Handle;

use super::Leader;
use super::checkpoints::Checkpoint;
use super::identities::{AppliedSetError, AppliedVerdict};
use super::quarantines::{Quarantine, QuarantineDuration};

impl Leader {
    /// Judges the applied set of a replica with these holdings. If the replica was away for long, this reads much of
    /// the log. A thread for blocking work runs it, since a large set takes a while to search.
    pub(crate) async fn judge(
        self: &Arc<Self>,
        applied: Vec<Identity>,
        holdings: Holdings,
    ) -> Result<AppliedVerdict, AppliedSetError> {
        let (leader, runtime) = (Arc::clone(self), Handle::current());
        let judging = tokio::task::spawn_blocking(move || {
            runtime.block_on(leader.identities.judge(&applied, &holdings, &leader.log))
        });
        judging.await.unwrap_or_else(|error| Err(LogError::from(error).into()))
    }

    /// Notes which version would survive a crash of the replica's server. The log is trimmed behind the slowest
    /// replica.
    pub(crate) async fn note_durable(&self, replica: ReplicaId, upto: Version) {
        self.retention.log().note_durable(replica, upto);
        self.trim().await;
    }

    /// Trims the log up to the last version that is durable at every replica. That version itself stays: its identity
    /// locates a replica that has nothing after it. Past one limit parked replicas no longer hold back trimming, past the
    /// other only connected ones do, and the oldest checkpoints are dropped.
    async fn trim(&self) {
        let before = |upto: Version| Version(upto.0.saturating_sub(1));
        let Some(unneeded) = self.unneeded_but_by(|_| true) else { return };
        let mut trimmed = self.log.trim(before(unneeded)).await;
        let parked_bytes_max = self.retention.parked_log_bytes_max;
        if self.log.bytes() > parked_bytes_max {
            let is_awake = |replica| !self.parking.state(replica).is_parked();
            let unneeded = self.unneeded_but_by(is_awake);
            if let Some(unneeded) = unneeded {
                trimmed = self.log.shrink(before(unneeded), parked_bytes_max).await;
            }
        }
        if self.log.bytes() > self.retention.log_bytes_max {
            let up: Vec<ReplicaId> =
                self.replicas().iter().filter(|r| r.state == State::Up).map(|r| r.replica).collect();
            let bytes_max = self.retention.log_bytes_max;
            while let Some(unneeded) = self.unneeded_but_by(|replica| up.contains(&replica)) {
                trimmed = self.log.shrink(before(unneeded), bytes_max).await;
                if self.log.bytes() <= bytes_max || !self.drop_oldest_checkpoint().await {
                    break;
                }
            }
            self.leave_behind(&up);
        }
        match trimmed {
            Ok(first) => self.identities.trim(first),
            Err(error) => tracing::warn!(%error, "the log could not be trimmed"),
        }
    }

    /// Neither these replicas nor a checkpoint need the log up to this version. `None` when no replica needs it at all.
    fn unneeded_but_by(&self, counts: impl Fn(ReplicaId) -> bool) -> Option<Version> {
        let unneeded = self.retention.log().unneeded_but_by(counts)?;
        Some(self.checkpoints.oldest().map_or(unneeded, |oldest| oldest.min(unneeded)))
    }

    /// Drops the oldest checkpoint, because the log is too long. Returns whether that was possible.
    async fn drop_oldest_checkpoint(&self) -> bool {
        let Some(oldest) = self.checkpoints.all().into_iter().next() else { return false };
        // One that is being used, or made, keeps its log.
        let Ok(_turn) = self.parking.change.try_lock() else { return false };
        let Checkpoint { name, version, .. } = oldest;
        let dropped = name.clone();
        match self.checkpoints.on_disk(move |all| all.remove(&dropped)).await {
            Ok(()) => {
                tracing::warn!(%name, %version, "the oldest checkpoint was dropped: the log had become too long (log-max-mb)");
                true
            }
            Err(error) => {
                tracing::error!(%name, %error, "the oldest checkpoint cannot be dropped, and the log is too long");
                false
            }
        }
    }

    /// Quarantines replicas that need trimmed records, in a kind of node where a replica cannot notice that by itself.
    fn leave_behind(&self, up: &[ReplicaId]) {
        if self.kind.knows_lacking_records() {
            return;
        }
        let first = self.log.first_retained();
        let all: Vec<ReplicaId> = self.seats.iter().map(|seat| seat.replica).collect();
        for replica in all.into_iter().filter(|replica| !up.contains(replica)) {
            let needs = self.retention.log().needs(replica);
            if needs.is_some_and(|needs| needs.next() < first) {
                let reason = "it was away for longer than the log is kept (log-max-mb)";
                self.quarantine(replica, reason, QuarantineDuration::UntilRebuilt);
            }
        }
    }

    /// From now on the replica serves nothing.
    pub(crate) fn quarantine(&self, replica: ReplicaId, reason: &str, lasting: QuarantineDuration) {
        let name = &self.seats[replica].name;
        tracing::error!(replica = %name, reason, "the replica is quarantined");
        if lasting != QuarantineDuration::UntilRestart
            && let Err(error) = self.retention.quarantines.keep(name, reason, lasting)
        {
            tracing::error!(replica = %name, %error, "after a restart the replica will not be in quarantine any more");
        }
        self.retention.log().quarantine(replica, reason, lasting);
        Arc::clone(&self.kind).shut_out(self, replica);
        // It may have answered reads wrongly before.
        self.local.result_cache.forget();
    }

    /// Restores the quarantines that were in force when the node ended.
    pub(super) fn remember_quarantines(&self) {
        for status in self.replicas() {
            let name = &self.seats[status.replica].name;
            match self.retention.quarantines.read(name) {
                Ok(None) => {}
                Ok(Some(Quarantine { reason, lasting })) => self.quarantine(status.replica, &reason, lasting),
                Err(error) => {
                    let reason = format!("whether it was in quarantine cannot be read: {error}");
                    self.quarantine(status.replica, &reason, QuarantineDuration::UntilRestart);
                }
            }
        }
    }

    /// Restores which replicas are parked. Their durable versions are known, so they do not hold back all trimming.
    pub(super) fn remember_parked(&self) {
        for seat in self.seats.iter() {
            match self.parking.restore(seat.replica, &seat.name) {
                Ok(None) => {}
                Ok(Some(durable)) => self.retention.log().note_durable(seat.replica, durable),
                Err(error) => {
                    tracing::error!(replica = %seat.name, %error, "cannot read whether it is parked; it counts as awake");
                }
            }
        }
    }

    /// Whether the log no longer has all records that a replica with this durable version lacks.
    pub(crate) fn is_left_behind(&self, durable: Version) -> bool {
        durable.next() < self.log.first_retained()
    }

    /// The replicas that serve nothing, and the reasons.
    pub(crate) fn quarantined(&self) -> BTreeMap<ReplicaId, String> {
        let retention = self.retention.log();
        let all = self.seats.iter().map(|seat| seat.replica);
        all.filter_map(|replica| Some((replica, retention.reason(replica)?.to_owned()))).collect()
    }

    /// A rebuild has ended, with or without success: the log no longer keeps records for it.
    pub(crate) fn end_rebuild(&self, replica: ReplicaId) {
        self.retention.log().forgo(replica);
        self.set_stage(replica, None);
    }

    /// The replica's server has other data now: the replica leaves quarantine and connects anew.
    pub(crate) fn rebuilt(&self, replica: ReplicaId) {
        self.lift_quarantine(replica);
        self.retention.log().rebuilt(replica);
        self.kind.let_in(self, replica);
    }

    /// Retries the replicas that could not apply a record, with the data that they have, and returns them. A replica
    /// that fails again returns to quarantine.
    pub(crate) fn try_again(&self) -> Vec<ReplicaId> {
        let mut tried = self.retention.log().may_be_tried_again();
        tried.retain(|replica| self.stage(*replica).is_none());
        for replica in &tried {
            tracing::warn!(replica = %self.seats[*replica].name, "the replica is tried again");
            self.lift_quarantine(*replica);
            self.retention.log().tried_again(*replica);
            self.kind.let_in(self, *replica);
        }
        tried
    }

    fn lift_quarantine(&self, replica: ReplicaId) {
        let name = &self.seats[replica].name;
        if let Err(error) = self.retention.quarantines.lift(name) {
            tracing::error!(replica = %name, %error, "after a restart the replica will be in quarantine again");
        }
    }
}
