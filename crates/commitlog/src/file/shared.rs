//! The state that callers and the writer thread share: the queue, and the account of what is durable.
//!
//! The locks of the queue and of the account are never held together, nor over a call that can wait for the disk.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use cluster::ids::{ClusterId, Identity, Version};
use cluster::record::Record;

use super::Sizes;
use super::disk;
use super::ring::Ring;
use super::scan::{Scanner, Step};
use super::segment::{Place, Segment};
use super::space::Space;
use super::spill::SpillFolder;
use crate::engine::InMemory;
use crate::error::{Damage, LogError};

/// Above this there is no room in the queue.
const QUEUE_LIMIT_BYTES: usize = 64 << 20;
/// Above this there is no room in the queue.
const QUEUE_LIMIT_RECORDS: usize = 1 << 16;

/// The records that were appended and are not yet being written.
struct Queue {
    records: VecDeque<Arc<Record>>,
    bytes: usize,
    /// The version that the next record must begin with.
    next: Version,
    /// Whether the writer sleeps and must be woken.
    writer_sleeps: bool,
    /// Records are dropped: the log was closed, or has failed.
    closed: bool,
}

/// The durable records, and the places to read them.
struct Durable {
    segments: Vec<Segment>,
    ring: Ring,
    last: Version,
    /// Records with spilled rows.
    spilled: Vec<(Version, Identity)>,
}

pub(super) struct Shared {
    pub(super) dir: PathBuf,
    pub(super) cluster: ClusterId,
    pub(super) sizes: Sizes,
    pub(super) spills: SpillFolder,
    pub(super) space: Space,
    queue: Mutex<Queue>,
    wake: Condvar,
    durable: Mutex<Durable>,
    /// Held while segments are deleted; the oldest must go first.
    trimming: Mutex<()>,
}

/// A piece of a reading that the ring does not have.
struct Piece {
    path: PathBuf,
    place: Place,
    /// A version at or before the first that is wanted, and where its record begins.
    start: (Version, u64),
    /// The last durable version in this file.
    last: Version,
}

