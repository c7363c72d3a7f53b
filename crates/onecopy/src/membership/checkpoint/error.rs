//! Why there is no checkpoint, or a replica did not come back from one.

use std::fmt;
use std::io;

use wire::sqlstate;

use super::CHECKPOINTS_MAX;
use crate::error::Refusal;
use crate::membership::base_backup::BackupError;
use crate::membership::resync::RebuildError;
use crate::membership::verify::NoOneVersion;

/// A command about checkpoints failed. Nothing has changed, except for a replica whose data could not be replaced.
#[derive(Debug)]
pub(crate) enum CheckpointError {
    /// This node has no checkpoints now.
    Refused(Refusal),
    /// Another change of the cluster goes on.
    Busy,
    /// There is one of this name.
    Exists { name: String },
    /// There is none of this name.
    Unknown { name: String },
    /// There are as many as there may be.
    TooMany,
    /// The servers were not started by this node.
    NotOurs,
    /// No replica is up.
    NoneUp,
    /// The node is stopping.
    NodeStops,
    /// A transaction stayed open.
    NoOneVersion(NoOneVersion),
    /// The replica's data could not be copied.
    Copy(BackupError),
    /// The folder of the checkpoint could not be written.
    Folder(io::Error),
    /// The replica did not come back.
    Rebuild(RebuildError),
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => f.write_str(&refusal.message),
            Self::Busy => f.write_str("the cluster is being changed by another command"),
            Self::Exists { name } => write!(f, "there is a checkpoint \"{name}\" already"),
            Self::Unknown { name } => write!(f, "there is no checkpoint \"{name}\""),
            Self::TooMany => write!(f, "there are {CHECKPOINTS_MAX} checkpoints, and there may be no more"),
            Self::NotOurs => f.write_str("a checkpoint needs servers that Onecopy starts (`onecopy up`)"),
            Self::NoneUp => f.write_str("no replica is up that could be copied"),
            Self::NodeStops => f.write_str("the node is stopping"),
            Self::NoOneVersion(error) => error.fmt(f),
            Self::Copy(error) => error.fmt(f),
            Self::Folder(error) => write!(f, "the folder of the checkpoint cannot be written: {error}"),
            Self::Rebuild(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CheckpointError {}

impl CheckpointError {
    /// The error as a client reads it. `what` was not done.
    pub(crate) fn refusal(&self, what: &str) -> Refusal {
        let (state, hint) = match self {
            Self::Refused(refusal) => return refusal.clone(),
            Self::Busy => (sqlstate::OBJECT_IN_USE, "Try again when that has ended."),
            Self::Exists { .. } => (
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "DROP CHECKPOINT removes it, or choose another name.",
            ),
            Self::Unknown { .. } => (sqlstate::UNDEFINED_OBJECT, "SHOW CHECKPOINTS lists their names."),
            Self::TooMany => (sqlstate::CONFIGURATION_LIMIT_EXCEEDED, "DROP CHECKPOINT removes one."),
            Self::NotOurs => (
                sqlstate::FEATURE_NOT_SUPPORTED,
                "Copies of servers that run by themselves are made with their own tools, such as pg_basebackup.",
            ),
            Self::NoneUp | Self::NodeStops => {
                (sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "SHOW REPLICAS shows the state of each.")
            }
            Self::NoOneVersion(_) => {
                (sqlstate::LOCK_NOT_AVAILABLE, "A checkpoint waits until no transaction is open. Try again.")
            }
            Self::Copy(_) | Self::Folder(_) => (
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "Nothing has changed. When the cause is removed, try it again.",
            ),
            Self::Rebuild(_) => (
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "SHOW REPLICAS shows the state of each. REBUILD REPLICA gives one the data of another one.",
            ),
        };
        Refusal::new(state, format!("{what}: {self}"), hint)
    }
}
