//! Why a node does not start, or does not go on.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use pgserver::UpError;

use crate::config::LoadError;
use crate::coordinator::open_error::OpenError;
use crate::error::Refusal;
use crate::membership::adoption::AdoptionError;
use crate::membership::cluster_file::ClusterFileError;

/// A node has ended, or did not start, for another reason than being told to.
#[derive(Debug)]
pub(crate) enum NodeError {
    /// The configuration cannot be used.
    Config(LoadError),
    /// The system does not let the process handle signals.
    Signals(io::Error),
    /// A signal came before the node was there.
    Interrupted,
    /// An address cannot be listened on.
    Listen { address: SocketAddr, source: io::Error },
    /// A port of the loopback cannot be listened on.
    Port { port: u16, source: io::Error },
    /// The servers do not become a cluster, or are not that of the folder.
    Adoption(Box<AdoptionError>),
    /// The file with the members cannot be used.
    ClusterFile(ClusterFileError),
    /// Clients wrote to the servers while they were adopted, so they differ in these.
    WrittenMeanwhile { names: Vec<String> },
    /// The servers cannot be compared after they were adopted.
    NotCompared(Box<Refusal>),
    /// The servers of `onecopy up` do not start.
    Servers(Box<UpError>),
    /// The parts of the node cannot be put together.
    Open(Box<OpenError>),
    /// The system gives no threads.
    Threads(io::Error),
    /// Clients cannot be accepted any more.
    Accept(io::Error),
    /// The log cannot be written any more.
    Log { reason: String },
    /// No replica can serve.
    NoReplica(Vec<AbsentReplica>),
    /// The schema of no replica is known.
    NoSchema,
    /// The registry of members has ended: an error of ours.
    RegistryEnded,
    /// A part was put together twice: an error of ours.
    Twice(&'static str),
}

/// A replica that does not serve.
#[derive(Debug)]
pub(crate) struct AbsentReplica {
    pub(super) name: String,
    /// Why, as SHOW REPLICAS says it.
    pub(super) reason: String,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNDONE: &str = "Onecopy's objects were taken out again; stop all writers, and start it again";
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Signals(error) => write!(f, "signals cannot be caught: {error}"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Listen { address, source } => write!(f, "{address} cannot be listened on: {source}"),
            Self::Port { port, source } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "port {port} is in use; stop what listens there, or choose another with --port")
            }
            Self::Port { port, source } => write!(f, "port {port} cannot be listened on: {source}"),
            Self::Adoption(error) => error.fmt(f),
            Self::ClusterFile(error) => error.fmt(f),
            Self::WrittenMeanwhile { names } => write!(
                f,
                "a client wrote to the servers while they were adopted: {}\n{UNDONE}",
                names.join(", ")
            ),
            Self::NotCompared(refusal) => write!(f, "{}\n{UNDONE}", refusal.message),
            Self::Servers(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Threads(error) => write!(f, "no threads for sessions: {error}"),
            Self::Accept(error) => write!(f, "clients cannot be accepted: {error}"),
            Self::Log { reason } => write!(f, "the log cannot be written any more: {reason}"),
            Self::NoReplica(all) => {
                f.write_str("no replica can serve")?;
                all.iter().try_for_each(|AbsentReplica { name, reason }| write!(f, "\n{name}: {reason}"))
            }
            Self::NoSchema => f.write_str("no replica tells its schema"),
            Self::RegistryEnded => f.write_str("the task that keeps the list of members has ended"),
            Self::Twice(part) => write!(f, "{part} twice"),
        }
    }
}

impl std::error::Error for NodeError {}

impl From<LoadError> for NodeError {
    fn from(error: LoadError) -> Self {
        Self::Config(error)
    }
}

impl From<AdoptionError> for NodeError {
    fn from(error: AdoptionError) -> Self {
        Self::Adoption(Box::new(error))
    }
}

impl From<ClusterFileError> for NodeError {
    fn from(error: ClusterFileError) -> Self {
        Self::ClusterFile(error)
    }
}

impl From<OpenError> for NodeError {
    fn from(error: OpenError) -> Self {
        Self::Open(Box::new(error))
    }
}
