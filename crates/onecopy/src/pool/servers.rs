//! The server connections of one session: at most one for each replica.
//!
//! With `pool_mode = session` the session opens them and keeps them. With `transaction` it takes each from a pool for as
//! long as it needs it ([`crate::pool`]).
//!
//! A connection belongs to one incarnation of its replica. At log-in it proves that the agent of that incarnation is
//! still connected to the same run of the server, so no statement reaches a server that restarted and lost the tail of
//! its WAL meanwhile. Every connection defaults to read-only transactions (pitfalls 1.13): what writes runs in a
//! transaction that Onecopy itself began as READ WRITE, at the home, where capture accepts it.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::ids::{Incarnation, ReplicaId};
use sql::Isolation;
use wire::encode;
use wire::frontend::Target;

use super::ServerPlace;
use super::cached::Cached;
use super::carried::{AllCarried, CarriedHere};
use super::check_out::Sharing;
use super::opening::{Defaults, Opener, SessionDefaults, open};
use super::own_statements::{Ahead, OwnStatements};
use super::pinned_state;
use super::state_sync::{SharedConnection, sync_state};
use crate::backend::{BackendError, Connection, Line, Rows, assert_qualified};
use crate::client::cancel::Running;
use crate::client::settings::Settings;
use crate::coordinator::Coordinator;
use crate::coordinator::evictions::Evictions;
use crate::database::oid_map::{OidMap, Pairs};
use crate::error::Fault;
use crate::local::pins::Pins;
use crate::local::session_registry::{Connected, SessionEntry};
use crate::security::scram::Secret;

/// One server connection.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) replica: ReplicaId,
    pub(crate) incarnation: Incarnation,
    /// The settings of role and database with which it began.
    pub(crate) defaults: Defaults,
    pub(crate) connection: Connection,
    /// Where others find the connection.
    pub(crate) registration: Registration,
    /// Statements of sessions that are prepared here.
    pub(crate) prepared: Cached,
    /// The generation of the session's settings that the connection has.
    pub(crate) settings: u64,
    /// Our own statements.
    pub(crate) own: OwnStatements,
    /// State of the session that exists only here.
    pub(crate) pins: Pins,
    /// Which statements of SQL's PREPARE are here.
    pub(crate) carried: CarriedHere,
    /// The session may have drawn from sequences here.
    pub(crate) has_draws: bool,
    /// What the anchor calls the objects of this server.
    pub(crate) oids: AnchorOids,
    /// What the pool has to know of it, where sessions share connections.
    pub(crate) shared: Option<SharedConnection>,
}

/// Where others find a connection: to cancel its statement, to cut it, to see it.
#[derive(Debug)]
pub(crate) struct Registration {
    /// What a cancel request needs.
    pub(crate) running: Arc<Running>,
    /// The connection is cut by this entry when its server is given up.
    pub(crate) _line: Line,
    /// The agent notes here which backends it has evicted.
    pub(crate) evictions: Arc<Evictions>,
    /// SHOW CLIENTS has it with its session while this lives.
    pub(crate) shown: Option<Connected>,
}

/// What the anchor calls the objects of a server.
#[derive(Debug)]
pub(crate) struct AnchorOids {
    /// The edition of the maps that this one is of.
    edition: u64,
    /// None at the anchor itself.
    pub(crate) names: Option<ServerNames>,
}

impl AnchorOids {
    pub(crate) fn of(coordinator: &Coordinator, replica: ReplicaId) -> Self {
        let (edition, source) = coordinator.database.oid_map(replica);
        Self { edition, names: source.map(|source| ServerNames { pairs: source.pairs(), source }) }
    }

    /// Takes the present maps, if they are others than before.
    fn refresh(&mut self, coordinator: &Coordinator, replica: ReplicaId) {
        if self.edition != coordinator.database.oid_edition() {
            *self = Self::of(coordinator, replica);
        }
    }
}

/// The anchor's OIDs of a server's objects.
#[derive(Debug)]
pub(crate) struct ServerNames {
    /// The map that unknown OIDs are looked up in.
    pub(crate) source: Arc<OidMap>,
    /// The pairs known so far.
    pub(crate) pairs: Arc<Pairs>,
}

impl Server {
    /// Whether the agent has evicted this backend; the note of it is taken.
    pub(crate) fn take_eviction(&self) -> bool {
        self.registration.evictions.take(self.registration.running.pid)
    }

    /// Migrates it, so that it wakes the thread of the caller.
    pub(crate) fn brought_here(self) -> std::io::Result<Self> {
        let connection = self.connection.brought_here()?;
        Ok(Self { connection, ..self })
    }

