//! What can go wrong in a session, by who has to do what about it; the one place where it becomes a SQLSTATE.

use cluster::ids::ReplicaId;
use wire::{encode, sqlstate};

use crate::backend::BackendError;

/// An error that Onecopy itself gives to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Its code.
    pub(crate) sqlstate: &'static str,
    /// What is wrong.
    pub(crate) message: String,
    /// What exactly it is about.
    pub(crate) detail: Option<String>,
    /// What to do instead.
    pub(crate) hint: Option<String>,
}

impl Refusal {
    /// A refusal with a hint.
    pub(crate) fn new(sqlstate: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None, hint: Some(hint.into()) }
    }

    /// A refusal that explains itself.
    pub(crate) fn plain(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None, hint: None }
    }

    /// The transaction was rolled back through no fault of its own; the client may run it again.
    pub(crate) fn retry(message: impl Into<String>) -> Self {
        Self::new(sqlstate::SERIALIZATION_FAILURE, message, "Run the transaction again.")
    }

    /// The same, with what exactly it is about.
    pub(crate) fn about(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Something is not offered.
    pub(crate) fn unsupported(what: impl std::fmt::Display, hint: impl Into<String>) -> Self {
        Self::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} is not supported through Onecopy"), hint)
    }

    /// Appends it as an ErrorResponse.
    pub(crate) fn write(&self, out: &mut Vec<u8>, severity: &str) {
        let more = (self.detail.as_deref(), self.hint.as_deref());
        encode::error_in_detail(out, severity, self.sqlstate, &self.message, more);
    }
}

/// Why something did not work.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The client is gone, or does not follow the protocol; the session ends.
    Client,
    /// The client gets this error; the session goes on.
    Refused(Refusal),
    /// The client gets this ErrorResponse body of a server; the session goes on.
    Server(Vec<u8>),
    /// The connection to a replica is lost while it ran something; what was not shown to the client can be run again.
    Lost(ReplicaId),
    /// The replica was refreshed over the statement, which held that up for too long; the connection may be used again.
    Evicted,
    /// The core has ended the transaction for the sake of another one; what was not shown to the client can be run again.
    Rival(Refusal),
    /// Nothing was sent yet: the place was lost, or the catalogue is newer by now. To be placed again.
    Unplaced(ReplicaId),
    /// The session ends with this error.
    Fatal(Refusal),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Fault {
    /// What a failed exchange with a replica means.
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

    /// The error for the client when nothing was retried; `None` when there is nobody to tell.
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
            Self::Client | Self::Server(_) => None,
        }
    }
}

/// An invariant of the session does not hold; the client gets an internal error, not a wrong answer.
pub(crate) fn broken(what: &str) -> Fault {
    Fault::Fatal(Refusal::plain(sqlstate::INTERNAL_ERROR, format!("internal error of Onecopy: {what}")))
}
