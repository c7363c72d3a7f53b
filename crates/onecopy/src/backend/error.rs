//! Errors on a server connection, by the party at fault.

use wire::backend::Fields;

/// An error on a server connection.
#[derive(Debug)]
pub(crate) enum BackendError {
    /// The connection is lost, or could not be made.
    Io(std::io::Error),
    /// The server does not follow the protocol.
    Protocol(&'static str),
    /// The server asks for a password that we do not have, or does not prove its own.
    LogIn(&'static str),
    /// The server said no: the body of its ErrorResponse.
    Server(Vec<u8>),
}

impl BackendError {
    /// The SQLSTATE when the server gave one.
    pub(crate) fn sqlstate(&self) -> Option<&[u8]> {
        match self {
            Self::Server(body) => Some(Fields::new(body).sqlstate()),
            Self::Io(_) | Self::Protocol(_) | Self::LogIn(_) => None,
        }
    }

    /// Whether the connection failed, or the server is starting or stopping: it may work later, or the server is lost.
    pub(crate) fn is_of_the_connection(&self) -> bool {
        matches!(self, Self::Io(_)) || self.sqlstate().is_some_and(|code| code.starts_with(b"57P"))
    }
}

impl std::fmt::Display for BackendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "server connection: {error}"),
            Self::Protocol(what) => write!(f, "server connection: {what}"),
            Self::LogIn(what) => f.write_str(what),
            Self::Server(body) => {
                let fields = Fields::new(body);
                let code = String::from_utf8_lossy(fields.sqlstate()).into_owned();
                write!(f, "{} ({code})", fields.message())
            }
        }
    }
}

impl std::error::Error for BackendError {}

impl From<std::io::Error> for BackendError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<wire::FrameError> for BackendError {
    fn from(_: wire::FrameError) -> Self {
        Self::Protocol("a message with an impossible length")
    }
}

impl From<wire::Malformed> for BackendError {
    fn from(_: wire::Malformed) -> Self {
        Self::Protocol("a malformed message")
    }
}
