//! The folder that holds a cluster.
//!
//! ```text
//! DIR/onecopy.json     the description: format, cluster, release of PostgreSQL, the replicas that are members
//! DIR/lock             locked while a node uses the folder; names its process
//! DIR/replica-1 ..     the data folders of the servers
//! DIR/replica-1.conf   our settings for a server, written anew at every start
//! DIR/server-1.log     the output of a server
//! DIR/run              the sockets of the servers, unless the path is too long for sockets
//! DIR/log              the log of records (made by the log engine)
//! DIR/checkpoints      copies of a server's data, with names (made by the program)
//! DIR/replica-1.new    a copy of another server that is to take the place of replica-1 (see [`swap`])
//! ```
//!
//! A cluster is made in `DIR/creating`, which is complete once it has an `onecopy.json`. Then its parts move up, that file
//! last. So a crash leaves one of three states, which the next start can distinguish: not complete (the start removes it),
//! complete and not moved (the start finishes it), or done. Dropping a [`Folder`] that never got a cluster removes
//! everything that this process made, up to the folder itself.
//!
//! That file alone decides which servers are members: a server gets its place in it when its data is complete, and loses it
//! before any of the data is removed.
//!
//! Nothing is written into a folder before it is known to be empty or a data folder of Onecopy.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use tokio::time::sleep;

use super::MAX_REPLICAS;
use super::account::Account;
use super::server::DataFault;
use super::{leftover, swap};

mod description;
mod error;

pub(crate) use description::Cluster;
use description::DESCRIPTION;
pub use error::FolderError;

const LOCK: &str = "lock";
const CREATING: &str = "creating";
/// The size of a server without data, its first log segments included.
const NEW_SERVER_BYTES: u64 = 96 * 1024 * 1024;
/// How often a lock that is held is tried.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(30);
/// The file that says of which release a server's files are.
const RELEASE_FILE: &str = "PG_VERSION";
/// A data folder that has one of these is a server's, even if it has lost some of its files.
const SERVER_FILES: [&str; 6] = [RELEASE_FILE, "base", "global", "pg_wal", "pg_xact", "postgresql.conf"];
/// Longer than any process number.
const HOLDER_LIMIT_BYTES: u64 = 32;

/// A folder that this process has locked.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    cluster: Option<Cluster>,
    /// Nothing but the lock was there when we came.
    bare: bool,
    /// Folders that were not there before, outermost first.
    made: Vec<PathBuf>,
    account: Account,
    _lock: File,
}

