//! The database driver: one transaction at one replica, on a connection of its session's.
//!
//! A lane takes what the proxy gives out for a transaction, in order, and reports each when it is done. Its connection
//! comes from those that the session has there and goes back to them at the end, so a session has as many at a replica as
//! it has transactions there that are not over, which is seldom more than one.
//!
//! Whether a failure is the statement's or the server's decides everything: an error that every replica makes of the
//! statement is its outcome, and the same everywhere; all others (a lost connection, a full disk, a backend that was
//! terminated) say that this replica cannot go on as the others do, and it is given up until it has been rolled forward.
//! What an update transaction does is never interrupted by a client: neither its time-outs nor its cancel requests reach it.
//!
//! Invariant: the transaction's identity is inserted in the very transaction that it names, also when its statement fails
//! at a single update: then in one of its own, before its locks are released. So a replay does neither again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cluster::ids::{Identity, Incarnation, ReplicaId};
use cluster::protocols::shipping::{Ending, Kind, Transaction, Work};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use wire::backend::{Fields, Status, command_tag, data_row, tag};
use wire::{encode, frame};

use super::Shipping;
use super::shipment::{Form, Reply, Setup, Shipment};
use crate::backend::{BackendError, Connection, assert_qualified};
use crate::capture::vouch::STARTED_SQL;
use crate::client::cancel::Running;
use crate::client::timeouts::{lifted, lifted_for_readers};
use crate::local::session_registry::{Connected, SessionEntry};
use crate::pool::cached::Cached;
use crate::replica::agent::identity;
use crate::security::scram::Secret;
use crate::security::seal::Seal;

/// How a statement ends that returns more than is kept of a reply.
pub(super) const TOO_LARGE: &str = wire::sqlstate::PROGRAM_LIMIT_EXCEEDED;
/// Connections that a session keeps at a replica.
const IDLE_MAX: usize = 2;
/// A limit that the client has for itself. A server that kept to it could end a connection at the very moment at which it
/// is used again, which would cost the replica its place.
const IDLE_LIMIT: &str = "idle_session_timeout";

/// What the connections of a session have in common.
pub(crate) struct Origin {
    /// Where its lanes run.
    pub(crate) runtime: Handle,
    /// Opens the servers to the role.
    pub(crate) secret: Secret,
    /// Start-up parameters of its connections.
    pub(crate) parameters: Vec<(String, String)>,
    /// What others see of the session.
    pub(crate) entry: Arc<SessionEntry>,
    idle: Mutex<Vec<Server>>,
    /// The read that runs, for a cancel request.
    pub(crate) reading: Mutex<Option<Arc<Running>>>,
}

/// A connection of a session at a replica.
struct Server {
    at: At,
    connection: Connection,
    running: Arc<Running>,
    setup: u64,
    /// What it has parsed, under the settings of `setup` and the schema of `catalogue` only: whether a statement fails or what
    /// its constants mean must not depend on when a replica's connection has seen it first.
    cached: Cached,
    catalogue: u64,
    _shown: Connected,
}

/// A replica between two losses of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    /// Which.
    pub(crate) replica: ReplicaId,
    /// After so many losses.
    pub(crate) incarnation: Incarnation,
}

/// Something to do.
#[derive(Debug)]
pub(crate) struct Job {
    /// What the proxy said.
    pub(crate) work: Work,
    /// What is run, if anything is.
    pub(crate) shipment: Option<Arc<Shipment>>,
    /// The transaction's, if it may write.
    pub(crate) identity: Option<Identity>,
}

impl Origin {
    /// A session without connections.
    pub(crate) fn new(secret: Secret, parameters: Vec<(String, String)>, entry: Arc<SessionEntry>) -> Self {
        let runtime = Handle::current();
        Self { runtime, secret, parameters, entry, idle: Mutex::default(), reading: Mutex::default() }
    }

    /// Closes what is idle.
    pub(crate) fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A connection at a replica; `None` if the replica was given up meanwhile.
    async fn server(self: &Arc<Self>, shipping: &Shipping, at: At) -> Result<Server, BackendError> {
        loop {
            let found = {
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                let place = idle.iter().position(|server| server.at.replica == at.replica);
                place.map(|place| idle.swap_remove(place))
            };
            match found {
                // The operator may have ended it meanwhile.
                Some(server) if server.at == at && server.connection.is_quiet() => return Ok(server),
                Some(_) => {}
                None => break,
            }
        }
        let address = shipping.address(at.replica);
        let of_session = self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let parameters: Vec<(&str, &str)> =
            of_session.filter(|(name, _)| *name != IDLE_LIMIT).chain([(IDLE_LIMIT, "0")]).collect();
        let mut connection = Connection::open(&address, &self.secret, &parameters).await?;
        // Whoever gives the replica up from now on finds this backend when it is fenced.
        if !shipping.is_present(at) {
            return Err(BackendError::Protocol("the replica was given up"));
        }
        self.prove(shipping, &mut connection).await?;
        let running = Arc::new(Running::new(address, &connection));
        let shown = self.entry.connect(at.replica, connection.pid);
        let cached = Cached::default();
        Ok(Server { at, connection, running, setup: 0, cached, catalogue: 0, _shown: shown })
    }

