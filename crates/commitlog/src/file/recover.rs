//! Opening a log: reading all of it, and repairing its end.
//!
//! Every record that is there after opening counts as durable, because it will be replayed at the replicas. No mark proves that
//! the records behind the last mark are on the disk: after a failed synchronisation the kernel may show in its cache what
//! it never wrote. So these are written once more and synchronised.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cluster::ids::{ClusterId, Epoch, Identity, Version};
use cluster::record::{DecodeError, Record};

use super::Origin;
use super::disk::{self, Disk};
use super::scan::{self, Scanner, Step, Tail};
use super::segment::{self, MARK_BYTES, Place, SEGMENT_HEADER_BYTES, Segment, SegmentHeader};
use super::spill::SpillFolder;
use super::writer::Active;
use crate::engine::{NEWEST_IDENTITIES, Recovered};
use crate::error::{Damage, LogError};

/// The file whose lock keeps a second process out.
pub(super) const LOCK_FILE: &str = "lock";

pub(super) struct Opened {
    pub(super) recovered: Recovered,
    pub(super) segments: Vec<Segment>,
    /// Records with spilled rows; all these files are complete.
    pub(super) spilled: Vec<(Version, Identity)>,
    pub(super) active: Active,
}

/// How long a lock is waited for. A child process holds copies of our descriptors, and so of a lock that was given up, until
/// it runs its own program: a log that seems to be in use may be free in a moment.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Makes the folder, if need be, and keeps other processes out of it.
pub(super) fn lock_folder(dir: &Path) -> Result<File, LogError> {
    if !dir.is_dir() {
        owner_only::make_folder(dir).map_err(|source| LogError::io("make the folder", dir, source))?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            disk::sync_folder(parent).map_err(|source| LogError::io("synchronise", parent, source))?;
        }
    }
    owner_only::close(dir).map_err(|source| LogError::io("close to other accounts", dir, source))?;
    let path = dir.join(LOCK_FILE);
    let lock = owner_only::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|source| LogError::io("open", &path, source))?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err(LogError::InUse { dir: dir.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(LogError::io("lock", &path, source)),
        }
    }
}

/// Reads the whole log; the head of this file says what is written.
pub(super) fn recover(
    dir: &Path,
    origin: Origin,
    segment_bytes: u64,
    disk: &mut dyn Disk,
) -> Result<Opened, LogError> {
    let cluster = origin.cluster;
    let mut firsts = segment::list(dir)?;
    let begun = firsts.is_empty();
    if begun {
        let header = SegmentHeader { cluster, first: origin.first, epoch: Epoch::default() };
        segment::create(dir, header, segment_bytes, disk)
            .map_err(|source| LogError::io("make", &segment::path_of(dir, header.first), source))?;
        firsts.push(header.first);
    }
    let mut reading = Reading {
        dir,
        cluster,
        segments: Vec::with_capacity(firsts.len()),
        identities: VecDeque::new(),
        spills: SpillFolder::new(dir, cluster),
        spilled: Vec::new(),
        epoch: Epoch::default(),
    };
    let (&last, earlier) = firsts.split_last().expect("there is at least the one just made");
    for (at, &first) in earlier.iter().enumerate() {
        reading.read_sealed(first, firsts[at + 1])?;
    }
    let (active, was_torn) = reading.read_last(last, disk)?;
    // Only now is it known that no record names them.
    reading.spills.remove_orphans(&reading.spilled)?;
    let last = reading.segments.last().expect("the last one was just read").last;
    Ok(Opened {
        recovered: Recovered {
            last,
            last_epoch: reading.epoch,
            identities: reading.identities,
            begun,
            was_torn,
        },
        segments: reading.segments,
        spilled: reading.spilled,
        active,
    })
}

struct Reading<'a> {
    dir: &'a Path,
    cluster: ClusterId,
    segments: Vec<Segment>,
    identities: VecDeque<(Identity, Version)>,
    spills: SpillFolder,
    spilled: Vec<(Version, Identity)>,
    epoch: Epoch,
}

