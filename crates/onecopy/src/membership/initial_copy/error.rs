//! Why a server was not filled with the data of a replica.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::rows::CopyError;
use crate::backend::BackendError;
use crate::membership::reach::ReachError;

/// A server was not filled. Its contents so far are marked as half full, so the copy can begin anew.
#[derive(Debug)]
pub(crate) enum InitialCopyError {
    /// The donor is lost or refuses.
    Donor {
        /// Its name, if it was known by then.
        name: Option<String>,
        source: BackendError,
    },
    /// The schema of the donor cannot be written down.
    Dump(DumpError),
    /// The schema changed while `pg_dump` wrote it down.
    SchemaChanges,
    /// The server that is filled cannot be used.
    Reach(ReachError),
    /// The server that is filled is lost or refuses.
    Target { address: String, step: TargetStep, source: BackendError },
    /// The server that is filled has roles that the cluster does not have.
    Strangers { address: String, roles: Vec<String> },
    /// The rows of a table were not copied.
    Table { table: String, source: CopyError },
    /// Onecopy's own state in a server was not copied.
    State(StateError),
    /// The same definitions give another schema on this server.
    SchemaDiffers { address: String, donor: String, kinds: Vec<String> },
}

/// The step that failed at the server that is filled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TargetStep {
    Reach,
    Read,
    Fill,
}

/// The schema was not written down by `pg_dump`.
#[derive(Debug)]
pub(crate) enum DumpError {
    /// No `pg_dump` is as new as the donor.
    NoProgram { major: u32 },
    /// The program cannot be run.
    NotRun { path: PathBuf, source: io::Error },
    /// The program did not end in time.
    TimedOut { seconds: u64 },
    /// The program ended with an error.
    Failed { stderr: String },
    /// The schema is longer than Onecopy takes.
    TooLarge { bytes_max: usize },
    /// The schema is not UTF-8.
    NotUtf8,
}

/// Onecopy's own state in a server was not copied.
#[derive(Debug)]
pub(crate) enum StateError {
    /// One of the servers is lost or refuses.
    Server(BackendError),
    /// The rows of a table were not copied.
    Rows(CopyError),
}

impl fmt::Display for InitialCopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Donor { name: Some(name), source } => {
                write!(f, "{name}, which is copied, cannot be read: {source}")
            }
            Self::Donor { name: None, source } => {
                write!(f, "the replica that is copied cannot be read: {source}")
            }
            Self::Dump(error) => error.fmt(f),
            Self::SchemaChanges => {
                f.write_str("the schema changes while it is written down; try it again when that has ended")
            }
            Self::Reach(error) => error.fmt(f),
            Self::Target { address, step, source } => {
                let step = match step {
                    TargetStep::Reach => "reached",
                    TargetStep::Read => "read",
                    TargetStep::Fill => "filled",
                };
                write!(f, "the server at {address} cannot be {step}: {source}")
            }
            Self::Strangers { address, roles } => write!(
                f,
                "the server at {address} has roles that the cluster has not: {}; drop them, or take another server",
                roles.join(", ")
            ),
            Self::Table { table, source } => write!(f, "table {table} cannot be copied: {source}"),
            Self::State(error) => error.fmt(f),
            Self::SchemaDiffers { address, donor, kinds } => write!(
                f,
                "the server at {address} makes something else of the schema of {donor}: {}",
                kinds.join(", ")
            ),
        }
    }
}

impl std::error::Error for InitialCopyError {}

impl From<DumpError> for InitialCopyError {
    fn from(error: DumpError) -> Self {
        Self::Dump(error)
    }
}

impl From<ReachError> for InitialCopyError {
    fn from(error: ReachError) -> Self {
        Self::Reach(error)
    }
}

impl From<StateError> for InitialCopyError {
    fn from(error: StateError) -> Self {
        Self::State(error)
    }
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProgram { major } => write!(
                f,
                "a server is filled by means of pg_dump {major} or newer, which was not found\ninstall PostgreSQL's client \
                 programs on Onecopy's machine (ONECOPY_PG_BIN names their folder), or make the server a copy of a member \
                 by pg_basebackup"
            ),
            Self::NotRun { path, source } => write!(f, "{} cannot be run: {source}", path.display()),
            Self::TimedOut { seconds } => write!(f, "pg_dump did not end within {seconds} s"),
            Self::Failed { stderr } => write!(f, "pg_dump cannot write the schema down: {stderr}"),
            Self::TooLarge { bytes_max } => {
                write!(f, "the schema takes more than {} MB as text", bytes_max >> 20)
            }
            Self::NotUtf8 => f.write_str("the schema is not UTF-8"),
        }
    }
}

impl std::error::Error for DumpError {}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => {
                write!(f, "what Onecopy keeps in a server cannot be copied: {error}")
            }
            Self::Rows(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StateError {}

impl From<BackendError> for StateError {
    fn from(error: BackendError) -> Self {
        Self::Server(error)
    }
}

impl From<CopyError> for StateError {
    fn from(error: CopyError) -> Self {
        Self::Rows(error)
    }
}
