//! Another replica becomes the anchor when the anchor is lost and does not come back at once.
//!
//! Catalogue reads and transactions that cannot be bounded run at the anchor, but they rest on the log, not on the anchor. So
//! any replica that holds everything can become the anchor, once it has all versions assigned by then: the rule for a home
//! that comes back (`floor`), applied to another replica. Transactions that were open at the old anchor were rolled back when
//! it was lost. Logged ones are applied everywhere from the log, also at the old anchor when it comes back as an ordinary
//! replica. (Conflict-aware scheduling, section 3.2, lets a surviving replica go on from the logged commits in the same way;
//! there the scheduler is lost.)
//!
//! The driver decides how long to wait, and says [`crate::event::Event::TakeOver`] when the time is up. If no replica can
//! take over then, the first one that can does later.
//!
//! An anchor that is drained or leaves is treated as lost ([`super::members`]), so there is one way to stop being the anchor.
//!
//! Non-goal: choosing by load.

use std::cmp::Reverse;

use super::{Out, Rows};
use crate::event::Effect;
use crate::ids::{ReplicaId, Version};
use crate::parts::replica::State;
use crate::placement::ReplicaSet;

impl Rows {
    /// The driver has waited long enough for this replica to come back.
    pub(super) fn take_over(&mut self, from: ReplicaId, out: &mut Out<'_>) {
        let index = usize::from(from.0);
        let is_lost = self.replicas[index].state != State::Up;
        if index == self.anchor && (is_lost || !self.rules.takeover_of_lost) {
            self.is_anchor_overdue = true;
            self.move_anchor(out);
        }
    }

    /// If the anchor is overdue, makes the replica that has applied most the anchor, of those that may be.
    pub(super) fn move_anchor(&mut self, out: &mut Out<'_>) {
        let may_have = if self.rules.takeover_by_holder {
            self.placement.holders_of_everything()
        } else {
            self.replicas.iter().fold(ReplicaSet::EMPTY, |set, replica| set.with(replica.id))
        };
        let others = self.replicas.iter().enumerate().filter(|(index, replica)| {
            *index != self.anchor
                && replica.state == State::Up
                && !replica.is_drained
                && may_have.contains(replica.id)
        });
        let best = others.max_by_key(|(index, replica)| (replica.applied, Reverse(*index)));
        let Some((next, _)) = best.filter(|_| self.is_anchor_overdue) else { return };
        self.is_anchor_overdue = false;
        let old = std::mem::replace(&mut self.anchor, next);
        let floor = if self.rules.takeover_catches_up { self.last } else { Version::ZERO };
        self.homes[next].floor = floor;
        self.catalogue_asked = self.catalogue;
        out.effects.push(Effect::Anchor { replica: self.replicas[next].id });
        // Transactions that have not begun move: they may run at the anchor only, or no other replica was up for them.
        let mut moved = Vec::new();
        for (session, transaction) in self.transactions.iter_mut().filter(|(_, t)| t.home == old) {
            if transaction.is_fresh {
                transaction.home = next;
                self.replicas[next].writes += 1;
                moved.push(*session);
            }
        }
        // Only such transactions wait at a replica that is lost.
        for (need, session, turn) in self.replicas[old].waiting.drain() {
            let need = if self.rules.takeover_catches_up { need.max(floor) } else { Version::ZERO };
            self.wait_at(next, session, need, self.home_turn(next, turn.cost_us), out);
        }
        let go = self.order.rehome(&moved, next);
        self.go_on(go, out);
        for (need, session, mut turn) in std::mem::take(&mut self.stranded) {
            if turn.is_catalogue {
                turn.eligible = ReplicaSet::EMPTY.with(self.replicas[next].id);
            }
            self.place_read(session, (need, None), turn, out);
        }
        self.ask_catalogue(out);
    }
}
