//! From a place in the log to a commit at every replica, in version order at each: see also [`super::commit_groups`].

use super::apply_batching::Alarm;
use super::performing::OwnTurn;
use super::{Assigned, Out, Phase, Rows, Transaction};
use crate::claims::Claims;
use crate::event::Effect;
use crate::ids::{SessionId, Version};
use crate::parts::in_flight::Place;
use crate::parts::replica::State;
use crate::parts::schema_changes::Defined;
use crate::parts::version_index::Written;
use crate::placement::{Changed, Writes};

impl Rows {
    /// Gives a certified transaction the next version. From here on the log alone decides.
    pub(super) fn assign(&mut self, session: SessionId, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        let version = self.last.next();
        let phase = std::mem::replace(&mut transaction.phase, Phase::Appended(version));
        let Phase::Finished(finished) = phase else { return };
        let (home, identity, level) = (transaction.home, transaction.identity, transaction.level);
        (self.last, self.last_home) = (version, home);
        self.homes[home].unsent += 1;
        if let Some(lsn) = transaction.lock_lsn.filter(|_| !self.rules.waiting_overtake) {
            self.homes[home].lock_lsns.finish(lsn, finished.merged.clone());
        }
        let (body, claims) = (finished.body, finished.merged);
        // These leave more than rows, so only the record brings a replica to the same state.
        let is_more = body.writes_everything() || body.moves_sequences() || body.is_spilled();
        let digest = self.appended_by_stamp(session, version, out.now).filter(|_| !is_more);
        let assigned = Assigned {
            session,
            home: Some(home),
            place: finished.place,
            tables: body.tables().collect(),
            in_parts: body.changes().any(|one| one.parts.is_some()).then(|| body.changes().collect()),
            defined: body.writes_everything().then(|| Defined::of(&claims)),
            is_for_all: body.writes_everything() && self.rules.schema_changes_go_everywhere
                || body.moves_sequences(),
            can_be_grouped: self.can_be_grouped(level, &body),
            bytes: body.len_bytes(),
            is_shown_apart: false,
            group_end: version,
            claims,
            identity,
            digest,
        };
        let (tables, everything) = (&*assigned.tables, assigned.defined.is_some());
        let written = Written { tables, changed: &finished.changed, everything };
        self.index.assign(version, self.replicas[home].id, written, &assigned.claims);
        self.versions.insert(version, assigned);
        out.effects.push(Effect::Append { version, identity, body });
        if !self.rules.durable_first {
            self.logged(version, out);
        }
        let go = self.order.appended(session);
        self.go_on(go, out);
    }

    /// A finished transaction is committed at home, or is over there. Those that waited for it go on.
    pub(super) fn settled(&mut self, home: usize, place: Place, claims: &Claims, out: &mut Out<'_>) {
        self.homes[home].in_flight.remove(place, claims);
        let waiting = self.delayed.range((place, SessionId(0))..=(place, SessionId(u64::MAX)));
        let waiting: Vec<(Place, SessionId)> = waiting.copied().collect();
        for entry in waiting {
            self.delayed.remove(&entry);
            self.append(entry.1, out);
        }
    }

    pub(super) fn logged(&mut self, upto: Version, out: &mut Out<'_>) {
        while self.index.last() < upto {
            let version = self.index.last().next();
            let assigned = self.versions.get(&version).expect("a version is kept until it is durable");
            self.index.durable_to(version, assigned.defined.is_some());
            if let Some(defined) = &assigned.defined {
                self.schema_changes.note(version, defined.clone());
            }
            let session = assigned.session;
            if assigned.home.is_none() {
                self.forget(session, out);
            }
            self.sees_own(session, version);
            out.effects.push(Effect::Acknowledge { session, version });
        }
        self.tell_outcomes(out);
        (0..self.replicas.len()).for_each(|index| self.advance(index, out));
        self.check_hold(out);
    }

    /// Sends the next COMMIT or refresh to a replica, if it is free, and lets statements run that waited for what it has now.
    pub(super) fn advance(&mut self, index: usize, out: &mut Out<'_>) {
        self.alarms.cancel(Alarm::ApplyBatch(index));
        self.let_wait_end(index, out);
        let durable = self.index.last();
        while self.replicas[index].is_free() && self.replicas[index].applied < durable {
            let next = self.replicas[index].applied.next();
            let assigned = self.versions.get(&next);
            // Also of an empty record, which no other replica has to apply.
            if assigned.is_some_and(|assigned| assigned.home == Some(index)) {
                self.commit_group(index, next, out);
                return;
            }
            match self.own_turn(index, next, out) {
                OwnTurn::Commits | OwnTurn::Waits => break,
                OwnTurn::TakesRecord => {}
            }
            let (replica, assigned) = (&self.replicas[index], self.versions.get(&next));
            if assigned.is_some_and(|assigned| !self.placement.holdings(replica.id).must_apply(assigned)) {
                self.replicas[index].applied = next;
                self.let_wait_end(index, out);
                continue;
            }
            if !self.is_due(index, out) {
                break;
            }
            let upto = self.end_of_batch(index, next);
            self.shown_apart_after(upto);
            let replica = &mut self.replicas[index];
            let (id, incarnation) = (replica.id, replica.incarnation);
            out.effects.push(Effect::Apply { replica: id, incarnation, from: next, upto });
            replica.sent_refresh(out.now, upto);
        }
        self.prune();
    }

    /// Lets statements run that waited for versions which the replica has now.
    fn let_wait_end(&mut self, index: usize, out: &mut Out<'_>) {
        while let Some((session, turn)) = self.replicas[index].next_turn() {
            self.execute(index, session, turn, out);
        }
        self.ask_for_proof(index, out);
    }

    pub(super) fn committed(&mut self, session: SessionId, out: &mut Out<'_>) {
        let Some(Transaction { phase: Phase::Appended(version), .. }) = self.transactions.get(&session)
        else {
            return;
        };
        let version = *version;
        let Some(assigned) = self.versions.get_mut(&version) else { return };
        let Some(home) = assigned.home.take() else { return };
        let (place, claims) = (assigned.place, std::mem::take(&mut assigned.claims));
        self.forget(session, out);
        self.has_applied(home, version, out);
        self.settled(home, place, &claims, out);
    }

    pub(super) fn has_applied(&mut self, index: usize, upto: Version, out: &mut Out<'_>) {
        self.replicas[index].acknowledged(out.now, upto);
        if index == self.anchor {
            self.ask_catalogue(out);
        }
        self.advance(index, out);
        self.check_hold(out);
    }

    /// Drops versions that every replica that is up has. A replica that comes back reads the log.
    pub(super) fn prune(&mut self) {
        let up = self.replicas.iter().filter(|r| r.state == State::Up).map(|r| r.applied).min();
        let floor = up.unwrap_or(Version(u64::MAX)).min(self.index.last());
        while let Some(entry) = self.versions.first_entry()
            && *entry.key() <= floor
            && entry.get().home.is_none()
        {
            entry.remove();
        }
    }
}

impl Writes for Assigned {
    fn is_for_all(&self) -> bool {
        self.is_for_all
    }

    fn changes(&self) -> impl Iterator<Item = Changed> {
        let whole = self.tables.iter().filter(|_| self.in_parts.is_none());
        let whole = whole.map(|table| Changed { table: *table, parts: None });
        self.in_parts.iter().flat_map(|changes| changes.iter().copied()).chain(whole)
    }
}
