//! The messages between clients, the scheduler and the replicas.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::{ReplicaId, TableId};
use crate::parts::lock_queues::Mode;
use crate::protocols::shipping::{Ending, StatementId};

/// The place of an operation in the total order: counted from 1 without gaps (section 2.2.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct OperationNumber(pub u64);

/// A transaction, by the number of its begin operation. The higher one is the younger one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TransactionId(pub u64);

/// The tables of a statement, each once, with how it uses them. It writes each table whose rows it locks, so also one that a foreign key
/// refers to.
pub type Tables = Arc<[(TableId, Mode)]>;

/// A request of a client. A session has one at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Begin a transaction.
    Begin,
    /// A statement that changes rows, inside a transaction. It goes to all replicas that hold what it writes.
    Write(Tables, StatementId),
    /// A statement that runs at one replica. Outside a transaction it is one by itself. It changes nothing; but if it computes what the
    /// next write of its transaction changes (a value of a sequence), it names the tables of that write.
    Read(Tables, StatementId),
    /// End the transaction.
    End(Ending),
}

/// The reply to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Done; the client gets the result of this replica, if a replica was needed.
    Done(Option<ReplicaId>),
    /// It does not fit the state of the session, or too much is outstanding; nothing was done.
    Refused,
    /// The transaction was in a deadlock, was the youngest there, and is aborted.
    Deadlock,
    /// The statement has failed at this replica, and its transaction is aborted.
    Failed(ReplicaId),
    /// No replica holds all of these tables; nothing was done.
    NotHeld(Vec<TableId>),
    /// The holders of these tables are lost. An open transaction is aborted.
    Lost,
}

/// What an operation does at a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Begin the transaction.
    Begin,
    /// Run a statement that changes rows.
    Write(Tables, StatementId),
    /// End the transaction. One that waits for a lock inside the server is cancelled first.
    End(Ending),
}

/// An operation: an entry of the recovery log, and what replicas are sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its place in the total order.
    pub number: OperationNumber,
    /// Its transaction.
    pub transaction: TransactionId,
    /// What it does.
    pub step: Step,
}

/// The name of a read, which the scheduler gives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReadId(pub u64);

/// From the scheduler to a replica. Messages to one replica keep their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToReplica {
    /// Execute it when all operations before it that share a table are settled.
    Operation(Operation),
    /// Run a read, after the writes of its own transaction.
    Read(ReadId, Option<TransactionId>, StatementId),
}

/// From a replica to the scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromReplica {
    /// The operation is executed.
    Executed(OperationNumber),
    /// The operation is executed: the statement has failed, and the server has freed the rows of its transaction. Only where servers
    /// let statements wait for rows.
    Failed(OperationNumber),
    /// The read is done.
    Read(ReadId),
    /// The transaction cannot go on until these end: a statement of it waits for a lock inside the server, or in the queue behind one
    /// that does. It replaces the report on the transaction before.
    Waits(TransactionId, BTreeSet<TransactionId>),
}
