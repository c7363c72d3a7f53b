//! Where the transactions of a session run: on connections of this process, at another node, or, when that node is lost, on connections
//! of Onecopy's own.

use std::sync::Arc;

use cluster::ids::{CrewId, Identity};
use cluster::protocols::shipping::Work;
use cluster::record::Shipped;
use tokio::sync::mpsc;

use super::connections::SessionConnections;
use super::lane::Job;

/// Where the transactions of a session run.
#[derive(Clone)]
pub(super) enum LaneSite {
    /// In this process.
    Here(Arc<SessionConnections>),
    /// At the node with this crew.
    Crew(CrewId),
    /// The node of this crew is lost.
    Orphaned(CrewId),
}

/// Work for a transaction whose node is lost.
#[derive(Debug)]
pub(super) struct OrphanJob {
    pub(super) work: Work,
    /// The statement, as the log keeps it.
    pub(super) logged: Vec<Shipped>,
    pub(super) identity: Option<Identity>,
}

/// The way to what a transaction does at one replica.
pub(super) enum Lane {
    Here(mpsc::UnboundedSender<Job>),
    Crew(CrewId),
    Orphaned(mpsc::UnboundedSender<OrphanJob>),
}

impl Lane {
    /// Whether it is at a node with this crew.
    pub(super) fn is_at(&self, crew: CrewId) -> bool {
        matches!(self, Self::Crew(at) if *at == crew)
    }
}
