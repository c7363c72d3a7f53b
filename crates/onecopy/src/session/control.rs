//! Transaction control: the session handles BEGIN, COMMIT, ROLLBACK and the like itself. Servers get Onecopy's own
//! commands.
//!
//! BEGIN is answered at once, and goes to a server with the first statement, whose analysis decides where the
//! transaction runs. When the home of an explicit transaction is lost, the transaction is failed, as after any error,
//! until the client says ROLLBACK.

use sql::{TransactionOptions, Verb};
use wire::sqlstate;

use super::Session;
use crate::error::{Fault, Refusal};
use crate::transaction::open::Transaction;
use crate::transaction::update::Boundary;

impl Session {
    /// Handles transaction control. Returns the command tag, or `None` for any other statement.
    pub(crate) async fn control(&mut self, verb: &Verb) -> Result<Option<&'static str>, Fault> {
        match verb {
            Verb::Begin(options) => self.begin(*options).map(Some),
            Verb::Commit { chain } => self.commit(*chain).await.map(Some),
            Verb::Rollback { chain } => self.roll_back(*chain).await.map(Some),
            Verb::SetTransaction(options) => self.set_transaction(*options),
            Verb::SetSessionCharacteristics(options) => {
                self.link.settings.defaults.isolation =
                    options.isolation.unwrap_or(self.link.settings.defaults.isolation);
                self.link.settings.defaults.read_only =
                    options.read_only.unwrap_or(self.link.settings.defaults.read_only);
                Ok(Some("SET"))
            }
            _ => Ok(None),
        }
    }

    fn begin(&mut self, options: TransactionOptions) -> Result<&'static str, Fault> {
        match &mut self.txn.state {
            Transaction::None => self.txn.state = Transaction::Begun(options),
            // BEGIN inside a query string makes the implicit transaction explicit.
            Transaction::Update(update) if update.boundary.is_implicit() => {
                if options != TransactionOptions::default() {
                    return Err(Refusal::unsupported(
                        "BEGIN with options after other statements in one query string",
                        "Send BEGIN first.",
                    )
                    .into());
                }
                update.boundary = Boundary::Block;
            }
            _ => {
                self.link
                    .warn(sqlstate::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress");
            }
        }
        Ok("BEGIN")
    }

    async fn commit(&mut self, chain: bool) -> Result<&'static str, Fault> {
        let failed = self.txn.failed;
        let options = self.view().open_options();
        let tag = if failed { "ROLLBACK" } else { "COMMIT" };
        match &self.txn.state {
            Transaction::None => {
                if chain {
                    return Err(no_transaction("COMMIT AND CHAIN"));
                }
                self.link.warn(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
            }
            Transaction::Begun(_) => self.driver().end_local(!failed),
            Transaction::Lost(_) => self.driver().end_local(false),
            Transaction::Read(_) => self.driver().end_read(!failed).await,
            Transaction::Update(_) => {
                self.warn_if_implicit();
                if failed {
                    self.driver().roll_back_home().await;
                } else {
                    self.committer().commit_home().await?;
                }
            }
        }
        self.txn.chain(chain, options);
        Ok(tag)
    }

    async fn roll_back(&mut self, chain: bool) -> Result<&'static str, Fault> {
        let options = self.view().open_options();
        match &self.txn.state {
            Transaction::None => {
                if chain {
                    return Err(no_transaction("ROLLBACK AND CHAIN"));
                }
                self.link.warn(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
            }
            Transaction::Begun(_) | Transaction::Lost(_) => self.driver().end_local(false),
            Transaction::Read(_) => self.driver().end_read(false).await,
            Transaction::Update(_) => {
                self.warn_if_implicit();
                self.driver().roll_back_home().await;
            }
        }
        self.txn.chain(chain, options);
        Ok("ROLLBACK")
    }

    fn warn_if_implicit(&mut self) {
        if self.txn.is_implicit() {
            self.link.warn(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
        }
    }

    fn set_transaction(&mut self, said: TransactionOptions) -> Result<Option<&'static str>, Fault> {
        match &mut self.txn.state {
            Transaction::Begun(options) => {
                options.isolation = said.isolation.or(options.isolation);
                options.read_only = said.read_only.or(options.read_only);
                options.deferrable = said.deferrable.or(options.deferrable);
                Ok(Some("SET"))
            }
            Transaction::None => {
                self.link.warn(
                    sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                    "SET TRANSACTION can only be used in transaction blocks",
                );
                Ok(Some("SET"))
            }
            Transaction::Read(read) => still(read.options, said),
            Transaction::Update(update) => still(update.options, said),
            Transaction::Lost(_) => Err(Fault::Lost(self.txn.last_home)),
        }
    }
}

/// After the first statement, SET TRANSACTION may only repeat the present options. PostgreSQL would also accept READ
/// ONLY; here the transaction could then not write its own identity.
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