    /// Proves to the server that the connection is ours.
    async fn prove(&self, shipping: &Shipping, connection: &mut Connection) -> Result<(), BackendError> {
        assert_qualified(STARTED_SQL);
        let started = connection.simple(STARTED_SQL).await?.into_iter().flatten().flatten().next();
        let started =
            started.ok_or(BackendError::Protocol("a server does not tell when its process began"))?;
        let vouch = shipping.coordinator().local.voucher.vouch_sql(connection.pid, &started);
        assert_qualified(&vouch);
        connection.simple(&vouch).await.map(|_| ())
    }

    fn give_back(&self, server: Server) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.iter().filter(|other| other.at == server.at).count() < IDLE_MAX {
            idle.push(server);
        }
    }
}

/// The transaction at the replica.
struct Lane {
    shipping: Arc<Shipping>,
    origin: Arc<Origin>,
    at: At,
    server: Option<Server>,
    has_begun: bool,
    has_written: bool,
    has_failed: bool,
    /// Something ran that may have set what nobody sees.
    is_unproven: bool,
}

/// Runs a transaction's jobs at one replica until it is over there.
pub(crate) async fn run(
    shipping: Arc<Shipping>,
    origin: Arc<Origin>,
    at: At,
    name: Transaction,
    mut jobs: mpsc::UnboundedReceiver<Job>,
) {
    let mut lane = Lane {
        shipping: Arc::clone(&shipping),
        origin,
        at,
        server: None,
        has_begun: false,
        has_written: false,
        has_failed: false,
        is_unproven: false,
    };
    while let Some(job) = jobs.recv().await {
        let begun = Instant::now();
        let is_over = matches!(job.work, Work::RunAlone(_) | Work::End(_));
        let shipment = job.shipment.clone();
        match lane.perform(job).await {
            Ok(reply) => {
                if is_over {
                    lane.let_go();
                }
                let took_us = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
                let done = shipment.zip(reply).map(|(shipment, reply)| (shipment, reply, took_us));
                shipping.finished(at, name, done);
            }
            Err(error) => return shipping.give_up(at, &error.to_string()),
        }
        if is_over {
            return;
        }
    }
}

impl Lane {
    async fn perform(&mut self, job: Job) -> Result<Option<Reply>, BackendError> {
        match (job.work, job.shipment) {
            (Work::RunAlone(operation), Some(shipment)) if operation.kind == Kind::Read => {
                self.read_alone(&shipment).await.map(Some)
            }
            (Work::RunAlone(_), Some(shipment)) => {
                let reply = self.run(&shipment, true).await?;
                self.commit(job.identity).await?;
                Ok(Some(reply))
            }
            (Work::Run(operation), Some(shipment)) => {
                let is_write = operation.kind == Kind::Write;
                self.has_written |= is_write;
                self.run(&shipment, is_write).await.map(Some)
            }
            (Work::Run(_) | Work::RunAlone(_), None) => {
                Err(BackendError::Protocol("the text of a statement was forgotten"))
            }
            (Work::Restart | Work::End(Ending::Abort), _) => self.roll_back().await.map(|()| None),
            (Work::End(Ending::Commit), _) => {
                self.commit(job.identity.filter(|_| self.has_written)).await.map(|()| None)
            }
        }
    }

    /// The transaction is over: the connection is for another one, unless a function may have set something on it.
    fn let_go(&mut self) {
        if let Some(server) = self.server.take()
            && !self.is_unproven
        {
            self.origin.give_back(server);
        }
    }

    async fn server(&mut self) -> Result<&mut Server, BackendError> {
        if self.server.is_none() {
            self.server = Some(self.origin.server(&self.shipping, self.at).await?);
        }
        Ok(self.server.as_mut().expect("it is there now"))
    }

