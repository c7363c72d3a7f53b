//! The state of this node that its sessions and tasks share: clients, memory, counters, settings.
//!
//! Each node of a cluster has its own. Nothing here decides about order, place or visibility of transactions. The
//! [`crate::coordinator`] does, and a cluster has one.

pub(crate) mod half_open;
pub(crate) mod limits;
pub(crate) mod memory_budget;
pub(crate) mod pauses;
pub(crate) mod pins;
pub(crate) mod session_registry;
pub(crate) mod stats;
pub(crate) mod succession;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use cluster::ids::{ReplicaId, SessionId};
use tokio::sync::Semaphore;

use crate::config::runtime::{ReloadError, ReloadNotes, RuntimeConfig};
use crate::result_cache::ResultCache;
use crate::security::seal::Seal;
use half_open::HalfOpen;
use limits::{Limits, ReplicaTimeouts};
use memory_budget::MemoryBudget;
use session_registry::SessionRegistry;
use succession::Succession;

pub(crate) use stats::{Stats, count};

/// Largest number of clients that wait for another session to end.
pub(crate) const WAITING_MAX: usize = 1_000;

/// Server connections that no session uses at present, as the coordinator knows them.
pub(crate) trait IdleConnections: fmt::Debug + Send + Sync {
    /// Closes the idle connections to a replica that is drained, and pools none until the drain ends.
    fn drain(&self, replica: ReplicaId, is_drained: bool);
}

/// The shared state of one node.
#[derive(Debug)]
pub(crate) struct LocalState {
    /// When the process began.
    pub(crate) since: SystemTime,
    /// The settings that can change while the node runs.
    pub(crate) runtime_config: RuntimeConfig,
    /// The sessions, as other sessions and the metrics see them.
    pub(crate) sessions: SessionRegistry,
    /// The memory that open update transactions hold.
    pub(crate) memory_budget: MemoryBudget,
    /// Answers of reads that are given again.
    pub(crate) result_cache: ResultCache,
    /// Counters for SHOW STATS and the metrics.
    pub(crate) stats: Stats,
    /// Connections whose clients have not authenticated yet.
    pub(crate) half_open: Arc<HalfOpen>,
    /// How another process takes the place of this one.
    pub(crate) succession: Succession,
    /// A permit for each client that waits for another session to end.
    pub(crate) waiting_room: Arc<Semaphore>,
    /// Proves that a row of `onecopy.applied` is Onecopy's.
    pub(crate) seal: Arc<Seal>,
    /// Time-outs for replicas.
    pub(crate) timeouts: ReplicaTimeouts,
    /// The pools, once they exist.
    idle_connections: OnceLock<Arc<dyn IdleConnections>>,
}

impl LocalState {
    /// The state of a node that serves no client yet.
    pub(crate) fn new(limits: &Limits, runtime_config: RuntimeConfig, seal: Arc<Seal>) -> Arc<Self> {
        Arc::new(Self {
            since: SystemTime::now(),
            runtime_config,
            sessions: SessionRegistry::default(),
            memory_budget: MemoryBudget::new(limits.transaction_bytes_max),
            result_cache: ResultCache::new(limits.result_cache_bytes_max),
            stats: Stats::default(),
            half_open: Arc::default(),
            succession: Succession::default(),
            waiting_room: Arc::new(Semaphore::new(WAITING_MAX)),
            seal,
            timeouts: limits.timeouts,
            idle_connections: OnceLock::new(),
        })
    }

    /// Removes a session that has ended.
    pub(crate) fn remove_session(&self, id: SessionId) {
        self.memory_budget.remove(id);
        self.sessions.remove(id);
    }

    /// Takes the changeable settings from the configuration again. The servers' own settings may have changed, too, so kept
    /// answers are forgotten.
    pub(crate) fn reload(&self) -> Result<ReloadNotes, ReloadError> {
        let notes = self.runtime_config.reload()?;
        self.result_cache.forget();
        Ok(notes)
    }

    /// Sets the pools of the node, once.
    pub(crate) fn set_idle_connections(&self, idle_connections: Arc<dyn IdleConnections>) {
        let is_first = self.idle_connections.set(idle_connections).is_ok();
        debug_assert!(is_first, "a node has its pools from the start");
    }

    /// Starts or ends a drain of a replica. Idle connections to a drained replica are closed.
    pub(crate) fn drain(&self, replica: ReplicaId, is_drained: bool) {
        if let Some(idle_connections) = self.idle_connections.get() {
            idle_connections.drain(replica, is_drained);
        }
        if is_drained {
            self.sessions.note_drain();
        }
    }
}
