//! Statements about rows and the schema, alone or inside a transaction with locks.

use std::sync::Arc;

use cluster::protocols::shipping::Kind;
use sql::Catalogue;
use wire::sqlstate;

use super::locks::TableLocks;
use super::per_statement;
use super::query_cache::{self, Lookup};
use super::reply::rows_of;
use super::request::{RequestOutcome, SessionRequest};
use super::session::{ClientStatement, Session};
use super::shipment::{AccessMode, Command, Form, Reply, SideEffects};
use super::statement;
use super::statement::{Classified, Execution, ShippedText};
use super::transaction_state::{Block, Health, Shipped, TransactionState};
use crate::error::{Fault, Refusal};

impl Session {
    /// Runs a statement about rows or the schema.
    pub(super) async fn data(&mut self, sent: &ClientStatement<'_>) -> Result<(), Fault> {
        let text = text_of(sent)?;
        if let TransactionState::Announced(announced) = &mut self.transaction
            && announced.declared.is_none()
            && let Some(Ok(declaration)) =
                sql::profile::declaration_of(&String::from_utf8_lossy(sent.commented))
        {
            announced.declared = Some(declaration);
        }
        match &self.transaction {
            TransactionState::None => self.run_single(sent, text).await,
            TransactionState::Announced(_) => {
                self.begin_with(sent, text).await?;
                self.run_inside(sent, text).await
            }
            TransactionState::Open(_) => self.run_inside(sent, text).await,
        }
    }

    /// Runs a statement that is a transaction of its own.
    async fn run_single(&mut self, sent: &ClientStatement<'_>, text: &str) -> Result<(), Fault> {
        loop {
            let catalogue = self.worker.coordinator.database.catalogue();
            let classified = statement::classify(sent.statement, text, &catalogue)?;
            let is_per_statement = self.scheduler.lock_time().is_per_statement();
            let is_writing = per_statement::is_writing(self.scheduler.lock_time(), classified.execution);
            if is_writing && self.settings.defaults.read_only {
                return Err(read_only().into());
            }
            let is_one_message = match classified.execution {
                Execution::Read | Execution::UnprovenRead => true,
                Execution::LockingRead => !is_per_statement,
                Execution::Write => {
                    !is_per_statement
                        && !classified.locks.are_everything()
                        && matches!(self.shipped_text(sent, text, &catalogue)?, ShippedText::Same)
                }
                Execution::Plain | Execution::Ddl | Execution::Draw => false,
            };
            if !is_one_message || classified.locks.are_everything() {
                self.begin(AccessMode::ReadWrite, Block::Implicit, |catalogue| {
                    let classified = statement::classify(sent.statement, text, catalogue)?;
                    let mut locks = classified.locks;
                    if classified.execution == Execution::Write
                        && let ShippedText::Rewritten(rewrite) = shipped_text(sent, text, true, catalogue)?
                        && let Some((_, names)) = statement::evaluation(&rewrite)?
                    {
                        locks.add(&statement::sequence_locks(&names));
                    }
                    Ok(locks)
                })
                .await?;
                let ran = self.run_inside(sent, text).await;
                let has_failed = matches!(&self.transaction, TransactionState::Open(open) if open.health == Health::Failed);
                self.end_implicit(ran.is_ok() && !has_failed).await?;
                return ran;
            }
            let lookup = match classified.execution {
                Execution::Read => self.look_up(sent, text, &catalogue),
                _ => Lookup::Replica,
            };
            if matches!(lookup, Lookup::Given) {
                return Ok(());
            }
            let mut command = self.command(sent, sent.text.to_vec());
            command.side_effects = match classified.execution {
                Execution::LockingRead => SideEffects::NeedsWrite,
                Execution::UnprovenRead => SideEffects::Unproven,
                _ => SideEffects::None,
            };
            let request = if is_writing {
                self.check_log()?;
                SessionRequest::SingleUpdate(classified.locks.set(), command)
            } else {
                let locks = query_cache::locks_of_read(&lookup, sent, classified.locks, &catalogue);
                SessionRequest::SingleRead(locks.set(), command)
            };
            if let Some(mut outcome) = self.request(request, catalogue.generation()).await? {
                if let Lookup::Asked(asked) = lookup {
                    self.keep(asked, &mut outcome);
                }
                return self.relay(outcome);
            }
        }
    }

