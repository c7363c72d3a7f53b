//! One server connection of a session, with the state that is known of its server process.
//!
//! A connection belongs to one incarnation of its replica. At log-in it proves that the agent of that incarnation is
//! still connected to the same run of the server, so no statement reaches a server that restarted and lost the tail of
//! its WAL meanwhile. Every connection defaults to read-only transactions: a write runs in a transaction that Onecopy
//! itself began as READ WRITE, at the home, where capture accepts it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{Incarnation, ReplicaId, SessionId};
use sql::Isolation;
use wire::encode;
use wire::frontend::Target;

use super::anchor_oids::AnchorOids;
use super::cached::Cached;
use super::carried::CarriedHere;
use super::defaults::Defaults;
use super::kind::Kind;
use super::own_statements::{Ahead, OwnStatements};
use super::permit::Permit;
use super::request::Thread;
use super::shared_connection::SharedConnection;
use crate::backend::{BackendError, Connection, ListedConnection, Rows, assert_qualified};
use crate::client::cancel::Running;
use crate::coordinator::evictions::{Evictions, Occupant, Tenancy};
use crate::coordinator::performances::Performance;
use crate::local::pins::Pins;
use crate::local::session_registry::Connected;

/// The statements of ours are prepared under this and their text.
const OPENING: &str = "onecopy ";
/// The portal of our statements inside a transaction; it is closed when they have run.
const PORTAL: &[u8] = b"onecopy ahead";
/// The statement that sets the values of stand-ins.
const TELL: &str = "onecopy SELECT pg_catalog.set_config('onecopy.told', $1, false)";
/// Before a connection that was idle for so long is used, its socket is asked whether the server has closed it.
const FRESH_MAX: Duration = Duration::from_millis(10);

/// One server connection.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) replica: ReplicaId,
    pub(crate) incarnation: Incarnation,
    /// The settings of role and database with which it began.
    pub(crate) defaults: Defaults,
    pub(crate) connection: Connection,
    /// Where others find the connection.
    pub(crate) backend_registration: BackendRegistration,
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
    /// The anchor's OIDs for the objects of this server.
    pub(crate) oids: AnchorOids,
    /// The pool's knowledge of it, where sessions share connections.
    pub(crate) shared: Option<SharedConnection>,
}

/// Where others find a connection: to cancel its statement, to cut its socket, to evict its backend, to show it.
#[derive(Debug)]
pub(crate) struct BackendRegistration {
    /// For cancel requests.
    pub(crate) running: Arc<Running>,
    /// The connection is cut by this entry when its server is given up.
    pub(crate) _listed: ListedConnection,
    /// The agent notes here which backends it has evicted.
    pub(crate) evictions: Arc<Evictions>,
    /// SHOW CLIENTS has it with its session while this lives.
    pub(crate) shown: Option<Connected>,
}

impl Server {
    /// Whether the agent has evicted this backend; the note of it is taken.
    pub(crate) fn take_eviction(&self) -> bool {
        self.backend_registration.evictions.take(self.pid())
    }

    /// The process number of its backend.
    pub(crate) fn pid(&self) -> i32 {
        self.backend_registration.running.pid
    }

    /// Notes that an update transaction of the session begins here.
    pub(crate) fn move_in(&self, session: SessionId) -> Tenancy {
        let registration = &self.backend_registration;
        let tenancy = registration.evictions.move_in(registration.running.pid, Occupant::Session(session));
        if !self.pins.held().is_empty() {
            tenancy.hold();
        }
        tenancy
    }

    /// Notes that a transaction of another home is performed here.
    pub(crate) fn perform_here(&self, performance: &Arc<Performance>) -> Tenancy {
        let registration = &self.backend_registration;
        registration.evictions.move_in(registration.running.pid, Occupant::Performer(Arc::clone(performance)))
    }

    /// Migrates it, so that it wakes the thread of the caller.
    fn brought_here(self) -> std::io::Result<Self> {
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

    /// Sets the values of stand-ins, ahead of the next messages.
    pub(crate) fn tell(&mut self, told: Option<&str>) {
        if let Some(told) = told {
            self.put_in(PORTAL, TELL, &[Some(told.as_bytes())]);
        }
    }

    /// Puts a prepared statement of ours into the output, ahead of the next messages. Its name contains its text. The client's
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

/// The side of the pool, where sessions share connections.
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
    pub(super) fn brought_to(mut self: Box<Self>, thread: Thread) -> Result<Box<Self>, Option<Permit>> {
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

    /// Notes the state that the session has left here, as the server reports it.
    pub(crate) fn found(&mut self, pins: Pins) {
        self.pins = pins;
        if let Some(shared) = &mut self.shared {
            shared.is_tainted = true;
        }
    }
}

/// The statement that begins a transaction.
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
