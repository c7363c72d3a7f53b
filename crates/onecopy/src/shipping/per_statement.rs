//! What is refused where each statement brings its own tables, beside what is refused wherever statements are shipped.
//!
//! Example: under `pass-through` two transactions may draw from one sequence at once, at two replicas, and get the same
//! value. So a statement that draws is refused there. Under table locks, a sequence is a table that the drawing
//! transaction writes.

use super::scheduling::LockTime;
use super::session::{ClientStatement, Session};
use super::statement::{self, Classified, Execution, refused};
use super::transaction_state::{Block, TransactionState};
use crate::error::{Fault, Refusal};

const LEVEL_HINT: &str = "Start the node with transaction_level = optimistic or pessimistic.";

impl Session {
    /// Begins the transaction that the client has announced, for its first statement. One whose tables are not known, or
    /// that changes the schema, runs while no other transaction does.
    pub(super) async fn begin_with(&mut self, sent: &ClientStatement<'_>, text: &str) -> Result<(), Fault> {
        let catalogue = self.worker.coordinator.database.catalogue();
        let TransactionState::Announced(announced) = &self.transaction else { return Ok(()) };
        if self.scheduler.lock_time().is_per_statement()
            && statement::classify(sent.statement, text, &catalogue)?.locks.are_everything()
        {
            let mode = announced.mode;
            return self
                .begin(mode, Block::Explicit, |catalogue| {
                    Ok(statement::classify(sent.statement, text, catalogue)?.locks)
                })
                .await;
        }
        self.begin_declared().await
    }
}

/// Whether a statement runs at all replicas.
pub(super) fn is_writing(lock_time: LockTime, execution: Execution) -> bool {
    match execution {
        Execution::Write | Execution::Plain | Execution::Ddl | Execution::Draw => true,
        // Row locks at one replica alone could close a cycle that no other replica sees.
        Execution::LockingRead => lock_time.is_per_statement(),
        Execution::Read | Execution::UnprovenRead => false,
    }
}

/// Refuses a statement that cannot run here. `is_alone` if no other transaction runs beside this one.
pub(super) fn check(
    lock_time: LockTime,
    classified: &Classified,
    text: &str,
    is_alone: bool,
) -> Result<(), Refusal> {
    if is_alone {
        return Ok(());
    }
    if classified.locks.are_everything() {
        return Err(refused(
            "a statement whose tables are not known, or that changes the schema, after other statements of a transaction",
            "Make it the first statement of a transaction.",
        ));
    }
    if lock_time.has_one_writer() {
        return Ok(());
    }
    match classified.execution {
        Execution::Draw | Execution::Plain => Err(draws()),
        Execution::LockingRead if skips(text) => {
            Err(refused("NOWAIT or SKIP LOCKED under pass-through", LEVEL_HINT))
        }
        _ => Ok(()),
    }
}

/// Refuses to compute a value at one replica that other transactions may change meanwhile.
pub(super) fn check_evaluation(
    lock_time: LockTime,
    query: &str,
    sequences: &[String],
) -> Result<(), Refusal> {
    if lock_time.has_one_writer() {
        return Ok(());
    }
    if !sequences.is_empty() {
        return Err(draws());
    }
    // The first word is that of the query itself.
    if query.to_ascii_lowercase().matches("select").count() > 1 {
        return Err(refused("a value by chance that reads tables, under pass-through", LEVEL_HINT));
    }
    Ok(())
}

/// Refuses savepoints where a return to one would free rows for which others wait.
pub(super) fn check_savepoint(lock_time: LockTime) -> Result<(), Refusal> {
    if lock_time.has_one_writer() {
        return Ok(());
    }
    Err(refused("a savepoint under pass-through", LEVEL_HINT))
}

/// Refuses settings by which a server would look for deadlocks itself.
pub(super) fn check_setting(lock_time: LockTime, name: &str) -> Result<(), Refusal> {
    if lock_time.is_per_statement() && name == "deadlock_timeout" {
        return Err(refused("SET deadlock_timeout", "The scheduler looks for deadlocks, not the servers."));
    }
    Ok(())
}

fn draws() -> Refusal {
    refused("a value of a sequence under pass-through", LEVEL_HINT)
}

/// Whether a row-locking read may pass over locked rows. A word of that kind inside a literal counts, too.
fn skips(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("nowait") || text.contains("skip")
}
