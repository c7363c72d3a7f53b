//! When a replica is sent what it lacks.
//!
//! A batch of refreshes costs a replica as much as the rows of several small records, whatever is in it: a transaction, the
//! insert of identities, a COMMIT, and waking up for each. So versions are gathered: the first after a quiet time goes at
//! once, those that follow wait until [`super::Options::refresh_pause_us`] has gone by since the last COMMIT or refresh there.
//!
//! What somebody waits for goes at once, with everything that is durable by then: what a statement needs there, what stands
//! before a COMMIT of that replica's own, a schema change (the catalogue is read after it, and every statement waits for that),
//! everything while replicas are held at one version or the replica is drained, what an update transaction lost against for
//! want of it (it is run again, and would lose again), and what makes a full batch.
//!
//! Invariant: at the end of each event no statement waits at a replica for a durable version while nothing is under way there
//! ([`crate::protocols::ReplicaStatus::is_forgotten`]). What nobody waits for is sent when the pause is over, for which the
//! driver is asked to come back ([`Effect::WakeAt`]).

use super::{Out, Rows};
use crate::event::Effect;
use crate::ids::Version;
use crate::parts::replica::{Replica, State};
use crate::time::Time;

impl Rows {
    /// Whether a replica that is free, and lacks something durable, is sent it now. If not, the driver is asked to come back.
    pub(super) fn is_due(&mut self, index: usize, out: &mut Out<'_>) -> bool {
        let rested = self.replicas[index].last_commit.map(|last| last.later(self.refresh_pause_us));
        let Some(at) = rested.filter(|at| *at > out.now) else { return true };
        if self.is_demanded(index) {
            return true;
        }
        if self.wakes_at.is_none_or(|wakes_at| at < wakes_at) {
            self.wakes_at = Some(at);
            out.effects.push(Effect::WakeAt { at });
        }
        false
    }

    /// Whether somebody waits for what the replica lacks.
    fn is_demanded(&self, index: usize) -> bool {
        let (replica, durable) = (&self.replicas[index], self.index.last());
        let lacking = durable.0 - replica.applied.0;
        if self.hold.is_some() || replica.is_drained || lacking >= self.refresh_versions_max {
            return true;
        }
        if self.rules.waiters_are_seen && self.is_waited_for(replica) {
            return true;
        }
        let mut backlog = self.versions.range(replica.applied.next()..=durable).map(|(_, assigned)| assigned);
        replica.wanted > replica.applied
            || backlog.clone().count() as u64 != lacking
            || backlog.any(|assigned| assigned.home == Some(index) || assigned.defined.is_some())
    }

    /// Whether a statement waits there for a version that is durable.
    fn is_waited_for(&self, replica: &Replica) -> bool {
        replica.waiting.first_need().is_some_and(|need| need <= self.index.last())
    }

    /// Whether that is so although nothing is under way there.
    pub(super) fn is_forgotten(&self, replica: &Replica) -> bool {
        replica.is_free() && self.is_waited_for(replica)
    }

    /// Something was lost for want of this version there: it is not to happen again.
    pub(super) fn want(&mut self, index: usize, version: Version, out: &mut Out<'_>) {
        let replica = &mut self.replicas[index];
        replica.wanted = replica.wanted.max(version);
        self.advance(index, out);
    }

    /// The time has come that was told the driver.
    pub(super) fn wake_up(&mut self, out: &mut Out<'_>) {
        self.wakes_at = None;
        self.advance_all(out);
    }

    pub(super) fn advance_all(&mut self, out: &mut Out<'_>) {
        for index in 0..self.replicas.len() {
            if self.replicas[index].state == State::Up {
                self.advance(index, out);
            }
        }
    }
}

impl Time {
    fn later(self, by_us: u64) -> Self {
        Self { us: self.us.saturating_add(by_us) }
    }
}
