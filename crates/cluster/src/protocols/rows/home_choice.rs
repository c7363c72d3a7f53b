//! The home of an update transaction: where it begins, and stays.
//!
//! Of the replicas that hold all that it needs ([`crate::placement`]), the protocol's [`HomePolicy`] chooses one. By
//! [`HomePolicy::ConflictThenLoad`] that is the home of the last transaction that it will wait for, or will conflict with; else
//! the home of the last version that it conflicts with, as long as the others lack that version; else the replica with the least
//! expected wait. By [`HomePolicy::LocalReplica`] it is the replica to which the session is connected ([`super::local`]).
//!
//! Masters come before all that, and so do replicas that hold only some parts before those that hold everything.
//!
//! Example: two `CALL payment(3, ..)` begin at one replica, so the second one need not wait for the first one's rows to travel.
//!
//! Invariant: a transaction runs nowhere but where all is held that it needs. The anchor holds everything.

use super::updates::Known;
use super::{HomePolicy, Rows};
use crate::claims::Claims;
use crate::event::{Foreseen, Home, Needs};
use crate::ids::{ReplicaId, SessionId};
use crate::parts::balancer::Wish;
use crate::parts::replica::{Replica, State};
use crate::placement::{ReplicaSet, Touches};
use crate::time::Time;

impl Rows {
    /// The home of a transaction that begins. One that draws from sequences stays at the anchor if that has room. By memory, only
    /// the group of its kind counts.
    pub(super) fn choose_home(
        &mut self,
        choice: Home,
        (session, needs): (SessionId, &Needs),
        (foreseen, known): (&Foreseen, Option<&Known>),
        now: Time,
    ) -> usize {
        let eligible = match choice {
            Home::Anchor => return self.anchor,
            Home::At(_) => self.taking(self.homes_for(&needs.touches)),
            Home::Any | Home::Drawing { .. } => {
                self.grouped(session, self.taking(self.homes_for(&needs.touches)), now)
            }
        };
        if self.choices.home == HomePolicy::Anchor {
            return self.anchor;
        }
        let eligible = self.sparing_full(eligible, &needs.touches);
        let eligible = self.preferring_masters(eligible, needs, foreseen);
        if let Some(home) = self.asked_for(choice, eligible).or_else(|| self.local_home(session, eligible)) {
            return home;
        }
        let mut near = needs.near;
        if let Home::Drawing { last } = choice {
            let has_room = self.anchor_has_room(eligible, needs, now);
            let running = self.replicas.iter().map(|replica| replica.running + replica.queued).sum();
            let stays = self.drawing.stays(now, running, last, self.replicas[self.anchor].id);
            if has_room && stays.is_none() {
                return self.anchor;
            }
            near = stays.or(near);
        }
        let may = |index: &usize| {
            let replica = &self.replicas[*index];
            replica.state == State::Up && eligible.contains(replica.id)
        };
        if self.choices.home == HomePolicy::InTurn {
            return self.take_turn(eligible).unwrap_or(self.anchor);
        }
        let mut writes = needs.writes.clone();
        match foreseen {
            Foreseen::Likely(later) => writes.add(later),
            Foreseen::Whole(whole) => writes.add(&whole.writes),
        }
        let chain = match known {
            Some(known) => self.order.behind_whole(&known.chained),
            None => self.order.behind(&writes),
        };
        if let Some(chain) = chain.filter(may) {
            return chain;
        }
        let (version, ran_at) = self.index.claimer(&writes);
        let ran_at = ran_at.map(|replica| usize::from(replica.0)).filter(may);
        let need = self.need(&needs.reads, needs.catalogue).max(version);
        let wish = Wish { eligible, need, cost_us: needs.cost_us, near };
        let best = self.balancer.choose(&self.replicas, wish).unwrap_or(self.anchor);
        let goes_there = !self.choices.home.asks_kinds() && self.replicas[best].applied < version;
        ran_at.filter(|_| goes_there).unwrap_or(best)
    }

    /// The replica that the client has asked for, if it is up and one of these.
    fn asked_for(&self, choice: Home, eligible: ReplicaSet) -> Option<usize> {
        let Home::At(replica) = choice else { return None };
        let index = usize::from(replica.0);
        let is_up = self.replicas.get(index).is_some_and(|replica| replica.state == State::Up);
        (is_up && eligible.contains(replica)).then_some(index)
    }

    /// The replicas that hold all that a transaction needs there, as far as that is known when it begins.
    fn homes_for(&self, touches: &Touches) -> ReplicaSet {
        if self.rules.homes_hold_all {
            self.placement.holders_of(touches)
        } else {
            self.replicas.iter().fold(ReplicaSet::EMPTY, |set, replica| set.with(replica.id))
        }
    }

    /// Of the replicas that hold the parts, those that do not hold everything, if one of them is up: the others have to apply the rows of
    /// all parts, which bounds the cluster.
    fn sparing_full(&self, eligible: ReplicaSet, touches: &Touches) -> ReplicaSet {
        let Touches::Parts { parts, .. } = touches else { return eligible };
        let everything = self.placement.holders_of_everything();
        let partial = everything.iter().fold(eligible, ReplicaSet::without);
        let is_up = |id: ReplicaId| self.replicas[usize::from(id.0)].state == State::Up;
        if !parts.is_empty() && partial.iter().any(is_up) { partial } else { eligible }
    }

    /// Of these replicas, the masters of what is written, if one of them is up.
    fn preferring_masters(&self, eligible: ReplicaSet, needs: &Needs, foreseen: &Foreseen) -> ReplicaSet {
        let later = match foreseen {
            Foreseen::Likely(claims) => claims,
            Foreseen::Whole(whole) => &whole.writes,
        };
        let written = [&needs.writes, later].into_iter().flat_map(Claims::written_tables);
        let masters = self.placement.masters_among(eligible, written);
        let is_up = |id: ReplicaId| self.replicas[usize::from(id.0)].state == State::Up;
        if masters.iter().any(is_up) { masters } else { eligible }
    }

    /// Whether the session's transaction has its home where its statement cannot run.
    pub(super) fn is_misplaced(&self, session: SessionId, touches: &Touches) -> bool {
        let home = self.transactions.get(&session).map(|transaction| self.replicas[transaction.home].id);
        home.is_some_and(|home| !self.homes_for(touches).contains(home))
    }

    /// The next replica that is up and eligible, in circular order.
    pub(super) fn take_turn(&mut self, eligible: ReplicaSet) -> Option<usize> {
        let count = self.replicas.len();
        let is_up = |index: &usize| {
            let replica = &self.replicas[*index];
            replica.state == State::Up && eligible.contains(replica.id)
        };
        let next = (1..=count).map(|step| (self.last_turn + step) % count).find(is_up)?;
        self.last_turn = next;
        Some(next)
    }

    /// Whether the anchor takes one more transaction that draws from sequences.
    fn anchor_has_room(&mut self, eligible: ReplicaSet, needs: &Needs, now: Time) -> bool {
        let anchor = &self.replicas[self.anchor];
        if anchor.state != State::Up || !eligible.contains(anchor.id) {
            return false;
        }
        let need = self.need(&needs.reads, needs.catalogue);
        let wait_us = |replica: &Replica| replica.expected_wait_us(need);
        let others = self.replicas.iter().filter(|other| {
            other.id != anchor.id
                && other.state == State::Up
                && !other.is_suspect
                && eligible.contains(other.id)
        });
        let least_us = others.map(wait_us).min();
        self.drawing.has_room(now, (anchor, wait_us(anchor)), least_us, needs.cost_us)
    }
}
