//! Segments: the files of a log, their names, their headers, and the marks inside.
//!
//! A segment gets its name only when its header is durable, so a file with the name of a segment and without a valid
//! header is damage, never the trace of a crash. All numbers are little endian.

use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cluster::ids::{ClusterId, Epoch, Version};

use super::disk::{self, Disk};
use crate::error::{Damage, LogError};

/// Length of a segment's header.
pub(super) const SEGMENT_HEADER_BYTES: u64 = 64;
/// Length of a mark.
pub(super) const MARK_BYTES: usize = 24;
/// The bytes that a mark begins with.
pub(super) const MARK_MAGIC: [u8; 4] = *b"1cpM";

const SEGMENT_MAGIC: [u8; 8] = *b"1cpSEGM\n";
const SEGMENT_FORMAT: u32 = 1;
/// Bytes between two entries of a segment's index.
const INDEX_STEP_BYTES: u64 = 64 << 10;

/// The header at the beginning of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentHeader {
    pub(super) cluster: ClusterId,
    /// The first version in it.
    pub(super) first: Version,
    /// The highest epoch of all records before it.
    pub(super) epoch: Epoch,
}

impl SegmentHeader {
    fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut out = [0; SEGMENT_HEADER_BYTES as usize];
        out[..8].copy_from_slice(&SEGMENT_MAGIC);
        out[8..12].copy_from_slice(&SEGMENT_FORMAT.to_le_bytes());
        out[16..32].copy_from_slice(&self.cluster.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.first.0.to_le_bytes());
        out[40..44].copy_from_slice(&self.epoch.0.to_le_bytes());
        let crc = header_crc(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads and checks the header of the segment at `path`, whose name promises `first`.
    pub(super) fn read(
        file: &File,
        path: &Path,
        first: Version,
        cluster: ClusterId,
    ) -> Result<Self, LogError> {
        let header = Self::read_any(file, path, first)?;
        if header.cluster != cluster {
            return Err(LogError::ForeignCluster {
                file: path.to_owned(),
                found: header.cluster,
                expected: cluster,
            });
        }
        Ok(header)
    }

    /// The same for a segment of any cluster.
    pub(super) fn read_any(file: &File, path: &Path, first: Version) -> Result<Self, LogError> {
        let damaged = || LogError::Damaged {
            file: path.to_owned(),
            offset: 0,
            version: first,
            cause: Damage::SegmentHeader,
        };
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        file.read_exact_at(&mut bytes, 0).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => damaged(),
            _ => LogError::io("read", path, source),
        })?;
        let number = |range: std::ops::Range<usize>| {
            let mut wide = [0; 16];
            wide[..range.len()].copy_from_slice(&bytes[range]);
            u128::from_le_bytes(wide)
        };
        if bytes[..8] != SEGMENT_MAGIC || number(12..16) != u128::from(header_crc(&bytes)) {
            return Err(damaged());
        }
        let format = number(8..12) as u32;
        if format != SEGMENT_FORMAT {
            return Err(LogError::UnknownFormat { file: path.to_owned(), format });
        }
        let header = Self {
            cluster: ClusterId(number(16..32)),
            first: Version(number(32..40) as u64),
            epoch: Epoch(number(40..44) as u32),
        };
        if header.first != first {
            return Err(damaged());
        }
        Ok(header)
    }
}

fn header_crc(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..])
}

/// Says that every version up to `durable` was durable when it was written.
///
/// Its checksum covers its place, so bytes which a client stores in a row are never taken for a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) durable: Version,
}

/// The segment that a mark stands in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) cluster: ClusterId,
    pub(super) first: Version,
}

