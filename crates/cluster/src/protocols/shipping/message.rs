//! The messages between clients, scheduler and proxies.

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::parts::lock_queues::LockSet;

/// The place of a transaction in the one order: counted from 1 without gaps (section 3.4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct SequenceNumber(pub u64);

/// The name of a statement's text and parameters, which the driver keeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct StatementId(pub u64);

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// Goes to one replica.
    Read,
    /// Goes to all replicas.
    Write,
}

/// One query of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Its kind.
    pub kind: Kind,
    /// The statement to run.
    pub statement: StatementId,
    /// The time that it takes on an idle replica, measured beforehand (section 4.10).
    pub cost_us: u32,
}

/// How a transaction ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ending {
    /// Keep its writes.
    Commit,
    /// Undo its writes.
    Abort,
}

/// A request of a client. A session has one at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Begin a transaction of several operations with all its locks (section 3.1).
    Begin(LockSet),
    /// The next operation of the open transaction.
    Execute(Operation),
    /// The end of the open transaction.
    End(Ending),
    /// A transaction that is one read (section 4.8).
    SingleRead(LockSet, Operation),
    /// A transaction that is one write; the locks are derived, not declared (section 4.9).
    SingleUpdate(LockSet, Operation),
    /// The client web interaction is over: later reads of this session owe nothing to its updates.
    InteractionOver,
}

/// The reply to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Done.
    Done,
    /// It does not fit the state of the session, or too much is outstanding; nothing was done.
    Refused,
    /// No replica is left that could go on with the transaction, which is aborted.
    Lost,
}

/// One of several schedulers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SchedulerId(pub u8);

/// A transaction at a proxy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Transaction {
    /// One that is at all replicas.
    Numbered(SequenceNumber),
    /// A single read.
    Single(SessionId),
}

/// From the scheduler to a proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToProxy {
    /// Take these locks when it is this number's turn.
    Lock {
        /// The number of the transaction.
        number: SequenceNumber,
        /// Its locks.
        locks: LockSet,
    },
    /// Run this after everything before it in its transaction.
    Execute {
        /// The transaction.
        number: SequenceNumber,
        /// The operation.
        operation: Operation,
    },
    /// End the transaction after everything before it.
    End {
        /// The transaction.
        number: SequenceNumber,
        /// Whether its writes are kept.
        ending: Ending,
    },
    /// Lock, run, commit.
    SingleUpdate {
        /// The transaction.
        number: SequenceNumber,
        /// Its locks.
        locks: LockSet,
        /// Its only operation.
        operation: Operation,
    },
    /// Fail-over: the transaction is decided, but not committed here. Roll it back, keep its place in the lock queues, do all
    /// its writes and commit.
    Redo {
        /// The transaction.
        number: SequenceNumber,
        /// Its locks, for a proxy that never got its lock request.
        locks: LockSet,
        /// All its writes, in order.
        writes: Vec<Operation>,
    },
    /// Fail-over: the transaction is not decided. Roll it back, or fill its gap if its lock request never came.
    Undo {
        /// The transaction.
        number: SequenceNumber,
    },
    /// Lock here only, run, release.
    SingleRead {
        /// The session.
        session: SessionId,
        /// The number that it goes after.
        after: SequenceNumber,
        /// Its locks.
        locks: LockSet,
        /// Its only operation.
        operation: Operation,
    },
}

impl ToProxy {
    /// The number of the transaction; `None` for a single read.
    pub fn number(&self) -> Option<SequenceNumber> {
        match self {
            Self::Lock { number, .. }
            | Self::Execute { number, .. }
            | Self::End { number, .. }
            | Self::SingleUpdate { number, .. }
            | Self::Redo { number, .. }
            | Self::Undo { number } => Some(*number),
            Self::SingleRead { .. } => None,
        }
    }
}

/// From a proxy to the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FromProxy {
    /// All locks of the transaction are held here.
    Granted(SequenceNumber),
    /// An operation of a numbered transaction is done here.
    Done(SequenceNumber, Operation),
    /// The transaction has ended here; of a single update with the operation that it was.
    Ended(SequenceNumber, Option<Operation>),
    /// A single read is done.
    Read(SessionId, Operation),
}
