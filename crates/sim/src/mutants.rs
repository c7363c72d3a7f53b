//! The mutants: each switches one rule off, and the simulator must then find a violation in some seed.

use crate::rules::Rules;

/// The code with one rule off.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The mutant's error.
    pub name: &'static str,
    /// Switches the rule off.
    pub switch: fn(&mut Rules),
}

/// Every rule that has a switch.
pub const MUTANTS: &[Mutant] = &[
    Mutant { name: "reads do not wait for needed versions", switch: |r| r.core.reads_wait = false },
    Mutant {
        name: "versions are needed only from the COMMIT at home",
        switch: |r| r.core.durable_is_needed = false,
    },
    Mutant { name: "overlapping transactions do not wait", switch: |r| r.core.overlap_waits = false },
    Mutant { name: "table claims do not wait", switch: |r| r.core.wide_claims_wait = false },
    Mutant {
        name: "a transaction that lost its locks is appended",
        switch: |r| r.core.overtaken_aborts = false,
    },
    Mutant {
        name: "only logged transactions count as overtaking",
        switch: |r| r.core.waiting_overtake = false,
    },
    Mutant { name: "answered and committed before durable", switch: |r| r.core.durable_first = false },
    Mutant {
        name: "open transactions survive the loss of their home",
        switch: |r| r.core.lost_home_aborts = false,
    },
    Mutant { name: "updates begin before home has caught up", switch: |r| r.core.home_catches_up = false },
    Mutant {
        name: "a new leader takes no logged version as needed",
        switch: |r| (r.core.whole_log_is_needed, r.core.comes_up_whole) = (false, false),
    },
    Mutant { name: "an outdated catalogue is accepted", switch: |r| r.core.catalogue_is_fresh = false },
    Mutant { name: "writes are not certified", switch: |r| r.core.certifies_writes = false },
    Mutant { name: "versions that home lacks are not waited for", switch: |r| r.core.held_waits = false },
    Mutant {
        name: "waiting transactions do not prove their locks",
        switch: |r| r.core.held_is_proved = false,
    },
    Mutant {
        name: "a proof counts from its answer, not its request",
        switch: |r| r.core.proof_is_of_asking = false,
    },
    Mutant {
        name: "every claim is certified by home's present state",
        switch: |r| r.core.only_held_is_waited_for = false,
    },
    Mutant { name: "large updates are treated like inserts", switch: |r| r.inserts_alone_are_held = false },
    Mutant { name: "homes lack tables that they need", switch: |r| r.core.homes_hold_all = false },
    Mutant { name: "a replica holds a table without its rows", switch: |r| r.gained_table_has_rows = false },
    Mutant { name: "homes lack parts of tables that they need", switch: |r| r.parts_are_touched = false },
    Mutant {
        name: "rows of parts that are not held are applied",
        switch: |r| r.unheld_parts_left_out = false,
    },
    Mutant { name: "homes lack the tables of their checks", switch: |r| r.checks_are_touched = false },
    Mutant { name: "reads are not certified", switch: |r| r.core.certifies_reads = false },
    Mutant { name: "claims are certified as of the last statement", switch: |r| r.turns_told = false },
    Mutant { name: "reads are not reported", switch: |r| r.reads_told = false },
    Mutant { name: "attempted writes are not certified", switch: |r| r.tries_are_certified = false },
    Mutant { name: "foreign keys claim nothing", switch: |r| r.references_claimed = false },
    Mutant { name: "written rows do not report their group", switch: |r| r.groups_told = false },
    Mutant { name: "the wrong changed columns are reported", switch: |r| r.columns_told = false },
    Mutant {
        name: "refreshes do not end backends that block them",
        switch: |r| r.refresh_goes_first = false,
    },
    Mutant { name: "lock waits inside servers are not reported", switch: |r| r.server_waits_told = false },
    Mutant { name: "lock waits count at their first report", switch: |r| r.core.waits_are_confirmed = false },
    Mutant {
        name: "a snapshot needs only its first statement's versions",
        switch: |r| r.snapshot_needs_all = false,
    },
    Mutant { name: "constraint checks read nothing", switch: |r| r.constraints_read = false },
    Mutant {
        name: "constraint checks count as reads of the snapshot",
        switch: |r| r.errors_are_reads = false,
    },
    Mutant { name: "SERIALIZABLE runs as REPEATABLE READ", switch: |r| r.serializable_is_told = false },
    Mutant { name: "home stores no identity", switch: |r| r.identity_inserted = false },
    Mutant { name: "refreshes store no identities", switch: |r| r.refresh_inserts_identities = false },
    Mutant { name: "a lost COMMIT counts as committed", switch: |r| r.lost_commit_is_loss = false },
    Mutant { name: "a sent COMMIT counts as committed", switch: |r| r.commit_is_awaited = false },
    Mutant { name: "a sent refresh counts as applied", switch: |r| r.apply_is_awaited = false },
    Mutant { name: "a finished transaction is retried", switch: |r| r.no_rerun_once_finished = false },
    Mutant { name: "unique and parent keys are not claimed", switch: |r| r.constraints_claimed = false },
    Mutant { name: "unpredicted rows are not reserved", switch: |r| r.unpredicted_is_reserved = false },
    Mutant { name: "FOR UPDATE claims nothing", switch: |r| r.locked_rows_claimed = false },
    Mutant { name: "LOCK TABLE claims nothing", switch: |r| r.locked_tables_claimed = false },
    Mutant {
        name: "unbounded statements claim only their rows",
        switch: |r| r.unknown_claims_everything = false,
    },
    Mutant { name: "schema changes claim nothing", switch: |r| r.definitions_claimed = false },
    Mutant { name: "analyses outlive schema changes", switch: |r| r.conclusions_are_checked = false },
    Mutant {
        name: "a transaction's own schema changes are ignored",
        switch: |r| r.own_changes_count = false,
    },
    Mutant { name: "statements survive a server restart", switch: |r| r.connections_are_bound = false },
    Mutant { name: "old backends are not ended", switch: |r| r.reset_ends_backends = false },
    Mutant { name: "the applied set is remembered, not read", switch: |r| r.applied_is_read_again = false },
    Mutant { name: "a copy counts as up to date", switch: |r| r.copy_is_read = false },
    Mutant { name: "records count as durable before fsync", switch: |r| r.sync_before_logged = false },
    Mutant { name: "a failed fsync is retried", switch: |r| r.failed_sync_stops = false },
    Mutant { name: "records that cannot be applied are skipped", switch: |r| r.refused_is_diverged = false },
    Mutant {
        name: "writes rolled back to a savepoint are logged",
        switch: |r| r.undone_is_forgotten = false,
    },
    Mutant { name: "SAVEPOINT takes the snapshot", switch: |r| r.control_takes_no_snapshot = false },
    Mutant { name: "appends go on while replicas are held", switch: |r| r.core.hold_stops_appends = false },
    Mutant { name: "a healthy anchor is replaced", switch: |r| r.core.takeover_of_lost = false },
    Mutant { name: "a partial replica becomes the anchor", switch: |r| r.core.takeover_by_holder = false },
    Mutant { name: "a new anchor does not catch up", switch: |r| r.core.takeover_catches_up = false },
    Mutant { name: "replicas count as held before they are level", switch: |r| r.core.hold_waits = false },
    Mutant {
        name: "schema changes reach only holders of their tables",
        switch: |r| r.core.schema_changes_go_everywhere = false,
    },
    Mutant { name: "forgotten claims are ignored", switch: |r| r.core.forgotten_claims_count = false },
    Mutant {
        name: "refreshes with waiters are delayed for batching",
        switch: |r| r.core.waiters_are_seen = false,
    },
    Mutant {
        name: "commit groups are refreshed in parts",
        switch: |r| r.core.commit_groups_stay_whole = false,
    },
    Mutant {
        name: "groups form from versions already shown apart",
        switch: |r| r.core.shown_apart_part = false,
    },
    Mutant { name: "a replica comes up inside a commit group", switch: |r| r.core.comes_up_whole = false },
    Mutant {
        name: "appends do not wait for unsent COMMITs",
        switch: |r| r.core.unsent_are_waited_for = false,
    },
    Mutant {
        name: "SERIALIZABLE transactions join commit groups",
        switch: |r| r.core.serializable_alone = false,
    },
    Mutant {
        name: "versions missing before the last are skipped",
        switch: |r| r.missing_are_applied = false,
    },
    Mutant {
        name: "answers are kept whatever was written meanwhile",
        switch: |r| r.kept_is_unwritten = false,
    },
    Mutant {
        name: "kept answers stay valid until home commits",
        switch: |r| r.kept_ends_when_durable = false,
    },
    Mutant { name: "kept answers are looked at only once", switch: |r| r.kept_is_looked_at_again = false },
    Mutant { name: "kept answers outlive schema changes", switch: |r| r.kept_knows_its_catalogue = false },
    Mutant { name: "reads stay at replicas that are behind", switch: |r| r.stays_where_all_is = false },
];

