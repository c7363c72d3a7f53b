//! Which replicas are parked, also over a restart: one small entry of the register for each.
//!
//! A parked replica takes no statements, its server is stopped and its data is kept. The entry holds the version that is
//! durable there, so that the next start knows how much of the log the replica needs without reaching its server.
//!
//! For example, the file `parked-replica-3` with `4711` in it: replica-3 is not started, and the log keeps what comes after
//! version 4711 for it, up to a limit of its own.
//!
//! Invariant: the entry appears after the server has stopped, and is gone before the server starts. So a crash at any
//! moment leaves a parked replica with a stopped server, or an ordinary member that the next start starts.
//!
//! Non-goal: how a replica is parked or woken ([`crate::elastic`]).

use std::collections::BTreeMap;
use std::fmt;
use std::num::ParseIntError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::ids::{ReplicaId, Version};
use commitlog::{Entry, RegisterError};
use tokio::task::spawn_blocking;

use super::register::TermRegister;

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

/// The parking states of all replicas.
#[derive(Debug)]
pub(crate) struct Parking {
    register: Arc<TermRegister>,
    states: Arc<States>,
    /// Held while a replica is parked or woken, so that one such change runs at a time.
    pub(crate) change: tokio::sync::Mutex<()>,
}

type States = Mutex<BTreeMap<ReplicaId, ParkingState>>;

/// The version that is durable at a parked replica; `None` if the replica is not parked.
pub(crate) fn parked_at(register: &TermRegister, replica: &str) -> Result<Option<Version>, ParkedError> {
    let entry = Entry::Parked(replica.to_owned());
    let Some(value) = register.read(&entry).map_err(ParkedError::Register)? else { return Ok(None) };
    match String::from_utf8_lossy(&value).trim().parse() {
        Ok(version) => Ok(Some(Version(version))),
        Err(source) => Err(ParkedError::NoVersion { location: register.location(&entry), source }),
    }
}

/// Whether a replica is parked cannot be read.
#[derive(Debug)]
pub(crate) enum ParkedError {
    Register(RegisterError),
    /// The entry holds something else than a version.
    NoVersion {
        location: String,
        source: ParseIntError,
    },
}

impl fmt::Display for ParkedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(error) => error.fmt(f),
            Self::NoVersion { location, source } => write!(f, "{location} holds no version: {source}"),
        }
    }
}

impl std::error::Error for ParkedError {}

impl Parking {
    /// All replicas are awake until [`Self::restore`] finds otherwise.
    pub(super) fn new(register: Arc<TermRegister>) -> Self {
        Self { register, states: Arc::default(), change: tokio::sync::Mutex::default() }
    }

    /// The state of a replica.
    pub(crate) fn state(&self, replica: ReplicaId) -> ParkingState {
        states(&self.states).get(&replica).copied().unwrap_or_default()
    }

    /// The state that the last term has left. Returns the durable version of a parked replica.
    pub(super) fn restore(&self, replica: ReplicaId, name: &str) -> Result<Option<Version>, ParkedError> {
        let durable = parked_at(&self.register, name)?;
        if let Some(durable) = durable {
            self.set(replica, ParkingState::Parked { durable });
        }
        Ok(durable)
    }

    /// Notes a state that a restart does not see.
    pub(crate) fn set(&self, replica: ReplicaId, state: ParkingState) {
        states(&self.states).insert(replica, state);
    }

    /// The replica is parked, also after a restart. Its server has stopped.
    pub(crate) async fn park(
        &self,
        replica: ReplicaId,
        name: &str,
        durable: Version,
    ) -> Result<(), RegisterError> {
        let value = format!("{durable}\n").into_bytes();
        self.write(replica, name, Some(value), ParkingState::Parked { durable }).await
    }

    /// The replica is an ordinary member after a restart. It need not have been parked. Its server has not been started yet.
    pub(crate) async fn lift(
        &self,
        replica: ReplicaId,
        name: &str,
        next: ParkingState,
    ) -> Result<(), RegisterError> {
        self.write(replica, name, None, next).await
    }

    /// Changes the entry and the state, both also if the caller goes meanwhile.
    async fn write(
        &self,
        replica: ReplicaId,
        name: &str,
        value: Option<Vec<u8>>,
        state: ParkingState,
    ) -> Result<(), RegisterError> {
        let (register, noted) = (Arc::clone(&self.register), Arc::clone(&self.states));
        let entry = Entry::Parked(name.to_owned());
        let changed = entry.clone();
        let written = spawn_blocking(move || {
            register.change_now(&changed, value.as_deref())?;
            states(&noted).insert(replica, state);
            Ok(())
        });
        written.await.unwrap_or(Err(RegisterError::InDoubt { entry }))
    }
}

fn states(states: &States) -> MutexGuard<'_, BTreeMap<ReplicaId, ParkingState>> {
    states.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: ReplicaId = ReplicaId(1);

    #[tokio::test]
    async fn a_parked_replica_is_parked_after_a_restart_until_it_is_woken() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Parking::new(TermRegister::in_folder(folder.path()));
        let parking = open();
        assert_eq!((parking.restore(B, "b").unwrap(), parking.state(B)), (None, ParkingState::Awake));
        parking.set(B, ParkingState::Parking);
        assert_eq!(open().restore(B, "b").unwrap(), None, "a crash before the server has stopped");
        parking.park(B, "b", Version(4_711)).await.unwrap();
        let parking = open();
        assert_eq!(parking.restore(B, "b").unwrap(), Some(Version(4_711)));
        assert!(parking.state(B).is_parked());
        parking.lift(B, "b", ParkingState::Waking).await.unwrap();
        assert_eq!(open().restore(B, "b").unwrap(), None, "a crash before the server was started");
        parking.lift(B, "b", ParkingState::Awake).await.unwrap();
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("log")).unwrap();
        std::fs::write(folder.path().join("log/parked-b"), "soon").unwrap();
        let error = parked_at(&TermRegister::in_folder(folder.path()), "b").unwrap_err().to_string();
        assert!(error.contains("log/parked-b holds no version"), "{error}");
    }
}
