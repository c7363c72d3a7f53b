//! The database driver: runs one transaction at one replica, on a connection of its session.
//!
//! A lane executes the jobs of a transaction in order, and reports each one.
//!
//! The cause of an error is decisive. An error that every replica raises for the statement is its outcome, and the
//! same everywhere. Any other error (a lost connection, a full disk, a terminated backend) concerns this replica
//! alone. It is then given up until it has been rolled forward. A client never interrupts an update transaction:
//! neither time-outs nor cancel requests reach it.
//!
//! Invariant: the transaction that an identity names inserts it. If the only statement of a transaction fails, a
//! transaction of its own inserts the identity before the locks are released. So a replay runs neither again.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use cluster::ids::Identity;
use cluster::protocols::shipping::{Ending, Kind, Transaction, Work};
use tokio::sync::mpsc;
use wire::backend::Status;
use wire::encode;

use super::connections::{IDLE_LIMIT, LEAVE_DEADLOCKS_SQL, ReplicaConnection, SessionConnections};
use super::replica_run::{Completed, LaneHost, ReplicaRun};
use super::reply::{TOO_LARGE, code, exchange, is_deterministic};
use super::shipment::{AccessMode, Command, Reply, SessionSettings, Shipment, SideEffects};
use crate::backend::{BackendError, assert_qualified};
use crate::client::timeouts::{lifted, lifted_for_readers};
use crate::replica::agent::identity;
use crate::security::seal::Seal;

/// A job for a lane.
#[derive(Debug)]
pub(crate) struct Job {
    /// The work from the proxy.
    pub(crate) work: Work,
    /// The statement to run, if there is one.
    pub(crate) shipment: Option<Arc<Shipment>>,
    /// The transaction's identity, if it may write.
    pub(crate) identity: Option<Identity>,
}

/// The state of the server's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerTransaction {
    /// No transaction is open.
    None,
    /// It takes statements.
    Active,
    /// A statement has failed in it.
    Failed,
}

/// The transaction at the replica.
struct Lane {
    host: Arc<dyn LaneHost>,
    connections: Arc<SessionConnections>,
    run: ReplicaRun,
    transaction_id: Transaction,
    connection: Option<ReplicaConnection>,
    transaction: ServerTransaction,
    has_written: bool,
    /// A function may have changed settings of the connection silently.
    is_unproven: bool,
}

/// Runs a transaction's jobs at one replica until it is over there.
pub(crate) async fn run(
    host: Arc<dyn LaneHost>,
    connections: Arc<SessionConnections>,
    run: ReplicaRun,
    transaction: Transaction,
    mut jobs: mpsc::UnboundedReceiver<Job>,
) {
    let mut lane = Lane {
        host: Arc::clone(&host),
        connections,
        run,
        transaction_id: transaction,
        connection: None,
        transaction: ServerTransaction::None,
        has_written: false,
        is_unproven: false,
    };
    let mut waiting = VecDeque::new();
    loop {
        let next = match waiting.pop_front() {
            Some(job) => Some(job),
            None => jobs.recv().await,
        };
        let Some(job) = next else { return };
        let begun = Instant::now();
        let is_over = matches!(job.work, Work::RunAlone(_) | Work::End(_));
        let shipment = job.shipment.clone();
        let (performed, is_cancelled) = {
            let performing = std::pin::pin!(lane.perform(job));
            attend(&*host, run, transaction, performing, &mut jobs, &mut waiting).await
        };
        if is_cancelled {
            lane.is_unproven = true;
        }
        match performed {
            Err(BackendError::Server(_)) if is_cancelled => {
                Arc::clone(&host).finished(run, transaction, None);
            }
            Ok(reply) => {
                if is_over {
                    lane.let_go();
                }
                let took_us = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
                let completed =
                    shipment.zip(reply).map(|(shipment, reply)| Completed { shipment, reply, took_us });
                Arc::clone(&host).finished(run, transaction, completed);
            }
            Err(error) => return host.give_up(run, &error.to_string()),
        }
        if is_over {
            return;
        }
    }
}

