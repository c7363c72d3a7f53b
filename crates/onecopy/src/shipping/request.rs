//! What a session asks of the scheduler, and the answer that it gets.

use cluster::parts::lock_queues::LockSet;
use cluster::protocols::shipping::{Answer, Ending, Kind};

use super::shipment::{Command, Reply};

/// A request of a session, which has one at a time.
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
    /// How much of it is kept in memory until all replicas have run it.
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

/// What came of a request.
#[derive(Debug)]
pub(super) struct RequestOutcome {
    /// The scheduler's answer.
    pub(super) answer: Answer,
    /// The reply to the statement, if one ran and its outcome is known.
    pub(super) reply: Option<Reply>,
}

/// Why a request was not handed to the scheduler. Nothing was done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestRejected {
    /// Another session runs alone, or too many transactions are under way. The session asks again after a change.
    TryLater,
    /// No more statements can be kept for replicas that have not run them yet.
    StoreIsFull,
}
