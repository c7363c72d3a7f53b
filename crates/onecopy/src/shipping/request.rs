//! The requests of a session to the scheduler, and their outcomes.

use cluster::parts::lock_queues::LockSet;
use cluster::protocols::shipping::{Answer, Ending, Kind};

use super::shipment::{Command, Reply};

/// A request of a session. A session has one at a time.
#[derive(Debug)]
pub(super) enum SessionRequest {
    /// Begin a transaction with these locks.
    Begin(LockSet),
    /// Run the next statement of the transaction, at one replica or at all.
    Execute(Kind, Command),
    /// End the transaction.
    End(Ending),
    /// A transaction that is one read.
    SingleRead(LockSet, Command),
    /// A transaction that is one write.
    SingleUpdate(LockSet, Command),
}

impl SessionRequest {
    /// Bytes that are kept in memory until all replicas have run it.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Execute(Kind::Write, command) | Self::SingleUpdate(_, command) => command.bytes(),
            Self::Begin(_) | Self::Execute(Kind::Read, _) | Self::End(_) | Self::SingleRead(..) => 0,
        }
    }

    /// Whether it begins a transaction.
    pub(super) fn begins(&self) -> bool {
        matches!(self, Self::Begin(_) | Self::SingleRead(..) | Self::SingleUpdate(..))
    }
}

/// The outcome of a request.
#[derive(Debug)]
pub(super) struct RequestOutcome {
    /// The scheduler's answer.
    pub(super) answer: Answer,
    /// The reply to the statement, if one ran and its outcome is known.
    pub(super) reply: Option<Reply>,
}

/// The scheduler did not get the request, and nothing was done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestRejected {
    /// Another session has the exclusive turn, or too many transactions are unfinished. The session retries after a
    /// change.
    TryLater,
    /// The memory for statements that replicas have not run yet is full.
    StoreIsFull,
}