/// Waits until a job is done, and takes those that come meanwhile. An abort that comes while a statement waits inside the
/// server cancels the statement; `true` if that was tried.
async fn attend(
    host: &dyn LaneHost,
    run: ReplicaRun,
    transaction: Transaction,
    mut performing: Pin<&mut impl Future<Output = Result<Option<Reply>, BackendError>>>,
    jobs: &mut mpsc::UnboundedReceiver<Job>,
    waiting: &mut VecDeque<Job>,
) -> (Result<Option<Reply>, BackendError>, bool) {
    let mut is_cancelled = false;
    loop {
        tokio::select! {
            biased;
            done = &mut performing => return (done, is_cancelled),
            Some(job) = jobs.recv() => {
                if matches!(job.work, Work::End(Ending::Abort))
                    && let Some(running) = host.cancelled_by_abort(run, transaction)
                {
                    running.cancel().await;
                    is_cancelled = true;
                }
                waiting.push_back(job);
            }
        }
    }
}

impl Lane {
    async fn perform(&mut self, job: Job) -> Result<Option<Reply>, BackendError> {
        match (job.work, job.shipment) {
            (Work::RunAlone(operation), Some(shipment)) if operation.kind == Kind::Read => {
                self.read_alone(&shipment.command).await.map(Some)
            }
            (Work::RunAlone(_), Some(shipment)) => {
                let reply = self.execute(&shipment.command, Kind::Write).await?;
                self.commit(job.identity).await?;
                Ok(Some(reply))
            }
            (Work::Run(operation), Some(shipment)) => {
                self.has_written |= operation.kind == Kind::Write;
                self.execute(&shipment.command, operation.kind).await.map(Some)
            }
            (Work::Run(_) | Work::RunAlone(_), None) => {
                Err(BackendError::Protocol("the text of a statement is missing"))
            }
            (Work::Restart | Work::End(Ending::Abort), _) => self.roll_back().await.map(|()| None),
            (Work::End(Ending::Commit), _) => {
                self.commit(job.identity.filter(|_| self.has_written)).await.map(|()| None)
            }
        }
    }

    /// Returns the connection at the end of the transaction, unless a function may have changed its settings.
    fn let_go(&mut self) {
        if let Some(connection) = self.connection.take()
            && !self.is_unproven
        {
            self.connections.give_back(connection);
        }
    }

    async fn connection(&mut self) -> Result<&mut ReplicaConnection, BackendError> {
        let connection = if let Some(connection) = self.connection.take() {
            connection
        } else {
            let taken = self.connections.take(&*self.host, self.run).await?;
            self.host.connected(self.run, self.transaction_id, &taken.running);
            taken
        };
        Ok(self.connection.insert(connection))
    }

    /// Puts the session's settings into force first.
    async fn apply_settings(&mut self, settings: &SessionSettings) -> Result<(), BackendError> {
        let catalogue = self.host.coordinator().database.catalogue().generation();
        let leaves_deadlocks = self.host.leaves_deadlocks();
        let server = self.connection().await?;
        if (server.settings, server.catalogue) != (settings.generation, catalogue) {
            if !server.cached.is_empty() {
                server.connection.simple("DEALLOCATE ALL").await?;
                server.cached.clear();
            }
            server.catalogue = catalogue;
        }
        if server.settings != settings.generation {
            if !settings.replay.is_empty() {
                let lifts = settings.replay.contains(IDLE_LIMIT);
                let lift = if lifts { format!(";SET {IDLE_LIMIT} = 0") } else { String::new() };
                server.connection.simple(&(settings.replay.clone() + &lift)).await?;
                if leaves_deadlocks {
                    server.connection.simple(LEAVE_DEADLOCKS_SQL).await?;
                }
            }
            server.settings = settings.generation;
        }
        Ok(())
    }

    async fn read_alone(&mut self, command: &Command) -> Result<Reply, BackendError> {
        self.is_unproven |= command.side_effects == SideEffects::Unproven;
        self.apply_settings(&command.settings).await?;
        let reading = Arc::clone(&self.connection().await?.running);
        let connections = Arc::clone(&self.connections);
        connections.set_reading(Some(reading));
        let ended = if command.side_effects == SideEffects::NeedsWrite {
            let reply = self.execute(command, Kind::Read).await;
            let ended = self.roll_back().await;
            reply.and_then(|reply| ended.map(|()| reply))
        } else {
            let bytes_max = self.host.reply_bytes_max();
            let ReplicaConnection { connection, cached, .. } = self.connection().await?;
            command.encode(&mut connection.output, cached);
            connection.flush().await?;
            exchange(connection, cached, command, bytes_max).await.map(|(reply, _)| reply)
        };
        connections.set_reading(None);
        ended
    }