impl Mark {
    pub(super) fn encode(self, place: Place, offset: u64) -> [u8; MARK_BYTES] {
        let mut out = [0; MARK_BYTES];
        out[..4].copy_from_slice(&MARK_MAGIC);
        out[8..16].copy_from_slice(&self.durable.0.to_le_bytes());
        out[16..24].copy_from_slice(&offset.to_le_bytes());
        let crc = mark_crc(&out, place);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The mark that `bytes`, found at `offset`, begin with; None if they do not.
    pub(super) fn decode(bytes: &[u8], place: Place, offset: u64) -> Option<Self> {
        let bytes = bytes.first_chunk::<MARK_BYTES>()?;
        let [_, _, _, _, c0, c1, c2, c3, durable @ .., _, _, _, _, _, _, _, _] = *bytes;
        let crc = u32::from_le_bytes([c0, c1, c2, c3]);
        let here = bytes[16..] == offset.to_le_bytes();
        let sound = bytes[..4] == MARK_MAGIC && crc == mark_crc(bytes, place);
        (here && sound).then(|| Self { durable: Version(u64::from_le_bytes(durable)) })
    }
}

fn mark_crc(mark: &[u8], place: Place) -> u32 {
    let crc = crc32c::crc32c(&place.cluster.0.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &place.first.0.to_le_bytes());
    crc32c::crc32c_append(crc, &mark[8..])
}

/// A segment, as far as it is known in memory.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) first: Version,
    /// The last durable version in it; the one before `first` while it is empty.
    pub(super) last: Version,
    /// Where some of its records begin, in order.
    index: Vec<(Version, u64)>,
}

impl Segment {
    pub(super) fn new(dir: &Path, first: Version) -> Self {
        Self { path: path_of(dir, first), first, last: Version(first.0 - 1), index: Vec::new() }
    }

    /// A record that begins at `offset` is durable.
    pub(super) fn note(&mut self, first: Version, last: Version, offset: u64) {
        let due = self.index.last().is_none_or(|(_, indexed)| offset - indexed >= INDEX_STEP_BYTES);
        if due {
            self.index.push((first, offset));
        }
        self.last = last;
    }

    /// A place at or before the record with `version`: the version there, and the offset.
    pub(super) fn seek(&self, version: Version) -> (Version, u64) {
        let after = self.index.partition_point(|(indexed, _)| *indexed <= version);
        after.checked_sub(1).map_or((self.first, SEGMENT_HEADER_BYTES), |at| self.index[at])
    }
}

/// The name of the segment that begins with `first`.
pub(super) fn path_of(dir: &Path, first: Version) -> PathBuf {
    dir.join(format!("{:020}.log", first.0))
}

/// The segments in a folder, by their names, in order; unfinished ones of a crash are deleted.
pub(super) fn list(dir: &Path) -> Result<Vec<Version>, LogError> {
    for path in entries(dir)? {
        if path.to_str().is_some_and(|name| name.ends_with(".log.new")) {
            fs::remove_file(&path).map_err(|source| LogError::io("delete", &path, source))?;
        }
    }
    firsts(dir)
}

/// The segments in a folder, by their names, in order; nothing is changed.
pub(super) fn firsts(dir: &Path) -> Result<Vec<Version>, LogError> {
    let mut found = Vec::new();
    for path in entries(dir)? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(number) = name.strip_suffix(".log") else { continue };
        let well_formed = number.len() == 20 && number.bytes().all(|b| b.is_ascii_digit());
        if let Some(first) = number.parse().ok().filter(|&first| well_formed && first > 0) {
            found.push(Version(first));
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, LogError> {
    let listed = fs::read_dir(dir).and_then(|listed| listed.map(|entry| Ok(entry?.path())).collect());
    listed.map_err(|source| LogError::io("list the folder", dir, source))
}

/// Makes a new, empty segment durable under its name.
pub(super) fn create(
    dir: &Path,
    header: SegmentHeader,
    len_bytes: u64,
    disk: &mut dyn Disk,
) -> io::Result<File> {
    let path = path_of(dir, header.first);
    let unfinished = path.with_extension("log.new");
    let file = owner_only::options().read(true).write(true).create(true).truncate(true).open(&unfinished)?;
    let finish = |disk: &mut dyn Disk| {
        disk.allocate(&file, len_bytes)?;
        disk::write_all(disk, &file, &mut [IoSlice::new(&header.encode())], 0)?;
        disk.sync(&file)?;
        fs::rename(&unfinished, &path)?;
        disk::sync_folder(dir)
    };
    if let Err(error) = finish(disk) {
        // Space may be what is missing; a leftover is also deleted at the next start.
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    Ok(file)
}
