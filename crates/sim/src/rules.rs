//! The rules that can be switched off, one at a time, to see that a checker notices.
//!
//! Those of the core are in the core; those here are the duties of whoever drives it: sessions, agents, log. The
//! binary has the same duties.

use cluster::protocols::onecopy;

/// All on, except in a mutant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Those of the core.
    pub core: onecopy::Rules,
    /// A snapshot that outlives its statement needs everything, not only what its first statement reads.
    pub snapshot_needs_all: bool,
    /// What constraints look at is needed, too.
    pub constraints_read: bool,
    /// What a constraint says to a write in a kept snapshot is newer than that, so the write needs what it touches.
    pub errors_are_reads: bool,
    /// SERIALIZABLE is announced to the core.
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
    /// A written row tells of which group it is.
    pub groups_told: bool,
    /// The core is told in which columns rows were changed.
    pub columns_told: bool,
    /// The core is told which statement has claimed what.
    pub turns_told: bool,
    /// What a SERIALIZABLE transaction has read is told.
    pub reads_told: bool,
    /// A SERIALIZABLE transaction that tried to write is certified, also if nothing came of it.
    pub tries_are_certified: bool,
    /// Backends that a refresh waits for are ended.
    pub refresh_goes_first: bool,
    /// Who waits for whom inside the servers is told.
    pub server_waits_told: bool,
    /// What was written unforeseen is asked for before it is told, or ordered.
    pub surprises_are_asked: bool,
    /// Of many rows only new ones are held by home; who changes or removes others claims their table outright.
    pub inserts_alone_are_held: bool,
    /// FOR UPDATE claims.
    pub locked_rows_claimed: bool,
    /// So does LOCK TABLE.
    pub locked_tables_claimed: bool,
    /// Unknown statements claim everything.
    pub unknown_claims_everything: bool,
    /// A schema change claims what it defines anew, and statements what they use.
    pub definitions_claimed: bool,
    /// What was concluded of a statement is not believed if a schema change has made that untrue before it ended.
    pub conclusions_are_checked: bool,
    /// What uses what its own transaction has defined anew is unknown.
    pub own_changes_count: bool,
    /// A statement runs on the connection set that it was let run on.
    pub connections_are_bound: bool,
    /// All backends are gone before the applied set is read.
    pub reset_ends_backends: bool,
    /// The applied set is read again after a loss.
    pub applied_is_read_again: bool,
    /// What a replica lacks, though it has later versions, is applied before it serves.
    pub missing_are_applied: bool,
    /// What a copy of another server has is read from it, not taken to be what its donor had in the end.
    pub copy_is_read: bool,
    /// A record is reported as durable only when it is.
    pub sync_before_logged: bool,
    /// Committed is said when the server has answered the COMMIT, not when it was sent.
    pub commit_is_awaited: bool,
    /// Applied is said when the server has answered the COMMIT of the refresh, not when it was sent.
    pub apply_is_awaited: bool,
    /// A refresh carries the identities of what it applies.
    pub refresh_inserts_identities: bool,
    /// When the log could not be synchronised, the node stops and reads it again.
    pub failed_sync_stops: bool,
    /// A replica that cannot apply a record serves nothing more.
    pub refused_is_diverged: bool,
    /// What was written after a savepoint is not logged when the transaction goes back to it.
    pub undone_is_forgotten: bool,
    /// A snapshot is taken by the first statement that is about data, so that one needs everything.
    pub control_takes_no_snapshot: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            core: onecopy::Rules::default(),
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
            surprises_are_asked: true,
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
            control_takes_no_snapshot: true,
        }
    }
}
