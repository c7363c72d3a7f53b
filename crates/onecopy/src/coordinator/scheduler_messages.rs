//! Where statements are shipped: what the sessions of a node and the scheduler at the leader say to each other, in order in each direction.
//!
//! ```text
//! node                                        leader
//!  Request { Begin }             ->
//!                                <-  Begun, Answer
//!  Request { Execute: write 1 }  ->
//!                                <-  Perform { replica 0, write 1 }, Perform { replica 1, write 1 }
//!  Finished { replica 0 }        ->
//!                                <-  Answer
//!  Request { End }               ->
//!                                <-  Perform { replica 0, commit }, ..
//!  Finished { replica 0 }, ..    ->
//!                                <-  Answer, Over
//! ```
//!
//! Statements stay at their node, where they run on connections of their session, and so do their replies. Of a write the leader gets what
//! its log keeps. A node names a session by its own number, and a statement by the number that it has given to it.
//!
//! Invariant: a node knows the identity of a transaction before that can be committed anywhere.

use cluster::ids::{CrewId, FragmentId, Identity, Incarnation, ReplicaId, SessionId};
use cluster::parts::lock_queues::Mode;
use cluster::protocols::shipping::{Ending, Kind, SequenceNumber, Transaction, Work};
use cluster::record::Shipped;
use serde::{Deserialize, Serialize};

use crate::capture::vouch::Voucher;

/// A replica between two losses. Reports of an earlier run are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ReplicaRun {
    pub(crate) replica: ReplicaId,
    /// Number of its losses.
    pub(crate) incarnation: Incarnation,
}

/// The number that a node has given to a statement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct StatementNumber(pub(crate) u64);

/// From the sessions of a node to the scheduler.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToScheduler {
    /// A session asks. `generation` is that of the catalogue by which it has chosen its locks.
    Request { session: SessionId, request: LinkedRequest, generation: u64 },
    /// A session has ended, after its transaction.
    Closed { session: SessionId },
    /// Work is done at a replica.
    Finished { run: ReplicaRun, transaction: Transaction, ran: Option<RanStatement> },
    /// A replica cannot go on with a transaction.
    GiveUp { run: ReplicaRun, reason: String },
    /// A session wants the exclusive turn, in which no other session begins a transaction.
    WantsTurn { session: SessionId },
    /// It does not need it any more.
    EndsTurn { session: SessionId },
    /// The session that has the exclusive turn has changed the schema.
    ChangedSchema,
    /// The node has the schema of this generation.
    KnowsSchema { generation: u64 },
    /// Whether a transaction is committed whose end a session waits for since it has lost the former leader.
    WantsOutcome { session: SessionId, identity: Identity },
}

/// What a session asks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LinkedRequest {
    Begin(Locks),
    Execute(LinkedStatement),
    End(Ending),
    SingleRead(Locks, LinkedStatement),
    SingleUpdate(Locks, LinkedStatement),
}

/// The locks of a transaction.
pub(crate) type Locks = Vec<(FragmentId, Mode)>;

/// A statement, as the scheduler needs it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LinkedStatement {
    pub(crate) number: StatementNumber,
    pub(crate) kind: Kind,
    /// The template under which its duration is measured.
    pub(crate) template: u64,
    /// What the log keeps of a write.
    pub(crate) logged: Vec<Shipped>,
}

/// A statement that a replica has run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RanStatement {
    pub(crate) number: StatementNumber,
    /// The part of its reply that all replicas must agree on.
    pub(crate) outcome: Vec<u8>,
    pub(crate) has_failed: bool,
    pub(crate) took_us: u32,
}

/// From the scheduler to the sessions of a node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToCrew {
    /// The sessions have joined the scheduler of a term.
    Welcome(Box<Welcome>),
    /// The transaction that a session has asked for has this identity.
    Begun { session: SessionId, identity: Identity },
    /// Do this at a replica.
    Perform(Box<Performed>),
    /// The answer to a request.
    Answer { session: SessionId, answer: LinkedAnswer },
    /// The replica takes part.
    Joined { run: ReplicaRun },
    /// It does not any more; its next run has the incarnation `next`.
    Lost { run: ReplicaRun, next: Incarnation },
    /// The session has the exclusive turn.
    Turn { session: SessionId },
    /// No replica needs a transaction of the node any more.
    Over { number: SequenceNumber },
    /// The schema has changed, and every replica that takes part has the change.
    Schema { generation: u64 },
    /// Every node has the schema of this generation.
    SchemaKnown { generation: u64 },
    /// The answer to [`ToScheduler::WantsOutcome`].
    Outcome { session: SessionId, is_committed: bool },
}

/// What sessions need to know of a term.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) crew: CrewId,
    /// Proves to servers that a connection is Onecopy's.
    pub(crate) voucher: Voucher,
    /// That of the present schema.
    pub(crate) generation: u64,
    /// The present run of each replica, and whether it takes part.
    pub(crate) replicas: Vec<Participation>,
}

/// The present run of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Participation {
    pub(crate) run: ReplicaRun,
    pub(crate) is_up: bool,
}

/// Work for a replica.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Performed {
    pub(crate) run: ReplicaRun,
    pub(crate) transaction: Transaction,
    pub(crate) work: Work,
    pub(crate) statement: Option<StatementNumber>,
    /// The identity of the transaction, if it may write.
    pub(crate) identity: Option<Identity>,
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum LinkedAnswer {
    Done,
    /// Too much is under way; nothing was done.
    Refused,
    /// No replica takes part that could do it.
    Lost,
    /// Nothing was done. The session chooses its locks again.
    Later,
    /// The memory for statements that replicas have not run yet is full; nothing was done.
    Full,
}
