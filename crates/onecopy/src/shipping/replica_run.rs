//! A replica between two losses, and the node as its lanes see it.

use std::sync::Arc;

use cluster::ids::{Incarnation, ReplicaId};
use cluster::protocols::shipping::Transaction;

use super::shipment::{Reply, Shipment};
use crate::backend::Address;
use crate::coordinator::Coordinator;

/// A replica between two losses. Reports of an earlier run are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplicaRun {
    pub(super) replica: ReplicaId,
    /// Number of its losses.
    pub(super) incarnation: Incarnation,
}

/// A statement that a replica has run.
#[derive(Debug)]
pub(super) struct Completed {
    /// The statement.
    pub(super) shipment: Arc<Shipment>,
    /// The replica's reply.
    pub(super) reply: Reply,
    /// Its duration in microseconds.
    pub(super) took_us: u32,
}

/// The node, as lanes and the connections of sessions see it.
pub(super) trait LaneHost: Send + Sync {
    fn coordinator(&self) -> &Arc<Coordinator>;

    /// Whether the replica was not lost since this run began.
    fn is_present(&self, run: ReplicaRun) -> bool;

    /// Most bytes of rows that one statement may return.
    fn reply_bytes_max(&self) -> usize;

    /// Reports finished work of a transaction at a replica.
    fn finished(self: Arc<Self>, run: ReplicaRun, transaction: Transaction, completed: Option<Completed>);

    /// Gives up a replica that cannot continue, until it has been rolled forward.
    fn give_up(self: Arc<Self>, run: ReplicaRun, reason: &str);

    /// The address of a replica.
    fn address(&self, replica: ReplicaId) -> Address {
        self.coordinator().seats[replica].address.clone()
    }
}
