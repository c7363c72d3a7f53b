//! What a node has to know of its cluster before it can follow or lead: the members, and the key that proves identities.
//!
//! The register on etcd has it, once the cluster was founded. A node mirrors it into its data folder, where the rest of the node looks
//! for it. The first node of all inspects the servers, as the start of a node that is alone does, and puts what it finds into the
//! register. If several try that at once, the first to put it there has founded the cluster, and the others take what it has put.
//!
//! Invariant: all nodes have the same cluster and the same key. A folder with another one is not overwritten, unless that cluster was
//! never adopted.

use std::sync::Arc;
use std::time::Duration;

use commitlog::{
    Chair, ChairError, Claimed, Entry, EtcdChair, EtcdKeys, EtcdRegister, FileRegister, Register,
    RegisterError,
};
use tokio::task::spawn_blocking;

use super::settings::Settings;
use crate::config::log::LogPlace;
use crate::config::protocol::Propagation;
use crate::coordinator::open_error::OpenError;
use crate::membership::adoption::{self, AdoptionError};
use crate::membership::cluster_file::{self, Membership};
use crate::node::NodeError;
use crate::security::seal::Seal;
use crate::shipping::{self, LogKind};

/// The pause before the register is looked at again, while another node founds the cluster.
const PAUSE: Duration = Duration::from_millis(500);
/// What every node mirrors at its start.
const MIRRORED: [Entry; 3] = [Entry::Seal, Entry::Statements, Entry::Members];

/// The cluster that this node belongs to. Founds it if no node has.
pub(super) async fn find_cluster(settings: &Arc<Settings>, etcd: &EtcdKeys) -> Result<Membership, NodeError> {
    loop {
        if mirror(settings, etcd).await? {
            must_hold(settings)?;
            let found = cluster_file::read(&settings.folder)?;
            return found.ok_or(NodeError::NoMembers);
        }
        mark(settings)?;
        let Settings { folder, served, replicas, start_patience, place, .. } = &**settings;
        let log = LogPlace::Etcd(Box::new(place.clone()));
        match adoption::settle(folder, &log, served, replicas, *start_patience).await {
            Ok(_) => {}
            // Another node has founded it meanwhile.
            Err(AdoptionError::ForeignCluster { .. }) if mirror(settings, etcd).await? => continue,
            Err(error) => return Err(error.into()),
        }
        found(settings, etcd).await?;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Marks the folder of a cluster that is about to be founded, if its log will hold statements.
fn mark(settings: &Settings) -> Result<(), NodeError> {
    let Settings { folder, propagation, .. } = settings;
    let marked = match propagation {
        Propagation::Statements(_) => {
            let is_new = cluster_file::read(folder)?.is_none_or(|membership| !membership.is_adopted());
            shipping::claim_log(folder, is_new, LogKind::Numbered)
        }
        Propagation::Rows(_) | Propagation::CJdbc(_) => shipping::refuse_log(folder),
    };
    Ok(marked.map_err(OpenError::kind)?)
}

/// The log of the cluster has to be of this node's kind.
fn must_hold(settings: &Settings) -> Result<(), NodeError> {
    let Settings { folder, propagation, .. } = settings;
    let is_of_kind = match propagation {
        Propagation::Statements(_) => shipping::claim_log(folder, false, LogKind::Numbered),
        Propagation::Rows(_) | Propagation::CJdbc(_) => shipping::refuse_log(folder),
    };
    Ok(is_of_kind.map_err(OpenError::kind)?)
}

/// Puts what the data folder holds into the register, unless another node has put something there.
async fn found(settings: &Arc<Settings>, etcd: &EtcdKeys) -> Result<(), NodeError> {
    let (settings, etcd) = (Arc::clone(settings), etcd.clone());
    let begun = spawn_blocking(move || {
        let files = FileRegister::in_folder(&settings.folder);
        // The others need the key as soon as they know the members.
        Seal::of(&files)?;
        let chair = EtcdChair::new(Arc::clone(&etcd.store), etcd.keys.clone(), &settings.place.node, "");
        let refused = |error: ChairError| OpenError::kind(error);
        let reading = chair.read().map_err(refused)?;
        let Claimed::Won(claim) = chair.claim(&reading, reading.epoch()).map_err(refused)? else {
            return Ok(());
        };
        match EtcdRegister::open(etcd, claim, files, None, settings.place.patience) {
            Ok(_) | Err(RegisterError::Fenced { .. } | RegisterError::Outdated { .. }) => Ok(()),
            Err(error) => Err(OpenError::kind(error)),
        }
    });
    Ok(begun.await.map_err(|error| NodeError::Threads(error.into()))??)
}

/// Whether the cluster is founded. If so, the data folder has what the register has.
async fn mirror(settings: &Arc<Settings>, etcd: &EtcdKeys) -> Result<bool, NodeError> {
    let (settings, etcd) = (Arc::clone(settings), etcd.clone());
    let mirrored = spawn_blocking(move || {
        let peek = |entry: &Entry| EtcdRegister::peek(&etcd, entry, settings.place.patience);
        if peek(&Entry::Members)?.is_none() {
            return Ok(false);
        }
        let files = FileRegister::in_folder(&settings.folder);
        for entry in MIRRORED {
            let told = peek(&entry)?;
            if files.read(&entry)? != told {
                files.change(&entry, told.as_deref())?;
            }
        }
        Ok(true)
    });
    let mirrored: Result<bool, RegisterError> =
        mirrored.await.map_err(|error| NodeError::Threads(error.into()))?;
    Ok(mirrored.map_err(OpenError::kind)?)
}
