//! Update transactions up to their place in the log: a home, locks against other homes, certification.
//!
//! A statement first waits for the transactions of other homes that hold what it may write, then until its home has what
//! it reads and every assigned version of another home that claims what it may write. So what it finds at home is the
//! newest, and certification (DESIGN section 3: "against what was known to be applied at home when that statement was
//! sent") fails only for what could not be foreseen.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finished, Held, Out, Pending, Phase, Rows, Running, Transaction};
use crate::claims::{Claimed, Claims, ColumnSet, DEFINITIONS, Meeting};
use crate::event::{AbortCause, Effect, Home, Level, Needs, Reads, Rival};
use crate::ids::{Identity, Incarnation, Nonce, SessionId, TableId, Version};
use crate::parts::balancer::Wish;
use crate::parts::in_flight::Place;
use crate::parts::order::{Go, Holder, Request};
use crate::parts::replica::{Replica, State, Turn};
use crate::placement::ReplicaSet;
use crate::protocols::Waiting;
use crate::record::SealedBody;
use crate::time::Time;

impl Rows {
    pub(super) fn begin(
        &mut self,
        session: SessionId,
        (level, choice): (Level, Home),
        nonce: Nonce,
        (needs, foreseen): (Needs, Claims),
        out: &mut Out<'_>,
    ) {
        self.seated(session, out.now);
        self.transactions_begun += 1;
        let identity = Identity { epoch: self.epoch, n: self.transactions_begun, nonce };
        let home = self.choose_home(choice, &needs, foreseen, out.now);
        let transaction = Transaction {
            identity,
            is_fresh: true,
            is_counted: false,
            home,
            is_bound: choice == Home::Anchor,
            level,
            pending: None,
            bases: Vec::new(),
            lock_lsn: None,
            phase: Phase::Open,
        };
        let before = self.transactions.insert(session, transaction);
        assert!(before.is_none(), "a session has one update transaction at a time");
        self.ask(session, needs, out);
    }

    /// The transaction is over, since there is no connection for it at its home; its session waits for one.
    pub(super) fn yields(&mut self, session: SessionId, out: &mut Out<'_>) {
        if let Some(running) = self.running.get_mut(&session)
            && running.queued.is_none()
        {
            let replica = &mut self.replicas[running.replica];
            if replica.is_up(running.incarnation) {
                replica.ends(running.cost_us);
                replica.queued += 1;
                running.queued = Some((out.now, replica.queued));
            }
        }
        self.over(session, out);
    }

    /// Who has waited for a connection has it, and is not in its own way.
    fn seated(&mut self, session: SessionId, now: Time) {
        let running = self.running.get(&session).copied();
        let Some(Running { replica, incarnation, queued: Some((since, place)), .. }) = running else {
            return;
        };
        if self.replicas[replica].is_up(incarnation) {
            self.replicas[replica].seated(now.since_us(since), place);
        }
        self.executed(session);
    }

    /// The end of the chain of transactions that it conflicts with, or is going to; else where the last of them ran, as long
    /// as that is ahead of the others; else the replica with the least expected wait. What draws stays at the anchor if that
    /// has room.
    fn choose_home(&mut self, choice: Home, needs: &Needs, foreseen: Claims, now: Time) -> usize {
        let eligible = match choice {
            Home::Anchor => return self.anchor,
            Home::Any | Home::At(_) | Home::Drawing { .. } => {
                self.taking(self.placement.holders_of_everything())
            }
        };
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
        if let Home::At(replica) = choice
            && may(&usize::from(replica.0))
        {
            return usize::from(replica.0);
        }
        let mut writes = foreseen;
        writes.add(&needs.writes);
        if let Some(chain) = self.order.behind(&writes).filter(may) {
            return chain;
        }
        let (version, ran_at) = self.index.claimer(&writes);
        let ran_at = ran_at.map(|replica| usize::from(replica.0)).filter(may);
        let need = self.need(&needs.reads, needs.catalogue).max(version);
        let wish = Wish { eligible, need, cost_us: needs.cost_us, near };
        let best = self.balancer.choose(&self.replicas, wish).unwrap_or(self.anchor);
        ran_at.filter(|_| self.replicas[best].applied < version).unwrap_or(best)
    }

    /// Whether the anchor takes one more that draws.
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

    /// A statement asks for its turn.
    pub(super) fn ask(&mut self, session: SessionId, needs: Needs, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        let is_strict = transaction.level == Level::Serializable;
        let table = table_of(&needs.writes);
        let request = Request { home: transaction.home, claims: needs.writes.clone(), is_strict };
        transaction.pending = Some(Pending { needs, since: out.now, table });
        let go = self.order.ask(session, request);
        if !go.contains(&Go::Run(session)) {
            self.conflicts.of(table).waits += 1;
        }
        self.go_on(go, out);
        self.break_deadlocks(session, &BTreeMap::new(), out);
    }

