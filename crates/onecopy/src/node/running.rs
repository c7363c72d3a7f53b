//! An open node: serves clients until it is stopped, then closes its parts.
//!
//! Clients are served once every replica that can serve is connected ([`super::start`]). By then the backends of an
//! earlier run are gone, and the applied sets were read. A node that stops takes no new clients and gives each
//! session time to finish its transaction. It closes the log last. A second signal ends the waiting.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::parts::replica::State;
use tokio::task::JoinHandle;

use super::NodeError;
use super::clients::{Clients, Ended, Reason};
use super::metrics::Subject;
use super::signals::Signals;
use super::start;
use crate::accept::listener::Workers;
use crate::coordinator::{Coordinator, Leader, Leading};
use crate::link::node_kind::ServesClients;
use crate::local::LocalState;
use crate::local::session_registry::STATS_PERIOD;
use crate::pool::Pools;
use crate::replica::sequence_allocator;
use crate::terminal::Progress;

/// How long a stopping node waits for its register.
const REGISTER_PATIENCE: Duration = Duration::from_secs(2);

/// The parts of a node that its sessions share.
pub(super) struct Shared {
    pub(super) leader: Arc<Leader>,
    /// What sessions share.
    pub(super) coordinator: Arc<Coordinator>,
    pub(super) pools: Arc<Pools>,
    pub(super) kind: Arc<dyn ServesClients>,
}

/// An open node.
pub(crate) struct Node {
    /// The state that all parts of the node share.
    pub(crate) leader: Arc<Leader>,
    leading: Arc<Leading>,
    coordinator: Arc<Coordinator>,
    pools: Arc<Pools>,
    kind: Arc<dyn ServesClients>,
    chores: Vec<JoinHandle<()>>,
    start_patience: Option<Duration>,
}

impl Node {
    /// A node whose kind has started `chores`.
    pub(super) fn new(
        shared: Shared,
        mut chores: Vec<JoinHandle<()>>,
        start_patience: Option<Duration>,
    ) -> Self {
        let Shared { leader, coordinator, pools, kind } = shared;
        chores.push(end_periods(&leader.local));
        let leading = Leading::here(&leader);
        Self { leader, leading, coordinator, pools, kind, chores, start_patience }
    }

    /// What the pages for Prometheus are about, of a node that serves clients there.
    pub(super) fn subject(&self, listens_on: SocketAddr) -> Subject {
        let (coordinator, leading) = (Arc::clone(&self.coordinator), Arc::clone(&self.leading));
        Subject { coordinator, leading, listens_on }
    }

    /// Whether its sessions can go on in another process.
    pub(super) fn passes_sessions(&self) -> bool {
        self.kind.passes_sessions()
    }

    /// Runs a task that ends with the node.
    pub(super) fn add_chore(&mut self, chore: impl Future<Output = ()> + Send + 'static) {
        self.chores.push(tokio::spawn(chore));
    }

    /// Serves clients until a signal comes or the node fails, and stops. Calls `begin` just before it accepts
    /// clients.
    pub(super) async fn run(
        self,
        mut clients: Clients,
        signals: &mut Signals,
        progress: &Progress,
        begin: impl AsyncFnOnce(&Leader) -> Result<(), NodeError>,
    ) -> Result<Ended, NodeError> {
        let leader = Arc::clone(&self.leader);
        let workers =
            Workers::start(&self.leading, &self.coordinator, &self.pools, &self.kind, &Arc::default());
        let workers = workers.map_err(NodeError::Threads)?;
        clients.keep_numbers(&self.coordinator);
        let serve = async {
            start::catch_up(&leader, self.start_patience, progress).await?;
            start::check_schemas(&leader, progress).await?;
            begin(&leader).await?;
            leader.term.end_founding();
            leader.local.sessions.open(true);
            clients.serve(&workers).await
        };
        let reason = tokio::select! {
            ended = serve => ended,
            failure = leader.term.failed() => Err(NodeError::Log { reason: failure.to_string() }),
            () = signals.stop() => Ok(Reason::Stop),
        };
        leader.local.sessions.open(false);
        let ended = match reason {
            Ok(Reason::Succession) => {
                Clients::say_leaving(progress);
                let estate = clients.leave(&self.coordinator, signals, progress).await;
                Ok(estate.map_or(Ended::Stopped, Ended::Left))
            }
            Ok(Reason::Stop) | Err(_) => {
                // Without its log no session could finish anything.
                let patience =
                    if reason.is_ok() { leader.local.runtime_config.stop_patience() } else { Duration::ZERO };
                clients.stop(&self.coordinator, patience, signals, progress).await;
                reason.map(|_| Ended::Stopped)
            }
        };
        for status in leader.replicas().iter().filter(|status| status.state == State::Up) {
            leader.database.sequences().leases.replica_changed(status.replica);
            sequence_allocator::take_back(&leader, status.replica).await;
        }
        if tokio::time::timeout(REGISTER_PATIENCE, leader.elasticity.write()).await.is_err() {
            tracing::warn!("the usage of the servers is not written: the register does not answer");
        }
        leader.term.register.close();
        leader.log.close();
        leader.drivers.stop().await;
        self.chores.iter().for_each(JoinHandle::abort);
        ended
    }
}

/// Ends statistics periods, until the task is dropped.
pub(super) fn end_periods(local: &Arc<LocalState>) -> JoinHandle<()> {
    let local = Arc::clone(local);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(STATS_PERIOD).await;
            local.sessions.end_period();
        }
    })
}
