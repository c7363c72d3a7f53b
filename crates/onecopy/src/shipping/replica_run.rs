//! A replica between two losses, and the node as its lanes see it.

use std::sync::Arc;

use cluster::ids::{CrewId, ReplicaId};
use cluster::protocols::shipping::Transaction;

use super::shipment::{Reply, Shipment};
use crate::backend::Address;
use crate::capture::vouch::Voucher;
use crate::client::cancel::Running;
pub(crate) use crate::coordinator::scheduler_messages::ReplicaRun;
use crate::coordinator::{Coordinator, Leader};

/// A statement that a replica has run.
#[derive(Debug)]
pub(crate) struct Completed {
    /// The statement.
    pub(crate) shipment: Arc<Shipment>,
    /// The replica's reply.
    pub(crate) reply: Reply,
    /// Its duration in microseconds.
    pub(crate) took_us: u32,
}

/// The node, as whoever connects to its replicas sees it.
pub(crate) trait ReplicaHost: Send + Sync {
    /// The leader, if this node leads and the lanes are its own.
    fn leading(&self) -> Option<&Arc<Leader>> {
        None
    }

    /// What the sessions of this process share.
    fn coordinator(&self) -> &Arc<Coordinator> {
        &self.leading().expect("a host that does not lead names its coordinator").coordinator
    }

    /// Whether the replica was not lost since this run began.
    fn is_present(&self, run: ReplicaRun) -> bool;

    /// The address of a replica.
    fn address(&self, replica: ReplicaId) -> Address {
        self.coordinator().seats[replica].address.clone()
    }
}

/// The node, as lanes and the connections of sessions see it.
pub(crate) trait LaneHost: ReplicaHost {
    /// Proves to servers that a connection is Onecopy's. `None` while no node leads.
    fn voucher(&self) -> Option<Voucher> {
        self.leading().map(|leader| leader.voucher.clone())
    }

    /// The crew to which backends of this process belong, where there are several nodes.
    fn crew(&self) -> Option<CrewId> {
        None
    }

    /// Most bytes of rows that one statement may return.
    fn reply_bytes_max(&self) -> usize;

    /// Reports finished work of a transaction at a replica.
    fn finished(self: Arc<Self>, run: ReplicaRun, transaction: Transaction, completed: Option<Completed>);

    /// Gives up a replica that cannot continue, until it has been rolled forward.
    fn give_up(self: Arc<Self>, run: ReplicaRun, reason: &str);

    /// A transaction has got this connection at the replica.
    fn connected(&self, _run: ReplicaRun, _transaction: Transaction, _running: &Arc<Running>) {}

    /// The connection of a statement that is cancelled when its transaction is aborted meanwhile, if it is.
    fn cancelled_by_abort(&self, _run: ReplicaRun, _transaction: Transaction) -> Option<Arc<Running>> {
        None
    }

    /// Whether a replica's commit must be on its server's disk when it is reported, because it cannot be run again.
    fn commits_to_disk(&self) -> bool {
        false
    }

    /// Whether the servers leave deadlocks to the scheduler.
    fn leaves_deadlocks(&self) -> bool {
        false
    }
}

/// A node that leads, so that it has the log and looks after the replicas.
pub(crate) trait LeadingHost: LaneHost {
    fn leader(&self) -> &Arc<Leader> {
        self.leading().expect("the leader is attached before the first session")
    }
}
