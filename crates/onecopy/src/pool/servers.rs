//! The server connections of one session: at most one for each replica, with the state that the session has left there.
//!
//! With `pool_mode = session` the session opens them and keeps them. With `transaction` it takes each from a pool for as
//! long as it needs it ([`super::check_out`]).
//!
//! Invariant: [`Servers::ensure`] returns a connection only to a session that has lost no state, and with the session's
//! settings.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use cluster::ids::{Incarnation, ReplicaId};

use super::carried::{AllCarried, Carried};
use super::defaults::SessionDefaults;
use super::draws::Draws;
use super::opening::{Opener, open, prove};
use super::pinned_state::{self, LostState};
use super::request::ServerPlace;
use super::server::Server;
use super::sharing::Sharing;
use super::state_sync::{prepare_again, sync_state};
use crate::client::settings::Settings;
use crate::coordinator::Coordinator;
use crate::error::Fault;
use crate::local::pins::{Pin, Pins};
use crate::local::session_registry::SessionEntry;
use crate::security::scram::Secret;

/// The connections of one session.
#[derive(Debug)]
pub(crate) struct Servers {
    /// By the number of the replica.
    pub(crate) all: Vec<Option<Box<Server>>>,
    pub(crate) entry: Arc<SessionEntry>,
    /// The client's proof, with which connections log in as its role.
    secret: Secret,
    /// State that was only on connections that are closed.
    lost: LostState,
    /// Where the session drew from sequences last.
    pub(crate) draws: Draws,
    /// The number of drains after which it has closed connections to drained replicas.
    pub(crate) drains_seen: u64,
    /// Statements of SQL's PREPARE.
    pub(crate) carried: AllCarried,
    /// The settings of role and database.
    pub(crate) defaults: SessionDefaults,
    /// None if it does not share connections.
    pub(crate) sharing: Option<Sharing>,
}

impl Servers {
    pub(crate) fn new(
        coordinator: &Coordinator,
        sharing: Option<Sharing>,
        entry: Arc<SessionEntry>,
        secret: Secret,
    ) -> Self {
        Self {
            sharing,
            all: Vec::new(),
            entry,
            secret,
            lost: LostState::default(),
            carried: AllCarried::default(),
            defaults: SessionDefaults::default(),
            draws: Draws::default(),
            drains_seen: coordinator.local.sessions.drains(),
        }
    }

    /// The proof with which connections log in.
    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The session draws from sequences at this replica.
    pub(crate) fn draw_at(&mut self, replica: ReplicaId) {
        self.draws.note(replica);
        if let Some(server) = self.find(replica) {
            server.has_draws = true;
        }
    }

    /// The session may draw there: the statement's effects are not known.
    pub(crate) fn may_draw_at(&mut self, replica: ReplicaId) {
        self.draws.note_possible(replica);
        if let Some(server) = self.find(replica) {
            server.has_draws = true;
        }
    }

    /// It is known now whether the session drew there.
    pub(crate) fn drew_at(&mut self, replica: ReplicaId, it_did: bool) {
        if it_did {
            self.draw_at(replica);
        } else {
            self.draws.note_none();
        }
    }

    /// The connection to a replica; there has to be one.
    pub(crate) fn get(&mut self, replica: ReplicaId) -> &mut Server {
        self.all[usize::from(replica.0)].as_mut().expect("a placed statement has its connection")
    }

    /// The connection to a replica, if there is one.
    pub(crate) fn find(&mut self, replica: ReplicaId) -> Option<&mut Server> {
        self.all.get_mut(usize::from(replica.0))?.as_deref_mut()
    }

    /// All connections.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Server> {
        self.all.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// The numbers of replicas that it may be connected to.
    pub(crate) fn numbers(&self) -> std::ops::Range<usize> {
        0..self.all.len()
    }

    /// The replica of this number, if it has a connection there.
    pub(crate) fn held(&self, number: usize) -> Option<ReplicaId> {
        self.all.get(number)?.as_ref().map(|server| server.replica)
    }

    /// Closes a connection; the server rolls back its open transaction.
    pub(crate) fn close(&mut self, replica: ReplicaId) {
        self.draws.note_closed(replica);
        let closed = self.all.get_mut(usize::from(replica.0)).and_then(Option::take);
        if let Some(server) = closed {
            self.lost.note_closed(&server);
        }
    }

    /// DISCARD ALL: no connection holds state of the session.
    pub(crate) fn forget_state(&mut self) {
        self.lost = LostState::default();
        self.carried = AllCarried::default();
        for server in self.iter_mut() {
            server.pins = Pins::default();
            server.carried.lacking.clear();
        }
    }

    /// Closes a connection unless it holds state of the session.
    pub(crate) fn close_unused(&mut self, replica: ReplicaId) {
        let is_free = |server: &mut Server| server.pins.is_empty() && !server.has_draws;
        if self.find(replica).is_some_and(is_free) {
            self.close(replica);
        }
    }

    /// Closes all: the session ends.
    pub(crate) fn close_all(&mut self) {
        self.all.clear();
    }

    /// Closes all but one.
    pub(crate) fn close_others(&mut self, keep: ReplicaId) {
        for (index, server) in self.all.iter_mut().enumerate() {
            if index != usize::from(keep.0) {
                *server = None;
            }
        }
        if let Some(place) = self.draws.place().filter(|place| *place != keep) {
            self.draws.note_closed(place);
        }
    }

    /// Whether other replicas have other defaults than the session.
    pub(crate) fn has_other_defaults(&self) -> bool {
        self.defaults.differ()
    }

    /// State that was only on a connection that is gone or cannot be used any more.
    pub(crate) fn lost_state(&mut self, coordinator: &Coordinator) -> Option<Pins> {
        self.lost.among(self.all.iter().flatten().map(|server| &**server), coordinator)
    }

