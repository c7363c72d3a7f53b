//! The register: what a leader has to know of its cluster beside the log, by name.
//!
//! [`FileRegister`](crate::FileRegister) keeps it in files of the data folder, [`EtcdRegister`](crate::EtcdRegister) under keys of
//! etcd, for nodes with data folders of their own, and a copy in files. The value of an entry is what its file holds, byte for byte.
//! For example, `Quarantine("replica-2")` is the file `log/quarantine-replica-2`, or the key `quarantine/replica-2`.
//!
//! Invariant: a change that has returned without an error is durable, and one that has not is either there as a whole or not at all.
//!
//! Not here: what the values mean.

use std::fmt;
use std::io;
use std::path::PathBuf;

use cluster::ids::Epoch;

use crate::etcd::StoreError;

/// The longest value. Etcd's limit for a request is 1.5 MiB.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// A named part of the register.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Entry {
    /// The cluster and its members.
    Members,
    /// The key that proves identities in the servers. It is a secret.
    Seal,
    /// Which replica holds what.
    Placement,
    /// What the servers have cost.
    Usage,
    /// The log holds statements, and not rows.
    Statements,
    /// Why the replica of this name is in quarantine.
    Quarantine(String),
    /// What the replica of this name had when it was parked.
    Parked(String),
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Members => f.write_str("member"),
            Self::Seal => f.write_str("seal"),
            Self::Placement => f.write_str("placement"),
            Self::Usage => f.write_str("usage"),
            Self::Statements => f.write_str("statements"),
            Self::Quarantine(replica) => write!(f, "quarantine/{replica}"),
            Self::Parked(replica) => write!(f, "parked/{replica}"),
        }
    }
}

/// Where a leader keeps its register. Calls wait for the disk, or for the network.
pub trait Register: Send + Sync + fmt::Debug {
    /// The value of an entry.
    fn read(&self, entry: &Entry) -> Result<Option<Vec<u8>>, RegisterError>;

    /// Gives an entry this value, or removes it, durably.
    fn change(&self, entry: &Entry, value: Option<&[u8]>) -> Result<(), RegisterError>;

    /// The file or the key of an entry, for messages.
    fn location(&self, entry: &Entry) -> String;

    /// The node stops: changes that wait for an answer are given up.
    fn close(&self) {}
}

/// Why the register was not read or changed.
#[derive(Debug)]
pub enum RegisterError {
    /// The operating system refused.
    Io {
        /// The file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// The value is longer than [`ENTRY_BYTES_MAX`].
    TooLarge {
        /// The entry.
        entry: Entry,
        /// The length of the value.
        bytes: usize,
    },
    /// Etcd does not answer, or refuses. Nothing has changed.
    Store(StoreError),
    /// The node stops while etcd does not answer. The change may be there or not.
    InDoubt {
        /// The entry.
        entry: Entry,
    },
    /// Another node has changed the entry since it was read without a claim.
    Outdated {
        /// The entry.
        entry: Entry,
    },
    /// Another node has claimed the log. Nothing has changed.
    Fenced {
        /// The epoch of the other node.
        by: Epoch,
        /// Its name.
        node: String,
    },
    /// Etcd holds what this node cannot have left there.
    Malformed {
        /// The key.
        key: String,
    },
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::TooLarge { entry, bytes } => {
                write!(
                    f,
                    "the entry {entry} would have {bytes} bytes; at most {ENTRY_BYTES_MAX} are possible"
                )
            }
            Self::Store(error) => write!(f, "{error}; nothing has changed"),
            Self::InDoubt { entry } => write!(
                f,
                "the node stopped while etcd did not answer; the entry {entry} may have changed or not"
            ),
            Self::Outdated { entry } => {
                write!(f, "another node has changed the entry {entry} meanwhile; start this node again")
            }
            Self::Fenced { by, node } => {
                write!(f, "node {node} has taken over the log with epoch {by}; nothing has changed")
            }
            Self::Malformed { key } => {
                write!(
                    f,
                    "the key {key} of etcd is not as this node left it; find out what else writes to this etcd"
                )
            }
        }
    }
}

impl std::error::Error for RegisterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}
