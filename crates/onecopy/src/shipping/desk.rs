//! The session's own connection, for what concerns the session only: settings, and descriptions of statements.
//!
//! It is at any replica that takes part, and made anew elsewhere when that is lost. Nothing is written there.

use sql::SHIPPED_SETTINGS;
use std::sync::Arc;
use tokio::time::{Instant, sleep};
use wire::sqlstate;

use super::session::{GREET_MAX, PAUSE, Session};
use super::shipment::Setup;
use crate::backend::{BackendError, Connection, assert_qualified};
use crate::error::{Fault, Refusal};

/// What a client's `idle_session_timeout` ends a connection with.
const IDLE_FOR_TOO_LONG: &[u8] = b"57P05";
/// So often something is asked at the desk before its loss is told.
const TRIES_MAX: u32 = 5;

impl Session {
    /// Asks at the session's desk, where its settings are in force; again if the desk was lost, since nothing but settings
    /// is changed there.
    pub(super) async fn at_desk(&mut self, sql: &str) -> Result<crate::backend::Rows, Fault> {
        let mut tries = 0;
        loop {
            tries += 1;
            self.desk().await?;
            let Some((at, connection, _)) = &mut self.desk else { return Err(Fault::Client) };
            let replica = at.replica;
            let asked = connection.simple(sql).await;
            let is_lost = match &asked {
                Err(BackendError::Io(_) | BackendError::Protocol(_)) => true,
                Err(error) => error.sqlstate() == Some(IDLE_FOR_TOO_LONG),
                Ok(_) => false,
            };
            if is_lost {
                self.desk = None;
            }
            if !is_lost || tries == TRIES_MAX {
                return asked.map_err(Fault::at(replica));
            }
        }
    }

    /// The desk, at a replica that takes part.
    pub(super) async fn desk(&mut self) -> Result<&mut Connection, Fault> {
        let is_present = self
            .desk
            .as_ref()
            .is_some_and(|(at, connection, _)| self.shipping.is_present(*at) && connection.is_quiet());
        if !is_present {
            let started = Instant::now();
            let at = loop {
                match self.shipping.someone() {
                    Some(at) => break at,
                    None if started.elapsed() > GREET_MAX => {
                        let text = "no replica takes part at present";
                        let hint = "SHOW REPLICAS shows the state of each replica.";
                        return Err(Refusal::new(sqlstate::CANNOT_CONNECT_NOW, text, hint).into());
                    }
                    None => sleep(PAUSE).await,
                }
            };
            let parameters: Vec<(&str, &str)> =
                self.origin.parameters.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let address = self.shipping.address(at.replica);
            let opened = Connection::open(&address, &self.origin.secret, &parameters).await;
            let connection = opened.map_err(|error| match error {
                error if error.sqlstate().is_some_and(|code| code.starts_with(b"57P")) => {
                    Fault::Lost(at.replica)
                }
                error => Fault::at(at.replica)(error),
            })?;
            self.desk = Some((at, connection, 0));
        }
        let generation = self.settings.generation();
        let replay = self.settings.replay();
        let Some((at, connection, known)) = &mut self.desk else { return Err(Fault::Client) };
        if *known != generation {
            if !replay.is_empty() {
                connection.simple(&replay).await.map_err(Fault::at(at.replica))?;
            }
            *known = generation;
        }
        Ok(connection)
    }

    /// The settings have changed: what travels with statements is asked for anew.
    pub(super) async fn renew_setup(&mut self) -> Result<(), Fault> {
        let names: Vec<String> = SHIPPED_SETTINGS.iter().map(|name| format!("('{name}')")).collect();
        let sql = format!(
            "SELECT pg_catalog.concat('SELECT ', pg_catalog.string_agg(pg_catalog.format('pg_catalog.set_config(%L, %L, true)', \
             name, pg_catalog.current_setting(name, true)), ', '), ';') FROM (VALUES {}) AS s(name) \
             WHERE pg_catalog.current_setting(name, true) IS NOT NULL",
            names.join(", ")
        );
        assert_qualified(&sql);
        let rows = self.at_desk(&sql).await?;
        let shipped = rows.into_iter().flatten().flatten().next().unwrap_or_default();
        self.setup = Arc::new(Setup {
            generation: self.settings.generation(),
            replay: self.settings.replay(),
            shipped,
            has_timeouts: self.settings.has_timeouts,
        });
        Ok(())
    }
}
