//! The requests of a session to the scheduler, and their outcomes.

use cluster::ids::TableId;
use cluster::parts::lock_queues::LockSet;
use cluster::protocols::c_jdbc::message::Tables;
use cluster::protocols::c_jdbc::query_cache::Moment;
use cluster::protocols::shipping::{self, Ending, Kind};

use super::shipment::{Command, Reply};

/// A request of a session. A session has one at a time.
#[derive(Debug)]
pub(crate) enum SessionRequest {
    /// Begin a transaction with these locks.
    Begin(LockSet),
    /// Run the next statement of the transaction, at one replica or at all. A scheduler that locked all tables when the
    /// transaction began does not need its locks.
    Execute(Kind, LockSet, Command),
    /// End the transaction.
    End(Ending),
    /// A transaction that is one read.
    SingleRead(LockSet, Command),
    /// A transaction that is one write.
    SingleUpdate(LockSet, Command),
}

impl SessionRequest {
    /// Bytes that are kept in memory until all replicas have run it.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Execute(Kind::Write, _, command) | Self::SingleUpdate(_, command) => command.bytes(),
            Self::Begin(_) | Self::Execute(Kind::Read, ..) | Self::End(_) | Self::SingleRead(..) => 0,
        }
    }

    /// Whether it begins a transaction.
    pub(crate) fn begins(&self) -> bool {
        matches!(self, Self::Begin(_) | Self::SingleRead(..) | Self::SingleUpdate(..))
    }
}

/// The scheduler's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done.
    Done,
    /// Too much is under way; nothing was done.
    Refused,
    /// No replica takes part that could do it.
    Lost(Remains),
    /// No replica holds all of these tables, or not each holder of what is written holds the others; nothing was done.
    NotHeld(Vec<TableId>),
    /// The transaction was in a deadlock, and is aborted.
    Deadlock,
    /// The statement has failed, as the reply says, and its transaction is aborted.
    Failed,
    /// Nothing was done. The session chooses its locks again.
    Again,
    /// The memory for statements that replicas have not run yet is full; nothing was done.
    StoreIsFull,
    /// The leader was lost, and the transaction with it.
    LeaderLost,
}

/// What is left of the open transaction of a request that no replica could execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    /// It is open, and only its statement was not executed.
    Transaction,
    /// It is aborted.
    Nothing,
}

impl From<shipping::Answer> for Answer {
    fn from(answer: shipping::Answer) -> Self {
        match answer {
            shipping::Answer::Done => Self::Done,
            shipping::Answer::Refused => Self::Refused,
            shipping::Answer::Lost => Self::Lost(Remains::Transaction),
        }
    }
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) struct RequestOutcome {
    /// The scheduler's answer.
    pub(crate) answer: Answer,
    /// The reply to the statement, if one ran and its outcome is known.
    pub(crate) reply: Option<Reply>,
    /// Until when the reply may be given again, if it may.
    pub(crate) lasting: Option<Lasting>,
}

/// An answer may be given again until one of these tables is written.
#[derive(Debug)]
pub(crate) struct Lasting {
    pub(crate) tables: Tables,
    pub(crate) since: Moment,
}

/// The scheduler did not get the request, and nothing was done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestRejected {
    /// Another session has the exclusive turn, or too many transactions are unfinished. The session retries after a
    /// change.
    TryLater,
    /// The memory for statements that replicas have not run yet is full.
    StoreIsFull,
    /// No node leads for as long as the operator allows.
    Unled,
}
