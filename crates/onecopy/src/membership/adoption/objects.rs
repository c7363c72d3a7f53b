//! Onecopy's objects in a server, as far as removing them needs their names.

/// Event triggers are dropped by name.
pub(crate) const EVENT_TRIGGERS: [&str; 3] = ["onecopy_ddl", "onecopy_drop", "onecopy_rewrite"];
/// Everything else goes with the schemas: triggers on tables go with their functions.
pub(super) const REMOVE_SCHEMAS: &str = "DROP SCHEMA IF EXISTS onecopy, onecopy_capture CASCADE";
