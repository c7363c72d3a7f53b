//! Why the members of the cluster did not change.

use std::error::Error;
use std::fmt;

use super::check::Difference;
use super::initial_copy::InitialCopyError;
use super::resync::Standstill;
use crate::coordinator::requests::{InvitationError, RequestError};
use crate::error::Refusal;

/// A request to change the members failed.
#[derive(Debug)]
pub(crate) enum MemberError {
    /// This node does not support the request.
    Unsupported {
        /// The feature, as a clause.
        what: &'static str,
        /// The advice to the operator.
        instead: &'static str,
    },
    /// The replica is being rebuilt, or is joining.
    Underway,
    /// No other replica is up that could take its place, or be the donor.
    NoOther,
    /// No other replica holds this table, so the replica cannot leave.
    LastHolder { table: String },
    /// The members are as they were.
    Failed(MemberFailure),
    /// The replica is a member now, and does not catch up with the others.
    Stuck(Standstill),
}

/// Why the members are as they were.
#[derive(Debug)]
pub(crate) enum MemberFailure {
    /// The server cannot become a member, says an error of the registry.
    Rejected(Box<dyn Error + Send + Sync>),
    /// The registry did not carry out the request.
    Request(RequestError),
    /// The node is stopping, so the registry has ended.
    NodeStops,
    /// The server was not filled.
    InitialCopy(InitialCopyError),
    /// The server that is to be filled again belongs to another cluster.
    OtherCluster { address: String, cluster: String },
    /// The server that is to be filled again has data that is not the cluster's.
    ForeignData { address: String, data: String },
    /// The new replica has other data than the others.
    Different(Difference),
    /// The new replica cannot be compared with the others.
    NotCompared(Refusal),
}

impl fmt::Display for MemberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported { what, .. } => f.write_str(what),
            Self::Underway => f.write_str("it is being given data just now"),
            Self::NoOther => f.write_str("no other replica is up that takes statements"),
            Self::LastHolder { table } => write!(f, "no other replica holds {table}"),
            Self::Failed(failure) => failure.fmt(f),
            Self::Stuck(standstill) => standstill.fmt(f),
        }
    }
}

impl Error for MemberError {}

impl fmt::Display for MemberFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MEND: &str = "correct the address, or empty that server if its data is not needed";
        match self {
            Self::Rejected(error) => error.fmt(f),
            Self::Request(error) => error.fmt(f),
            Self::NodeStops => f.write_str("the node is stopping"),
            Self::InitialCopy(error) => error.fmt(f),
            Self::OtherCluster { address, cluster } => {
                write!(f, "the server at {address} belongs to the cluster {cluster}; {MEND}")
            }
            Self::ForeignData { address, data } => write!(
                f,
                "the server at {address} has nothing of the cluster, but something of its own: {data}; {MEND}"
            ),
            Self::Different(difference) => difference.fmt(f),
            Self::NotCompared(refusal) => {
                write!(f, "it cannot be compared with the other replicas: {}", refusal.message)
            }
        }
    }
}

impl From<MemberFailure> for MemberError {
    fn from(failure: MemberFailure) -> Self {
        Self::Failed(failure)
    }
}

impl From<RequestError> for MemberError {
    fn from(error: RequestError) -> Self {
        Self::Failed(MemberFailure::Request(error))
    }
}

impl From<InitialCopyError> for MemberError {
    fn from(error: InitialCopyError) -> Self {
        Self::Failed(MemberFailure::InitialCopy(error))
    }
}

impl From<InvitationError> for MemberError {
    fn from(error: InvitationError) -> Self {
        match error {
            InvitationError::Unsupported { what, instead } => Self::Unsupported { what, instead },
            InvitationError::Rejected(error) => Self::Failed(MemberFailure::Rejected(error)),
        }
    }
}
