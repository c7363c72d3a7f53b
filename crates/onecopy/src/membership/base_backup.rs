//! A copy of a running server's data folder, taken while it serves.
//!
//! PostgreSQL makes such copies for its own standbys: the command `BASE_BACKUP` sends every file and, behind them, the
//! part of the write-ahead log that makes them consistent. A server that is started on the copy recovers to the moment
//! at which the copying ended.
//!
//! The copy then has a prefix of the versions, except for some of the last ones, which were being committed together.
//! Its `onecopy.applied` says which, and the replica driver has the others applied first. The copy takes no lock at the
//! donor, so clients and schema changes go on meanwhile. It has everything that the donor has: roles, object ids,
//! indexes, sequences, our own objects.
//!
//! We speak the protocol ourselves, since the program for it (pg_basebackup) does not come with the binaries that we
//! fetch. A thread unpacks the archive as it arrives, through a bounded queue. [`copy_of_folder`] copies such a folder again, for a
//! replica that comes back from a checkpoint.
//!
//! Invariant: after an error the folder does not hold a data folder, and the caller removes it.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pgserver::{Account, Server, ServerError};
use tokio::sync::mpsc;
use wire::backend::tag;
use wire::{encode, frame};

use crate::backend::{Address, BackendError, Connection};
use crate::coordinator::resync_progress::Transfer;
use crate::security::scram::Secret;

/// The length of the queue of pieces to unpack. A server sends pieces of some tens of kilobytes.
const QUEUE_PIECES: usize = 64;
/// Since this release the first byte of a piece tells its kind.
const MARKED_SINCE: u32 = 15;
/// How long a donor may be silent. It makes a checkpoint first, which takes minutes on a slow disk.
const SILENCE_MAX: Duration = Duration::from_mins(15);
/// The modes that PostgreSQL wants in its data folder.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The space that stays free on the disk. The log may be on the same disk.
const RESERVE_BYTES: u64 = 512 << 20;

/// A server could not be copied.
#[derive(Debug)]
pub(crate) enum BackupError {
    /// The donor refused, or was lost.
    Donor(BackendError),
    /// The donor is down: it does not answer, or its server was lost.
    Abandoned,
    /// The donor has sent no bytes for too long, although it answers others.
    Silent,
    /// The donor has tablespaces outside its data folder.
    Tablespaces,
    /// The copy would fill the disk.
    NoSpace {
        /// The folder.
        path: PathBuf,
        /// The size of the copy and of the space that has to stay free.
        needed_bytes: u64,
        /// The free space on the disk.
        free_bytes: u64,
    },
    /// The copy could not be written.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The donor's archive has an entry that does not belong into a data folder, or cannot be read.
    Archive(String),
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Donor(error) => write!(f, "the donor cannot be copied: {error}"),
            Self::Abandoned => f.write_str("the donor went down while it was copied; run the command again"),
            Self::Silent => write!(
                f,
                "the donor has sent nothing for {} s; look into its server's log, and run the command again",
                SILENCE_MAX.as_secs()
            ),
            Self::Tablespaces => f.write_str(
                "the donor has tablespaces, whose folders two servers of one machine cannot share",
            ),
            Self::NoSpace { path, needed_bytes, free_bytes } => write!(
                f,
                "a copy in {} needs {} MB on its disk, {} MB are free; the old data is kept until the copy is complete",
                path.display(),
                needed_bytes >> 20,
                free_bytes >> 20
            ),
            Self::Io { path, source } => write!(f, "cannot write {}: {source}", path.display()),
            Self::Archive(what) => write!(f, "the donor's copy is not as it should be: {what}"),
        }
    }
}

impl std::error::Error for BackupError {}

impl From<BackendError> for BackupError {
    fn from(error: BackendError) -> Self {
        Self::Donor(error)
    }
}

