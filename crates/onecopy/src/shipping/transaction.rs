//! A transaction of a client: its locks when it begins, and its end.
//!
//! Whoever may touch anything asks for everything first: from then on nobody else begins anything, and so nobody chooses
//! locks by a catalogue that a schema change is about to outdate. The change is acknowledged when all replicas that take
//! part have done it and the catalogue was read again.

use cluster::protocols::shipping::Ending;
use sql::Catalogue;
use tokio::time::sleep;
use wire::sqlstate;

use super::Ask;
use super::locks::Locks;
use super::session::{Open, PAUSE, Session, State};
use super::statement;
use crate::backend::Connection;
use crate::capture;
use crate::error::{Fault, Refusal};

/// Connections of our own for the catalogue.
const OWN: &[(&str, &str)] = &[
    ("application_name", "onecopy catalogue"),
    ("client_encoding", "UTF8"),
    ("options", "-c search_path=pg_catalog"),
];

impl Session {
    /// Begins the transaction that the client has announced.
    pub(super) async fn hold_declared(&mut self) -> Result<(), Fault> {
        let State::Begun(begun) = &self.state else { return Ok(()) };
        let is_read_only = begun.is_read_only;
        let declared = begun.declared.clone();
        if declared.is_none() && !is_read_only && !std::mem::replace(&mut self.has_hinted, true) {
            tracing::warn!(
                "a transaction did not declare its tables and locks everything; declare them: \
                 BEGIN /* onecopy: read a; write b */, or SET LOCAL onecopy.access = 'read a; write b'"
            );
        }
        self.hold(is_read_only, false, |catalogue| {
            let Some(declaration) = &declared else {
                return Ok(if is_read_only { Locks::all_read(catalogue) } else { Locks::everything() });
            };
            let declared = declaration.resolve(catalogue);
            if let Some(unknown) = declared.unknown.first() {
                return Err(Refusal::new(
                    sqlstate::UNDEFINED_OBJECT,
                    format!("the transaction declares {unknown}, which is no table"),
                    "Name tables, not views.",
                ));
            }
            Ok(Locks::declared(&declared, catalogue))
        })
        .await
    }

    /// Begins a transaction with these locks.
    pub(super) async fn hold(
        &mut self,
        is_read_only: bool,
        is_implicit: bool,
        choose: impl Fn(&Catalogue) -> Result<Locks, Refusal>,
    ) -> Result<(), Fault> {
        let locks = loop {
            let catalogue = self.worker.coordinator.catalogue();
            let locks = choose(&catalogue)?;
            if locks.are_everything() {
                self.take_everything().await?;
            }
            match self.ask(Ask::Begin(locks.set()), catalogue.generation()).await {
                Ok(Some(_)) => break locks,
                Ok(None) => self.shipping.give_everything_back(self.id),
                Err(fault) => {
                    self.shipping.give_everything_back(self.id);
                    return Err(fault);
                }
            }
        };
        self.state = State::Open(Open {
            locks,
            is_read_only,
            is_implicit,
            has_failed: false,
            has_written: false,
            has_ddl: false,
            has_set: false,
            bytes: 0,
            now_us: statement::now_us(),
        });
        Ok(())
    }

    async fn take_everything(&mut self) -> Result<(), Fault> {
        loop {
            let mut changes = self.shipping.changes.subscribe();
            changes.mark_unchanged();
            if self.shipping.take_everything(self.id) {
                return Ok(());
            }
            self.wait_for(&mut changes).await?;
        }
    }

    pub(super) async fn end_implicit(&mut self, commits: bool) -> Result<(), Fault> {
        match &self.state {
            State::Open(open) if open.is_implicit => {
                if commits {
                    self.commit().await.map(drop)
                } else {
                    self.roll_back().await
                }
            }
            _ => Ok(()),
        }
    }

    /// Commits the open transaction; whether it did, or was rolled back because it had failed.
    pub(super) async fn commit(&mut self) -> Result<bool, Fault> {
        let State::Open(open) = &self.state else {
            let failed = matches!(&self.state, State::Begun(begun) if begun.has_failed);
            self.state = State::None;
            return Ok(!failed);
        };
        if open.has_failed {
            self.roll_back().await?;
            return Ok(false);
        }
        let (has_written, has_ddl) = (open.has_written, open.has_ddl);
        if has_written {
            let last = match self.check_log() {
                Ok(()) if self.worker.coordinator.catalogue().has_deferrable() => {
                    self.ship_own("SET CONSTRAINTS ALL IMMEDIATE".to_owned()).await
                }
                checked => checked.map_err(Fault::from),
            };
            if let Err(fault) = last {
                self.roll_back().await?;
                return Err(fault);
            }
        }
        let ended = self.ask(Ask::End(Ending::Commit), 0).await;
        self.state = State::None;
        if has_ddl {
            self.reload_catalogue().await;
        }
        self.shipping.give_everything_back(self.id);
        ended?;
        if self.settings.keep_staged() {
            self.renew_setup().await?;
        }
        Ok(true)
    }

    /// Rolls the open transaction back.
    pub(super) async fn roll_back(&mut self) -> Result<(), Fault> {
        self.settings.drop_staged();
        if matches!(std::mem::replace(&mut self.state, State::None), State::Open(_)) {
            let ended = self.ask(Ask::End(Ending::Abort), 0).await;
            self.shipping.give_everything_back(self.id);
            ended?;
        }
        Ok(())
    }

    /// The client has gone, and what is open is rolled back.
    pub(super) async fn abandon(&mut self) {
        if let Err(fault) = self.roll_back().await {
            tracing::debug!(?fault, "an abandoned transaction");
        }
    }

    /// All others wait until this is done: they choose their locks by the catalogue.
    async fn reload_catalogue(&self) {
        let coordinator = &self.worker.coordinator;
        loop {
            // A replica that has not done it yet has the old catalogue.
            if self.shipping.is_idle()
                && let Some(at) = self.shipping.someone()
            {
                let loading = async {
                    let address = self.shipping.address(at.replica);
                    let mut connection = Connection::open_own(&address, &coordinator.served, OWN).await?;
                    capture::catalogue::load_plain(&mut connection, coordinator.catalogue().generation() + 1)
                        .await
                };
                match loading.await {
                    Ok(catalogue) => return coordinator.set_catalogue(catalogue),
                    Err(error) => tracing::warn!(%error, "the catalogue cannot be read; it is tried again"),
                }
            }
            sleep(PAUSE).await;
        }
    }
}
