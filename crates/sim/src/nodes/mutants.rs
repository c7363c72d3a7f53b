//! The mutants of several nodes: each is the code with one rule off.

use super::Switches;

/// A rule that can be off.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The mutant's error.
    pub name: &'static str,
    /// Switches the rule off.
    pub switch: fn(&mut Switches),
}

/// The rules of sessions that are connected to a replica, each as a mutant under `middle-r`.
pub const LOCAL_MUTANTS: &[Mutant] = &[
    Mutant { name: "a session connected anew sees less", switch: |s| s.rows.moved_sessions_see_all = false },
    Mutant { name: "a session misses its own commits", switch: |s| s.rows.own_commits_are_seen = false },
];

/// Every rule that has a switch.
pub const MUTANTS: &[Mutant] = &[
    Mutant { name: "serves before the old lease is over", switch: |s| s.nodes.leases_run_out = false },
    Mutant { name: "grants after the lease", switch: |s| s.nodes.grants_need_a_lease = false },
    Mutant { name: "a cut-off leader looks healthy", switch: |s| s.nodes.beats_tell_of_the_chair = false },
    Mutant { name: "a Finish runs again without its outcome", switch: |s| s.nodes.outcome_is_asked = false },
    Mutant { name: "late effects are carried out", switch: |s| s.nodes.late_effects_are_dropped = false },
    Mutant { name: "answered before a node has noted it", switch: |s| s.nodes.answered_when_noted = false },
    Mutant { name: "a grant to a node brings nothing", switch: |s| s.nodes.grants_bring_versions = false },
    Mutant { name: "appends do not compare the chair", switch: |s| s.appends_compare = false },
    Mutant { name: "applies before it has fenced", switch: |s| s.fenced_before_applied = false },
    Mutant { name: "incarnations count from 0", switch: |s| s.incarnations_tell_terms = false },
    Mutant { name: "a dead node's backends stay", switch: |s| s.backends_of_the_lost_end = false },
    Mutant { name: "retries an append under a new key", switch: |s| s.retries_keep_the_key = false },
    Mutant {
        name: "a replica comes back with what is not noted",
        switch: |s| s.replay_ends_at_what_is_noted = false,
    },
];
