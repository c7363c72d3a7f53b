//! The sequences of a replica, when it comes back: it may be the home, have been it, or become it.
//!
//! Its server has lost moves of sequences if it recovered from a crash, and only then; it tells by a table that such a
//! recovery empties. Then each sequence is moved to its mark, since up to there its values may have been handed out. After
//! an orderly stop nothing is moved, so nothing is skipped.
//!
//! The marks are those of the records in the log and those that the server remembers, which are the ones of
//! records that were trimmed.

use std::sync::atomic::Ordering;

use cluster::ids::{ReplicaId, Version};

use super::READ_BYTES_MAX;
use crate::backend::Connection;
use crate::capture::sequences::{load_marks, move_call};
use crate::coordinator::Coordinator;
use crate::replica::sequence_allocator::unlend;

const OPTIONS: &str =
    "-c synchronous_commit=on -c session_replication_role=replica -c search_path=pg_catalog";

/// The row that says that nothing was lost since.
const IS_UNBROKEN: &str = "SELECT 1 FROM onecopy_capture.unbroken";
const UNBROKEN: &str = "INSERT INTO onecopy_capture.unbroken VALUES (now())";

/// Moves the sequences to where the log says, if the server may have lost that. It has applied everything up to
/// `upto`.
pub(super) async fn mend_sequences(
    coordinator: &Coordinator,
    replica: ReplicaId,
    upto: Version,
) -> Result<(), String> {
    let address = &coordinator.seats[replica].address;
    let text = |error: crate::backend::BackendError| error.to_string();
    let mut connection =
        Connection::open_own(address, &coordinator.served, &[("options", OPTIONS)]).await.map_err(text)?;
    learn(coordinator, &mut connection).await?;
    // Ranges were lent to the former incarnation.
    coordinator.sequences().leases.replica_changed(replica);
    unlend(coordinator, &mut connection).await.map_err(text)?;
    coordinator.seats[replica].is_lent.store(false, Ordering::Release);
    if !connection.simple(IS_UNBROKEN).await.map_err(text)?.is_empty() {
        return Ok(());
    }
    let marks = coordinator.sequences().marks(None, upto, coordinator.log.durable());
    connection.simple("BEGIN").await.map_err(text)?;
    // Those of other holders, too: its data may be those of one of them.
    for mark in &marks {
        // One that was dropped since has no number here any more.
        let call = move_call(mark);
        let sql = format!("SELECT {call} FROM onecopy_capture.sequences WHERE id = {}", mark.id);
        connection.simple(&sql).await.map_err(text)?;
    }
    connection.simple(UNBROKEN).await.map_err(text)?;
    connection.simple("COMMIT").await.map_err(text)?;
    tracing::info!(sequences = marks.len(), replica = %coordinator.seats[replica].name, "the sequences stand at their marks");
    Ok(())
}

/// Once in the life of a node: what the records say that are there from before, and what the server remembers.
async fn learn(coordinator: &Coordinator, connection: &mut Connection) -> Result<(), String> {
    let _alone = coordinator.learning.lock().await;
    if coordinator.knows_sequences() {
        return Ok(());
    }
    let (mut next, durable) = (coordinator.log.first_retained(), coordinator.log.durable());
    while next <= durable {
        let records = coordinator.log.read_from(next, READ_BYTES_MAX).map_err(|error| error.to_string())?;
        let last = records.last().ok_or_else(|| format!("the log does not have version {next}"))?;
        next = last.header().last.next();
        let mut sequences = coordinator.sequences();
        for record in &records {
            for mark in record.sequences() {
                sequences.note(record.header().last, mark);
            }
        }
    }
    let remembered = load_marks(connection).await.map_err(|error| error.to_string())?;
    let mut sequences = coordinator.sequences();
    for mark in remembered {
        sequences.note(Version::ZERO, mark);
    }
    drop(sequences);
    coordinator.sequences_known();
    Ok(())
}