/// A server did not get a copy of another one's data.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The other server could not be copied.
    Backup {
        /// The server that was to get the copy.
        name: String,
        /// Why.
        error: BackupError,
    },
    /// The folder for the copy could not be made or completed.
    Server(ServerError),
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backup { name, error } => write!(f, "{name} cannot be rebuilt: {error}"),
            Self::Server(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CopyError {}

/// Copies the server at `donor` beside the data folder of `server`. Nothing else changes yet.
pub(crate) async fn copy(
    server: &Server,
    donor: &Address,
    superuser: &str,
    transfer: &Transfer,
) -> Result<(), CopyError> {
    let into = server.begin_copy().map_err(CopyError::Server)?;
    receive(donor, superuser, &into, server.account(), transfer)
        .await
        .map_err(|error| CopyError::Backup { name: server.name.clone(), error })?;
    server.complete_copy().await.map_err(CopyError::Server)
}

/// Copies a folder that no server uses beside the data folder of `server`. Nothing else changes yet.
pub(crate) async fn copy_of_folder(
    server: &Server,
    folder: &Path,
    total_bytes: u64,
    transfer: &Arc<Transfer>,
) -> Result<(), CopyError> {
    let into = server.begin_copy().map_err(CopyError::Server)?;
    let (from, account, transfer) = (folder.to_owned(), server.account().clone(), Arc::clone(transfer));
    let copying = tokio::task::spawn_blocking(move || {
        check_space(&into, total_bytes)?;
        copy_folder(&from, &into, &account, &transfer)
            .map_err(|source| BackupError::Io { path: into.clone(), source })
    });
    let copied = copying.await.unwrap_or_else(|error| Err(BackupError::Archive(error.to_string())));
    copied.map_err(|error| CopyError::Backup { name: server.name.clone(), error })?;
    server.complete_copy().await.map_err(CopyError::Server)
}

/// Copies a folder of files that no server uses. Each file is the account's.
fn copy_folder(from: &Path, into: &Path, account: &Account, transfer: &Transfer) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, copy) = (entry.path(), into.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir(&copy)?;
            fs::set_permissions(&copy, entry.metadata()?.permissions())?;
            copy_folder(&source, &copy, account, transfer)?;
        } else if kind.is_file() {
            // The mode is copied, too.
            transfer.add(fs::copy(&source, &copy)?);
        } else {
            let text = format!("{} is neither file nor folder", source.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        account.give(&copy)?;
    }
    Ok(())
}

/// Checks that the disk has room for a copy.
fn check_space(into: &Path, total_bytes: u64) -> Result<(), BackupError> {
    let disk = rustix::fs::statvfs(into)
        .map_err(|error| BackupError::Io { path: into.to_owned(), source: error.into() })?;
    let (path, free_bytes) = (into.to_owned(), disk.f_bavail.saturating_mul(disk.f_frsize));
    let needed_bytes = total_bytes.saturating_add(RESERVE_BYTES);
    if free_bytes < needed_bytes {
        return Err(BackupError::NoSpace { path, needed_bytes, free_bytes });
    }
    Ok(())
}

/// Copies the server at `donor` into the empty folder `into`. The files are not synced yet.
pub(crate) async fn receive(
    donor: &Address,
    superuser: &str,
    into: &Path,
    account: &Account,
    transfer: &Transfer,
) -> Result<(), BackupError> {
    let (mut connection, is_marked) = unless_abandoned(transfer, begin(donor, superuser)).await?;
    let (pieces, queue) = mpsc::channel(QUEUE_PIECES);
    let (folder, account) = (into.to_owned(), account.clone());
    let unpacking = tokio::task::spawn_blocking(move || unpack(&folder, &account, Pieces::new(queue)));
    let receiving = Receiving { is_marked, results: 0, pieces, into, transfer }.run(&mut connection);
    let received = unless_abandoned(transfer, async {
        match receiving.await {
            // The thread says why.
            Ok(()) | Err(ReceiveError::NotTaken) => Ok(()),
            Err(ReceiveError::Failed(error)) => Err(error),
        }
    });
    let received = received.await;
    // The thread must have ended before another copy begins.
    let unpacked = unpacking.await.unwrap_or_else(|error| Err(BackupError::Archive(error.to_string())));
    received.and(unpacked)
}

/// Runs `work` until it is done or the donor is given up.
async fn unless_abandoned<T>(
    transfer: &Transfer,
    work: impl Future<Output = Result<T, BackupError>>,
) -> Result<T, BackupError> {
    transfer.unless_abandoned(work).await.unwrap_or(Err(BackupError::Abandoned))
}

/// Orders the copy. Returns whether its pieces are marked.
async fn begin(donor: &Address, superuser: &str) -> Result<(Connection, bool), BackupError> {
    let parameters = [("user", superuser), ("replication", "true"), ("application_name", "onecopy rebuild")];
    let mut connection = Connection::open(donor, &Secret::None, &parameters).await?;
    let is_marked = connection.process.version() >= MARKED_SINCE;
    // The server keeps its log from here on until the connection ends.
    let slot = getrandom::u64().map_err(|error| BackupError::Archive(error.to_string()))?;
    connection
        .simple(&format!("CREATE_REPLICATION_SLOT onecopy_{slot:016x} TEMPORARY PHYSICAL RESERVE_WAL"))
        .await?;
    let command = if is_marked {
        "BASE_BACKUP (LABEL 'onecopy', CHECKPOINT 'fast', PROGRESS true, WAL true)"
    } else {
        "BASE_BACKUP LABEL 'onecopy' PROGRESS FAST WAL"
    };
    encode::query(&mut connection.output, command.as_bytes());
    connection.flush().await.map_err(BackendError::from)?;
    Ok((connection, is_marked))
}