impl Reading<'_> {
    /// Reads a segment that another one follows: all of it was durable.
    fn read_sealed(&mut self, first: Version, next_first: Version) -> Result<(), LogError> {
        let mut segment = Segment::new(self.dir, first);
        let file = self.open(&segment)?;
        let mut scanner = Scanner::new(&file, self.place(first), SEGMENT_HEADER_BYTES, first);
        let stopped = self.read_records(&mut scanner, &mut segment)?;
        if scanner.expected() == next_first {
            self.segments.push(segment);
            return Ok(());
        }
        match stopped {
            // With zeros to its end the segment is complete, and the one behind it is missing.
            None if scan::tail(&file, self.place(first), scanner.offset(), scanner.expected())
                .map_err(|source| LogError::io("read", &segment.path, source))?
                == Tail::Clean
                && scanner.expected() < next_first =>
            {
                Err(LogError::MissingSegment {
                    dir: self.dir.to_owned(),
                    missing: scanner.expected(),
                    next: next_first,
                })
            }
            cause => Err(self.damaged(&segment, &scanner, cause.unwrap_or(Damage::EndsEarly))),
        }
    }

    /// Reads the segment that will be written on.
    fn read_last(&mut self, first: Version, disk: &mut dyn Disk) -> Result<(Active, bool), LogError> {
        let mut segment = Segment::new(self.dir, first);
        let file = self.open(&segment)?;
        let refused = |source| LogError::io("read", &segment::path_of(self.dir, first), source);
        let mut scanner = Scanner::new(&file, self.place(first), SEGMENT_HEADER_BYTES, first);
        let stopped = self.read_records(&mut scanner, &mut segment)?;
        let (end, next) = (scanner.offset(), scanner.expected());
        let tail = scan::tail(&file, self.place(first), end, next).map_err(refused)?;
        self.refuse_damage(&segment, &scanner, stopped, tail)?;
        let was_torn = tail == Tail::Torn;
        let len = file.metadata().map_err(refused)?.len();
        let cannot = |doing, source| LogError::io(doing, &segment::path_of(self.dir, first), source);
        if was_torn {
            tracing::warn!(
                file = %segment.path.display(),
                offset = end,
                version = next.0,
                "cut the end of the log, which a crash had left half written; nothing acknowledged was in it"
            );
            cut(&file, end, len, disk).map_err(|source| cannot("cut the torn end of", source))?;
        }
        let unproven_at = scanner.last_mark().map_or(SEGMENT_HEADER_BYTES, |(behind, _)| behind);
        let mark_at =
            scanner.last_mark().map_or(SEGMENT_HEADER_BYTES, |(behind, _)| behind - MARK_BYTES as u64);
        rewrite(&file, mark_at, end, disk).map_err(|source| cannot("make durable", source))?;
        let active = Active {
            path: segment.path.clone(),
            place: self.place(first),
            last: segment.last,
            epoch: self.epoch,
            end,
            len,
            has_spilled: self.spilled.last().is_some_and(|(version, _)| *version >= first),
            // A mark, or the beginning of the segment, stands right before the end.
            marked: unproven_at == end,
            file,
        };
        self.segments.push(segment);
        Ok((active, was_torn))
    }

    /// Where the records end is either the end of the log, or the trace of a crash, or damage.
    fn refuse_damage(
        &self,
        segment: &Segment,
        scanner: &Scanner<'_>,
        stopped: Option<Damage>,
        tail: Tail,
    ) -> Result<(), LogError> {
        let lost = scanner.last_mark().is_some_and(|(_, durable)| durable >= scanner.expected());
        match stopped {
            Some(Damage::Record(DecodeError::UnknownFormat { format })) => {
                Err(LogError::UnknownFormat { file: segment.path.clone(), format: u32::from(format) })
            }
            // A torn write leaves its own bytes and zeros, never a whole record of another place.
            Some(cause @ (Damage::OutOfOrder { .. } | Damage::Foreign { .. })) => {
                Err(self.damaged(segment, scanner, cause))
            }
            cause if lost || tail == Tail::Proven => {
                Err(self.damaged(segment, scanner, cause.unwrap_or(Damage::EndsEarly)))
            }
            _ => Ok(()),
        }
    }

    fn read_records(
        &mut self,
        scanner: &mut Scanner<'_>,
        segment: &mut Segment,
    ) -> Result<Option<Damage>, LogError> {
        loop {
            let step = scanner.step().map_err(|source| LogError::io("read", &segment.path, source))?;
            match step {
                Step::Record { offset, envelope, bytes } => {
                    if envelope.is_spilled() {
                        // It was made durable before the record was written, so this holds for a torn end as well.
                        let damaged = |error| LogError::Damaged {
                            file: segment.path.clone(),
                            offset,
                            version: envelope.header.first,
                            cause: Damage::Record(error),
                        };
                        let record = Record::decode(bytes.to_vec()).map_err(damaged)?;
                        self.spills.verify(&record)?;
                        self.spilled.push((envelope.header.last, envelope.header.identity));
                    }
                    let header = envelope.header;
                    segment.note(header.first, header.last, offset);
                    self.epoch = self.epoch.max(header.identity.epoch);
                    self.identities.push_back((header.identity, header.last));
                    if self.identities.len() > NEWEST_IDENTITIES {
                        self.identities.pop_front();
                    }
                }
                Step::End => return Ok(None),
                Step::Bad(damage) => return Ok(Some(damage)),
            }
        }
    }

    fn open(&mut self, segment: &Segment) -> Result<File, LogError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&segment.path)
            .map_err(|source| LogError::io("open", &segment.path, source))?;
        let header = SegmentHeader::read(&file, &segment.path, segment.first, self.cluster)?;
        self.epoch = self.epoch.max(header.epoch);
        Ok(file)
    }

    fn place(&self, first: Version) -> Place {
        Place { cluster: self.cluster, first }
    }

    fn damaged(&self, segment: &Segment, scanner: &Scanner<'_>, cause: Damage) -> LogError {
        if let Damage::Foreign { found } = cause {
            return LogError::ForeignCluster { file: segment.path.clone(), found, expected: self.cluster };
        }
        LogError::Damaged {
            file: segment.path.clone(),
            offset: scanner.offset(),
            version: scanner.expected(),
            cause,
        }
    }
}

/// Makes everything from `end` on zero. Otherwise a leftover could be taken for the record that follows a later, shorter one.
fn cut(file: &File, end: u64, len: u64, disk: &mut dyn Disk) -> std::io::Result<()> {
    file.set_len(end)?;
    disk.allocate(file, len)?;
    disk.sync(file)
}

fn rewrite(file: &File, from: u64, end: u64, disk: &mut dyn Disk) -> std::io::Result<()> {
    const STEP_BYTES: u64 = 1 << 20;
    let mut at = from;
    let mut buffer = Vec::new();
    while at < end {
        let n = STEP_BYTES.min(end - at);
        buffer.resize(n as usize, 0);
        file.read_exact_at(&mut buffer, at)?;
        disk::write_all(disk, file, &mut [IoSlice::new(&buffer)], at)?;
        at += n;
    }
    disk.sync(file)
}
