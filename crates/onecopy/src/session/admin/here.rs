//! What a node carries out by itself: it pauses its clients, ends one of its sessions, tells of itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::ids::SessionId;
use wire::sqlstate;

use super::bouncer::timestamp;
use crate::client::cancel::{CancelKeys, pid_of};
use crate::coordinator::{Coordinator, Leading, VersionLease};
use crate::error::Refusal;
use crate::local::session_registry::SessionRegistry;

/// How long PAUSE waits for sessions to end their transactions.
pub(super) const PAUSE_MAX: Duration = Duration::from_mins(1);
/// How long sessions may take to end their transactions before the lead is handed over; those of other nodes wait meanwhile.
pub(super) const HOLD_PATIENCE: Duration = Duration::from_secs(10);
/// For how long sessions begin nothing if no leader is joined.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(20);
/// How often PAUSE checks.
const PAUSE_LOOK: Duration = Duration::from_millis(5);
/// Numbers below are those of sessions, or the process numbers that their clients got.
const PROCESS_NUMBERS: u64 = 1 << 31;

/// This node, for commands that its clients say, or those of other nodes.
#[derive(Clone)]
pub(crate) struct Here {
    pub(crate) leading: Arc<Leading>,
    /// That of its sessions.
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) keys: Arc<CancelKeys>,
}

impl Here {
    pub(crate) fn new(
        leading: &Arc<Leading>,
        coordinator: &Arc<Coordinator>,
        keys: &Arc<CancelKeys>,
    ) -> Self {
        Self { leading: Arc::clone(leading), coordinator: Arc::clone(coordinator), keys: Arc::clone(keys) }
    }

    fn sessions(&self) -> &SessionRegistry {
        &self.coordinator.local.sessions
    }

    /// Whether the node lets clients in.
    pub(super) fn serves(&self) -> bool {
        self.sessions().takes_clients()
    }

    /// Returns once no session has work in progress and no session begins any before RESUME.
    pub(super) async fn pause(&self) -> Result<(), Refusal> {
        let sessions = self.sessions();
        if sessions.pauses.is_by_command() {
            return Err(Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "everything is paused already",
                "RESUME ends that.",
            ));
        }
        sessions.pauses.pause(true);
        let rested = self.come_to_rest(PAUSE_MAX).await;
        if rested.is_err() {
            sessions.pauses.pause(false);
        }
        rested
    }

    /// Waits until no session has work in progress.
    async fn come_to_rest(&self, patience: Duration) -> Result<(), Refusal> {
        let deadline = Instant::now() + patience;
        loop {
            let busy = self.sessions().busy();
            if busy == 0 {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Refusal::new(
                    sqlstate::LOCK_NOT_AVAILABLE,
                    format!(
                        "{busy} sessions did not end their transactions within {} seconds; everything goes on",
                        patience.as_secs()
                    ),
                    "SHOW CLIENTS names them, and KILL ends one.",
                ));
            }
            tokio::time::sleep(PAUSE_LOOK).await;
        }
    }

    /// Lets sessions begin work again.
    pub(super) fn resume(&self) -> Result<(), Refusal> {
        if !self.sessions().pauses.is_by_command() {
            return Err(Refusal::plain(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "nothing is paused"));
        }
        self.sessions().pauses.pause(false);
        Ok(())
    }

    /// Returns once no session has work in progress. None begins any before this node has joined a leader anew, or for [`HOLD_MAX`].
    pub(super) async fn hold(&self) -> Result<(), Refusal> {
        let hold = self.sessions().pauses.hold();
        let coordinator = Arc::clone(&self.coordinator);
        tokio::spawn(async move {
            tokio::time::sleep(HOLD_MAX).await;
            if coordinator.local.sessions.pauses.end_hold(hold) {
                tracing::warn!("clients waited for another leader, and go on without it");
            }
        });
        let rested = self.come_to_rest(HOLD_PATIENCE).await;
        if rested.is_err() {
            self.sessions().pauses.end_hold(hold);
        }
        rested
    }

    /// Ends a hold, if one is in force.
    pub(super) fn release(&self) {
        self.sessions().pauses.end_any_hold();
    }

    /// Ends a session of this node, which is named by its number or its process number.
    pub(super) async fn kill(&self, id: u64) -> Result<(), Refusal> {
        let is_known =
            || id < PROCESS_NUMBERS || self.sessions().entries().iter().any(|entry| entry.id.0 == id);
        if is_known() && self.keys.kill(pid_of(SessionId(id))).await {
            return Ok(());
        }
        Err(no_session(id))
    }

    /// The columns of SHOW NODES that only the node itself knows: epoch, sessions, lease, release, since, drained.
    pub(super) fn facts(&self) -> Vec<String> {
        let lease = match self.leading.get() {
            Some(leader) => leader.view.lease_left(),
            None => self.coordinator.view.version_lease.as_ref().map(VersionLease::left),
        };
        vec![
            self.leading.epoch().map_or_else(String::new, |epoch| epoch.to_string()),
            self.sessions().entries().len().to_string(),
            lease.map_or_else(String::new, |left| left.as_millis().to_string()),
            env!("CARGO_PKG_VERSION").to_owned(),
            timestamp(self.coordinator.local.since),
            if self.sessions().is_drained() { "yes" } else { "no" }.to_owned(),
        ]
    }
}

/// No session of the cluster has this number.
pub(super) fn no_session(id: u64) -> Refusal {
    Refusal::new(
        sqlstate::UNDEFINED_OBJECT,
        format!("there is no session {id}"),
        "SHOW CLIENTS lists them in its column id.",
    )
}
