//! C-JDBC under faults: the real scheduler and replica queues between simulated clients and servers.
//!
//! Example: `cargo xtask sim --protocol c-jdbc --level optimistic --respond first --seeds 1000`. Without the two options, each seed
//! draws them. A run has two to four replicas, placed tables, crashes of replicas and of the controller, and a log whose end is lost
//! when the controller crashes.
//!
//! The judges are the rows of the table of guarantees in docs/explanation/protocols/c-jdbc.md ([`judge`]), and no others.
//!
//! A statement may violate a constraint, at every server; which one is drawn, not found out. Not here: texts of statements. Servers have MVCC snapshots of single statements, row locks in order of
//! arrival, and READ COMMITTED.

mod client;
mod disk;
mod draw;
pub mod judge;
mod kept;
pub mod mutants;
mod replica;
mod server;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cluster::protocols::c_jdbc::early_response::Respond;
use cluster::protocols::c_jdbc::replica_queue::QueueRules;
use cluster::protocols::c_jdbc::{Level, Rules};

use crate::check::{Anomaly, Finding};
use crate::history::History;
use crate::trace::Trace;

/// The rules of the driver that a mutant can switch off, with those of the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switches {
    /// The rules of the scheduler.
    pub core: Rules,
    /// The rules of the queue at a replica.
    pub queue: QueueRules,
    /// Servers leave deadlocks to the scheduler.
    pub servers_leave_deadlocks: bool,
    /// A replica says what it has committed.
    pub kept_is_told: bool,
    /// Under pass-through, a replica returns as of its checkpoint.
    pub checkpoint_is_restored: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            core: Rules::default(),
            queue: QueueRules::default(),
            servers_leave_deadlocks: true,
            kept_is_told: true,
            checkpoint_is_restored: true,
        }
    }
}

/// The options of a run; what is `None` is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The level.
    pub level: Option<Level>,
    /// The early response.
    pub respond: Option<Respond>,
    /// The rules.
    pub switches: Switches,
}

/// What happened, counted over runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Agenda entries.
    pub happenings: u64,
    /// Transactions whose commit was answered.
    pub committed: u64,
    /// Transactions that were aborted for a deadlock.
    pub deadlocks: u64,
    /// Returns of replicas.
    pub returns: u64,
    /// Restarts of the controller.
    pub restarts: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Statements that no replica could execute.
    pub not_held: u64,
    /// Kept answers that were given again.
    pub given_again: u64,
    /// Answers that no replica takes part, though one did that holds everything.
    pub given_up: u64,
}

impl Counts {
    /// Adds those of another run.
    pub fn add(&mut self, other: Self) {
        self.happenings += other.happenings;
        self.committed += other.committed;
        self.deadlocks += other.deadlocks;
        self.returns += other.returns;
        self.restarts += other.restarts;
        self.checkpoints += other.checkpoints;
        self.not_held += other.not_held;
        self.given_again += other.given_again;
        self.given_up += other.given_up;
    }
}

/// A judged run.
#[derive(Debug)]
pub struct Verdict {
    /// The violations.
    pub findings: Vec<Finding>,
    /// What clients saw.
    pub history: History,
    /// What happened.
    pub counts: Counts,
    /// The story, if it was requested.
    pub trace: Trace,
}

/// Runs a seed and judges it.
pub fn run_seed(seed: u64, options: Options, is_traced: bool) -> Verdict {
    let run = catch_unwind(AssertUnwindSafe(|| world::run(seed, options, is_traced)));
    match run {
        Ok(ended) => {
            let mut findings = ended.findings;
            findings.extend(judge::judge(&ended.history, ended.level, ended.respond));
            Verdict { findings, history: ended.history, counts: ended.counts, trace: ended.trace }
        }
        Err(_) => Verdict {
            findings: vec![Finding { anomaly: Anomaly::Order, text: "the core gave up".to_owned() }],
            history: History::default(),
            counts: Counts::default(),
            trace: Trace::default(),
        },
    }
}