    /// Brings the session's settings before anything else.
    async fn settle(&mut self, setup: &Setup) -> Result<(), BackendError> {
        let catalogue = self.shipping.coordinator().catalogue().generation();
        let server = self.server().await?;
        if (server.setup, server.catalogue) != (setup.generation, catalogue) {
            if !server.cached.is_empty() {
                server.connection.simple("DEALLOCATE ALL").await?;
                server.cached.clear();
            }
            server.catalogue = catalogue;
        }
        if server.setup != setup.generation {
            if !setup.replay.is_empty() {
                let lifts = setup.replay.contains(IDLE_LIMIT);
                let lift = if lifts { format!(";SET {IDLE_LIMIT} = 0") } else { String::new() };
                server.connection.simple(&(setup.replay.clone() + &lift)).await?;
            }
            server.setup = setup.generation;
        }
        Ok(())
    }

    async fn read_alone(&mut self, shipment: &Shipment) -> Result<Reply, BackendError> {
        self.is_unproven |= shipment.is_unproven;
        self.settle(&shipment.setup).await?;
        let reading = Arc::clone(&self.server().await?.running);
        let origin = Arc::clone(&self.origin);
        *origin.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
        let ended = if shipment.needs_write {
            let reply = self.run(shipment, false).await;
            let ended = self.roll_back().await;
            reply.and_then(|reply| ended.map(|()| reply))
        } else {
            let bytes_max = self.shipping.limits.reply_bytes;
            let Server { connection, cached, .. } = self.server().await?;
            shipment.encode(&mut connection.output, cached);
            connection.flush().await?;
            exchange(connection, cached, shipment, bytes_max).await.map(|(reply, _)| reply)
        };
        *origin.reading.lock().unwrap_or_else(PoisonError::into_inner) = None;
        ended
    }

    /// Runs a statement inside the transaction, which begins with it.
    async fn run(&mut self, shipment: &Shipment, is_write: bool) -> Result<Reply, BackendError> {
        self.is_unproven |= shipment.is_unproven;
        if !self.has_begun {
            self.settle(&shipment.setup).await?;
        }
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        let bytes_max = self.shipping.limits.reply_bytes;
        let Server { connection, cached, .. } = self.server().await?;
        let mut ahead = 0;
        if !has_begun {
            let begin = begin(shipment, connection.version());
            encode::query(&mut connection.output, begin.as_bytes());
            ahead += 1;
        }
        if let Some(before) = &shipment.before {
            encode::query(&mut connection.output, before.as_bytes());
            ahead += 1;
        }
        shipment.encode(&mut connection.output, cached);
        connection.flush().await?;
        let mut failed = None;
        for _ in 0..ahead {
            match connection.drain().await {
                Ok(_) => {}
                Err(BackendError::Server(body)) => failed = failed.or(Some(body)),
                Err(other) => return Err(other),
            }
        }
        let (mut reply, status) = exchange(connection, cached, shipment, bytes_max).await?;
        // One that returns too much is undone like one that failed, everywhere: all replicas count the same rows.
        self.has_failed = status == Some(Status::Failed) || reply.outcome == TOO_LARGE.as_bytes();
        if let Some(body) = failed {
            reply = Reply { bytes: Vec::new(), asked: Vec::new(), outcome: code(&body), error: Some(body) };
        }
        match &reply.error {
            Some(body) if is_write && !is_the_statements(&code(body)) => {
                Err(BackendError::Server(body.clone()))
            }
            _ => Ok(reply),
        }
    }

    /// Commits under the identity; what has failed leaves nothing but that.
    async fn commit(&mut self, identity: Option<Identity>) -> Result<(), BackendError> {
        if self.has_failed {
            self.roll_back().await?;
        }
        let mut sql = String::new();
        if let Some(identity) = identity {
            if !self.has_begun {
                sql.push_str(BEGIN_WRITING);
                sql.push(';');
            }
            sql.push_str(&insert_identity(identity, &self.shipping.coordinator().local.seal));
            sql.push(';');
        }
        if sql.is_empty() && !self.has_begun {
            return Ok(());
        }
        sql.push_str("COMMIT");
        assert_qualified(&sql);
        let connection = &mut self.server().await?.connection;
        connection.simple(&sql).await?;
        self.has_begun = false;
        Ok(())
    }

    async fn roll_back(&mut self) -> Result<(), BackendError> {
        if std::mem::take(&mut self.has_begun) {
            self.server().await?.connection.simple("ROLLBACK").await?;
        }
        (self.has_written, self.has_failed) = (false, false);
        Ok(())
    }
}

const BEGIN_WRITING: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";

/// On a server of this version.
fn begin(shipment: &Shipment, version: u32) -> String {
    let begin = if shipment.is_read_only { BEGIN_READING } else { BEGIN_WRITING };
    let mut sql = begin.to_owned();
    if shipment.setup.has_timeouts {
        // It would cost the replica its place if the server ended the connection.
        let lifts = if shipment.is_read_only { lifted_for_readers(version) } else { lifted(version) };
        sql.push(';');
        sql.push_str(&lifts);
    }
    sql
}

