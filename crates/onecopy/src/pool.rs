//! Server connections that sessions share, for a transaction each time.
//!
//! There is one pool for each role and replica: connections log in as the client's role, so only sessions of that role may
//! use them (DESIGN, trust). In a pool a connection is of a [`Kind`]: what it was opened with. A session gets only one
//! of its own kind, so that RESET leads back to what that session began with, and no proof of one client opens a server
//! to another that gave none. The connection that it had last comes first: what it has set, prepared and drawn there is
//! still there.
//!
//! A connection is woken by the thread that used it last, so it is best used there again: in another one each of its
//! answers would wake two. So whoever asks gets one of his own thread if any lies here, else one that is brought to it
//! ([`check_out`]); and it is given back to somebody of its thread, if nobody has waited clearly longer.
//!
//! A pool is as large as its permits. A connection has one as long as it lives, so whatever becomes of it, somebody who
//! waits gets the permit or the connection ([`wait_queue`] tells who).
//!
//! Invariant: what lies here is at rest (`Connection::is_at_rest`), and holds nothing of its last session that is
//! not known: [`crate::connect::check_in`] sees to that. Whoever takes it puts it into his own state first ([`state_sync`]).

pub(crate) mod cached;
pub(crate) mod carried;
pub(crate) mod check_out;
pub(crate) mod leftovers;
pub(crate) mod opening;
pub(crate) mod own_statements;
pub(crate) mod pinned_state;
pub(crate) mod pins;
pub(crate) mod servers;
pub(crate) mod state_sync;
pub(crate) mod wait_queue;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::ids::{Incarnation, ReplicaId, SessionId, Version};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::oneshot;

use crate::client::prepared_statement::fresh_generation;
use crate::client::settings::Settings;
use crate::security::scram::Secret;
use servers::Server;
use wait_queue::{WaitQueue, Want};

/// The word for it in the configuration.
pub(crate) const POOL_MODE_TRANSACTION: &str = "transaction";

/// A connection that nobody has used for so long is closed.
const IDLE_MAX: Duration = Duration::from_mins(10);
/// One that is older is closed when it is not in use: roles, rights and settings of the server may have changed.
const AGE_MAX: Duration = Duration::from_hours(1);
/// Whether a server has closed one is asked where nobody has used it for so long.
pub(crate) const FRESH_MAX: Duration = Duration::from_millis(10);
/// So many connections more than a pool has places are there for those who have a transaction open elsewhere.
pub(crate) const SECOND_MAX: usize = 2;
/// Past so many kinds those are forgotten that nobody is of any more.
const KINDS_MAX: usize = 1_000;
/// How often it is looked for such.
pub(crate) const REAP_EVERY: Duration = Duration::from_secs(30);

/// Statements that are known to be the same, at most.
const STATEMENTS_MAX: usize = 20_000;
/// They have so many bytes together, at most.
const STATEMENTS_BYTES_MAX: usize = 64 << 20;
/// Longer texts are not compared, in bytes.
const SHARED_TEXT_MAX: usize = 64 << 10;

/// How sessions share server connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pooling {
    /// They do.
    pub(crate) is_shared: bool,
    /// The most connections of a role to a replica.
    pub(crate) size: usize,
    /// How long a session waits for one.
    pub(crate) wait: Duration,
}

impl Pooling {
    /// The most connections that may be in use for somebody to get one.
    fn places(&self, want: Want) -> usize {
        match want {
            Want::First => self.size,
            Want::Second => self.size + SECOND_MAX,
        }
    }
}

/// What a connection was opened with.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    role: Arc<str>,
    parameters: Vec<(String, String)>,
    /// The client has proven something that opens the servers.
    is_proven: bool,
}

impl Kind {
    fn of(settings: &Settings, secret: &Secret) -> Self {
        let options = settings.server_options();
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let parameters: Vec<_> = settings.start_up(&options).into_iter().map(owned).collect();
        let role = parameters.iter().find(|(name, _)| name == "user").map_or("", |(_, role)| role.as_str());
        Self { role: role.into(), parameters, is_proven: !matches!(secret, Secret::None) }
    }

    /// The role that logs in, shared.
    pub(crate) fn role_name(&self) -> Arc<str> {
        Arc::clone(&self.role)
    }

    /// The role that logs in.
    pub(crate) fn role(&self) -> &str {
        &self.role
    }
}

/// A thread on which sessions live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(pub(crate) usize);

/// The right to one connection.
#[derive(Debug)]
pub(crate) struct Permit {
    pools: Arc<Pools>,
    key: Key,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pools.release(&self.key);
    }
}

/// What whoever waits is given.
#[derive(Debug)]
pub(crate) enum Granted {
    /// A connection that was given back, of any kind.
    Server(Box<Server>),
    /// A new one may be opened.
    Open(Permit),
}

/// What came of asking for a connection.
#[derive(Debug)]
pub(crate) enum Taken {
    /// At once.
    Now(Granted),
    /// When somebody gives one back.
    Later(oneshot::Receiver<Granted>),
}

type Key = (Arc<str>, ReplicaId);

