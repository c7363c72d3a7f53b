//! A scheduler as the sessions of a node see it: what they may ask, and when they have to say which tables they use.
//!
//! Example: conflict-aware scheduling wants all tables at BEGIN ([`LockTime::AtBegin`]); C-JDBC wants those of each
//! statement when it comes ([`LockTime::PerStatement`]).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::SessionId;
use cluster::protocols::c_jdbc::Level;
use cluster::protocols::c_jdbc::message::Tables;
use cluster::protocols::c_jdbc::query_cache::Moment;
use sql::{Catalogue, Isolation};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use wire::sqlstate;

use super::connections::SessionConnections;
use super::node::Shipping;
use super::replica_run::{ReplicaHost, ReplicaRun};
use super::request::{RequestOutcome, RequestRejected, SessionRequest};
use crate::backend::{BackendError, OwnConnection};
use crate::capture;
use crate::error::Refusal;

/// Settings of Onecopy's own connections for the catalogue.
const OWN: &[(&str, &str)] = &[
    ("application_name", "onecopy catalogue"),
    ("client_encoding", "UTF8"),
    ("options", "-c search_path=pg_catalog"),
];

/// Interval at which a waiting session looks again.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// When a session says which tables it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockTime {
    /// All tables of a transaction, when it begins.
    AtBegin,
    /// The tables of a statement, when it comes.
    PerStatement(Level),
}

impl LockTime {
    /// Whether each statement brings its own tables.
    pub(crate) fn is_per_statement(self) -> bool {
        matches!(self, Self::PerStatement(_))
    }

    /// Whether a table has one writer at a time, until its transaction is over at all replicas. A sequence then has one,
    /// too, and no statement waits inside a server.
    pub(crate) fn has_one_writer(self) -> bool {
        self != Self::PerStatement(Level::PassThrough)
    }

    /// The same for a level that a statement may leave out.
    pub(crate) fn check_chosen(self, isolation: Option<Isolation>) -> Result<(), Refusal> {
        isolation.map_or(Ok(()), |isolation| self.check(isolation))
    }

    /// Refuses an isolation level that the scheduler cannot give.
    pub(crate) fn check(self, isolation: Isolation) -> Result<(), Refusal> {
        let (name, hint) = match (self, isolation) {
            (Self::AtBegin | Self::PerStatement(Level::Pessimistic), _)
            | (_, Isolation::ReadUncommitted | Isolation::ReadCommitted) => return Ok(()),
            (_, Isolation::RepeatableRead) => ("REPEATABLE READ", LEVEL_HINT),
            (_, Isolation::Serializable) => ("SERIALIZABLE", LEVEL_HINT),
        };
        let text = format!("isolation level {name} is not supported below transaction_level = pessimistic");
        Err(Refusal::new(sqlstate::FEATURE_NOT_SUPPORTED, text, hint))
    }
}

const LEVEL_HINT: &str =
    "Use READ COMMITTED, or start the node with transaction_level = pessimistic, which is serializable.";

/// A scheduler, as the sessions of a node see it.
pub(crate) trait Scheduling: ReplicaHost {
    /// When sessions say which tables they use.
    fn lock_time(&self) -> LockTime;

    /// Any replica that takes part.
    fn any_up(&self) -> Option<ReplicaRun>;

    /// Receives every change that a session may wait for, from now on.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Registers a session, and returns the receiver of its outcomes.
    fn open_session(
        &self,
        session: SessionId,
        connections: Arc<SessionConnections>,
    ) -> mpsc::UnboundedReceiver<RequestOutcome>;

    /// Removes a session whose transaction has ended.
    fn close_session(&self, session: SessionId);

    /// Blocks new transactions of other sessions until the exclusive turn is released. `false` if another session has
    /// it.
    fn acquire_exclusive(&self, session: SessionId) -> bool;

    /// Ends the exclusive turn of a session, if it has it.
    fn release_exclusive(&self, session: SessionId);

    /// Whether an answer that was kept is still the answer to a read of a session outside a transaction.
    fn is_still_answer(&self, _session: SessionId, _tables: &Tables, _since: Moment) -> bool {
        false
    }

    /// Whether all transactions are over.
    fn is_idle(&self) -> bool;

    /// The session with the exclusive turn has changed the schema. Returns what ends when every node has read it, if there are several.
    fn change_schema(&self) -> Option<SchemaRead> {
        None
    }

    /// Passes a session's request to the scheduler. `generation` is that of the catalogue by which the locks were
    /// chosen.
    fn request(
        self: Arc<Self>,
        session: SessionId,
        request: SessionRequest,
        generation: u64,
    ) -> Result<(), RequestRejected>;
}

/// Ends when every node has read a change of the schema.
pub(crate) type SchemaRead = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Reads the schema again. Other sessions wait for it, because they choose their locks by it.
pub(crate) async fn read_schema(scheduler: &Arc<dyn Scheduling>) {
    if let Some(read) = scheduler.change_schema() {
        return read.await;
    }
    let coordinator = Arc::clone(scheduler.coordinator());
    loop {
        // A replica that has not run the change yet has the old catalogue.
        if scheduler.is_idle()
            && let Some(run) = scheduler.any_up()
        {
            let generation = coordinator.database.catalogue().generation() + 1;
            match load_catalogue(&**scheduler, run, generation).await {
                Ok(catalogue) => return coordinator.set_catalogue(catalogue),
                Err(error) => tracing::warn!(%error, "cannot read the catalogue; retrying"),
            }
        }
        sleep(PAUSE).await;
    }
}

/// The catalogue of a replica, as that of this generation.
pub(crate) async fn load_catalogue(
    host: &(impl ReplicaHost + ?Sized),
    run: ReplicaRun,
    generation: u64,
) -> Result<Catalogue, BackendError> {
    let (address, database) = (host.address(run.replica), &host.coordinator().database);
    let mut connection = OwnConnection::open(&address, &database.served, OWN).await?;
    capture::catalogue::load_plain(&mut connection, database.served.id, generation).await
}

impl Scheduling for Shipping {
    fn lock_time(&self) -> LockTime {
        LockTime::AtBegin
    }

    fn any_up(&self) -> Option<ReplicaRun> {
        self.any_up()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes()
    }

    fn open_session(
        &self,
        session: SessionId,
        connections: Arc<SessionConnections>,
    ) -> mpsc::UnboundedReceiver<RequestOutcome> {
        self.open_session(session, connections)
    }

    fn close_session(&self, session: SessionId) {
        self.close_session(session);
    }

    fn acquire_exclusive(&self, session: SessionId) -> bool {
        self.acquire_exclusive(session)
    }

    fn release_exclusive(&self, session: SessionId) {
        self.release_exclusive(session);
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }

    fn request(
        self: Arc<Self>,
        session: SessionId,
        request: SessionRequest,
        generation: u64,
    ) -> Result<(), RequestRejected> {
        Self::request(&self, session, request, generation)
    }
}
