//! Why a data folder cannot be used. The messages say what to do.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The data folder cannot be used.
#[derive(Debug)]
pub enum FolderError {
    /// The system refused something.
    Io {
        /// The action, as a verb.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The answer of the system.
        error: io::Error,
    },
    /// No folder was named, and there is no home to put one in.
    NoDefault,
    /// There is a file of that name.
    NotAFolder(PathBuf),
    /// It holds something else.
    Foreign {
        /// The folder.
        path: PathBuf,
        /// One of the names in it.
        example: String,
    },
    /// Another node uses it.
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process of that node, if the lock file names it.
        process: Option<u32>,
    },
    /// It was made by a release of Onecopy with another layout.
    OtherFormat {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The description of the cluster is damaged.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The damage.
        reason: String,
    },
    /// The cluster has another number of servers than was asked for.
    OtherReplicas {
        /// The folder.
        path: PathBuf,
        /// How many it has.
        found: usize,
        /// How many were asked for.
        asked: u16,
    },
    /// The disk has no room for new servers.
    NoSpace {
        /// The folder.
        path: PathBuf,
        /// The room that new servers need.
        needed_bytes: u64,
        /// The room on the disk.
        free_bytes: u64,
    },
    /// The account of the servers cannot reach the folder.
    Closed {
        /// The folder on the way that it may not enter.
        at: PathBuf,
        /// The account.
        account: String,
    },
}

impl FolderError {
    /// Turns an error of the system into one that names the path.
    pub fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| Self::Io { doing, path, error }
    }
}

impl std::error::Error for FolderError {}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, error } => write_io(f, doing, path, error),
            Self::NoDefault => {
                write!(f, "no folder to keep the data in: set HOME, or name one with --data DIR")
            }
            Self::NotAFolder(path) => write!(
                f,
                "{} is a file where a data folder is wanted; name another one with --data DIR",
                path.display()
            ),
            Self::Foreign { path, example } => write!(
                f,
                "{} is not a data folder of Onecopy: it is not empty (it has {example:?}) and has no onecopy.json; \
                 nothing was changed there; name an empty or a new folder with --data DIR",
                path.display()
            ),
            Self::InUse { path, process: Some(process) } => write!(
                f,
                "{} is in use by process {process}; stop that one first, or name another folder with --data DIR",
                path.display()
            ),
            Self::InUse { path, process: None } => {
                write!(f, "{} is in use by another onecopy process", path.display())
            }
            Self::OtherFormat { path, found, known } => write!(
                f,
                "{} has format {found}, and this release of Onecopy knows format {known}: use the release that made it",
                path.display()
            ),
            Self::Unreadable { path, reason } => {
                write!(f, "{} is damaged: {reason}; restore that file from a copy", path.display())
            }
            Self::OtherReplicas { path, found, asked } => write!(
                f,
                "the cluster in {} has {found} replicas; leave out --replicas {asked}, and change the number with ADD REPLICA \
                 and DROP REPLICA while it runs, or make another cluster with --data DIR",
                path.display()
            ),
            Self::NoSpace { path, needed_bytes, free_bytes } => write!(
                f,
                "the disk of {} is too full: new servers need {} MB, and {} MB are free",
                path.display(),
                needed_bytes.div_ceil(1 << 20),
                free_bytes >> 20
            ),
            Self::Closed { at, account } => write!(
                f,
                "the servers run as {account}, and that account cannot reach the data folder: it may not enter {} \
                 (to allow it: chmod o+x {0}; or name another folder with --data DIR)",
                at.display()
            ),
        }
    }
}

fn write_io(f: &mut fmt::Formatter<'_>, doing: &str, path: &Path, error: &io::Error) -> fmt::Result {
    write!(f, "cannot {doing} {}: {error}", path.display())?;
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            write!(f, "; run onecopy as the user who owns that folder, or name another one with --data DIR")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            write!(f, "; make room on that disk, or name a folder on another one with --data DIR")
        }
        _ => Ok(()),
    }
}
