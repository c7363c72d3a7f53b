//! The file log: where an acknowledged transaction is safe.
//!
//! One folder holds segments, files that are allocated in advance and named after the first version in them. Records
//! stand back to back, as [`cluster::record`] encoded them; zero bytes end a segment. One thread writes: it takes
//! all that is queued, writes it with one call, synchronises once, and only then reports the highest version as durable
//! (group commit). So the more transactions wait, the fewer synchronisations each of them costs.
//!
//! How a torn tail is told from damage: between the records stand *marks*. A mark says "every version up to this one
//! was durable when I was written". A crash can only tear what was never reported durable, and that has no such mark
//! behind it; it is cut off. Bytes that do not check and have a mark, or a segment, behind them were durable once: the
//! log is damaged, and opening it is refused.
//!
//! A full disk is not the end: whoever commits is refused before the disk is quite full ([`space`]), and should the writer
//! meet a full disk all the same, it waits for room and writes the same bytes again.
//!
//! Invariants: versions are dense. What was reported durable is found again by every later [`FileLog::open`]. After a
//! write or a synchronisation has failed, nothing is reported durable any more: the kernel may have dropped the pages.
//! A segment is begun only when all before it is durable.
//!
//! A transaction that is too large for memory has its rows in a file beside the segments: see [`spill`].
//!
//! Not here: what records mean, who may append (the caller hands out the versions), and several machines.

mod disk;
mod inspect;
mod recover;
mod ring;
mod scan;
mod segment;
mod shared;
mod space;
mod spill;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use cluster::ids::{ClusterId, Version};
use cluster::record::Record;

use disk::{Disk, RealDisk};
use shared::Shared;
use writer::{Active, Writer};

use crate::error::{LogError, LogFailure};

pub use inspect::{Contents, Found, Inspected, RowCounts, inspect};
pub use recover::{NEWEST_IDENTITIES, Recovered, TornTail};
pub use spill::{SpillFile, SpillFolder, SpillReader};

/// How large a segment is, unless a single record needs more.
const SEGMENT_BYTES: u64 = 64 << 20;
/// How much of the newest durable records is kept in memory for those who apply them: some 25,000 small transactions. Whoever
/// lags more reads the file, which the system most likely has in memory as well.
const RING_BYTES: usize = 16 << 20;

/// What the limits of a log are; only tests take others than the default.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    segment_bytes: u64,
    ring_bytes: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { segment_bytes: SEGMENT_BYTES, ring_bytes: RING_BYTES }
    }
}

/// Whom the writer thread tells; it calls without holding any lock.
pub struct Notices {
    /// Everything up to this version is durable.
    pub durable: Box<dyn Fn(Version) + Send>,
    /// The log has failed for good: nothing more will be reported durable until it was opened anew.
    pub failed: Box<dyn Fn(LogFailure) + Send>,
}

/// An open log.
pub struct FileLog {
    shared: Arc<Shared>,
    /// What the writer thread will own once it is started.
    waiting: Mutex<Option<Waiting>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Its lock keeps other processes out as long as it is open.
    _lock: File,
}

struct Waiting {
    active: Active,
    disk: Box<dyn Disk>,
}

impl FileLog {
    /// Opens the log in `dir`, or begins one there. Cuts a torn tail off; what it returns is durable.
    pub fn open(dir: &Path, cluster: ClusterId) -> Result<(Self, Recovered), LogError> {
        Self::open_with(dir, cluster, Sizes::default(), Box::new(RealDisk))
    }

    fn open_with(
        dir: &Path,
        cluster: ClusterId,
        sizes: Sizes,
        mut disk: Box<dyn Disk>,
    ) -> Result<(Self, Recovered), LogError> {
        let lock = recover::lock_folder(dir)?;
        let opened = recover::recover(dir, cluster, sizes.segment_bytes, disk.as_mut())?;
        let shared = Shared::new(dir, cluster, sizes, opened.segments, opened.spilled, opened.recovered.last);
        let log = Self {
            shared: Arc::new(shared),
            waiting: Mutex::new(Some(Waiting { active: opened.active, disk })),
            writer: Mutex::new(None),
            _lock: lock,
        };
        Ok((log, opened.recovered))
    }

    /// Starts the writer thread; to be called once.
    pub fn start(&self, notices: Notices) -> Result<(), LogError> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Waiting { active, disk } = waiting.expect("a log is started once");
        let writer = Writer::new(Arc::clone(&self.shared), active, disk, notices);
        let thread = thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || writer.run())
            .map_err(|source| LogError::io("start the thread that writes", &self.shared.dir, source))?;
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Queues a record; never waits for the disk. The caller holds the lock under which it chose the version.
    ///
    /// Ordering duty: records come densely, in version order. After the log has failed, or was closed, the record is
    /// dropped: it is not durable and never will be, and `failed` has said so.
    pub fn append(&self, record: Arc<Record>) {
        self.shared.append(record);
    }

    /// Whether the queue is below its limits; the caller asks before it lets a transaction begin to commit.
    pub fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    /// Whether the disk has no room for new records: nothing is handed over before that is past.
    pub fn is_full(&self) -> bool {
        self.shared.space.is_full()
    }

    /// The highest durable version.
    pub fn durable(&self) -> Version {
        self.shared.durable()
    }

    /// The lowest version that can be read.
    pub fn first_retained(&self) -> Version {
        self.shared.first_retained()
    }

    /// Durable records from `version` on, at most `max_bytes` of them but at least one, if there is one.
    pub fn read_from(&self, version: Version, max_bytes: usize) -> Result<Vec<Arc<Record>>, LogError> {
        self.shared.read_from(version, max_bytes)
    }

    /// The files beside the segments, for transactions that are too large for memory.
    pub fn spills(&self) -> &SpillFolder {
        &self.shared.spills
    }

    /// Deletes the segments that hold nothing above `upto`, except the one that is written; returns what is the lowest
    /// version after that. Takes as long as the file system takes.
    pub fn trim(&self, upto: Version) -> Result<Version, LogError> {
        self.shared.trim(upto)
    }

    /// As [`FileLog::trim`], but only until the log takes no more than `max_bytes`.
    pub fn shrink(&self, upto: Version, max_bytes: u64) -> Result<Version, LogError> {
        self.shared.shrink(upto, max_bytes)
    }

    /// The newest durable records, which are kept in memory: how many, their bytes, and at most how many bytes.
    pub fn in_memory(&self) -> (usize, usize, usize) {
        self.shared.in_memory()
    }

    /// How much of the disk its files take.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes()
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        &self.shared.dir
    }

    /// Writes what is queued, and ends the writer thread. Not to be called from a notice.
    pub fn close(&self) {
        self.shared.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the log's writer thread panicked");
        }
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.close();
    }
}
