//! Why the part of the log that is on etcd cannot be used.

use std::fmt;
use std::path::PathBuf;

use cluster::ids::{ClusterId, Epoch, Version};

use super::batch::BatchError;
use super::chair::ChairError;
use super::store::StoreError;
use crate::error::LogError;

/// Why the log on etcd was not opened or read.
#[derive(Debug)]
pub enum EtcdError {
    /// Etcd did not do what was asked.
    Store(StoreError),
    /// The leader could not be read, or the claim was not answered.
    Chair(ChairError),
    /// Another node has claimed the log meanwhile.
    Fenced {
        /// The epoch of the other node.
        by: Epoch,
        /// Its name.
        node: String,
    },
    /// The keys belong to another cluster.
    ForeignCluster {
        /// The key that says so.
        key: String,
        /// The cluster of the keys.
        found: ClusterId,
        /// The cluster of this node.
        expected: ClusterId,
    },
    /// A key holds something else than it should.
    Malformed {
        /// The key.
        key: String,
    },
    /// A batch cannot be read.
    Batch {
        /// The key.
        key: String,
        /// What is wrong with it.
        cause: BatchError,
    },
    /// A batch is missing from the middle.
    Gap {
        /// The version that should come next.
        expected: Version,
        /// The one that comes.
        found: Version,
    },
    /// This node's copy holds a record that is not the one on etcd.
    CopyContradicts {
        /// The folder of the copy.
        dir: PathBuf,
        /// The version of the record.
        version: Version,
    },
    /// This node's copy has more than etcd ever had.
    CopyIsAhead {
        /// The folder of the copy.
        dir: PathBuf,
        /// The last version of the copy.
        copied: Version,
        /// The last version on etcd.
        last: Version,
    },
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RESTORED: &str = "etcd was restored from an old copy, or the setting \"cluster_name\" names another cluster; \
             nothing was changed: put the right etcd back, or move the folder aside and rebuild the cluster";
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Chair(error) => error.fmt(f),
            Self::Fenced { by, node } => {
                write!(f, "node {node} has taken over the log with epoch {by} while this node started")
            }
            Self::ForeignCluster { key, found, expected } => write!(
                f,
                "the key {key} of etcd belongs to cluster {found}, not to cluster {expected}; \
                 give each cluster its own \"cluster_name\""
            ),
            Self::Malformed { key } => {
                write!(f, "the key {key} of etcd holds something else; something else writes to this etcd")
            }
            Self::Batch { key, cause } => write!(
                f,
                "the key {key} of etcd is damaged: {cause}; acknowledged transactions are in it, so nothing was changed"
            ),
            Self::Gap { expected, found } => write!(
                f,
                "version {expected} is missing on etcd, where version {found} comes next; acknowledged transactions are \
                 gone, so nothing was changed"
            ),
            Self::CopyContradicts { dir, version } => write!(
                f,
                "version {version} in {} is not the version {version} on etcd: {RESTORED}",
                dir.display()
            ),
            Self::CopyIsAhead { dir, copied, last } => write!(
                f,
                "the log in {} goes up to version {copied}, and that on etcd only up to {last}: {RESTORED}",
                dir.display()
            ),
        }
    }
}

impl std::error::Error for EtcdError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Chair(error) => Some(error),
            Self::Batch { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

impl From<StoreError> for EtcdError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ChairError> for EtcdError {
    fn from(error: ChairError) -> Self {
        Self::Chair(error)
    }
}

impl From<EtcdError> for LogError {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error)
    }
}