/// The statement by which a transaction says who it is.
pub(super) fn insert_identity(identity: Identity, seal: &Seal) -> String {
    format!(
        "INSERT INTO onecopy.applied (epoch, n, nonce, proof) VALUES ({})",
        identity::literals(identity, seal)
    )
}

fn code(body: &[u8]) -> Vec<u8> {
    Fields::new(body).sqlstate().to_vec()
}

/// Whether an error comes from the statement and the data, so that every replica makes it: none of resources, the
/// operator's hand, other transactions, or the server itself. What is wrong with a message (too few parameters) is wrong
/// everywhere, and so is what an object is not ready for (a view that takes no rows, a role that is in use by itself).
pub(super) fn is_the_statements(sqlstate: &[u8]) -> bool {
    const MESSAGE: &[u8] = b"08P01";
    const LOCK: &[u8] = b"55P03";
    if sqlstate == MESSAGE || (sqlstate.starts_with(b"55") && sqlstate != LOCK) {
        return true;
    }
    const OTHERS: [&[u8]; 8] = [b"08", b"40", b"53", b"55", b"57", b"58", b"F0", b"XX"];
    !OTHERS.iter().any(|class| sqlstate.starts_with(class)) && !sqlstate.is_empty()
}

/// Reads the replies to a statement, and to what is asked after it.
async fn exchange(
    connection: &mut Connection,
    cached: &mut Cached,
    shipment: &Shipment,
    bytes_max: usize,
) -> Result<(Reply, Option<Status>), BackendError> {
    let mut reply = Reply { bytes: Vec::new(), asked: Vec::new(), error: None, outcome: Vec::new() };
    let mut rows_bytes = 0;
    let status = loop {
        let (kind, total) = connection.message().await?;
        let whole = &connection.input.data()[..total];
        let body = &whole[frame::HEADER_BYTES..];
        match kind {
            tag::PARSE_COMPLETE => shipment.note_parsed(cached),
            tag::ERROR_RESPONSE if reply.error.is_none() => {
                (reply.outcome, reply.error) = (code(body), Some(body.to_vec()));
            }
            tag::COMMAND_COMPLETE if reply.error.is_none() => {
                reply.outcome.extend_from_slice(command_tag(body));
                reply.bytes.extend_from_slice(whole);
            }
            tag::EMPTY_QUERY_RESPONSE | tag::NOTICE_RESPONSE | tag::PARAMETER_STATUS => {
                reply.bytes.extend_from_slice(whole);
            }
            tag::ROW_DESCRIPTION | tag::NO_DATA if shipment.describes() => {
                reply.bytes.extend_from_slice(whole);
            }
            tag::DATA_ROW => {
                rows_bytes += total;
                if rows_bytes <= bytes_max {
                    reply.bytes.extend_from_slice(whole);
                }
            }
            tag::COPY_IN_RESPONSE if matches!(shipment.form, Form::Copy(_)) => {}
            tag::COPY_IN_RESPONSE | tag::COPY_OUT_RESPONSE | tag::COPY_BOTH_RESPONSE => {
                return Err(BackendError::Protocol("a COPY that nobody asked for"));
            }
            _ => {}
        }
        let status = (kind == tag::READY_FOR_QUERY).then(|| Status::parse(body).ok());
        connection.input.consume(total);
        if let Some(status) = status {
            break status;
        }
    };
    if rows_bytes > bytes_max && reply.error.is_none() {
        let text = format!("the result has more than {bytes_max} bytes, which is not supported");
        let mut error = Vec::new();
        encode::error(&mut error, "ERROR", TOO_LARGE, &text, Some("Ask for fewer rows."));
        (reply.error, reply.bytes) = (Some(error.split_off(frame::HEADER_BYTES)), Vec::new());
        reply.outcome = TOO_LARGE.into();
    }
    if let Some(after) = shipment.after.as_ref().filter(|_| reply.error.is_none()) {
        reply.asked = connection.simple(after).await?;
    }
    Ok((reply, status))
}

/// The rows among messages for a client, as text.
pub(crate) fn rows_of(bytes: &[u8]) -> Vec<Vec<Option<String>>> {
    let mut rows = Vec::new();
    let mut rest = bytes;
    while let Ok(Some(frame)) = wire::next_frame(rest) {
        if frame.tag == tag::DATA_ROW
            && let Ok(values) = data_row(frame.body())
        {
            let text = |value: Option<&[u8]>| value.map(|v| String::from_utf8_lossy(v).into_owned());
            rows.push(values.into_iter().map(text).collect());
        }
        rest = &rest[frame.bytes.len()..];
    }
    rows
}
