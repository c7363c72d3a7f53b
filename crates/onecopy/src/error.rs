//! Errors of a session, grouped by the reaction that they need. Only this file turns them into SQLSTATEs.

use cluster::ids::ReplicaId;
use commitlog::{LogRefusal, RegisterError, StoreError};
use wire::{encode, sqlstate};

use crate::backend::BackendError;

/// An error that Onecopy itself gives to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) sqlstate: &'static str,
    /// The error message.
    pub(crate) message: String,
    /// The object or statement that the error is about.
    pub(crate) detail: Option<String>,
    /// The remedy.
    pub(crate) hint: Option<String>,
}

impl Refusal {
    pub(crate) fn new(sqlstate: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None, hint: Some(hint.into()) }
    }

    /// A refusal whose message needs no hint.
    pub(crate) fn plain(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None, hint: None }
    }

    /// The transaction was rolled back without a fault of its own. The client may run it again.
    pub(crate) fn retry(message: impl Into<String>) -> Self {
        Self::new(sqlstate::SERIALIZATION_FAILURE, message, "Run the transaction again.")
    }

    /// Adds the DETAIL field.
    pub(crate) fn about(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Onecopy does not support a feature.
    pub(crate) fn unsupported(what: impl std::fmt::Display, hint: impl Into<String>) -> Self {
        Self::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} is not supported through Onecopy"), hint)
    }

    /// The log takes no new commits at present.
    pub(crate) fn of_log(reason: LogRefusal) -> Self {
        match reason {
            LogRefusal::DiskFull => Self::new(
                sqlstate::DISK_FULL,
                "no space is left on the disk of Onecopy's log, so nothing can be committed",
                "Free some space there. Reads go on, and so do writes as soon as there is room.",
            ),
            LogRefusal::NoMajority => Self::new(
                sqlstate::CANNOT_CONNECT_NOW,
                "etcd does not answer, so nothing can be committed",
                "Start a majority of its members, or mend the network to them. Statements go on as soon as it answers.",
            ),
            LogRefusal::QuotaReached => Self::new(
                sqlstate::DISK_FULL,
                "etcd is about to reach its quota, so nothing can be committed",
                "Bring back nodes that are down, compact and defragment etcd, or raise its quota. Reads go on.",
            ),
        }
    }

    /// Appends the refusal as an ErrorResponse.
    pub(crate) fn write(&self, out: &mut Vec<u8>, severity: &str) {
        let more = (self.detail.as_deref(), self.hint.as_deref());
        encode::error_in_detail(out, severity, self.sqlstate, &self.message, more);
    }
}

/// The SQLSTATE of a command that was to change the register.
pub(crate) fn register_sqlstate(error: &RegisterError) -> &'static str {
    match error {
        RegisterError::Store(StoreError::NoSpace) => sqlstate::DISK_FULL,
        RegisterError::Store(StoreError::Unreachable { .. })
        | RegisterError::InDoubt { .. }
        | RegisterError::Fenced { .. } => sqlstate::CANNOT_CONNECT_NOW,
        RegisterError::Io { .. }
        | RegisterError::TooLarge { .. }
        | RegisterError::Store(_)
        | RegisterError::Outdated { .. }
        | RegisterError::Malformed { .. } => sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
    }
}

/// The reason why work for a client failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The client is gone, or violates the protocol. The session ends.
    Client,
    /// The client gets this error. The session goes on.
    Refused(Refusal),
    /// The client gets this ErrorResponse body of a server. The session goes on.
    Server(Vec<u8>),
    /// The connection to a replica was lost during the work. The work can be retried if the client has not seen any of
    /// it.
    Lost(ReplicaId),
    /// The statement blocked a refresh of its replica for too long, so the refresh evicted it. The connection can be
    /// used again.
    Evicted,
    /// The core has aborted the transaction in favour of another one. The work can be retried if the client has not
    /// seen any of it.
    Rival(Refusal),
    /// The core has recalled the transaction, and it is rolled back at its home. It runs again in its place in the order; its client has
    /// seen nothing of it.
    Recalled,
    /// The work was not sent yet: its place was lost, or a newer catalogue exists. It has to be placed again.
    Unplaced(ReplicaId),
    /// The client gets this error. The session ends.
    Fatal(Refusal),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Fault {
    /// Turns an error of the exchange with a replica into a fault.
    pub(crate) fn at(replica: ReplicaId) -> impl Fn(BackendError) -> Self {
        move |error| match error {
            BackendError::Server(body) => Self::Server(body),
            BackendError::LogIn(what) => Self::Fatal(Refusal::plain(
                sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
                format!("replica {} does not let the role in: {what}", replica.0 + 1),
            )),
            BackendError::Io(_) | BackendError::Protocol(_) => Self::Lost(replica),
        }
    }

    /// The error for the client when nothing was retried. `None` when the client is gone or the server has sent its own
    /// error.
    pub(crate) fn into_refusal(self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal) | Self::Rival(refusal) | Self::Fatal(refusal) => Some(refusal),
            Self::Lost(replica) | Self::Unplaced(replica) => Some(Refusal::retry(format!(
                "the connection to replica {} was lost while it ran the statement",
                replica.0 + 1
            ))),
            Self::Evicted => Some(Refusal::new(
                sqlstate::SERIALIZATION_FAILURE,
                "the statement was cancelled because it held up a schema change at its replica for too long",
                "Run the transaction again. `onecopy up --reader-patience` sets how long a read may take then.",
            )),
            // The caller that opened the transaction runs it again, so no client gets to see this.
            Self::Recalled => Some(Refusal::retry("an older transaction goes first")),
            Self::Client | Self::Server(_) => None,
        }
    }
}

/// An invariant of the session is broken. The client gets an internal error, not a wrong answer.
pub(crate) fn broken(what: &str) -> Fault {
    Fault::Fatal(Refusal::plain(sqlstate::INTERNAL_ERROR, format!("internal error of Onecopy: {what}")))
}
