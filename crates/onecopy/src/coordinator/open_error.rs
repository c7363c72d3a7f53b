//! Reasons why a node cannot be put together over its log.

use std::fmt;

use cluster::record::TooLarge;
use commitlog::{LogError, LogFailure, RegisterError};

use crate::security::seal::SealError;

/// A node was not put together. Nothing was served.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The log cannot be opened or started.
    Log(LogError),
    /// What the leader has to know of its cluster cannot be read or written.
    Register(RegisterError),
    /// The record that opens the new epoch was not written.
    Fence(FenceError),
    /// The key beside the log cannot be used.
    Seal(SealError),
    /// The system gives no random number.
    Random(getrandom::Error),
    /// The cluster has no member.
    NoReplicas,
    /// No member holds this table.
    NoHolder { table: String },
    /// No member holds everything.
    NoFullReplica,
    /// A member has a higher number than the cluster core takes.
    HighNumber { number: u16 },
    /// The kind of node does not take this log or plan. The folder of that kind gives the error.
    Kind(Box<dyn std::error::Error + Send + Sync>),
    /// A variable for tests has a meaningless value.
    TestVariable { name: &'static str, value: String, wanted: &'static str },
    /// A part was put together twice: an error of ours.
    Twice(&'static str),
}

/// The record that opens the new epoch was not written.
#[derive(Debug)]
pub(crate) enum FenceError {
    /// The log cannot be written.
    Failed(LogFailure),
    /// The writer of the log has ended.
    WriterEnded,
    /// The record is larger than a record may be: an error of ours.
    TooLarge(TooLarge),
}

impl OpenError {
    pub(crate) fn kind(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Kind(Box::new(error))
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => error.fmt(f),
            Self::Register(error) => error.fmt(f),
            Self::Fence(error) => error.fmt(f),
            Self::Seal(error) => error.fmt(f),
            Self::Random(error) => write!(f, "no random number: {error}"),
            Self::NoReplicas => f.write_str("there are no replicas"),
            Self::NoHolder { table } => {
                write!(f, "no replica holds {table}, says the list of placed tables, `placement`")
            }
            Self::NoFullReplica => {
                f.write_str("no replica holds every table, says the list of placed tables, `placement`")
            }
            Self::HighNumber { number } => write!(f, "replica number {number} is too high"),
            Self::Kind(error) => error.fmt(f),
            Self::TestVariable { name, value, wanted } => write!(f, "{name}={value}: {wanted}"),
            Self::Twice(part) => write!(f, "{part} twice"),
        }
    }
}

impl std::error::Error for OpenError {}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::WriterEnded => f.write_str("the log's writer has ended"),
            Self::TooLarge(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FenceError {}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<RegisterError> for OpenError {
    fn from(error: RegisterError) -> Self {
        Self::Register(error)
    }
}

impl From<FenceError> for OpenError {
    fn from(error: FenceError) -> Self {
        Self::Fence(error)
    }
}

impl From<SealError> for OpenError {
    fn from(error: SealError) -> Self {
        Self::Seal(error)
    }
}

impl From<getrandom::Error> for OpenError {
    fn from(error: getrandom::Error) -> Self {
        Self::Random(error)
    }
}