/// The waits of chains, each of which certification covers. With certification off, and clients whose transactions are all
/// known, nothing else orders these, so a judge must notice each (Gargamel section III, i and iv).
pub const CHAIN_MUTANTS: &[Mutant] = &[
    Mutant { name: "merging chains are not waited for", switch: |r| r.core.merges_wait = false },
    Mutant { name: "a link is not waited for where a chain splits", switch: |r| r.core.splits_wait = false },
    Mutant {
        name: "committed predecessors are forgotten",
        switch: |r| r.core.committed_predecessors_count = false,
    },
];

/// The rules of protocols with stamps. Certification covers the first three, so they are switched off together with it, and clients
/// run only transactions that are all known. The last one matters only where predictions are wrong, so with certification.
pub const STAMP_MUTANTS: &[Mutant] = &[
    Mutant {
        name: "conflicting older ones are not waited for",
        switch: |r| r.core.older_are_waited_for = false,
    },
    Mutant { name: "conflicting younger ones are not undone", switch: |r| r.core.younger_are_undone = false },
    Mutant {
        name: "records are appended out of stamp order",
        switch: |r| r.core.appends_are_ordered = false,
    },
    Mutant { name: "digests are not compared", switch: |r| r.core.digests_are_compared = false },
    Mutant { name: "performers commit when they are done", switch: |r| r.performers_wait = false },
    Mutant {
        name: "older ones wait inside servers for younger ones",
        switch: |r| r.core.younger_give_way = false,
    },
];

