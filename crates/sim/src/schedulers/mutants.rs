//! The mutants of several schedulers: each is the code with one rule off.

use super::Switches;

/// A rule that can be off.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The mutant's error.
    pub name: &'static str,
    /// Switches the rule off.
    pub switch: fn(&mut Switches),
}

/// Every rule that has a switch.
pub const MUTANTS: &[Mutant] = &[
    Mutant { name: "begins before the others know", switch: |s| s.replication.starts_are_awaited = false },
    Mutant { name: "commits before the others know", switch: |s| s.replication.ends_are_awaited = false },
    Mutant { name: "decided transactions are undone", switch: |s| s.replication.decided_is_redone = false },
    Mutant { name: "undecided transactions stay", switch: |s| s.replication.undecided_is_undone = false },
    Mutant { name: "gaps of the sequencer stay", switch: |s| s.replication.gaps_are_filled = false },
    Mutant { name: "the next sequencer goes back", switch: |s| s.replication.sequencer_goes_on = false },
    Mutant { name: "a take-over is not told first", switch: |s| s.replication.takeovers_are_told = false },
    Mutant {
        name: "takes over while others hear the failed one",
        switch: |s| s.replication.views_are_awaited = false,
    },
    Mutant {
        name: "single reads know own numbers only",
        switch: |s| s.replication.reads_go_after_all = false,
    },
    Mutant { name: "a commit does not wait for the log", switch: |s| s.log_is_awaited = false },
    Mutant { name: "one scheduler's log is read", switch: |s| s.all_logs_are_read = false },
    Mutant {
        name: "the log is kept for live replicas only",
        switch: |s| s.log_is_kept_from_checkpoints = false,
    },
    Mutant { name: "a checkpoint does not say what it has", switch: |s| s.checkpoints_tell_writes = false },
    Mutant { name: "numbers of lost schedulers stay open", switch: |s| s.lost_numbers_are_filled = false },
];
