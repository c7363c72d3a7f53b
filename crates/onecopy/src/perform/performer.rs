//! One execution on its connection.

use std::pin::pin;
use std::sync::Arc;

use cluster::event::Digest;
use cluster::ids::{Identity, ReplicaId};
use tokio::sync::watch;
use wire::backend::tag;

use super::exchange::{note_prepared, read, write};
use super::rows::CapturedRows;
use crate::backend::{BackendError, Connection};
use crate::client::settings::Settings;
use crate::coordinator::Coordinator;
use crate::coordinator::evictions::Tenancy;
use crate::coordinator::performances::{PerformOrder, Performance, Wish};
use crate::link::Worker;
use crate::link::performable::Performable;
use crate::local::session_registry::SessionEntry;
use crate::pool::request::Want;
use crate::pool::servers::Servers;
use crate::pool::sharing::Sharing;

/// An execution with its connection.
pub(super) struct Performer {
    replica: ReplicaId,
    identity: Identity,
    coordinator: Arc<Coordinator>,
    servers: Servers,
    settings: Settings,
    /// Registers the execution at its backend, so that what waits for its locks finds it.
    tenancy: Option<Tenancy>,
}

impl Performer {
    /// A connection to the replica with the role and settings of the client; `None` if there is none to be had now.
    pub(super) async fn connected(
        worker: &Worker,
        performance: &Arc<Performance>,
        performable: &Performable,
    ) -> Option<Self> {
        let PerformOrder { replica, incarnation, session, identity, .. } = performance.order;
        let coordinator = Arc::clone(&worker.coordinator);
        let mut settings = performable.settings.clone();
        let sharing = Sharing::of(&worker.performing_pools, worker.thread, &settings, &performable.secret);
        let entry = SessionEntry::unlisted(session);
        let mut servers = Servers::new(&coordinator, sharing, entry, performable.secret.clone());
        if servers.claim(replica, incarnation, Want::First).is_some() {
            return None;
        }
        let server = servers.ensure(&coordinator, &mut settings, replica, incarnation).await.ok()?;
        let tenancy = Some(server.perform_here(performance));
        Some(Self { replica, identity, coordinator, servers, settings, tenancy })
    }

    /// Executes all but COMMIT. Returns the digest of the changed rows; `None` if the execution has failed. If it is to be undone
    /// meanwhile, its statement is cancelled.
    pub(super) async fn execute(
        &mut self,
        performable: &Performable,
        wishes: &mut watch::Receiver<Wish>,
    ) -> Option<Digest> {
        let server = self.servers.find(self.replica)?;
        let running = Arc::clone(&server.backend_registration.running);
        let mut rows = CapturedRows::new(&self.coordinator);
        let units = write(server, &self.coordinator, performable, self.identity);
        let replies = {
            let mut reading = pin!(read(server, units, Some(&mut rows)));
            tokio::select! {
                biased;
                replies = &mut reading => replies,
                _ = wishes.wait_for(|wish| *wish != Wish::Perform) => {
                    running.cancel().await;
                    reading.await
                }
            }
        };
        let server = self.servers.find(self.replica)?;
        let Ok(replies) = replies else {
            self.servers.close(self.replica);
            return None;
        };
        note_prepared(server, performable, &replies);
        let xid = replies.value.and_then(|value| value.parse().ok()).filter(|_| !replies.has_failed)?;
        rows.digest(xid)
    }

    /// Waits until it is decided what becomes of the execution. [`Wish::Perform`] says that the connection was lost before.
    pub(super) async fn decided(&mut self, wishes: &mut watch::Receiver<Wish>) -> Wish {
        let Some(server) = self.servers.find(self.replica) else { return Wish::Perform };
        tokio::select! {
            biased;
            wish = wishes.wait_for(|wish| *wish != Wish::Perform) => wish.map_or(Wish::Perform, |wish| *wish),
            _ = lost(&mut server.connection) => Wish::Perform,
        }
    }

    /// Commits. Returns whether the server has confirmed it.
    pub(super) async fn commit(&mut self) -> bool {
        let Some(server) = self.servers.find(self.replica) else { return false };
        server.query_own("COMMIT");
        let replies = read(server, 1, None).await;
        replies.is_ok_and(|replies| !replies.has_failed && replies.command == b"COMMIT")
    }

    /// Rolls back, and gives the connection back.
    pub(super) async fn roll_back(mut self, worker: &Worker) {
        if let Some(server) = self.servers.find(self.replica) {
            if !server.connection.is_in_step() {
                return;
            }
            server.query_own("ROLLBACK");
            if !read(server, 1, None).await.is_ok_and(|replies| !replies.has_failed) {
                return;
            }
        }
        self.give_back(worker).await;
    }

    /// Gives the connection back to its pool.
    pub(super) async fn give_back(mut self, worker: &Worker) {
        self.tenancy = None;
        let is_at_rest = self.servers.find(self.replica).is_some_and(|server| server.connection.is_at_rest());
        if !is_at_rest {
            return;
        }
        let Ok(server) = self.servers.detach(self.replica, &mut self.settings) else { return };
        if server.backend_registration.running.is_left_alone().await && server.connection.is_at_rest() {
            server.take_eviction();
            worker.performing_pools.give_back(server);
        }
    }
}

/// Waits until an idle connection ends.
async fn lost(connection: &mut Connection) -> Result<(), BackendError> {
    loop {
        let (tag, total) = connection.message().await?;
        connection.input.consume(total);
        if tag == tag::ERROR_RESPONSE {
            return Ok(());
        }
    }
}