    /// Nobody of another home is in its way any more.
    fn let_run(&mut self, session: SessionId, needs: &Needs, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get(&session) else { return };
        let (home, level, is_fresh) = (transaction.home, transaction.level, transaction.is_fresh);
        let claimed = if level == Level::Serializable {
            self.index.claimer(&needs.writes).0
        } else {
            self.index.foreign(&needs.writes, self.replicas[home].id).0
        };
        let floor = if is_fresh { self.homes[home].floor } else { Version::ZERO };
        let need = self.need(&needs.reads, needs.catalogue).max(claimed).max(floor);
        self.wait_at(home, session, need, self.home_turn(home, needs.cost_us), out);
    }

    /// What its last statement wrote is the transaction's, unless somebody was first since that was sent, or has it. For
    /// what is held, home's own locks tell the former up to what is applied there.
    pub(super) fn reserve_late(
        &mut self,
        session: SessionId,
        (mut claims, held): (Claims, Claims),
        out: &mut Out<'_>,
    ) {
        let Some(transaction) = self.transactions.get(&session) else { return };
        let base = transaction.bases.last().copied().unwrap_or_default();
        let home = transaction.home;
        let (id, applied) = (self.replicas[home].id, self.replicas[home].applied);
        let first = [(&claims, base), (&held, applied)].into_iter().find_map(|(claims, base)| {
            let (version, meeting) = self.index.foreign(claims, id);
            (version > base).then(|| self.rival(version, meeting))
        });
        let whole = self.index.foreign_whole(&held, id);
        let first = first.or_else(|| (whole > base).then(|| self.rival(whole, None)));
        let rival = if first.is_some() {
            first
        } else {
            claims.add(&held);
            match self.order.reserve_late(session, Request { home, claims, is_strict: false }) {
                Ok(go) => {
                    self.go_on(go, out);
                    None
                }
                Err(Holder { session, meeting }) => {
                    Some(Rival { meeting, version: None, session: Some(session) })
                }
            }
        };
        out.effects.push(Effect::LateReservation { session, rival });
    }

    pub(super) fn home_turn(&self, home: usize, cost_us: u32) -> Turn {
        let eligible = ReplicaSet::EMPTY.with(self.replicas[home].id);
        Turn { cost_us, eligible, is_bound: true, is_catalogue: false }
    }

    /// The session's transaction keeps no other one waiting any more.
    pub(super) fn unlock(&mut self, session: SessionId, out: &mut Out<'_>) {
        let go = self.order.ended(session);
        self.go_on(go, out);
    }

    pub(super) fn go_on(&mut self, go: Vec<Go>, out: &mut Out<'_>) {
        for Go::Run(session) in go {
            let pending = self.transactions.get_mut(&session).and_then(|t| t.pending.take());
            let Some(Pending { needs, since, table }) = pending else { continue };
            let waited_us = out.now.since_us(since);
            if waited_us > 0 {
                self.conflicts.of(table).waited_us += waited_us;
            }
            self.let_run(session, &needs, out);
        }
    }

    /// The statement that waits is not to run. What the transaction holds by then it keeps, as on one server.
    pub(super) fn withdraw(&mut self, session: SessionId, out: &mut Out<'_>) {
        for replica in &mut self.replicas {
            replica.waiting.remove(session);
        }
        self.executed(session);
        if let Some(transaction) = self.transactions.get_mut(&session) {
            transaction.pending = None;
        }
        let go = self.order.withdraw(session);
        self.go_on(go, out);
    }

    pub(super) fn waits_between_homes(&self) -> Vec<Waiting> {
        let waiting = |session: SessionId| {
            let transaction = self.transactions.get(&session)?;
            let pending = transaction.pending.as_ref()?;
            Some(Waiting {
                session,
                home: self.replicas[transaction.home].id,
                rivals: self.order.rivals(session),
                meeting: self.order.meeting(session),
                since: pending.since,
            })
        };
        self.order.waiting().into_iter().filter_map(waiting).collect()
    }

    fn break_deadlocks(
        &mut self,
        session: SessionId,
        servers: &BTreeMap<SessionId, BTreeSet<SessionId>>,
        out: &mut Out<'_>,
    ) {
        loop {
            let age = |one: SessionId| self.transactions.get(&one).map_or(0, |t| t.identity.n);
            let Some(found) = self.order.deadlock(session, servers, age) else { return };
            let pending = self.transactions.get(&found.victim).and_then(|t| t.pending.as_ref());
            let table = pending.and_then(|pending| pending.table);
            self.conflicts.of(table).deadlocks += 1;
            let meeting = self.order.meeting(found.victim);
            let rival = Rival { meeting, version: None, session: Some(found.rival) };
            self.abort(found.victim, AbortCause::Deadlock(rival), out);
        }
    }

    /// Deadlocks that lead through the servers' own locks.
    pub(super) fn server_waits(&mut self, edges: &[(SessionId, SessionId)], out: &mut Out<'_>) {
        let number = |session: SessionId| self.transactions.get(&session).map(|t| t.identity.n);
        let mut servers = self.server_waits.confirm(edges, number);
        if !self.rules.waits_are_confirmed {
            for (waiter, holder) in edges {
                servers.entry(*waiter).or_default().insert(*holder);
            }
        }
        for session in self.order.waiting() {
            self.break_deadlocks(session, &servers, out);
        }
    }

