//! Settings that a client may not change through Onecopy, and what it is told.

use wire::sqlstate;

use crate::client::own_settings::is_of_session;
use crate::error::Refusal;

/// Those of PostgreSQL's, and why.
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

/// Refuses what may not be said at start-up.
pub(crate) fn refuse_forbidden(name: &str) -> Result<(), Refusal> {
    let why = match FORBIDDEN.iter().find(|(forbidden, _)| *forbidden == name) {
        Some((_, why)) => why,
        None if is_of_session(name) => "Use SET LOCAL in each transaction.",
        None if name.starts_with("onecopy.") => "It is Onecopy's own.",
        None => return Ok(()),
    };
    Err(Refusal::unsupported(format!("changing {name}"), why))
}

/// A value that a setting cannot have.
pub(crate) fn invalid(message: String) -> Refusal {
    Refusal::plain(sqlstate::INVALID_PARAMETER_VALUE, message)
}
