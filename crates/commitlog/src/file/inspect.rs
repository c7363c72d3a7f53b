//! Reading a log from outside: all of it, in any state, changing nothing.
//!
//! Opening a log refuses damage and repairs its end ([`super::recover`]). A reader who wants to know what is in a log, or where
//! it is damaged, must get past the damage and must leave everything as it is. So each segment is judged by itself, by
//! the same rules, and after a damaged one the next is read.
//!
//! A node may have the log open meanwhile. Then the last bytes are just being written, and the oldest segments may go away.
//! Neither is damage.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

use cluster::ids::{ClusterId, TableId, Version};
use cluster::record::{Change, Item, Record, RowChange, Sequence, Statement};

use super::recover::LOCK_FILE;
use super::scan::{self, Scanner, Step, Tail};
use super::segment::{self, Place, SEGMENT_HEADER_BYTES, Segment, SegmentHeader};
use super::spill::SpillFolder;
use crate::error::{Damage, LogError};

/// How many rows of one table a record changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RowCounts {
    /// Inserted rows.
    pub inserted: u64,
    /// Updated rows.
    pub updated: u64,
    /// Deleted rows.
    pub deleted: u64,
    /// How often the table was truncated.
    pub truncated: u64,
}

/// The contents of a record, its spilled rows included.
#[derive(Debug, Default)]
pub struct Contents {
    /// The row changes, by table.
    pub rows: BTreeMap<TableId, RowCounts>,
    /// The statements, in order.
    pub statements: Vec<Statement>,
    /// The marks of sequences, in order.
    pub sequences: Vec<Sequence>,
    /// It opens an epoch.
    pub is_fence: bool,
    /// The bytes of its spilled rows, if it has any.
    pub spilled_bytes: Option<u64>,
}

/// One finding; they come in order.
#[derive(Debug)]
pub enum Found<'a> {
    /// A record that can be read.
    Record {
        /// The segment.
        file: &'a Path,
        /// The place where it begins.
        offset: u64,
        /// The record itself.
        record: &'a Record,
        /// Its contents.
        contents: &'a Contents,
    },
    /// Damage; the rest of this segment cannot be read.
    Damage(&'a LogError),
    /// The end of a segment.
    Segment {
        /// The segment.
        file: &'a Path,
        /// Its first version, by its name.
        first: Version,
        /// The last version that can be read, or the one before `first`.
        last: Version,
        /// How long the records and marks are.
        bytes: u64,
        /// Behind them stands an incomplete record: of a crash, or one that is just being written.
        is_torn: bool,
    },
}

/// The log as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inspected {
    /// The cluster that the log belongs to; none when no segment says so.
    pub cluster: Option<ClusterId>,
    /// A node has the log open.
    pub is_in_use: bool,
    /// How many places are damaged.
    pub damages: u64,
}

/// Reads the log in `dir` and calls `visit` for each finding. Damage is a finding; an error means that the log cannot be read
/// at all.
pub fn inspect(dir: &Path, visit: &mut dyn FnMut(Found<'_>)) -> Result<Inspected, LogError> {
    let is_in_use = is_in_use(dir)?;
    let firsts = segment::firsts(dir)?;
    let mut inspected = Inspected { cluster: None, is_in_use, damages: 0 };
    for (at, &first) in firsts.iter().enumerate() {
        let next = firsts.get(at + 1).copied();
        let mut reading = Reading { dir, first, inspected, visit };
        let ended = reading.segment(next);
        inspected = reading.inspected;
        match ended {
            Ok(()) => {}
            Err(LogError::Io { source, .. }) if is_in_use && source.kind() == io::ErrorKind::NotFound => {}
            Err(error @ LogError::Io { .. }) => return Err(error),
            Err(damage) => {
                inspected.damages += 1;
                visit(Found::Damage(&damage));
            }
        }
    }
    Ok(inspected)
}

/// Whether another process has the log open. Nothing is created.
fn is_in_use(dir: &Path) -> Result<bool, LogError> {
    let path = dir.join(LOCK_FILE);
    let lock = match OpenOptions::new().read(true).open(&path) {
        Ok(lock) => lock,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(LogError::io("open", &path, source)),
    };
    match lock.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(source)) => Err(LogError::io("lock", &path, source)),
    }
}

struct Reading<'a> {
    dir: &'a Path,
    first: Version,
    inspected: Inspected,
    visit: &'a mut dyn FnMut(Found<'_>),
}

