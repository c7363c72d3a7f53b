//! The rules switched off one at a time: each must make some seed fail, or nobody would notice its loss.

use crate::rules::Rules;

/// A rule that is off.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// What is missing.
    pub name: &'static str,
    /// Switches it off.
    pub switch: fn(&mut Rules),
}

/// Every rule that has a switch.
pub const MUTANTS: &[Mutant] = &[
    Mutant { name: "reads do not wait for what they need", switch: |r| r.core.reads_wait = false },
    Mutant { name: "needed from the COMMIT at home", switch: |r| r.core.durable_is_needed = false },
    Mutant { name: "overlapping transactions do not wait", switch: |r| r.core.overlap_waits = false },
    Mutant { name: "wide claims do not wait", switch: |r| r.core.wide_claims_wait = false },
    Mutant { name: "whoever lost its locks is appended", switch: |r| r.core.overtaken_aborts = false },
    Mutant { name: "only who is in the log overtakes", switch: |r| r.core.waiting_overtake = false },
    Mutant { name: "answered and committed before durable", switch: |r| r.core.durable_first = false },
    Mutant { name: "what is open at a lost home goes on", switch: |r| r.core.lost_home_aborts = false },
    Mutant { name: "updates begin before home has caught up", switch: |r| r.core.home_catches_up = false },
    Mutant {
        name: "a new leader needs nothing",
        switch: |r| (r.core.whole_log_is_needed, r.core.comes_up_whole) = (false, false),
    },
    Mutant { name: "an old catalogue will do", switch: |r| r.core.catalogue_is_fresh = false },
    Mutant { name: "writes are not certified", switch: |r| r.core.certifies_writes = false },
    Mutant { name: "what home lacks is not waited for", switch: |r| r.core.held_waits = false },
    Mutant { name: "nobody proves that it is alive", switch: |r| r.core.held_is_proved = false },
    Mutant { name: "a proof counts from its answer", switch: |r| r.core.proof_is_of_asking = false },
    Mutant { name: "all claims are held at home", switch: |r| r.core.only_held_is_waited_for = false },
    Mutant { name: "many rows are held, new or not", switch: |r| r.inserts_alone_are_held = false },
    Mutant { name: "reads are not certified", switch: |r| r.core.certifies_reads = false },
    Mutant { name: "all is certified as if written last", switch: |r| r.turns_told = false },
    Mutant { name: "reads are not told", switch: |r| r.reads_told = false },
    Mutant { name: "who wrote nothing is not certified", switch: |r| r.tries_are_certified = false },
    Mutant { name: "references claim nothing", switch: |r| r.references_claimed = false },
    Mutant { name: "rows belong to no group", switch: |r| r.groups_told = false },
    Mutant { name: "rows change in other columns", switch: |r| r.columns_told = false },
    Mutant { name: "refreshes wait for ever", switch: |r| r.refresh_goes_first = false },
    Mutant { name: "waits inside servers are not told", switch: |r| r.server_waits_told = false },
    Mutant { name: "what is heard of a wait counts at once", switch: |r| r.core.waits_are_confirmed = false },
    Mutant { name: "a snapshot needs its first statement's", switch: |r| r.snapshot_needs_all = false },
    Mutant { name: "constraints read nothing", switch: |r| r.constraints_read = false },
    Mutant { name: "constraints speak of the snapshot", switch: |r| r.errors_are_reads = false },
    Mutant { name: "SERIALIZABLE is REPEATABLE READ", switch: |r| r.serializable_is_told = false },
    Mutant { name: "no identity at home", switch: |r| r.identity_inserted = false },
    Mutant { name: "no identities in refreshes", switch: |r| r.refresh_inserts_identities = false },
    Mutant { name: "a lost COMMIT counts as done", switch: |r| r.lost_commit_is_loss = false },
    Mutant { name: "a sent COMMIT counts as done", switch: |r| r.commit_is_awaited = false },
    Mutant { name: "a sent refresh counts as applied", switch: |r| r.apply_is_awaited = false },
    Mutant { name: "run again after Finish", switch: |r| r.no_rerun_once_finished = false },
    Mutant { name: "constraints are not claimed", switch: |r| r.constraints_claimed = false },
    Mutant { name: "what was not foreseen is not asked for", switch: |r| r.surprises_are_asked = false },
    Mutant { name: "FOR UPDATE claims nothing", switch: |r| r.locked_rows_claimed = false },
    Mutant { name: "LOCK TABLE claims nothing", switch: |r| r.locked_tables_claimed = false },
    Mutant { name: "unknown statements claim their rows", switch: |r| r.unknown_claims_everything = false },
    Mutant { name: "schema changes claim nothing", switch: |r| r.definitions_claimed = false },
    Mutant { name: "conclusions outlive schema changes", switch: |r| r.conclusions_are_checked = false },
    Mutant { name: "own schema changes do not count", switch: |r| r.own_changes_count = false },
    Mutant { name: "statements survive a restart", switch: |r| r.connections_are_bound = false },
    Mutant { name: "old backends are not ended", switch: |r| r.reset_ends_backends = false },
    Mutant { name: "applied set remembered, not read", switch: |r| r.applied_is_read_again = false },
    Mutant { name: "a copy is taken to be up to date", switch: |r| r.copy_is_read = false },
    Mutant { name: "durable before fsync", switch: |r| r.sync_before_logged = false },
    Mutant { name: "a failed fsync is tried again", switch: |r| r.failed_sync_stops = false },
    Mutant { name: "what cannot be applied is skipped", switch: |r| r.refused_is_diverged = false },
    Mutant { name: "what a savepoint took back is logged", switch: |r| r.undone_is_forgotten = false },
    Mutant { name: "SAVEPOINT takes the snapshot", switch: |r| r.control_takes_no_snapshot = false },
    Mutant { name: "held replicas go on", switch: |r| r.core.hold_stops_appends = false },
    Mutant { name: "an anchor that is up loses its place", switch: |r| r.core.takeover_of_lost = false },
    Mutant { name: "any replica becomes the anchor", switch: |r| r.core.takeover_by_holder = false },
    Mutant { name: "a new anchor need not catch up", switch: |r| r.core.takeover_catches_up = false },
    Mutant { name: "held before all are level", switch: |r| r.core.hold_waits = false },
    Mutant {
        name: "schema changes go where their tables are",
        switch: |r| r.core.schema_changes_go_everywhere = false,
    },
    Mutant { name: "forgotten claims do not count", switch: |r| r.core.forgotten_claims_count = false },
    Mutant { name: "who waits for a refresh is not seen", switch: |r| r.core.waiters_are_seen = false },
    Mutant { name: "neighbours are refreshed apart", switch: |r| r.core.neighbours_stay_together = false },
    Mutant { name: "neighbours were shown apart already", switch: |r| r.core.cuts_part = false },
    Mutant { name: "a replica comes up between neighbours", switch: |r| r.core.comes_up_whole = false },
    Mutant { name: "neighbours follow each other", switch: |r| r.core.unsent_are_waited_for = false },
    Mutant { name: "SERIALIZABLE has neighbours", switch: |r| r.core.serializable_alone = false },
    Mutant { name: "what a crash left out is skipped", switch: |r| r.missing_are_applied = false },
];

impl Mutant {
    /// All rules but this one.
    pub fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        (self.switch)(&mut rules);
        rules
    }
}
