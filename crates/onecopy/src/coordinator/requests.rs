//! Requests to the tasks that own servers: the agent of each replica, the supervisor of each server that Onecopy runs,
//! and the registry that keeps the list of members. This file has only the messages, so that both ends can use them.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use cluster::ids::{Incarnation, ReplicaId, Version};
use commitlog::RegisterError;
use pgserver::Account;
use tokio::sync::oneshot;

use super::replica_address::ReplicaAddress;
use super::resync_progress::Transfer;
use crate::backend::Address;
use crate::config::Replica;

/// A task that owns servers failed to carry out a request. The client that sent the command reads the reason.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// No server was named for this replica.
    NotInvited,
    /// The replica is not a member.
    NotAMember,
    /// The supervisor of the server has ended.
    NoSupervisor,
    /// The list of members cannot be written.
    Register(RegisterError),
    /// The work itself failed, with an error of the folder that does it.
    Failed(Box<dyn Error + Send + Sync>),
}

impl RequestError {
    /// The work failed.
    pub(crate) fn failed(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInvited => f.write_str("it was not invited"),
            Self::NotAMember => f.write_str("it is no member"),
            Self::NoSupervisor => f.write_str("its supervisor has gone"),
            Self::Register(error) => write!(f, "the list of members cannot be written: {error}"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for RequestError {}

/// Commands that can wait at an agent. The core has at most one of each kind outstanding there.
pub(crate) const AGENT_QUEUE: usize = 16;

/// An order from the core to a replica's agent.
#[derive(Debug)]
pub(crate) enum AgentOrder {
    /// Apply these versions in one transaction.
    Apply { incarnation: Incarnation, from: Version, upto: Version },
    /// End all work that runs on the server, and begin anew.
    Reset,
    /// The replica is the anchor: revoke its sequence leases.
    TakeBack,
    /// Read the catalogue.
    LoadCatalogue { version: Version },
    /// End the connections to the server until [`AgentOrder::Wake`].
    Park {
        /// Resolves with the version that is durable there, or never if the replica is lost meanwhile.
        done: oneshot::Sender<Version>,
    },
    /// Connect to the server of a parked replica again.
    Wake,
    /// The replica is no longer a member.
    Leave,
}

/// An order to a server's supervisor.
#[derive(Debug)]
pub(crate) enum SupervisorOrder {
    /// Replace the data of the server by a copy.
    Replace(Replacement),
    /// Say which account owns the files of the server.
    TellAccount {
        /// Resolves with the account.
        account: oneshot::Sender<Account>,
    },
    /// Stop the server, and keep it stopped until [`SupervisorOrder::Wake`] or a replacement.
    Park {
        /// Resolves when the server has stopped.
        done: oneshot::Sender<()>,
    },
    /// Start the server of a parked replica, and keep it running.
    Wake {
        /// Resolves when the server runs, or with the reason why it did not start. It is tried again then.
        done: oneshot::Sender<Result<(), RequestError>>,
    },
    /// Stop the server, and supervise it no longer.
    Leave {
        /// Resolves when the server has stopped.
        done: oneshot::Sender<()>,
    },
}

/// Where a server's new data comes from.
#[derive(Debug)]
pub(crate) enum CopySource {
    /// A server that runs, and the role that may copy it.
    Server { donor: Address, superuser: String },
    /// A folder that no server uses, and its size.
    Folder { folder: PathBuf, bytes: u64 },
}

/// A copy of other data for a server.
#[derive(Debug)]
pub(crate) struct Replacement {
    pub(crate) source: CopySource,
    /// The progress of the copy.
    pub(crate) transfer: Arc<Transfer>,
    /// Resolves when the server runs on the copy, or with the reason why it does not.
    pub(crate) done: oneshot::Sender<Result<(), RequestError>>,
}

/// A request to the registry of servers, which keeps the list of members.
#[derive(Debug)]
pub(crate) enum MemberRequest {
    /// Find a server that could become a member. The registry writes nothing down yet.
    Invite {
        invitee: Invitee,
        /// Resolves with the server's place.
        invited: oneshot::Sender<Result<Invited, InvitationError>>,
    },
    /// Give the replica the data of the donor, unless its server brought its own. Then let it run, and write down that
    /// it is a member. A failure at any step leaves nothing behind.
    Furnish {
        replica: ReplicaId,
        /// The replica to copy.
        donor: ReplicaId,
        /// The progress of the copy.
        transfer: Arc<Transfer>,
        /// Resolves at the end.
        done: oneshot::Sender<Result<(), RequestError>>,
    },
    /// Write down that the replica is no longer a member.
    Strike {
        replica: ReplicaId,
        /// Resolves at the end.
        done: oneshot::Sender<Result<(), RequestError>>,
    },
    /// Stop the server of a replica that is no member. Remove its data, if Onecopy owns it.
    Dismiss {
        replica: ReplicaId,
        /// Resolves at the end.
        done: oneshot::Sender<Result<(), RequestError>>,
    },
}

/// A server that is to become a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Invitee {
    /// Onecopy makes a new server.
    Made,
    /// The server at this address.
    At(String),
    /// The server of a former member, whatever data it has now.
    Former(ReplicaId),
}

/// A server that can become a member.
#[derive(Debug)]
pub(crate) struct Invited {
    /// Its name and addresses.
    pub(crate) place: ReplicaAddress,
    /// How it gets its data.
    pub(crate) data: Data,
}

/// How a new member gets its data.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// The registry copies the files of another replica's server.
    Copied,
    /// The server brought its data.
    Brought,
    /// Onecopy fills the server.
    Filled {
        /// The server to fill.
        server: Replica,
        /// The data on the server may be removed.
        is_former: bool,
    },
}

/// There is no server that could become a member.
#[derive(Debug)]
pub(crate) enum InvitationError {
    /// This kind of node does not support the request.
    Unsupported {
        /// The unsupported request.
        what: &'static str,
        /// The alternative.
        instead: &'static str,
    },
    /// The server cannot become a member, or Onecopy cannot make one. The folder that tried it gives the error.
    Rejected(Box<dyn Error + Send + Sync>),
}

impl InvitationError {
    pub(crate) fn rejected(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Rejected(Box::new(error))
    }
}
