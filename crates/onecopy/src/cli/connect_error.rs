//! The errors of reaching a node.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::security::tls::TlsFileError;

/// A command cannot reach the node.
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

/// The cause.
#[derive(Debug)]
pub(crate) enum Unreachable {
    /// A failure of the network or of TLS.
    Io(io::Error),
    /// The node has refused the connection. This is its message.
    Refused { message: String },
    /// The node asks for a password, and none is set.
    NoPassword,
    /// The log-in has failed.
    LogIn(tokio_postgres::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port { text } => write!(f, "PGPORT: \"{text}\" is not a port"),
            Self::SocketFolder { host } => {
                write!(
                    f,
                    "PGHOST: \"{host}\" is a folder of sockets; name a host, because a node listens on addresses only"
                )
            }
            Self::TlsMode { text } => write!(f, "PGSSLMODE: \"{text}\" is not a mode of TLS"),
            Self::Root(error) => write!(f, "PGSSLROOTCERT: {error}"),
            Self::ExposedPasswords { path } => {
                write!(f, "{} is readable by other accounts: chmod 600 it", path.display())
            }
            Self::UnreadablePasswords { path, source } => {
                write!(f, "cannot read {}: {source}", path.display())
            }
            Self::Unreachable { host, port, cause } => {
                write!(f, "cannot reach a node at {host}:{port}: {cause}")
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
            // The library offers no better sign.
            None if format!("{error:?}").contains("password missing") => Self::NoPassword,
            None => Self::LogIn(error),
        }
    }
}
