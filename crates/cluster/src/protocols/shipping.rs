//! Statement shipping under declared table locks: what the five schedulers of the first paper have in common.
//!
//! Conflict-aware scheduling, sections 3, 4 and 6. A scheduler gives each transaction a sequence number when its lock
//! request arrives, sends lock requests, writes and ends to all replicas and reads to one; a proxy at each replica
//! executes lock requests in order of the numbers, holds locks to the end (conservative two-phase locking), and lets an
//! operation go to its database when all before it in its transaction are done.
//!
//! ```text
//! client -> Request -> Scheduler -> ToProxy -> Proxy -> Work -> database
//!        <- Answer  <-           <- FromProxy <-     <- finished
//! ```
//!
//! The five differ in two choices only: where a read goes ([`Place`]) and which reply counts ([`Acknowledge`]); each has
//! a file that says which and is tested against its sentences in the paper ([`super::eager`], [`super::fr_l`],
//! [`super::fr_c`], [`super::vr_l`], [`super::conflict_aware`]).
//!
//! Guarantee: 1-copy serializability, strict: conflicting operations have one order at all replicas, that of the
//! sequence numbers, and a single read comes after everything that was numbered before it arrived.
//!
//! Deviations, each where the paper leaves something open: a single read takes no number of its own, since it would
//! leave a gap at the other proxies, but the place after the last one given out; lists of replicas are gone through
//! beginning with another one each time, so that ties do not all fall to the first; what is locked is a fragment, so
//! that finer classes than tables are possible; the write queries of a transaction are kept by their names
//! ([`StatementId`]), the driver has the texts.

mod adopting;
mod failover;
mod joining;
mod message;
mod peer_message;
mod proxy;
mod replicated;
mod scheduler;
mod sequencer;
mod several;
#[cfg(test)]
pub(super) mod stage;
#[cfg(test)]
mod tests;

pub use failover::{ProxyState, roll_forward};
pub use joining::Decided;
pub use message::{
    Answer, Ending, FromProxy, Kind, Operation, Request, SchedulerId, SequenceNumber, StatementId, ToProxy,
    Transaction,
};
pub use peer_message::{Decision, ToPeer};
pub use proxy::{Proxy, ProxyOutput, Work};
pub use replicated::{ReplicatedOutput, ReplicatedScheduler, ReplicationRules};
pub use scheduler::{Output, Scheduler};
pub use several::{RoutedOutput, SharedProxy};

/// The replicas to which the reads of a transaction go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// All to the replica that was least loaded when the transaction began (section 6.2).
    FixedByLoad,
    /// All to the replica that answered the lock request first (section 6.3).
    FixedByConflict,
    /// Each to the replica that is least loaded when the read arrives (section 6.4).
    VariableByLoad,
    /// Each to the least loaded of the replicas that have the locks and all earlier writes (section 3.5).
    VariableByConflict,
}

impl Place {
    /// Whether single reads look for a replica without conflicts first (section 4.8).
    ///
    /// For [`Place::FixedByConflict`] the paper does not say how, but says that it does: "FR-C, in contrast, tries to
    /// send the reads to conflict-free replicas" (section 8.1), also in the mix that is nearly all single reads.
    pub fn avoids_conflicts(self) -> bool {
        matches!(self, Self::FixedByConflict | Self::VariableByConflict)
    }
}

/// The reply to a lock request, a write or a commit that is passed on to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledge {
    /// The first one (section 3.3).
    First,
    /// That of the replica at which the transaction is fixed (sections 6.2, 6.3).
    Chosen,
    /// The last one (section 6.1).
    All,
}

/// The choices of one scheduler of the family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choices {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// The replicas to which reads go.
    pub place: Place,
    /// The reply that counts.
    pub acknowledge: Acknowledge,
}
