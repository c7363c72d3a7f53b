//! The plan of a node, and the record that opens its term in the log.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ClusterId, DatabaseId, Epoch, Identity, Nonce, Version};
use cluster::placement::Placement;
use cluster::record::RecordBuilder;
use commitlog::{FileLog, FileRegister, LogCopy, LogEngine, Recovered};
use pgserver::LOG_FOLDER;
use tokio::task::spawn_blocking;

use super::checkpoints::Checkpoints;
use super::etcd_log::{self, OpenedLog};
use super::identities::Identities;
use super::open_error::{FenceError, OpenError};
use super::placement_file::PlacementFile;
use super::register::TermRegister;
use super::replica_address::ReplicaAddress;
use crate::backend::Served;
use crate::config::log::LogPlace;
use crate::config::placement::PlacementRules;
use crate::config::protocol::Propagation;
use crate::config::runtime::RuntimeConfig;
use crate::database::Database;
use crate::local::limits::Limits;

/// The number in the identities of the records that open a term; transactions have higher ones.
const FENCE_NUMBER: u64 = 0;
/// Whether a server without data of the cluster may become a member. It may only before the first client is served:
/// later it is another server, or was re-created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adoption {
    /// The servers were inspected, and are about to become a cluster.
    UnderWay,
    /// The servers are a cluster.
    Done,
    /// The servers are a cluster once a client was served.
    AsTheLogSays,
}

impl Adoption {
    /// Whether the log that was recovered shows that no client was served yet.
    pub(crate) fn is_founding(self, recovered: &Recovered) -> bool {
        match self {
            Self::UnderWay => true,
            Self::Done => false,
            Self::AsTheLogSays => {
                let is_whole = recovered.identities.front().is_none_or(|(_, first)| *first == Version(1));
                is_whole && recovered.identities.iter().all(|(identity, _)| identity.n == FENCE_NUMBER)
            }
        }
    }
}

/// The plan of a node: its cluster, its servers and its limits.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) cluster: ClusterId,
    /// The database that is served, and the account for it.
    pub(crate) served: Served,
    /// The folder of the node's own files: the log and the files beside it.
    pub(crate) data: PathBuf,
    /// Where the log is kept.
    pub(crate) log: LogPlace,
    /// The entry of the members on etcd, as it was before the claim.
    pub(crate) members: Option<Vec<u8>>,
    /// The servers, in the order of their numbers. The first that holds everything is the anchor at the start.
    pub(crate) places: Vec<ReplicaAddress>,
    /// The operator's limits.
    pub(crate) limits: Limits,
    /// Settings that can change while the node runs.
    pub(crate) runtime_config: RuntimeConfig,
    /// Whether this start may make servers members.
    pub(crate) adoption: Adoption,
    /// How long the start waits for replicas. `None`: for ever in a new cluster, for a while in any other.
    pub(crate) start_patience: Option<Duration>,
    /// How the replicas are kept equal.
    pub(crate) propagation: Propagation,
    /// Which replicas hold new tables.
    pub(crate) new_tables: PlacementRules,
}

impl Plan {
    /// Opens the log, or creates it.
    pub(crate) async fn open_log(&self) -> Result<OpenedLog, OpenError> {
        let (dir, cluster) = (self.log_folder(), self.cluster);
        match self.log.clone() {
            LogPlace::Files => {
                let (log, recovered) = FileLog::open(&dir, cluster)?;
                let register = TermRegister::in_folder(&self.data);
                Ok(OpenedLog { log: Arc::new(log), recovered, register, serve_from: None })
            }
            LogPlace::Etcd(place) => {
                let (files, members) = (FileRegister::in_folder(&self.data), self.members.clone());
                let opened = spawn_blocking(move || {
                    let copy = LogCopy::open(&dir, cluster)?;
                    etcd_log::open(&place, copy, files, members.as_deref())
                });
                let opened = opened.await;
                opened.map_err(|error| OpenError::Log(error.into()))?
            }
        }
    }

    fn log_folder(&self) -> PathBuf {
        self.data.join(LOG_FOLDER)
    }

    /// The checkpoints, beside the folder of the log.
    pub(crate) fn checkpoints(&self) -> io::Result<Checkpoints> {
        Checkpoints::open(&self.data)
    }

    /// The placement at the start of the term of this register.
    pub(crate) async fn placement(
        &self,
        register: &Arc<TermRegister>,
        database: DatabaseId,
    ) -> Result<Placement, OpenError> {
        placement(register, self.places.clone(), database).await
    }
}

/// The placement at the start of the term of this register, over these members.
pub(crate) async fn placement(
    register: &Arc<TermRegister>,
    places: Vec<ReplicaAddress>,
    database: DatabaseId,
) -> Result<Placement, OpenError> {
    let entry = PlacementFile::of(register);
    let read = spawn_blocking(move || entry.placement(&places, database)).await;
    read.map_err(|error| OpenError::Log(error.into()))?
}

/// The identity of a node's term.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) epoch: Epoch,
    /// The version of the record that fences the log.
    pub(crate) last: Version,
    /// Distinguishes the identities of this term from those of other terms.
    pub(crate) nonce: Nonce,
}

/// Appends the record that opens the term after those in the log.
pub(crate) fn fence(
    log: &dyn LogEngine,
    cluster: ClusterId,
    database: &Database,
    recovered: &Recovered,
    identities: &Identities,
) -> Result<Term, OpenError> {
    let epoch = recovered.last_epoch.next();
    let nonce = getrandom::u64()?;
    let identity = Identity { epoch, n: FENCE_NUMBER, nonce: Nonce(nonce) };
    let version = recovered.last.next();
    let mut body = RecordBuilder::new(database.served.id);
    body.push_fence().map_err(FenceError::TooLarge)?;
    let header = database.header(cluster, identity, version);
    identities.insert(identity, version);
    log.append(Arc::new(body.finish(header)));
    Ok(Term { epoch, last: version, nonce: Nonce(nonce) })
}