    /// Runs a statement inside a transaction with locks.
    async fn run_inside(&mut self, sent: &ClientStatement<'_>, text: &str) -> Result<(), Fault> {
        let catalogue = self.worker.coordinator.database.catalogue();
        let classified = statement::classify(sent.statement, text, &catalogue)?;
        let TransactionState::Open(open) = &self.transaction else { return Err(Fault::Client) };
        let Classified { execution, locks } = classified.clone();
        let is_writing = per_statement::is_writing(self.scheduler.lock_time(), execution);
        if is_writing && open.mode == AccessMode::ReadOnly {
            return Err(read_only().into());
        }
        // Defaults and triggers after the change are unknown until the catalogue is read again.
        if execution == Execution::Write && open.shipped == Shipped::SchemaChange {
            let what = "a write after a schema change in the same transaction";
            return Err(statement::refused(what, "Give the schema change a transaction of its own.").into());
        }
        if execution == Execution::UnprovenRead && open.mode == AccessMode::ReadWrite {
            return Err(statement::refused(
                "a query that may be more than a query, inside a transaction that may write",
                "Run it outside of the transaction, or say READ ONLY.",
            )
            .into());
        }
        if self.scheduler.lock_time().is_per_statement() {
            let is_alone = open.locks.are_everything();
            per_statement::check(self.scheduler.lock_time(), &classified, text, is_alone)?;
        } else if let Some(lacking) = open.locks.lack(&locks, &catalogue) {
            return Err(Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("the transaction did not declare that it would {lacking}"),
                "All tables of a transaction are locked when it begins; declare this one, too.",
            )
            .into());
        }
        match execution {
            Execution::Read | Execution::UnprovenRead | Execution::LockingRead => {
                let mut command = self.command(sent, sent.text.to_vec());
                if execution == Execution::UnprovenRead {
                    command.side_effects = SideEffects::Unproven;
                }
                let kind = if is_writing { Kind::Write } else { Kind::Read };
                if is_writing {
                    self.note_shipped(Shipped::Writes, command.bytes())?;
                }
                let outcome = self.execute_command(kind, &locks, command).await?;
                self.relay(outcome)
            }
            Execution::Draw => self.draw(sent, text, &locks).await,
            Execution::Ddl | Execution::Plain => {
                let shipped =
                    if execution == Execution::Ddl { Shipped::SchemaChange } else { Shipped::Writes };
                self.note_shipped(shipped, sent.text.len())?;
                if let TransactionState::Open(open) = &mut self.transaction {
                    open.changes_roles |= query_cache::changes_roles(&sent.statement.verb, text);
                }
                let command = self.command(sent, sent.text.to_vec());
                let outcome = self.execute_command(Kind::Write, &locks, command).await?;
                self.relay(outcome)
            }
            Execution::Write => self.write(sent, text, &locks, &catalogue).await,
        }
    }

    /// Draws from sequences at one replica, and ships their state to the others.
    async fn draw(
        &mut self,
        sent: &ClientStatement<'_>,
        text: &str,
        locks: &TableLocks,
    ) -> Result<(), Fault> {
        let mut command = self.command(sent, sent.text.to_vec());
        command.after = Some(statement::ask_states(&statement::drawn_from(text)));
        let outcome = self.execute_command(Kind::Read, locks, command).await?;
        let states = outcome.reply.as_ref().map(|reply| reply.asked.clone()).unwrap_or_default();
        self.relay(outcome)?;
        let sql = statement::move_to(&states)
            .ok_or_else(|| Refusal::plain(sqlstate::INTERNAL_ERROR, "a sequence did not report its state"))?;
        self.ship_own(sql, locks).await
    }

    /// Ships a statement of Onecopy's own to all replicas.
    pub(super) async fn ship_own(&mut self, sql: String, locks: &TableLocks) -> Result<(), Fault> {
        self.note_shipped(Shipped::Writes, sql.len())?;
        let command = self.command_of(sql.into_bytes(), Form::Simple, sql::TemplateId::default());
        let outcome = self.execute_command(Kind::Write, locks, command).await?;
        match outcome.reply.and_then(|reply| reply.error) {
            Some(body) => Err(Fault::Server(body)),
            None => Ok(()),
        }
    }

    async fn write(
        &mut self,
        sent: &ClientStatement<'_>,
        text: &str,
        locks: &TableLocks,
        catalogue: &Catalogue,
    ) -> Result<(), Fault> {
        let mut locks = locks.clone();
        let mut before = None;
        let shipped = match self.shipped_text(sent, text, catalogue)? {
            ShippedText::Same => sent.text.to_vec(),
            ShippedText::Rewritten(rewrite) => {
                let mut values = Vec::new();
                if let Some((query, names)) = statement::evaluation(&rewrite)? {
                    let TransactionState::Open(open) = &self.transaction else { return Err(Fault::Client) };
                    let drawn = statement::sequence_locks(&names);
                    locks.add(&drawn);
                    if self.scheduler.lock_time().is_per_statement() {
                        per_statement::check_evaluation(self.scheduler.lock_time(), &query, &names)?;
                    } else if let Some(lacking) = open.locks.lack(&drawn, catalogue) {
                        let text = format!("the transaction did not declare that it would {lacking}");
                        return Err(Refusal::plain(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, text).into());
                    }
                    let mut asked =
                        self.command_of(query.into_bytes(), Form::Simple, sql::TemplateId::default());
                    asked.after = (!names.is_empty()).then(|| statement::ask_states(&names));
                    let outcome = self.execute_command(Kind::Read, &locks, asked).await?;
                    let reply = outcome.reply.ok_or_else(lost)?;
                    if let Some(body) = reply.error {
                        return Err(Fault::Server(body));
                    }
                    values = rows_of(&reply.bytes).into_iter().next().unwrap_or_default();
                    before = statement::move_to(&reply.asked).filter(|sql| !sql.is_empty());
                }
                let TransactionState::Open(open) = &self.transaction else { return Err(Fault::Client) };
                statement::with_constants(&rewrite, open.now_us, &values)?.into_bytes()
            }
        };
        let mut command = self.command(sent, shipped);
        command.before = before;
        self.note_shipped(Shipped::Writes, command.bytes())?;
        let outcome = self.execute_command(Kind::Write, &locks, command).await?;
        self.relay(outcome)
    }

    fn shipped_text(
        &self,
        sent: &ClientStatement<'_>,
        text: &str,
        catalogue: &Catalogue,
    ) -> Result<ShippedText, Refusal> {
        shipped_text(sent, text, self.settings.noted.conforming, catalogue)
    }

    /// Counts a statement that the open transaction is about to ship.
    fn note_shipped(&mut self, shipped: Shipped, bytes: usize) -> Result<(), Refusal> {
        match &mut self.transaction {
            TransactionState::Open(open) => open.note_shipped(shipped, bytes),
            TransactionState::None | TransactionState::Announced(_) => Ok(()),
        }
    }

    /// Rejects a write if the log has no room.
    pub(super) fn check_log(&self) -> Result<(), Refusal> {
        match self.worker.coordinator.core.refusal() {
            None => Ok(()),
            Some(reason) => Err(Refusal::of_log(reason)),
        }
    }

    /// The command that runs a statement of the client with this text.
    fn command(&self, sent: &ClientStatement<'_>, text: Vec<u8>) -> Command {
        let mut form = sent.form.clone();
        // Servers may keep a statement parsed only if it has the same text each time, and runs under the settings and
        // the schema of all transactions.
        let has_own_environment = matches!(&self.transaction, TransactionState::Open(open) if open.has_own_environment())
            || !sent.statement.settings.is_empty();
        if let Form::Extended { number, .. } = &mut form
            && (has_own_environment || text != sent.text)
        {
            *number = None;
        }
        self.command_of(text, form, sent.statement.template)
    }

    fn command_of(&self, text: Vec<u8>, form: Form, template: sql::TemplateId) -> Command {
        Command {
            role: Arc::clone(&self.identity.role),
            settings: Arc::clone(&self.identity.settings),
            before: None,
            text,
            form,
            after: None,
            side_effects: SideEffects::None,
            mode: self.transaction.mode(),
            template,
        }
    }

    /// Runs the next command of the open transaction.
    async fn execute_command(
        &mut self,
        kind: Kind,
        locks: &TableLocks,
        command: Command,
    ) -> Result<RequestOutcome, Fault> {
        let set =
            if self.scheduler.lock_time().is_per_statement() { locks.set_by_rows() } else { locks.set() };
        if let TransactionState::Open(open) = &mut self.transaction
            && kind == Kind::Write
        {
            open.written.add(locks);
        }
        match self.request(SessionRequest::Execute(kind, set, command), 0).await? {
            Some(outcome) => Ok(outcome),
            None => Err(Fault::Client),
        }
    }

    /// Relays a reply. An error of the statement becomes one of the session.
    fn relay(&mut self, outcome: RequestOutcome) -> Result<(), Fault> {
        let Reply { bytes, error, .. } = outcome.reply.ok_or_else(lost)?;
        self.client.out.extend_from_slice(&bytes);
        match error {
            Some(body) => Err(Fault::Server(body)),
            None => Ok(()),
        }
    }
}

