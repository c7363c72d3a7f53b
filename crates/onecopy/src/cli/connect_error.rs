//! Why a command cannot reach the node.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::security::tls::TlsFileError;

/// A command cannot reach the node, or does not know how.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// `PGPORT` is not a port.
    Port { text: String },
    /// `PGHOST` names a folder of sockets.
    SocketFolder { host: String },
    /// `PGSSLMODE` names a mode that does not exist.
    TlsMode { text: String },
    /// The file of `PGSSLROOTCERT` cannot be used.
    Root(TlsFileError),
    /// Other accounts can read the password file.
    ExposedPasswords { path: PathBuf },
    /// The password file cannot be read.
    UnreadablePasswords { path: PathBuf, source: io::Error },
    /// The node cannot be reached.
    Unreachable { host: String, port: u16, cause: Unreachable },
}

/// What keeps a command from the node.
#[derive(Debug)]
pub(crate) enum Unreachable {
    /// The network, or the encryption.
    Io(io::Error),
    /// The node refuses, in its own words.
    Refused { message: String },
    /// The node asks for a password, and none is known.
    NoPassword,
    /// The log-in goes wrong.
    LogIn(tokio_postgres::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port { text } => write!(f, "PGPORT: \"{text}\" is no port"),
            Self::SocketFolder { host } => {
                write!(f, "PGHOST: \"{host}\" is a folder of sockets, and a node listens on addresses only")
            }
            Self::TlsMode { text } => write!(f, "PGSSLMODE: \"{text}\" is not known"),
            Self::Root(error) => write!(f, "PGSSLROOTCERT: {error}"),
            Self::ExposedPasswords { path } => {
                write!(f, "{} can be read by others than its owner: chmod 600", path.display())
            }
            Self::UnreadablePasswords { path, source } => {
                write!(f, "{} cannot be read: {source}", path.display())
            }
            Self::Unreachable { host, port, cause } => {
                write!(f, "no node can be reached at {host}:{port}: {cause}")
            }
        }
    }
}

impl std::error::Error for ConnectError {}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Refused { message } => f.write_str(message),
            Self::NoPassword => f.write_str("it asks for a password: set PGPASSWORD, or PGPASSFILE"),
            Self::LogIn(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for Unreachable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<tokio_postgres::Error> for Unreachable {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(refused) => Self::Refused { message: refused.message().to_owned() },
            // The library has no better sign of it.
            None if format!("{error:?}").contains("password missing") => Self::NoPassword,
            None => Self::LogIn(error),
        }
    }
}
