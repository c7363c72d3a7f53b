//! The session's prepared statements and portals.
//!
//! Names belong to the session, not to a connection. A connection that needs a statement prepares it from the
//! client's Parse. Each Parse has a generation, so we can tell whether a connection holds the present meaning of a
//! name.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use sql::{Script, StandIns};
use wire::sqlstate;

use super::passed::PassedStatement;
use super::prepared_statement::{PreparedStatement, fresh_generation, name_of};
use super::sent::{KEPT_BYTES_MAX, Sent};
use crate::error::Refusal;

/// Largest number of named statements in a session.
const STATEMENTS_MAX: usize = 10_000;
const STATEMENTS_BYTES_MAX: usize = 128 << 20;

/// Largest number of portals in a transaction.
const PORTALS_MAX: usize = 10_000;
const PORTALS_BYTES_MAX: usize = 16 << 20;

/// A portal, made by Bind.
#[derive(Debug)]
struct Portal {
    known: Arc<PreparedStatement>,
    /// Formats and values as sent; `None` if they are too long to keep.
    values: Option<Arc<[u8]>>,
}

/// The prepared statements and portals of one session.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    statements: FxHashMap<Vec<u8>, Arc<PreparedStatement>>,
    statements_bytes: usize,
    portals: FxHashMap<Vec<u8>, Portal>,
    portals_bytes: usize,
}

/// A statement from a Parse message.
pub(crate) struct NewStatement<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) sql: &'a [u8],
    /// The text for servers, if it calls stand-ins.
    pub(crate) stand_ins: Option<StandIns>,
    /// Declared parameter types, as in Parse.
    pub(crate) types: &'a [u8],
    pub(crate) script: Option<Arc<Script>>,
    /// The number that names the statement on servers when sessions share connections.
    pub(crate) shared: Option<u64>,
}

impl Prepared {
    /// Registers a Parse, unless the session has too many. A shared number gives the statement an Onecopy name on
    /// servers.
    pub(crate) fn insert(&mut self, new: NewStatement<'_>) -> Result<Arc<PreparedStatement>, Refusal> {
        let NewStatement { name, sql, stand_ins, types, script, shared } = new;
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
        // Sessions share connections, so a number must mean one statement only.
        let generation = shared.unwrap_or_else(fresh_generation);
        let (name, sql, types) = (name.to_vec(), sql.to_vec(), types.to_vec());
        let server_name = shared.map_or_else(|| name.clone(), name_of);
        let known = Arc::new(PreparedStatement {
            sql,
            ours: stand_ins,
            types,
            script,
            generation,
            name: name.clone(),
            server_name,
        });
        self.statements.insert(name, Arc::clone(&known));
        Ok(known)
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<PreparedStatement>> {
        self.statements.get(name)
    }

    /// Registers a portal that a Bind made.
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

    /// The statement that the portal executes.
    pub(crate) fn portal(&self, name: &[u8]) -> Option<&Arc<PreparedStatement>> {
        self.portals.get(name).map(|portal| &portal.known)
    }

    /// The same as the client sent it, if the text is a single statement.
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

    /// Whether any portal outlives the next Bind.
    pub(crate) fn has_named_portals(&self) -> bool {
        self.portals.keys().any(|name| !name.is_empty())
    }

    /// Closes all portals, as the end of a transaction does.
    pub(crate) fn drop_portals(&mut self) {
        self.portals.clear();
        self.portals_bytes = 0;
    }

    /// The statements, for another process. Portals end with their transaction.
    pub(crate) fn passed(&self) -> Vec<PassedStatement> {
        let passed = |known: &Arc<PreparedStatement>| PassedStatement {
            name: known.name.clone(),
            sql: known.sql.clone(),
            types: known.types.clone(),
        };
        self.statements.values().map(passed).collect()
    }

    /// DEALLOCATE ALL and DISCARD ALL.
    pub(crate) fn clear(&mut self) {
        self.statements.clear();
        self.statements_bytes = 0;
        self.drop_portals();
    }
}
