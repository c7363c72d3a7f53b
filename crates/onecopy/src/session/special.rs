//! Runs statements that change state of the session: savepoints, prepared names, LISTEN, and schema changes.
//!
//! They run where the transaction is, or at the anchor. The session remembers their effects, so that it can bring its
//! other connections up to date.

use std::sync::Arc;

use sql::{Discard, Statement, Verb};
use wire::{encode, sqlstate};

use super::Session;
use crate::classify::requirements::Requirements;
use crate::client::own_settings::is_of_session;
use crate::client::prepared_statement::is_reserved;
use crate::client::settings::{RESET_ALL, Settings, set_config};
use crate::error::{Fault, Refusal};
use crate::local::pins::Pin;
use crate::relay::Ended;
use crate::relay::work::Work;
use crate::transaction::open::{Savepoint, Transaction};
use crate::transaction::view::View;

impl View<'_> {
    fn refuse_away_from_home(self, what: &str) -> Result<(), Fault> {
        match &self.txn.state {
            Transaction::Read(read) if read.replica != self.link.anchor() => {
                Err(Refusal::unsupported(what, "Use a transaction that is not READ ONLY.").into())
            }
            _ => Ok(()),
        }
    }
}

impl Session {
    /// Handles a statement of these kinds; `None` for an ordinary one.
    pub(crate) async fn special(
        &mut self,
        statement: &Arc<Statement>,
        text: &[u8],
        work: Work<'_>,
        alone: bool,
    ) -> Result<Option<Ended>, Fault> {
        Self::check_settings(statement)?;
        if self.txn.is_read_first() && leaves_something(&statement.verb) {
            self.placer().come_home(true).await?;
        }
        if let Some(ended) = self.placer().own_setting(&statement.verb)? {
            return Ok(Some(ended));
        }
        self.connector().note_traces(statement, text)?;
        match &statement.verb {
            Verb::Set { name, value, local } => {
                self.set(statement, name, value, *local, work, alone).await.map(Some)
            }
            Verb::Reset(Some(name)) => self.reset(statement, name, work, alone).await.map(Some),
            Verb::Reset(None) if !alone || !matches!(self.txn.state, Transaction::None) => {
                let ended = self.run_beside(statement, work, false).await?;
                if ended.error.is_none() {
                    self.link.settings.stage(RESET_ALL, None, "RESET ALL");
                }
                Ok(Some(ended))
            }
            Verb::Reset(None) | Verb::Discard(Discard::All) => {
                self.reset_all(statement, work).await.map(Some)
            }
            Verb::Show(name) if Settings::is_own(name) => {
                self.show_own(name);
                Ok(Some(Ended::default()))
            }
            Verb::ExplainRouting => self.executor().explain_routing(work).await.map(Some),
            Verb::Show(_) | Verb::Discard(_) => self.show_or_discard(statement, work, alone).await.map(Some),
            Verb::Savepoint(_) | Verb::Release(_) | Verb::RollbackTo(_) => {
                self.savepoint(statement, work).await.map(Some)
            }
            Verb::Execute { name } => {
                self.connector().prepare_lacking(name).await?;
                Ok(None)
            }
            Verb::Deallocate(name) => self.deallocate(statement, name.as_deref(), work).await.map(Some),
            Verb::Listen | Verb::Unlisten | Verb::Notify => {
                self.view().refuse_away_from_home("LISTEN and NOTIFY in a read-only transaction")?;
                Ok(None)
            }
            Verb::Prepare { .. } | Verb::DeclareCursor { hold: true, .. } => {
                let what = "PREPARE and WITH HOLD cursors in a read-only transaction";
                self.view().refuse_away_from_home(what)?;
                if let Verb::Prepare { name } = &statement.verb
                    && self.link.prepared.get(name.as_bytes()).is_none()
                {
                    self.link.close_everywhere(name.as_bytes()).await;
                }
                Ok(None)
            }
            Verb::Lock | Verb::DeclareCursor { hold: false, .. }
                if alone && matches!(self.txn.state, Transaction::None) =>
            {
                Err(outside_block(&statement.verb).into())
            }
            // Schema changes are rare, so their future is boxed.
            Verb::Ddl(facts) => {
                let mut executor = self.executor();
                Box::pin(executor.schema_change(statement, facts, text, work, alone)).await
            }
            Verb::Maintenance(_) if matches!(self.txn.state, Transaction::None) => {
                self.executor().maintenance(&statement.reads, text, work).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Remembers the settings that set_config has made in an ordinary statement.
    pub(crate) fn remember(&mut self, statement: &Statement, _text: &[u8], ended: &Ended) {
        // Without a row no function was called.
        if ended.error.is_some() || ended.command == b"SELECT 0" {
            return;
        }
        for call in &statement.settings {
            match (&call.name, &call.value, call.local) {
                (_, _, Some(true)) => self.link.settings.has_local = true,
                (Some(name), Some(value), Some(false)) => {
                    let replay = set_config(name, value);
                    self.stage(&name.to_ascii_lowercase(), Some(value), &replay);
                }
                (name, ..) => self.connector().note_set_config(name.as_deref()),
            }
        }
    }

    /// Runs SHOW, or a DISCARD of one kind of state.
    async fn show_or_discard(
        &mut self,
        statement: &Arc<Statement>,
        work: Work<'_>,
        alone: bool,
    ) -> Result<Ended, Fault> {
        let ended = self.run_beside(statement, work, alone).await?;
        if statement.verb == Verb::Discard(Discard::Sequences) && ended.error.is_none() {
            self.link.servers.draws.discard();
        }
        Ok(ended)
    }

    /// Runs a statement that touches no data: in the open transaction, or at the home outside of any.
    pub(crate) async fn run_beside(
        &mut self,
        statement: &Arc<Statement>,
        work: Work<'_>,
        alone: bool,
    ) -> Result<Ended, Fault> {
        match self.txn.state {
            Transaction::None if alone => {
                let ended = self.executor().run_at_home_alone(None, work).await;
                if matches!(statement.verb, Verb::Deallocate(_) | Verb::Discard(_)) {
                    // The connection may hold less state now.
                    let anchor = self.link.anchor();
                    self.connector().note_left(anchor);
                }
                ended
            }
            _ => self.executor().run(&Requirements::one(statement), work, false).await,
        }
    }

    async fn savepoint(&mut self, statement: &Arc<Statement>, work: Work<'_>) -> Result<Ended, Fault> {
        if matches!(self.txn.state, Transaction::None) || self.txn.is_implicit() {
            let what = match &statement.verb {
                Verb::Savepoint(_) => "SAVEPOINT",
                Verb::Release(_) => "RELEASE SAVEPOINT",
                _ => "ROLLBACK TO SAVEPOINT",
            };
            return Err(Refusal::plain(
                sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                format!("{what} can only be used in transaction blocks"),
            )
            .into());
        }
        let mark = match &self.txn.state {
            Transaction::Update(update) => Some(update.capture.record.mark()),
            _ => None,
        };
        self.txn.leave_guard();
        let ended = self.executor().run(&Requirements::one(statement), work, false).await?;
        if ended.error.is_some() {
            return Ok(ended);
        }
        let find = |name: &str| self.txn.savepoints.iter().rposition(|known| known.name == name);
        match &statement.verb {
            Verb::Savepoint(name) => {
                let staged = self.link.settings.staged();
                self.txn.savepoints.push(Savepoint { name: name.clone(), mark, staged });
            }
            Verb::Release(name) => {
                if let Some(at) = find(name) {
                    self.txn.savepoints.truncate(at);
                }
            }
            Verb::RollbackTo(name) => {
                if let Some(at) = find(name) {
                    self.txn.savepoints.truncate(at + 1);
                    self.go_back_to(at);
                }
            }
            _ => {}
        }
        Ok(ended)
    }

    /// Forgets rows and settings of the time after a savepoint.
    fn go_back_to(&mut self, at: usize) {
        let savepoint = &self.txn.savepoints[at];
        self.link.settings.unstage(savepoint.staged);
        // Without a mark the transaction had no place yet.
        let mark = savepoint.mark.unwrap_or_default();
        self.txn.forget_rows(mark);
    }

    /// Runs DEALLOCATE. Statements of the protocol and of PREPARE share their names.
    async fn deallocate(
        &mut self,
        statement: &Arc<Statement>,
        name: Option<&str>,
        work: Work<'_>,
    ) -> Result<Ended, Fault> {
        if let Some(name) = name
            && self.link.prepared.get(name.as_bytes()).is_some()
        {
            self.link.prepared.remove(name.as_bytes());
            self.link.close_everywhere(name.as_bytes()).await;
            encode::command_complete(&mut self.link.client.out, "DEALLOCATE");
            return Ok(Ended::default());
        }
        if name.is_some_and(|name| is_reserved(name.as_bytes())) {
            let text = format!("prepared statement \"{}\" does not exist", name.unwrap_or_default());
            return Err(Refusal::plain(sqlstate::INVALID_SQL_STATEMENT_NAME, text).into());
        }
        if self.link.servers.is_shared() && !self.may_have_prepared(name)? {
            self.link.prepared.clear();
            encode::command_complete(&mut self.link.client.out, "DEALLOCATE ALL");
            return Ok(Ended::default());
        }
        let ended = self.run_beside(statement, work, true).await?;
        if name.is_none() && ended.error.is_none() {
            self.link.prepared.clear();
            let anchor = self.link.anchor();
            if let Some(server) = self.link.servers.find(anchor) {
                server.deallocated();
                server.carried.lacking.clear();
            }
            self.link.servers.close_others(anchor);
        }
        Ok(ended)
    }

    /// Whether the session may have statements of PREPARE, where sessions share connections. It must not deallocate
    /// statements of other sessions on the same connection.
    fn may_have_prepared(&mut self, name: Option<&str>) -> Result<bool, Fault> {
        let anchor = self.link.anchor();
        let may = self
            .link
            .servers
            .find(anchor)
            .is_some_and(|server| server.pins.has(Pin::Prepare) || server.pins.has(Pin::Unknown))
            || !self.link.servers.carried.is_empty();
        match name {
            Some(name) if !may => Err(Refusal::plain(
                sqlstate::INVALID_SQL_STATEMENT_NAME,
                format!("prepared statement \"{name}\" does not exist"),
            )
            .into()),
            _ => Ok(may),
        }
    }
}

/// The error of a statement that is allowed only in a transaction block.
fn outside_block(verb: &Verb) -> Refusal {
    let what = if matches!(verb, Verb::Lock) { "LOCK TABLE" } else { "DECLARE CURSOR" };
    Refusal::plain(
        sqlstate::NO_ACTIVE_SQL_TRANSACTION,
        format!("{what} can only be used in transaction blocks"),
    )
}

/// Whether a statement changes state of its connection, or depends on which connection that is.
fn leaves_something(verb: &Verb) -> bool {
    match verb {
        Verb::Set { name, .. } | Verb::Reset(Some(name)) => !is_of_session(name),
        Verb::Reset(None)
        | Verb::Discard(_)
        | Verb::Savepoint(_)
        | Verb::Release(_)
        | Verb::RollbackTo(_)
        | Verb::Listen
        | Verb::Unlisten
        | Verb::Notify
        | Verb::Prepare { .. }
        | Verb::DeclareCursor { .. }
        | Verb::Lock
        | Verb::Ddl(_) => true,
        _ => false,
    }
}
