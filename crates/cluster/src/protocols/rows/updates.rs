//! Update transactions until they finish: the order between homes, and statements that are let run.
//!
//! A statement first waits until the order lets it go on ([`crate::parts::order`]). Then it waits until its home has the
//! versions that it reads, and every assigned version of another home that has claims in common with what it may write. So it
//! finds the newest rows at home, and certification (DESIGN section 3: "against what was known to be applied at home when that
//! statement was sent") fails only for claims that were not predicted.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finished, Held, Out, Pending, Phase, Rows, Rule, Running, Transaction};
use crate::claims::{Claimed, Claims, ColumnSet, Meeting, is_definitions};
use crate::event::{AbortCause, Effect, Foreseen, Home, Level, Needs, Reads, Rival};
use crate::ids::{Identity, Incarnation, Nonce, SessionId, TableId, Version};
use crate::parts::chains::Chain;
use crate::parts::in_flight::Place;
use crate::parts::order::{Go, Holder, Request, Scope};
use crate::parts::replica::Turn;
use crate::placement::ReplicaSet;
use crate::protocols::{ChainStatus, Waiting};
use crate::record::SealedBody;
use crate::time::Time;

/// The claims of a transaction that is known as a whole.
pub(super) struct Known {
    /// It begins where it sees all versions with these.
    seen: Claims,
    /// It follows the transactions before it, in chains or by stamps, with these.
    pub(super) chained: Claims,
    is_sure: bool,
    pub(super) is_performable: bool,
}

impl Rows {
    pub(super) fn begin(
        &mut self,
        session: SessionId,
        (level, choice): (Level, Home),
        nonce: Nonce,
        (needs, foreseen): (Needs, Foreseen),
        out: &mut Out<'_>,
    ) {
        self.seated(session, out.now);
        self.transactions_begun += 1;
        let identity = Identity { epoch: self.epoch, n: self.transactions_begun, nonce };
        let known = self.known(level, &foreseen);
        self.kind_begins(session, needs.kind.as_deref().filter(|_| choice != Home::Anchor));
        let home = self.choose_home(choice, (session, &needs), (&foreseen, known.as_ref()), out.now);
        let transaction = Transaction {
            identity,
            is_fresh: true,
            is_counted: false,
            home,
            is_bound: choice == Home::Anchor,
            level,
            seen: known.as_ref().map(|known| Box::new(known.seen.clone())),
            is_sure: known.as_ref().is_some_and(|known| known.is_sure),
            pending: None,
            bases: Vec::new(),
            lock_lsn: None,
            phase: Phase::Open,
        };
        let before = self.transactions.insert(session, transaction);
        assert!(before.is_none(), "a session has one update transaction at a time");
        match known {
            known if self.stamped.is_some() => self.begin_stamped(session, needs, known, out),
            Some(known) => self.ask_whole(session, needs, known.chained, out),
            None => self.ask(session, needs, out),
        }
    }

    /// What the order makes of a transaction that is known as a whole.
    fn known(&self, level: Level, foreseen: &Foreseen) -> Option<Known> {
        let Foreseen::Whole(whole) = foreseen else { return None };
        let rule = self.choices.order.rule()?;
        // At SERIALIZABLE its reads are certified, so they must not be overwritten meanwhile.
        let seen = if rule == Rule::ReadWrite || level == Level::Serializable {
            whole.writes_and_reads()
        } else {
            whole.writes.clone()
        };
        let chained = if rule == Rule::AllUpdates { Claims::everything() } else { seen.clone() };
        Some(Known { seen, chained, is_sure: whole.is_sure, is_performable: whole.is_performable })
    }

    /// The transaction is over, since its session has to wait for a connection to its home.
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

    /// The session has the connection that it waited for. It must not count as load when its own home is chosen.
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

    /// A later statement of a transaction wants to run. It is over if its home lacks a table of the statement.
    pub(super) fn ask_next(&mut self, session: SessionId, needs: Needs, out: &mut Out<'_>) {
        if self.is_misplaced(session, &needs.touches) {
            self.abort(session, AbortCause::NotHeld, out);
        } else {
            self.ask(session, needs, out);
        }
    }

