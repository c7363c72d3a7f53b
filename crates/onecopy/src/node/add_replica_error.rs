//! The errors of ADD REPLICA: why a server cannot become a member.

use std::fmt;

use crate::backend::BackendError;
use crate::config::AddressError;
use crate::coordinator::identities::AppliedSetError;
use crate::membership::initial_copy::InitialCopyError;

/// A server cannot become a member. Nothing was changed in it.
#[derive(Debug)]
pub(super) enum AddReplicaError {
    /// All replica numbers were used since the node started.
    NoNumber,
    /// The URL cannot be used.
    Address(AddressError),
    /// The server is a member already, under this name.
    IsMember { name: String },
    /// The replica was no member while this node ran.
    NotFormer,
    /// The server has data that is not the cluster's.
    ForeignData { address: String, data: String },
    /// The server belongs to another cluster.
    OtherCluster { address: String, found: String, expected: String },
    /// The server cannot be read.
    Unreadable { address: String, source: BackendError },
    /// The log does not reach back to the server's version.
    Outdated { address: String, source: AppliedSetError },
    /// The initial copy failed.
    InitialCopy(InitialCopyError),
}

impl fmt::Display for AddReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber => f.write_str("all replica numbers were used; restart the node"),
            Self::Address(error) => write!(f, "{error}; {}", error.help()),
            Self::IsMember { name } => write!(f, "the server is a member already, as {name}"),
            Self::NotFormer => f.write_str("the replica was no member since the node started"),
            Self::ForeignData { address, data } => write!(
                f,
                "the server at {address} has data of its own, and nothing of the cluster: {data}; name one whose \
                 database is empty (or missing), or a copy of a member"
            ),
            Self::OtherCluster { address, found, expected } => {
                write!(f, "the server at {address} belongs to the cluster {found}, not to {expected}")
            }
            Self::Unreadable { address, source } => {
                write!(f, "the server at {address} cannot be read: {source}")
            }
            Self::Outdated { address, source } => write!(
                f,
                "the server at {address} cannot be brought up to date: {source}, by a new copy of a member"
            ),
            Self::InitialCopy(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AddReplicaError {}

impl From<InitialCopyError> for AddReplicaError {
    fn from(error: InitialCopyError) -> Self {
        Self::InitialCopy(error)
    }
}