impl Folder {
    /// Locks the folder, makes it if it is missing, and finishes or undoes what a crash has left.
    pub(crate) async fn open(path: &Path, account: &Account) -> Result<Self, FolderError> {
        let path = std::path::absolute(path).map_err(FolderError::io("find", path))?;
        refuse_foreign(&path)?;
        let made = make_folders(&path)?;
        let lock = match lock(&path).await {
            Ok(lock) => lock,
            Err(error) => {
                remove_empty(&made);
                return Err(error);
            }
        };
        let path = fs::canonicalize(&path).map_err(FolderError::io("find", &path))?;
        let mut folder =
            Self { path, cluster: None, bare: false, made, account: account.clone(), _lock: lock };
        folder.settle().await?;
        Ok(folder)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The cluster in it, if there is one already.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// The data folder of a server.
    pub(crate) fn data(&self, number: u16) -> PathBuf {
        self.path.join(replica(number))
    }

    /// Begins a cluster: returns the folder in which the files of server `number` are to be made.
    pub(crate) fn begin(&self, number: u16) -> Result<PathBuf, FolderError> {
        assert!(self.cluster.is_none(), "a folder gets its cluster once");
        let path = self.path.join(CREATING).join(replica(number));
        fs::create_dir_all(&path).map_err(FolderError::io("create", &path))?;
        Ok(path)
    }

    /// Checks that the disk has room for so many new servers.
    pub(crate) fn check_space(&self, servers: u16) -> Result<(), FolderError> {
        let disk = rustix::fs::statvfs(&self.path)
            .map_err(|error| FolderError::io("look at the disk of", &self.path)(error.into()))?;
        let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
        let needed_bytes = NEW_SERVER_BYTES * u64::from(servers);
        if free_bytes < needed_bytes {
            return Err(FolderError::NoSpace { path: self.path.clone(), needed_bytes, free_bytes });
        }
        Ok(())
    }

    /// Makes the cluster that was begun the cluster of this folder, on disk.
    pub(crate) fn complete(&mut self, cluster: Cluster) -> Result<(), FolderError> {
        let creating = self.path.join(CREATING);
        // One call for the whole disk instead of one for each of thousands of files.
        sync_disk_of(&creating)?;
        description::write(&creating, &cluster)?;
        self.move_up(&cluster)?;
        self.cluster = Some(cluster);
        Ok(())
    }

    /// From now on these are the servers of the cluster, on disk.
    pub(crate) fn set_numbers(&mut self, numbers: Vec<u16>) -> Result<(), FolderError> {
        let cluster = self.cluster.as_mut().expect("only a folder with a cluster changes its members");
        let changed = Cluster { numbers, ..cluster.clone() };
        description::write(&self.path, &changed)?;
        *cluster = changed;
        Ok(())
    }

    /// Removes the data of a server that is no member and does not run.
    pub(crate) fn remove_server(&self, number: u16) -> Result<(), FolderError> {
        swap::remove_all(&self.data(number))
    }

    /// Ends servers that are no members, and removes copies that were to become members: a crash came in the middle of a change.
    /// The data folder stays until another server gets the number, since no command has asked to remove it now.
    async fn end_strangers(&self, cluster: &Cluster) -> Result<(), FolderError> {
        for number in (1..=MAX_REPLICAS).filter(|number| !cluster.numbers.contains(number)) {
            let data = self.data(number);
            if data.exists() {
                let ended = leftover::end(&data, &self.account).await;
                ended.map_err(FolderError::io("end the programs in", &data))?;
            }
            swap::remove_copies(&data)?;
        }
        Ok(())
    }

    /// Finishes or undoes what a crash has left, and reads the description.
    async fn settle(&mut self) -> Result<(), FolderError> {
        let creating = self.path.join(CREATING);
        if let Some(cluster) = description::read(&self.path)? {
            self.cluster = Some(cluster);
        } else if let Some(cluster) = description::read(&creating)? {
            self.move_up(&cluster)?;
            self.cluster = Some(cluster);
        } else {
            for path in entries(&creating)? {
                leftover::end(&path, &self.account)
                    .await
                    .map_err(FolderError::io("end the programs in", &path))?;
            }
        }
        if creating.exists() {
            fs::remove_dir_all(&creating).map_err(FolderError::io("remove", &creating))?;
        }
        if let Some(cluster) = &self.cluster {
            // What is wrong with one server does not keep the others from being started.
            for number in &cluster.numbers {
                if let Err(error) = swap::settle(&self.data(*number)) {
                    tracing::warn!(server = replica(*number), %error, "a former rebuild cannot be ended");
                }
            }
            return self.end_strangers(cluster).await;
        }
        self.check_bare()?;
        self.bare = true;
        Ok(())
    }

    fn move_up(&self, cluster: &Cluster) -> Result<(), FolderError> {
        let creating = self.path.join(CREATING);
        for number in cluster.numbers.iter().copied() {
            let from = creating.join(replica(number));
            if from.exists() {
                rename(&from, &self.data(number))?;
            }
        }
        sync(&self.path)?;
        rename(&creating.join(DESCRIPTION), &self.path.join(DESCRIPTION))?;
        sync(&self.path)?;
        fs::remove_dir_all(&creating).map_err(FolderError::io("remove", &creating))
    }

    /// Without a description there must be nothing but the lock.
    fn check_bare(&self) -> Result<(), FolderError> {
        for entry in entries(&self.path)? {
            let name = name_of(&entry);
            if !matches!(name.as_str(), LOCK | "lost+found") {
                return Err(FolderError::Foreign { path: self.path.clone(), example: name });
            }
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let creating = self.path.join(CREATING);
        // A cluster that is complete is kept: the next start moves it into place.
        if self.cluster.is_some() || !self.bare || creating.join(DESCRIPTION).exists() {
            return;
        }
        // Best effort: what cannot be removed now is recognised and removed by the next start.
        for path in entries(&creating).unwrap_or_default() {
            let _ = leftover::kill(&path, &self.account);
        }
        let _ = fs::remove_dir_all(creating);
        if self.check_bare().is_ok() {
            let _ = fs::remove_file(self.path.join(LOCK));
            remove_empty(&self.made);
        }
    }
}

/// The name of a server and of its data folder.
pub(crate) fn replica(number: u16) -> String {
    format!("replica-{number}")
}

/// Why no server of this release can be started on a data folder; `None` if one can.
pub(super) fn examine(data: &Path, expected: u16) -> io::Result<Option<DataFault>> {
    let listed = match fs::read_dir(data) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(DataFault::Missing)),
        Err(error) => return Err(error),
    };
    let names: Vec<String> = listed.map(|entry| Ok(name_of(&entry?.path()))).collect::<io::Result<_>>()?;
    let release = match fs::read_to_string(data.join(RELEASE_FILE)) {
        Ok(text) => text.trim().parse().ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if release == Some(expected) {
        return Ok(None);
    }
    let is_ours = |name: &String| SERVER_FILES.contains(&name.as_str());
    let example = names.first().filter(|_| !names.iter().any(is_ours)).cloned();
    Ok(Some(match (release, example) {
        (Some(found), _) => DataFault::OtherRelease { found, expected },
        (None, Some(example)) => DataFault::Foreign { example },
        (None, None) => DataFault::NotWhole,
    }))
}

/// Where the cluster lies when the user names no folder.
pub fn default_path() -> Result<PathBuf, FolderError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/onecopy"));
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|data| data.join("onecopy"))
        .ok_or(FolderError::NoDefault)
}