    /// Runs a statement inside the transaction, and begins the transaction if necessary.
    async fn execute(&mut self, command: &Command, kind: Kind) -> Result<Reply, BackendError> {
        self.is_unproven |= command.side_effects == SideEffects::Unproven;
        let begins = self.transaction == ServerTransaction::None;
        if begins {
            self.apply_settings(&command.settings).await?;
            self.transaction = ServerTransaction::Active;
        }
        let bytes_max = self.host.reply_bytes_max();
        let ReplicaConnection { connection, cached, .. } = self.connection().await?;
        let mut ahead = 0;
        if begins {
            let begin = begin(command, connection.process.version());
            encode::query(&mut connection.output, begin.as_bytes());
            ahead += 1;
        }
        if let Some(before) = &command.before {
            encode::query(&mut connection.output, before.as_bytes());
            ahead += 1;
        }
        command.encode(&mut connection.output, cached);
        connection.flush().await?;
        let mut failed = None;
        for _ in 0..ahead {
            match connection.drain().await {
                Ok(_) => {}
                Err(BackendError::Server(body)) => failed = failed.or(Some(body)),
                Err(other) => return Err(other),
            }
        }
        let (mut reply, status) = exchange(connection, cached, command, bytes_max).await?;
        // A statement that returns too much counts as failed everywhere, because all replicas count the same rows.
        let has_failed = status == Some(Status::Failed) || reply.outcome == TOO_LARGE.as_bytes();
        self.transaction = if has_failed { ServerTransaction::Failed } else { ServerTransaction::Active };
        if let Some(body) = failed {
            reply = Reply { bytes: Vec::new(), asked: Vec::new(), outcome: code(&body), error: Some(body) };
        }
        match &reply.error {
            Some(body) if kind == Kind::Write && !is_deterministic(&code(body)) => {
                Err(BackendError::Server(body.clone()))
            }
            _ => Ok(reply),
        }
    }

    /// Commits with the identity. A failed transaction leaves only its identity.
    async fn commit(&mut self, identity: Option<Identity>) -> Result<(), BackendError> {
        if self.transaction == ServerTransaction::Failed {
            self.roll_back().await?;
        }
        let is_open = self.transaction != ServerTransaction::None;
        let mut sql = String::new();
        if let Some(identity) = identity {
            if !is_open {
                sql.push_str(BEGIN_WRITING);
                sql.push(';');
            }
            if self.host.commits_to_disk() {
                sql.push_str("SET LOCAL synchronous_commit = on;");
            }
            sql.push_str(&insert_identity(identity, &self.host.coordinator().local.seal));
            sql.push(';');
        }
        if sql.is_empty() && !is_open {
            return Ok(());
        }
        sql.push_str("COMMIT");
        assert_qualified(&sql);
        let connection = &mut self.connection().await?.connection;
        connection.simple(&sql).await?;
        self.transaction = ServerTransaction::None;
        Ok(())
    }

    async fn roll_back(&mut self) -> Result<(), BackendError> {
        if std::mem::replace(&mut self.transaction, ServerTransaction::None) != ServerTransaction::None {
            let is_cancelled = self.is_unproven;
            let connection = &mut self.connection().await?.connection;
            match connection.simple("ROLLBACK").await {
                // A cancel request for the statement before may arrive late, once.
                Err(error) if is_cancelled && error.sqlstate() == Some(b"57014") => {
                    connection.simple("ROLLBACK").await?;
                }
                ended => drop(ended?),
            }
        }
        self.has_written = false;
        Ok(())
    }
}

const BEGIN_WRITING: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";

/// The beginning of a transaction on a server of this version.
fn begin(command: &Command, version: u32) -> String {
    let begin = match command.mode {
        AccessMode::ReadOnly => BEGIN_READING,
        AccessMode::ReadWrite => BEGIN_WRITING,
    };
    let mut sql = begin.to_owned();
    if command.settings.has_timeouts {
        // If the server ended the connection, the replica would be given up.
        let lifts = match command.mode {
            AccessMode::ReadOnly => lifted_for_readers(version),
            AccessMode::ReadWrite => lifted(version),
        };
        sql.push(';');
        sql.push_str(&lifts);
    }
    sql
}

/// The statement by which a transaction records its identity.
pub(crate) fn insert_identity(identity: Identity, seal: &Seal) -> String {
    format!(
        "INSERT INTO onecopy.applied (epoch, n, nonce, proof) VALUES ({})",
        identity::literals(identity, seal)
    )
}
