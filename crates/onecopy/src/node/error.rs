//! The errors with which a node does not start, or ends.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use peers::PeersError;
use pgserver::UpError;

use super::etcd_check::EtcdUnfit;
use super::up::NodesError;
use crate::config::LoadError;
use crate::config::log::LogPlaceError;
use crate::config::protocol::ProtocolError;
use crate::coordinator::following::UnknownMember;
use crate::coordinator::open_error::OpenError;
use crate::error::Refusal;
use crate::membership::adoption::AdoptionError;
use crate::membership::cluster_file::ClusterFileError;

/// A node did not start, or ended without a command to stop.
#[derive(Debug)]
pub(crate) enum NodeError {
    /// The configuration cannot be used.
    Config(LoadError),
    /// Replicas cannot come and go under this protocol.
    NotElastic,
    /// Reads are not fresh, or statements are shipped.
    NotCached,
    /// Every replica holds everything under this protocol.
    NotPlaced { line: String },
    /// The protocol cannot be run with these settings.
    Protocol(ProtocolError),
    /// The settings of the log do not go together.
    LogPlace(LogPlaceError),
    /// The links between the nodes cannot be set up.
    Links(Box<PeersError>),
    /// A replica has joined that this node cannot serve from.
    UnknownMember(Box<UnknownMember>),
    /// This etcd cannot hold the log.
    Etcd(Box<EtcdUnfit>),
    /// The process cannot catch signals.
    Signals(io::Error),
    /// A signal came before the node was ready.
    Interrupted,
    /// What the process before this one has left cannot be read.
    Inheritance(io::Error),
    /// No other process can take the place of this one.
    Successor(io::Error),
    /// The node cannot listen on this address.
    Listen { address: SocketAddr, source: io::Error },
    /// The node cannot listen on this port of the loopback.
    Port { port: u16, source: io::Error },
    /// The servers cannot be adopted, or belong to another cluster.
    Adoption(Box<AdoptionError>),
    /// The file with the members cannot be used.
    ClusterFile(ClusterFileError),
    /// A client wrote to these tables while the servers were adopted, so the servers differ.
    WrittenMeanwhile { names: Vec<String> },
    /// The servers could not be compared after adoption.
    NotCompared(Box<Refusal>),
    /// The servers of `onecopy up` do not start.
    Servers(Box<UpError>),
    /// The nodes of `onecopy up --nodes` do not start.
    Nodes(Box<NodesError>),
    /// A part of the node could not be opened.
    Open(Box<OpenError>),
    /// The system grants no threads.
    Threads(io::Error),
    /// The listeners have failed.
    Accept(io::Error),
    /// The log has failed.
    Log { reason: String },
    /// No replica can serve.
    NoReplica(Vec<AbsentReplica>),
    /// No replica has reported its schema.
    NoSchema,
    /// The task of the member list has ended: a bug.
    RegistryEnded,
    /// A task that runs as long as the node has ended: a bug.
    TaskEnded(&'static str),
    /// The register has no list of members, although the cluster was founded.
    NoMembers,
    /// A part was opened twice: a bug.
    Twice(&'static str),
}

/// A replica that does not serve.
#[derive(Debug)]
pub(crate) struct AbsentReplica {
    pub(super) name: String,
    /// The reason, as in SHOW REPLICAS.
    pub(super) reason: String,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNDONE: &str =
            "Onecopy has removed its objects from the servers; stop all writers, then start it again";
        match self {
            Self::Config(error) => error.fmt(f),
            Self::NotElastic => f.write_str(
                "elastic.replicas needs a protocol that propagates rows, such as onecopy; leave it out, or change protocol",
            ),
            Self::NotCached => f.write_str(
                "a result cache needs protocol onecopy, with fresh reads; leave out \"result_cache\", or change protocol or \"see\"; protocol c-jdbc has \"query_cache\"",
            ),
            Self::NotPlaced { line } => write!(
                f,
                "{line}: [placement] needs a protocol that propagates rows, such as onecopy; leave it out, or change protocol"
            ),
            Self::Protocol(error) => error.fmt(f),
            Self::LogPlace(error) => error.fmt(f),
            Self::Links(error) => error.fmt(f),
            Self::UnknownMember(error) => error.fmt(f),
            Self::Etcd(error) => error.fmt(f),
            Self::Signals(error) => write!(f, "cannot catch signals: {error}"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Inheritance(error) => {
                write!(f, "cannot take over from the process before this one: {error}")
            }
            Self::Successor(error) => {
                write!(f, "cannot become the program that was to take over, so all sessions have ended: {error}")
            }
            Self::Listen { address, source } => write!(f, "cannot listen on {address}: {source}"),
            Self::Port { port, source } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "port {port} is in use; stop what listens there, or choose another with --port")
            }
            Self::Port { port, source } => write!(f, "cannot listen on port {port}: {source}"),
            Self::Adoption(error) => error.fmt(f),
            Self::ClusterFile(error) => error.fmt(f),
            Self::WrittenMeanwhile { names } => write!(
                f,
                "a client wrote to the servers while they were adopted: {}\n{UNDONE}",
                names.join(", ")
            ),
            Self::NotCompared(refusal) => write!(f, "{}\n{UNDONE}", refusal.message),
            Self::Servers(error) => error.fmt(f),
            Self::Nodes(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Threads(error) => write!(f, "cannot start session threads: {error}"),
            Self::Accept(error) => write!(f, "cannot accept clients: {error}"),
            Self::Log { reason } => write!(f, "cannot write the log any more: {reason}"),
            Self::NoReplica(all) => {
                f.write_str("no replica can serve")?;
                all.iter().try_for_each(|AbsentReplica { name, reason }| write!(f, "\n{name}: {reason}"))
            }
            Self::NoSchema => f.write_str("no replica has reported its schema"),
            Self::TaskEnded(task) => write!(f, "{task} has ended, so this node cannot go on"),
            Self::NoMembers => f.write_str(
                "the list of members is missing on etcd, although the cluster was founded; find out what has deleted the key `member`",
            ),
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

impl From<LogPlaceError> for NodeError {
    fn from(error: LogPlaceError) -> Self {
        Self::LogPlace(error)
    }
}

impl From<ProtocolError> for NodeError {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
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

impl From<NodesError> for NodeError {
    fn from(error: NodesError) -> Self {
        Self::Nodes(Box::new(error))
    }
}

impl From<OpenError> for NodeError {
    fn from(error: OpenError) -> Self {
        Self::Open(Box::new(error))
    }
}