/// Refuses a folder with anything in it that we would not have put there.
fn refuse_foreign(path: &Path) -> Result<(), FolderError> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => return Err(FolderError::NotAFolder(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(FolderError::NotAFolder(path.to_owned()));
        }
        _ => {}
    }
    let names: BTreeSet<String> = entries(path)?.iter().map(|entry| name_of(entry)).collect();
    if names.contains(DESCRIPTION) {
        return Ok(());
    }
    let ours = |name: &&String| {
        matches!(name.as_str(), LOCK | CREATING | "lost+found")
            || names.contains(CREATING) && name.starts_with("replica-")
    };
    match names.iter().find(|name| !ours(name)) {
        Some(example) => Err(FolderError::Foreign { path: path.to_owned(), example: example.clone() }),
        None => Ok(()),
    }
}

/// Makes the folder and its parents; returns those that were not there, outermost first.
fn make_folders(path: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let mut missing: Vec<PathBuf> =
        path.ancestors().take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
    missing.reverse();
    for (at, folder) in missing.iter().enumerate() {
        // Another account has to pass here, whatever our umask; the servers' own folders are closed.
        let open = fs::Permissions::from_mode(0o755);
        if let Err(error) = fs::create_dir(folder).and_then(|()| fs::set_permissions(folder, open)) {
            remove_empty(&missing[..at]);
            return Err(FolderError::io("create", folder)(error));
        }
    }
    Ok(missing)
}

fn remove_empty(folders: &[PathBuf]) {
    for folder in folders.iter().rev() {
        // Somebody else may have put something there meanwhile: then it stays.
        let _ = fs::remove_dir(folder);
    }
}

/// Locks the folder. A lock that is held is tried again for a moment: it may be that of a node on its way out, or of a
/// process that was just forked from one and has not yet become another program.
async fn lock(folder: &Path) -> Result<File, FolderError> {
    let path = folder.join(LOCK);
    let mut in_use = FolderError::InUse { path: folder.to_owned(), process: None };
    for _ in 0..LOCK_ATTEMPTS {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(FolderError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let read = file.take(HOLDER_LIMIT_BYTES).read_to_string(&mut holder);
                let process = read.ok().and_then(|_| holder.trim().parse().ok());
                in_use = FolderError::InUse { path: folder.to_owned(), process };
                sleep(LOCK_PAUSE).await;
                continue;
            }
            Err(TryLockError::Error(error)) => return Err(FolderError::io("lock", &path)(error)),
        }
        // A node that gave up may have removed the file after we opened it; such a lock would hold nobody off.
        let locked = file.metadata().map_err(FolderError::io("look at", &path))?;
        if fs::metadata(&path).is_ok_and(|named| named.ino() == locked.ino() && named.dev() == locked.dev()) {
            file.set_len(0).map_err(FolderError::io("write", &path))?;
            writeln!(file, "{}", std::process::id()).map_err(FolderError::io("write", &path))?;
            return Ok(file);
        }
    }
    Err(in_use)
}

/// The paths in a folder; none if it is not there.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let listed = match fs::read_dir(folder) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FolderError::io("read", folder)(error)),
    };
    let paths: io::Result<Vec<PathBuf>> = listed.map(|entry| entry.map(|entry| entry.path())).collect();
    paths.map_err(FolderError::io("read", folder))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), FolderError> {
    fs::rename(from, to).map_err(FolderError::io("move into place", from))
}

pub(super) fn sync(folder: &Path) -> Result<(), FolderError> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(FolderError::io("write out", folder))
}

pub(super) fn sync_disk_of(folder: &Path) -> Result<(), FolderError> {
    File::open(folder)
        .and_then(|file| Ok(rustix::fs::syncfs(&file)?))
        .map_err(FolderError::io("write out", folder))
}

#[cfg(test)]
mod tests;