    /// Waits until a connection that holds state receives bytes, or ends.
    pub(crate) async fn heard(&mut self) -> (ReplicaId, std::io::Result<()>) {
        std::future::poll_fn(|context| {
            for server in self.all.iter_mut().flatten() {
                if server.pins.held().is_empty() {
                    continue;
                }
                let filling = pin!(server.connection.listen());
                if let Poll::Ready(filled) = filling.poll(context) {
                    return Poll::Ready((server.replica, filled));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// A connection of the former term becomes one of this run of its replica, if the run's agent has spared it. One that does not is
    /// closed when it is needed.
    pub(crate) async fn readmit(&mut self, coordinator: &Coordinator, place: ServerPlace) {
        let ServerPlace { replica, incarnation } = place;
        let Some(server) = self.find(replica).filter(|server| server.incarnation != incarnation) else {
            return;
        };
        let run = &coordinator.seats[usize::from(replica.0)].run;
        let Some(proof) = run.proof_of(incarnation).filter(|proof| proof.spared.contains(&server.pid()))
        else {
            return;
        };
        server.prepared.remove(b"");
        let proving = prove(&mut server.connection, &proof);
        let proving = tokio::time::timeout(coordinator.local.timeouts.health_deadline, proving);
        if let Some(Ok(Ok(Some(_)))) = run.unless_given_up(incarnation, proving).await {
            server.incarnation = incarnation;
        }
    }

    /// The connection to this incarnation of a replica, with the session's settings; opens one if there is none.
    pub(crate) async fn ensure(
        &mut self,
        coordinator: &Coordinator,
        settings: &mut Settings,
        replica: ReplicaId,
        incarnation: Incarnation,
    ) -> Result<&mut Server, Fault> {
        if self.find(replica).is_some_and(|server| server.incarnation != incarnation) {
            self.close(replica);
        }
        if let Some(pins) = self.lost_state(coordinator) {
            return Err(pinned_state::lost(pins));
        }
        let is_anchor = replica == coordinator.view.anchor();
        if self.find(replica).is_none() {
            let place = ServerPlace { replica, incarnation };
            let server = self.open(coordinator, settings, place).await?;
            if !is_anchor && !self.defaults.suit(&server.defaults) {
                return Err(Fault::Unplaced(replica));
            }
            self.put(Box::new(server));
        }
        if is_anchor {
            self.take_defaults(replica);
        }
        let forgets_draws = self.draws.place() != Some(replica);
        let session = self.entry.id;
        let server = self.get(replica);
        server.oids.refresh(coordinator, replica);
        let forgets_draws = forgets_draws && server.has_draws;
        let synced = sync_state(server, settings, session, forgets_draws).await;
        if synced.is_err() && server.shared.is_some() {
            // The settings of the connection are unknown now.
            self.all[usize::from(replica.0)] = None;
        }
        synced?;
        if is_anchor {
            self.carry(replica).await?;
        }
        Ok(self.get(replica))
    }

    /// Opens a connection. A server that hangs accepts connections and does not answer, until it is given up.
    async fn open(
        &mut self,
        coordinator: &Coordinator,
        settings: &Settings,
        place: ServerPlace,
    ) -> Result<Server, Fault> {
        let ServerPlace { replica, incarnation } = place;
        let shared = match &mut self.sharing {
            Some(sharing) => Some(sharing.claimed(replica, self.entry.id)?),
            None => None,
        };
        let opener = Opener { settings, entry: &self.entry, secret: &self.secret };
        let opening = open(coordinator, opener, place);
        let opening = tokio::time::timeout(coordinator.local.timeouts.health_deadline, opening);
        let seat = &coordinator.seats[usize::from(replica.0)];
        let opened = seat.run.unless_given_up(incarnation, opening).await;
        let opened = opened.and_then(Result::ok).unwrap_or(Err(Fault::Lost(replica)))?;
        Ok(Server { shared, ..opened })
    }

    /// Puts a connection into the slot of its replica.
    pub(super) fn put(&mut self, server: Box<Server>) {
        let number = usize::from(server.replica.0);
        if self.all.len() <= number {
            self.all.resize_with(number + 1, || None);
        }
        self.all[number] = Some(server);
    }

    /// Takes the defaults of the connection to the anchor as the session's. If they have changed, closes connections to
    /// other replicas that have others.
    fn take_defaults(&mut self, anchor: ReplicaId) {
        let Self { all, defaults, .. } = self;
        let at_anchor = all.get(usize::from(anchor.0)).and_then(Option::as_ref);
        if at_anchor.is_some_and(|server| defaults.take(&server.defaults)) {
            for slot in all {
                drop(
                    slot.take_if(|server| !defaults.are(&server.defaults) && server.connection.is_at_rest()),
                );
            }
        }
    }

    /// Prepares the statements of SQL's PREPARE on the connection to the anchor, if that is a new one.
    async fn carry(&mut self, anchor: ReplicaId) -> Result<(), Fault> {
        if self.carried.is_empty() || self.find(anchor).is_none_or(|server| server.carried.is_here) {
            return Ok(());
        }
        // A connection to a former anchor would keep statements that are deallocated from now on.
        for slot in &mut self.all {
            drop(slot.take_if(|server| server.carried.is_here && server.connection.is_at_rest()));
        }
        let Self { all, carried, .. } = self;
        let Some(server) = all.get_mut(usize::from(anchor.0)).and_then(Option::as_mut) else {
            return Ok(());
        };
        server.carried.is_here = true;
        server.pins.add(Pin::Prepare);
        for Carried { name, text, .. } in &carried.0 {
            if !prepare_again(server, text).await? {
                server.carried.lacking.push(name.clone());
            }
        }
        Ok(())
    }
}
