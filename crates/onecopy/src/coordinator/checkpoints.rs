//! Checkpoints: versions with a name, each with a copy of a server's data, also over a restart
//! (protocols that ship statements).
//!
//! C-JDBC, section 2.2.4: "The recovery procedure consists in replaying the updates in the log." A copy that was begun
//! at a version needs the log from there, so the log is kept behind the oldest checkpoint.
//!
//! ```text
//! DIR/checkpoints/nightly/checkpoint     its version, the replica that was copied, and when
//! DIR/checkpoints/nightly/data           the copy of the replica's data folder
//! DIR/checkpoints/nightly.unfinished     of no use: a copy that is being made or removed
//! ```
//!
//! Invariant: a folder has its final name only while its copy is complete, on disk. While one has it, or is being made,
//! the log has everything after its version. So a crash leaves a checkpoint whole, or none.
//!
//! Not here: how a copy is made or given to a replica ([`crate::membership::checkpoint`]).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::ids::Version;
use serde::{Deserialize, Serialize};

/// The folder, in that of the cluster.
const FOLDER: &str = "checkpoints";
/// What a checkpoint's folder has in it.
const DESCRIPTION: &str = "checkpoint";
const DATA: &str = "data";
/// The end of the name of a folder that is of no use.
const UNFINISHED: &str = ".unfinished";
/// The version of the form of the description.
const FORM: u32 = 1;
/// The mode of these folders.
const FOLDER_MODE: u32 = 0o700;

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) name: String,
    /// The last version when it was made: no transaction was open, and every replica had this.
    pub(crate) version: Version,
    pub(crate) copy: CheckpointCopy,
}

/// The copy that belongs to a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckpointCopy {
    /// The replica that was copied.
    pub(crate) replica: String,
    /// When, in seconds since 1970.
    pub(crate) taken_s: u64,
    pub(crate) bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct Description {
    form: u32,
    version: u64,
    #[serde(flatten)]
    copy: CheckpointCopy,
}

#[derive(Debug, Default)]
struct Known {
    /// By their versions.
    complete: Vec<Checkpoint>,
    /// The version of the one that is being made.
    begun: Option<Version>,
}

/// The checkpoints of a cluster. One at a time is made, used or removed.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    folder: PathBuf,
    known: Mutex<Known>,
}

