//! Reasons why a maintenance command did not run at a replica other than the anchor.

use std::fmt;

use crate::backend::BackendError;

/// A replica did not run VACUUM, ANALYZE or the like. The anchor ran it, so the client gets a warning.
#[derive(Debug)]
pub(super) enum MaintenanceError {
    /// The replica is not up.
    NotUp,
    /// No connection to the replica was available.
    NoConnection,
    /// The replica's server rejects the command, or was lost.
    Server(BackendError),
}

impl fmt::Display for MaintenanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUp => f.write_str("it is not up"),
            Self::NoConnection => f.write_str("no connection"),
            Self::Server(error) => error.fmt(f),
        }
    }
}
