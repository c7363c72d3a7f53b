//! The session's prepared statements and portals.
//!
//! Names belong to the session, not to a connection: a statement is prepared on whichever connection needs it, from
//! what the client's Parse said. Each Parse has a generation, so that a connection knows whether what it has under a
//! name is what is meant now.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use sql::Script;

use super::sent::{KEPT_BYTES_MAX, Sent};

/// Most named statements of one session.
pub(crate) const STATEMENTS_MAX: usize = 10_000;

/// A statement that the client prepared.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its text.
    pub(crate) sql: Vec<u8>,
    /// Declared parameter types as sent.
    pub(crate) types: Vec<u8>,
    /// What it is; `None` when our parser does not accept it.
    pub(crate) script: Option<Arc<Script>>,
    /// Which Parse it was.
    pub(crate) generation: u64,
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
    portals: FxHashMap<Vec<u8>, Portal>,
    generations: u64,
}

impl Prepared {
    /// Registers a Parse; `None` when there are too many.
    pub(crate) fn insert(
        &mut self,
        name: &[u8],
        sql: &[u8],
        types: &[u8],
        script: Option<Arc<Script>>,
    ) -> Option<u64> {
        if self.statements.len() >= STATEMENTS_MAX && !self.statements.contains_key(name) {
            return None;
        }
        self.generations += 1;
        let generation = self.generations;
        let known = Known { sql: sql.to_vec(), types: types.to_vec(), script, generation };
        self.statements.insert(name.to_vec(), Arc::new(known));
        Some(generation)
    }

    /// The statement of this name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Known>> {
        self.statements.get(name)
    }

    /// A Bind made this portal, with these formats and values.
    pub(crate) fn bind(&mut self, portal: &[u8], statement: &[u8], values: &[u8]) {
        match self.statements.get(statement) {
            Some(known) => {
                let is_kept = values.len() <= KEPT_BYTES_MAX && known.sql.len() <= KEPT_BYTES_MAX;
                let values = is_kept.then(|| values.into());
                let known = Arc::clone(known);
                self.portals.insert(portal.to_vec(), Portal { known, values });
            }
            None => {
                self.portals.remove(portal);
            }
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
        self.statements.remove(name);
    }

    /// The end of a transaction ends its portals.
    pub(crate) fn drop_portals(&mut self) {
        self.portals.clear();
    }

    /// DEALLOCATE ALL and DISCARD ALL.
    pub(crate) fn clear(&mut self) {
        self.statements.clear();
        self.portals.clear();
    }
}
