//! The mutants: each switches one rule off, and the simulator must then find a violation in some seed.

use crate::rules::Rules;

/// The code with one rule off.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// What the mutant does wrong.
    pub name: &'static str,
    /// Switches the rule off.
    pub switch: fn(&mut Rules),
}

/// Every rule that has a switch.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "refreshes do not end backends that block them",
        switch: |r| r.refresh_goes_first = false,
    },
    Mutant { name: "lock waits inside servers are not reported", switch: |r| r.server_waits_told = false },
    Mutant { name: "lock waits count at their first report", switch: |r| r.core.waits_are_confirmed = false },
    Mutant { name: "unpredicted rows are not reserved", switch: |r| r.unpredicted_is_reserved = false },
    Mutant { name: "FOR UPDATE claims nothing", switch: |r| r.locked_rows_claimed = false },
    Mutant { name: "LOCK TABLE claims nothing", switch: |r| r.locked_tables_claimed = false },
    Mutant { name: "appends go on while replicas are held", switch: |r| r.core.hold_stops_appends = false },
    Mutant { name: "a healthy anchor is replaced", switch: |r| r.core.takeover_of_lost = false },
    Mutant { name: "a partial replica becomes the anchor", switch: |r| r.core.takeover_by_holder = false },
    Mutant { name: "a new anchor does not catch up", switch: |r| r.core.takeover_catches_up = false },
    Mutant { name: "replicas count as held before they are level", switch: |r| r.core.hold_waits = false },
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
    Mutant {
        name: "appends do not wait for unsent COMMITs",
        switch: |r| r.core.unsent_are_waited_for = false,
    },
];

impl Mutant {
    /// All rules, except the one that the mutant switches off.
    pub fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        (self.switch)(&mut rules);
        rules
    }
}
