//! A session's side of the connections that it shares: it takes one from the pool, and detaches one to give it back.
//!
//! [`super::pools`] keeps the idle ones; [`crate::connect::check_in`] decides when a session needs one and when it returns
//! it.

use std::sync::Arc;
use std::time::Instant;

use cluster::ids::{Incarnation, ReplicaId};
use tokio::sync::oneshot;

use super::kind::Kind;
use super::pools::{Granted, Taken};
use super::request::{Requester, ServerPlace, Want};
use super::server::Server;
use super::servers::Servers;
use crate::backend::{BackendError, Rows};
use crate::client::settings::Settings;
use crate::local::pins::{Pin, Pins};

/// A place in the wait queue for a connection.
pub(crate) type Ticket = oneshot::Receiver<Granted>;

impl Servers {
    /// Whether the session shares connections with other sessions.
    pub(crate) fn is_shared(&self) -> bool {
        self.sharing.is_some()
    }

    /// The kind of its connections, if it shares them.
    pub(crate) fn kind(&self) -> Option<&Arc<Kind>> {
        self.sharing.as_ref().map(|sharing| &sharing.kind)
    }

    /// Gets a connection to a replica, or the right to open one, from the pool. Returns a ticket if the session has to wait.
    pub(crate) fn claim(
        &mut self,
        replica: ReplicaId,
        incarnation: Incarnation,
        want: Want,
    ) -> Option<Ticket> {
        match self.find(replica).map(|server| server.incarnation) {
            Some(there) if there == incarnation => return None,
            Some(_) => self.close(replica),
            None => {}
        }
        let sharing = self.sharing.as_mut()?;
        if sharing.has_permit(replica) {
            return None;
        }
        let requester = Requester { session: self.entry.id, thread: sharing.thread };
        match sharing.pools.take(&sharing.kind, ServerPlace { replica, incarnation }, requester, want) {
            Taken::Now(granted) => {
                self.take_looked_at(granted, replica, incarnation);
                None
            }
            Taken::Later(granted) => Some(granted),
        }
    }

    /// Takes the grant that ended the wait.
    pub(crate) fn take(&mut self, granted: Granted, replica: ReplicaId, incarnation: Incarnation) {
        let granted = match granted {
            Granted::Server(mut server) if !server.may_be_used() => {
                match server.shared.as_mut().and_then(|shared| shared.permit.take()) {
                    Some(permit) => Granted::Open(permit),
                    None => return,
                }
            }
            other => other,
        };
        self.take_looked_at(granted, replica, incarnation);
    }

    /// Takes a grant whose connection is known to be open.
    fn take_looked_at(&mut self, granted: Granted, replica: ReplicaId, incarnation: Incarnation) {
        let Some(sharing) = &mut self.sharing else { return };
        let permit = match granted {
            Granted::Open(permit) => Some(permit),
            Granted::Server(mut server) => {
                let epoch = sharing.pools.epoch(sharing.kind.role());
                let is_fit = server.is_of(&sharing.kind)
                    && server.incarnation == incarnation
                    && server.epoch() == epoch
                    && self.defaults.are(&server.defaults);
                let brought = if is_fit {
                    server.brought_to(sharing.thread)
                } else {
                    Err(server.shared.as_mut().and_then(|shared| shared.permit.take()))
                };
                match brought {
                    Ok(server) => return self.attach(server),
                    Err(permit) => permit,
                }
            }
        };
        if let Some(permit) = permit {
            sharing.add_permit(replica, permit);
        }
    }

    /// Attaches a connection from the pool to the session.
    fn attach(&mut self, mut server: Box<Server>) {
        let replica = server.replica;
        if server.last_session() != self.entry.id {
            self.draws.note_shared(replica);
        }
        server.carried.is_here = false;
        let registration = &mut server.backend_registration;
        registration.shown = Some(self.entry.use_server(replica, registration.running.pid));
        self.put(server);
    }

    /// Whether `currval` can be answered: not if another session has used the connection since this one drew there.
    pub(crate) fn recover_draws(&mut self) -> bool {
        let Some(sharing) = &mut self.sharing else { return true };
        if let Some(replica) = self.draws.place()
            && self.all.get(usize::from(replica.0)).is_none_or(Option::is_none)
        {
            let own = sharing.pools.take_own(&sharing.kind, replica, self.entry.id);
            match own.and_then(|server| server.brought_to(sharing.thread).ok()) {
                Some(server) => self.attach(server),
                None => self.draws.note_shared(replica),
            }
        }
        !self.draws.are_lost()
    }

    /// Whether it has a shared connection, or a permit, to a replica other than this.
    pub(crate) fn has_others(&self, replica: ReplicaId) -> bool {
        let Some(sharing) = &self.sharing else { return false };
        self.all.iter().flatten().any(|server| server.replica != replica)
            || sharing.has_other_permits(replica)
    }

    /// Detaches a connection that is to be given back; an error says why the session has to keep it.
    pub(crate) fn detach(
        &mut self,
        replica: ReplicaId,
        settings: &mut Settings,
    ) -> Result<Box<Server>, Pins> {
        let is_place_of_draws = self.draws.place() == Some(replica);
        let nothing = Pins::default();
        let slot = self.all.get_mut(usize::from(replica.0)).ok_or(nothing)?;
        let server = slot.as_mut().ok_or(nothing)?;
        let is_up_to_date = server.settings == settings.generation();
        if let Some(shared) = &mut server.shared {
            server.pins.remove(Pin::Currval);
            if server.has_draws && is_place_of_draws && self.draws.is_asked {
                server.pins.add(Pin::Currval);
            }
            if !server.pins.is_empty() {
                return Err(server.pins);
            }
            shared.applied = is_up_to_date.then(|| settings.dress());
            shared.since = Instant::now();
        }
        server.backend_registration.shown = None;
        slot.take().ok_or(nothing)
    }

    /// Takes the report of the anchor on the role. Returns whether the connection, which may be older, is as good as a new
    /// one; if not, closes it.
    pub(crate) fn note_role(&mut self, anchor: ReplicaId, reported: Result<Rows, BackendError>) -> bool {
        let Some(sharing) = &self.sharing else { return true };
        let role = sharing.kind.role();
        match reported {
            Ok(rows) if !rows.is_empty() => sharing.pools.note_role(role, &format!("{rows:?}")),
            _ => sharing.pools.distrust_role(role),
        }
        let epoch = sharing.pools.epoch(role);
        let is_good = self.find(anchor).is_some_and(|server| server.epoch() == epoch);
        if !is_good {
            self.close(anchor);
        }
        is_good
    }

    /// Returns permits that it does not need.
    pub(crate) fn drop_permits(&mut self, keep: Option<ReplicaId>) {
        if let Some(sharing) = &mut self.sharing {
            sharing.drop_permits(keep);
        }
    }

    /// The role whose connections it shares.
    pub(crate) fn role(&self) -> &str {
        self.sharing.as_ref().map_or("", |sharing| sharing.kind.role())
    }
}
