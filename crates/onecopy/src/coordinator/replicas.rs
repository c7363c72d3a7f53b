//! The coordinator's account of replicas beside the core: quarantine, what is durable, and how far the log can be trimmed.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use cluster::ids::{Identity, ReplicaId, Version};
use cluster::parts::replica::State;
use cluster::placement::Holdings;
use commitlog::LogError;
use tokio::runtime::Handle;

use super::Coordinator;
use super::identities::{AppliedSetError, AppliedVerdict};
use super::quarantines::{Quarantine, QuarantineDuration};
use super::resync_progress::ResyncStage;

impl Coordinator {
    /// Runs `work` with the replica's server; `None` if an agent gives the server up meanwhile. Where no agent does that the
    /// work has to end by itself.
    pub(crate) async fn unless_given_up<W: Future>(&self, replica: ReplicaId, work: W) -> Option<W::Output> {
        if !self.kind.gives_up_servers() {
            return Some(work.await);
        }
        let seat = &self.seats[replica];
        seat.run.unless_given_up(seat.run.incarnation(), work).await
    }

    /// What the applied set of a replica with these holdings says. If it was away for long, much of the log is read for it.
    /// A large set takes a while to search, so a thread for blocking work does it.
    pub(crate) async fn judge(
        self: &Arc<Self>,
        applied: Vec<Identity>,
        holdings: Holdings,
    ) -> Result<AppliedVerdict, AppliedSetError> {
        let (coordinator, runtime) = (Arc::clone(self), Handle::current());
        let judging = tokio::task::spawn_blocking(move || {
            runtime.block_on(coordinator.identities.judge(&applied, &holdings, &coordinator.log))
        });
        judging.await.unwrap_or_else(|error| Err(LogError::from(error).into()))
    }

    /// Whether a replica holds a table of the database, by the number of the table.
    pub(crate) fn holds(&self, replica: ReplicaId) -> impl Fn(u32) -> bool {
        let (holdings, database) = (self.core.holdings(replica), self.database.served.id);
        move |number| holdings.holds(database.table(number))
    }

    /// A replica says what would survive a crash of its server; the log is trimmed behind the slowest.
    pub(crate) async fn note_durable(&self, replica: ReplicaId, upto: Version) {
        self.lead.retention.log().note_durable(replica, upto);
        self.trim().await;
    }

    /// Trims the log up to what is durable at every replica. The last of these versions stays: its identity tells where a
    /// replica stands that has nothing after it. Past the limit only connected replicas hold back trimming.
    async fn trim(&self) {
        let before = |upto: Version| Version(upto.0.saturating_sub(1));
        let Some(unneeded) = self.lead.retention.log().unneeded() else { return };
        let mut trimmed = self.log.trim(before(unneeded)).await;
        if self.log.bytes() > self.lead.retention.log_bytes_max {
            let up: Vec<ReplicaId> =
                self.replicas().iter().filter(|r| r.state == State::Up).map(|r| r.replica).collect();
            let unneeded = self.lead.retention.log().unneeded_but_by(|replica| up.contains(&replica));
            if let Some(unneeded) = unneeded {
                trimmed = self.log.shrink(before(unneeded), self.lead.retention.log_bytes_max).await;
                self.leave_behind(&up);
            }
        }
        match trimmed {
            Ok(first) => self.identities.trim(first),
            Err(error) => tracing::warn!(%error, "the log could not be trimmed"),
        }
    }

    /// Quarantines the replicas that need records which the log has no more, where they cannot find that out by themselves.
    fn leave_behind(&self, up: &[ReplicaId]) {
        if self.kind.knows_lacking_records() {
            return;
        }
        let first = self.log.first_retained();
        let all: Vec<ReplicaId> = self.seats.iter().map(|seat| seat.replica).collect();
        for replica in all.into_iter().filter(|replica| !up.contains(replica)) {
            let needs = self.lead.retention.log().needs(replica);
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
            && let Err(error) = self.lead.retention.quarantines.keep(name, reason, lasting)
        {
            tracing::error!(replica = %name, %error, "after a restart the replica will not be in quarantine any more");
        }
        self.lead.retention.log().quarantine(replica, reason, lasting);
        Arc::clone(&self.kind).shut_out(self, replica);
    }

    /// Puts those replicas into quarantine that were in one when the node ended.
    pub(super) fn remember_quarantines(&self) {
        for status in self.replicas() {
            let name = &self.seats[status.replica].name;
            match self.lead.retention.quarantines.read(name) {
                Ok(None) => {}
                Ok(Some(Quarantine { reason, lasting })) => self.quarantine(status.replica, &reason, lasting),
                Err(error) => {
                    let reason = format!("whether it was in quarantine cannot be read: {error}");
                    self.quarantine(status.replica, &reason, QuarantineDuration::UntilRestart);
                }
            }
        }
    }

    /// The replicas that serve nothing, and why.
    pub(crate) fn quarantined(&self) -> BTreeMap<ReplicaId, String> {
        let retention = self.lead.retention.log();
        let all = self.seats.iter().map(|seat| seat.replica);
        all.filter_map(|replica| Some((replica, retention.reason(replica)?.to_owned()))).collect()
    }

    /// The end of a rebuild, however it went: the log need not be kept for it any more.
    pub(crate) fn end_rebuild(&self, replica: ReplicaId) {
        self.lead.retention.log().forgo(replica);
        self.set_stage(replica, None);
    }

    /// The replica's server has other data now: it leaves quarantine and is connected anew.
    pub(crate) fn rebuilt(&self, replica: ReplicaId) {
        self.lift_quarantine(replica);
        self.lead.retention.log().rebuilt(replica);
        self.kind.let_in(self, replica);
    }

    /// Replicas that could not apply a record are tried again, from what they have; which. One that fails again is in quarantine
    /// again.
    pub(crate) fn try_again(&self) -> Vec<ReplicaId> {
        let mut tried = self.lead.retention.log().may_be_tried_again();
        tried.retain(|replica| self.stage(*replica).is_none());
        for replica in &tried {
            tracing::warn!(replica = %self.seats[*replica].name, "the replica is tried again");
            self.lift_quarantine(*replica);
            self.lead.retention.log().tried_again(*replica);
            self.kind.let_in(self, *replica);
        }
        tried
    }

    fn lift_quarantine(&self, replica: ReplicaId) {
        let name = &self.seats[replica].name;
        if let Err(error) = self.lead.retention.quarantines.lift(name) {
            tracing::error!(replica = %name, %error, "after a restart the replica will be in quarantine again");
        }
    }

    /// What the rebuild of a replica is at; `None` when there is none.
    pub(crate) fn stage(&self, replica: ReplicaId) -> Option<ResyncStage> {
        let stage = &self.seats[replica].stage;
        stage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes note of what the rebuild of a replica is at; returns what was noted before.
    pub(crate) fn set_stage(&self, replica: ReplicaId, stage: Option<ResyncStage>) -> Option<ResyncStage> {
        let noted = &self.seats[replica].stage;
        std::mem::replace(&mut *noted.lock().unwrap_or_else(PoisonError::into_inner), stage)
    }
}
