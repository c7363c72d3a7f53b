//! A session's side of the connections that it shares: it takes one from the pool, and detaches one to give it back.
//!
//! [`crate::pool`] keeps the idle ones; [`crate::connect::check_in`] decides when a session needs one and when it returns it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::ids::{Incarnation, ReplicaId, SessionId};
use tokio::sync::oneshot;

use super::kind::Kind;
use super::servers::{Server, Servers};
use super::state_sync::SharedConnection;
use super::wait_queue::Want;
use super::{Asker, FRESH_MAX, Granted, Permit, Pools, ServerPlace, Taken, Thread};
use crate::backend::{BackendError, Rows};
use crate::client::settings::Settings;
use crate::error::{Fault, broken};
use crate::local::pins::{Pin, Pins};
use crate::security::scram::Secret;

/// A place in the wait queue for a connection.
pub(crate) type Ticket = oneshot::Receiver<Granted>;

/// How a session shares its connections with others.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub(crate) pools: Arc<Pools>,
    pub(crate) kind: Arc<Kind>,
    /// The thread of the session.
    thread: Thread,
    /// Connections that it may open.
    pub(crate) permits: Vec<(ReplicaId, Permit)>,
    /// Its values from sequences were on a connection that other sessions have used since.
    pub(crate) has_lost_draws: bool,
}

impl Server {
    /// Whether it is of this kind.
    pub(crate) fn is_of(&self, kind: &Arc<Kind>) -> bool {
        self.shared.as_ref().is_some_and(|shared| Arc::ptr_eq(&shared.kind, kind))
    }

    /// The role whose sessions share it.
    pub(crate) fn role(&self) -> Option<Arc<str>> {
        self.shared.as_ref().map(|shared| shared.kind.role_name())
    }

