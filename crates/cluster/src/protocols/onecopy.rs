//! Protocol `onecopy`, first cut: one home for updates, every replica for reads, one copy seen by all.
//!
//! ```text
//! read      place by conflict, then load -> wait until applied(r) >= need -> Execute
//! update    anchor: Execute ... Finish -> (overlap?) -> Append -> Logged -> Acknowledge
//!                                                               \-> Commit at home, in version order
//!                                                               \-> Apply elsewhere, in version order
//! ```
//!
//! Choices: order by the log, conflicts by PostgreSQL's own locks at the anchor; place updates at the anchor, reads by
//! conflict first and load second (conflict-aware scheduling, section 3: "a read is sent to a replica where all
//! conflicting writes have completed"); propagate row images; acknowledge when logged (the Tashkent papers: unite
//! ordering and durability).
//!
//! Guarantee: what clients see is a history of one PostgreSQL. All update transactions run on one server, so their own
//! isolation is that server's; SERIALIZABLE ones run one at a time. Reads elsewhere see a prefix of the version order
//! that holds everything needed (DESIGN section 3, Visibility; rule set "needed from durable, answered at durable,
//! serial commits" of the spec).
//!
//! The one recovery: when anything on which a logged commit depends is lost at a replica, that replica is reset as a
//! whole: every connection ends, what was open there and not logged is rolled back (40001), its applied set is read
//! again and the log is applied from there. This is the lost-COMMIT rule of DESIGN section 3 with "every open update
//! transaction" taken literally; it costs a moment and has no second path that could be wrong. When the replica does not
//! come back at once, another one becomes the anchor: see [`takeover`].
//!
//! Deviation from DESIGN section 5: no lock table, no certification, no updates at other replicas yet.

mod replicas;
mod rules;
mod takeover;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Protocol, ReplicaStatus};
use crate::claims::Claims;
use crate::event::{AbortCause, Effect, Event, Level, Reads};
use crate::ids::{Epoch, Identity, Incarnation, Nonce, ReplicaId, SessionId, TableId, Version};
use crate::parts::balancer::Balancer;
use crate::parts::in_flight::{InFlight, Place};
use crate::parts::replica::{Replica, State, Turn};
use crate::parts::serial_queue::SerialQueue;
use crate::parts::tickets::Tickets;
use crate::parts::version_index::VersionIndex;
use crate::placement::{Placement, ReplicaSet};
use crate::record::SealedBody;
use crate::time::Time;

pub use rules::Rules;

/// Most versions in one refresh transaction.
pub const REFRESH_VERSIONS_MAX: u64 = 100;

/// What an instance starts from.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of replicas; they are numbered from 0.
    pub replicas: u16,
    /// The home of updates and the server of the catalogues, to begin with.
    pub anchor: ReplicaId,
    /// Which replica holds what.
    pub placement: Placement,
    /// This leader's term.
    pub epoch: Epoch,
    /// The last version in the log: all of it is needed.
    pub last: Version,
    /// All on, except in tests.
    pub rules: Rules,
}

#[derive(Debug)]
enum Phase {
    /// Waits for the SERIALIZABLE transactions before it.
    Queued { need: Version, cost_us: u32 },
    /// Its statements run, or wait for a turn.
    Open,
    /// Done, but not appended yet.
    Finished { place: Place, body: Box<SealedBody>, claims: Claims },
    /// The same, but something that drew later has finished before it: it has to draw again.
    Suspected { place: Place, body: Box<SealedBody>, claims: Claims },
    /// In the log, or on the way there.
    Appended(Version),
}

#[derive(Debug)]
struct Transaction {
    identity: Identity,
    /// Its first statement has not been let run yet.
    is_fresh: bool,
    /// What home drew for it.
    ticket: Option<u64>,
    phase: Phase,
}

/// A version that some replica may still lack.
#[derive(Debug)]
struct Assigned {
    session: SessionId,
    /// Where its transaction is open and waits for its COMMIT; `None` once it is gone.
    home: Option<usize>,
    place: Place,
    tables: Arc<[TableId]>,
    everything: bool,
    /// Every replica has to move sequences for it.
    is_everywhere: bool,
    claims: Claims,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    replica: usize,
    incarnation: Incarnation,
    cost_us: u32,
}

