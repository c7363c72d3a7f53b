//! The state that only the leader of a cluster has: the log for its replicas, the sequence leases, the channel to the
//! list of members, and the searches that run at most once at a time.
//!
//! A node without the core asks the leader for all of this.

use std::sync::{Arc, OnceLock};

use cluster::ids::ReplicaId;
use tokio::sync::{Mutex, Notify, mpsc};

use super::checkpoints::Checkpoints;
use super::elasticity::{Elasticity, UsageFile};
use super::log_retention::{LogRetention, Retention};
use super::parking::{ParkedFiles, Parking};
use super::placement_file::PlacementFile;
use super::quarantines::Quarantines;
use super::requests::MemberRequest;
use super::sequence_allocation::SequenceAllocation;
use crate::local::limits::Limits;

/// The state of the leader beside the core.
#[derive(Debug)]
pub(crate) struct Lead {
    /// Which records each replica still needs, and why one is quarantined.
    pub(crate) retention: Retention,
    /// What the log is also kept for.
    pub(crate) checkpoints: Arc<Checkpoints>,
    /// Which replicas are parked.
    pub(crate) parking: Parking,
    /// The file of what each replica holds. Held while that changes.
    pub(super) placement: std::sync::Mutex<PlacementFile>,
    /// How large the cluster is, and why.
    pub(crate) elasticity: Elasticity,
    /// The demand for ranges of sequences.
    pub(crate) sequences: SequenceAllocation,
    /// The way to the task that keeps the list of members.
    pub(crate) registry: OnceLock<mpsc::Sender<MemberRequest>>,
    /// Starts the next search for deadlocks between homes.
    pub(crate) deadlock_search: Notify,
    /// Held while VERIFY or CHECK compares the replicas.
    pub(crate) verification: Mutex<()>,
}

/// The files about the members, beside the log.
pub(super) struct MemberFiles {
    pub(super) quarantines: Quarantines,
    pub(super) parked: ParkedFiles,
    pub(super) placement: PlacementFile,
    pub(super) usage: UsageFile,
    pub(super) checkpoints: Checkpoints,
}

impl Lead {
    pub(super) fn new(members: impl Iterator<Item = ReplicaId>, files: MemberFiles, limits: Limits) -> Self {
        Self {
            retention: Retention::new(LogRetention::of(members), files.quarantines, limits),
            checkpoints: Arc::new(files.checkpoints),
            parking: Parking::new(files.parked),
            placement: std::sync::Mutex::new(files.placement),
            elasticity: Elasticity::new(files.usage),
            sequences: SequenceAllocation::default(),
            registry: OnceLock::new(),
            deadlock_search: Notify::new(),
            verification: Mutex::default(),
        }
    }
}
