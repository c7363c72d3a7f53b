//! Transaction control and settings: statements about the session rather than the data.
//!
//! BEGIN is answered at once; the transaction begins with its first statement. Savepoints and settings inside a
//! transaction are statements that all replicas run in order. Settings outside a transaction are tried on the control
//! connection, stored, and replayed on each connection before its next use.

use sql::{Discard, SetValue, TransactionOptions, Verb};
use wire::backend::tag;
use wire::{encode, sqlstate};

use super::locks::TableLocks;
use super::per_statement;
use super::session::{ClientStatement, Session};
use super::shipment::{AccessMode, Form};
use super::statement::refused;
use super::transaction_state::{AnnouncedTransaction, Health, TransactionState};
use crate::client::forbidden::FORBIDDEN;
use crate::client::settings::Settings;
use crate::error::{Fault, Refusal};

/// The setting by which a transaction declares its tables.
const DECLARATION: &str = "onecopy.access";

impl Session {
    /// Executes a control statement; `false` if it is a statement about rows or the schema.
    pub(super) async fn run_control(&mut self, sent: &ClientStatement<'_>) -> Result<bool, Fault> {
        let text = String::from_utf8_lossy(sent.text);
        let done = match &sent.statement.verb {
            Verb::Empty => {
                encode::bare(&mut self.client.out, tag::EMPTY_QUERY_RESPONSE);
                return Ok(true);
            }
            Verb::Begin(options) => {
                self.announce(*options, sent)?;
                "BEGIN"
            }
            Verb::Commit { chain: false } => {
                if self.transaction.is_none() {
                    self.warn(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
                }
                if self.commit().await? { "COMMIT" } else { "ROLLBACK" }
            }
            Verb::Rollback { chain: false } => {
                if self.transaction.is_none() {
                    self.warn(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
                }
                self.roll_back().await?;
                "ROLLBACK"
            }
            Verb::Commit { .. } | Verb::Rollback { .. } => {
                return Err(refused("AND CHAIN", "Say BEGIN after it.").into());
            }
            Verb::SetTransaction(options) => {
                self.scheduler.lock_time().check_chosen(options.isolation)?;
                if let (TransactionState::Announced(announced), Some(read_only)) =
                    (&mut self.transaction, options.read_only)
                {
                    announced.mode = AccessMode::of(read_only);
                }
                "SET"
            }
            Verb::SetSessionCharacteristics(options) => {
                self.scheduler.lock_time().check_chosen(options.isolation)?;
                self.settings.defaults.isolation =
                    options.isolation.unwrap_or(self.settings.defaults.isolation);
                self.settings.defaults.read_only =
                    options.read_only.unwrap_or(self.settings.defaults.read_only);
                "SET"
            }
            Verb::Savepoint(_) | Verb::Release(_) | Verb::RollbackTo(_) => {
                self.savepoint(sent, &text).await?;
                match &sent.statement.verb {
                    Verb::Savepoint(_) => "SAVEPOINT",
                    Verb::Release(_) => "RELEASE",
                    _ => "ROLLBACK",
                }
            }
            Verb::Set { name, value, local } => self.set(name, value, *local, &text).await?,
            Verb::Reset(name) => self.reset(name.as_deref(), &text).await?,
            Verb::Show(name) => {
                self.show(name, sent, &text).await?;
                return Ok(true);
            }
            Verb::Discard(what) => self.discard(*what).await?,
            Verb::Deallocate(_) => {
                return Err(refused("DEALLOCATE", "Statements are prepared by the protocol only.").into());
            }
            _ => return Ok(false),
        };
        encode::command_complete(&mut self.client.out, done);
        Ok(true)
    }

    /// Notes a BEGIN, and the tables that it declares.
    fn announce(&mut self, options: TransactionOptions, sent: &ClientStatement<'_>) -> Result<(), Refusal> {
        if !self.transaction.is_none() {
            self.warn(sqlstate::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress");
            return Ok(());
        }
        self.scheduler.lock_time().check(options.isolation.unwrap_or(self.settings.defaults.isolation))?;
        let mode = AccessMode::of(options.read_only.unwrap_or(self.settings.defaults.read_only));
        let mut announced = AnnouncedTransaction { mode, declared: None, health: Health::Active };
        let commented = String::from_utf8_lossy(sent.commented);
        if !self.scheduler.lock_time().is_per_statement()
            && let Some(declared) = sql::profile::declaration_of(&commented)
        {
            announced.declared = Some(declared.map_err(|error| misdeclared(&error.to_string()))?);
        }
        self.transaction = TransactionState::Announced(announced);
        Ok(())
    }

    fn warn(&mut self, code: &str, text: &str) {
        encode::notice(&mut self.client.out, "WARNING", code, text, None);
    }

    /// Creates, releases or returns to a savepoint at all replicas.
    async fn savepoint(&mut self, sent: &ClientStatement<'_>, text: &str) -> Result<(), Fault> {
        match &self.transaction {
            TransactionState::None => {
                let text = "savepoints can only be used in transaction blocks";
                return Err(Refusal::plain(sqlstate::NO_ACTIVE_SQL_TRANSACTION, text).into());
            }
            TransactionState::Announced(announced) if announced.health == Health::Failed => {
                let text = "the transaction was aborted with all its savepoints; only ROLLBACK can end it";
                return Err(Refusal::plain(sqlstate::IN_FAILED_SQL_TRANSACTION, text).into());
            }
            TransactionState::Announced(_) => self.begin_declared().await?,
            TransactionState::Open(_) => {}
        }
        per_statement::check_savepoint(self.scheduler.lock_time())?;
        self.check_writable("a savepoint in a read-only transaction")?;
        let went_back = matches!(sent.statement.verb, Verb::RollbackTo(_));
        if let TransactionState::Open(open) = &mut self.transaction {
            open.has_savepoints = true;
        }
        self.ship_own(text.to_owned(), &TableLocks::of_session(self.scheduler.id)).await?;
        if went_back {
            self.transaction.set_health(Health::Active);
        }
        Ok(())
    }

    fn check_writable(&self, what: &str) -> Result<(), Refusal> {
        match &self.transaction {
            TransactionState::Open(open) if open.mode == AccessMode::ReadOnly => {
                Err(refused(what, "Leave READ ONLY out."))
            }
            _ => Ok(()),
        }
    }

    async fn set(
        &mut self,
        name: &str,
        value: &SetValue,
        is_local: bool,
        text: &str,
    ) -> Result<&'static str, Fault> {
        let value = match value {
            SetValue::Text(value) => Some(value.as_str()),
            SetValue::Current | SetValue::Expression if Settings::is_own(name) || name == DECLARATION => {
                return Err(refused("SET of this form", "Give the value itself.").into());
            }
            SetValue::Default | SetValue::Current | SetValue::Expression => None,
        };
        if name == DECLARATION {
            return self.declare(value.unwrap_or_default());
        }
        per_statement::check_setting(self.scheduler.lock_time(), name)?;
        if let Some((_, why)) = FORBIDDEN.iter().find(|(forbidden, _)| *forbidden == name) {
            return Err(refused(format!("SET {name}"), why).into());
        }
        if name.starts_with("onecopy.") {
            return Err(refused(format!("SET {name}"), "It belongs to the protocol onecopy.").into());
        }
        if Settings::is_own(name) {
            let value = value.unwrap_or(match name {
                "default_transaction_read_only" => "off",
                _ => "read committed",
            });
            let before = self.settings.defaults.isolation;
            self.settings.defaults.set(name, value)?;
            if let Err(refusal) = self.scheduler.lock_time().check(self.settings.defaults.isolation) {
                self.settings.defaults.isolation = before;
                return Err(refusal.into());
            }
            return Ok("SET");
        }
        if name == "client_encoding"
            && !value.is_some_and(|v| v.to_ascii_uppercase().replace('-', "").starts_with("UTF8"))
        {
            return Err(refused("another client_encoding than UTF8", "Use UTF8.").into());
        }
        self.put(name, value, is_local, text).await?;
        Ok("SET")
    }

    /// Puts a setting into force.
    async fn put(
        &mut self,
        name: &str,
        value: Option<&str>,
        is_local: bool,
        text: &str,
    ) -> Result<(), Fault> {
        if self.transaction.is_none() {
            if is_local {
                let text = "SET LOCAL can only be used in transaction blocks";
                self.warn(sqlstate::NO_ACTIVE_SQL_TRANSACTION, text);
                return Ok(());
            }
            self.control_query(text).await?;
            self.settings.stage(name, value, text.trim_end().trim_end_matches(';'));
            self.settings.keep_staged();
            return self.refresh_settings().await;
        }
        if name.ends_with("_timeout") {
            // Statements that all replicas run are not interrupted. So the time-out applies to queries, after the
            // transaction.
            if let Some(value) = value {
                let value = value.replace('\\', "\\\\").replace('\'', "''");
                self.control_query(&format!("SELECT pg_catalog.set_config('{name}', E'{value}', true)"))
                    .await?;
            }
            if !is_local {
                self.settings.stage(name, value, text.trim_end().trim_end_matches(';'));
            }
            return Ok(());
        }
        self.begin_declared().await?;
        self.check_writable("a setting in a read-only transaction")?;
        if let TransactionState::Open(open) = &mut self.transaction {
            open.has_settings = true;
        }
        self.ship_own(text.to_owned(), &TableLocks::of_session(self.scheduler.id)).await?;
        if !is_local {
            self.settings.stage(name, value, text.trim_end().trim_end_matches(';'));
        }
        Ok(())
    }

    /// Declares the tables of the present transaction.
    fn declare(&mut self, words: &str) -> Result<&'static str, Fault> {
        if self.scheduler.lock_time().is_per_statement() {
            return Err(
                refused("a declaration of tables", "c-jdbc finds the tables of each statement.").into()
            );
        }
        let declaration =
            sql::profile::Declaration::parse(words).map_err(|error| misdeclared(&error.to_string()))?;
        match &mut self.transaction {
            TransactionState::Announced(announced) => announced.declared = Some(declaration),
            TransactionState::Open(_) => {
                return Err(Refusal::new(
                    sqlstate::ACTIVE_SQL_TRANSACTION,
                    "the transaction has begun with other locks",
                    "Declare its tables before its first statement.",
                )
                .into());
            }
            TransactionState::None => {
                return Err(refused(
                    "a declaration outside of a transaction",
                    "Say SET LOCAL onecopy.access after BEGIN; statements of their own need none.",
                )
                .into());
            }
        }
        Ok("SET")
    }

    async fn reset(&mut self, name: Option<&str>, text: &str) -> Result<&'static str, Fault> {
        match name {
            Some(name) if Settings::is_own(name) => {
                self.settings.defaults.isolation = self.settings.start_defaults.isolation;
                self.settings.defaults.read_only = self.settings.start_defaults.read_only;
            }
            Some(name) => self.put(name, None, false, text).await?,
            None if self.transaction.is_none() => {
                self.control_query("RESET ALL").await?;
                self.settings.reset();
                self.refresh_settings().await?;
            }
            None => return Err(refused("RESET ALL in a transaction", "Say it outside.").into()),
        }
        Ok("RESET")
    }

