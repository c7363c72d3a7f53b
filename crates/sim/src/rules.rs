//! The rules that a mutant can switch off, to test that the judges notice.
//!
//! The core keeps its own rules in [`cluster::protocols::rows::Rules`]. The rules here are duties of the core's drivers:
//! sessions, agents and log. The binary has the same duties.

use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::rows::{self, Choices};

/// One switch for each rule; all are on, except in a mutant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The protocol that runs.
    pub protocol: Choices,
    /// The rules of the core.
    pub core: rows::Rules,
    /// A replica that is to hold a table gets its rows.
    pub gained_table_has_rows: bool,
    /// A statement touches the parts of its rows.
    pub parts_are_touched: bool,
    /// Rows of parts that a replica does not hold are not applied there.
    pub unheld_parts_left_out: bool,
    /// A snapshot that outlives its statement needs everything, not only what its first statement reads.
    pub snapshot_needs_all: bool,
    /// A statement also needs the versions of the rows that its constraints check.
    pub constraints_read: bool,
    /// A constraint checks the newest rows, not the snapshot, so a write in a kept snapshot needs the rows it checks.
    pub errors_are_reads: bool,
    /// The core is told that a transaction is SERIALIZABLE.
    pub serializable_is_told: bool,
    /// The identity is inserted in the transaction that it names.
    pub identity_inserted: bool,
    /// A COMMIT without a reply is a loss, not a success.
    pub lost_commit_is_loss: bool,
    /// A transaction that finished is not run again when its home is lost.
    pub no_rerun_once_finished: bool,
    /// Values of unique keys and keys of parents are claimed.
    pub constraints_claimed: bool,
    /// A reference claims the key that it refers to.
    pub references_claimed: bool,
    /// A written row claims its group.
    pub groups_told: bool,
    /// The core is told which columns changed.
    pub columns_told: bool,
    /// Each claim carries the turn of its statement.
    pub turns_told: bool,
    /// The core is told what a SERIALIZABLE transaction has read.
    pub reads_told: bool,
    /// A SERIALIZABLE transaction that tried to write is certified even if no row changed.
    pub tries_are_certified: bool,
    /// Backends that block a refresh are ended.
    pub refresh_goes_first: bool,
    /// Lock waits inside the servers are reported to the core.
    pub server_waits_told: bool,
    /// Unpredicted rows are reserved before the client gets the reply, or before the record is handed over.
    pub unpredicted_is_reserved: bool,
    /// Of many rows only inserts are held claims of home; updates and deletes claim the whole table.
    pub inserts_alone_are_held: bool,
    /// SELECT FOR UPDATE claims its rows.
    pub locked_rows_claimed: bool,
    /// LOCK TABLE claims its table.
    pub locked_tables_claimed: bool,
    /// Unbounded statements claim everything.
    pub unknown_claims_everything: bool,
    /// A schema change claims the definition it replaces, and a statement the definitions it uses.
    pub definitions_claimed: bool,
    /// The analysis of a statement is dropped if a schema change made it untrue before the transaction finished.
    pub conclusions_are_checked: bool,
    /// A statement is unbounded if it uses a definition that its own transaction has replaced.
    pub own_changes_count: bool,
    /// A statement runs only on the connection set that the core chose.
    pub connections_are_bound: bool,
    /// All old backends end before the applied set is read.
    pub reset_ends_backends: bool,
    /// The applied set is read again after a loss.
    pub applied_is_read_again: bool,
    /// Versions that a replica lacks, although it has later ones, are applied before it serves.
    pub missing_are_applied: bool,
    /// The applied set of a copied server is read from it, not assumed to be the donor's at the end of copying.
    pub copy_is_read: bool,
    /// A record is reported as durable only when it is.
    pub sync_before_logged: bool,
    /// `Committed` is reported when the server has answered the COMMIT, not when it was sent.
    pub commit_is_awaited: bool,
    /// `Applied` is reported when the server has answered the refresh's COMMIT, not when it was sent.
    pub apply_is_awaited: bool,
    /// A refresh stores the identities of the transactions that it applies.
    pub refresh_inserts_identities: bool,
    /// After a failed fsync the node stops and reads the log again.
    pub failed_sync_stops: bool,
    /// A replica that cannot apply a record is quarantined.
    pub refused_is_diverged: bool,
    /// Writes that were rolled back to a savepoint are not logged.
    pub undone_is_forgotten: bool,
    /// A statement that inserts or deletes also needs the tables of its constraint checks.
    pub checks_are_touched: bool,
    /// The first statement about data takes the snapshot, not SAVEPOINT or the like, so that one needs everything.
    pub control_takes_no_snapshot: bool,
    /// What a replica has performed is committed when the core says so.
    pub performers_wait: bool,
    /// An answer is kept as of what its replica had, and only if nothing that it reads was written after that.
    pub kept_is_unwritten: bool,
    /// A durable write ends a kept answer, not only one that some replica has committed.
    pub kept_ends_when_durable: bool,
    /// Whether a kept answer may be given is decided again for each durable version.
    pub kept_is_looked_at_again: bool,
    /// A kept answer is not given after a schema change that the analysis of its read did not know.
    pub kept_knows_its_catalogue: bool,
    /// A read runs where its session was only if that replica has every durable version.
    pub stays_where_all_is: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            protocol: ONECOPY,
            core: rows::Rules::default(),
            gained_table_has_rows: true,
            parts_are_touched: true,
            unheld_parts_left_out: true,
            snapshot_needs_all: true,
            constraints_read: true,
            errors_are_reads: true,
            serializable_is_told: true,
            identity_inserted: true,
            lost_commit_is_loss: true,
            no_rerun_once_finished: true,
            constraints_claimed: true,
            references_claimed: true,
            groups_told: true,
            columns_told: true,
            turns_told: true,
            reads_told: true,
            tries_are_certified: true,
            refresh_goes_first: true,
            server_waits_told: true,
            unpredicted_is_reserved: true,
            inserts_alone_are_held: true,
            locked_rows_claimed: true,
            locked_tables_claimed: true,
            unknown_claims_everything: true,
            definitions_claimed: true,
            conclusions_are_checked: true,
            own_changes_count: true,
            connections_are_bound: true,
            reset_ends_backends: true,
            applied_is_read_again: true,
            missing_are_applied: true,
            copy_is_read: true,
            sync_before_logged: true,
            commit_is_awaited: true,
            apply_is_awaited: true,
            refresh_inserts_identities: true,
            failed_sync_stops: true,
            refused_is_diverged: true,
            undone_is_forgotten: true,
            checks_are_touched: true,
            control_takes_no_snapshot: true,
            performers_wait: true,
            kept_is_unwritten: true,
            kept_ends_when_durable: true,
            kept_is_looked_at_again: true,
            kept_knows_its_catalogue: true,
            stays_where_all_is: true,
        }
    }
}
