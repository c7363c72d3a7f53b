//! Statements that are refused, each with the advice what to do instead.
//!
//! Each of them would leave the replicas different, lose data at a crash, or commit without Onecopy's seeing it. The
//! session answers with SQLSTATE 0A000, the first text as the message and the second as the hint.

use crate::statement::Verb;

/// The name of the refused statement, and the advice. The session puts "is not supported through Onecopy" after the
/// first, so it is in the singular or a gerund.
pub type Refusal = (&'static str, &'static str);

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $what:literal, $hint:literal;)*) => {
        $($(#[$doc])* pub const $name: Refusal = ($what, $hint);)*

        /// Everything that is refused, as (what, what to do instead).
        pub const REFUSALS: &[(&str, &str)] = &[$($name),*];
    };
}

refusals! {
    /// A prepared transaction outlives its session and is settled behind the log's back.
    TWO_PHASE = "two-phase commit by the client", "End the transaction with COMMIT or ROLLBACK.";
    /// One cluster serves one database.
    DATABASE = "creating, changing or dropping a database", "Use a schema, or a cluster of its own.";
    /// Each replica has its own configuration file.
    ALTER_SYSTEM = "ALTER SYSTEM", "Use ALTER ROLE .. SET, or change the configuration of each server.";
    /// A directory on one machine.
    TABLESPACE = "creating, changing or dropping a tablespace", "Leave the placing of files to each server.";
    /// An unlogged table is empty after a crash of one replica.
    UNLOGGED = "using unlogged tables and sequences", "Leave out UNLOGGED.";
    /// Its rows could not be shipped from there.
    TABLE_AS = "CREATE TABLE AS or SELECT INTO inside another statement", "Run it as a statement of its own.";
    /// Each replica fills it from its query.
    MATERIALIZED = "a materialized view whose query may give each replica its own rows",
        "Use a table and INSERT .. SELECT, or a query of built-in immutable functions without LIMIT.";
    /// The session could not read back what the statement computed from newer rows than its snapshot shows.
    COMPUTED_ISOLATION = "computing values for rows in a schema change at REPEATABLE READ or SERIALIZABLE",
        "Run it at READ COMMITTED, or by itself.";
    /// What the functions write would be written again at every replica.
    DDL_WRITES = "a schema change whose functions write rows", "Write the rows by a statement of their own.";
    /// Data outside the cluster.
    FOREIGN = "using foreign data wrappers, servers and tables", "Load the data into a table.";
    /// Each replica would publish or subscribe.
    LOGICAL_REPLICATION = "using publications and subscriptions",
        "Replicate from one server directly, outside onecopy.";
    /// Extensions that reach outside the transaction.
    EXTENSION = "this extension", "Its functions act outside the transaction or on large objects.";
    /// The file lies on one machine.
    SERVER_FILE = "COPY from or to a file or program of the server",
        "Use COPY .. FROM STDIN or TO STDOUT, or \\copy.";
    /// Large objects have no triggers, so changes of them are not captured.
    LARGE_OBJECT = "using large objects", "Use a column of type bytea.";
    /// A connection that we do not see.
    DBLINK = "dblink", "Connect to the other database from the client.";
    /// Capture would stop.
    TRIGGERS = "enabling or disabling all triggers, or onecopy's own", "Name the triggers one by one.";
    /// They would fire once more where the changes are applied.
    FIRE_ON_APPLY = "making a trigger or rule fire where changes are applied",
        "ENABLE it plainly, without ALWAYS or REPLICA.";
    /// They run on every replica, and could undo our own.
    EVENT_TRIGGER = "using event triggers", "Check schema changes before they are sent.";
    /// Our own objects.
    OWN_SCHEMA = "changing onecopy's own objects", "Leave the schemas onecopy and onecopy_capture alone.";
    /// 'now' and the like become a constant when the definition is stored.
    CLOCK_CONSTANT = "a definition with 'now', 'today', 'tomorrow' or 'yesterday' as a constant",
        "Call now() or CURRENT_DATE, which are evaluated when rows are written.";
    /// Each replica computes it when it makes the partition.
    COMPUTED_BOUND = "a partition whose bound calls a function, reads the clock or casts to an object id", "Write the value itself.";
    /// Capture could stop wherever the function runs or the role logs in.
    REPLICATION_SETTING = "changing a setting that replication depends on",
        "Leave session_replication_role, backtrace_functions, client_encoding, lc_messages, default_transaction_read_only, default_toast_compression, onecopy.* out.";
    /// It loads code into one session.
    LOAD = "LOAD", "Use shared_preload_libraries or session_preload_libraries on each server.";
    /// A snapshot lives on one server.
    SNAPSHOT = "SET TRANSACTION SNAPSHOT", "Run the parallel dump against one server directly, or without -j.";
    /// The catalogues are each server's own.
    SYSTEM_CATALOGUE = "writing to the system catalogues", "Use the statement made for the purpose.";
    /// Neither the parser's tree nor the reading of it has a bound that could be kept.
    TOO_DEEP = "a statement too long or nested too deeply to be understood", "Split it, or simplify its expressions.";
    /// A statement of a kind that this version does not know.
    UNKNOWN_KIND = "this kind of statement", "It is not known to onecopy.";
}

/// The verb of a refusal.
pub(crate) fn refused((what, hint): Refusal) -> Verb {
    Verb::Refused { what, hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_to_do() {
        let mut seen = std::collections::BTreeSet::new();
        for (what, hint) in REFUSALS {
            assert!(seen.insert(what), "{what} is listed twice");
            assert!(hint.ends_with('.'), "{hint} is a sentence");
        }
    }
}