/// The state at the leader.
#[derive(Debug)]
pub struct Onecopy {
    rules: Rules,
    anchor: usize,
    /// The anchor is lost, and another replica is to take its place as soon as one can.
    is_anchor_overdue: bool,
    epoch: Epoch,
    transactions_begun: u64,
    last: Version,
    needed: VersionIndex,
    in_flight: InFlight,
    places: u64,
    tickets: Tickets,
    /// Updates begin only where everything up to here is applied: what was assigned when the home was lost last.
    floor: Version,
    versions: BTreeMap<Version, Assigned>,
    transactions: BTreeMap<SessionId, Transaction>,
    serial: SerialQueue,
    /// Finished transactions by the one that they wait for.
    delayed: BTreeSet<(Place, SessionId)>,
    /// Finished transactions that wait for the end of a hold.
    held: BTreeSet<(Place, SessionId)>,
    running: BTreeMap<SessionId, Running>,
    /// Reads for which no eligible replica is up.
    stranded: Vec<(Version, SessionId, Turn)>,
    replicas: Vec<Replica>,
    balancer: Balancer,
    placement: Placement,
    catalogue: Option<Version>,
    catalogue_asked: Option<Version>,
    /// Reads that wait for the catalogue.
    unclassified: Vec<SessionId>,
    hold: Option<(SessionId, bool)>,
}

impl Onecopy {
    /// A leader at the start of its term; every replica is down.
    pub fn new(options: Options) -> Self {
        assert!(options.anchor.0 < options.replicas, "the anchor is one of the replicas");
        Self {
            rules: options.rules,
            anchor: usize::from(options.anchor.0),
            is_anchor_overdue: false,
            epoch: options.epoch,
            transactions_begun: 0,
            last: options.last,
            needed: if options.rules.whole_log_is_needed {
                VersionIndex::recovered(options.last)
            } else {
                VersionIndex::forgetful(options.last)
            },
            in_flight: InFlight::default(),
            places: 0,
            tickets: Tickets::default(),
            floor: if options.rules.home_catches_up { options.last } else { Version::ZERO },
            versions: BTreeMap::new(),
            transactions: BTreeMap::new(),
            serial: SerialQueue::default(),
            delayed: BTreeSet::new(),
            held: BTreeSet::new(),
            running: BTreeMap::new(),
            stranded: Vec::new(),
            replicas: (0..options.replicas).map(|i| Replica::new(ReplicaId(i))).collect(),
            balancer: Balancer::default(),
            placement: options.placement,
            catalogue: None,
            catalogue_asked: None,
            unclassified: Vec::new(),
            hold: None,
        }
    }

    /// The version that a statement needs. Of a catalogue that is out of date nothing can be concluded.
    fn need(&self, reads: &Reads, catalogue: Version) -> Version {
        let stale = self.rules.catalogue_is_fresh && catalogue < self.needed.last_ddl();
        let need = match reads {
            _ if !self.rules.reads_wait => Version::ZERO,
            Reads::Tables(_) if stale => self.needed.last(),
            reads => self.needed.need(reads),
        };
        if self.rules.durable_is_needed { need } else { need.min(self.replicas[self.anchor].applied) }
    }

    fn read(
        &mut self,
        session: SessionId,
        reads: &Reads,
        at: Option<ReplicaId>,
        out: &mut Out<'_>,
    ) -> Option<Version> {
        let stale = self.rules.catalogue_is_fresh && out.catalogue < self.needed.last_ddl();
        if at.is_none() && stale && matches!(reads, Reads::Tables(_)) {
            if self.catalogue >= Some(self.needed.last_ddl()) {
                out.effects.push(Effect::Reclassify { session });
            } else {
                self.unclassified.push(session);
            }
            return None;
        }
        Some(self.need(reads, out.catalogue))
    }

    /// Who may serve it: the holders of the tables; the catalogues are the anchor's.
    fn eligible(&self, reads: &Reads, at: Option<ReplicaId>) -> ReplicaSet {
        match (at, reads) {
            (Some(replica), Reads::Tables(tables)) => {
                ReplicaSet::EMPTY.with(replica).and(self.placement.holders_of_all(tables))
            }
            (Some(replica), _) => ReplicaSet::EMPTY.with(replica),
            (None, Reads::Catalogue) => ReplicaSet::EMPTY.with(self.replicas[self.anchor].id),
            (None, Reads::Tables(tables)) => self.placement.holders_of_all(tables),
            (None, Reads::Rows(rows)) => self.placement.holders_of_all(&rows.all_tables()),
            (None, Reads::All) => self.placement.holders_of_everything(),
        }
    }

    fn place_read(&mut self, session: SessionId, need: Version, turn: Turn, out: &mut Out<'_>) {
        match self.balancer.choose(&self.replicas, turn.eligible, need) {
            Some(index) => {
                self.replicas[index].reads += 1;
                self.wait_at(index, session, need, turn, out);
            }
            None if turn.is_bound => out.effects.push(Effect::Abort { session, cause: AbortCause::HomeLost }),
            None => self.stranded.push((need, session, turn)),
        }
    }

