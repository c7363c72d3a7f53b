//! The errors of a log.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use cluster::ids::{ClusterId, Epoch, Version};
use cluster::record::DecodeError;
use tokio::task::JoinError;

use crate::etcd::EtcdError;

/// Why a log was not opened, read or trimmed.
#[derive(Debug)]
pub enum LogError {
    /// Another process has it open.
    InUse {
        /// The folder.
        dir: PathBuf,
    },
    /// The operating system refused.
    Io {
        /// The action, as a verb.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// The log belongs to another cluster.
    ForeignCluster {
        /// A file of it.
        file: PathBuf,
        /// The cluster of the file.
        found: ClusterId,
        /// The cluster of the node.
        expected: ClusterId,
    },
    /// A newer Onecopy wrote it.
    UnknownFormat {
        /// The file.
        file: PathBuf,
        /// Its format.
        format: u32,
    },
    /// Something that was durable once is not readable any more.
    Damaged {
        /// The file.
        file: PathBuf,
        /// The place in it.
        offset: u64,
        /// The version that should be there.
        version: Version,
        /// The kind of damage.
        cause: Damage,
    },
    /// A segment is gone from the middle.
    MissingSegment {
        /// The folder.
        dir: PathBuf,
        /// The first version of the segment that is not there.
        missing: Version,
        /// The first version of the one that follows.
        next: Version,
    },
    /// The process is about to end, or an earlier failure has made the work pointless.
    Interrupted {
        /// The cause.
        source: io::Error,
    },
    /// The version asked for was trimmed away.
    Trimmed {
        /// That version.
        asked: Version,
        /// The lowest that is there.
        first_retained: Version,
    },
    /// The part of the log that is on etcd.
    Etcd(EtcdError),
}

/// The kind of damage at a place of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// The bytes are no record.
    Record(DecodeError),
    /// A complete record, but not the one that belongs here.
    OutOfOrder {
        /// The version of the record.
        found: Version,
    },
    /// A complete record of another cluster.
    Foreign {
        /// The other cluster.
        found: ClusterId,
    },
    /// A mark whose checksum does not match.
    Mark,
    /// The header of the segment does not check.
    SegmentHeader,
    /// The records end although more follow.
    EndsEarly,
    /// The file with the spilled rows of a record is missing.
    SpillMissing,
    /// The header of the file with the spilled rows of a record does not check.
    SpillHeader,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) => error.fmt(f),
            Self::OutOfOrder { found } => write!(f, "version {found} stands here"),
            Self::Foreign { found } => write!(f, "a record of cluster {found} stands here"),
            Self::Mark => f.write_str("checksum of the mark does not match"),
            Self::SegmentHeader => f.write_str("checksum of the segment's header does not match"),
            Self::SpillMissing => f.write_str("the file with the rows of this version is missing"),
            Self::SpillHeader => f.write_str("this is not the file with the rows of this version"),
            Self::EndsEarly => f.write_str("the records end here, although later ones were durable"),
        }
    }
}

impl LogError {
    /// Whether etcd did not answer, so that the same may succeed later.
    pub(super) fn is_of_the_network(&self) -> bool {
        matches!(self, Self::Etcd(EtcdError::Store(error)) if error.is_ambiguous())
    }

    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }
}

impl From<JoinError> for LogError {
    fn from(error: JoinError) -> Self {
        Self::Interrupted { source: error.into() }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { dir } => write!(
                f,
                "the log in {} is in use by another onecopy process; stop that one first",
                dir.display()
            ),
            Self::Io { doing, path, source } => write!(f, "cannot {doing} {}: {source}", path.display()),
            Self::ForeignCluster { file, found, expected } => write!(
                f,
                "{} belongs to cluster {found}, not to cluster {expected}; use the folder that belongs to this cluster",
                file.display()
            ),
            Self::UnknownFormat { file, format } => write!(
                f,
                "{} has format {format}, which this version of onecopy does not know; use the version that wrote it, or a later one",
                file.display()
            ),
            Self::Damaged { file, offset, version, cause } => write!(
                f,
                "the log is damaged in {} at byte {offset}, where version {version} should be: {cause}; acknowledged \
                 transactions are in the damaged part, so nothing was changed: put an intact copy of the file back, \
                 or move the whole log folder aside and rebuild the cluster from the replica that has applied most",
                file.display()
            ),
            Self::MissingSegment { dir, missing, next } => write!(
                f,
                "in {} the segment with version {missing} is missing, the next one begins with version {next}; \
                 put the missing file back",
                dir.display()
            ),
            Self::Interrupted { source } => write!(f, "the log was not read to the end: {source}"),
            Self::Trimmed { asked, first_retained } => write!(
                f,
                "version {asked} is not in the log any more, it begins with version {first_retained}; \
                 the replica that needs it must be rebuilt"
            ),
            Self::Etcd(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Interrupted { source } => Some(source),
            Self::Etcd(error) => Some(error),
            _ => None,
        }
    }
}

/// The one action of a writer that must not be repeated.
pub(super) const SYNCHRONISE: &str = "synchronise";

/// Why the log stopped taking records, for good.
#[derive(Debug)]
pub enum LogFailure {
    /// The disk has failed.
    Disk {
        /// The action, as a verb.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// Another node has claimed the log. What this node has appended and not reported durable may be in it or not.
    Fenced {
        /// The epoch of the other node; of none, if the claim was deleted.
        by: Epoch,
        /// The name of the other node.
        node: String,
    },
    /// Etcd holds what this node cannot have left there.
    Damaged {
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Etcd refuses to write, and waiting does not help.
    Refused {
        /// The answer of etcd.
        reason: String,
    },
    /// The log was closed while etcd did not answer.
    ClosedUnwritten {
        /// The last version that is known to be durable.
        durable: Version,
    },
}

impl LogFailure {
    /// Whether more room on the disk would have prevented it. A failed synchronisation may have lost pages all the same.
    pub(super) fn is_full_disk(&self) -> bool {
        matches!(self, Self::Disk { doing, source, .. }
            if source.kind() == io::ErrorKind::StorageFull && *doing != SYNCHRONISE)
    }
}

impl fmt::Display for LogFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk { doing, path, source } if source.kind() == io::ErrorKind::StorageFull => write!(
                f,
                "no space left to {doing} {}; free some space on this file system: nothing that was acknowledged is lost, \
                 and nothing is committed before",
                path.display()
            ),
            Self::Disk { doing, path, source } => write!(
                f,
                "cannot {doing} {}: {source}; nothing more is acknowledged, start again when the disk is sound",
                path.display()
            ),
            Self::Fenced { by, node } => write!(
                f,
                "node {node} has taken over the log with epoch {by}; this node acknowledges nothing any more"
            ),
            Self::Damaged { key, reason } => write!(
                f,
                "the key {key} of etcd is not as this node left it: {reason}; nothing more is acknowledged, find out \
                 what else writes to this etcd"
            ),
            Self::Refused { reason } => {
                write!(f, "etcd does not take the log: {reason}; nothing more is acknowledged")
            }
            Self::ClosedUnwritten { durable } => write!(
                f,
                "the log was closed while etcd did not answer; what follows version {durable} may be in the log or not, \
                 and was not acknowledged"
            ),
        }
    }
}

impl std::error::Error for LogFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Disk { source, .. } => Some(source),
            _ => None,
        }
    }
}
