//! The session's prepared statements and portals.
//!
//! Names belong to the session, not to a connection: a statement is prepared on whichever connection needs it, from
//! what the client's Parse said. Each Parse has a generation, so that a connection knows whether what it has under a
//! name is what is meant now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;
use sql::{Asks, Script, StandIns};
use wire::frontend::Target;
use wire::{encode, sqlstate};

use super::sent::{KEPT_BYTES_MAX, Sent};
use crate::error::Refusal;

/// Most named statements of one session, and the bytes of their texts.
const STATEMENTS_MAX: usize = 10_000;
const STATEMENTS_BYTES_MAX: usize = 128 << 20;

/// Most portals of one transaction, and the bytes of their values that are kept.
const PORTALS_MAX: usize = 10_000;
const PORTALS_BYTES_MAX: usize = 16 << 20;

/// The number of the next Parse of any session; 0 is for a doubtful one.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

/// A statement that the client prepared.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its text.
    pub(crate) sql: Vec<u8>,
    /// What servers get instead, if functions of Onecopy's own stand in for theirs.
    ours: Option<StandIns>,
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

impl Known {
    /// What it counts among the session's statements; one without a name is replaced by the next.
    fn bytes(&self) -> usize {
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

/// What a Bind made.
#[derive(Debug)]
struct Portal {
    known: Arc<Known>,
    /// Formats and values as sent; `None` when they are too many to be kept.
    values: Option<Arc<[u8]>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    statements: FxHashMap<Vec<u8>, Arc<Known>>,
    statements_bytes: usize,
    portals: FxHashMap<Vec<u8>, Portal>,
    portals_bytes: usize,
}

impl Prepared {
    /// Registers a Parse, unless there are too many. With a number it has a name of ours on servers.
    pub(crate) fn insert(
        &mut self,
        name: &[u8],
        (sql, ours): (&[u8], Option<StandIns>),
        types: &[u8],
        script: Option<Arc<Script>>,
        shared: Option<u64>,
    ) -> Result<Arc<Known>, Refusal> {
        let old_bytes = self.statements.get(name).map_or(0, |known| known.bytes());
        let is_full = self.statements.len() >= STATEMENTS_MAX && !self.statements.contains_key(name);
        let new_bytes = if name.is_empty() { 0 } else { sql.len() + types.len() };
        let bytes = self.statements_bytes - old_bytes + new_bytes;
        if is_full || bytes > STATEMENTS_BYTES_MAX {
            let text = format!(
                "a session can have {STATEMENTS_MAX} prepared statements, and {} MB of them",
                STATEMENTS_BYTES_MAX >> 20
            );
            let hint = "Close or DEALLOCATE some.";
            return Err(Refusal::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text, hint));
        }
        self.statements_bytes = bytes;
        // Sessions share connections, so no two of them may mean different things by one number.
        let generation = shared.unwrap_or_else(fresh_generation);
        let (name, sql, types) = (name.to_vec(), sql.to_vec(), types.to_vec());
        let server_name = shared.map_or_else(|| name.clone(), name_of);
        let known = Arc::new(Known { sql, ours, types, script, generation, name: name.clone(), server_name });
        self.statements.insert(name, Arc::clone(&known));
        Ok(known)
    }

    /// The statement of this name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Known>> {
        self.statements.get(name)
    }

    /// A Bind made this portal, with these formats and values.
    pub(crate) fn bind(&mut self, portal: &[u8], statement: &[u8], values: &[u8]) -> Result<(), Refusal> {
        self.drop_portal(portal);
        let Some(known) = self.statements.get(statement) else { return Ok(()) };
        if self.portals.len() >= PORTALS_MAX {
            let text = format!("a transaction can have {PORTALS_MAX} portals");
            return Err(Refusal::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text, "Close some."));
        }
        let is_kept = values.len() <= KEPT_BYTES_MAX
            && known.sql.len() <= KEPT_BYTES_MAX
            && self.portals_bytes + values.len() <= PORTALS_BYTES_MAX;
        let values: Option<Arc<[u8]>> = is_kept.then(|| values.into());
        self.portals_bytes += values.as_ref().map_or(0, |values| values.len());
        self.portals.insert(portal.to_vec(), Portal { known: Arc::clone(known), values });
        Ok(())
    }

    /// Close of a portal.
    pub(crate) fn drop_portal(&mut self, name: &[u8]) {
        if let Some(Portal { values: Some(values), .. }) = self.portals.remove(name) {
            self.portals_bytes -= values.len();
        }
    }

    /// What the portal of this name runs.
    pub(crate) fn portal(&self, name: &[u8]) -> Option<&Arc<Known>> {
        self.portals.get(name).map(|portal| &portal.known)
    }

    /// The same as it was sent, if it is one statement.
    pub(crate) fn sent(&self, name: &[u8]) -> Option<Sent> {
        let Portal { known, values } = self.portals.get(name)?;
        let is_one = known.script.as_ref().is_some_and(|script| script.statements.len() == 1);
        let values = values.clone().filter(|_| is_one)?;
        Some(Sent::Bound { known: Arc::clone(known), values })
    }

    /// Close of a statement.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        let removed = self.statements.remove(name);
        self.statements_bytes -= removed.map_or(0, |known| known.bytes());
    }

    /// Whether there are portals that outlive the next Bind.
    pub(crate) fn has_named_portals(&self) -> bool {
        self.portals.keys().any(|name| !name.is_empty())
    }

    /// The end of a transaction ends its portals.
    pub(crate) fn drop_portals(&mut self) {
        self.portals.clear();
        self.portals_bytes = 0;
    }

    /// DEALLOCATE ALL and DISCARD ALL.
    pub(crate) fn clear(&mut self) {
        self.statements.clear();
        self.statements_bytes = 0;
        self.drop_portals();
    }
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
