//! The engine that keeps the log in files of one folder.
//!
//! The folder holds segments: files that are allocated in advance and named after the first version in them. Records
//! stand back to back, as [`cluster::record`] encoded them; zero bytes end a segment. One thread writes. It takes
//! all queued records, writes them with one call, synchronises once, and only then reports the highest version as durable
//! (group commit). So the more transactions wait, the fewer synchronisations each of them costs.
//!
//! Between the records stand *marks*. A mark says "every version up to this one was durable when I was written". It tells a
//! torn tail from damage: a crash can tear only what was never reported durable, and no such mark stands behind that,
//! so it is cut off. Bytes that do not check and have a mark, or a segment, behind them were durable once. Then the
//! log is damaged, and it is not opened.
//!
//! A full disk stops the log only for a while. New transactions are refused before the disk is quite full ([`space`]). If
//! the writer meets a full disk all the same, it waits for room and writes the same bytes again.
//!
//! Invariants:
//!
//! - What was reported durable is found again by every later [`FileLog::open`].
//! - After a write or a synchronisation has failed, nothing is reported durable any more: the kernel may have dropped the
//!   pages.
//! - A segment is begun only when all before it is durable.
//!
//! Spilled rows stand in files beside the segments: see [`spill`].
//!
//! Not here: which records are appended, and in which versions. The caller decides that.

mod disk;
mod engine;
mod inspect;
mod recover;
mod register;
mod ring;
mod scan;
mod segment;
mod shared;
mod space;
mod spill;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use cluster::ids::{ClusterId, Version};
use cluster::record::Record;

use disk::{Disk, RealDisk};
use shared::Shared;
use writer::{Active, Writer};

use crate::engine::{Notices, Recovered};
use crate::error::LogError;

pub use inspect::{Contents, Found, Inspected, RowCounts, inspect};
pub use register::FileRegister;
pub use spill::SpillFolder;

/// How large a segment is, unless a single record needs more.
const SEGMENT_BYTES: u64 = 64 << 20;
/// How much of the newest durable records is kept in memory for readers: some 25,000 small transactions. A reader that lags
/// more reads the file, which the system most likely has in memory as well.
const RING_BYTES: usize = 16 << 20;

/// The limits of a log; only tests take others than the default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    segment_bytes: u64,
    ring_bytes: usize,
}

/// Whose log is opened, and the version with which it begins if there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) cluster: ClusterId,
    pub(crate) first: Version,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { segment_bytes: SEGMENT_BYTES, ring_bytes: RING_BYTES }
    }
}

/// An open log in files.
pub struct FileLog {
    shared: Arc<Shared>,
    /// Until the writer thread is started.
    unstarted: Mutex<Option<Unstarted>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Its lock keeps other processes out as long as it is open.
    _lock: File,
}

/// What the writer thread will own.
struct Unstarted {
    active: Active,
    disk: Box<dyn Disk>,
}

impl FileLog {
    /// Opens the log in `dir`, or begins one there. Cuts a torn tail off; what it returns is durable.
    pub fn open(dir: &Path, cluster: ClusterId) -> Result<(Self, Recovered), LogError> {
        Self::open_at(dir, Origin { cluster, first: Version::ZERO.next() }, Sizes::default())
    }

    /// The same; a log that is begun begins with the version of the origin.
    pub(crate) fn open_at(dir: &Path, origin: Origin, sizes: Sizes) -> Result<(Self, Recovered), LogError> {
        Self::open_with(dir, origin, sizes, Box::new(RealDisk))
    }

    fn open_with(
        dir: &Path,
        origin: Origin,
        sizes: Sizes,
        mut disk: Box<dyn Disk>,
    ) -> Result<(Self, Recovered), LogError> {
        let cluster = origin.cluster;
        let lock = recover::lock_folder(dir)?;
        let opened = recover::recover(dir, origin, sizes.segment_bytes, disk.as_mut())?;
        let shared = Shared::new(dir, cluster, sizes, opened.segments, opened.spilled, opened.recovered.last);
        let log = Self {
            shared: Arc::new(shared),
            unstarted: Mutex::new(Some(Unstarted { active: opened.active, disk })),
            writer: Mutex::new(None),
            _lock: lock,
        };
        Ok((log, opened.recovered))
    }

    /// The record with this version; blocks on the disk.
    pub(crate) fn read_blocking(&self, version: Version) -> Result<Vec<Arc<Record>>, LogError> {
        self.shared.read_from(version, 1)
    }

    fn start_writer(&self, notices: Notices) -> Result<(), LogError> {
        let unstarted = self.unstarted.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Unstarted { active, disk } = unstarted.expect("a log is started once");
        let writer = Writer::new(Arc::clone(&self.shared), active, disk, notices);
        let thread = thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || writer.run())
            .map_err(|source| LogError::io("start the thread that writes", &self.shared.dir, source))?;
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Writes what is queued, and ends the writer thread.
    fn stop_writer(&self) {
        self.shared.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the log's writer thread panicked");
        }
    }
}

/// Moves the segments and the spilled rows of a log that is not open into a folder inside its own, the oldest first, so that
/// a crash leaves a log that can be opened. Returns that folder.
pub(crate) fn set_aside(dir: &Path, into: &str) -> Result<PathBuf, LogError> {
    let _lock = recover::lock_folder(dir)?;
    let aside = dir.join(into);
    if !aside.is_dir() {
        owner_only::make_folder(&aside).map_err(|source| LogError::io("make the folder", &aside, source))?;
    }
    let segments = segment::list(dir)?.into_iter().map(|first| segment::path_of(dir, first));
    let rows = SpillFolder::files(dir)?;
    for path in segments.chain(rows) {
        let Some(name) = path.file_name() else { continue };
        fs::rename(&path, aside.join(name)).map_err(|source| LogError::io("move", &path, source))?;
        disk::sync_folder(dir).map_err(|source| LogError::io("synchronise", dir, source))?;
    }
    disk::sync_folder(&aside).map_err(|source| LogError::io("synchronise", &aside, source))?;
    Ok(aside)
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.stop_writer();
    }
}
