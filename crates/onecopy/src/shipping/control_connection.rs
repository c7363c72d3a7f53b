//! The session's own connection, for settings and descriptions of statements.
//!
//! It goes to any replica that takes part. If it is lost, another one is opened elsewhere. Nothing is written on it.

use std::sync::Arc;
use std::time::Duration;

use sql::SHIPPED_SETTINGS;
use tokio::time::{Instant, sleep};
use wire::sqlstate;

use super::connections::SessionConnections;
use super::replica_run::ReplicaRun;
use super::scheduling::PAUSE;
use super::scheduling::Scheduling;
use super::shipment::SessionSettings;
use crate::backend::{BackendError, Connection, Rows, assert_qualified};
use crate::client::settings::Settings;
use crate::error::{Fault, Refusal};

/// A session waits at most this long for a replica that takes part.
pub(super) const REPLICA_WAIT_MAX: Duration = Duration::from_secs(30);
/// The SQLSTATE with which a server ends a connection for the client's `idle_session_timeout`.
const IDLE_FOR_TOO_LONG: &[u8] = b"57P05";
/// After this many attempts the client is told that the connection was lost.
const TRIES_MAX: u32 = 5;

/// The connection of a session for settings and descriptions.
pub(super) struct ControlConnection {
    shipping: Arc<dyn Scheduling>,
    connections: Arc<SessionConnections>,
    open: Option<OpenConnection>,
}

struct OpenConnection {
    run: ReplicaRun,
    connection: Connection,
    /// Generation of the session's settings that are in force.
    settings: u64,
}

impl ControlConnection {
    /// A connection that is opened when it is needed.
    pub(super) fn new(shipping: &Arc<dyn Scheduling>, connections: &Arc<SessionConnections>) -> Self {
        Self { shipping: Arc::clone(shipping), connections: Arc::clone(connections), open: None }
    }

    /// The connection, if it is open.
    pub(super) fn opened(&self) -> Option<&Connection> {
        self.open.as_ref().map(|open| &open.connection)
    }

    /// Runs a query under the session's settings. If the connection is lost, runs it again elsewhere. That is safe,
    /// because such a query changes settings at most.
    pub(super) async fn query(&mut self, sql: &str, settings: &Settings) -> Result<Rows, Fault> {
        let mut tries = 0;
        loop {
            tries += 1;
            self.get(settings).await?;
            let Some(open) = &mut self.open else { return Err(Fault::Client) };
            let replica = open.run.replica;
            let asked = open.connection.simple(sql).await;
            let is_lost = match &asked {
                Err(BackendError::Io(_) | BackendError::Protocol(_)) => true,
                Err(error) => error.sqlstate() == Some(IDLE_FOR_TOO_LONG),
                Ok(_) => false,
            };
            if is_lost {
                self.open = None;
            }
            if !is_lost || tries == TRIES_MAX {
                return asked.map_err(Fault::at(replica));
            }
        }
    }

    /// The connection, at a replica that takes part, under the session's settings.
    pub(super) async fn get(&mut self, settings: &Settings) -> Result<&mut Connection, Fault> {
        let is_present =
            |open: &OpenConnection| self.shipping.is_present(open.run) && open.connection.is_quiet();
        let open = match self.open.take().filter(is_present) {
            Some(open) => open,
            None => self.connect().await?,
        };
        let generation = settings.generation();
        let open = self.open.insert(open);
        if open.settings != generation {
            let replay = settings.replay();
            if !replay.is_empty() {
                open.connection.simple(&replay).await.map_err(Fault::at(open.run.replica))?;
            }
            open.settings = generation;
        }
        Ok(&mut open.connection)
    }

    async fn connect(&self) -> Result<OpenConnection, Fault> {
        let started = Instant::now();
        let run = loop {
            match self.shipping.any_up() {
                Some(run) => break run,
                None if started.elapsed() > REPLICA_WAIT_MAX => {
                    let text = "no replica takes part at present";
                    let hint = "SHOW REPLICAS shows the state of each replica.";
                    return Err(Refusal::new(sqlstate::CANNOT_CONNECT_NOW, text, hint).into());
                }
                None => sleep(PAUSE).await,
            }
        };
        let parameters: Vec<(&str, &str)> =
            self.connections.parameters.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let address = self.shipping.address(run.replica);
        let opened = Connection::open(&address, &self.connections.secret, &parameters).await;
        let connection = opened.map_err(|error| match error {
            error if error.sqlstate().is_some_and(|code| code.starts_with(b"57P")) => {
                Fault::Lost(run.replica)
            }
            error => Fault::at(run.replica)(error),
        })?;
        Ok(OpenConnection { run, connection, settings: 0 })
    }

    /// The present settings of the session, in the form that travels with its statements.
    pub(super) async fn shipped_settings(&mut self, settings: &Settings) -> Result<SessionSettings, Fault> {
        let names: Vec<String> = SHIPPED_SETTINGS.iter().map(|name| format!("('{name}')")).collect();
        let sql = format!(
            "SELECT pg_catalog.concat('SELECT ', pg_catalog.string_agg(pg_catalog.format('pg_catalog.set_config(%L, %L, true)', \
             name, pg_catalog.current_setting(name, true)), ', '), ';') FROM (VALUES {}) AS s(name) \
             WHERE pg_catalog.current_setting(name, true) IS NOT NULL",
            names.join(", ")
        );
        assert_qualified(&sql);
        let rows = self.query(&sql, settings).await?;
        let shipped = rows.into_iter().flatten().flatten().next().unwrap_or_default();
        Ok(SessionSettings {
            generation: settings.generation(),
            replay: settings.replay(),
            shipped,
            has_timeouts: settings.has_timeouts,
        })
    }
}
