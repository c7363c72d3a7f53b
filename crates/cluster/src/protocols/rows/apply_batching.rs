//! Apply batching: the time at which a replica is sent the versions that it lacks.
//!
//! A refresh transaction costs a replica as much as the rows of several small records, whatever is in it: a BEGIN, the insert
//! of identities, a COMMIT, and a wake-up for each. So versions are collected into batches. The first one after a quiet time
//! is sent at once; those that follow wait until [`super::Options::refresh_pause_us`] has gone by since the last COMMIT or
//! refresh at that replica.
//!
//! A batch is sent before that, with everything that is durable by then, if it is waited for:
//! - a statement needs a version of it there;
//! - it stands before a COMMIT of the replica's own;
//! - it has a schema change, after which the catalogue is read, which every statement waits for;
//! - replicas are held at one version, or the replica is drained;
//! - an update transaction failed there for want of it, and would fail again when it is run again;
//! - it is full ([`super::Options::refresh_versions_max`]).
//!
//! Invariant: at the end of each event no statement waits at a replica for a durable version while nothing is under way there
//! ([`crate::protocols::ReplicaStatus::is_forgotten`]). A batch that is not waited for is sent when its alarm rings
//! ([`Alarm::ApplyBatch`]).

use super::{Out, Rows};
use crate::event::Effect;
use crate::ids::{SessionId, Version};
use crate::parts::replica::{Replica, State};
use crate::time::Time;

/// A reason to look again at a later time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Alarm {
    /// The pause of the replica with this index is over.
    ApplyBatch(usize),
    /// The transaction of this session has waited in its chain for as long as it may.
    Patience(SessionId),
    /// By the clock of the replica with this index, all has arrived that is older than some transaction.
    Delivery(usize),
    /// The replica with this index has waited long enough for an execution of its own.
    OwnTurn(usize),
}

impl Rows {
    /// Whether a replica that is free, and lacks something durable, is sent it now. If not, its alarm is set.
    pub(super) fn is_due(&mut self, index: usize, out: &mut Out<'_>) -> bool {
        let rested = self.replicas[index].last_commit.map(|last| last.later(self.refresh_pause_us));
        let Some(at) = rested.filter(|at| *at > out.now) else { return true };
        if self.is_demanded(index) {
            return true;
        }
        self.set_alarm(Alarm::ApplyBatch(index), at, out);
        false
    }

    pub(super) fn set_alarm(&mut self, alarm: Alarm, at: Time, out: &mut Out<'_>) {
        if let Some(at) = self.alarms.set(alarm, at) {
            out.effects.push(Effect::WakeAt { at });
        }
    }

    /// The driver has come back: acts on the alarms that are due, and sets the others again.
    pub(super) fn wake_up(&mut self, out: &mut Out<'_>) {
        for (alarm, at) in self.alarms.ring() {
            if at > out.now {
                self.set_alarm(alarm, at, out);
                continue;
            }
            match alarm {
                Alarm::ApplyBatch(index) | Alarm::OwnTurn(index) => self.advance(index, out),
                Alarm::Patience(session) => self.lose_patience(session, out),
                Alarm::Delivery(index) => self.delivery_time(index, out.now),
            }
        }
    }

    /// Whether what the replica lacks is waited for.
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

    /// Whether a statement waits there for a version that is durable, and nothing is under way there.
    pub(super) fn is_forgotten(&self, replica: &Replica) -> bool {
        let index = usize::from(replica.id.0);
        let next = replica.applied.next();
        let is_awaited = self.stamped.as_ref().is_some_and(|one| one.performers.is_awaited(index, next));
        replica.is_free() && self.is_waited_for(replica) && !is_awaited
    }

    /// A transaction failed for want of this version there. When it is run again, it must not fail for the same reason.
    pub(super) fn want(&mut self, index: usize, version: Version, out: &mut Out<'_>) {
        let replica = &mut self.replicas[index];
        replica.wanted = replica.wanted.max(version);
        self.advance(index, out);
    }

    /// Sends each replica that is up what it is due to be sent.
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
