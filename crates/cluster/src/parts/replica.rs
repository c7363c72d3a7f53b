//! The agent half of a protocol: how far one replica is, and what it does next.
//!
//! What makes versions visible goes out in version order, each when the one before is acknowledged: a batch of refreshes,
//! which is one commit, or the COMMITs of neighbours that are committed together here. Among the latter PostgreSQL decides
//! which becomes visible first (WAL order and visibility order differ inside one PostgreSQL, too); between any two of them no
//! other replica stops ([`crate::protocols::rows`]). So what is applied is described by one number: the prefix that is
//! there for sure.

use std::collections::BTreeSet;

use crate::ids::{Incarnation, ReplicaId, SessionId, Version};
use crate::parts::waiting::Waiting;
use crate::placement::ReplicaSet;
use crate::time::Time;

/// Weight of the newest sample in the running mean of apply times: one part in this many.
const MEAN_WEIGHT: u64 = 8;

/// What a replica is good for at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Connected; serves what it is fresh enough for.
    Up,
    /// Not connected, or its applied set is not known.
    Down,
    /// Could not apply a record, or has no data yet; serves nothing until it is rebuilt.
    Quarantined,
    /// Not a member, or not any more.
    Absent,
}

/// A statement that waits for its turn at a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Expected time at the replica.
    pub cost_us: u32,
    /// Where it may run.
    pub eligible: ReplicaSet,
    /// Its transaction is open here, so it fails when the replica is lost.
    pub is_bound: bool,
    /// It reads the catalogues, so it runs where the anchor is.
    pub is_catalogue: bool,
}

/// COMMITs, or a refresh, that were sent to a replica and are not all acknowledged.
#[derive(Debug)]
struct Flight {
    sent: Time,
    versions: u64,
    upto: Version,
    /// Whose acknowledgement is still to come; of a refresh there is one, for its last version.
    open: BTreeSet<Version>,
}

/// One replica.
#[derive(Debug)]
pub struct Replica {
    /// Which.
    pub id: ReplicaId,
    /// Whether it serves.
    pub state: State,
    /// The present set of connections.
    pub incarnation: Incarnation,
    /// It does not answer as it should.
    pub is_suspect: bool,
    /// It serves nobody new.
    pub is_drained: bool,
    /// It has every version up to this one.
    pub applied: Version,
    /// It shows nothing before it has this version.
    pub floor: Version,
    /// Who waits for it to have more.
    pub waiting: Waiting<Turn>,
    /// Sum of the expected times of the statements that run there.
    pub outstanding_us: u64,
    /// How many statements that are.
    pub running: u32,
    /// How many update transactions wait for a connection there, to begin.
    pub queued: u32,
    /// Reads that were placed here.
    pub reads: u64,
    /// Update transactions that had their home here.
    pub writes: u64,
    /// When a COMMIT or refresh was acknowledged last.
    pub last_commit: Option<Time>,
    /// Something was lost here for want of this version.
    pub wanted: Version,
    flight: Option<Flight>,
    apply_us: u64,
    /// How long whoever waits for a connection does, for each that waits before it and for itself.
    turn_us: u64,
}

impl Replica {
    /// A replica that nothing is known about yet.
    pub fn new(id: ReplicaId) -> Self {
        Self {
            id,
            state: State::Down,
            incarnation: Incarnation::default(),
            is_suspect: false,
            is_drained: false,
            applied: Version::ZERO,
            floor: Version::ZERO,
            waiting: Waiting::default(),
            outstanding_us: 0,
            running: 0,
            queued: 0,
            reads: 0,
            writes: 0,
            last_commit: None,
            wanted: Version::ZERO,
            flight: None,
            apply_us: 100,
            turn_us: 1_000,
        }
    }

    /// Whether it is up with this set of connections.
    pub fn is_up(&self, incarnation: Incarnation) -> bool {
        self.state == State::Up && self.incarnation == incarnation
    }

    /// Connected anew with this applied prefix.
    pub fn up(&mut self, incarnation: Incarnation, applied: Version) {
        self.state = State::Up;
        self.incarnation = incarnation;
        self.is_suspect = false;
        self.applied = applied;
        (self.flight, self.last_commit) = (None, None);
        (self.outstanding_us, self.running, self.queued) = (0, 0, 0);
    }

    /// Lost, or quarantined. What it had applied is not known any more.
    pub fn down(&mut self, state: State) {
        self.state = state;
        self.flight = None;
        (self.outstanding_us, self.running, self.queued) = (0, 0, 0);
    }

    /// A statement runs there.
    pub fn begins(&mut self, cost_us: u32) {
        self.outstanding_us += u64::from(cost_us);
        self.running += 1;
    }

    /// It has ended.
    pub fn ends(&mut self, cost_us: u32) {
        self.outstanding_us -= u64::from(cost_us);
        self.running -= 1;
    }

    /// Somebody got a connection for which it had waited, at this place in the line.
    pub fn seated(&mut self, waited_us: u64, place: u32) {
        let sample = waited_us / u64::from(place.max(1));
        self.turn_us = (self.turn_us * (MEAN_WEIGHT - 1) + sample) / MEAN_WEIGHT;
    }

    /// Whether COMMITs or a refresh may be sent: it is up and everything before is acknowledged.
    pub fn is_free(&self) -> bool {
        self.state == State::Up && self.flight.is_none()
    }

    /// A refresh that makes everything up to `upto` visible is sent.
    pub fn sent_refresh(&mut self, now: Time, upto: Version) {
        self.sent(now, upto, [upto].into());
    }

    /// A COMMIT of its own for each version up to this one is sent.
    pub fn sent_commits(&mut self, now: Time, upto: Version) {
        let open = (self.applied.0 + 1..=upto.0).map(Version).collect();
        self.sent(now, upto, open);
    }

    fn sent(&mut self, now: Time, upto: Version, open: BTreeSet<Version>) {
        assert!(self.is_free() && upto > self.applied, "versions are sent in their order");
        self.flight = Some(Flight { sent: now, versions: upto.0 - self.applied.0, upto, open });
    }

    /// A COMMIT, or the refresh, is acknowledged.
    pub fn acknowledged(&mut self, now: Time, version: Version) {
        let flight = self.flight.as_mut().expect("only what was sent is acknowledged");
        assert!(flight.open.remove(&version), "the acknowledgement is of what is in flight");
        if let Some(first) = flight.open.first() {
            self.applied = Version(first.0 - 1);
            return;
        }
        let sample = now.since_us(flight.sent) / flight.versions;
        self.apply_us = (self.apply_us * (MEAN_WEIGHT - 1) + sample) / MEAN_WEIGHT;
        self.applied = flight.upto;
        self.last_commit = Some(now);
        self.flight = None;
    }

    /// The expected wait of a statement that needs `need`: what is outstanding, and the refreshes in between
    /// (conflict-aware scheduling section 4.1, SELF), and those who wait for a connection, each of whom will keep one for a
    /// whole transaction.
    pub fn expected_wait_us(&self, need: Version) -> u64 {
        self.outstanding_us
            + need.0.saturating_sub(self.applied.0) * self.apply_us
            + u64::from(self.queued) * self.turn_us
    }

    /// Whether a statement that needs this version may run now.
    pub fn shows(&self, need: Version) -> bool {
        self.state == State::Up && self.applied >= need.max(self.floor)
    }

    /// Takes the next waiting statement that may run now.
    pub fn next_turn(&mut self) -> Option<(SessionId, Turn)> {
        if self.shows(Version::ZERO) { self.waiting.pop(self.applied) } else { None }
    }
}
