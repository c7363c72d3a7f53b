//! Transaction control: BEGIN, COMMIT, ROLLBACK and their kin are the session's own, servers see ours.
//!
//! BEGIN is answered at once and sent with the first statement, whose routing decides where the transaction is. An
//! explicit transaction whose home or replica is lost is failed, as after any error: the client says ROLLBACK.

use sql::{TransactionOptions, Verb};
use wire::{encode, sqlstate};

use super::{Session, Transaction};
use crate::client::own_settings::Severity;
use crate::error::{Fault, Refusal};
use crate::pool::servers::Server;
use crate::relay::{Ended, Relay};

impl Session {
    /// Handles transaction control; the command tag, or `None` when the statement is something else.
    pub(crate) async fn control(&mut self, verb: &Verb) -> Result<Option<&'static str>, Fault> {
        match verb {
            Verb::Begin(options) => self.begin(*options).map(Some),
            Verb::Commit { chain } => self.commit(*chain).await.map(Some),
            Verb::Rollback { chain } => self.roll_back(*chain).await.map(Some),
            Verb::SetTransaction(options) => self.set_transaction(*options),
            Verb::SetSessionCharacteristics(options) => {
                self.settings.isolation = options.isolation.unwrap_or(self.settings.isolation);
                self.settings.read_only = options.read_only.unwrap_or(self.settings.read_only);
                Ok(Some("SET"))
            }
            _ => Ok(None),
        }
    }

    fn begin(&mut self, options: TransactionOptions) -> Result<&'static str, Fault> {
        match &mut self.transaction {
            Transaction::None => self.transaction = Transaction::Begun(options),
            // BEGIN inside a query string makes the implicit transaction explicit.
            Transaction::Update(update) if update.is_implicit => {
                if options != TransactionOptions::default() {
                    return Err(Refusal::unsupported(
                        "BEGIN with options after other statements in one query string",
                        "Send BEGIN first.",
                    )
                    .into());
                }
                update.is_implicit = false;
            }
            _ => self.warn(sqlstate::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress"),
        }
        Ok("BEGIN")
    }

    async fn commit(&mut self, chain: bool) -> Result<&'static str, Fault> {
        let failed = self.failed;
        let options = self.open_options();
        let tag = if failed { "ROLLBACK" } else { "COMMIT" };
        match &self.transaction {
            Transaction::None => {
                if chain {
                    return Err(no_transaction("COMMIT AND CHAIN"));
                }
                self.warn(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
            }
            Transaction::Begun(_) => self.end_local(!failed),
            Transaction::Lost(_) => self.end_local(false),
            Transaction::Read(_) => self.end_read(!failed).await,
            Transaction::Update(_) => {
                self.warn_if_implicit();
                if failed {
                    self.roll_back_home().await;
                } else {
                    self.commit_home().await?;
                }
            }
        }
        self.chain(chain, options);
        Ok(tag)
    }

    async fn roll_back(&mut self, chain: bool) -> Result<&'static str, Fault> {
        let options = self.open_options();
        match &self.transaction {
            Transaction::None => {
                if chain {
                    return Err(no_transaction("ROLLBACK AND CHAIN"));
                }
                self.warn(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
            }
            Transaction::Begun(_) | Transaction::Lost(_) => self.end_local(false),
            Transaction::Read(_) => self.end_read(false).await,
            Transaction::Update(_) => {
                self.warn_if_implicit();
                self.roll_back_home().await;
            }
        }
        self.chain(chain, options);
        Ok("ROLLBACK")
    }

    /// Whether the open transaction is one that the client did not ask for.
    pub(crate) fn is_implicit(&self) -> bool {
        matches!(&self.transaction, Transaction::Update(update) if update.is_implicit)
    }

    fn warn_if_implicit(&mut self) {
        if self.is_implicit() {
            self.warn(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
        }
    }

    fn chain(&mut self, chain: bool, options: Option<TransactionOptions>) {
        if let (true, Some(options)) = (chain, options) {
            self.transaction = Transaction::Begun(options);
        }
    }

    /// The options of the open transaction.
    pub(crate) fn open_options(&self) -> Option<TransactionOptions> {
        match &self.transaction {
            Transaction::None => None,
            Transaction::Begun(options) => Some(self.resolve(*options)),
            Transaction::Lost(options) => Some(*options),
            Transaction::Read(read) => Some(read.options),
            Transaction::Update(update) => Some(update.options),
        }
    }

    /// Ends a read-only transaction on its replica.
    async fn end_read(&mut self, commit: bool) {
        let Transaction::Read(read) = &self.transaction else { return };
        let replica = read.replica;
        let server = self.servers.get(replica);
        server.query_own(if commit { "COMMIT" } else { "ROLLBACK" });
        let ended = Relay::new(&mut self.client, server, None).run(Self::silent()).await;
        if !matches!(ended, Ok(Ended { error: None, .. })) {
            // It only read, and what it read was right: the end of the connection is its end.
            self.abandon_read();
            self.end_local(false);
            return;
        }
        self.end_local(commit);
    }

    /// The client is gone: whoever uses the connection next finds no transaction there.
    pub(crate) async fn leave_read(&mut self) {
        let Transaction::Read(read) = &self.transaction else { return };
        let replica = read.replica;
        let is_sent = |server: &mut Server| server.ahead.is_empty() && server.connection.is_in_step();
        if self.servers.is_shared() && self.servers.find(replica).is_some_and(is_sent) {
            self.end_read(false).await;
        }
        self.transaction = Transaction::None;
    }

    fn set_transaction(&mut self, said: TransactionOptions) -> Result<Option<&'static str>, Fault> {
        match &mut self.transaction {
            Transaction::Begun(options) => {
                options.isolation = said.isolation.or(options.isolation);
                options.read_only = said.read_only.or(options.read_only);
                options.deferrable = said.deferrable.or(options.deferrable);
                Ok(Some("SET"))
            }
            Transaction::None => {
                self.warn(
                    sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                    "SET TRANSACTION can only be used in transaction blocks",
                );
                Ok(Some("SET"))
            }
            Transaction::Read(read) => still(read.options, said),
            Transaction::Update(update) => still(update.options, said),
            Transaction::Lost(_) => Err(Fault::Lost(self.last_home)),
        }
    }

    pub(crate) fn warn(&mut self, code: &str, text: &str) {
        self.tell_client(Severity::Warning, code, text, None);
    }

    /// A message of our own, if the client wants such.
    pub(crate) fn tell_client(&mut self, severity: Severity, code: &str, text: &str, hint: Option<&str>) {
        let word = if severity == Severity::Notice { "NOTICE" } else { "WARNING" };
        if severity >= self.settings.noted.least {
            encode::notice(&mut self.client.out, word, code, text, hint);
        }
    }
}

/// After the first statement a transaction may be told to be what it is already. PostgreSQL would let it become READ ONLY
/// as well; here it could not write its own identity any more.
fn still(now: TransactionOptions, said: TransactionOptions) -> Result<Option<&'static str>, Fault> {
    let late = |what: &str| {
        let text = format!("{what} must be set before any query of the transaction");
        Err(Refusal::plain(sqlstate::ACTIVE_SQL_TRANSACTION, text).into())
    };
    if said.isolation.is_some() && said.isolation != now.isolation {
        return late("the isolation level");
    }
    match said.read_only {
        Some(true) if now.read_only != Some(true) => late("read-only mode"),
        Some(false) if now.read_only == Some(true) => late("read-write mode"),
        _ => Ok(Some("SET")),
    }
}

fn no_transaction(what: &str) -> Fault {
    Refusal::plain(
        sqlstate::NO_ACTIVE_SQL_TRANSACTION,
        format!("{what} can only be used in transaction blocks"),
    )
    .into()
}
