//! C-JDBC: a scheduler that gives each write operation a number, and sends it to all replicas that hold what it writes.
//!
//! "Middle-R, C-JDBC and MySQL Cluster", section 2.2; what the paper leaves open, our reading and the guarantees of each
//! setting are in docs/explanation/protocols/c-jdbc.md.
//!
//! ```text
//! client -> Request -> Scheduler -> ToReplica -> ReplicaQueue -> Work -> server
//!        <- Answer  <-           <- FromReplica <-           <- executed | waits
//!                          |
//!                          +-> Output::Log: the recovery log, in the order of the numbers
//! ```
//!
//! Example: with `Level::Optimistic` a second UPDATE of `item` is numbered when the transaction of the first is over at all replicas;
//! with `Level::PassThrough` at once, and each server lets it wait for the same row.
//!
//! Invariant: replicas that hold a table execute the operations on it in one order, that of the numbers. Not here: texts of
//! statements, connections, the file of the log.

pub mod balancer;
pub mod deadlock;
pub mod early_response;
pub mod message;
pub mod query_cache;
pub mod recovery_log;
pub mod replica_queue;
mod scheduler;
pub mod table_locks;

use balancer::Balance;
use early_response::Respond;
use query_cache::Granularity;
pub use scheduler::{Output, Return, Scheduler};

/// The locks that the scheduler takes before it numbers a statement (section 2.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// None: rows are locked by the servers.
    PassThrough,
    /// Writers of a table wait for each other.
    Optimistic,
    /// Readers wait, too.
    Pessimistic,
}

/// The choices of a virtual database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choices {
    /// Which statements wait for which.
    pub level: Level,
    /// When a client is answered.
    pub respond: Respond,
    /// Where reads go.
    pub balance: Balance,
    /// What a write makes obsolete of the answers that are kept, if any are.
    pub cache: Option<Granularity>,
    /// The rules, all on except in mutants.
    pub rules: Rules,
}

/// A replica that lacks more operations than this is behind: the others do not wait for it.
pub const COUNTS_WITHIN: usize = 64;

/// Rules that a mutant of the simulator can switch off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Writers of a table wait for each other.
    pub writers_wait: bool,
    /// Readers of a table wait for its writers.
    pub readers_wait: bool,
    /// Locks are held until the transaction is over at all replicas.
    pub locks_outlive_answers: bool,
    /// A commit is in the log before replicas are told of it.
    pub log_comes_first: bool,
    /// Cycles of waits are looked for.
    pub deadlocks_are_found: bool,
    /// A replica that returns gets reads only when it has what it missed.
    pub reads_await_return: bool,
    /// A replica that returns gets what it missed.
    pub missed_are_replayed: bool,
    /// A replica is behind until it has no more operations to execute than this. Others do not wait for it.
    pub counts_within: usize,
    /// A replica that is behind gets no reads.
    pub behind_read_nothing: bool,
    /// A read waits while the replicas that could run it are behind.
    pub reads_wait_for_level: bool,
    /// Reads go to replicas that hold their tables.
    pub reads_need_holders: bool,
    /// As many replicas as the policy says have executed what is answered.
    pub answers_are_counted: bool,
    /// Answers that may lack what an open transaction has written are not kept.
    pub open_writers_count: bool,
    /// Answers from tables that were written since are not given.
    pub writes_end_answers: bool,
    /// A transaction of which a statement has failed is aborted before anything else gets a number.
    pub failures_end_at_once: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            writers_wait: true,
            readers_wait: true,
            locks_outlive_answers: true,
            log_comes_first: true,
            deadlocks_are_found: true,
            reads_await_return: true,
            missed_are_replayed: true,
            counts_within: COUNTS_WITHIN,
            behind_read_nothing: true,
            reads_wait_for_level: true,
            reads_need_holders: true,
            answers_are_counted: true,
            open_writers_count: true,
            writes_end_answers: true,
            failures_end_at_once: true,
        }
    }
}

#[cfg(test)]
mod tests;
