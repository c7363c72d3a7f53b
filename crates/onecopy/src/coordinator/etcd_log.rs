//! Opens the log on etcd for a term of this node: claims the chair, completes the copy, and says from when on the node may serve.
//!
//! A node that finds a leader claims all the same: one node runs at a time, so the former one has died, or is replaced. If it
//! runs still, it is fenced and ends.
//!
//! Invariant: nothing is served or applied before [`OpenedLog::serve_from`]. Until then the former leader may answer reads under its
//! term lease, which a version that this node shows earlier would make stale.
//!
//! Non-goal: followers. They come with the links between nodes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::ids::{ClusterId, Epoch};
use cluster::nodes::Timing;
use commitlog::{
    Chair, ChairError, Claim, Claimed, EtcdChair, EtcdError, EtcdKeys, EtcdLog, EtcdOptions, Gateway, Keys,
    LogCopy, LogEngine, LogError, Recovered,
};

use super::open_error::OpenError;
use crate::config::log::EtcdPlace;

/// Nodes that claim at the same time overtake each other at most so often.
const CLAIMS: u32 = 20;

/// A log that this node may write, and what it holds.
pub(crate) struct OpenedLog {
    pub(crate) log: Arc<dyn LogEngine>,
    pub(crate) recovered: Recovered,
    /// Nothing is served or applied before; `None` if no other node can have a lease.
    pub(crate) serve_from: Option<Instant>,
}

/// The client of an etcd. Reads the files for TLS.
pub(crate) fn gateway(place: &EtcdPlace) -> Result<Arc<Gateway>, OpenError> {
    Ok(Arc::new(Gateway::new(&place.urls, &place.tls).map_err(OpenError::kind)?))
}

/// Blocks on the network and on the disk.
pub(super) fn open(place: &EtcdPlace, dir: &Path, cluster: ClusterId) -> Result<OpenedLog, OpenError> {
    let etcd = EtcdKeys { store: gateway(place)?, keys: Keys::new(&place.cluster_name) };
    // Before the claim: a copy that cannot be opened costs another node nothing.
    let copy = LogCopy::open(dir, cluster)?;
    let claim = claim(&etcd, place, copy.last_epoch())?;
    let serve_from = claim.before.as_ref().map(|_| claim.answered_at + leases_run_out());
    let epoch = claim.epoch;
    let options = EtcdOptions { node: place.node.clone(), patience: place.patience };
    let (log, mut recovered) = EtcdLog::open(etcd, claim, copy, &options)?;
    // The record that opens the term has the epoch of the claim, which is above that of all records.
    recovered.last_epoch = Epoch(epoch.0 - 1);
    Ok(OpenedLog { log: Arc::new(log), recovered, serve_from })
}

/// After this no lease of a former leader is in force, whichever clock is fast.
fn leases_run_out() -> Duration {
    Duration::from_micros(Timing::default().lease_is_over_us())
}

/// Takes the chair from the node that has it.
fn claim(etcd: &EtcdKeys, place: &EtcdPlace, above: Epoch) -> Result<Claim, OpenError> {
    let chair = EtcdChair::new(Arc::clone(&etcd.store), etcd.keys.clone(), &place.node, "");
    let refused = |error: ChairError| OpenError::Log(LogError::Etcd(EtcdError::Chair(error)));
    let mut reading = chair.read().map_err(refused)?;
    for _ in 0..CLAIMS {
        match chair.claim(&reading, above).map_err(refused)? {
            Claimed::Won(claim) => {
                if let Some(before) = &claim.before {
                    tracing::warn!(epoch = claim.epoch.0, from = before.node, "this node takes over the log");
                }
                return Ok(claim);
            }
            Claimed::Lost(to) => reading = to,
        }
    }
    let (by, node) = reading.leader.map_or_else(Default::default, |leader| (leader.epoch, leader.node));
    Err(OpenError::Log(LogError::Etcd(EtcdError::Fenced { by, node })))
}
