//! What the agents of replicas say to each other where transactions are ordered by the times of their submission, and what a
//! replica reports that performs a transaction of another one ([`crate::parts::stamps`]).
//!
//! Example: `CALL pay(3)` is submitted at replica 2. The core gives it a stamp and sends [`Message::Submitted`] to the replicas 0
//! and 1. Both hold all that it touches, so each performs it and reports the [`Digest`] of the rows that it changed there.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::claims::Claims;
use crate::ids::{ReplicaId, SessionId};
use crate::time::Time;

/// The place of a transaction in the order of all. Two origins may have the same time; then their numbers decide, which the paper
/// leaves open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Stamp {
    /// The clock of the origin at the submission, in microseconds.
    pub us: u64,
    /// The replica to which the client submitted the transaction.
    pub origin: ReplicaId,
    /// Counts the transactions of the origin.
    pub n: u64,
}

impl Stamp {
    /// When every older transaction has arrived, by any clock: section 4.1, "C + Max + epsilon (henceforth delivery time)".
    pub fn delivery(self, wait_us: u64) -> Time {
        Time { us: self.us.saturating_add(wait_us) }
    }
}

/// A message from the agent of one replica to that of another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A transaction was submitted to the sender.
    Submitted {
        /// Its place in the order.
        stamp: Stamp,
        /// Its session.
        session: SessionId,
        /// All that it may write or read.
        claims: Arc<Claims>,
        /// What the receiver does with it.
        role: Role,
    },
}

/// What a replica does with a transaction that was submitted to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// It holds all that the transaction touches, and performs it.
    Performs,
    /// It waits for the record.
    Waits,
}

/// Stands for the rows that an execution has changed: the net change of each row, with its table and its old and new values. Two
/// executions with the same changes have the same digest, in whatever order they made them and whatever numbers their servers
/// have given to types.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Digest(pub u128);

/// What has become of a replica's execution of a transaction of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Performance {
    /// Only its COMMIT is left: the identity is inserted, and deferred constraints are checked.
    Done(Digest),
    /// It is rolled back: it failed, or the replica does not know all its statements. It may fail also after it was done.
    Failed,
    /// A refresh, or a statement of another transaction, waits for one of its locks.
    Blocks,
}
