//! The agent half of a protocol: which versions one replica has, and which COMMITs or refresh it is sent next.
//!
//! Versions become visible in their order. A replica is sent either a batch of refreshes, which is one transaction, or the
//! COMMITs of a commit group, and the next when these are acknowledged. Inside a group PostgreSQL decides which version becomes
//! visible first (WAL order and visibility order differ inside one PostgreSQL, too), and no other replica shows a part of it
//! ([`crate::protocols::rows`]). So one number describes what is applied: the prefix that is there for sure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{Incarnation, ReplicaId, SessionId, Version};
use crate::parts::waiting::Waiting;
use crate::placement::ReplicaSet;
use crate::time::Time;

/// Weight of the newest sample in the running mean of apply times: one part in this many.
const MEAN_WEIGHT: u64 = 8;

/// Whether a replica serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    /// The replicas where it may run.
    pub eligible: ReplicaSet,
    /// Its transaction is open at this replica, so it fails when the replica is lost.
    pub is_bound: bool,
    /// It reads the catalogues, so it runs where the anchor is.
    pub is_catalogue: bool,
}

/// Reads that sessions placed at a replica without asking, because it had every durable version ([`Offer`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Outside {
    /// Sum of the expected times of those that run.
    pub outstanding_us: u64,
    /// The number of those that run.
    pub running: u32,
    /// All that have run or run.
    pub reads: u64,
}

impl Outside {
    /// These and those.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            outstanding_us: self.outstanding_us.saturating_add(other.outstanding_us),
            running: self.running.saturating_add(other.running),
            reads: self.reads.saturating_add(other.reads),
        }
    }
}

/// What a session has to know of a replica to place a read there without asking. It may, if the replica has every durable version
/// and the session's catalogue is not out of date: then any read is fresh there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// The present set of connections.
    pub incarnation: Incarnation,
    /// It has every version up to this one.
    pub applied: Version,
    /// Expected time of what the scheduler has placed there.
    pub load_us: u64,
}

/// COMMITs, or a refresh, that were sent to a replica and are not all acknowledged.
#[derive(Debug)]
struct Flight {
    sent: Time,
    versions: u64,
    upto: Version,
    /// The versions that are not acknowledged yet; of a refresh, its last version stands for all.
    open: BTreeSet<Version>,
}

/// One replica.
#[derive(Debug)]
pub struct Replica {
    /// Its number.
    pub id: ReplicaId,
    /// Whether it serves.
    pub state: State,
    /// The present set of connections.
    pub incarnation: Incarnation,
    /// It does not answer as it should.
    pub is_suspect: bool,
    /// It takes no new transactions and reads.
    pub is_drained: bool,
    /// It has every version up to this one.
    pub applied: Version,
    /// It shows nothing before it has this version.
    pub floor: Version,
    /// Statements that wait for it to have more versions.
    pub waiting: Waiting<Turn>,
    /// Sum of the expected times of the statements that run there.
    pub outstanding_us: u64,
    /// The number of statements that run there.
    pub running: u32,
    /// The number of update transactions that wait for a connection there, to begin.
    pub queued: u32,
    /// Statements that sessions placed here by themselves.
    pub outside: Outside,
    /// Reads that were placed here.
    pub reads: u64,
    /// Update transactions with their home here.
    pub writes: u64,
    /// The time at which a COMMIT or refresh was acknowledged last.
    pub last_commit: Option<Time>,
    /// A transaction failed here for want of this version.
    pub wanted: Version,
    flight: Option<Flight>,
    apply_us: u64,
    /// The mean wait for a connection, divided by the place in the queue.
    turn_us: u64,
}

impl Replica {
    /// A replica that has not reported anything yet.
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
            outside: Outside::default(),
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

    /// It is suspected now, or not any more, if that is about its present set of connections.
    pub fn suspect(&mut self, incarnation: Incarnation, is_suspect: bool) {
        self.is_suspect = is_suspect && self.is_up(incarnation);
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

    /// Lost, or quarantined. Its applied prefix is not known any more.
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

    /// A statement has ended there.
    pub fn ends(&mut self, cost_us: u32) {
        self.outstanding_us -= u64::from(cost_us);
        self.running -= 1;
    }

    /// A session got a connection for which it had waited, at this place in the queue.
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

    /// The expected wait of a statement that needs this version: for outstanding statements and for refreshes up to it
    /// (conflict-aware scheduling section 4.1, SELF), and for sessions that wait for a connection, each of which will keep one
    /// for a whole transaction.
    pub fn expected_wait_us(&self, need: Version) -> u64 {
        self.outstanding_us
            + self.outside.outstanding_us
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
