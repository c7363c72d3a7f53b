//! Settings that a client may not change through Onecopy, and the errors that say so.

use std::fmt;

use wire::sqlstate;

use crate::client::own_settings::is_of_session;
use crate::error::{Fault, Refusal};

/// Settings of PostgreSQL, each with the reason.
pub(crate) const FORBIDDEN: [(&str, &str); 5] = [
    ("session_replication_role", "It would switch capture off."),
    ("backtrace_functions", "By it servers know Onecopy's own connections."),
    ("lc_messages", "Captured rows are told from other messages by the server's English words."),
    ("default_transaction_deferrable", "Say DEFERRABLE in BEGIN."),
    (
        "default_toast_compression",
        "Give the column a method: ALTER TABLE .. ALTER COLUMN .. SET COMPRESSION.",
    ),
];

/// Rejects a setting that a client may not give at start-up.
pub(crate) fn refuse_forbidden(name: &str) -> Result<(), Refusal> {
    let why = match FORBIDDEN.iter().find(|(forbidden, _)| *forbidden == name) {
        Some((_, why)) => why,
        None if is_of_session(name) => "Use SET LOCAL in each transaction.",
        None if name.starts_with("onecopy.") => "It is Onecopy's own.",
        None => return Ok(()),
    };
    Err(Refusal::unsupported(format!("changing {name}"), why))
}

/// A client gave a setting an invalid value.
#[derive(Debug)]
pub(crate) enum ValueError {
    /// The setting does not accept this text.
    Invalid { name: String, value: String },
    /// The text is neither true nor false.
    NotBoolean { name: String },
    /// The value is an expression.
    NotConstant { name: String },
    /// The setting belongs to one transaction.
    OfTransaction { name: String },
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { name, value } => write!(f, "invalid value for parameter {name:?}: {value:?}"),
            Self::NotBoolean { name } => write!(f, "parameter {name:?} requires a Boolean value"),
            Self::NotConstant { name } => write!(f, "the value of {name} must be a constant"),
            Self::OfTransaction { name } => write!(f, "{name} can only be set by SET TRANSACTION"),
        }
    }
}

impl From<ValueError> for Refusal {
    fn from(error: ValueError) -> Self {
        Self::plain(sqlstate::INVALID_PARAMETER_VALUE, error.to_string())
    }
}

impl From<ValueError> for Fault {
    fn from(error: ValueError) -> Self {
        Self::Refused(error.into())
    }
}
