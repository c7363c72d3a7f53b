//! Capture: how the row changes of a transaction come out of an unmodified server while it runs.
//!
//! A row trigger, named to sort before any other, raises an INFO message with the row's image for every row that is
//! written, by whatever means: the server sends it on the very connection of the writer, in order, before the
//! statement's completion. The session that owns the connection takes such messages off the wire and adds them to its
//! record. `install.sql` is what lies in the server for this, together with the guards that refuse writes and schema
//! changes that come past Onecopy.
//!
//! The rows that a statement inserts are told at its end instead, by a statement trigger with a transition table: many
//! in a message, for a fifth of the cost (benchmarks/README.md). Not where a user's trigger could change them before that,
//! nor in partitions. They come after what the same statement updated and deleted, which is sound: rows that are there
//! together at the end are in nobody's way. Updates stay with rows, since transition tables show old and new rows apart.
//!
//! Invariant: a message counts as captured only if the server itself says, in the first line of the message's context,
//! that our function raised it. Nobody else can make a function of that name: its schema admits nobody, so its name is
//! always shown with the schema, and a quoted name of the same letters shows its quotes.
//!
//! What no trigger sees is how far sequences have come ([`sequences`]): that is asked for at the end of a transaction.
//!
//! Not here: what becomes of the rows (`cluster::record`), and schema changes.

pub(crate) mod catalogue;
mod message;
pub(crate) mod quoting;
pub(crate) mod sequences;
mod token;
mod values;
pub(crate) mod vouch;

#[cfg(test)]
mod tests;

use cluster::ids::ClusterId;

pub(crate) use message::{Captured, Decoder, Operation};
use token::token;
pub(crate) use values::{Flaw, JSON_DEPTH_MAX};

/// What [`install_sql`] fills in.
const INSTALL: &str = include_str!("capture/install.sql");

/// How values travel; part of [`INSTALL`].
const CARRIAGE: &str = include_str!("capture/carriage.sql");

/// Functions that stand in for the server's; part of [`INSTALL`].
const STAND_INS: &str = include_str!("capture/stand_ins.sql");
/// Which definitions depend on object ids; part of [`INSTALL`].
const OBJECT_IDS: &str = include_str!("capture/object_ids.sql");
/// How tables with code of users are applied; part of [`INSTALL`].
const SANDBOX: &str = include_str!("capture/sandbox.sql");

/// The setting that shows the capture function that a write is a refresh.
pub(crate) const VIA_SETTING: &str = "onecopy.via";

/// The setting that shows the guard that it is on the applier's connection, and how long the schema change is that `onecopy.run`
/// runs there, in characters. Only superusers can set it, and RESET leads back to [`APPLIER_AT_REST`].
pub(crate) const APPLIER_SETTING: &str = "backtrace_functions";
/// No such schema change runs.
pub(crate) const APPLIER_AT_REST: &str = "0";

/// The setting that lets a schema change pass.
pub(crate) const DDL_SETTING: &str = "onecopy.ddl";
/// Where the guard says whether what a schema change made or dropped is temporary.
pub(crate) const MADE_SETTING: &str = "onecopy.made";
/// Its value if all of it is.
pub(crate) const MADE_TEMPORARY: &str = "temporary";

/// The setting in which the function that numbers new objects says which numbers it drew; the applier says there which numbers
/// the home drew.
pub(crate) const NUMBERS_SETTING: &str = "onecopy.numbers";

/// The statement that puts new tables under capture; part of every schema change.
pub(crate) const INSTALL_TABLES_SQL: &str = "SELECT onecopy.install()";

/// In a transaction that is rolled back, lets a superuser read tables without running code of users. Then it may only read.
pub(crate) const HIDE_CODE: &str = "SELECT onecopy_capture.hide_code(); SET TRANSACTION READ ONLY";

/// The statement that puts the triggers of all tables right on a server that an earlier release has used last. To look at all
/// of them takes a while, so the server remembers whose they are.
pub(crate) const UPDATE_TABLES_SQL: &str = "SELECT onecopy_capture.update_tables(2)";

/// The value of [`DDL_SETTING`] while an ordered schema change runs. Everybody can read it, so the guard also looks at whose
/// connection it is ([`vouch`]) and at what called it: a statement inside a function or block is refused, whatever is set.
pub(crate) fn ddl_token(cluster: ClusterId) -> String {
    token(cluster, "ddl")
}

/// The value of [`VIA_SETTING`] on the agent's own connections: what they write is not captured, and their schema changes
/// pass. It says so only together with `session_replication_role`, which is not for everybody to set.
pub(crate) fn apply_token(cluster: ClusterId) -> String {
    token(cluster, "apply")
}

/// The statements that install what capture needs in one database: for one simple query, as superuser.
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
