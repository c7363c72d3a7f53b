//! One prepared statement of a session, and its name on servers.
//!
//! When sessions share connections, servers know a statement by a name of Onecopy's own. Equal statements have equal
//! names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sql::{Asks, Script, StandIns};
use wire::frontend::Target;
use wire::{encode, sqlstate};

use crate::error::Refusal;

/// The generation of the next Parse in any session. 0 marks a doubtful one.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
pub(crate) struct PreparedStatement {
    /// The client's text.
    pub(crate) sql: Vec<u8>,
    /// The text for servers, if it calls stand-ins of Onecopy's.
    pub(super) ours: Option<StandIns>,
    /// Declared parameter types as sent.
    pub(crate) types: Vec<u8>,
    /// The parsed text; `None` if the parser rejects it.
    pub(crate) script: Option<Arc<Script>>,
    /// Number of the Parse. When sessions share connections, equal statements have the same number.
    pub(crate) generation: u64,
    /// Its name for the client.
    pub(crate) name: Vec<u8>,
    /// Its name on servers.
    pub(crate) server_name: Vec<u8>,
}

impl PreparedStatement {
    /// Bytes that count toward the session's limit. An unnamed statement counts none, because the next one replaces
    /// it.
    pub(super) fn bytes(&self) -> usize {
        if self.name.is_empty() { 0 } else { self.sql.len() + self.types.len() }
    }

    /// Whether its name on servers is Onecopy's own.
    pub(crate) fn is_shared(&self) -> bool {
        self.server_name != self.name
    }

    /// The text for servers.
    pub(crate) fn server_sql(&self) -> &[u8] {
        self.ours.as_ref().map_or(&self.sql, |ours| ours.text.as_bytes())
    }

    /// The values that its stand-ins ask for.
    pub(crate) fn asks(&self) -> Asks {
        self.ours.as_ref().map(|ours| ours.asks).unwrap_or_default()
    }

    /// Whether the text for servers is another one than the client's.
    pub(crate) fn has_stand_ins(&self) -> bool {
        self.ours.is_some()
    }

    fn instead(is_other: bool, write: impl FnOnce(&mut Vec<u8>)) -> Option<Vec<u8>> {
        let mut message = Vec::new();
        is_other.then(|| write(&mut message)).map(|()| message)
    }

    /// The Parse for servers, if it differs from the client's.
    pub(crate) fn as_parse(&self) -> Option<Vec<u8>> {
        Self::instead(self.is_shared() || self.ours.is_some(), |out| {
            encode::parse_raw(out, &self.server_name, self.server_sql(), &self.types);
        })
    }

    /// The Bind for servers, if it differs from the client's.
    pub(crate) fn as_bind(&self, portal: &[u8], values: &[u8]) -> Option<Vec<u8>> {
        Self::instead(self.is_shared(), |out| encode::bind_raw(out, portal, &self.server_name, values))
    }

    /// The Describe for servers, if it differs from the client's.
    pub(crate) fn as_describe(&self) -> Option<Vec<u8>> {
        Self::instead(self.is_shared(), |out| encode::describe(out, Target::Statement(&self.server_name)))
    }
}

/// A generation that no other statement has.
pub(crate) fn fresh_generation() -> u64 {
    GENERATIONS.fetch_add(1, Ordering::Relaxed)
}

/// Rejects a name that this session did not prepare, if another session or Onecopy may have left a statement of that
/// name on the connection. Other unknown names may come from SQL PREPARE, which the server knows.
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

/// Rejects a name that Onecopy reserves for its own statements on the same connections.
pub(crate) fn never_ours(name: &[u8]) -> Result<(), Refusal> {
    if is_reserved(name) {
        let what = "a prepared statement with a name that begins with \"onecopy \"";
        return Err(Refusal::unsupported(what, "Give it another name."));
    }
    Ok(())
}

pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(b"onecopy ")
}

/// The name on servers for the statement of this number.
pub(crate) fn name_of(generation: u64) -> Vec<u8> {
    [OURS, generation.to_string().as_bytes()].concat()
}

/// Prefix of Onecopy's names.
pub(crate) const OURS: &[u8] = b"onecopy p";
