//! The connections of a session at the replicas, on which its transactions run.
//!
//! At each replica a session has a connection for each of its unfinished transactions there, usually one. When a
//! transaction is over at a replica, its connection returns to the session.

use std::sync::{Arc, Mutex, PoisonError};

use cluster::ids::CrewId;
use tokio::runtime::Handle;

use super::replica_run::{LaneHost, ReplicaRun};
use crate::backend::{BackendError, Connection, assert_qualified};
use crate::capture::vouch::STARTED_SQL;
use crate::client::cancel::Running;
use crate::local::session_registry::{Connected, SessionEntry};
use crate::pool::cached::Cached;
use crate::security::scram::Secret;

/// Idle connections that a session keeps at a replica.
const IDLE_MAX: usize = 2;
/// A time-out that must not reach the servers. A server could end a connection just when it is used again, and the
/// replica would be given up for that.
pub(crate) const IDLE_LIMIT: &str = "idle_session_timeout";

/// Turns the server's own search for deadlocks off, on a connection that has proven to be Onecopy's.
pub(crate) const LEAVE_DEADLOCKS_SQL: &str = "SELECT onecopy.leave_deadlocks()";

/// The idle connections of a session, and the properties that all its connections share.
pub(crate) struct SessionConnections {
    /// The runtime of its lanes.
    pub(crate) runtime: Handle,
    /// Opens the servers to the role.
    pub(crate) secret: Secret,
    /// Start-up parameters of its connections.
    pub(crate) parameters: Vec<(String, String)>,
    /// The session's row of SHOW CLIENTS.
    entry: Arc<SessionEntry>,
    idle: Mutex<Vec<ReplicaConnection>>,
    /// The running read, for a cancel request.
    reading: Mutex<Option<Arc<Running>>>,
}

/// A connection of a session at a replica.
pub(crate) struct ReplicaConnection {
    run: ReplicaRun,
    /// The crew to which its backend belongs.
    crew: Option<CrewId>,
    pub(crate) connection: Connection,
    pub(crate) running: Arc<Running>,
    /// Generation of the session's settings that are in force.
    pub(crate) settings: u64,
    /// The statements that it has parsed, under the settings of `settings` and the schema of `catalogue` only.
    /// Whether a statement fails, or what its constants mean, must not depend on when a replica's connection has seen
    /// it first.
    pub(crate) cached: Cached,
    pub(crate) catalogue: u64,
    _shown: Connected,
}

impl ReplicaConnection {
    /// Whether it serves this run of its replica, and belongs to the host's crew.
    fn fits(&self, host: &dyn LaneHost, run: ReplicaRun) -> bool {
        self.run == run && self.crew == host.crew() && self.connection.is_quiet()
    }
}

impl SessionConnections {
    /// A session without connections.
    pub(crate) fn new(secret: Secret, parameters: Vec<(String, String)>, entry: Arc<SessionEntry>) -> Self {
        let runtime = Handle::current();
        Self { runtime, secret, parameters, entry, idle: Mutex::default(), reading: Mutex::default() }
    }

    /// Closes idle connections.
    pub(crate) fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Sets the read that a cancel request reaches.
    pub(crate) fn set_reading(&self, running: Option<Arc<Running>>) {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = running;
    }

    /// Cancels the running read. Statements that all replicas run are not interrupted.
    pub(crate) async fn cancel_read(&self) {
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(reading) = reading {
            reading.cancel().await;
        }
    }

    /// An idle connection at a replica, or a new one.
    pub(crate) async fn take(
        &self,
        host: &dyn LaneHost,
        run: ReplicaRun,
    ) -> Result<ReplicaConnection, BackendError> {
        loop {
            let found = {
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                let place = idle.iter().position(|idle| idle.run.replica == run.replica);
                place.map(|place| idle.swap_remove(place))
            };
            match found {
                // The operator may have ended it meanwhile.
                Some(found) if found.fits(host, run) => return Ok(found),
                Some(_) => {}
                None => return self.connect(host, run).await,
            }
        }
    }

    async fn connect(&self, host: &dyn LaneHost, run: ReplicaRun) -> Result<ReplicaConnection, BackendError> {
        let address = host.address(run.replica);
        let of_session = self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let parameters: Vec<(&str, &str)> =
            of_session.filter(|(name, _)| *name != IDLE_LIMIT).chain([(IDLE_LIMIT, "0")]).collect();
        let mut connection = Connection::open(&address, &self.secret, &parameters).await?;
        // If the replica is given up after this, its fence finds this backend.
        if !host.is_present(run) {
            return Err(BackendError::Protocol("the replica was given up"));
        }
        prove(host, &mut connection).await?;
        if host.leaves_deadlocks() {
            assert_qualified(LEAVE_DEADLOCKS_SQL);
            connection.simple(LEAVE_DEADLOCKS_SQL).await?;
        }
        let running = Arc::new(Running::new(address, &connection));
        let shown = self.entry.connect(run.replica, connection.process.pid);
        let cached = Cached::default();
        let crew = host.crew();
        Ok(ReplicaConnection {
            run,
            crew,
            connection,
            running,
            settings: 0,
            cached,
            catalogue: 0,
            _shown: shown,
        })
    }

    /// Returns a connection to the session.
    pub(crate) fn give_back(&self, connection: ReplicaConnection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.iter().filter(|other| other.run == connection.run).count() < IDLE_MAX {
            idle.push(connection);
        }
    }
}

/// Proves to the server that the connection is Onecopy's.
async fn prove(host: &dyn LaneHost, connection: &mut Connection) -> Result<(), BackendError> {
    assert_qualified(STARTED_SQL);
    let started = connection.simple(STARTED_SQL).await?.into_iter().flatten().flatten().next();
    let started = started.ok_or(BackendError::Protocol("a server does not tell when its process began"))?;
    let voucher = host.voucher().ok_or(BackendError::Protocol("no node leads at present"))?;
    let pid = connection.process.pid;
    let vouch = match host.crew() {
        Some(crew) => voucher.vouch_in_crew_sql(pid, &started, crew),
        None => voucher.vouch_sql(pid, &started),
    };
    assert_qualified(&vouch);
    connection.simple(&vouch).await.map(|_| ())
}