/// Why receiving has ended.
enum ReceiveError {
    Failed(BackupError),
    /// The thread that unpacks has ended.
    NotTaken,
}

impl<E: Into<BackupError>> From<E> for ReceiveError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Reads the donor's answer to the command: a table of log positions, a table of tablespaces, the archives, and again a
/// log position.
struct Receiving<'a> {
    is_marked: bool,
    results: u32,
    pieces: mpsc::Sender<Vec<u8>>,
    into: &'a Path,
    transfer: &'a Transfer,
}

impl Receiving<'_> {
    async fn run(mut self, connection: &mut Connection) -> Result<(), ReceiveError> {
        let mut archives = 0;
        loop {
            let message = tokio::time::timeout(SILENCE_MAX, connection.message()).await;
            let (kind, total) = message.map_err(|_| BackupError::Silent)??;
            let body = &connection.input.data()[frame::HEADER_BYTES..total];
            match kind {
                tag::ROW_DESCRIPTION => self.results += 1,
                tag::DATA_ROW if self.results == 2 => self.tablespace(body)?,
                tag::COPY_OUT_RESPONSE if !self.is_marked => archives += 1,
                tag::COPY_DATA => match (self.is_marked, body.split_first()) {
                    (true, Some((b'n', _))) => archives += 1,
                    (true, Some((b'd', bytes))) => self.piece(bytes).await?,
                    (true, _) => {}
                    (false, _) => self.piece(body).await?,
                },
                tag::ERROR_RESPONSE => return Err(BackendError::Server(body.to_vec()).into()),
                tag::READY_FOR_QUERY => return Ok(()),
                _ => {}
            }
            if archives > 1 {
                return Err(BackupError::Tablespaces.into());
            }
            connection.input.consume(total);
        }
    }

    /// Reads the row of a tablespace: its id, its place and its size in kilobytes. The data folder itself has no id.
    fn tablespace(&self, body: &[u8]) -> Result<(), BackupError> {
        let row = wire::backend::data_row(body).map_err(BackendError::from)?;
        let [None, _, Some(kilobytes)] = row.as_slice() else { return Err(BackupError::Tablespaces) };
        let kilobytes: u64 = String::from_utf8_lossy(kilobytes).parse().unwrap_or_default();
        let total_bytes = kilobytes << 10;
        self.transfer.expect(total_bytes);
        check_space(self.into, total_bytes)
    }

    async fn piece(&self, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.transfer.add(bytes.len() as u64);
        self.pieces.send(bytes.to_vec()).await.map_err(|_| ReceiveError::NotTaken)
    }
}

/// The archive as a stream of bytes, for the thread that unpacks it.
struct Pieces {
    queue: mpsc::Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Pieces {
    fn new(queue: mpsc::Receiver<Vec<u8>>) -> Self {
        Self { queue, piece: Vec::new(), at: 0 }
    }
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.queue.blocking_recv() {
                Some(piece) => (self.piece, self.at) = (piece, 0),
                None => return Ok(0),
            }
        }
        let n = into.len().min(self.piece.len() - self.at);
        into[..n].copy_from_slice(&self.piece[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

fn unpack(into: &Path, account: &Account, pieces: Pieces) -> Result<(), BackupError> {
    let unreadable = |error: io::Error| BackupError::Archive(error.to_string());
    let mut archive = tar::Archive::new(pieces);
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let inside = entry.path().map_err(unreadable)?.into_owned();
        let is_inside = inside.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if !is_inside {
            return Err(BackupError::Archive(format!("the file {}", inside.display())));
        }
        let path = into.join(&inside);
        let refused = |source| BackupError::Io { path: path.clone(), source };
        let kind = entry.header().entry_type();
        let mode = if kind.is_dir() {
            fs::create_dir_all(&path).map_err(refused)?;
            FOLDER_MODE
        } else if kind.is_file() {
            let mut file = File::create(&path).map_err(refused)?;
            io::copy(&mut entry, &mut file).map_err(refused)?;
            FILE_MODE
        } else {
            return Err(BackupError::Archive(format!("{} is neither file nor folder", inside.display())));
        };
        fs::set_permissions(&path, Permissions::from_mode(mode))
            .and_then(|()| account.give(&path))
            .map_err(refused)?;
    }
    // Read the rest behind the end of the archive, too, so that the sender is never left waiting.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(unreadable)?;
    Ok(())
}

#[cfg(test)]
mod tests;
