//! One prepared statement of a session, and its name on servers.
//!
//! Where sessions share connections, a statement has a name of Onecopy's own there: equal statements have equal names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sql::{Asks, Script, StandIns};
use wire::frontend::Target;
use wire::{encode, sqlstate};

use crate::error::Refusal;

/// The number of the next Parse of any session; 0 is for a doubtful one.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

/// A statement that the client prepared.
#[derive(Debug)]
pub(crate) struct PreparedStatement {
    /// Its text.
    pub(crate) sql: Vec<u8>,
    /// What servers get instead, if functions of Onecopy's own stand in for theirs.
    pub(super) ours: Option<StandIns>,
    /// Declared parameter types as sent.
    pub(crate) types: Vec<u8>,
    /// What it is; `None` when our parser does not accept it.
    pub(crate) script: Option<Arc<Script>>,
    /// Which Parse it was; where sessions share connections, equal ones have one number.
    pub(crate) generation: u64,
    /// Its name for the client.
    pub(crate) name: Vec<u8>,
    /// Its name on servers.
    pub(crate) server_name: Vec<u8>,
}

impl PreparedStatement {
    /// What it counts among the session's statements; one without a name is replaced by the next.
    pub(super) fn bytes(&self) -> usize {
        if self.name.is_empty() { 0 } else { self.sql.len() + self.types.len() }
    }

    /// Whether its name on servers is one of ours.
    pub(crate) fn is_shared(&self) -> bool {
        self.server_name != self.name
    }

    /// The text that servers get.
    pub(crate) fn server_sql(&self) -> &[u8] {
        self.ours.as_ref().map_or(&self.sql, |ours| ours.text.as_bytes())
    }

    /// What these have to be told.
    pub(crate) fn asks(&self) -> Asks {
        self.ours.as_ref().map(|ours| ours.asks).unwrap_or_default()
    }

    fn instead(is_other: bool, write: impl FnOnce(&mut Vec<u8>)) -> Option<Vec<u8>> {
        let mut message = Vec::new();
        is_other.then(|| write(&mut message)).map(|()| message)
    }

    /// The Parse that servers get instead of the client's, if another one.
    pub(crate) fn as_parse(&self) -> Option<Vec<u8>> {
        Self::instead(self.is_shared() || self.ours.is_some(), |out| {
            encode::parse_raw(out, &self.server_name, self.server_sql(), &self.types);
        })
    }

    /// The same of a Bind.
    pub(crate) fn as_bind(&self, portal: &[u8], values: &[u8]) -> Option<Vec<u8>> {
        Self::instead(self.is_shared(), |out| encode::bind_raw(out, portal, &self.server_name, values))
    }

    /// The same of a Describe.
    pub(crate) fn as_describe(&self) -> Option<Vec<u8>> {
        Self::instead(self.is_shared(), |out| encode::describe(out, Target::Statement(&self.server_name)))
    }
}

/// A number for a statement that is like no other.
pub(crate) fn fresh_generation() -> u64 {
    GENERATIONS.fetch_add(1, Ordering::Relaxed)
}

/// A statement that the session did not prepare by the protocol may be one of PREPARE, which the server knows; but not what
/// another session has left on the connection, nor one of our own.
pub(crate) fn never_of_others(name: &[u8]) -> Result<(), Refusal> {
    if !name.is_empty() && !is_reserved(name) {
        return Ok(());
    }
    let what = match name {
        b"" => "unnamed prepared statement does not exist".to_owned(),
        _ => format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name)),
    };
    Err(Refusal::plain(sqlstate::INVALID_SQL_STATEMENT_NAME, what))
}

/// Statements of our own have such names, on the same connections.
pub(crate) fn never_ours(name: &[u8]) -> Result<(), Refusal> {
    if is_reserved(name) {
        let what = "a prepared statement with a name that begins with \"onecopy \"";
        return Err(Refusal::unsupported(what, "Give it another name."));
    }
    Ok(())
}

/// Whether a name is kept for us.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(b"onecopy ")
}

/// The name of ours for the statement of that number.
pub(crate) fn name_of(generation: u64) -> Vec<u8> {
    [OURS, generation.to_string().as_bytes()].concat()
}

/// What names of ours begin with.
pub(crate) const OURS: &[u8] = b"onecopy p";
