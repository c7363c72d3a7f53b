//! Several nodes whose sessions share one scheduler that ships statements, under faults: the real scheduler and the real proxies at the
//! leader, and models of what the program puts around them.
//!
//! Example: `cargo xtask sim --linked --seeds 1000`. A run has one of the five protocols, three nodes, two or three replicas and four
//! tables. Each client is at a node, whose session asks the leader over a link; what its transactions do at the replicas runs on
//! connections of its node. The log is the only record of a decision.
//!
//! Nodes die and return, pause and wake up, lose their links and their way to the log. Leaders are replaced, also needlessly. Servers
//! crash, with or without their last commits.
//!
//! The judge wants all replicas equal to each other and to the log in the order of terms and numbers, no acknowledged commit lost, nothing
//! of what was rolled back, nothing twice or in part, reads of one moment that are not stale, and every client served in the end.
//!
//! Not here: changes of the schema, statements that fail, logs that are trimmed, and limits of memory.

mod database;
mod draw;
mod ids;
mod leader;
mod log;
mod messages;
pub mod mutants;
mod node;
mod slots;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use mutants::Rule;

/// The rules: all, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Switches {
    off: Option<Rule>,
}

impl Switches {
    /// All rules but this one.
    pub fn without(rule: Rule) -> Self {
        Self { off: Some(rule) }
    }

    fn has(self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}

/// What happened, counted over runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Agenda entries.
    pub happenings: u64,
    /// Commits and single updates that were acknowledged.
    pub committed: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Terms.
    pub terms: u64,
    /// Nodes that died.
    pub killed: u64,
    /// Nodes that paused.
    pub paused: u64,
    /// Servers that crashed.
    pub crashed: u64,
    /// Jobs of transactions whose crew was lost.
    pub orphaned: u64,
    /// Outcomes that a later leader or link has told.
    pub outcomes: u64,
    /// Transactions that replicas ran from the log.
    pub redone: u64,
}

impl Counts {
    /// Adds those of another run.
    pub fn add(&mut self, other: Self) {
        self.happenings += other.happenings;
        self.committed += other.committed;
        self.reads += other.reads;
        self.terms += other.terms;
        self.killed += other.killed;
        self.paused += other.paused;
        self.crashed += other.crashed;
        self.orphaned += other.orphaned;
        self.outcomes += other.outcomes;
        self.redone += other.redone;
    }
}

/// A judged run.
#[derive(Debug)]
pub struct Verdict {
    /// The violations.
    pub findings: Vec<String>,
    /// What happened.
    pub counts: Counts,
    /// The story, if it was requested.
    pub trace: String,
}

/// Runs a seed and judges it.
pub fn run_seed(seed: u64, switches: Switches, is_traced: bool) -> Verdict {
    let run = catch_unwind(AssertUnwindSafe(|| world::World::new(seed, switches, is_traced).run()));
    run.unwrap_or_else(|_| Verdict {
        findings: vec!["a check of the scheduler or a proxy fails".to_owned()],
        counts: Counts::default(),
        trace: String::new(),
    })
}
