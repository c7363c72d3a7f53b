//! The agent half of a protocol: how far one replica is, and what it does next.
//!
//! COMMITs are sent one at a time, in version order, each when the one before is acknowledged, and a batch of
//! refreshes is one commit. So every snapshot at a replica is a prefix of the version order (DESIGN section 3; WAL
//! order and visibility order differ inside one PostgreSQL), and the applied set is described by one number.

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
    commit_in_flight: Option<(Version, Time)>,
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
            waiting: Waiting::default(),
            outstanding_us: 0,
            running: 0,
            queued: 0,
            reads: 0,
            writes: 0,
            last_commit: None,
            wanted: Version::ZERO,
            commit_in_flight: None,
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
        (self.commit_in_flight, self.last_commit) = (None, None);
        (self.outstanding_us, self.running, self.queued) = (0, 0, 0);
    }

    /// Lost, or quarantined. What it had applied is not known any more.
    pub fn down(&mut self, state: State) {
        self.state = state;
        self.commit_in_flight = None;
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

    /// Whether a COMMIT or refresh may be sent: it is up and the one before is acknowledged.
    pub fn is_free(&self) -> bool {
        self.state == State::Up && self.commit_in_flight.is_none()
    }

    /// A COMMIT or refresh that makes everything up to `upto` visible is sent.
    pub fn sent(&mut self, now: Time, upto: Version) {
        assert!(self.is_free() && upto > self.applied, "commits are serial and in version order");
        self.commit_in_flight = Some((upto, now));
    }

    /// The COMMIT or refresh is acknowledged.
    pub fn acknowledged(&mut self, now: Time, upto: Version) {
        let (expected, sent) = self.commit_in_flight.take().expect("only what was sent is acknowledged");
        assert_eq!(expected, upto, "the acknowledgement belongs to the commit in flight");
        let sample = now.since_us(sent) / (upto.0 - self.applied.0);
        self.apply_us = (self.apply_us * (MEAN_WEIGHT - 1) + sample) / MEAN_WEIGHT;
        self.applied = upto;
        self.last_commit = Some(now);
    }

    /// The expected wait of a statement that needs `need`: what is outstanding, and the refreshes in between
    /// (conflict-aware scheduling section 4.1, SELF), and those who wait for a connection, each of whom will keep one for a
    /// whole transaction.
    pub fn expected_wait_us(&self, need: Version) -> u64 {
        self.outstanding_us
            + need.0.saturating_sub(self.applied.0) * self.apply_us
            + u64::from(self.queued) * self.turn_us
    }

    /// Takes the next waiting statement that may run now.
    pub fn next_turn(&mut self) -> Option<(SessionId, Turn)> {
        if self.state == State::Up { self.waiting.pop(self.applied) } else { None }
    }
}
