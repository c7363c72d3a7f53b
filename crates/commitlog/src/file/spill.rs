//! Spilled rows in files beside the segments, one for each transaction.
//!
//! A file's name is the transaction's identity. The file is durable before the record is appended. A file that no record names
//! is deleted when the log is opened, or before, when its transaction ends.
//!
//! What is written is made durable every so many bytes, which slows the capture of rows down to the pace of the disk. Some space
//! is left for the log itself, which must not fail because one transaction filled the disk.

use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cluster::ids::{ClusterId, DatabaseId, Identity, TableId, Version};
use cluster::record::{CHUNK_HEAD_BYTES, Chunk, ChunkCheck, DecodeError, Record};

use super::disk::{self, Disk, RealDisk};
use crate::error::{Damage, LogError};

/// How much is written between two synchronisations.
const SYNC_EVERY_BYTES: u64 = 32 << 20;
/// How much of the disk is left for the log itself: several segments.
const RESERVE_BYTES: u64 = 512 << 20;
/// Another reserve, for tests of a full disk.
const RESERVE_VARIABLE: &str = "ONECOPY_TEST_DISK_RESERVE_MB";

const HEADER_BYTES: u64 = 64;
const MAGIC: [u8; 8] = *b"1cpROWS\n";
const FORMAT: u32 = 1;
const SUFFIX: &str = ".rows";

/// The folder of the files.
#[derive(Clone, Debug)]
pub struct SpillFolder {
    dir: PathBuf,
    cluster: ClusterId,
    reserve_bytes: u64,
}

impl SpillFolder {
    /// Of a log's folder.
    pub fn new(dir: &Path, cluster: ClusterId) -> Self {
        let asked = std::env::var(RESERVE_VARIABLE).ok().and_then(|text| text.parse::<u64>().ok());
        let reserve_bytes = asked.map_or(RESERVE_BYTES, |mb| mb << 20);
        Self { dir: dir.to_owned(), cluster, reserve_bytes }
    }

    /// The files of spilled rows in a folder.
    pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>, LogError> {
        let refused = |source| LogError::io("list the folder", dir, source);
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).map_err(refused)? {
            let path = entry.map_err(refused)?.path();
            if path.to_str().is_some_and(|name| name.ends_with(SUFFIX)) {
                found.push(path);
            }
        }
        Ok(found)
    }

    /// Begins the file of a transaction. Blocks on the disk.
    pub(crate) fn create_file(&self, identity: Identity) -> io::Result<SpillFile> {
        self.create_with(identity, Box::new(RealDisk))
    }

    pub(super) fn create_with(&self, identity: Identity, mut disk: Box<dyn Disk>) -> io::Result<SpillFile> {
        let path = self.path(identity);
        let file = owner_only::options().read(true).write(true).create_new(true).open(&path)?;
        let header = self.header(identity);
        let reserve_bytes = self.reserve_bytes;
        let mut begun =
            SpillFile { dir: self.dir.clone(), path, file, end: 0, synced: 0, reserve_bytes, disk: None };
        disk::write_all(disk.as_mut(), &begun.file, &mut [IoSlice::new(&header)], 0)?;
        (begun.end, begun.disk) = (HEADER_BYTES, Some(disk));
        Ok(begun)
    }

    /// Deletes the file of a transaction whose record is not in the log.
    pub(crate) fn remove_file(&self, identity: Identity) -> io::Result<()> {
        fs::remove_file(self.path(identity))
    }

    /// Opens the file of a record. Blocks on the disk.
    pub(crate) fn open_file(&self, record: &Record) -> Result<SpillFileReader, LogError> {
        let version = record.header().last;
        let path = self.path(record.header().identity);
        let damaged = |cause| LogError::Damaged { file: path.clone(), offset: 0, version, cause };
        let Some(spilled) = record.spilled() else { return Err(damaged(Damage::SpillMissing)) };
        let refused = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => damaged(Damage::SpillMissing),
            io::ErrorKind::UnexpectedEof => damaged(Damage::SpillHeader),
            _ => LogError::io("read", &path, source),
        };
        let file = File::open(&path).map_err(refused)?;
        let mut header = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0).map_err(refused)?;
        if header != self.header(record.header().identity) {
            return Err(damaged(Damage::SpillHeader));
        }
        let (database, tables) = (record.header().database, record.tables().collect());
        Ok(SpillFileReader { path, file, version, check: ChunkCheck::new(spilled), database, tables })
    }

    /// Reads a record's file to its end.
    pub(crate) fn verify(&self, record: &Record) -> Result<(), LogError> {
        let mut reader = self.open_file(record)?;
        while reader.next_chunk()?.is_some() {}
        Ok(())
    }

    /// Deletes the files of all other records.
    pub(super) fn remove_orphans(&self, kept: &[(Version, Identity)]) -> Result<(), LogError> {
        let kept: Vec<PathBuf> = kept.iter().map(|(_, identity)| self.path(*identity)).collect();
        for path in Self::files(&self.dir)? {
            if !kept.contains(&path) {
                tracing::info!(file = %path.display(), "deleted the rows of a transaction that did not commit");
                fs::remove_file(&path).map_err(|source| LogError::io("delete", &path, source))?;
            }
        }
        Ok(())
    }

    pub(super) fn path(&self, identity: Identity) -> PathBuf {
        let Identity { epoch, n, nonce } = identity;
        self.dir.join(format!("{:010}-{n:020}-{:016x}{SUFFIX}", epoch.0, nonce.0))
    }

    fn header(&self, identity: Identity) -> [u8; HEADER_BYTES as usize] {
        let mut out = [0; HEADER_BYTES as usize];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..32].copy_from_slice(&self.cluster.0.to_le_bytes());
        out[32..40].copy_from_slice(&identity.n.to_le_bytes());
        out[40..48].copy_from_slice(&identity.nonce.0.to_le_bytes());
        out[48..52].copy_from_slice(&identity.epoch.0.to_le_bytes());
        let crc = crc32c::crc32c(&out[16..]);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }
}

