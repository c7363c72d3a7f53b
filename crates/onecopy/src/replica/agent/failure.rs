//! The meaning of an error while records are applied: for the connection, or for one record.

use cluster::ids::Version;
use cluster::record::Record;
use commitlog::LogError;
use wire::backend::Fields;
use wire::sqlstate;

use super::DivergenceCause;
use super::exchange::{OTHER_COUNT, PipelineError};
use crate::backend::BackendError;

/// Classes of SQLSTATE for a server that cannot go on now. They do not say that the record does not fit. They are about
/// resources, operators, the system, locks and transactions.
const PASSING_CLASSES: [&[u8]; 7] = [b"08", b"25", b"40", b"53", b"55", b"57", b"58"];

/// Why records were not applied.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server is lost, or cannot go on for a reason of its own.
    Lost(String),
    /// This record does not fit.
    Diverged { version: Version, cause: DivergenceCause, reason: String },
}

/// Decides what a failure means for the one record that was tried.
pub(super) fn settle(record: &Record, trouble: PipelineError) -> Result<(), Failure> {
    let reason = describe(&trouble);
    match trouble {
        PipelineError::Lost(_) | PipelineError::Log(LogError::Io { .. } | LogError::Interrupted { .. }) => {
            Err(Failure::Lost(reason))
        }
        PipelineError::Server(body) => {
            let fields = Fields::new(&body);
            if is_applied_already(fields) {
                return Ok(());
            }
            if is_passing(fields) && !is_raised_by_code(fields) {
                return Err(Failure::Lost(reason));
            }
            let cause =
                if shows_other_rows(fields) { DivergenceCause::Rows } else { DivergenceCause::Record };
            Err(Failure::Diverged { version: record.header().last, cause, reason })
        }
        PipelineError::Rows { .. } | PipelineError::Refresh(_) | PipelineError::Log(_) => {
            Err(Failure::Diverged { version: record.header().last, cause: DivergenceCause::Rows, reason })
        }
    }
}

fn is_passing(fields: Fields<'_>) -> bool {
    PASSING_CLASSES.contains(&fields.sqlstate().get(..2).unwrap_or_default())
}

pub(super) fn is_raised(trouble: &PipelineError) -> bool {
    matches!(trouble, PipelineError::Server(body) if is_raised_by_code(Fields::new(body)))
}

/// Whether a row or an index entry has no room on a page. Other limits have the same code.
pub(super) fn is_too_large(trouble: &PipelineError) -> bool {
    let limit = sqlstate::PROGRAM_LIMIT_EXCEEDED.as_bytes();
    matches!(trouble, PipelineError::Server(body) if Fields::new(body).sqlstate() == limit)
}

/// Whether an error that says "not now" comes from a function of users, which can raise any error. The function may do
/// so for ever, so the agent does not wait for the error to pass. The connection is alive, and the context of the error
/// names the function. At READ COMMITTED only one other cause raises 40001: a row that was moved to another partition
/// meanwhile. That passes.
fn is_raised_by_code(fields: Fields<'_>) -> bool {
    let context = String::from_utf8_lossy(fields.get(b'W').unwrap_or_default());
    let names_code =
        context.lines().any(|line| line.contains(" function ") && !line.contains(" function onecopy"));
    let is_known = names_code || fields.sqlstate() == sqlstate::SERIALIZATION_FAILURE.as_bytes();
    is_passing(fields) && is_known && fields.get(b'V') == Some(b"ERROR")
}

/// Whether an error is about rows that should not be there, or about damage: constraints, and files of the server.
fn shows_other_rows(fields: Fields<'_>) -> bool {
    let state = fields.sqlstate();
    state.starts_with(b"23")
        || state == OTHER_COUNT
        || [sqlstate::DATA_CORRUPTED, sqlstate::INDEX_CORRUPTED].iter().any(|code| code.as_bytes() == state)
}

/// Whether the identity was there already, since the record's own transaction had committed after all.
fn is_applied_already(fields: Fields<'_>) -> bool {
    fields.sqlstate() == b"23505"
        && fields.get(b's') == Some(b"onecopy")
        && fields.get(b't') == Some(b"applied")
}

pub(super) fn describe(trouble: &PipelineError) -> String {
    match trouble {
        PipelineError::Lost(error) => error.to_string(),
        PipelineError::Server(body) => BackendError::Server(body.clone()).to_string(),
        PipelineError::Rows { what, expected, found } => {
            format!("{what} concerned {found} rows instead of {expected}")
        }
        PipelineError::Refresh(error) => error.to_string(),
        PipelineError::Log(error) => error.to_string(),
    }
}
