//! Why a maintenance command was not run at another replica than the anchor.

use std::fmt;

use crate::backend::BackendError;

/// A replica did not run VACUUM, ANALYZE or the like. The anchor has, so the client gets a warning.
#[derive(Debug)]
pub(super) enum MaintenanceError {
    /// The replica is not up.
    NotUp,
    /// No connection to it could be had.
    NoConnection,
    /// Its server refuses, or was lost.
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