    /// A refresh waits for its locks. What is appended already is not aborted: its COMMIT will fail, and be made good.
    pub(super) fn blocks_apply(
        &mut self,
        session: SessionId,
        index: usize,
        incarnation: Incarnation,
        out: &mut Out<'_>,
    ) {
        let Some(transaction) = self.transactions.get(&session) else { return };
        let is_there = transaction.home == index && self.replicas[index].is_up(incarnation);
        if is_there && !transaction.is_fresh && !matches!(transaction.phase, Phase::Appended(_)) {
            // What is refreshed there is newer than what is applied, and of what it holds.
            let home = &self.replicas[index];
            let (version, meeting) = self.index.foreign(&self.order.claims(session), home.id);
            let rival = if version > home.applied { self.rival(version, meeting) } else { Rival::default() };
            self.conflicts.of(rival.meeting.map(|meeting| meeting.table)).aborts += 1;
            self.abort(session, AbortCause::Conflict(rival), out);
        }
    }

    /// It cannot go on, and nothing of it is in the log.
    pub(super) fn abort(&mut self, session: SessionId, cause: AbortCause, out: &mut Out<'_>) {
        for replica in &mut self.replicas {
            replica.waiting.remove(session);
        }
        self.executed(session);
        out.effects.push(Effect::Abort { session, cause });
        self.forget(session, out);
    }

    pub(super) fn finish(
        &mut self,
        session: SessionId,
        (body, changed): (Box<SealedBody>, Vec<(TableId, ColumnSet)>),
        claims: Vec<Claimed>,
        reads: Reads,
        out: &mut Out<'_>,
    ) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        assert!(matches!(transaction.phase, Phase::Open), "a transaction finishes once");
        let (mut merged, mut held) = (Claims::default(), Claims::default());
        for claimed in &claims {
            merged.add(&claimed.claims);
            if claimed.is_held || !self.rules.only_held_is_waited_for {
                held.add(&claimed.claims);
            }
        }
        // Its last statement has run after that, and its identity was inserted after its last statement.
        let base = transaction.bases.last().copied().unwrap_or_default();
        let held = Held { claims: held, base, proofs: 0 };
        let side = &mut self.homes[transaction.home];
        let lsn = transaction.lock_lsn;
        let is_overtaken = lsn.is_some_and(|lsn| side.lock_lsns.is_overtaken(lsn, &merged));
        if let Some(lsn) = lsn.filter(|_| self.rules.waiting_overtake) {
            side.lock_lsns.finish(lsn, merged.clone());
        }
        // Its place counts at once, so whoever overlaps it and finishes while it draws waits for it.
        self.places += 1;
        let place = Place(self.places);
        side.in_flight.insert(place, &merged);
        let finished = Box::new(Finished { place, body, changed, claims, held, merged, reads });
        if is_overtaken && self.rules.overtaken_aborts {
            transaction.phase = Phase::Suspected(finished);
            out.effects.push(Effect::DrawLockLsn { session });
        } else {
            transaction.phase = Phase::Finished(finished);
            self.append(session, out);
        }
    }

    /// What home drew. A suspected one that could draw again was alive after all that have finished before it.
    pub(super) fn lock_lsn_drawn(&mut self, session: SessionId, lsn: u64, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        if matches!(transaction.phase, Phase::Suspected(_)) {
            self.proved(session, out);
        } else {
            transaction.lock_lsn = Some(lsn);
        }
    }

    /// At READ COMMITTED each statement takes one; a kept one is the first.
    pub(super) fn snapshots_taken(&self) -> BTreeMap<SessionId, Version> {
        let taken = |(session, transaction): (&SessionId, &Transaction)| {
            let bases = &transaction.bases;
            let is_kept = transaction.level != Level::ReadCommitted;
            let base = if is_kept { bases.first() } else { bases.last() };
            Some((*session, *base?))
        };
        self.transactions.iter().filter_map(taken).collect()
    }

    pub(super) fn first_at(&self, session: SessionId, claims: &Claims) -> Option<Rival> {
        let transaction = self.transactions.get(&session)?;
        let (version, meeting) = self.index.foreign(claims, self.replicas[transaction.home].id);
        let base = transaction.bases.first().copied()?;
        (version > base).then(|| self.rival(version, meeting))
    }

    pub(super) fn rival(&self, version: Version, meeting: Option<Meeting>) -> Rival {
        let session = self.versions.get(&version).map(|assigned| assigned.session);
        Rival { meeting, version: Some(version), session }
    }
}

/// Where claims are likely to meet others.
fn table_of(claims: &Claims) -> Option<TableId> {
    let mut rows = claims.rows.iter().chain(&claims.shared).chain(&claims.groups).map(|row| row.0);
    rows.find(|table| *table != DEFINITIONS).or_else(|| claims.tables.first().copied())
}
