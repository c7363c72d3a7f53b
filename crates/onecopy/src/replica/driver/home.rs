//! Mends the sequences of a replica that comes back: it may be the home, have been it, or become it.
//!
//! Its server has lost moves of sequences only if it recovered from a crash. A table tells: such a recovery empties it.
//! Then each sequence is moved to its mark, since its values up to there may have been given out. After an orderly stop
//! no sequence is moved, so no value is skipped.
//!
//! The marks come from the records in the log, and from the server. The server remembers those of trimmed records.

use std::fmt;
use std::sync::atomic::Ordering;

use cluster::ids::{ReplicaId, Version};
use commitlog::LogError;

use crate::backend::{BackendError, OwnConnection};
use crate::capture::sequences::{load_marks, move_call};
use crate::coordinator::Leader;
use crate::replica::sequence_allocator::unlend;

/// The bytes of records that are read from the log at a time (one record may be larger).
const READ_BYTES_MAX: usize = 8 << 20;

const OPTIONS: &str =
    "-c synchronous_commit=on -c session_replication_role=replica -c search_path=pg_catalog";

/// The server has this row if it has lost no move since the row was inserted.
const IS_UNBROKEN: &str = "SELECT 1 FROM onecopy_capture.unbroken";
const UNBROKEN: &str = "INSERT INTO onecopy_capture.unbroken VALUES (now())";

/// Why the sequences of a replica do not stand at their marks.
#[derive(Debug)]
pub(super) enum MendError {
    /// The server refused something, or is lost.
    Backend(BackendError),
    /// The server took too long.
    NoAnswer,
    /// The log cannot be read.
    Log(LogError),
    /// The log does not have a version that it should have.
    Missing(Version),
}

impl From<BackendError> for MendError {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

impl From<LogError> for MendError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl fmt::Display for MendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(error) => error.fmt(f),
            Self::NoAnswer => f.write_str("the server does not answer"),
            Self::Log(error) => error.fmt(f),
            Self::Missing(version) => write!(f, "the log does not have version {version}"),
        }
    }
}

/// Moves the sequences to their marks if the server may have lost moves. The server has applied all records up to
/// `upto`.
pub(super) async fn mend_sequences(
    leader: &Leader,
    replica: ReplicaId,
    upto: Version,
) -> Result<(), MendError> {
    let address = &leader.seats[replica].address;
    let mut connection =
        OwnConnection::open(address, &leader.database.served, &[("options", OPTIONS)]).await?;
    let earlier_marks = &leader.sequences.earlier_marks;
    let loading = load_earlier_marks(leader, &mut connection);
    earlier_marks.get_or_try_init(|| loading).await?;
    // The former incarnation may hold leases.
    leader.database.sequences().leases.replica_changed(replica);
    unlend(leader, &mut connection).await?;
    leader.seats[replica].is_lent.store(false, Ordering::Release);
    if !connection.query(IS_UNBROKEN).await?.is_empty() {
        return Ok(());
    }
    let marks = leader.database.sequences().marks(None, upto, leader.log.durable());
    connection.query("BEGIN").await?;
    // Marks of other holders count, too: the server's data may be a copy of theirs.
    for mark in &marks {
        // A dropped sequence has no number here any more.
        let call = move_call(mark);
        let sql = format!("SELECT {call} FROM onecopy_capture.sequences WHERE id = {}", mark.id);
        connection.query(&sql).await?;
    }
    connection.query(UNBROKEN).await?;
    connection.query("COMMIT").await?;
    tracing::info!(sequences = marks.len(), replica = %leader.seats[replica].name, "the sequences stand at their marks");
    Ok(())
}

/// Reads the marks that the log and the server have from before this term.
async fn load_earlier_marks(leader: &Leader, connection: &mut OwnConnection) -> Result<(), MendError> {
    let (mut next, durable) = (leader.log.first_retained(), leader.log.durable());
    while next <= durable {
        let records = leader.log.read_from(next, READ_BYTES_MAX).await?;
        let last = records.last().ok_or(MendError::Missing(next))?;
        next = last.header().last.next();
        let mut sequences = leader.database.sequences();
        for record in &records {
            for mark in record.sequences() {
                sequences.note(record.header().last, mark);
            }
        }
    }
    let remembered = load_marks(connection, leader.database.served.id).await?;
    let mut sequences = leader.database.sequences();
    for mark in remembered {
        sequences.note(Version::ZERO, mark);
    }
    Ok(())
}
