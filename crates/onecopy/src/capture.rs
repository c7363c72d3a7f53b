//! Capture: reads the row changes of a transaction from an unmodified server while the transaction runs.
//!
//! A row trigger raises an INFO message with the row's image for every written row, by any kind of statement. Its
//! name sorts before any other. The server sends the message on the writer's own connection, in order, before the
//! statement completes. The session that owns the connection takes such messages off the wire and adds them to its
//! record. `install.sql` creates the triggers, and the guards that reject writes and schema changes past Onecopy.
//!
//! A statement trigger with a transition table reports inserted rows at the end of the statement: many in a message,
//! at a fifth of the cost (benchmarks/README.md). Exceptions are tables where a user's trigger could change the rows
//! before, and partitions. These rows come after what the same statement updated and deleted. That is sound, because
//! rows that exist together at the end do not conflict. Updates are reported row by row, because transition tables do
//! not pair old and new rows.
//!
//! Invariant: a message counts as captured only if the server says, in the first line of the context, that our
//! function raised it. No other role can create a function of that name. Its schema grants no USAGE, so its name
//! always appears with the schema, and a quoted imitation would show its quotes.
//!
//! Triggers do not see how far sequences have come ([`sequences`]). Sessions ask for that at the end of a
//! transaction.
//!
//! Not here: the use of captured rows (`cluster::record`), and schema changes.

pub(crate) mod catalogue;
mod message;
pub(crate) mod quoting;
pub(crate) mod sequences;
pub(crate) mod shares;
mod token;
mod values;
pub(crate) mod vouch;

#[cfg(test)]
mod tests;

use cluster::ids::ClusterId;

pub(crate) use message::{Captured, Decoder, Operation, TellsParts};
use token::token;
pub(crate) use values::{InvalidValue, JSON_DEPTH_MAX};

/// The template of [`install_sql`].
const INSTALL: &str = include_str!("capture/install.sql");

/// Conversion of values for other replicas; part of [`INSTALL`].
const CARRIAGE: &str = include_str!("capture/carriage.sql");

/// Replacements for built-in functions; part of [`INSTALL`].
const STAND_INS: &str = include_str!("capture/stand_ins.sql");
/// Rejection of definitions that depend on OIDs; part of [`INSTALL`].
const OBJECT_IDS: &str = include_str!("capture/object_ids.sql");
/// Application of rows whose tables run user code; part of [`INSTALL`].
const SANDBOX: &str = include_str!("capture/sandbox.sql");

/// The setting that tells the capture function that a write is a refresh.
pub(crate) const VIA_SETTING: &str = "onecopy.via";

/// The setting that tells the guard that the connection is the applier's. Its value is the length of the schema
/// change that `onecopy.run` runs there, in characters. Only superusers can set it, and RESET restores
/// [`APPLIER_AT_REST`].
pub(crate) const APPLIER_SETTING: &str = "backtrace_functions";
/// The value while no such schema change runs.
pub(crate) const APPLIER_AT_REST: &str = "0";

/// The setting that lets a schema change pass the guard.
pub(crate) const DDL_SETTING: &str = "onecopy.ddl";
/// The setting in which the guard says whether a schema change concerned only temporary objects.
pub(crate) const MADE_SETTING: &str = "onecopy.made";
/// Its value in that case.
pub(crate) const MADE_TEMPORARY: &str = "temporary";

/// The setting that holds the numbers of new objects: those drawn at home, or at other replicas those that the
/// applier passes on.
pub(crate) const NUMBERS_SETTING: &str = "onecopy.numbers";

/// Puts new tables under capture. Part of every schema change.
pub(crate) const INSTALL_TABLES_SQL: &str = "SELECT onecopy.install()";

/// Lets a superuser read tables without running user code, in a transaction that is rolled back. It must not write
/// afterwards.
pub(crate) const HIDE_CODE: &str = "SELECT onecopy_capture.hide_code(); SET TRANSACTION READ ONLY";

/// Updates the triggers of all tables on a server that an earlier release has used. Examining all tables takes a
/// while, so the server stores the number of the form.
pub(crate) const UPDATE_TABLES_SQL: &str = "SELECT onecopy_capture.update_tables(2)";

/// The value of [`DDL_SETTING`] while an ordered schema change runs. Any client can read it. So the guard also checks
/// the connection ([`vouch`]) and the caller: it always rejects statements inside a function or block.
pub(crate) fn ddl_token(cluster: ClusterId) -> String {
    token(cluster, "ddl")
}

/// The value of [`VIA_SETTING`] on the agent's connections: their writes are not captured, and their schema changes
/// pass. It counts only together with `session_replication_role`, which needs a privilege.
pub(crate) fn apply_token(cluster: ClusterId) -> String {
    token(cluster, "apply")
}

/// The statements that install capture in one database: one simple query, as superuser.
pub(crate) fn install_sql(cluster: ClusterId) -> String {
    let body = INSTALL
        .replace("-- @CARRIAGE@", CARRIAGE)
        .replace("-- @STAND_INS@", STAND_INS)
        .replace("-- @OBJECT_IDS@", OBJECT_IDS)
        .replace("-- @SANDBOX@", SANDBOX)
        .replace("@CLUSTER@", &cluster.to_string())
        .replace("@SESSION@", &vouch::mark(cluster))
        .replace("@DDL@", &ddl_token(cluster))
        .replace("@APPLY@", &apply_token(cluster));
    format!("BEGIN;\n{body}\nCOMMIT;")
}
