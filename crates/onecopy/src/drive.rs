//! Drives the open transaction at its home: sends statements there, waits for its turn, ends it.
//!
//! The stages above do all their work with the open transaction through this file. So a lost home, an abort by the core
//! and the end of a transaction are handled in one place.

pub(crate) mod conflict_detail;
pub(crate) mod definitions;
pub(crate) mod ending;
pub(crate) mod gate;
pub(crate) mod profile;
pub(crate) mod reading;
pub(crate) mod recall;

use std::sync::Arc;

use cluster::event::AbortCause;
use cluster::ids::ReplicaId;
use tokio::time::Instant;

use crate::client::cancel::CancelState;
use crate::connect::Connector;
use crate::coordinator::mailbox::Note;
use crate::error::{Fault, broken};
use crate::pool::server::Server;
use crate::relay::work::Work;
use crate::relay::{Ended, Expected, Hold, Relay};
use crate::transaction::open::Transaction;
use crate::transaction::stage::stage;
use crate::transaction::view::View;

stage! {
    /// Sends statements to the open transaction at its home, and ends it.
    Driver calls { connector: Connector }
}

impl View<'_> {
    /// The home of the open update transaction; without one, the anchor.
    pub(crate) fn home(self) -> ReplicaId {
        match &self.txn.state {
            Transaction::Update(update) => update.replica,
            _ => self.link.anchor(),
        }
    }
}

impl Driver<'_> {
    /// Runs work in the open update transaction. After an error of the connection the transaction is gone.
    pub(crate) async fn at_home(&mut self, work: Work<'_>, hold: bool) -> Result<Ended, Fault> {
        let before = self.txn.rows_captured();
        let hold = if hold { Hold::UntilCommit } else { Hold::Usual };
        let ended = self.exchange_home(|server| Expected { hold, ..work.write(server) }).await?;
        self.txn.note_written(&ended.command, before);
        self.link.executed();
        Ok(ended)
    }

    /// Sends the messages that `write` puts into the output of the home's connection, and reads one unit.
    pub(crate) async fn exchange_home(
        &mut self,
        write: impl FnOnce(&mut Server) -> Expected,
    ) -> Result<Ended, Fault> {
        let Transaction::Update(update) = &mut self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        let server = self.link.servers.get(update.replica);
        let expected = write(server);
        self.link
            .session_registration
            .cancel
            .set(CancelState::Running(Arc::clone(&server.backend_registration.running)));
        let sent = Instant::now();
        let result = Relay::new(&mut self.link.client, server, Some(&mut update.capture)).run(expected).await;
        self.link.session_registration.cancel.set(CancelState::Nothing);
        self.txn.wait_stats.worked(sent);
        if self.is_recalled() && !matches!(result, Err(Fault::Client | Fault::Fatal(_))) {
            return Err(self.follow_recall().await);
        }
        match result {
            Ok(ended) => Ok(ended),
            Err(fault) => {
                // The core may have ended the transaction, and its backend with it.
                let cause = self.why_aborted();
                self.leave_home(&fault).await;
                Err(cause.map_or(fault, |cause| self.view().aborted(cause, self.txn.last_home)))
            }
        }
    }

    /// Runs a query of our own in the open update transaction. Its error becomes the error of the transaction.
    pub(crate) async fn own_query(&mut self, sql: &str) -> Result<Ended, Fault> {
        let ended = self
            .exchange_home(|server| {
                server.query_own(sql);
                Expected::of_client_code()
            })
            .await?;
        match ended.error {
            Some(body) => Err(Fault::Server(body)),
            None => Ok(ended),
        }
    }

    /// Rolls the open update transaction back at its home.
    pub(crate) async fn roll_back_home(&mut self) {
        let Transaction::Update(update) = &self.txn.state else { return };
        let server = self.link.servers.find(update.replica);
        let is_in_step = server.is_some_and(|server| {
            let unsent = server.own.has_ahead();
            if unsent {
                // The BEGIN of the transaction was never sent.
                server.connection.take_back();
                server.own.discard_ahead();
            }
            !unsent
        });
        if is_in_step {
            // An error closes the connection, which rolls back as well.
            let _ = self.own_query("ROLLBACK").await;
        }
        match self.txn.state {
            Transaction::None => {}
            // The client has asked for the end of the transaction, so the loss needs no error.
            Transaction::Lost(_) => self.end_local(false),
            _ => self.end_transaction(false),
        }
    }

    /// Closes the connection to the home, and with it the transaction that is open there.
    pub(crate) fn abandon_home(&mut self) {
        if let Transaction::Update(update) = &self.txn.state {
            let (replica, options, is_implicit) =
                (update.replica, update.options, update.boundary.is_implicit());
            self.link.servers.close(replica);
            self.end_transaction(false);
            if !is_implicit {
                self.txn.lose(options);
            }
        }
    }

    /// Whether the core has ended the open transaction, and why.
    pub(crate) fn why_aborted(&mut self) -> Option<AbortCause> {
        let mut why = None;
        while let Some(note) = self.link.session_registration.mailbox.try_next() {
            match note {
                Note::Effect(cluster::event::Effect::Abort { cause, .. }) => why = Some(cause),
                Note::End(end) => self.link.session_registration.note_end(end),
                Note::Effect(_) | Note::Cancel | Note::Drained => {}
            }
        }
        why
    }

    /// Runs a query of our own that returns one value.
    pub(crate) async fn own_text(&mut self, sql: &str) -> Result<String, Fault> {
        let row = self.own_query(sql).await?.row.unwrap_or_default();
        let value = row.into_iter().next().flatten().and_then(|value| String::from_utf8(value).ok());
        value.ok_or_else(|| broken("a query of our own gave no value"))
    }

    /// Rolls the open update transaction back, and keeps its connection if that holds state of the session. Without
    /// such state the connection is closed, which takes no time.
    pub(crate) async fn step_back(&mut self) {
        let Transaction::Update(update) = &self.txn.state else { return };
        let (replica, options, is_implicit) = (update.replica, update.options, update.boundary.is_implicit());
        if !self.link.is_worth_keeping(replica) {
            return self.abandon_home();
        }
        Box::pin(self.roll_back_home()).await;
        if let Some(server) = self.link.servers.find(replica) {
            // A refresh may have evicted the transaction at the same time.
            server.take_eviction();
            if !server.connection.is_at_rest() {
                self.link.servers.close(replica);
            }
        }
        if !is_implicit {
            self.txn.lose(options);
        }
    }

    /// Leaves the home after a failed exchange. After a fault of the connection, the connection is closed.
    pub(crate) async fn leave_home(&mut self, fault: &Fault) {
        match fault {
            Fault::Evicted => self.step_back().await,
            _ => self.abandon_home(),
        }
    }
}
