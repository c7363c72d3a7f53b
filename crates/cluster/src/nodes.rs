//! Several nodes: who leads, what a session of another node is owed, and how long a leader may let statements run.
//!
//! ```text
//! node a (leads)                                    node b
//! sessions -> Ledger --+                            sessions -> Ledger --+
//!                      v                                                 |
//!    core <- Roster <- events, in order  <------- one ordered link ------+
//!      |
//!      +---> Grants -> Roster -> effects ------->  one ordered link ---> Ledger -> sessions
//! ```
//!
//! Every node runs its own sessions, with their own connections to servers. The core is at the leader only. A chair (one key of
//! etcd) says who that is; each append to the log compares it, so a leader that was replaced appends nothing. The new
//! leader fences every replica, so nothing that the old term has begun there can commit, and it applies records from the log.
//!
//! | part | at | decides |
//! |---|---|---|
//! | [`term`] | each node | when to claim the chair, to lead, to serve, to follow and to step down |
//! | [`lease`] | the leader | whether a statement may run now |
//! | [`version_leases`] | the leader, each node | which reads a node may place by itself, and what is answered meanwhile |
//! | [`ledger`] | each node | what sessions are owed when the term ends or the link breaks |
//! | [`roster`] | the leader | whose an event is, and which of a session's events an effect answers |
//!
//! Invariant: no outcome is unknown to a client of a node that lives. A transaction whose Finish was sent is looked up in the log of the
//! next term. Before Finish nothing of it is in the log.
//!
//! Not here: the log, the links and the clocks. They are the driver's.

pub mod lease;
pub mod ledger;
pub mod roster;
pub mod term;
pub mod version_leases;

use serde::{Deserialize, Serialize};

/// The rules of several nodes, one switch each. A rule is off only in tests, to see that a judge notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// A new leader serves nothing before the leases of the former one are over.
    pub leases_run_out: bool,
    /// A leader lets statements run only while it holds a lease.
    pub grants_need_a_lease: bool,
    /// Beats of a leader that has not confirmed its term for long count as silence.
    pub beats_tell_of_the_chair: bool,
    /// A session whose Finish was sent asks for the outcome before it runs again.
    pub outcome_is_asked: bool,
    /// An effect that was under way when its session went on is dropped.
    pub late_effects_are_dropped: bool,
    /// A version is answered only when each node has noted it whose lease lives.
    pub answered_when_noted: bool,
    /// A grant to a node brings every version that is assigned.
    pub grants_bring_versions: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            leases_run_out: true,
            grants_need_a_lease: true,
            beats_tell_of_the_chair: true,
            outcome_is_asked: true,
            late_effects_are_dropped: true,
            answered_when_noted: true,
            grants_bring_versions: true,
        }
    }
}

/// Durations of terms, in microseconds of a node's own clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Between two beats of a leader, and between two attempts at the chair.
    pub beat_us: u64,
    /// A leader that was not heard for so long, or has confirmed nothing for so long, is given up by the others.
    pub leader_deadline_us: u64,
    /// The term lease D: a leader lets statements run for so long after it sent its last successful append or confirmation.
    pub lease_us: u64,
    /// How much a clock may be fast or slow, in percent.
    pub drift_percent: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self { beat_us: 100_000, leader_deadline_us: 600_000, lease_us: 500_000, drift_percent: 5 }
    }
}

impl Timing {
    /// How long a new leader waits by its own clock: no lease of the former one lives then. Its clock may be fast and that of the former
    /// one slow, so both drifts count: D * 1.05 alone would be too short by 5 %.
    pub fn lease_is_over_us(&self) -> u64 {
        self.outwaited_us(self.lease_us)
    }

    /// How long a node waits by its own clock until this time is over by the clock of any other one.
    pub fn outwaited_us(&self, lasts_us: u64) -> u64 {
        (lasts_us * (100 + self.drift_percent)).div_ceil(100 - self.drift_percent)
    }

    /// A confirmation that is not answered for so long is sent again. Half the deadline: one answer that gets lost must not make a leader
    /// look cut off.
    pub fn confirms_again_after_us(&self) -> u64 {
        self.leader_deadline_us / 2
    }

    /// A leader that has confirmed nothing for so long resigns: 2 D.
    pub fn resigns_after_us(&self) -> u64 {
        2 * self.lease_us
    }
}

/// How far a session had come when a message was sent. Sessions count up; the leader returns what it knew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Transactions and reads that the session has ended itself.
    pub ended: u64,
    /// Statements that it has withdrawn in the present one.
    pub withdrawn: u64,
}
