//! The pools of a node: one for each role and replica, with its idle connections, its permits and its wait queue.
//!
//! A session prefers the connection that it used last, where its settings, prepared statements and drawn sequence values
//! still are. A connection wakes the thread that used it last. In another thread each of its answers would wake two
//! threads, so a session prefers an idle connection of its own thread and else migrates one. A connection that is given
//! back goes to a waiting session of its thread, unless another session has waited clearly longer ([`super::wait_queue`]).
//!
//! Invariant: `Pool::total` counts the permits in existence, and each connection of the pool holds one of them, idle or
//! not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::ids::{ReplicaId, SessionId};
use tokio::sync::oneshot;

use super::kind::{Kind, Kinds};
use super::leftovers::HidingCode;
use super::permit::{Issuer, Permit, PoolKey};
use super::request::{Requester, ServerPlace, Thread, Want};
use super::server::Server;
use super::statement_numbers::StatementNumbers;
use super::wait_queue::WaitQueue;
use crate::client::settings::Settings;
use crate::local::IdleConnections;
use crate::local::limits::Pooling;
use crate::security::scram::Secret;

/// A connection that was idle for so long is closed.
const IDLE_MAX: Duration = Duration::from_mins(10);
/// An older connection is closed when it is idle: roles, rights and settings of the server may have changed.
const AGE_MAX: Duration = Duration::from_hours(1);
/// A session that has a transaction open at another replica may get one of so many connections beyond the size of the pool.
const SECOND_MAX: usize = 2;
/// How often idle connections are checked for their age.
pub(crate) const REAP_EVERY: Duration = Duration::from_secs(30);

/// The grant that ends the wait of a session.
#[derive(Debug)]
pub(crate) enum Granted {
    /// A connection that was given back, of any kind.
    Server(Box<Server>),
    /// A new one may be opened.
    Open(Permit),
}

/// The answer to a session that asks for a connection.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It has it.
    Now(Granted),
    /// It waits until another session gives one back.
    Later(oneshot::Receiver<Granted>),
}

#[derive(Debug, Default)]
struct Pool {
    /// Permits in existence.
    total: usize,
    /// Idle connections; the last one was used last.
    #[expect(clippy::vec_box, reason = "a connection is large, and changes hands with each statement")]
    idle: Vec<Box<Server>>,
    waiting: WaitQueue<Granted>,
}

/// The report of the servers on a role's rights and settings.
#[derive(Debug, Default)]
struct RoleReport {
    rows: String,
    /// How often the report has changed.
    epoch: u64,
}

#[derive(Debug, Default)]
struct PoolsState {
    pools: BTreeMap<PoolKey, Pool>,
    roles: BTreeMap<Arc<str>, RoleReport>,
    /// Drained replicas, whose connections are not kept.
    drained: BTreeSet<ReplicaId>,
}

/// All pools.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) pooling: Pooling,
    state: Mutex<PoolsState>,
    kinds: Kinds,
    /// The numbers of prepared statements.
    pub(crate) statements: StatementNumbers,
    /// Whether functions of the database may change settings that no server reports.
    pub(crate) hiding_code: HidingCode,
}

/// How a pool is used.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) role: String,
    pub(crate) replica: ReplicaId,
    /// Process ids of its idle connections.
    pub(crate) idle: Vec<i32>,
}

impl Pools {
    pub(crate) fn new(pooling: Pooling) -> Arc<Self> {
        Arc::new(Self {
            pooling,
            state: Mutex::default(),
            kinds: Kinds::default(),
            statements: StatementNumbers::default(),
            hiding_code: HidingCode::default(),
        })
    }

    /// The most connections of a pool that may be in use when another one is wanted.
    fn places(&self, want: Want) -> usize {
        match want {
            Want::First => self.pooling.size,
            Want::Second => self.pooling.size + SECOND_MAX,
        }
    }

    /// The kind of a session's connections.
    pub(crate) fn kind(&self, settings: &Settings, secret: &Secret) -> Arc<Kind> {
        self.kinds.of(settings, secret)
    }

    fn state(&self) -> MutexGuard<'_, PoolsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for a session: an idle one, the right to open one, or a place in the wait queue.
    pub(crate) fn take(
        self: &Arc<Self>,
        kind: &Arc<Kind>,
        place: ServerPlace,
        requester: Requester,
        want: Want,
    ) -> Taken {
        let ServerPlace { replica, incarnation } = place;
        let Requester { session, thread } = requester;
        let key = PoolKey { role: kind.role_name(), replica };
        // Useless connections are closed after the lock is released, because that returns their permits.
        let mut useless = Vec::new();
        let mut state = self.state();
        let epoch = state.roles.get(kind.role()).map_or(0, |report| report.epoch);
        let pool = state.pools.entry(key.clone()).or_default();
        let is_old = |server: &mut Box<Server>| server.incarnation != incarnation || server.epoch() != epoch;
        useless.extend(pool.idle.extract_if(.., is_old));
        let places = self.places(want);
        let taken = loop {
            let total = pool.total.saturating_sub(useless.len());
            let is_full = total >= places;
            if total.saturating_sub(pool.idle.len()) >= places {
                break Taken::Later(pool.waiting.enter(want, thread));
            } else if let Some(index) = pool.choose(kind, session, thread, is_full) {
                let server = pool.idle.remove(index);
                if server.may_be_used() {
                    break Taken::Now(Granted::Server(server));
                }
                useless.push(server);
            } else if !is_full {
                pool.total += 1;
                break Taken::Now(Granted::Open(self.permit(key)));
            } else {
                // The session closes one of another kind and uses its permit.
                break Taken::Now(Granted::Server(pool.idle.remove(0)));
            }
        };
        drop(state);
        drop(useless);
        taken
    }