    /// Runs a query of our own.
    pub(crate) async fn ask(&mut self, sql: &str) -> Result<Rows, BackendError> {
        assert_qualified(sql);
        self.run_for_client(sql).await
    }

    /// Runs a text of the client, and keeps the replies from the client.
    pub(crate) async fn run_for_client(&mut self, sql: &str) -> Result<Rows, BackendError> {
        // A simple query ends the unnamed statement.
        self.prepared.remove(b"");
        self.connection.simple(sql).await
    }

    /// Puts a simple query of our own into the output.
    pub(crate) fn query_own(&mut self, sql: &str) {
        assert_qualified(sql);
        self.query(sql.as_bytes());
    }

    /// Puts a simple query of the client into the output. It ends the unnamed statement of this connection.
    pub(crate) fn query(&mut self, sql: &[u8]) {
        encode::query(&mut self.connection.output, sql);
        self.prepared.remove(b"");
    }

    /// Puts a BEGIN into the output. A message that is answered at once has to follow before it is sent.
    pub(crate) fn begin(&mut self, isolation: Isolation, is_read_only: bool) {
        self.put_in(b"", opening(isolation, is_read_only), &[]);
    }

    /// Sets what stand-ins return, before what is sent next.
    pub(crate) fn tell(&mut self, told: Option<&str>) {
        if let Some(told) = told {
            self.put_in(PORTAL, TELL, &[Some(told.as_bytes())]);
        }
    }

    /// Puts a prepared statement of ours into the output, before what is sent next. Its name contains its text. The client's
    /// unnamed portal stays.
    pub(crate) fn put_ahead(&mut self, name: &'static str) {
        self.put_in(PORTAL, name, &[]);
    }

    fn put_in(&mut self, portal: &[u8], name: &'static str, values: &[Option<&[u8]>]) {
        let is_prepared = self.own.has_named(name);
        let output = &mut self.connection.output;
        let mut completions = 2;
        if !is_prepared {
            // An earlier attempt may or may not have prepared it.
            encode::close(output, Target::Statement(name.as_bytes()));
            let sql = name.trim_start_matches(OPENING);
            assert_qualified(sql);
            encode::parse(output, name.as_bytes(), sql.as_bytes(), &[]);
            completions += 2;
        }
        encode::bind(output, portal, name.as_bytes(), values, encode::Format::Text);
        encode::execute(output, portal, 0);
        if !portal.is_empty() {
            encode::close(output, Target::Portal(portal));
            completions += 1;
        }
        self.own.put_ahead(Ahead { name, completions });
    }

    /// How many statements the protocol has prepared here, as far as known.
    pub(crate) fn prepared_by_protocol(&self) -> usize {
        self.prepared.named() + self.own.len()
    }

    /// Keeps only these as prepared; code of users can deallocate statements.
    pub(crate) fn retain_prepared(&mut self, names: &BTreeSet<Vec<u8>>) {
        self.prepared.retain(|name| names.contains(name));
        self.own.retain(names);
    }

    /// The server has deallocated all prepared statements.
    pub(crate) fn deallocated(&mut self) {
        self.prepared.clear();
        self.own.forget();
    }
}

/// The name of such a statement is this and its text.
const OPENING: &str = "onecopy ";
/// The portal of our statements inside a transaction; it is closed when they have run.
const PORTAL: &[u8] = b"onecopy ahead";

/// The statement that sets what stand-ins return.
const TELL: &str = "onecopy SELECT pg_catalog.set_config('onecopy.told', $1, false)";

/// The statement that begins such a transaction.
fn opening(isolation: Isolation, is_read_only: bool) -> &'static str {
    match (isolation, is_read_only) {
        (Isolation::ReadUncommitted, false) => "onecopy BEGIN ISOLATION LEVEL READ UNCOMMITTED READ WRITE",
        (Isolation::ReadUncommitted, true) => "onecopy BEGIN ISOLATION LEVEL READ UNCOMMITTED READ ONLY",
        (Isolation::ReadCommitted, false) => "onecopy BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
        (Isolation::ReadCommitted, true) => "onecopy BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",
        (Isolation::RepeatableRead, false) => "onecopy BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
        (Isolation::RepeatableRead, true) => "onecopy BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        (Isolation::Serializable, false) => "onecopy BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE",
        (Isolation::Serializable, true) => "onecopy BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
    }
}

