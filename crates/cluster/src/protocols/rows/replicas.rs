//! Replicas that are up or lost; transactions that end; the catalogue; holding all replicas at one version.
//!
//! A lost home is the hard case: see the head of [`super`]. Its open transactions that are not logged are rolled back before
//! anything more is appended from it. Logged ones stay needed and are applied there from the log.

use std::collections::BTreeSet;

use super::apply_batching::Alarm;
use super::{Out, Phase, Rows};
use crate::event::{AbortCause, Effect};
use crate::ids::{Incarnation, ReplicaId, SessionId, Version};
use crate::parts::replica::State;

impl Rows {
    pub(super) fn replica_up(
        &mut self,
        id: ReplicaId,
        incarnation: Incarnation,
        applied: Version,
        out: &mut Out<'_>,
    ) {
        let index = usize::from(id.0);
        if matches!(self.replicas[index].state, State::Quarantined | State::Absent) {
            return;
        }
        self.replicas[index].up(incarnation, applied);
        if self.rules.comes_up_whole {
            // COMMITs that were sent to a home before this are of durable versions, so the replica does not stop among them.
            self.replicas[index].floor = self.index.last();
        }
        self.shown_apart_after(applied);
        self.agent_up(index, out.now);
        self.place_stranded(out);
        if index == self.anchor {
            self.is_anchor_overdue = false;
            self.ask_catalogue(out);
        } else {
            self.move_anchor(out);
        }
        self.advance(index, out);
    }

    /// The replica is lost, unless these are connections of before.
    pub(super) fn connections_lost(&mut self, id: ReplicaId, incarnation: Incarnation, out: &mut Out<'_>) {
        if self.replicas[usize::from(id.0)].is_up(incarnation) {
            self.replica_lost(id, State::Down, out);
        }
    }

    pub(super) fn replica_lost(&mut self, id: ReplicaId, state: State, out: &mut Out<'_>) {
        let index = usize::from(id.0);
        self.replicas[index].down(state);
        self.alarms.cancel(Alarm::ApplyBatch(index));
        self.agent_lost(index);
        if state == State::Down {
            out.effects.push(Effect::Reset { replica: id });
        }
        if self.rules.home_catches_up {
            self.homes[index].floor = self.last;
        }
        if index == self.anchor {
            self.catalogue_asked = self.catalogue;
        }
        if self.rules.lost_home_aborts {
            self.abandon_home(index, out);
        }
        for (need, session, turn) in self.replicas[index].waiting.drain() {
            if self.transactions.contains_key(&session) {
                // Its transaction has not begun, so it may begin when the anchor is back.
                let floor = self.homes[index].floor;
                self.replicas[index].waiting.push(need.max(floor), session, turn);
            } else {
                self.place_read(session, (need, None), turn, out);
            }
        }
        self.check_hold(out);
    }

    /// The replica has data again. It reports its applied versions when it comes up, like any other.
    pub(super) fn rebuilt(&mut self, id: ReplicaId) {
        let replica = &mut self.replicas[usize::from(id.0)];
        if replica.state == State::Quarantined {
            replica.down(State::Down);
        }
    }

    /// Rolls back what is open at a lost home, before anything more is appended from it. Logged transactions are applied there
    /// from the log. A transaction that has not begun and need not run there begins again elsewhere.
    pub(super) fn abandon_home(&mut self, index: usize, out: &mut Out<'_>) {
        let side = &mut self.homes[index];
        side.lock_lsns.clear();
        side.unsent = 0;
        for assigned in self.versions.values_mut() {
            if assigned.home.take_if(|home| *home == index).is_some() {
                side.in_flight.remove(assigned.place, &assigned.claims);
                out.effects.push(Effect::HomeLost { session: assigned.session });
            }
        }
        let (mut lost, mut logged) = (Vec::new(), Vec::new());
        for (session, transaction) in self.transactions.iter().filter(|(_, t)| t.home == index) {
            match transaction.phase {
                Phase::Appended(version) if version <= self.index.last() => logged.push(*session),
                Phase::Appended(_) => {}
                // By stamps it may keep others out of the log, so it does not wait for the anchor.
                _ if transaction.is_fresh && transaction.is_bound && self.stamped.is_none() => {}
                _ => lost.push(*session),
            }
        }
        let gone: BTreeSet<SessionId> = lost.iter().copied().collect();
        self.delayed.retain(|(_, session)| !gone.contains(session));
        self.ready.retain(|(_, session)| !gone.contains(session));
        self.held.retain(|(_, session)| !gone.contains(session));
        self.proving.retain(|(.., session)| !gone.contains(session));
        for session in logged {
            self.forget(session, out);
        }
        // All of them are closed before a transaction that waited for one of them is appended.
        let lost: Vec<SessionId> = lost.into_iter().filter(|s| self.transactions.contains_key(s)).collect();
        for session in &lost {
            self.close(*session);
        }
        for session in lost {
            self.abort(session, AbortCause::HomeLost, out);
        }
    }

