//! What a node is to be, and the record that opens its term in the log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ClusterId, Epoch, Identity, Nonce, Version};
use cluster::protocols::shipping::Choices;
use cluster::record::RecordBuilder;
use commitlog::{FileLog, LogEngine, LogError, Recovered};
use pgserver::LOG_FOLDER;

use super::identities::Identities;
use super::open_error::{FenceError, OpenError};
use super::quarantines::Quarantines;
use super::replica_address::ReplicaAddress;
use crate::backend::Served;
use crate::config::runtime::RuntimeConfig;
use crate::database::Database;
use crate::local::limits::Limits;

/// The number in the identities of the records that open a term; transactions have higher ones.
const FENCE_NUMBER: u64 = 0;
/// Whether a server that has nothing of the cluster may become a member: only before the first client is served, since
/// later it is another server, or was re-created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adoption {
    /// The servers were looked at, and are about to become a cluster.
    UnderWay,
    /// They are one.
    Done,
    /// They are one once a client was served.
    AsTheLogSays,
}

impl Adoption {
    /// Whether no client was served yet, when this was found in the log.
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

/// What a node is to be.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Which cluster it is.
    pub(crate) cluster: ClusterId,
    /// What is served.
    pub(crate) served: Served,
    /// The folder of the node's own files: the log and what stands beside it.
    pub(crate) data: PathBuf,
    /// The servers, in the order of their numbers; the first is the home of updates, to begin with.
    pub(crate) places: Vec<ReplicaAddress>,
    /// What the operator allows.
    pub(crate) limits: Limits,
    /// What can change while it runs.
    pub(crate) runtime_config: RuntimeConfig,
    /// Whether servers may become members by this start.
    pub(crate) adoption: Adoption,
    /// How long replicas are waited for at the start; if none, those of a new cluster for ever and others for a while.
    pub(crate) start_patience: Option<Duration>,
    /// How the replicas are kept equal.
    pub(crate) propagation: Propagation,
}

impl Plan {
    /// Opens the log, or begins one.
    pub(crate) fn open_log(&self) -> Result<(Arc<dyn LogEngine>, Recovered), LogError> {
        let (log, recovered) = FileLog::open(&self.log_folder(), self.cluster)?;
        Ok((Arc::new(log), recovered))
    }

    /// The folder of the log's files.
    fn log_folder(&self) -> PathBuf {
        self.data.join(LOG_FOLDER)
    }

    /// The quarantines that outlive a restart. Their files stand in the folder of the log, since the first version.
    pub(crate) fn quarantines(&self) -> Quarantines {
        Quarantines::in_folder(self.log_folder())
    }
}

/// How a node keeps its replicas equal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Propagation {
    /// It captures the rows that a transaction changes, and applies them at the other replicas.
    Rows,
    /// It sends statements to all replicas, in the order of this scheduler.
    Statements(Choices),
}

impl Propagation {
    /// Statements by this scheduler, or rows if there is none.
    pub(crate) fn by(scheduler: Option<Choices>) -> Self {
        scheduler.map_or(Self::Rows, Self::Statements)
    }
}

/// What a term of the node begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    /// Its number.
    pub(crate) epoch: Epoch,
    /// The version of the record that fences the log.
    pub(crate) last: Version,
    /// Tells its identities from those of other terms.
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
