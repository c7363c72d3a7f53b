//! Several schedulers that ship statements, under faults: the real schedulers and proxies between simulated clients and databases.
//!
//! Example: `cargo xtask sim --schedulers --seeds 1000`. A run has one of the five protocols, one to three schedulers, two or three replicas
//! and four tables. Schedulers are killed under load, replicas are lost, and in some runs all schedulers fail at once, with or without
//! all replicas; then databases are put back to their checkpoints, and the logs of all schedulers are read.
//!
//! The judge wants (conflict-aware scheduling, sections 3.4 and 5): all replicas are equal in the end, no acknowledged commit is lost,
//! nothing is done twice or in part, each table was written in the order of the numbers, each read sees one moment of that order, not
//! earlier than what was acknowledged before it began, and every client is served in the end.
//!
//! Not here: a scheduler or a replica that comes back while others work.

mod draw;
pub mod mutants;
mod replica;
mod restart;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cluster::protocols::shipping::ReplicationRules;

/// The rules, one switch each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switches {
    /// The rules of the schedulers.
    pub replication: ReplicationRules,
    /// A commit waits for the disk of its scheduler.
    pub log_is_awaited: bool,
    /// After the loss of all schedulers, all their logs are read.
    pub all_logs_are_read: bool,
    /// The log is kept from the checkpoints of the replicas on.
    pub log_is_kept_from_checkpoints: bool,
    /// A checkpoint says which later writes it has.
    pub checkpoints_tell_writes: bool,
    /// After the loss of all schedulers, the numbers that are not logged are filled.
    pub lost_numbers_are_filled: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            replication: ReplicationRules::default(),
            log_is_awaited: true,
            all_logs_are_read: true,
            log_is_kept_from_checkpoints: true,
            checkpoints_tell_writes: true,
            lost_numbers_are_filled: true,
        }
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
    /// Schedulers that were killed while others lived.
    pub killed: u64,
    /// Transactions of killed schedulers that were done again.
    pub redone: u64,
    /// Those that were undone.
    pub undone: u64,
    /// Replicas that were lost.
    pub lost: u64,
    /// Losses of all schedulers.
    pub restarts: u64,
    /// Those with the loss of all replicas.
    pub restored: u64,
}

impl Counts {
    /// Adds those of another run.
    pub fn add(&mut self, other: Self) {
        self.happenings += other.happenings;
        self.committed += other.committed;
        self.reads += other.reads;
        self.killed += other.killed;
        self.redone += other.redone;
        self.undone += other.undone;
        self.lost += other.lost;
        self.restarts += other.restarts;
        self.restored += other.restored;
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
        findings: vec!["a check of the schedulers fails".to_owned()],
        counts: Counts::default(),
        trace: String::new(),
    })
}
