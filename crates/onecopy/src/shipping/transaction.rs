//! A client's transaction: its locks at the start, and its end.
//!
//! A transaction that locks everything first waits for an exclusive turn. From then on no other session begins a
//! transaction, so none chooses its locks by a catalogue that is about to change. A schema change is acknowledged
//! when all replicas that take part have run it and the catalogue was read again.

use cluster::protocols::shipping::Ending;
use sql::Catalogue;
use tokio::time::sleep;
use wire::sqlstate;

use super::locks::TableLocks;
use super::request::SessionRequest;
use super::scheduling::PAUSE;
use super::scheduling::read_schema;
use super::session::Session;
use super::shipment::AccessMode;
use super::transaction_state::{Block, Health, OpenTransaction, Shipped, TransactionState};
use crate::error::{Fault, Refusal};

impl Session {
    /// Begins the transaction that the client has announced.
    pub(super) async fn begin_declared(&mut self) -> Result<(), Fault> {
        let TransactionState::Announced(announced) = &self.transaction else { return Ok(()) };
        let mode = announced.mode;
        if self.scheduler.lock_time().is_per_statement() {
            return self.begin(mode, Block::Explicit, |_| Ok(TableLocks::none())).await;
        }
        let declared = announced.declared.clone();
        let locks_everything = declared.is_none() && mode == AccessMode::ReadWrite;
        if locks_everything && !std::mem::replace(&mut self.has_hinted, true) {
            tracing::warn!(
                "a transaction did not declare its tables and locks everything; declare them: \
                 BEGIN /* onecopy: read a; write b */, or SET LOCAL onecopy.access = 'read a; write b'"
            );
        }
        self.begin(mode, Block::Explicit, |catalogue| {
            let Some(declaration) = &declared else {
                return Ok(match mode {
                    AccessMode::ReadOnly => TableLocks::all_read(catalogue),
                    AccessMode::ReadWrite => TableLocks::everything(),
                });
            };
            let declared = declaration.resolve(catalogue);
            if let Some(unknown) = declared.unknown.first() {
                return Err(Refusal::new(
                    sqlstate::UNDEFINED_OBJECT,
                    format!("the transaction declares {unknown}, which is not a table"),
                    "Name tables, not views.",
                ));
            }
            Ok(TableLocks::declared(&declared, catalogue))
        })
        .await
    }

    /// Begins a transaction with the locks that `choose` takes from the catalogue.
    pub(super) async fn begin(
        &mut self,
        mode: AccessMode,
        block: Block,
        choose: impl Fn(&Catalogue) -> Result<TableLocks, Refusal>,
    ) -> Result<(), Fault> {
        let locks = loop {
            let catalogue = self.worker.coordinator.database.catalogue();
            let locks = choose(&catalogue)?;
            if locks.are_everything() {
                self.scheduler.acquire_exclusive(!self.transaction.is_none()).await?;
                if self.scheduler.lock_time().is_per_statement()
                    && let Err(fault) = self.scheduler.wait_idle(!self.transaction.is_none()).await
                {
                    self.scheduler.release_exclusive();
                    return Err(fault);
                }
            }
            match self.request(SessionRequest::Begin(locks.set()), catalogue.generation()).await {
                Ok(Some(_)) => break locks,
                Ok(None) => self.scheduler.release_exclusive(),
                Err(fault) => {
                    self.scheduler.release_exclusive();
                    return Err(fault);
                }
            }
        };
        self.transaction = TransactionState::Open(OpenTransaction::new(locks, mode, block));
        Ok(())
    }

    /// Ends the open transaction, if it ends with the statements that came together.
    pub(super) async fn end_implicit(&mut self, commits: bool) -> Result<(), Fault> {
        match &self.transaction {
            TransactionState::Open(open) if open.block == Block::Implicit => {
                if commits {
                    self.commit().await.map(drop)
                } else {
                    self.roll_back().await
                }
            }
            _ => Ok(()),
        }
    }

    /// Commits the open transaction. `false` if it was rolled back, because a statement had failed in it.
    pub(super) async fn commit(&mut self) -> Result<bool, Fault> {
        let TransactionState::Open(open) = &self.transaction else {
            let has_failed = self.transaction.has_failed();
            self.transaction = TransactionState::None;
            return Ok(!has_failed);
        };
        if open.health == Health::Failed {
            self.roll_back().await?;
            return Ok(false);
        }
        let (shipped, is_alone) = (open.shipped, open.locks.are_everything());
        let role_change = open.changes_roles.then(|| self.worker.local.result_cache.role_changes.begin());
        if shipped > Shipped::Nothing {
            let last = match self.check_log() {
                Ok(()) if self.worker.coordinator.database.catalogue().has_deferrable() => {
                    let mut locks = open.written.clone();
                    locks.add(&TableLocks::of_session(self.scheduler.id));
                    self.ship_own("SET CONSTRAINTS ALL IMMEDIATE".to_owned(), &locks).await
                }
                checked => checked.map_err(Fault::from),
            };
            if let Err(fault) = last {
                self.roll_back().await?;
                return Err(fault);
            }
        }
        if !matches!(self.transaction, TransactionState::Open(_)) {
            return Ok(false);
        }
        let ended = self.request(SessionRequest::End(Ending::Commit), 0).await;
        self.transaction = TransactionState::None;
        self.let_replicas_end(is_alone).await;
        drop(role_change);
        if shipped == Shipped::SchemaChange {
            read_schema(&self.scheduler.shipping).await;
        }
        self.scheduler.release_exclusive();
        ended?;
        if self.settings.keep_staged() {
            self.refresh_settings().await?;
        }
        Ok(true)
    }

    pub(super) async fn roll_back(&mut self) -> Result<(), Fault> {
        self.settings.drop_staged();
        let before = std::mem::replace(&mut self.transaction, TransactionState::None);
        if let TransactionState::Open(open) = before {
            let ended = self.request(SessionRequest::End(Ending::Abort), 0).await;
            self.let_replicas_end(open.locks.are_everything()).await;
            self.scheduler.release_exclusive();
            ended?;
        }
        Ok(())
    }

    /// Where each statement brings its own tables, an early answer does not mean that all replicas have ended a transaction.
    /// The exclusive turn of one that locks everything lasts until they have.
    pub(super) async fn let_replicas_end(&mut self, is_alone: bool) {
        if is_alone && self.scheduler.lock_time().is_per_statement() {
            while !self.scheduler.shipping.is_idle() && self.scheduler.shipping.any_up().is_some() {
                sleep(PAUSE).await;
            }
        }
    }

    /// A statement has failed. Where each statement brings its own tables, the transaction is aborted at once: the servers
    /// have freed its rows already. It stays for its client until that rolls it back.
    pub(super) async fn abort_failed(&mut self) -> Result<(), Fault> {
        let TransactionState::Open(open) = &self.transaction else { return Ok(()) };
        if !self.scheduler.lock_time().is_per_statement()
            || open.has_savepoints
            || open.block == Block::Implicit
        {
            return Ok(());
        }
        let mut failed =
            TransactionState::Open(OpenTransaction::new(TableLocks::none(), open.mode, open.block));
        failed.give_up();
        let ended = self.roll_back().await;
        self.transaction = failed;
        ended
    }

    /// Rolls the open transaction back after the client has disconnected.
    pub(super) async fn abandon(&mut self) {
        if let Err(fault) = self.roll_back().await {
            tracing::debug!(?fault, "rolled back a transaction whose client has disconnected");
        }
    }
}
