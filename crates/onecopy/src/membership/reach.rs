//! Connecting to a server that is, or may become, a member.

use std::fmt;
use std::time::Duration;

use wire::sqlstate;

use crate::backend::{BackendError, OwnConnection, Served, ServerInfo, Unservable};
use crate::config::Replica;

/// How long a server may take to let us in.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// A server that let us in.
pub(crate) struct ReachedServer {
    /// The connection to the server.
    pub(crate) connection: OwnConnection,
    /// The cluster that it belongs to.
    pub(crate) cluster: Option<String>,
}

/// A server cannot be used. The text names it by its name and address.
#[derive(Debug)]
pub(crate) enum ReachError {
    /// It accepts the connection and does not answer.
    Silent { server: String },
    /// It cannot be connected to, or the connection was lost.
    Unreachable { server: String, source: BackendError },
    /// Onecopy cannot serve it as it is.
    Unservable { server: String, reason: Unservable },
}

impl ReachError {
    /// Whether the same server may be usable later without a change by an operator.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Silent { .. } => true,
            Self::Unreachable { source, .. } => source.is_of_the_connection(),
            Self::Unservable { .. } => false,
        }
    }

    /// Whether the server answers but lacks the database.
    pub(super) fn has_no_database(&self) -> bool {
        matches!(self, Self::Unreachable { source, .. }
            if source.sqlstate() == Some(sqlstate::INVALID_CATALOG_NAME.as_bytes()))
    }
}

impl fmt::Display for ReachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent { server } => write!(f, "{server} does not answer"),
            Self::Unreachable { server, source } => write!(f, "{server} cannot be reached: {source}"),
            Self::Unservable { server, reason } => write!(f, "{server} {reason}"),
        }
    }
}

impl std::error::Error for ReachError {}

/// Connects to a server, and checks that Onecopy can serve it.
pub(crate) async fn reach(served: &Served, replica: &Replica) -> Result<ReachedServer, ReachError> {
    let server = || format!("{} ({})", replica.name, replica.address);
    let unreachable = |source: BackendError| ReachError::Unreachable { server: server(), source };
    let own = [("application_name", "onecopy start"), ("client_encoding", "UTF8")];
    let opening = OwnConnection::open(&replica.address, served, &own);
    let Ok(opened) = tokio::time::timeout(CONNECT_DEADLINE, opening).await else {
        return Err(ReachError::Silent { server: server() });
    };
    let mut connection = opened.map_err(unreachable)?;
    let info = ServerInfo::ask(&mut connection).await.map_err(unreachable)?;
    match info.unservable {
        Some(reason) => Err(ReachError::Unservable { server: server(), reason }),
        None => Ok(ReachedServer { connection, cluster: info.cluster }),
    }
}
