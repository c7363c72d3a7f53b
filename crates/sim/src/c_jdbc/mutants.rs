//! The mutants of C-JDBC: each breaks one promise of the table, or the order on which all stand.

use cluster::protocols::c_jdbc::Level;
use cluster::protocols::c_jdbc::early_response::Respond;

use super::{Options, Switches};

/// The code with one rule off, under the level and the response at which the rule matters.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The mutant's error.
    pub name: &'static str,
    /// The level.
    pub level: Level,
    /// The response.
    pub respond: Respond,
    /// Switches the rule off.
    pub switch: fn(&mut Switches),
}

impl Mutant {
    /// The options of its runs.
    pub fn options(&self) -> Options {
        let mut switches = Switches::default();
        (self.switch)(&mut switches);
        Options { level: Some(self.level), respond: Some(self.respond), switches }
    }
}

const fn mutant(name: &'static str, level: Level, respond: Respond, switch: fn(&mut Switches)) -> Mutant {
    Mutant { name, level, respond, switch }
}

use Level::{Optimistic, PassThrough, Pessimistic};
use Respond::{All, First};

/// Every rule that has a switch.
pub const MUTANTS: &[Mutant] = &[
    mutant("operations run out of order", PassThrough, All, |s| s.queue.keeps_order = false),
    mutant("statements pass one that waits", PassThrough, All, |s| s.queue.queues_behind_stuck = false),
    mutant("statements do not wait for what has passed them", PassThrough, First, |s| {
        s.queue.passed_await_passers = false;
    }),
    mutant("ends do not pass what waits", PassThrough, All, |s| s.queue.ends_pass = false),
    mutant("ends pass what they may free", PassThrough, First, |s| {
        s.queue.ends_share_what_they_free = false;
    }),
    mutant("freed statements are not awaited", PassThrough, First, |s| s.queue.awaits_freed = false),
    mutant("a full queue waits for what is behind it", PassThrough, All, |s| {
        s.queue.waiting_make_room = false;
    }),
    mutant("what has failed is aborted when its client says so", PassThrough, First, |s| {
        s.core.failures_end_at_once = false;
    }),
    mutant("servers choose victims of deadlocks", PassThrough, All, |s| {
        s.servers_leave_deadlocks = false;
        s.core.deadlocks_are_found = false;
    }),
    mutant("no checkpoint is restored", PassThrough, All, |s| s.checkpoint_is_restored = false),
    mutant("writers do not wait for each other", Optimistic, All, |s| s.core.writers_wait = false),
    mutant("readers do not wait for writers", Pessimistic, All, |s| s.core.readers_wait = false),
    mutant("locks end with the answer", Pessimistic, First, |s| s.core.locks_outlive_answers = false),
    mutant("the first replica answers for all", Optimistic, All, |s| s.core.answers_are_counted = false),
    mutant("deadlocks are not looked for", Optimistic, All, |s| s.core.deadlocks_are_found = false),
    mutant("commits are sent before they are logged", Optimistic, First, |s| s.core.log_comes_first = false),
    mutant("a returning replica reads at once", Optimistic, All, |s| s.core.reads_await_return = false),
    mutant("a replica that is behind gets reads", Optimistic, All, |s| {
        s.core.behind_read_nothing = false;
    }),
    mutant("a read is given up if all replicas are behind", Optimistic, All, |s| {
        s.core.reads_wait_for_level = false;
    }),
    mutant("a returning replica misses what it missed", Optimistic, All, |s| {
        s.core.missed_are_replayed = false;
    }),
    mutant("a returning replica repeats what it has", Optimistic, All, |s| s.kept_is_told = false),
    mutant("answers are kept while their writers are open", Optimistic, All, |s| {
        s.core.open_writers_count = false;
    }),
    mutant("answers outlive writes", Pessimistic, All, |s| s.core.writes_end_answers = false),
    mutant("reads go where their tables are not held", Pessimistic, All, |s| {
        s.core.reads_need_holders = false;
    }),
];