/// A file that grows. It is deleted on drop, unless it was finished.
pub(crate) struct SpillFile {
    dir: PathBuf,
    path: PathBuf,
    file: File,
    end: u64,
    synced: u64,
    reserve_bytes: u64,
    /// `None` once the file was finished, or before it was begun.
    disk: Option<Box<dyn Disk>>,
}

impl SpillFile {
    /// Adds a chunk. Blocks on the disk.
    pub(crate) fn append(&mut self, chunk: &Chunk) -> io::Result<()> {
        let need_bytes = self.reserve_bytes.saturating_add(chunk.bytes().len() as u64);
        let space = rustix::fs::fstatvfs(&self.file)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < need_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let Some(disk) = &mut self.disk else { return Err(io::ErrorKind::InvalidInput.into()) };
        disk::write_all(disk.as_mut(), &self.file, &mut [IoSlice::new(chunk.bytes())], self.end)?;
        self.end += chunk.bytes().len() as u64;
        if self.end - self.synced >= SYNC_EVERY_BYTES {
            disk.sync(&self.file)?;
            self.synced = self.end;
        }
        Ok(())
    }

    /// Makes the file durable; from here on it belongs to the record. Blocks on the disk.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if let Some(disk) = &mut self.disk {
            disk.sync(&self.file)?;
        }
        disk::sync_folder(&self.dir)?;
        self.disk = None;
        self.path.clear();
        Ok(())
    }
}

impl std::fmt::Debug for SpillFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpillFile").field("path", &self.path).field("end", &self.end).finish_non_exhaustive()
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        if self.path.as_os_str().is_empty() {
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(file = %self.path.display(), %error, "could not be deleted; the next start will do it");
        }
    }
}

/// Reads a record's file, chunk by chunk.
#[derive(Debug)]
pub(crate) struct SpillFileReader {
    path: PathBuf,
    file: File,
    version: Version,
    check: ChunkCheck,
    database: DatabaseId,
    tables: Vec<TableId>,
}

impl SpillFileReader {
    /// The next chunk without what was undone; `None` after the last. Blocks on the disk.
    pub(super) fn next_chunk(&mut self) -> Result<Option<Chunk>, LogError> {
        if self.check.is_complete() {
            return Ok(None);
        }
        let offset = HEADER_BYTES + self.check.bytes();
        let chunk = self.read(offset)?;
        Ok(Some(chunk.without(self.check.skips())))
    }

    fn read(&mut self, offset: u64) -> Result<Chunk, LogError> {
        let (path, version) = (self.path.clone(), self.version);
        let damaged =
            |error| LogError::Damaged { file: path.clone(), offset, version, cause: Damage::Record(error) };
        let refused = |source: io::Error| LogError::io("read", &path, source);
        let left = self.file.metadata().map_err(refused)?.len().saturating_sub(offset);
        let have_bytes = usize::try_from(left).unwrap_or(usize::MAX);
        let truncated = |needed_bytes| damaged(DecodeError::Truncated { needed_bytes, have_bytes });
        let mut head = [0; CHUNK_HEAD_BYTES];
        if have_bytes < head.len() {
            return Err(truncated(head.len()));
        }
        self.file.read_exact_at(&mut head, offset).map_err(refused)?;
        let length_bytes = Chunk::length_bytes(&head).map_err(damaged)?;
        // Memory is taken only for what the file has, whatever length the bytes claim.
        if have_bytes < length_bytes {
            return Err(truncated(length_bytes));
        }
        let mut bytes = vec![0; length_bytes];
        self.file.read_exact_at(&mut bytes, offset).map_err(refused)?;
        let chunk = Chunk::decode(self.database, bytes, &self.tables).map_err(damaged)?;
        self.check.note(&chunk).map_err(damaged)?;
        Ok(chunk)
    }
}
