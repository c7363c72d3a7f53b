//! Stamps: transactions run in the order of the times at which they were submitted, without a message that fixes the order.
//!
//! Preventive replication (Pacitti, Coulon, Valduriez, Özsu: "Preventive replication in a database cluster", Distributed and
//! Parallel Databases 2005), sections 4 and 5. A transaction gets a [`Stamp`] by the clock of its origin and goes to all replicas
//! that hold what it writes. `Max` is the longest time of a message, `epsilon` the largest difference of two clocks. So when a
//! replica's clock shows stamp + Max + epsilon, the *delivery time*, everything older has arrived, and the transaction is
//! *ordered*. Each replica decides that alone, and all decide alike.
//!
//! The example of section 4.1 has Max = 10 and epsilon = 1. T2 arrives first, and T1 has the older stamp:
//!
//! ```text
//!   clock     10           12           14          16
//!          T2 arrives   T1 arrives   T1 ordered   T2 ordered
//!          stamp 5      stamp 3      3 + 11       5 + 11
//!          alarm 16     alarm 14     alarm 16
//! ```
//!
//! An [`Agent`] does this for one replica. [`Appends`] is for a cluster with a log: it gives out stamps and keeps the log in their
//! order, also when a message takes longer than Max. An [`Instance`] has an agent for each replica of such a cluster.
//!
//! Two readings of the paper are fields of [`Rules`]. [`Classes`] says which transactions conflict, and [`Reach`] which younger ones
//! mind a transaction that waits or comes late. Ours differs from the paper in two points: only what conflicts waits or is undone, and a replica
//! that waits for a refresh transaction lets pass what does not conflict with it.
//!
//! Invariant: an agent commits in the order of stamps, as long as no message is overtaken by the commit of a younger transaction
//! ([`Counts::overtaken`]); otherwise always. An execution that commits began after everything older that conflicts
//! with it was committed there.
//!
//! Not here: clocks, messages and databases, which are the caller's; a lost origin, whose transactions the caller ends. The number of
//! entries is bounded by the caller, since each belongs to a transaction of a session.

mod agent;
mod appends;
mod instance;

pub use crate::event::Stamp;
pub use agent::{Agent, Counts};
pub use appends::Appends;
pub use instance::{Instance, Mode, Seen, Step, Submission};

use crate::ids::ReplicaId;
use crate::parts::claim_index::Owner;
use crate::time::Time;

impl Owner for Stamp {
    const FIRST: Self = Self { us: 0, origin: ReplicaId(0), n: 0 };
}

/// Gives the stamps of one origin, each later than the one before.
#[derive(Debug)]
pub struct Stamper {
    origin: ReplicaId,
    last_us: u64,
    n: u64,
}

impl Stamper {
    /// No transaction was submitted yet.
    pub fn new(origin: ReplicaId) -> Self {
        Self { origin, last_us: 0, n: 0 }
    }

    /// A client submits a transaction. A clock that was set back does not lead to an older stamp.
    pub fn stamp(&mut self, clock: Time) -> Stamp {
        self.n += 1;
        self.last_us = self.last_us.max(clock.us);
        Stamp { us: self.last_us, origin: self.origin, n: self.n }
    }
}

/// The choices of the paper, and ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Max + epsilon.
    pub wait_us: u64,
    /// When a transaction may start.
    pub start: Start,
    /// Which transactions conflict.
    pub classes: Classes,
    /// The younger transactions that mind an older one that waits or comes late.
    pub reach: Reach,
    /// Who decides that a transaction commits.
    pub commit: Commit,
    /// All on, except in tests.
    pub guards: Guards,
}

/// The rules on which the order rests. One is off only in tests, to see that a judge notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guards {
    /// A transaction starts only when nothing older that conflicts with it is uncommitted (5.2 i).
    pub older_are_waited_for: bool,
    /// Younger transactions that conflict with one that arrives are undone (5.1).
    pub younger_are_undone: bool,
    /// Transactions are appended to the log in the order of their stamps.
    pub appends_are_ordered: bool,
}

impl Guards {
    /// All of them.
    pub const ALL: Self =
        Self { older_are_waited_for: true, younger_are_undone: true, appends_are_ordered: true };
}

/// When a transaction may start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Start {
    /// When it is ordered (section 4).
    Ordered,
    /// When it arrives; it commits when it is ordered (section 5.1).
    OnArrival,
}

/// Which transactions conflict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Classes {
    /// All, so they run one after the other (sections 4 and 5.1).
    One,
    /// Those whose claims do (section 5.2).
    ByClaims,
}

/// The younger transactions that mind an older one that waits or comes late.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reach {
    /// All younger ones: they start in line behind one that waits (figure 12 d), and are undone by one that comes late (5.1).
    Younger,
    /// The younger ones that conflict with it.
    Conflicting,
}

/// Who decides that a transaction commits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Commit {
    /// The agent, when the transaction is done and ordered and nothing older is uncommitted here (5.2 ii).
    ByItself,
    /// The log: a transaction commits when its record's turn comes. The agent of its origin says when it may be appended.
    ByTheLog,
    /// The caller, which reports it ([`Agent::committed`]).
    ByTheCaller,
}

/// What a replica can do with a transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Can {
    /// It holds all that the transaction reads and writes.
    Perform,
    /// The same, but the transaction starts only when it is ordered: its client sees rows before it commits.
    PerformInOrder,
    /// It waits for the refresh transaction (section 4.2).
    NeedsRefresh,
    /// The refresh transaction has come.
    Apply,
}

/// What the caller has to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Act {
    /// Start the transaction, and report [`Agent::performed`] when it has only to be committed.
    Perform(Stamp),
    /// Start the refresh transaction, and report the same.
    Apply(Stamp),
    /// Roll the execution back, at once or when it ends, and report [`Agent::undone`] after that. Until then nothing that conflicts
    /// with it starts.
    Undo(Stamp),
    /// Commit the execution. What follows in the list must wait for the commit.
    Commit(Stamp),
}

#[cfg(test)]
mod tests;