    /// Takes a transaction out of the order of its home, so that no other one is appended because it goes.
    pub(super) fn close(&mut self, session: SessionId) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        if let Phase::Finished(finished) | Phase::Suspected(finished) =
            std::mem::replace(&mut transaction.phase, Phase::Open)
        {
            self.homes[transaction.home].in_flight.remove(finished.place, &finished.merged);
        }
    }

    pub(super) fn give_up(&mut self, session: SessionId, out: &mut Out<'_>) {
        for replica in &mut self.replicas {
            replica.waiting.remove(session);
        }
        self.stranded.retain(|(_, waiter, _)| *waiter != session);
        self.unclassified.retain(|waiter| *waiter != session);
        self.end(session, out);
    }

    /// The transaction is over without a record. One that is in the log cannot end this way.
    pub(super) fn end(&mut self, session: SessionId, out: &mut Out<'_>) {
        self.executed(session);
        self.over(session, out);
        self.kind_ends(session);
    }

    /// The same, but it still counts as load.
    pub(super) fn over(&mut self, session: SessionId, out: &mut Out<'_>) {
        let phase = self.transactions.get(&session).map(|t| &t.phase);
        if !matches!(phase, None | Some(Phase::Appended(_))) {
            self.forget(session, out);
        }
    }

    /// Has the catalogue read, one at a time: schema changes can come faster than that.
    pub(super) fn ask_catalogue(&mut self, out: &mut Out<'_>) {
        let version = self.index.last_ddl();
        let anchor = &self.replicas[self.anchor];
        let is_asked = self.catalogue < self.catalogue_asked;
        let is_there = anchor.state == State::Up && anchor.applied >= version;
        if is_there && !is_asked && self.catalogue_asked < Some(version) {
            self.catalogue_asked = Some(version);
            let replica = anchor.id;
            out.effects.push(Effect::LoadCatalogue { replica, version });
        }
    }

    pub(super) fn catalogue_loaded(&mut self, version: Version, out: &mut Out<'_>) {
        self.catalogue = self.catalogue.max(Some(version));
        if self.catalogue >= Some(self.index.last_ddl()) {
            let waiting = std::mem::take(&mut self.unclassified);
            out.effects.extend(waiting.into_iter().map(|session| Effect::Reclassify { session }));
        } else {
            self.ask_catalogue(out);
        }
    }

    pub(super) fn check_hold(&mut self, out: &mut Out<'_>) {
        let durable = self.index.last();
        let mut up = self.replicas.iter().filter(|r| r.state == State::Up);
        let level = self.last == durable && up.all(|r| r.applied == durable);
        if let Some((session, told @ false)) = &mut self.hold
            && (level || !self.rules.hold_waits)
        {
            *told = true;
            out.effects.push(Effect::Held { session: *session, version: durable });
        }
    }

    /// Stops all replicas at one version, unless another session holds them already.
    pub(super) fn hold_at(&mut self, session: SessionId, out: &mut Out<'_>) {
        self.hold.get_or_insert((session, false));
        self.advance_all(out);
        self.check_hold(out);
    }

    pub(super) fn release(&mut self, session: SessionId, out: &mut Out<'_>) {
        if self.hold.take_if(|(holder, _)| *holder == session).is_some() {
            for (_, session) in std::mem::take(&mut self.held) {
                self.append(session, out);
            }
        }
    }
}
