//! The errors of a log.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use cluster::ids::{ClusterId, Version};
use cluster::record::DecodeError;
use tokio::task::JoinError;

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
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Interrupted { source } => Some(source),
            _ => None,
        }
    }
}

/// The one action of a writer that must not be repeated.
pub(super) const SYNCHRONISE: &str = "synchronise";

/// Why the log stopped taking records, for good.
#[derive(Debug)]
pub struct LogFailure {
    /// The action, as a verb.
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The answer of the system.
    pub source: io::Error,
}

impl LogFailure {
    /// Whether more room on the disk would have prevented it. A failed synchronisation may have lost pages all the same.
    pub(super) fn is_full_disk(&self) -> bool {
        self.source.kind() == io::ErrorKind::StorageFull && self.doing != SYNCHRONISE
    }
}

impl fmt::Display for LogFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        if self.source.kind() == io::ErrorKind::StorageFull {
            return write!(
                f,
                "no space left to {} {path}; free some space on this file system: nothing that was acknowledged is lost, \
                 and nothing is committed before",
                self.doing
            );
        }
        write!(
            f,
            "cannot {} {path}: {}; nothing more is acknowledged, start again when the disk is sound",
            self.doing, self.source
        )
    }
}

impl std::error::Error for LogFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