    fn wait_at(&mut self, index: usize, session: SessionId, need: Version, turn: Turn, out: &mut Out<'_>) {
        let replica = &mut self.replicas[index];
        if replica.state == State::Up && replica.applied >= need {
            self.execute(index, session, turn, out);
        } else {
            replica.waiting.push(need, session, turn);
        }
    }

    fn home_turn(&self, cost_us: u32) -> Turn {
        let eligible = ReplicaSet::EMPTY.with(self.replicas[self.anchor].id);
        Turn { cost_us, eligible, is_bound: true, is_catalogue: false }
    }

    fn execute(&mut self, index: usize, session: SessionId, turn: Turn, out: &mut Out<'_>) {
        let replica = &mut self.replicas[index];
        replica.outstanding_us += u64::from(turn.cost_us);
        let (incarnation, cost_us) = (replica.incarnation, turn.cost_us);
        self.running.insert(session, Running { replica: index, incarnation, cost_us });
        let fresh = self.transactions.get_mut(&session);
        let identity = fresh.and_then(|t| std::mem::take(&mut t.is_fresh).then_some(t.identity));
        out.effects.push(Effect::Execute { session, replica: replica.id, incarnation, identity });
    }

    fn executed(&mut self, session: SessionId) {
        if let Some(running) = self.running.remove(&session) {
            let replica = &mut self.replicas[running.replica];
            if replica.is_up(running.incarnation) {
                replica.outstanding_us -= u64::from(running.cost_us);
            }
        }
    }

    fn begin(
        &mut self,
        session: SessionId,
        serializable: bool,
        nonce: Nonce,
        start: (Version, u32),
        out: &mut Out<'_>,
    ) {
        self.transactions_begun += 1;
        let identity = Identity { epoch: self.epoch, n: self.transactions_begun, nonce };
        let (need, cost_us) = (start.0.max(self.floor), start.1);
        let turn_now = !serializable || self.serial.join(session);
        let phase = if turn_now { Phase::Open } else { Phase::Queued { need, cost_us } };
        let before =
            self.transactions.insert(session, Transaction { identity, is_fresh: true, ticket: None, phase });
        assert!(before.is_none(), "a session has one update transaction at a time");
        if turn_now {
            self.replicas[self.anchor].writes += 1;
            self.wait_at(self.anchor, session, need, self.home_turn(cost_us), out);
        }
    }

    fn finish(&mut self, session: SessionId, body: Box<SealedBody>, claims: Claims, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        assert!(matches!(transaction.phase, Phase::Open), "a transaction finishes once");
        let ticket = transaction.ticket;
        let is_overtaken = ticket.is_some_and(|ticket| self.tickets.is_overtaken(ticket, &claims));
        if let Some(ticket) = ticket.filter(|_| self.rules.waiting_overtake) {
            self.tickets.finish(ticket, claims.clone());
        }
        // Its place counts at once, so whoever overlaps it and finishes while it draws waits for it.
        self.places += 1;
        let place = Place(self.places);
        self.in_flight.insert(place, &claims);
        if is_overtaken && self.rules.overtaken_aborts {
            transaction.phase = Phase::Suspected { place, body, claims };
            out.effects.push(Effect::Draw { session });
        } else {
            transaction.phase = Phase::Finished { place, body, claims };
            self.append(session, out);
        }
    }

    /// What home drew. A suspected one that could draw again was alive after all that have finished before it.
    fn drawn(&mut self, session: SessionId, ticket: u64, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        if !matches!(transaction.phase, Phase::Suspected { .. }) {
            transaction.ticket = Some(ticket);
        } else if let Phase::Suspected { place, body, claims } =
            std::mem::replace(&mut transaction.phase, Phase::Open)
        {
            transaction.phase = Phase::Finished { place, body, claims };
            self.append(session, out);
        }
    }