    /// A statement wants to run.
    fn ask(&mut self, session: SessionId, needs: Needs, out: &mut Out<'_>) {
        if self.stamped.as_ref().is_some_and(|stamped| !stamped.is_stamped(session)) {
            // Its first statement was withdrawn, and its stamp with it.
            self.begin_stamped(session, needs, None, out);
            return;
        }
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        let is_serializable = transaction.level == Level::Serializable;
        let scope = if is_serializable { Scope::Everywhere } else { Scope::BetweenHomes };
        let table = table_of(&needs.writes);
        let request = Request { home: transaction.home, claims: needs.writes.clone(), scope };
        transaction.pending = Some(Pending { needs, since: out.now, table });
        let go = self.order.ask(session, request);
        self.asked(session, table, go, out);
    }

    /// The first statement of a transaction wants to run of which all is known.
    fn ask_whole(&mut self, session: SessionId, needs: Needs, claims: Claims, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        let (home, table) = (transaction.home, table_of(&needs.writes).or_else(|| table_of(&claims)));
        transaction.pending = Some(Pending { needs, since: out.now, table });
        let go = self.order.ask_whole(session, home, claims);
        self.asked(session, table, go, out);
        self.begins_to_wait(session, out);
    }

    fn asked(&mut self, session: SessionId, table: Option<TableId>, go: Vec<Go>, out: &mut Out<'_>) {
        if !go.contains(&Go::Run(session)) {
            self.conflicts.of(table).waits += 1;
        }
        self.go_on(go, out);
        self.break_deadlocks(session, &BTreeMap::new(), out);
    }

    /// Lets a statement run, now that the order does not keep it back.
    fn let_run(&mut self, session: SessionId, needs: &Needs, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get(&session) else { return };
        let (home, level, is_fresh) = (transaction.home, transaction.level, transaction.is_fresh);
        let claimed = match &transaction.seen {
            // Versions of its own home count, too: its snapshot is the one with which it ends.
            Some(seen) if is_fresh && self.rules.committed_predecessors_count => self.index.claimer(seen).0,
            Some(_) if is_fresh => Version::ZERO,
            _ if level == Level::Serializable => self.index.claimer(&needs.writes).0,
            _ => self.index.foreign(&needs.writes, self.replicas[home].id).0,
        };
        let floor = if is_fresh { self.homes[home].floor } else { Version::ZERO };
        let seen = if is_fresh { self.session_needs(session, home) } else { Version::ZERO };
        let need = self.need(&needs.reads, needs.catalogue).max(claimed).max(floor).max(seen);
        self.wait_at(home, session, need, self.home_turn(home, needs.cost_us), out);
    }