impl Shared {
    pub(super) fn new(
        dir: &Path,
        cluster: ClusterId,
        sizes: Sizes,
        segments: Vec<Segment>,
        spilled: Vec<(Version, Identity)>,
        last: Version,
    ) -> Self {
        Self {
            dir: dir.to_owned(),
            cluster,
            sizes,
            spills: SpillFolder::new(dir, cluster),
            space: Space::new(dir),
            queue: Mutex::new(Queue {
                records: VecDeque::new(),
                bytes: 0,
                next: last.next(),
                writer_sleeps: false,
                closed: false,
            }),
            wake: Condvar::new(),
            durable: Mutex::new(Durable { segments, ring: Ring::new(sizes.ring_bytes), last, spilled }),
            trimming: Mutex::new(()),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn account(&self) -> MutexGuard<'_, Durable> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn append(&self, record: Arc<Record>) {
        let header = *record.header();
        assert_eq!(header.cluster, self.cluster, "a record goes to the log of its own cluster");
        let mut queue = self.queue();
        assert_eq!(header.first, queue.next, "records are appended in version order, without gaps");
        queue.next = header.last.next();
        if queue.closed {
            return;
        }
        queue.bytes += record.bytes().len();
        queue.records.push_back(record);
        if queue.writer_sleeps {
            queue.writer_sleeps = false;
            drop(queue);
            self.wake.notify_one();
        }
    }

    pub(super) fn has_room(&self) -> bool {
        let queue = self.queue();
        queue.bytes < QUEUE_LIMIT_BYTES && queue.records.len() < QUEUE_LIMIT_RECORDS
    }

    pub(super) fn close(&self) {
        self.queue().closed = true;
        self.wake.notify_one();
    }

    /// After a failure: queued records will never be written.
    pub(super) fn give_up(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        queue.records.clear();
        queue.bytes = 0;
    }

    /// Whether the log is being closed.
    pub(super) fn is_closed(&self) -> bool {
        self.queue().closed
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue().records.is_empty()
    }

    /// Waits for records and takes all there are; None when the log is closed and all was taken.
    pub(super) fn take_batch(&self) -> Option<VecDeque<Arc<Record>>> {
        let mut queue = self.queue();
        loop {
            if !queue.records.is_empty() {
                queue.bytes = 0;
                return Some(std::mem::take(&mut queue.records));
            }
            if queue.closed {
                return None;
            }
            queue.writer_sleeps = true;
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.writer_sleeps = false;
        }
    }

    pub(super) fn durable(&self) -> Version {
        self.account().last
    }

    pub(super) fn first_retained(&self) -> Version {
        self.account().first_retained()
    }

    /// A new segment is written from now on.
    pub(super) fn begin_segment(&self, segment: Segment) {
        let segments = &mut self.account().segments;
        // An empty one that was too small for its first record is replaced by its like.
        segments.pop_if(|last| last.first == segment.first);
        segments.push(segment);
    }

    /// These records, each with its offset in the active segment, are durable.
    pub(super) fn publish(&self, records: impl Iterator<Item = (Arc<Record>, u64)>) {
        let mut account = self.account();
        let Durable { segments, ring, last, spilled } = &mut *account;
        let active = segments.last_mut().expect("a log has at least the segment that is written");
        for (record, offset) in records {
            let header = record.header();
            active.note(header.first, header.last, offset);
            *last = header.last;
            if record.is_spilled() {
                spilled.push((header.last, header.identity));
            }
            ring.push(record);
        }
    }

    /// Records that can be had without the disk; `None` where it takes the disk.
    pub(super) fn read_from_memory(
        &self,
        version: Version,
        max_bytes: usize,
    ) -> Result<Option<Vec<Arc<Record>>>, LogError> {
        let mut records = Vec::new();
        let piece = self.plan(version.max(Version::ZERO.next()), max_bytes, &mut records)?;
        Ok(piece.is_none().then_some(records))
    }

    /// Blocks on the disk.
    pub(super) fn read_from(&self, version: Version, max_bytes: usize) -> Result<Vec<Arc<Record>>, LogError> {
        let mut records = Vec::new();
        let mut from = version.max(Version::ZERO.next());
        let mut budget = max_bytes;
        while let Some(piece) = self.plan(from, budget, &mut records)? {
            let before = records.len();
            match read_piece(&piece, from, budget, &mut records) {
                // It was trimmed after the plan was made; the next plan notices that.
                Err(LogError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound && from < self.first_retained() =>
                {
                    continue;
                }
                other => other?,
            }
            let read: usize = records[before..].iter().map(|record| record.bytes().len()).sum();
            budget = budget.saturating_sub(read);
            from = records.last().map_or(from, |record| record.header().last.next());
            if budget == 0 || records.len() == before {
                break;
            }
        }
        Ok(records)
    }

    /// Reads from the ring, or names the file with the next piece.
    fn plan(
        &self,
        from: Version,
        budget: usize,
        records: &mut Vec<Arc<Record>>,
    ) -> Result<Option<Piece>, LogError> {
        let account = self.account();
        if from < account.first_retained() {
            return Err(LogError::Trimmed { asked: from, first_retained: account.first_retained() });
        }
        if from > account.last || account.ring.read(from, budget, records) {
            return Ok(None);
        }
        let after = account.segments.partition_point(|segment| segment.first <= from);
        let segment = &account.segments[after - 1];
        Ok(Some(Piece {
            path: segment.path.clone(),
            place: Place { cluster: self.cluster, first: segment.first },
            start: segment.seek(from),
            last: segment.last,
        }))
    }

    pub(super) fn shrink(&self, upto: Version, max_bytes: u64) -> Result<Version, LogError> {
        let _alone = self.trimming.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let is_large = max_bytes == 0 || self.bytes() > max_bytes;
            let Some(oldest) = is_large.then(|| self.account().take_oldest(upto)).flatten() else {
                self.remove_spilled();
                return Ok(self.first_retained());
            };
            // Durably one after the other: a crash must not leave a gap.
            let deleted = fs::remove_file(&oldest.path)
                .map_err(|source| LogError::io("delete", &oldest.path, source))
                .and_then(|()| {
                    disk::sync_folder(&self.dir)
                        .map_err(|source| LogError::io("synchronise", &self.dir, source))
                });
            if let Err(error) = deleted {
                if oldest.path.exists() {
                    self.account().segments.insert(0, oldest);
                }
                return Err(error);
            }
        }
    }

    pub(super) fn in_memory(&self) -> InMemory {
        self.account().ring.sizes()
    }

    /// A file that cannot be looked at counts as nothing: it is gone, or its reader will meet the error.
    pub(super) fn bytes(&self) -> u64 {
        let paths: Vec<PathBuf> = {
            let account = self.account();
            let spilled = account.spilled.iter().map(|(_, identity)| self.spills.path(*identity));
            account.segments.iter().map(|segment| segment.path.clone()).chain(spilled).collect()
        };
        paths.iter().filter_map(|path| fs::metadata(path).ok()).map(|file| file.len()).sum()
    }

    /// Deletes the spilled rows of records that are gone. The next opening deletes what a crash leaves of them.
    fn remove_spilled(&self) {
        let gone: Vec<(Version, Identity)> = {
            let mut account = self.account();
            let first = account.first_retained();
            account.spilled.extract_if(.., |(version, _)| *version < first).collect()
        };
        for (version, identity) in gone {
            if let Err(error) = self.spills.remove_file(identity) {
                tracing::warn!(%version, %error, "the rows of a trimmed version could not be deleted");
            }
        }
    }
}

impl Durable {
    fn first_retained(&self) -> Version {
        self.segments[0].first
    }

    /// Takes the oldest segment out if it holds nothing above `upto`; never the one that is written.
    fn take_oldest(&mut self, upto: Version) -> Option<Segment> {
        match self.segments.as_slice() {
            [oldest, _, ..] if oldest.last <= upto => Some(self.segments.remove(0)),
            _ => None,
        }
    }
}

fn read_piece(
    piece: &Piece,
    from: Version,
    budget: usize,
    records: &mut Vec<Arc<Record>>,
) -> Result<(), LogError> {
    let refused = |source| LogError::io("read", &piece.path, source);
    let file = File::open(&piece.path).map_err(refused)?;
    let (at, offset) = piece.start;
    let mut scanner = Scanner::new(&file, piece.place, offset, at);
    let mut bytes_read = 0;
    // Behind the last durable record the writer may be at work.
    while scanner.expected() <= piece.last {
        let (offset, version) = (scanner.offset(), scanner.expected());
        let damaged = |cause| LogError::Damaged { file: piece.path.clone(), offset, version, cause };
        match scanner.step().map_err(refused)? {
            Step::Record { envelope, bytes, .. } => {
                if envelope.header.last < from {
                    continue;
                }
                bytes_read += bytes.len();
                if bytes_read > budget && !records.is_empty() {
                    return Ok(());
                }
                let record =
                    Record::decode(bytes.to_vec()).map_err(|error| damaged(Damage::Record(error)))?;
                records.push(Arc::new(record));
            }
            Step::End => return Err(damaged(Damage::EndsEarly)),
            Step::Bad(cause) => return Err(damaged(cause)),
        }
    }
    Ok(())
}
