//! Which replicas are parked, also over a restart: one small file for each.
//!
//! A parked replica takes no statements, its server is stopped and its data is kept. The file holds the version that is
//! durable there, so that the next start knows how much of the log the replica needs without reaching its server.
//!
//! For example, `parked-replica-3` with `4711` in it: replica-3 is not started, and the log keeps what comes after
//! version 4711 for it, up to a limit of its own.
//!
//! Invariant: the file appears after the server has stopped, and is gone before the server starts. So a crash at any
//! moment leaves a parked replica with a stopped server, or an ordinary member that the next start starts.
//!
//! Non-goal: how a replica is parked or woken ([`crate::elastic`]).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::ids::{ReplicaId, Version};

/// A file's name is this prefix and the name of the replica.
const FILE_PREFIX: &str = "parked-";

/// Whether a replica is parked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ParkingState {
    /// Its server runs, or should run.
    #[default]
    Awake,
    /// It is being drained and stopped.
    Parking,
    /// Its server is stopped. After a start it would have everything up to this version.
    Parked {
        /// The version.
        durable: Version,
    },
    /// Its server is started, and it catches up before it serves.
    Waking,
}

impl ParkingState {
    /// Whether its server is stopped on purpose.
    pub(crate) fn is_parked(self) -> bool {
        matches!(self, Self::Parked { .. })
    }
}

/// The files of one cluster.
#[derive(Debug)]
pub(crate) struct ParkedFiles {
    folder: PathBuf,
}

impl ParkedFiles {
    /// The files in this folder.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The version that is durable at a parked replica; `None` if the replica is not parked.
    pub(crate) fn read(&self, replica: &str) -> io::Result<Option<Version>> {
        let text = match fs::read_to_string(self.path(replica)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let version = text.trim().parse();
        version.map(|version| Some(Version(version))).map_err(|error| {
            let text = format!("{} holds no version: {error}", self.path(replica).display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }

    /// The replica is parked from now on.
    fn keep(&self, replica: &str, durable: Version) -> io::Result<()> {
        let unfinished = self.folder.join(format!("{FILE_PREFIX}{replica}.new"));
        let mut file = owner_only::options().write(true).create(true).truncate(true).open(&unfinished)?;
        writeln!(file, "{durable}")?;
        file.sync_all()?;
        fs::rename(&unfinished, self.path(replica))?;
        self.sync()
    }

    /// The replica is not parked any more. It need not have been.
    pub(crate) fn lift(&self, replica: &str) -> io::Result<()> {
        match fs::remove_file(self.path(replica)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => self.sync(),
        }
    }

    fn path(&self, replica: &str) -> PathBuf {
        self.folder.join(format!("{FILE_PREFIX}{replica}"))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

/// The parking states of all replicas.
#[derive(Debug)]
pub(crate) struct Parking {
    files: ParkedFiles,
    states: Mutex<BTreeMap<ReplicaId, ParkingState>>,
    /// Held while a replica is parked or woken, so that one such change runs at a time.
    pub(crate) change: tokio::sync::Mutex<()>,
}

impl Parking {
    /// All replicas are awake until [`Self::restore`] finds otherwise.
    pub(super) fn new(files: ParkedFiles) -> Self {
        Self { files, states: Mutex::default(), change: tokio::sync::Mutex::default() }
    }

    /// The state of a replica.
    pub(crate) fn state(&self, replica: ReplicaId) -> ParkingState {
        self.states().get(&replica).copied().unwrap_or_default()
    }

    /// The state that the last run of the node has left. Returns the durable version of a parked replica.
    pub(super) fn restore(&self, replica: ReplicaId, name: &str) -> io::Result<Option<Version>> {
        let durable = self.files.read(name)?;
        if let Some(durable) = durable {
            self.set(replica, ParkingState::Parked { durable });
        }
        Ok(durable)
    }

    /// Notes a state that a restart does not see.
    pub(crate) fn set(&self, replica: ReplicaId, state: ParkingState) {
        self.states().insert(replica, state);
    }

    /// The replica is parked, also after a restart. Its server has stopped.
    pub(crate) fn park(&self, replica: ReplicaId, name: &str, durable: Version) -> io::Result<()> {
        self.files.keep(name, durable)?;
        self.set(replica, ParkingState::Parked { durable });
        Ok(())
    }

    /// The replica is an ordinary member after a restart. Its server has not been started yet.
    pub(crate) fn lift(&self, replica: ReplicaId, name: &str, next: ParkingState) -> io::Result<()> {
        self.files.lift(name)?;
        self.set(replica, next);
        Ok(())
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, ParkingState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: ReplicaId = ReplicaId(1);

    #[test]
    fn a_parked_replica_is_parked_after_a_restart_until_it_is_woken() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Parking::new(ParkedFiles::in_folder(folder.path().to_owned()));
        let parking = open();
        assert_eq!((parking.restore(B, "b").unwrap(), parking.state(B)), (None, ParkingState::Awake));
        parking.set(B, ParkingState::Parking);
        assert_eq!(open().restore(B, "b").unwrap(), None, "a crash before the server has stopped");
        parking.park(B, "b", Version(4_711)).unwrap();
        let parking = open();
        assert_eq!(parking.restore(B, "b").unwrap(), Some(Version(4_711)));
        assert!(parking.state(B).is_parked());
        parking.lift(B, "b", ParkingState::Waking).unwrap();
        assert_eq!(open().restore(B, "b").unwrap(), None, "a crash before the server was started");
        parking.lift(B, "b", ParkingState::Awake).unwrap();
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("parked-b"), "soon").unwrap();
        let read = ParkedFiles::in_folder(folder.path().to_owned()).read("b");
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
