//! The messages between schedulers. Between two of them they keep their order.

use crate::parts::lock_queues::LockSet;

use super::message::{Operation, SequenceNumber};

/// How a transaction ends, as its scheduler has decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It commits: its locks and all its writes. A transaction that has only read has none.
    Commit(LockSet, Vec<Operation>),
    /// It is undone. Only a fail-over scheduler says so; a transaction without a decision is undone anyway.
    Abort,
}

/// From one scheduler to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToPeer {
    /// To the sequencer: a transaction begins here.
    AskNumber,
    /// From the sequencer: its number.
    Number(SequenceNumber),
    /// `replicate_start_transaction` (section 5.2). It is acknowledged.
    Start(SequenceNumber),
    /// `replicate_end_transaction` (section 5.3). It is acknowledged.
    End(SequenceNumber, Decision),
    /// The acknowledgment of a start or an end.
    Recorded(SequenceNumber),
    /// All replicas have ended the transaction: "these records can be garbage-collected" (section 5.3.1).
    Over(SequenceNumber),
    /// To the fail-over scheduler: the sender knows of this view, hears of none that has failed any more, and has heard of this number.
    Viewed(u64, SequenceNumber),
}