    /// Reserves what the last statement wrote, unless a version that the statement has not seen has claims in common with it, or
    /// another transaction has them. For claims that home holds, home's own locks rule out the former for versions applied there.
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
            match self.order.reserve_late(session, Request { home, claims, scope: Scope::BetweenHomes }) {
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
        self.over_by_stamp(session);
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

    /// The statement that waits is not to run. The transaction keeps what it holds, as on one server.
    pub(super) fn withdraw(&mut self, session: SessionId, out: &mut Out<'_>) {
        for replica in &mut self.replicas {
            replica.waiting.remove(session);
        }
        self.executed(session);
        if let Some(transaction) = self.transactions.get_mut(&session) {
            transaction.pending = None;
            if transaction.is_fresh {
                transaction.seen = None;
                self.over_by_stamp(session);
            }
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
                rivals: self.rivals(session),
                meeting: self.order.meeting(session),
                since: pending.since,
            })
        };
        let by_stamps = self.transactions.keys().copied().filter(|_| self.stamped.is_some());
        self.order.waiting().into_iter().chain(by_stamps).filter_map(waiting).collect()
    }

    /// The sessions that a session waits for.
    pub(super) fn rivals(&self, session: SessionId) -> Vec<SessionId> {
        let older = self.stamped.as_ref().and_then(|stamped| stamped.rival(session));
        self.order.rivals(session).into_iter().chain(older).collect()
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

    /// Breaks deadlocks that lead through the servers' own locks.
    pub(super) fn server_waits(&mut self, edges: &[(SessionId, SessionId)], out: &mut Out<'_>) {
        let number = |session: SessionId| self.transactions.get(&session).map(|t| t.identity.n);
        let mut servers = self.server_waits.confirm(edges, number);
        if !self.rules.waits_are_confirmed {
            for (waiter, holder) in edges {
                servers.entry(*waiter).or_default().insert(*holder);
            }
        }
        self.undo_younger(&servers);
        for session in self.order.waiting() {
            self.break_deadlocks(session, &servers, out);
        }
    }

    /// A refresh waits for locks of this transaction. An appended one is not aborted: its COMMIT will fail, and the log makes it
    /// good.
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
            // The refresh is of a version that is not applied there yet, and of rows that the transaction holds.
            let home = &self.replicas[index];
            let (version, meeting) = self.index.foreign(&self.order.claims(session), home.id);
            let rival = if version > home.applied { self.rival(version, meeting) } else { Rival::default() };
            self.lost_to(rival, session, out);
        }
    }

    /// Another transaction has what this one wrote or read.
    pub(super) fn lost_to(&mut self, rival: Rival, session: SessionId, out: &mut Out<'_>) {
        self.conflicts.of(rival.meeting.map(|meeting| meeting.table)).aborts += 1;
        let transaction = self.transactions.get(&session);
        self.known_misjudged += u64::from(
            transaction.is_some_and(|transaction| transaction.is_sure && transaction.seen.is_some()),
        );
        self.abort(session, AbortCause::Conflict(rival), out);
    }

    /// The chains of transactions that are known as a whole.
    pub(super) fn chains_now(&self) -> Vec<ChainStatus> {
        let Some(order) = self.order.predicted() else { return Vec::new() };
        let status = |chain: Chain<usize>| ChainStatus {
            chain: chain.id.0.0,
            worker: self.replicas[chain.worker.unwrap_or(self.anchor)].id,
            sessions: chain.links.iter().filter_map(|link| order.session(*link)).collect(),
        };
        order.chains().into_iter().map(status).collect()
    }

    /// The transaction cannot go on, and nothing of it is in the log.
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
        if !self.placement.tells_parts(body.edition(), body.tables(), body.untold()) {
            self.abort(session, AbortCause::Conflict(Rival::default()), out);
            return;
        }
        self.finished_by_stamp(session);
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        let (mut merged, mut held) = (Claims::default(), Claims::default());
        for claimed in &claims {
            merged.add(&claimed.claims);
            if claimed.is_held || !self.rules.only_held_is_waited_for {
                held.add(&claimed.claims);
            }
        }
        // The identity was inserted after the last statement, so the transaction was alive when home had this.
        let base = transaction.bases.last().copied().unwrap_or_default();
        let held = Held { claims: held, base, proofs: 0 };
        let side = &mut self.homes[transaction.home];
        let lsn = transaction.lock_lsn;
        let is_overtaken = lsn.is_some_and(|lsn| side.lock_lsns.is_overtaken(lsn, &merged));
        if let Some(lsn) = lsn.filter(|_| self.rules.waiting_overtake) {
            side.lock_lsns.finish(lsn, merged.clone());
        }
        // Its place counts at once, so a transaction that overlaps it and finishes while it draws waits for it.
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

    /// Home drew a lock LSN. A suspected transaction that could draw again was alive after all that have finished before it.
    pub(super) fn lock_lsn_drawn(&mut self, session: SessionId, lsn: u64, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        if matches!(transaction.phase, Phase::Suspected(_)) {
            self.proved(session, out);
        } else {
            transaction.lock_lsn = Some(lsn);
        }
    }

    /// The snapshots of open transactions. At READ COMMITTED each statement takes one; above, the first statement does.
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

/// The table in which claims are likely to meet others.
pub(super) fn table_of(claims: &Claims) -> Option<TableId> {
    let mut rows = claims.rows.iter().chain(&claims.shared).chain(&claims.groups).map(|row| row.0);
    rows.find(|table| !is_definitions(*table)).or_else(|| claims.tables.first().copied())
}