/// The statement as text.
pub(super) fn text_of<'a>(sent: &ClientStatement<'a>) -> Result<&'a str, Refusal> {
    std::str::from_utf8(sent.text)
        .map_err(|_| Refusal::plain(sqlstate::SYNTAX_ERROR, "the statement is not UTF-8"))
}

/// The text that all replicas run, if there is one.
fn shipped_text(
    sent: &ClientStatement<'_>,
    text: &str,
    is_conforming: bool,
    catalogue: &Catalogue,
) -> Result<ShippedText, Refusal> {
    let mut types = Vec::new();
    if let Form::Copy(data) = &sent.form {
        let fields = data.split(|byte| matches!(byte, b'\t' | b'\n' | b',' | b'"'));
        let looks = |field: &[u8]| sql::may_read_clock(&String::from_utf8_lossy(field));
        if has_times(sent, catalogue) && fields.into_iter().any(looks) {
            let what = "a value in COPY that a date or time type would read off the clock";
            return Err(statement::refused(what, "Give the instant itself."));
        }
    }
    if let Form::Extended { types: declared, values, .. } = &sent.form {
        if wire::oids::declares_users(declared) {
            let what = "a parameter of a type that did not come with the server";
            return Err(statement::refused(what, "Give it as text, and cast it in the statement."));
        }
        types = declared
            .get(2..)
            .unwrap_or_default()
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| u32::from_be_bytes(*b))
            .collect();
        let values = wire::frontend::bound_values(values)
            .map_err(|_| Refusal::plain(sqlstate::PROTOCOL_VIOLATION, "malformed parameters"))?;
        for (index, (is_binary, value)) in values.into_iter().enumerate() {
            // 25, 1043, 1042: a parameter declared as text stays text.
            let is_text = matches!(types.get(index), Some(25 | 1042 | 1043));
            let looks = value.is_some_and(|value| sql::may_read_clock(&String::from_utf8_lossy(value)));
            if !is_binary && !is_text && looks {
                let what = "a parameter that a date or time type would read off the clock";
                return Err(statement::refused(
                    what,
                    "Give the instant itself, or declare the parameter as text.",
                ));
            }
        }
    }
    let has_looked = matches!(sent.form, Form::Copy(_));
    statement::shipped_text(text, &types, is_conforming, has_looked, catalogue)
}

/// Whether a table that it writes has columns whose input could read the clock from a text.
fn has_times(sent: &ClientStatement<'_>, catalogue: &Catalogue) -> bool {
    let tables = sent.statement.writes.iter().map(|name| catalogue.tables_named(name));
    tables
        .into_iter()
        .any(|found| found.is_none_or(|ids| ids.iter().any(|id| catalogue.table(*id).is_none_or(has_time))))
}

fn has_time(table: &sql::Table) -> bool {
    // Numbers, texts, bytes and their like. Any other type could.
    const TIMELESS: [u32; 16] =
        [16, 17, 20, 21, 23, 25, 114, 700, 701, 869, 1042, 1043, 1186, 1700, 2950, 3802];
    table.coded_types || table.columns.iter().any(|column| !TIMELESS.contains(&column.type_oid))
}

pub(super) fn read_only() -> Refusal {
    Refusal::plain(sqlstate::READ_ONLY_SQL_TRANSACTION, "cannot write in a read-only transaction")
}

/// The error if a replica has run the statement and was lost before its reply arrived.
fn lost() -> Fault {
    Fault::Fatal(Refusal::plain(
        sqlstate::CONNECTION_FAILURE,
        "the transaction is done, but the replica that had its result was lost",
    ))
}