    /// The connection that a session gave back last, if no other session has used it since.
    pub(crate) fn take_own(
        &self,
        kind: &Arc<Kind>,
        replica: ReplicaId,
        session: SessionId,
    ) -> Option<Box<Server>> {
        let mut state = self.state();
        let pool = state.pools.get_mut(&PoolKey { role: kind.role_name(), replica })?;
        let index =
            pool.idle.iter().position(|server| server.last_session() == session && server.is_of(kind))?;
        Some(pool.idle.remove(index))
    }

    /// Takes back a connection at rest, and gives it to a waiting session.
    pub(crate) fn give_back(&self, server: Box<Server>) {
        let mut state = self.state();
        let Some(role) = server.role() else { return };
        let epoch = state.roles.get(&role).map_or(0, |report| report.epoch);
        if server.epoch() != epoch
            || server.age_when_given_back() > AGE_MAX
            || state.drained.contains(&server.replica)
        {
            drop(state);
            return drop(server);
        }
        let pool = state.pools.entry(PoolKey { role, replica: server.replica }).or_default();
        let thread = server.thread();
        let mut granted = Granted::Server(server);
        let has_room = pool.busy().saturating_sub(1) < self.pooling.size;
        while let Some(sender) = pool.waiting.next(Some(thread), has_room) {
            match sender.send(granted) {
                Ok(()) => return,
                Err(refused) => granted = refused,
            }
        }
        let Granted::Server(server) = granted else { return };
        if pool.total <= self.pooling.size {
            return pool.idle.push(server);
        }
        // The pool had grown beyond its size for a while. The connection is closed after the lock is released.
        drop(state);
        drop(server);
    }

    /// Counts no permit: the caller has done so under the lock.
    fn permit(self: &Arc<Self>, key: PoolKey) -> Permit {
        Permit::new(Arc::<Self>::clone(self), key)
    }

    /// Notes the present report of the servers on a role. If it has changed, older connections are of no use any more: the
    /// role may have been dropped and created again, or begin with other settings.
    pub(crate) fn note_role(&self, role: &str, rows: &str) {
        let mut state = self.state();
        let report = state.roles.entry(role.into()).or_default();
        if report.rows != rows {
            rows.clone_into(&mut report.rows);
            report.epoch += 1;
        }
    }

    /// The servers could not report the role, so its connections are of no use any more.
    pub(crate) fn distrust_role(&self, role: &str) {
        let mut state = self.state();
        let report = state.roles.entry(role.into()).or_default();
        report.rows.clear();
        report.epoch += 1;
    }

    /// The epoch that a connection of a role must have to be of use.
    pub(crate) fn epoch(&self, role: &str) -> u64 {
        self.state().roles.get(role).map_or(0, |report| report.epoch)
    }

    /// Closes connections that were idle for long or are too old.
    pub(crate) fn reap(&self) {
        let mut old = Vec::new();
        let mut state = self.state();
        for pool in state.pools.values_mut() {
            let is_old = |server: &mut Box<Server>| server.idle() > IDLE_MAX || server.age() > AGE_MAX;
            old.extend(pool.idle.extract_if(.., is_old));
        }
        drop(state);
        drop(old);
    }

    /// How each pool is used.
    pub(crate) fn usage(&self) -> Vec<Usage> {
        let state = self.state();
        let usage = |(key, pool): (&PoolKey, &Pool)| Usage {
            role: key.role.to_string(),
            replica: key.replica,
            idle: pool.idle.iter().map(|server| server.backend_registration.running.pid).collect(),
        };
        state.pools.iter().map(usage).collect()
    }
}

impl Issuer for Pools {
    /// A permit has ended with its connection. A waiting session gets another one.
    fn take_back(self: Arc<Self>, key: &PoolKey) {
        let mut state = self.state();
        let Some(pool) = state.pools.get_mut(key) else { return };
        pool.total -= 1;
        let has_room = pool.busy() < self.pooling.size;
        let refused = pool.waiting.next(None, has_room).and_then(|sender| {
            pool.total += 1;
            sender.send(Granted::Open(self.permit(key.clone()))).err()
        });
        drop(state);
        // The drop of the refused permit serves the next session.
        drop(refused);
    }
}

impl IdleConnections for Pools {
    fn drain(&self, replica: ReplicaId, is_drained: bool) {
        let mut closed = Vec::new();
        let mut state = self.state();
        if !is_drained {
            state.drained.remove(&replica);
            return;
        }
        state.drained.insert(replica);
        for (key, pool) in &mut state.pools {
            if key.replica == replica {
                closed.append(&mut pool.idle);
            }
        }
        drop(state);
        drop(closed);
    }
}

impl Pool {
    /// Chooses an idle connection: the session's own, else the one used most recently in its thread, else the one idle for
    /// longest in another thread. A connection on which its last session has drawn from sequences is taken only when the
    /// pool is full, since that session may still ask `currval`.
    fn choose(&self, kind: &Arc<Kind>, session: SessionId, thread: Thread, is_full: bool) -> Option<usize> {
        let fitting = || self.idle.iter().enumerate().filter(|(_, server)| server.is_of(kind));
        let own = fitting().find(|(_, server)| server.last_session() == session);
        let near = || fitting().rev().find(|(_, server)| server.thread() == thread && !server.has_draws());
        let far = || fitting().find(|(_, server)| !server.has_draws());
        let any = || fitting().next().filter(|_| is_full);
        own.or_else(near).or_else(far).or_else(any).map(|(index, _)| index)
    }

    /// Connections that sessions use or may open.
    fn busy(&self) -> usize {
        self.total.saturating_sub(self.idle.len())
    }
}