    /// Appends a finished transaction, unless it has to wait.
    fn append(&mut self, session: SessionId, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        let Phase::Finished { place, claims, .. } = &transaction.phase else { return };
        let place = *place;
        if self.hold.is_some() && self.rules.hold_stops_appends {
            self.held.insert((place, session));
            return;
        }
        let is_wide = claims.everything || !claims.tables.is_empty();
        let waits = self.rules.overlap_waits && (self.rules.wide_claims_wait || !is_wide);
        if let Some(before) = self.in_flight.overlap(place, claims).filter(|_| waits) {
            self.delayed.insert((before, session));
            return;
        }
        let version = self.last.next();
        self.last = version;
        let phase = std::mem::replace(&mut transaction.phase, Phase::Appended(version));
        let Phase::Finished { body, claims, .. } = phase else { return };
        if let Some(ticket) = transaction.ticket.filter(|_| !self.rules.waiting_overtake) {
            self.tickets.finish(ticket, claims.clone());
        }
        let assigned = Assigned {
            session,
            home: Some(self.anchor),
            place,
            tables: body.tables().collect(),
            everything: body.writes_everything(),
            is_everywhere: body.writes_everything() || body.moves_sequences(),
            claims,
        };
        self.versions.insert(version, assigned);
        out.effects.push(Effect::Append { version, identity: transaction.identity, body });
        if !self.rules.durable_first {
            self.logged(version, out);
        }
    }

    /// A finished transaction is committed at home, or gone from there: who waited for it goes on.
    fn settled(&mut self, place: Place, claims: &Claims, out: &mut Out<'_>) {
        self.in_flight.remove(place, claims);
        let waiting = self.delayed.range((place, SessionId(0))..=(place, SessionId(u64::MAX)));
        let waiting: Vec<(Place, SessionId)> = waiting.copied().collect();
        for entry in waiting {
            self.delayed.remove(&entry);
            self.append(entry.1, out);
        }
    }

    fn logged(&mut self, upto: Version, out: &mut Out<'_>) {
        while self.needed.last() < upto {
            let version = self.needed.last().next();
            let assigned = self.versions.get(&version).expect("a version is kept until it is durable");
            self.needed.record(version, &assigned.tables, assigned.everything);
            let session = assigned.session;
            if assigned.home.is_none() {
                self.forget(session, out);
            }
            out.effects.push(Effect::Acknowledge { session, version });
        }
        (0..self.replicas.len()).for_each(|index| self.advance(index, out));
        self.check_hold(out);
    }

    /// Sends the next COMMIT or refresh to a replica, if it is free; lets run who waited for what it has now.
    fn advance(&mut self, index: usize, out: &mut Out<'_>) {
        while let Some((session, turn)) = self.replicas[index].next_turn() {
            self.execute(index, session, turn, out);
        }
        let durable = self.needed.last();
        while self.replicas[index].is_free() && self.replicas[index].applied < durable {
            let replica = &self.replicas[index];
            let next = replica.applied.next();
            let assigned = self.versions.get(&next);
            if assigned.is_some_and(|a| !a.is_everywhere && !self.placement.holds_any(replica.id, &a.tables))
            {
                self.replicas[index].applied = next;
                continue;
            }
            if let Some(Assigned { session, home: Some(home), .. }) = assigned
                && *home == index
            {
                out.effects.push(Effect::Commit { session: *session, version: next });
                self.replicas[index].sent(out.now, next);
                return;
            }
            let limit = durable.min(Version(replica.applied.0 + REFRESH_VERSIONS_MAX));
            let own = self.versions.range(next..=limit).find(|(_, a)| a.home == Some(index)).map(|(v, _)| *v);
            let upto = own.map_or(limit, |own| Version(own.0 - 1));
            let (id, incarnation) = (replica.id, replica.incarnation);
            out.effects.push(Effect::Apply { replica: id, incarnation, from: next, upto });
            self.replicas[index].sent(out.now, upto);
        }
        self.prune();
    }

    fn committed(&mut self, session: SessionId, out: &mut Out<'_>) {
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
        self.settled(place, &claims, out);
    }

    fn has_applied(&mut self, index: usize, upto: Version, out: &mut Out<'_>) {
        self.replicas[index].acknowledged(out.now, upto);
        if index == self.anchor {
            self.ask_catalogue(out);
        }
        self.advance(index, out);
        self.check_hold(out);
    }

    /// Drops what every replica that is up has; a replica that comes back reads the log.
    fn prune(&mut self) {
        let up = self.replicas.iter().filter(|r| r.state == State::Up).map(|r| r.applied).min();
        let floor = up.unwrap_or(Version(u64::MAX)).min(self.needed.last());
        while let Some(entry) = self.versions.first_entry()
            && *entry.key() <= floor
            && entry.get().home.is_none()
        {
            entry.remove();
        }
    }