/// The connections of one session.
#[derive(Debug)]
pub(crate) struct Servers {
    /// By the number of the replica.
    pub(crate) all: Vec<Option<Box<Server>>>,
    pub(crate) entry: Arc<SessionEntry>,
    /// The client's proof, with which connections log in as its role.
    secret: Secret,
    /// State that was only on connections that are closed.
    pub(crate) lost: Pins,
    /// The replica where the session drew from sequences last; only that connection can answer `currval`.
    pub(crate) draws_at: Option<ReplicaId>,
    /// The session may have drawn at another replica since.
    is_unsure: bool,
    /// The session uses `currval` or `lastval`.
    pub(crate) asks_draws: bool,
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
            lost: Pins::default(),
            carried: AllCarried::default(),
            defaults: SessionDefaults::default(),
            draws_at: None,
            is_unsure: false,
            asks_draws: false,
            drains_seen: coordinator.local.sessions.drains(),
        }
    }

    /// The proof with which connections log in.
    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The replica that can answer `currval`; none if that is not certain.
    pub(crate) fn draws_at(&mut self) -> Option<ReplicaId> {
        if std::mem::take(&mut self.is_unsure) {
            self.draws_at = None;
        }
        self.draws_at
    }

    /// The session draws from sequences at this replica.
    pub(crate) fn draw_at(&mut self, replica: ReplicaId) {
        (self.draws_at, self.is_unsure) = (Some(replica), false);
        if let Some(sharing) = &mut self.sharing {
            sharing.has_lost_draws = false;
        }
        if let Some(server) = self.find(replica) {
            server.has_draws = true;
        }
    }

    /// The session may draw there: it is not known what runs.
    pub(crate) fn may_draw_at(&mut self, replica: ReplicaId) {
        match self.draws_at {
            Some(place) if place != replica => {
                self.is_unsure = true;
                if let Some(server) = self.find(replica) {
                    server.has_draws = true;
                }
            }
            _ => self.draw_at(replica),
        }
    }

    /// It is known now whether the session drew there.
    pub(crate) fn drew_at(&mut self, replica: ReplicaId, it_did: bool) {
        if it_did {
            self.draw_at(replica);
        }
        self.is_unsure = false;
    }

    /// DISCARD SEQUENCES: the session has drawn nothing.
    pub(crate) fn forget_draws(&mut self) {
        (self.draws_at, self.is_unsure, self.asks_draws) = (None, false, false);
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

    /// Closes a connection; the server rolls back what is open on it.
    pub(crate) fn close(&mut self, replica: ReplicaId) {
        self.draws_at.take_if(|place| *place == replica);
        let closed = self.all.get_mut(usize::from(replica.0)).and_then(Option::take);
        if let Some(server) = closed {
            self.lost = self.lost.with(server.pins.held());
        }
    }

    /// DISCARD ALL: no connection holds state of the session.
    pub(crate) fn forget_state(&mut self) {
        self.lost = Pins::default();
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
        self.draws_at.take_if(|place| *place != keep);
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
        if let Some(what) = self.lost_state(coordinator) {
            return Err(pinned_state::lost(what));
        }
        let number = usize::from(replica.0);
        if self.all.len() <= number {
            self.all.resize_with(number + 1, || None);
        }
        let slot = &mut self.all[number];
        if slot.is_none() {
            // A server that hangs accepts connections and does not answer, until it is given up.
            let shared = match &mut self.sharing {
                Some(sharing) => Some(sharing.claimed(replica, self.entry.id)?),
                None => None,
            };
            let opener = Opener { settings, entry: &self.entry, secret: &self.secret };
            let opening = open(coordinator, opener, ServerPlace { replica, incarnation });
            let opening = tokio::time::timeout(coordinator.local.timeouts.health_deadline, opening);
            let opened = coordinator.seats[number].unless_given_up(incarnation, opening).await;
            let opened = opened.and_then(Result::ok).unwrap_or(Err(Fault::Lost(replica)))?;
            if replica != coordinator.view.anchor() && !self.defaults.suit(&opened.defaults) {
                return Err(Fault::Unplaced(replica));
            }
            *slot = Some(Box::new(Server { shared, ..opened }));
        }
        let defaults =
            slot.as_ref().map(|server| &server.defaults).filter(|_| replica == coordinator.view.anchor());
        if defaults.is_some_and(|defaults| self.defaults.take(defaults)) {
            self.close_unsuited();
        }
        let slot = &mut self.all[number];
        let server = slot.as_mut().expect("it was put there just now");
        server.oids.refresh(coordinator, replica);
        let forgets_draws = server.has_draws && self.draws_at != Some(replica);
        let synced = sync_state(server, settings, self.entry.id, forgets_draws).await;
        if synced.is_err() && server.shared.is_some() {
            // The settings of the connection are unknown now.
            *slot = None;
        }
        synced?;
        if replica == coordinator.view.anchor() {
            self.carry(replica).await?;
        }
        let slot = &mut self.all[number];
        Ok(slot.as_mut().expect("it is there unless that failed"))
    }
}
