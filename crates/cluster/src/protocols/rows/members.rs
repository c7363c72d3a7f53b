//! Replicas that join, leave, or are drained.
//!
//! Each is treated like a case that exists anyway. A replica that joins is in quarantine: it has no data and gets no work,
//! until it has the data of another one and reports its applied versions. A replica that leaves is lost and never comes
//! back. A replica that is drained finishes its open transactions and applies every version, but takes nothing new. A drained
//! anchor gives its role up as if it was lost, since advisory locks and temporary objects, which only the anchor has, must
//! not be at two replicas at once.
//!
//! Invariant: a replica gets work only after it was up as a member, and nothing counts that an earlier member of the same
//! number did: updates begin there when it has all versions that were assigned before it joined.
//!
//! Non-goals: the driver decides which replicas are members, and remembers it over a restart.

use super::{HomeSide, Out, Rows};
use crate::ids::{ReplicaId, TableId, Version};
use crate::parts::replica::{Replica, State};
use crate::placement::{Copies, Holdings, ReplicaSet};

impl Rows {
    /// A replica joins, under a new number or that of a member that has left.
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
        // Statements may wait for the anchor, if that has left and no replica could take over.
        for (need, session, turn) in waiting {
            self.replicas[index].waiting.push(need.max(floor), session, turn);
        }
        self.placement.join(id);
    }

    /// The replica is lost, and will not come back. The last holder of a table stays a member that is down.
    pub(super) fn left(&mut self, id: ReplicaId, out: &mut Out<'_>) {
        let index = usize::from(id.0);
        if self.replicas.get(index).is_none_or(|replica| replica.state == State::Absent) {
            return;
        }
        // The driver asks before ([`crate::protocols::Protocol::may_leave`]). Forgetting the last holder of a table would lose it.
        if self.placement.leave(id).is_err() {
            self.replica_lost(id, State::Down, out);
            return;
        }
        self.replica_lost(id, State::Absent, out);
        self.replicas[index].is_drained = false;
        if index == self.anchor {
            self.is_anchor_overdue = true;
            self.move_anchor(out);
        }
        self.prune();
    }

    /// Stops or resumes new work at a replica. The anchor gives its role up.
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

    /// Other replicas hold a table from now on. A read that waits was given its replicas by the former placement, so it does not
    /// go to one that holds less of the table now, whatever it reads.
    pub(super) fn placed(&mut self, table: TableId, copies: Option<Copies>) {
        let former: Vec<Holdings> = self.replicas.iter().map(|r| self.placement.holdings(r.id)).collect();
        match copies {
            Some(copies) => self.placement.restrict(table, copies),
            None => self.placement.lift(table),
        }
        let holds_less = |(replica, former): (&Replica, &Holdings)| {
            let present = self.placement.holdings(replica.id);
            (!present.cover(former)).then_some(replica.id)
        };
        let left_out: Vec<ReplicaId> = self.replicas.iter().zip(&former).filter_map(holds_less).collect();
        let waiting = self.replicas.iter_mut().flat_map(|replica| replica.waiting.items_mut());
        for turn in waiting.chain(self.stranded.iter_mut().map(|(_, _, turn)| turn)) {
            turn.eligible = left_out.iter().fold(turn.eligible, |set, replica| set.without(*replica));
        }
    }

    /// Those of these replicas that take new work.
    pub(super) fn taking(&self, eligible: ReplicaSet) -> ReplicaSet {
        let drained = self.replicas.iter().filter(|replica| replica.is_drained);
        drained.fold(eligible, |set, replica| set.without(replica.id))
    }

    /// Tries again to place the reads for which no eligible replica was up.
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
        open.count() + reads.count() + self.replicas[index].outside.running as usize
    }
}
