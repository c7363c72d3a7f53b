//! Why servers did not become a cluster, or are not the cluster of the data folder.

use std::fmt;
use std::path::PathBuf;

use super::difference::Difference;
use super::objects::{EVENT_TRIGGERS, REMOVE_SCHEMAS};
use crate::backend::BackendError;
use crate::config::{AddressError, Replica};
use crate::coordinator::open_error::OpenError;
use crate::membership::cluster_file::ClusterFileError;
use crate::membership::reach::ReachError;

/// The servers are not adopted, or not served. The next start undoes any change that was made.
#[derive(Debug)]
pub(crate) enum AdoptionError {
    /// The file with the members cannot be used.
    File(ClusterFileError),
    /// The members on etcd cannot be read.
    Etcd(Box<OpenError>),
    /// A member that was added while a node ran has an address that cannot be used.
    Address { name: String, url: String, source: Box<AddressError> },
    /// The configuration names other servers than the members.
    OtherMembers { names: Vec<String> },
    /// A server belongs to a cluster that is not the folder's.
    ForeignCluster { replica: String, cluster: String, folder: PathBuf },
    /// A server was reached, and then could not be read or changed.
    Unreadable { replica: String, address: String, source: BackendError },
    /// A server cannot be reached.
    Unreachable(ReachError),
    /// Some of the servers cannot be reached, and adoption needs all.
    NotAllThere(Vec<ReachError>),
    /// None of the servers is a member.
    NoMember(Vec<NonMember>),
    /// The servers hold different data.
    Different(Difference),
    /// The system gives no random number.
    Random(getrandom::Error),
}

/// A server that should be a member and is not.
#[derive(Debug)]
pub(crate) enum NonMember {
    /// It belongs to another cluster.
    OtherCluster { name: String, found: String, expected: String },
    /// It has no objects of Onecopy.
    NoCluster { name: String, address: String, expected: String },
    /// It cannot be used as it is.
    Unusable(ReachError),
}

impl AdoptionError {
    pub(super) fn unreadable(replica: &Replica, source: BackendError) -> Self {
        let (replica, address) = (replica.name.clone(), replica.address.to_string());
        Self::Unreadable { replica, address, source }
    }
}

impl fmt::Display for AdoptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Etcd(error) => error.fmt(f),
            Self::Address { name, url, source } => write!(f, "{name} was added at {url}: {source}"),
            Self::OtherMembers { names } => write!(
                f,
                "the members of the cluster are {}, and the configuration names others\na server cannot be added or left out \
                 by the configuration alone: ADD REPLICA and DROP REPLICA do that while the node runs",
                names.join(", ")
            ),
            Self::ForeignCluster { replica, cluster, folder } => write!(
                f,
                "{replica} belongs to the cluster {cluster}, which {} knows nothing of\nname the data folder of that cluster, \
                 or take Onecopy's objects out of the server: DROP EVENT TRIGGER for each of {}; {REMOVE_SCHEMAS};",
                folder.display(),
                EVENT_TRIGGERS.join(", ")
            ),
            Self::Unreadable { replica, address, source } => {
                write!(f, "{replica} ({address}) cannot be read: {source}")
            }
            Self::Unreachable(error) => error.fmt(f),
            Self::NotAllThere(errors) => {
                for error in errors {
                    writeln!(f, "{error}")?;
                }
                f.write_str("all servers have to be there when they are adopted")
            }
            Self::NoMember(servers) => {
                let lines: Vec<String> = servers.iter().map(NonMember::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Self::Different(difference) => difference.fmt(f),
            Self::Random(error) => write!(f, "no random number: {error}"),
        }
    }
}

impl std::error::Error for AdoptionError {}

impl From<ClusterFileError> for AdoptionError {
    fn from(error: ClusterFileError) -> Self {
        Self::File(error)
    }
}

impl From<ReachError> for AdoptionError {
    fn from(error: ReachError) -> Self {
        Self::Unreachable(error)
    }
}

impl fmt::Display for NonMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherCluster { name, found, expected } => {
                write!(f, "{name} belongs to the cluster {found}, not to {expected}")
            }
            Self::NoCluster { name, address, expected } => write!(
                f,
                "{name} ({address}) has nothing of the cluster {expected} in it: it is another server, or was re-created"
            ),
            Self::Unusable(error) => error.fmt(f),
        }
    }
}
