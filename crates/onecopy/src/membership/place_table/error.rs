//! Why a table was not placed.

use std::fmt;

use cluster::ids::Version;
use cluster::placement::PARTS_MAX;
use commitlog::LogError;
use wire::sqlstate;

use super::closure::Breach;
use crate::backend::BackendError;
use crate::coordinator::placement_file::PlacementError;
use crate::error::{Refusal, register_sqlstate};
use crate::membership::initial_copy::TablesError;
use crate::membership::member_error::MemberError;
use crate::membership::members::{EMPTY_MAX, NotEmpty};
use crate::membership::resync::Standstill;
use crate::membership::verify::NoOneVersion;

/// A table was not placed, or not everywhere. Each replica holds it or does not, and SHOW PLACEMENT says which.
#[derive(Debug)]
pub(crate) enum PlaceError {
    /// This kind of node does not place tables so.
    NotOffered(&'static str),
    /// A replica is being parked or woken, or another table is being placed.
    Busy,
    /// There is no table of this name.
    NoTable(String),
    /// There is no replica of this name.
    NoReplica(String),
    /// This replica is to be a master, and would hold nothing.
    NoHolder { replica: String },
    /// This replica is being rebuilt, or is joining.
    Underway { replica: String },
    /// A replica has joined meanwhile that does not hold it.
    Joined,
    /// No replica that serves would hold everything.
    NoFullReplica,
    /// A table would not be held where it is needed.
    Breach(Breach),
    /// This table is split already.
    IsSplit { table: String },
    /// There are no parts yet.
    NoParts,
    /// There cannot be so many parts.
    PartsOutOfRange { count: u8 },
    /// This table is split into another number of parts.
    OtherParts { table: String, count: usize },
    /// This replica would hold other tables, and is not up.
    NotUp { replica: String },
    /// It could not be drained.
    NotDrained { replica: String, error: MemberError },
    /// Something stayed open there.
    NotEmpty { replica: String, error: NotEmpty },
    /// It was lost meanwhile.
    Lost { replica: String },
    /// No other replica is up that holds the tables.
    NoDonor,
    /// The replicas did not come to one version.
    NoOneVersion(NoOneVersion),
    /// A table was rewritten or redefined each time that it was to be copied.
    Rewritten,
    /// The rows were not copied.
    Copy(TablesError),
    /// A server does not answer as it should.
    Server(BackendError),
    /// The log cannot be read.
    Log(LogError),
    /// The log does not have this version: an error of ours.
    UnknownVersion(Version),
    /// What each replica holds cannot be read or written.
    Unwritten(PlacementError),
    /// The replica holds other tables now, and does not catch up.
    Stuck { replica: String, standstill: Standstill },
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered(how) => write!(f, "this is not offered {how}"),
            Self::Busy => f.write_str("the cluster is being changed by another command or by its load"),
            Self::NoTable(name) => write!(f, "there is no table \"{name}\""),
            Self::NoReplica(name) => write!(f, "there is no replica \"{name}\""),
            Self::NoHolder { replica } => write!(f, "{replica} would be a master and not a holder"),
            Self::Underway { replica } => write!(f, "{replica} is being given data just now"),
            Self::Joined => f.write_str("a replica has joined meanwhile that does not hold them"),
            Self::NoFullReplica => f.write_str("no replica that serves would hold every table"),
            Self::Breach(breach) => breach.fmt(f),
            Self::IsSplit { table } => write!(f, "{table} is split already"),
            Self::NoParts => f.write_str("there are no parts yet"),
            Self::PartsOutOfRange { count } => {
                write!(f, "{count} parts are not possible, there can be from 1 to {PARTS_MAX}")
            }
            Self::OtherParts { table, count } => write!(f, "{table} is split into {count} parts"),
            Self::NotUp { replica } => write!(f, "{replica} is not up"),
            Self::NotDrained { replica, error } => write!(f, "{replica} cannot be drained: {error}"),
            Self::NotEmpty { replica, error: NotEmpty::InUse { users } } => write!(
                f,
                "{users} sessions were still in a transaction at {replica} after {} s",
                EMPTY_MAX.as_secs()
            ),
            Self::NotEmpty { replica, error: NotEmpty::Lost } | Self::Lost { replica } => {
                write!(f, "{replica} was lost meanwhile")
            }
            Self::NoDonor => f.write_str("no other replica is up that could be copied"),
            Self::NoOneVersion(error) => error.fmt(f),
            Self::Rewritten => {
                f.write_str("its definition changed, or it was rewritten, each time that it was to be copied")
            }
            Self::Copy(error) => error.fmt(f),
            Self::Server(error) => write!(f, "a server does not answer as it should: {error}"),
            Self::Log(error) => error.fmt(f),
            Self::UnknownVersion(version) => write!(f, "the log does not have version {version}"),
            Self::Unwritten(error) => {
                write!(f, "what each replica holds cannot be written: {error}")
            }
            Self::Stuck { replica, standstill } => write!(f, "{replica} does not catch up: {standstill}"),
        }
    }
}

impl std::error::Error for PlaceError {}

impl From<BackendError> for PlaceError {
    fn from(error: BackendError) -> Self {
        Self::Server(error)
    }
}

impl From<LogError> for PlaceError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl PlaceError {
    /// The error as a client reads it.
    pub(crate) fn refusal(&self) -> Refusal {
        const AGAIN: &str = "SHOW PLACEMENT says what each replica holds now. When the cause is removed, the same command does the rest.";
        let state = match self {
            Self::NoTable(_) => sqlstate::UNDEFINED_TABLE,
            Self::NoReplica(_) => sqlstate::UNDEFINED_OBJECT,
            Self::Busy | Self::NotEmpty { error: NotEmpty::InUse { .. }, .. } => sqlstate::OBJECT_IN_USE,
            Self::Unwritten(PlacementError::Register(error)) => register_sqlstate(error),
            Self::Breach(_) | Self::NotOffered(_) => sqlstate::FEATURE_NOT_SUPPORTED,
            Self::NoHolder { .. } | Self::PartsOutOfRange { .. } => sqlstate::INVALID_PARAMETER_VALUE,
            _ => sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        };
        let hint = match self {
            Self::Busy | Self::Underway { .. } => "Try again when that has ended.",
            Self::NoTable(_) => {
                "Write a table of the database that is served, with its schema if other schemas have one of the name. A view has no rows of its own."
            }
            Self::NotOffered(_) => {
                "Under c-jdbc, PLACE TABLE names tables and their replicas, at the levels optimistic and pessimistic."
            }
            Self::NoReplica(_) => "SHOW REPLICAS lists their names.",
            Self::NoHolder { .. } => "Name it among the replicas after ON, too.",
            Self::NoFullReplica => {
                "Nothing has changed. Leave at least one replica that serves with every table; two are better."
            }
            Self::Breach(breach) => breach.hint(),
            Self::IsSplit { .. } | Self::OtherParts { .. } => {
                "Nothing has changed. PLACE TABLE .. EVERYWHERE makes it whole first."
            }
            Self::NoParts => "Run PLACE PARTS first, for example PLACE PARTS 16 COPIES 2.",
            Self::PartsOutOfRange { .. } => {
                "Some more parts than replicas are enough, for example PLACE PARTS 16 COPIES 2."
            }
            Self::NotEmpty { error: NotEmpty::InUse { .. }, .. } => {
                "SHOW CLIENTS names the sessions, and KILL ends one. The same command does the rest."
            }
            _ => AGAIN,
        };
        Refusal::new(state, format!("the tables cannot be placed: {self}"), hint)
    }
}
