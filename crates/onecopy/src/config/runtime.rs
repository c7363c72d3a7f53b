//! The settings that can change while a node runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::error::LoadError;
use super::hba::Access;
use crate::security::tls::Identity;

/// Default limit of sessions. Each may own a connection to every replica, and the servers of `onecopy up` allow 300.
pub(crate) const DEFAULT_SESSIONS_MAX: u64 = 280;

/// Default limit of sessions when they share connections.
pub(crate) const POOLED_SESSIONS_MAX: u64 = 10_000;

/// Default limit of connections that have not logged in, both in all and from one address.
pub(crate) const DEFAULT_LOGINS_MAX: u16 = 1_000;

/// Default time for a log-in, as in PostgreSQL.
pub(crate) const DEFAULT_LOGIN_PATIENCE: Duration = Duration::from_mins(1);

/// Limits of open connections whose clients have not logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoginLimits {
    pub(crate) total_max: usize,
    /// Limit for one IPv4 address, or one IPv6 network.
    pub(crate) address_max: usize,
}

/// Limits for log-ins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logins {
    pub(crate) limits: LoginLimits,
    /// Time limit of one log-in.
    pub(crate) patience: Duration,
}

impl Logins {
    /// The same limit in all and for one address.
    pub(crate) fn of(logins_max: usize) -> Self {
        let limits = LoginLimits { total_max: logins_max, address_max: logins_max };
        Self { limits, patience: DEFAULT_LOGIN_PATIENCE }
    }
}

/// The configuration was not reloaded. The old settings remain in force.
#[derive(Debug)]
pub(crate) enum ReloadError {
    /// `onecopy up` started the node, so it has no configuration.
    NoConfiguration,
    /// The new configuration cannot be used.
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

/// Notes for the operator about a reload.
pub(crate) type ReloadNotes = Vec<String>;

/// Reads the configuration and puts the changeable settings into force.
type Reload = Box<dyn Fn(&RuntimeConfig) -> Result<ReloadNotes, ReloadError> + Send>;

/// The settings in force.
pub(crate) struct RuntimeConfig {
    sessions_max: AtomicU64,
    /// A permit for each session, and the number of permits. The number exceeds the limit while too many are in use
    /// after the limit was lowered.
    room: Arc<Semaphore>,
    places: Mutex<usize>,
    stop_patience_us: AtomicU64,
    lends_sequences: AtomicBool,
    logins: Mutex<Logins>,
    access: Mutex<Arc<Access>>,
    identity: Mutex<Option<Arc<Identity>>>,
    /// Every setting: name, value, default, whether it can change. Empty without a configuration.
    shown: Mutex<Vec<[String; 4]>>,
    reload: Mutex<Option<Reload>>,
}

impl RuntimeConfig {
    /// Settings that do not change until [`RuntimeConfig::reload_by`] is called.
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

    /// Puts these values into force.
    pub(crate) fn set(&self, sessions_max: u64, stop_patience: Duration, shown: Vec<[String; 4]>) {
        self.sessions_max.store(sessions_max, Ordering::Relaxed);
        let wanted = usize::try_from(sessions_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted > *places {
            self.room.add_permits(wanted - *places);
            *places = wanted;
        } else {
            // Permits in use are removed at a later reload.
            *places -= self.room.forget_permits(*places - wanted);
        }
        drop(places);
        let us = u64::try_from(stop_patience.as_micros()).unwrap_or(u64::MAX);
        self.stop_patience_us.store(us, Ordering::Relaxed);
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    /// Largest number of sessions.
    pub(crate) fn sessions_max(&self) -> u64 {
        self.sessions_max.load(Ordering::Relaxed)
    }

    /// Whether new sessions use leased sequence ranges by default.
    pub(crate) fn lends_sequences(&self) -> bool {
        self.lends_sequences.load(Ordering::Relaxed)
    }

    pub(crate) fn set_lends_sequences(&self, lends: bool) {
        self.lends_sequences.store(lends, Ordering::Relaxed);
    }

    pub(crate) fn set_logins(&self, logins: Logins) {
        *self.logins.lock().unwrap_or_else(PoisonError::into_inner) = logins;
    }

    pub(crate) fn logins(&self) -> Logins {
        *self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_access(&self, access: Access) {
        *self.access.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    /// The rules that say which clients may connect.
    pub(crate) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the certificate for clients. Without one, connections stay unencrypted.
    pub(crate) fn set_identity(&self, identity: Option<Identity>) {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = identity.map(Arc::new);
    }

    /// The certificate for clients.
    pub(crate) fn identity(&self) -> Option<Arc<Identity>> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The permits for sessions.
    pub(crate) fn room(&self) -> Arc<Semaphore> {
        Arc::clone(&self.room)
    }

    /// Time that open transactions get when the node stops.
    pub(crate) fn stop_patience(&self) -> Duration {
        Duration::from_micros(self.stop_patience_us.load(Ordering::Relaxed))
    }

    /// Every setting, for SHOW CONFIG.
    pub(crate) fn shown(&self) -> Vec<[String; 4]> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the function that reloads the configuration.
    pub(crate) fn reload_by(&self, reload: Reload) {
        *self.reload.lock().unwrap_or_else(PoisonError::into_inner) = Some(reload);
    }

    /// Reloads the configuration.
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
