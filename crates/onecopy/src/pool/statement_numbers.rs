//! Numbers of prepared statements that sessions share.
//!
//! Example: a hundred sessions of one role prepare `SELECT .. WHERE id = $1` under a hundred names. All get one number,
//! and a server connection prepares the text once under a name made of it ([`super::cached`]).
//!
//! Invariant: statements of one number mean the same: text, types of parameters, kind of connection, settings and schema
//! are equal.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::ids::Version;
use rustc_hash::{FxHashMap, FxHashSet};

use super::kind::Kind;
use crate::client::prepared_statement::fresh_generation;

/// The most statements that have a number in common.
const STATEMENTS_MAX: usize = 20_000;
/// The most bytes that their keys have together.
const STATEMENTS_BYTES_MAX: usize = 64 << 20;
/// Statements with longer keys are not compared, in bytes.
const SHARED_TEXT_MAX: usize = 64 << 10;

/// The properties that two prepared statements of one number share.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct StatementKey {
    pub(crate) kind: Arc<Kind>,
    pub(crate) sql: Vec<u8>,
    /// The types of parameters, as in Parse.
    pub(crate) types: Vec<u8>,
    /// The settings that a parser looks at.
    pub(crate) settings: String,
    /// The last schema change.
    pub(crate) schema: Version,
}

impl StatementKey {
    fn bytes(&self) -> usize {
        self.sql.len() + self.types.len() + self.settings.len()
    }
}

/// How many statements have a number in common, and their bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatementMemory {
    pub(crate) statements: usize,
    pub(crate) bytes: usize,
    pub(crate) bytes_max: usize,
}

/// The numbers of all sessions' statements.
#[derive(Debug, Default)]
pub(crate) struct StatementNumbers(Mutex<KnownNumbers>);

#[derive(Debug, Default)]
struct KnownNumbers {
    numbers: FxHashMap<StatementKey, u64>,
    bytes: usize,
    /// Statements that a server has accepted.
    accepted: FxHashSet<u64>,
}

impl StatementNumbers {
    fn inside(&self) -> MutexGuard<'_, KnownNumbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of this statement; a fresh one for a text that is too long to compare.
    pub(crate) fn number(&self, key: StatementKey) -> u64 {
        let bytes = key.bytes();
        if bytes > SHARED_TEXT_MAX {
            return fresh_generation();
        }
        let mut inside = self.inside();
        if inside.numbers.len() >= STATEMENTS_MAX || inside.bytes + bytes > STATEMENTS_BYTES_MAX {
            // Sessions keep the numbers that they have; the same text gets another one from now on.
            *inside = KnownNumbers::default();
        }
        let KnownNumbers { numbers, bytes: all, .. } = &mut *inside;
        *numbers.entry(key).or_insert_with(|| {
            *all += bytes;
            fresh_generation()
        })
    }

    /// The memory in use.
    pub(crate) fn memory(&self) -> StatementMemory {
        let inside = self.inside();
        let (statements, bytes) = (inside.numbers.len(), inside.bytes);
        StatementMemory { statements, bytes, bytes_max: STATEMENTS_BYTES_MAX }
    }

    /// A server has prepared the statement of that number.
    pub(crate) fn note_accepted(&self, number: u64) {
        let mut inside = self.inside();
        if inside.accepted.len() >= STATEMENTS_MAX {
            // Many belong to one session alone, and are never asked for.
            inside.accepted.clear();
        }
        inside.accepted.insert(number);
    }

    /// Whether a server has prepared it. Then every server will, when a session needs it there.
    pub(crate) fn is_accepted(&self, number: u64) -> bool {
        self.inside().accepted.contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::settings::Settings;
    use crate::pool::kind::Kinds;
    use crate::security::scram::Secret;

    #[test]
    fn equal_statements_share_a_number_and_others_do_not() {
        let settings = Settings::new(&[], "joe", "postgres").map_err(|_| ()).expect("no parameter is wrong");
        let kind = Kinds::default().of(&settings, &Secret::None);
        let key = |sql: &str, schema: u64| StatementKey {
            kind: Arc::clone(&kind),
            sql: sql.as_bytes().to_vec(),
            types: Vec::new(),
            settings: String::new(),
            schema: Version(schema),
        };
        let numbers = StatementNumbers::default();
        let first = numbers.number(key("SELECT 1", 1));
        assert_eq!(numbers.number(key("SELECT 1", 1)), first);
        assert_ne!(numbers.number(key("SELECT 2", 1)), first);
        assert_ne!(numbers.number(key("SELECT 1", 2)), first, "the schema has changed");
        let long = "x".repeat(SHARED_TEXT_MAX + 1);
        assert_ne!(numbers.number(key(&long, 1)), numbers.number(key(&long, 1)));
        assert_eq!(numbers.memory().statements, 3);
        numbers.note_accepted(first);
        assert!(numbers.is_accepted(first) && !numbers.is_accepted(first + 1));
    }
}