    async fn discard(&mut self, what: Discard) -> Result<&'static str, Fault> {
        if !self.transaction.is_none() {
            return Err(refused("DISCARD in a transaction", "Say it outside.").into());
        }
        match what {
            Discard::Plans => Ok("DISCARD PLANS"),
            Discard::Temporary => Ok("DISCARD TEMP"),
            Discard::Sequences => Ok("DISCARD SEQUENCES"),
            Discard::All => {
                self.control_query("RESET ALL; RESET SESSION AUTHORIZATION; RESET ROLE").await?;
                self.settings.discard();
                self.batch.forget();
                self.refresh_settings().await?;
                Ok("DISCARD ALL")
            }
        }
    }

    async fn show(&mut self, name: &str, sent: &ClientStatement<'_>, text: &str) -> Result<(), Fault> {
        let shown = match &self.transaction {
            _ if Settings::is_own(name) => {
                vec![vec![Some(self.settings.defaults.value(name, None).into_owned())]]
            }
            TransactionState::Open(_) => return Err(refused("SHOW in a transaction", "Ask outside.").into()),
            TransactionState::None | TransactionState::Announced(_) => self.control_query(text).await?,
        };
        if name == "all" {
            return Err(refused("SHOW ALL", "Select from pg_settings.").into());
        }
        if matches!(sent.form, Form::Simple | Form::Extended { describes: true, .. }) {
            encode::row_description(&mut self.client.out, &[name]);
        }
        for row in shown {
            let values: Vec<_> = row.iter().map(|value| value.as_ref().map(String::as_bytes)).collect();
            encode::data_row(&mut self.client.out, &values);
        }
        encode::command_complete(&mut self.client.out, "SHOW");
        Ok(())
    }
}

fn misdeclared(text: &str) -> Refusal {
    Refusal::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("cannot parse the declaration of tables: {text}"),
        "Write it like this: read item, author; write orders",
    )
}