impl Reading<'_> {
    fn segment(&mut self, next: Option<Version>) -> Result<(), LogError> {
        let segment = Segment::new(self.dir, self.first);
        let refused = |source| LogError::io("read", &segment.path, source);
        let file = File::open(&segment.path).map_err(refused)?;
        let cluster = self.header(&file, &segment.path)?;
        let place = Place { cluster, first: self.first };
        let mut scanner = Scanner::new(&file, place, SEGMENT_HEADER_BYTES, self.first);
        let stopped = self.records(&mut scanner, &segment.path, cluster)?;
        let (bytes, expected) = (scanner.offset(), scanner.expected());
        let tail = scan::tail(&file, place, bytes, expected).map_err(refused)?;
        let damage = judge(self.dir, &segment.path, &scanner, stopped, tail, next);
        (self.visit)(Found::Segment {
            file: &segment.path,
            first: self.first,
            last: Version(expected.0 - 1),
            bytes,
            is_torn: damage.is_none() && tail != Tail::Clean,
        });
        damage.map_or(Ok(()), Err)
    }

    /// Every segment must belong to the cluster of the first.
    fn header(&mut self, file: &File, path: &Path) -> Result<ClusterId, LogError> {
        let header = SegmentHeader::read_any(file, path, self.first)?;
        let expected = *self.inspected.cluster.get_or_insert(header.cluster);
        if header.cluster != expected {
            return Err(LogError::ForeignCluster { file: path.to_owned(), found: header.cluster, expected });
        }
        Ok(expected)
    }

    fn records(
        &mut self,
        scanner: &mut Scanner<'_>,
        path: &Path,
        cluster: ClusterId,
    ) -> Result<Option<Damage>, LogError> {
        let spills = SpillFolder::new(self.dir, cluster);
        loop {
            let step = scanner.step().map_err(|source| LogError::io("read", path, source))?;
            let (offset, bytes) = match step {
                Step::Record { offset, bytes, .. } => (offset, bytes.to_vec()),
                Step::End => return Ok(None),
                Step::Bad(damage) => return Ok(Some(damage)),
            };
            let version = Version(scanner.expected().0 - 1);
            let record = Record::decode(bytes).map_err(|error| LogError::Damaged {
                file: path.to_owned(),
                offset,
                version,
                cause: Damage::Record(error),
            })?;
            match contents(&spills, &record) {
                Ok(contents) => {
                    (self.visit)(Found::Record { file: path, offset, record: &record, contents: &contents });
                }
                // The segment itself can be read on.
                Err(damage @ LogError::Damaged { .. }) => {
                    self.inspected.damages += 1;
                    (self.visit)(Found::Damage(&damage));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The same rules as at the opening of a log; `next` is the first version of the following segment.
fn judge(
    dir: &Path,
    path: &Path,
    scanner: &Scanner<'_>,
    stopped: Option<Damage>,
    tail: Tail,
    next: Option<Version>,
) -> Option<LogError> {
    let (offset, version) = (scanner.offset(), scanner.expected());
    let damaged = |cause| Some(LogError::Damaged { file: path.to_owned(), offset, version, cause });
    if let Some(next) = next {
        return match stopped {
            None if version == next => None,
            None if tail == Tail::Clean && version < next => {
                Some(LogError::MissingSegment { dir: dir.to_owned(), missing: version, next })
            }
            cause => damaged(cause.unwrap_or(Damage::EndsEarly)),
        };
    }
    let is_lost = scanner.last_mark().is_some_and(|(_, durable)| durable >= version);
    match stopped {
        Some(cause @ (Damage::OutOfOrder { .. } | Damage::Foreign { .. })) => damaged(cause),
        cause if is_lost || tail == Tail::Proven => damaged(cause.unwrap_or(Damage::EndsEarly)),
        _ => None,
    }
}

fn contents(spills: &SpillFolder, record: &Record) -> Result<Contents, LogError> {
    let mut contents = Contents::default();
    if let Some(spilled) = record.spilled() {
        contents.spilled_bytes = Some(spilled.bytes);
        let mut reader = spills.open_file(record)?;
        while let Some(chunk) = reader.next_chunk()? {
            chunk.items().for_each(|item| note(&mut contents, item));
        }
    }
    record.items().for_each(|item| note(&mut contents, item));
    Ok(contents)
}

fn note(contents: &mut Contents, item: Item<'_>) {
    match item {
        Item::Rows(rows) => rows.iter().for_each(|change| count(&mut contents.rows, change)),
        Item::Statement(statement) => contents.statements.push(statement),
        Item::Shipped(shipped) => contents.statements.push(Statement {
            text: String::from_utf8_lossy(&shipped.text).into_owned(),
            role: shipped.role,
            ..Statement::default()
        }),
        Item::Sequence(sequence) => contents.sequences.push(sequence),
        Item::Fence => contents.is_fence = true,
        Item::Spilled(_) | Item::Origin(_) => {}
    }
}

fn count(rows: &mut BTreeMap<TableId, RowCounts>, change: RowChange<'_>) {
    let counts = rows.entry(change.table).or_default();
    let counter = match change.change {
        Change::Insert { .. } => &mut counts.inserted,
        Change::Update { .. } => &mut counts.updated,
        Change::Delete { .. } => &mut counts.deleted,
        Change::Truncate => &mut counts.truncated,
    };
    *counter += 1;
}