/// The promises of protocols with local replicas.
pub const LOCAL_MUTANTS: &[Mutant] = &[
    Mutant { name: "reads leave their local replica", switch: |r| r.core.reads_stay_local = false },
    Mutant { name: "sessions miss their own commits", switch: |r| r.core.own_commits_are_seen = false },
    Mutant {
        name: "a session sees less at another local replica",
        switch: |r| r.core.moved_sessions_see_all = false,
    },
    Mutant {
        name: "a session sees less after a stay elsewhere",
        switch: |r| r.core.elsewhere_counts = false,
    },
    Mutant { name: "writes are not certified", switch: |r| r.core.certifies_writes = false },
    Mutant { name: "reads are not certified", switch: |r| r.core.certifies_reads = false },
    Mutant { name: "overlapping transactions do not wait", switch: |r| r.core.overlap_waits = false },
    Mutant { name: "answered and committed before durable", switch: |r| r.core.durable_first = false },
    Mutant {
        name: "open transactions survive the loss of their home",
        switch: |r| r.core.lost_home_aborts = false,
    },
    Mutant { name: "updates begin before home has caught up", switch: |r| r.core.home_catches_up = false },
    Mutant {
        name: "commit groups are refreshed in parts",
        switch: |r| r.core.commit_groups_stay_whole = false,
    },
    Mutant { name: "the applied set is remembered, not read", switch: |r| r.applied_is_read_again = false },
    Mutant {
        name: "versions missing before the last are skipped",
        switch: |r| r.missing_are_applied = false,
    },
    Mutant { name: "a copy counts as up to date", switch: |r| r.copy_is_read = false },
];

impl Mutant {
    /// All rules, except the one that the mutant switches off.
    pub fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        (self.switch)(&mut rules);
        rules
    }
}
