//! A replica between two losses of it, and what its lanes need of the node.

use std::sync::Arc;

use cluster::ids::{Incarnation, ReplicaId};
use cluster::protocols::shipping::Transaction;

use super::shipment::{Reply, Shipment};
use crate::backend::Address;
use crate::coordinator::Coordinator;

/// A replica between two losses of it. Reports about an earlier run no longer count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplicaRun {
    /// Its number.
    pub(super) replica: ReplicaId,
    /// Counts its losses.
    pub(super) incarnation: Incarnation,
}

/// A statement that a replica has run.
#[derive(Debug)]
pub(super) struct Completed {
    /// The statement.
    pub(super) shipment: Arc<Shipment>,
    /// What the replica returned.
    pub(super) reply: Reply,
    /// How long it took, in microseconds.
    pub(super) took_us: u32,
}

/// The node, as lanes and the connections of sessions need it.
pub(super) trait LaneHost: Send + Sync {
    /// The coordinator of the node.
    fn coordinator(&self) -> &Arc<Coordinator>;

    /// Whether the replica was not lost since this run began.
    fn is_present(&self, run: ReplicaRun) -> bool;

    /// How many bytes of rows one statement may return.
    fn reply_bytes_max(&self) -> usize;

    /// A replica has done the work that it was given for a transaction.
    fn finished(self: Arc<Self>, run: ReplicaRun, transaction: Transaction, completed: Option<Completed>);

    /// A replica cannot go on as the others do: it takes no part until it has been rolled forward.
    fn give_up(self: Arc<Self>, run: ReplicaRun, reason: &str);

    /// Where a replica listens.
    fn address(&self, replica: ReplicaId) -> Address {
        self.coordinator().seats[replica].address.clone()
    }
}
