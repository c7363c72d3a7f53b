//! Replicas that join, leave, and are drained.
//!
//! Each is made of what happens anyway. A replica that joins is one in quarantine: it has nothing and is asked for nothing,
//! until it has the data of another one and says itself which versions these are. One that leaves is one that is lost
//! and never comes back. One that is drained goes on with what is open there and applies every version, but takes nothing
//! new; the anchor gives its place up as if it was lost, since what only the anchor has (advisory locks, temporary
//! objects) must not be at two places at once.
//!
//! Invariant: a replica is asked for something only after it was up as a member, and nothing that it did as another member
//! of the same number counts: updates begin there when it has everything that was assigned before it joined.
//!
//! Non-goals: who may be a member, and remembering it over a restart: the driver does.

use super::{HomeSide, Out, Rows};
use crate::ids::{ReplicaId, Version};
use crate::parts::replica::{Replica, State};
use crate::placement::ReplicaSet;

impl Rows {
    /// A number that was never a member's, or is of one that has left.
    pub(super) fn joined(&mut self, id: ReplicaId) {
        let index = usize::from(id.0);
        while self.replicas.len() <= index {
            let number = u16::try_from(self.replicas.len()).expect("below the number of a replica");
            let mut absent = Replica::new(ReplicaId(number));
            absent.down(State::Absent);
            self.replicas.push(absent);
            self.homes.push(HomeSide::default());
        }
        if self.replicas[index].state != State::Absent {
            return;
        }
        let waiting = self.replicas[index].waiting.drain();
        self.replicas[index] = Replica::new(id);
        self.replicas[index].down(State::Quarantined);
        let floor = if self.rules.home_catches_up { self.last } else { Version::ZERO };
        self.homes[index].floor = floor;
        // Who waits for the anchor, if that has left and nobody could take its place.
        for (need, session, turn) in waiting {
            self.replicas[index].waiting.push(need.max(floor), session, turn);
        }
        self.placement.join(id);
    }

    /// It is lost, and will not be back.
    pub(super) fn left(&mut self, id: ReplicaId, out: &mut Out<'_>) {
        let index = usize::from(id.0);
        if self.replicas.get(index).is_none_or(|replica| replica.state == State::Absent) {
            return;
        }
        self.replica_lost(id, State::Absent, out);
        self.replicas[index].is_drained = false;
        self.placement.leave(id);
        if index == self.anchor {
            self.is_anchor_overdue = true;
            self.move_anchor(out);
        }
        self.prune();
    }

    /// Whether it takes what is new; the anchor gives its place up.
    pub(super) fn drained(&mut self, id: ReplicaId, is_drained: bool, out: &mut Out<'_>) {
        let index = usize::from(id.0);
        let can_do_without = self.replicas.iter().any(|other| {
            let serves = other.state == State::Up && !other.is_drained;
            other.id != id && serves && self.placement.holders_of_everything().contains(other.id)
        });
        let Some(replica) = self.replicas.get_mut(index).filter(|_| can_do_without || !is_drained) else {
            return;
        };
        replica.is_drained = is_drained;
        if is_drained && index == self.anchor {
            if self.replicas[index].state == State::Up {
                self.replica_lost(id, State::Down, out);
            }
            self.is_anchor_overdue = true;
        }
        self.move_anchor(out);
        self.place_stranded(out);
        self.advance_all(out);
    }

    /// Those of them that take what is new.
    pub(super) fn taking(&self, eligible: ReplicaSet) -> ReplicaSet {
        let drained = self.replicas.iter().filter(|replica| replica.is_drained);
        drained.fold(eligible, |set, replica| set.without(replica.id))
    }

    /// Reads for which no replica was there find one, perhaps.
    pub(super) fn place_stranded(&mut self, out: &mut Out<'_>) {
        for (need, session, turn) in std::mem::take(&mut self.stranded) {
            self.place_read(session, (need, None), turn, out);
        }
    }

    /// Statements that run there, and transactions that are open there.
    pub(super) fn open_at(&self, index: usize) -> usize {
        let open = self.transactions.iter().filter(|(_, transaction)| transaction.home == index);
        let reads = self.running.iter().filter(|(session, running)| {
            running.replica == index && !self.transactions.contains_key(session)
        });
        open.count() + reads.count()
    }
}