    /// The epoch of its role when it was opened.
    pub(crate) fn epoch(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.epoch)
    }

    /// The session that used it last.
    pub(crate) fn last_session(&self) -> SessionId {
        self.shared.as_ref().map_or(SessionId(0), |shared| shared.last_session)
    }

    pub(crate) fn age(&self) -> Duration {
        self.shared.as_ref().map_or(Duration::ZERO, |shared| shared.opened.elapsed())
    }

    /// Its age when it was given back.
    pub(crate) fn age_when_given_back(&self) -> Duration {
        self.shared
            .as_ref()
            .map_or(Duration::ZERO, |shared| shared.since.saturating_duration_since(shared.opened))
    }

    /// How long it has been idle.
    pub(crate) fn idle(&self) -> Duration {
        self.shared.as_ref().map_or(Duration::ZERO, |shared| shared.since.elapsed())
    }

    /// The thread that it wakes.
    pub(crate) fn thread(&self) -> Thread {
        self.shared.as_ref().map_or(Thread(0), |shared| shared.thread)
    }

    /// Whether the server has not closed it. The socket is asked only if it was idle for some time.
    pub(crate) fn may_be_used(&self) -> bool {
        self.idle() < FRESH_MAX || self.connection.is_quiet()
    }

    /// Migrates it to this thread; if that fails, returns its permit, with which the session may open another one.
    fn brought_to(mut self: Box<Self>, thread: Thread) -> Result<Box<Self>, Option<Permit>> {
        if self.thread() == thread {
            return Ok(self);
        }
        let permit = self.shared.as_mut().and_then(|shared| shared.permit.take());
        let Ok(mut server) = self.brought_here() else { return Err(permit) };
        if let Some(shared) = &mut server.shared {
            (shared.thread, shared.permit) = (thread, permit);
        }
        Ok(Box::new(server))
    }

    /// Whether its last session may have drawn from sequences here.
    pub(crate) fn has_draws(&self) -> bool {
        self.has_draws
    }

    pub(crate) fn forget_draws(&mut self) {
        self.has_draws = false;
    }

    /// Notes what the session has left here, as the server reports it.
    pub(crate) fn found(&mut self, pins: Pins) {
        self.pins = pins;
        if let Some(shared) = &mut self.shared {
            shared.is_tainted = true;
        }
    }
}

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
        if sharing.permits.iter().any(|(at, _)| *at == replica) {
            return None;
        }
        let asker = Asker { session: self.entry.id, thread: sharing.thread };
        match sharing.pools.take(&sharing.kind, ServerPlace { replica, incarnation }, asker, want) {
            Taken::Now(granted) => {
                self.take_looked_at(granted, replica, incarnation);
                None
            }
            Taken::Later(granted) => Some(granted),
        }
    }

    /// Takes what the wait has granted.
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

    /// Takes what was granted, after its socket was asked.
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
                    Ok(server) => return self.put(server),
                    Err(permit) => permit,
                }
            }
        };
        sharing.permits.extend(permit.map(|permit| (replica, permit)));
    }

    /// Attaches a connection from the pool to the session.
    fn put(&mut self, mut server: Box<Server>) {
        let replica = server.replica;
        let is_own = server.last_session() == self.entry.id;
        if let Some(sharing) = &mut self.sharing
            && !is_own
            && self.draws_at == Some(replica)
        {
            (self.draws_at, sharing.has_lost_draws) = (None, true);
        }
        server.carried.is_here = false;
        server.registration.shown = Some(self.entry.use_server(replica, server.registration.running.pid));
        let number = usize::from(replica.0);
        if self.all.len() <= number {
            self.all.resize_with(number + 1, || None);
        }
        self.all[number] = Some(server);
    }

    /// Whether `currval` can be answered: not if another session has used the connection since this one drew there.
    pub(crate) fn recover_draws(&mut self) -> bool {
        let Some(sharing) = &mut self.sharing else { return true };
        if let Some(replica) = self.draws_at
            && self.all.get(usize::from(replica.0)).is_none_or(Option::is_none)
        {
            let own = sharing.pools.take_own(&sharing.kind, replica, self.entry.id);
            let own = own.and_then(|server| server.brought_to(sharing.thread).ok());
            sharing.has_lost_draws |= own.is_none();
            self.draws_at.take_if(|_| own.is_none());
            if let Some(server) = own {
                self.put(server);
            }
        }
        self.sharing.as_ref().is_none_or(|sharing| !sharing.has_lost_draws)
    }

    /// The numbers of replicas that it may be connected to.
    pub(crate) fn numbers(&self) -> std::ops::Range<usize> {
        0..self.all.len()
    }

    /// The replica of this number, if it has a connection there.
    pub(crate) fn held(&self, number: usize) -> Option<ReplicaId> {
        self.all.get(number)?.as_ref().map(|server| server.replica)
    }

    /// Whether it has a shared connection, or a permit, to a replica other than this.
    pub(crate) fn has_others(&self, replica: ReplicaId) -> bool {
        let Some(sharing) = &self.sharing else { return false };
        let is_other = |at: ReplicaId| at != replica;
        self.all.iter().flatten().any(|server| is_other(server.replica))
            || sharing.permits.iter().any(|(at, _)| is_other(*at))
    }

    /// Detaches a connection that is to be given back; an error says why the session has to keep it.
    pub(crate) fn detach(
        &mut self,
        replica: ReplicaId,
        settings: &mut Settings,
    ) -> Result<Box<Server>, Pins> {
        let (asks, draws_at) = (self.asks_draws, self.draws_at);
        let nothing = Pins::default();
        let slot = self.all.get_mut(usize::from(replica.0)).ok_or(nothing)?;
        let server = slot.as_mut().ok_or(nothing)?;
        let has_drawn = server.has_draws && draws_at == Some(replica);
        let is_up_to_date = server.settings == settings.generation();
        if let Some(shared) = &mut server.shared {
            server.pins.remove(Pin::Currval);
            if has_drawn && asks {
                server.pins.add(Pin::Currval);
            }
            if !server.pins.is_empty() {
                return Err(server.pins);
            }
            shared.applied = is_up_to_date.then(|| settings.dress());
            shared.since = Instant::now();
        }
        server.registration.shown = None;
        slot.take().ok_or(nothing)
    }

    /// Takes what the anchor reports of the role. Returns whether the connection, which may be older, is as good as a new
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
            sharing.permits.retain(|(at, _)| keep == Some(*at));
        }
    }

    /// The role whose connections it shares.
    pub(crate) fn role(&self) -> &str {
        self.sharing.as_ref().map_or("", |sharing| sharing.kind.role())
    }
}

impl Sharing {
    /// None if sessions do not share connections.
    pub(crate) fn of(
        pools: &Arc<Pools>,
        thread: Thread,
        settings: &Settings,
        secret: &Secret,
    ) -> Option<Self> {
        pools.pooling.is_shared.then(|| Self {
            kind: pools.kind(settings, secret),
            pools: Arc::clone(pools),
            thread,
            permits: Vec::new(),
            has_lost_draws: false,
        })
    }

    /// Takes the permit for a connection that is about to be opened.
    pub(crate) fn claimed(
        &mut self,
        replica: ReplicaId,
        session: SessionId,
    ) -> Result<SharedConnection, Fault> {
        let claimed = self.permits.iter().position(|(at, _)| *at == replica);
        let claimed = claimed.ok_or_else(|| broken("a connection was not claimed before it was opened"))?;
        let (_, permit) = self.permits.swap_remove(claimed);
        let epoch = self.pools.epoch(self.kind.role());
        let owner = Asker { session, thread: self.thread };
        Ok(SharedConnection::new(Arc::clone(&self.kind), epoch, permit, owner))
    }
}