#[derive(Debug, Default)]
struct Pool {
    /// Permits that are out.
    total: usize,
    /// Connections that nobody uses; the last one was used last.
    #[expect(clippy::vec_box, reason = "they are large, and go from hand to hand with each statement")]
    idle: Vec<Box<Server>>,
    waiting: WaitQueue,
}

/// What the servers say of a role, and since when.
#[derive(Debug, Default)]
struct Standing {
    said: String,
    epoch: u64,
}

#[derive(Debug, Default)]
struct Inside {
    pools: BTreeMap<Key, Pool>,
    roles: BTreeMap<Arc<str>, Standing>,
    /// Where nothing is kept: they are drained.
    left: BTreeSet<ReplicaId>,
}

/// All pools.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) pooling: Pooling,
    inside: Mutex<Inside>,
    /// Of all sessions and connections, each once: so it is told by its address which of them are of one kind.
    kinds: Mutex<FxHashSet<Arc<Kind>>>,
    statements: Mutex<Statements>,
}

/// Statements that sessions have prepared.
#[derive(Debug, Default)]
struct Statements {
    numbers: FxHashMap<Meaning, u64>,
    bytes: usize,
    /// Those that a server has accepted.
    accepted: FxHashSet<u64>,
}

/// What makes two prepared statements the same.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Meaning {
    kind: Arc<Kind>,
    sql: Vec<u8>,
    types: Vec<u8>,
    settings: String,
    schema: Version,
}

/// How a pool is used.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) role: String,
    pub(crate) replica: ReplicaId,
    /// Processes of those that nobody has.
    pub(crate) idle: Vec<i32>,
}

impl Pools {
    pub(crate) fn new(pooling: Pooling) -> Arc<Self> {
        let (inside, kinds, statements) = Default::default();
        Arc::new(Self { pooling, inside, kinds, statements })
    }

