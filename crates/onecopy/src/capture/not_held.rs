//! The names of the tables that a replica does not hold, as its own server has them.

use std::collections::BTreeSet;

use crate::backend::{BackendError, Rows};
use crate::capture::quoting::quoted;

/// Tables under capture: schema, name, and our number, which is the first argument of the capture trigger.
pub(crate) const NUMBERED_TABLES: &str = "SELECT n.nspname, c.relname, \
    pg_catalog.split_part(pg_catalog.encode(g.tgargs, 'escape'), '\\000', 1) \
    FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_class c ON c.oid = g.tgrelid \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE g.tgname = '!onecopy'";

const SHAPE: BackendError =
    BackendError::Protocol("an answer about numbers of tables of an unexpected shape");

/// The query that returns a row if the table itself has one, by its quoted name.
pub(crate) fn a_row_sql(table: &str) -> String {
    format!("SELECT 1 FROM ONLY {table} LIMIT 1")
}

/// Schema and name in quotes, for each of the [`NUMBERED_TABLES`] that is not held.
pub(crate) fn not_held(
    tables: &Rows,
    is_held: impl Fn(u32) -> bool,
) -> Result<BTreeSet<String>, BackendError> {
    let mut names = BTreeSet::new();
    for row in tables {
        let [Some(schema), Some(name), Some(number)] = row.as_slice() else { return Err(SHAPE) };
        if !is_held(number.parse().map_err(|_| SHAPE)?) {
            names.insert(format!("{}.{}", quoted(schema), quoted(name)));
        }
    }
    Ok(names)
}
