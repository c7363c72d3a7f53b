//! What the coordinator and its users ask of the tasks that own servers: the agent of each replica, the supervisor of each
//! server that Onecopy runs, and the registry that keeps the list of members. Only the messages are here, so that both ends
//! may know them.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use cluster::ids::{Incarnation, ReplicaId, Version};
use tokio::sync::oneshot;

use super::replica_address::ReplicaAddress;
use super::resync_progress::Transfer;
use crate::backend::Address;
use crate::config::Replica;

/// A task that owns servers did not do what it was asked. The person who asked has to read why.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// No server was named for this replica.
    NotInvited,
    /// The replica is not a member.
    NotAMember,
    /// The supervisor of the server has ended.
    NoSupervisor,
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
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for RequestError {}

/// Commands that can wait at an agent. The core has at most one of each kind outstanding there.
pub(crate) const AGENT_QUEUE: usize = 16;

/// What the core asks of a replica's agent.
#[derive(Debug)]
pub(crate) enum AgentOrder {
    /// Apply these versions in one transaction.
    Apply { incarnation: Incarnation, from: Version, upto: Version },
    /// End everything there and begin anew.
    Reset,
    /// It is the anchor: take back the ranges of sequences that it was lent.
    TakeBack,
    /// Read the catalogue.
    LoadCatalogue { version: Version },
    /// The replica is no longer a member.
    Leave,
}

/// What a server's supervisor is told to do.
#[derive(Debug)]
pub(crate) enum SupervisorOrder {
    /// Replace the data of the server by that of another one.
    Replace(Replacement),
    /// Stop the server, and look after it no longer.
    Leave {
        /// Hears when the server has stopped.
        done: oneshot::Sender<()>,
    },
}

/// Replace the data of the server by that of another one.
#[derive(Debug)]
pub(crate) struct Replacement {
    /// Whom to copy.
    pub(crate) donor: Address,
    /// The role that may copy it.
    pub(crate) superuser: String,
    /// How far it is.
    pub(crate) transfer: Arc<Transfer>,
    /// Hears when the server runs on the copy, or why it does not.
    pub(crate) done: oneshot::Sender<Result<(), RequestError>>,
}

/// What the registry of servers, which keeps the list of members, is asked to do.
#[derive(Debug)]
pub(crate) enum MemberRequest {
    /// Name a server that could become a member. Nothing is written down yet.
    Invite {
        /// Which.
        invitee: Invitee,
        /// Hears where it is.
        invited: oneshot::Sender<Result<Invited, InvitationError>>,
    },
    /// Give it the data of the donor, unless it came with its own, let it run, and write down that it is a member. What of
    /// that fails leaves nothing.
    Furnish {
        /// Which.
        replica: ReplicaId,
        /// Whom to copy.
        donor: ReplicaId,
        /// How far it is.
        transfer: Arc<Transfer>,
        /// Hears the end.
        done: oneshot::Sender<Result<(), RequestError>>,
    },
    /// Write down that it is no longer a member.
    Strike {
        /// Which.
        replica: ReplicaId,
        /// Hears the end.
        done: oneshot::Sender<Result<(), RequestError>>,
    },
    /// One that is no member is stopped, and its data removed, if it is ours.
    Dismiss {
        /// Which.
        replica: ReplicaId,
        /// Hears the end.
        done: oneshot::Sender<Result<(), RequestError>>,
    },
}

/// A server that is to become a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Invitee {
    /// One that is to be made.
    Made,
    /// The one at this address.
    At(String),
    /// That of a former member, whatever it has now.
    Former(ReplicaId),
}

/// A server that can become a member.
#[derive(Debug)]
pub(crate) struct Invited {
    /// Where it is.
    pub(crate) place: ReplicaAddress,
    /// How it gets its data.
    pub(crate) data: Data,
}

/// How a new member gets its data.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// The registry copies the files of another replica's server.
    Copied,
    /// It came with them.
    Brought,
    /// We fill it.
    Filled {
        /// Which server.
        server: Replica,
        /// What it has may go.
        is_former: bool,
    },
}

/// There is no server that could become a member.
#[derive(Debug)]
pub(crate) enum InvitationError {
    /// This node does not do what was asked for.
    Unsupported {
        /// What.
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
    /// The server cannot become a member, or none can be made: an error of the folder that looked.
    Rejected(Box<dyn Error + Send + Sync>),
}

impl InvitationError {
    /// The server cannot become a member.
    pub(crate) fn rejected(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Rejected(Box::new(error))
    }
}