    /// The kind that a session opens.
    pub(crate) fn kind(&self, settings: &Settings, secret: &Secret) -> Arc<Kind> {
        let kind = Kind::of(settings, secret);
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kinds.get(&kind) {
            return Arc::clone(known);
        }
        if kinds.len() >= KINDS_MAX {
            kinds.retain(|kind| Arc::strong_count(kind) > 1);
        }
        let kind = Arc::new(kind);
        kinds.insert(Arc::clone(&kind));
        kind
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for a session: one that lies here, or the right to open one, or a place in the line.
    pub(crate) fn take(
        self: &Arc<Self>,
        kind: &Arc<Kind>,
        (replica, incarnation): (ReplicaId, Incarnation),
        (session, thread): (SessionId, Thread),
        want: Want,
    ) -> Taken {
        let key: Key = (Arc::clone(&kind.role), replica);
        // What is of no use is closed when the lock is free: its permit comes back then.
        let mut useless = Vec::new();
        let mut inside = self.inside();
        let epoch = inside.roles.get(&kind.role).map_or(0, |standing| standing.epoch);
        let pool = inside.pools.entry(key.clone()).or_default();
        let is_old = |server: &mut Box<Server>| server.incarnation != incarnation || server.epoch() != epoch;
        useless.extend(pool.idle.extract_if(.., is_old));
        let places = self.pooling.places(want);
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
                break Taken::Now(Granted::Open(Permit { pools: Arc::clone(self), key }));
            } else {
                // One of another kind: its permit is what is wanted.
                break Taken::Now(Granted::Server(pool.idle.remove(0)));
            }
        };
        drop(inside);
        drop(useless);
        taken
    }

    /// The connection that a session gave back last, if nobody has used it since.
    pub(crate) fn take_own(
        &self,
        kind: &Arc<Kind>,
        replica: ReplicaId,
        session: SessionId,
    ) -> Option<Box<Server>> {
        let mut inside = self.inside();
        let pool = inside.pools.get_mut(&(Arc::clone(&kind.role), replica))?;
        let index = pool.idle.iter().position(|server| server.wearer() == session && server.is_of(kind))?;
        Some(pool.idle.remove(index))
    }

    /// A connection at rest comes back: to whoever waits.
    pub(crate) fn give_back(&self, server: Box<Server>) {
        let mut inside = self.inside();
        let Some(role) = server.role() else { return };
        let epoch = inside.roles.get(&role).map_or(0, |standing| standing.epoch);
        if server.epoch() != epoch
            || server.age_when_given_back() > AGE_MAX
            || inside.left.contains(&server.replica)
        {
            drop(inside);
            return drop(server);
        }
        let pool = inside.pools.entry((role, server.replica)).or_default();
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
        // It was needed for a while. It is closed when the lock is free.
        drop(inside);
        drop(server);
    }

    /// A connection is closed.
    fn release(self: &Arc<Self>, key: &Key) {
        let mut inside = self.inside();
        let Some(pool) = inside.pools.get_mut(key) else { return };
        pool.total -= 1;
        let has_room = pool.busy() < self.pooling.size;
        let refused = pool.waiting.next(None, has_room).and_then(|sender| {
            pool.total += 1;
            let permit = Permit { pools: Arc::clone(self), key: key.clone() };
            sender.send(Granted::Open(permit)).err()
        });
        drop(inside);
        // The next one is served by that.
        drop(refused);
    }

    /// What the servers say of a role now. Connections from before it said something else are of no use any more: a role
    /// of that name may be another one, or begin with other settings.
    pub(crate) fn hear(&self, role: &str, said: &str) {
        let mut inside = self.inside();
        let standing = inside.roles.entry(role.into()).or_default();
        if standing.said != said {
            said.clone_into(&mut standing.said);
            standing.epoch += 1;
        }
    }

    /// What is known of the role is no longer true.
    pub(crate) fn doubt(&self, role: &str) {
        let mut inside = self.inside();
        let standing = inside.roles.entry(role.into()).or_default();
        standing.said.clear();
        standing.epoch += 1;
    }

    /// Which connections of a role are of use at present.
    pub(crate) fn epoch(&self, role: &str) -> u64 {
        self.inside().roles.get(role).map_or(0, |standing| standing.epoch)
    }

    /// Closes what has not been used for long, or is too old.
    pub(crate) fn reap(&self) {
        let mut old = Vec::new();
        let mut inside = self.inside();
        for pool in inside.pools.values_mut() {
            let is_old = |server: &mut Box<Server>| server.idle() > IDLE_MAX || server.age() > AGE_MAX;
            old.extend(pool.idle.extract_if(.., is_old));
        }
        drop(inside);
        drop(old);
    }

    /// Keeps nothing that nobody uses at a replica, or does again.
    pub(crate) fn leave(&self, replica: ReplicaId, is_left: bool) {
        let mut closed = Vec::new();
        let mut inside = self.inside();
        if !is_left {
            inside.left.remove(&replica);
            return;
        }
        inside.left.insert(replica);
        for ((_, at), pool) in &mut inside.pools {
            if *at == replica {
                closed.append(&mut pool.idle);
            }
        }
        drop(inside);
        drop(closed);
    }

    /// The number that all statements of this text have on connections of this kind, under these settings and this schema.
    pub(crate) fn number(
        &self,
        kind: &Arc<Kind>,
        (sql, types): (&[u8], &[u8]),
        settings: String,
        schema: Version,
    ) -> u64 {
        let bytes = sql.len() + types.len() + settings.len();
        if bytes > SHARED_TEXT_MAX {
            return fresh_generation();
        }
        let (kind, sql, types) = (Arc::clone(kind), sql.to_vec(), types.to_vec());
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if statements.numbers.len() >= STATEMENTS_MAX || statements.bytes + bytes > STATEMENTS_BYTES_MAX {
            // Those who have a number keep it; who comes gets another one.
            *statements = Statements::default();
        }
        let Statements { numbers, bytes: all, .. } = &mut *statements;
        *numbers.entry(Meaning { kind, sql, types, settings, schema }).or_insert_with(|| {
            *all += bytes;
            fresh_generation()
        })
    }

    /// How many statements are known by number, their bytes, and at most how many bytes there can be.
    pub(crate) fn statements_in_memory(&self) -> (usize, usize, usize) {
        let statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        (statements.numbers.len(), statements.bytes, STATEMENTS_BYTES_MAX)
    }

    /// A server has prepared the statement of that number.
    pub(crate) fn note_accepted(&self, number: u64) {
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if statements.accepted.len() >= STATEMENTS_MAX {
            // Many are of one session alone, and are never asked for.
            statements.accepted.clear();
        }
        statements.accepted.insert(number);
    }

    /// Whether any server has done that: then every one will, when it is needed there.
    pub(crate) fn is_accepted(&self, number: u64) -> bool {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner).accepted.contains(&number)
    }

    /// How each pool is used.
    pub(crate) fn usage(&self) -> Vec<Usage> {
        let inside = self.inside();
        let usage = |((role, replica), pool): (&Key, &Pool)| Usage {
            role: role.to_string(),
            replica: *replica,
            idle: pool.idle.iter().map(|server| server.registration.running.pid).collect(),
        };
        inside.pools.iter().map(usage).collect()
    }
}

impl Pool {
    /// The best of the idle connections: the session's own, else the one that was used last in its thread, else the one that
    /// was not used for the longest time in another, but none on which a session may still want to know what it drew, as
    /// long as there is room for more.
    fn choose(&self, kind: &Arc<Kind>, session: SessionId, thread: Thread, is_full: bool) -> Option<usize> {
        let fitting = || self.idle.iter().enumerate().filter(|(_, server)| server.is_of(kind));
        let own = fitting().find(|(_, server)| server.wearer() == session);
        let near = || fitting().rev().find(|(_, server)| server.thread() == thread && !server.has_draws());
        let far = || fitting().find(|(_, server)| !server.has_draws());
        let any = || fitting().next().filter(|_| is_full);
        own.or_else(near).or_else(far).or_else(any).map(|(index, _)| index)
    }

    /// Connections that somebody uses, or may open.
    fn busy(&self) -> usize {
        self.total.saturating_sub(self.idle.len())
    }
}