    fn forget(&mut self, session: SessionId, out: &mut Out<'_>) {
        if let Some(Transaction {
            phase: Phase::Finished { place, claims, .. } | Phase::Suspected { place, claims, .. },
            ..
        }) = self.transactions.remove(&session)
        {
            self.delayed.retain(|(_, waiter)| *waiter != session);
            self.held.retain(|(_, waiter)| *waiter != session);
            self.settled(place, &claims, out);
        }
        let Some(next) = self.serial.leave(session) else { return };
        let Some(transaction) = self.transactions.get_mut(&next) else { return };
        if let Phase::Queued { need, cost_us } = transaction.phase {
            transaction.phase = Phase::Open;
            // What was acknowledged while it stood in the queue is before it.
            let again = self.rules.reads_wait && self.rules.turn_needs_again;
            let need = if again { self.needed.last().max(self.floor) } else { need };
            self.replicas[self.anchor].writes += 1;
            self.wait_at(self.anchor, next, need, self.home_turn(cost_us), out);
        }
    }
}

/// What a handler needs beside the state.
struct Out<'a> {
    now: Time,
    effects: &'a mut Vec<Effect>,
    /// Of the event at hand: the DDL that the session's catalogue reflects.
    catalogue: Version,
}

impl Protocol for Onecopy {
    fn handle(&mut self, now: Time, event: Event, effects: &mut Vec<Effect>) {
        let mut out = Out { now, effects, catalogue: Version::ZERO };
        let out = &mut out;
        match event {
            Event::Read { session, reads, at, cost_us, catalogue } => {
                out.catalogue = catalogue;
                if let Some(need) = self.read(session, &reads, at, out) {
                    let is_catalogue = at.is_none() && reads == Reads::Catalogue;
                    let eligible = self.eligible(&reads, at);
                    let turn = Turn { cost_us, eligible, is_bound: at.is_some(), is_catalogue };
                    self.place_read(session, need, turn, out);
                }
            }
            Event::Begin { session, level, nonce, needs, .. } => {
                let need = self.need(&needs.reads, needs.catalogue);
                self.begin(session, level == Level::Serializable, nonce, (need, needs.cost_us), out);
            }
            Event::Statement { session, needs } => {
                if self.transactions.contains_key(&session) {
                    let need = self.need(&needs.reads, needs.catalogue);
                    self.wait_at(self.anchor, session, need, self.home_turn(needs.cost_us), out);
                }
            }
            Event::Executed { session } => self.executed(session),
            Event::Drawn { session, ticket } => self.drawn(session, ticket, out),
            Event::Finish { session, body, claims, .. } => {
                let mut merged = Claims::default();
                for claimed in &claims {
                    merged.add(&claimed.claims);
                }
                self.finish(session, body, merged, out);
            }
            Event::InTheWay { .. } | Event::ServerWaits { .. } => {}
            Event::End { session } => self.end(session, out),
            Event::Committed { session } => self.committed(session, out),
            Event::GiveUp { session } => self.give_up(session, out),
            Event::Logged { upto } => self.logged(upto, out),
            Event::ReplicaUp { replica, incarnation, applied } => {
                self.replica_up(replica, incarnation, applied, out);
            }
            Event::ReplicaLost { replica, incarnation } => {
                if self.replicas[usize::from(replica.0)].is_up(incarnation) {
                    self.replica_lost(replica, State::Down, out);
                }
            }
            Event::Suspect { replica, incarnation, is_suspect } => {
                let replica = &mut self.replicas[usize::from(replica.0)];
                replica.is_suspect = is_suspect && replica.is_up(incarnation);
            }
            Event::TakeOver { from } => self.take_over(from, out),
            Event::Diverged { replica } => self.replica_lost(replica, State::Quarantined, out),
            Event::Rebuilt { replica } => self.rebuilt(replica),
            Event::Applied { replica, incarnation, upto } => {
                if self.replicas[usize::from(replica.0)].is_up(incarnation) {
                    self.has_applied(usize::from(replica.0), upto, out);
                }
            }
            Event::CatalogueLoaded { version } => self.catalogue_loaded(version, out),
            Event::Hold { session } => {
                self.hold.get_or_insert((session, false));
                self.check_hold(out);
            }
            Event::Release { session } => self.release(session, out),
        }
    }

    fn replicas(&self) -> Vec<ReplicaStatus> {
        let status = |r: &Replica| ReplicaStatus {
            replica: r.id,
            state: r.state,
            is_suspect: r.is_suspect,
            incarnation: r.incarnation,
            applied: r.applied,
            lag: self.needed.last().0.saturating_sub(r.applied.0),
            reads: r.reads,
            writes: r.writes,
            outstanding_us: r.outstanding_us,
            waiting: r.waiting.len(),
        };
        self.replicas.iter().map(status).collect()
    }

    fn durable(&self) -> Version {
        self.needed.last()
    }

    fn last_ddl(&self) -> Version {
        self.needed.last_ddl()
    }
}
