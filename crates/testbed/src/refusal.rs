//! Why a statement has no result, by what the client may do next.

use std::fmt;

use tokio_postgres::error::SqlState;

/// Why there is no result.
#[derive(Debug)]
pub enum Refusal {
    /// The transaction is rolled back, and to be tried again.
    Again(String),
    /// The client was told that it failed.
    Told(String),
    /// The client was told nothing that it can rely on, and has no connection any more.
    Lost(String),
    /// No reply at all.
    Stuck(String),
}

impl Refusal {
    /// Classifies an error of a connection.
    pub fn of(error: &tokio_postgres::Error) -> Self {
        let Some(told) = error.as_db_error() else { return Self::Lost(error.to_string()) };
        let text = format!("{} {}", told.code().code(), told.message());
        let code = told.code();
        if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED {
            return Self::Again(text);
        }
        let is_over = *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
            || ["08", "57P"].iter().any(|class| code.code().starts_with(class));
        if is_over { Self::Lost(text) } else { Self::Told(text) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Again(text) => write!(f, "to be tried again: {text}"),
            Self::Told(text) => write!(f, "{text}"),
            Self::Lost(text) => write!(f, "connection lost: {text}"),
            Self::Stuck(text) => write!(f, "stuck: {text}"),
        }
    }
}
