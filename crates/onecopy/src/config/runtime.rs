//! The settings that can change while a node runs, and how they are read anew.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::error::LoadError;
use super::hba::Access;
use crate::security::tls::Identity;

/// Most sessions at a time when nothing is said: each may own a connection to every replica, and ours have 300.
pub(crate) const DEFAULT_SESSIONS_MAX: u64 = 280;

/// The same where sessions share their connections.
pub(crate) const POOLED_SESSIONS_MAX: u64 = 10_000;

/// Most connections that have not logged in, of all addresses and of one, when nothing is said.
pub(crate) const DEFAULT_LOGINS_MAX: u16 = 1_000;

/// How long a log-in may take when nothing is said, as in PostgreSQL.
pub(crate) const DEFAULT_LOGIN_PATIENCE: Duration = Duration::from_mins(1);

/// How many connections may be open whose clients have not logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoginLimits {
    pub(crate) total_max: usize,
    /// From one address, or one network of IPv6.
    pub(crate) address_max: usize,
}

/// How clients may log in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logins {
    pub(crate) limits: LoginLimits,
    /// How long one may take.
    pub(crate) patience: Duration,
}

impl Logins {
    /// So many at a time, wherever they come from.
    pub(crate) fn of(logins_max: usize) -> Self {
        let limits = LoginLimits { total_max: logins_max, address_max: logins_max };
        Self { limits, patience: DEFAULT_LOGIN_PATIENCE }
    }
}

/// The configuration was not read again, and the settings stay as they were.
#[derive(Debug)]
pub(crate) enum ReloadError {
    /// The node was started without one.
    NoConfiguration,
    /// What was read cannot be used.
    Load(LoadError),
}

impl std::fmt::Display for ReloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoConfiguration => {
                f.write_str("this node has no configuration: it was started by `onecopy up`")
            }
            Self::Load(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReloadError {}

impl From<LoadError> for ReloadError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

/// What the operator should know after the settings were read again.
pub(crate) type ReloadNotes = Vec<String>;

/// Reads the configuration and puts what can change into force.
type Reload = Box<dyn Fn(&RuntimeConfig) -> Result<ReloadNotes, ReloadError> + Send>;

/// The settings in force.
pub(crate) struct RuntimeConfig {
    sessions_max: AtomicU64,
    /// A place for each session, and how many there are: as many as may be, or as were in use when they became fewer.
    room: Arc<Semaphore>,
    places: Mutex<usize>,
    stop_patience_us: AtomicU64,
    lends_sequences: AtomicBool,
    logins: Mutex<Logins>,
    access: Mutex<Arc<Access>>,
    identity: Mutex<Option<Arc<Identity>>>,
    /// Every setting: name, value, default, whether it can change. None where there is no configuration.
    shown: Mutex<Vec<[String; 4]>>,
    reload: Mutex<Option<Reload>>,
}

impl RuntimeConfig {
    /// Settings that nothing changes, until [`RuntimeConfig::reload_by`].
    pub(crate) fn new(sessions_max: u64, stop_patience: Duration, access: Access) -> Self {
        let runtime_config = Self {
            sessions_max: AtomicU64::new(0),
            room: Arc::new(Semaphore::new(0)),
            places: Mutex::new(0),
            stop_patience_us: AtomicU64::new(0),
            lends_sequences: AtomicBool::new(true),
            logins: Mutex::new(Logins::of(DEFAULT_LOGINS_MAX.into())),
            access: Mutex::new(Arc::new(access)),
            identity: Mutex::default(),
            shown: Mutex::default(),
            reload: Mutex::new(None),
        };
        runtime_config.set(sessions_max, stop_patience, Vec::new());
        runtime_config
    }

    /// From now on these.
    pub(crate) fn set(&self, sessions_max: u64, stop_patience: Duration, shown: Vec<[String; 4]>) {
        self.sessions_max.store(sessions_max, Ordering::Relaxed);
        let wanted = usize::try_from(sessions_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted > *places {
            self.room.add_permits(wanted - *places);
            *places = wanted;
        } else {
            // Those in use stay until the next reading.
            *places -= self.room.forget_permits(*places - wanted);
        }
        drop(places);
        let us = u64::try_from(stop_patience.as_micros()).unwrap_or(u64::MAX);
        self.stop_patience_us.store(us, Ordering::Relaxed);
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    /// Most sessions at a time.
    pub(crate) fn sessions_max(&self) -> u64 {
        self.sessions_max.load(Ordering::Relaxed)
    }

    /// Whether sessions that begin draw where ranges of sequences are lent to, unless they say otherwise.
    pub(crate) fn lends_sequences(&self) -> bool {
        self.lends_sequences.load(Ordering::Relaxed)
    }

    /// From now on so.
    pub(crate) fn set_lends_sequences(&self, lends: bool) {
        self.lends_sequences.store(lends, Ordering::Relaxed);
    }

    /// From now on clients log in so.
    pub(crate) fn set_logins(&self, logins: Logins) {
        *self.logins.lock().unwrap_or_else(PoisonError::into_inner) = logins;
    }

    /// How clients may log in.
    pub(crate) fn logins(&self) -> Logins {
        *self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these may come in.
    pub(crate) fn set_access(&self, access: Access) {
        *self.access.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    /// Who may come in.
    pub(crate) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on this is the certificate that clients see; without one nothing is encrypted.
    pub(crate) fn set_identity(&self, identity: Option<Identity>) {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = identity.map(Arc::new);
    }

    /// The certificate that clients see.
    pub(crate) fn identity(&self) -> Option<Arc<Identity>> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The places for sessions.
    pub(crate) fn room(&self) -> Arc<Semaphore> {
        Arc::clone(&self.room)
    }

    /// How long transactions get to end when the node stops.
    pub(crate) fn stop_patience(&self) -> Duration {
        Duration::from_micros(self.stop_patience_us.load(Ordering::Relaxed))
    }

    /// Every setting, for people.
    pub(crate) fn shown(&self) -> Vec<[String; 4]> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How the settings are read anew.
    pub(crate) fn reload_by(&self, reload: Reload) {
        *self.reload.lock().unwrap_or_else(PoisonError::into_inner) = Some(reload);
    }

    /// Reads them anew.
    pub(crate) fn reload(&self) -> Result<ReloadNotes, ReloadError> {
        let reload = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        match reload.as_ref() {
            Some(reload) => reload(self),
            None => Err(ReloadError::NoConfiguration),
        }
    }
}

impl std::fmt::Debug for RuntimeConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeConfig").field("sessions_max", &self.sessions_max).finish_non_exhaustive()
    }
}