impl Checkpoints {
    /// Those of the cluster in this folder. Removes what a crash has left of others.
    pub(crate) fn open(cluster: &Path) -> io::Result<Self> {
        let folder = cluster.join(FOLDER);
        let mut complete = Vec::new();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => Some(entries),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        for entry in entries.into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(UNFINISHED) {
                fs::remove_dir_all(&path)?;
                continue;
            }
            complete.push(read(&path, name)?);
        }
        complete.sort_by_key(|checkpoint| checkpoint.version);
        Ok(Self { folder, known: Mutex::new(Known { complete, begun: None }) })
    }

    /// All that are complete, the oldest first.
    pub(crate) fn all(&self) -> Vec<Checkpoint> {
        self.known().complete.clone()
    }

    pub(crate) fn find(&self, name: &str) -> Option<Checkpoint> {
        self.known().complete.iter().find(|checkpoint| checkpoint.name == name).cloned()
    }

    /// The version after which they need the log.
    pub(crate) fn oldest(&self) -> Option<Version> {
        let known = self.known();
        known.complete.first().map(|checkpoint| checkpoint.version).into_iter().chain(known.begun).min()
    }

    /// Where the copy of a complete one is.
    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.folder.join(name).join(DATA)
    }

    /// Keeps the log from here on for one that is being made.
    pub(crate) fn begin(&self, version: Version) {
        self.known().begun = Some(version);
    }

    /// Makes the folder for the copy.
    pub(crate) fn make_folder(&self, name: &str) -> io::Result<PathBuf> {
        use std::os::unix::fs::DirBuilderExt;
        let data = self.unfinished(name).join(DATA);
        remove(&self.unfinished(name))?;
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&data)?;
        Ok(data)
    }

    /// The copy is complete.
    pub(crate) fn complete(&self, checkpoint: Checkpoint) -> io::Result<()> {
        let unfinished = self.unfinished(&checkpoint.name);
        let (version, copy) = (checkpoint.version.0, checkpoint.copy.clone());
        let text = serde_json::to_string_pretty(&Description { form: FORM, version, copy })?;
        let mut file =
            owner_only::options().write(true).create_new(true).open(unfinished.join(DESCRIPTION))?;
        writeln!(file, "{text}")?;
        // One call for the whole disk instead of one for each of thousands of files.
        rustix::fs::syncfs(&file)?;
        fs::rename(&unfinished, self.folder.join(&checkpoint.name))?;
        self.sync()?;
        let mut known = self.known();
        known.begun = None;
        let at = known.complete.partition_point(|other| other.version <= checkpoint.version);
        known.complete.insert(at, checkpoint);
        Ok(())
    }

    /// The one that is being made will not be completed.
    pub(crate) fn give_up(&self, name: &str) -> io::Result<()> {
        self.known().begun = None;
        remove(&self.unfinished(name))
    }

    /// Removes a complete one.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let unfinished = self.unfinished(name);
        remove(&unfinished)?;
        fs::rename(self.folder.join(name), &unfinished)?;
        self.sync()?;
        self.known().complete.retain(|checkpoint| checkpoint.name != name);
        remove(&unfinished)
    }

    /// Works on the files, away from the threads that serve clients.
    pub(crate) async fn on_disk<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let all = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&all)).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    fn unfinished(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}{UNFINISHED}"))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(folder: &Path, name: String) -> io::Result<Checkpoint> {
    let path = folder.join(DESCRIPTION);
    let damaged = |what: String| {
        let text = format!(
            "{} is to describe a checkpoint, and cannot be read: {what}; without its folder there is no such checkpoint",
            path.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    let text = fs::read_to_string(&path).map_err(|error| damaged(error.to_string()))?;
    let described: Description = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    if described.form != FORM {
        return Err(damaged(format!(
            "it has form {}, and this is a release for form {FORM}",
            described.form
        )));
    }
    Ok(Checkpoint { name, version: Version(described.version), copy: described.copy })
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(checkpoints: &Checkpoints, name: &str, version: u64) -> Checkpoint {
        let version = Version(version);
        checkpoints.begin(version);
        fs::write(checkpoints.make_folder(name).unwrap().join("file"), name).unwrap();
        let copy = CheckpointCopy { replica: "replica-1".to_owned(), taken_s: 7, bytes: 1 };
        let checkpoint = Checkpoint { name: name.to_owned(), version, copy };
        checkpoints.complete(checkpoint.clone()).unwrap();
        checkpoint
    }

    #[test]
    fn what_was_complete_outlives_a_restart_and_the_rest_is_removed() {
        let cluster = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(cluster.path()).unwrap();
        let both = [made(&checkpoints, "first", 10), made(&checkpoints, "second", 20)];
        checkpoints.begin(Version(30));
        fs::write(checkpoints.make_folder("third").unwrap().join("file"), "a part").unwrap();
        let found = Checkpoints::open(cluster.path()).unwrap();
        assert_eq!((found.all().as_slice(), found.oldest()), (&both[..], Some(Version(10))));
        assert_eq!(fs::read_to_string(found.data("second").join("file")).unwrap(), "second");
        assert_eq!(fs::read_dir(cluster.path().join(FOLDER)).unwrap().count(), 2);
        found.remove("first").unwrap();
        let found = Checkpoints::open(cluster.path()).unwrap();
        assert_eq!((found.all().as_slice(), found.oldest()), (&both[1..], Some(Version(20))));
    }

    #[test]
    fn the_log_is_kept_for_one_that_is_being_made() {
        let cluster = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(cluster.path()).unwrap();
        assert_eq!(checkpoints.oldest(), None);
        checkpoints.begin(Version(7));
        assert_eq!(checkpoints.oldest(), Some(Version(7)));
        checkpoints.give_up("it").unwrap();
        assert_eq!(checkpoints.oldest(), None);
    }

    #[test]
    fn a_damaged_description_is_an_error() {
        let cluster = tempfile::tempdir().unwrap();
        made(&Checkpoints::open(cluster.path()).unwrap(), "it", 10);
        let path = cluster.path().join(FOLDER).join("it").join(DESCRIPTION);
        for damaged in ["", "{}", "{\"form\":2,\"version\":1,\"replica\":\"a\",\"taken_s\":1,\"bytes\":1}"] {
            fs::write(&path, damaged).unwrap();
            let error = Checkpoints::open(cluster.path()).unwrap_err();
            assert!(error.to_string().contains("cannot be read"), "{error}");
        }
    }
}
