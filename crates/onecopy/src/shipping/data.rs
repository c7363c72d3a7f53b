//! Statements about rows and the schema: alone, or inside a transaction whose locks are held.

use std::sync::Arc;

use cluster::protocols::shipping::Kind;
use commitlog::LogRefusal;
use sql::Catalogue;
use wire::sqlstate;

use super::decided::TRANSACTION_BYTES_MAX;
use super::lane::rows_of;
use super::session::{Sent, Session, State};
use super::shipment::{Form, Reply, Shipment};
use super::statement;
use super::statement::{Known, Text, Way};
use super::{Ask, Told};
use crate::error::{Fault, Refusal};

impl Session {
    /// A statement about rows or the schema.
    pub(super) async fn data(&mut self, sent: &Sent<'_>) -> Result<(), Fault> {
        let text = text_of(sent)?;
        if let State::Begun(begun) = &mut self.state
            && begun.declared.is_none()
            && let Some(Ok(declaration)) =
                sql::profile::declaration_of(&String::from_utf8_lossy(sent.commented))
        {
            begun.declared = Some(declaration);
        }
        match &self.state {
            State::None => self.single(sent, text).await,
            State::Begun(_) => {
                self.hold_declared().await?;
                self.inside(sent, text).await
            }
            State::Open(_) => self.inside(sent, text).await,
        }
    }

    /// A statement that is a transaction of its own.
    async fn single(&mut self, sent: &Sent<'_>, text: &str) -> Result<(), Fault> {
        loop {
            let catalogue = self.worker.coordinator.catalogue();
            let known = statement::know(sent.statement, text, &catalogue)?;
            let is_writing = matches!(known.way, Way::Write | Way::Plain | Way::Ddl | Way::Draw);
            if is_writing && self.settings.read_only {
                return Err(read_only().into());
            }
            let is_one_message = match known.way {
                Way::Read | Way::UnprovenRead | Way::LockingRead => true,
                Way::Write => {
                    !known.locks.are_everything() && matches!(self.alike(sent, text, &catalogue)?, Text::Same)
                }
                Way::Plain | Way::Ddl | Way::Draw => false,
            };
            if !is_one_message || known.locks.are_everything() {
                self.hold(false, true, |catalogue| {
                    let known = statement::know(sent.statement, text, catalogue)?;
                    let mut locks = known.locks;
                    if known.way == Way::Write
                        && let Text::Rewritten(rewrite) = alike(sent, text, true, catalogue)?
                        && let Some((_, names)) = statement::evaluation(&rewrite)?
                    {
                        locks.add(&statement::draws(&names));
                    }
                    Ok(locks)
                })
                .await?;
                let ran = self.inside(sent, text).await;
                let has_failed = matches!(&self.state, State::Open(open) if open.has_failed);
                self.end_implicit(ran.is_ok() && !has_failed).await?;
                return ran;
            }
            let mut shipment = self.shipment(sent, sent.text.to_vec());
            shipment.needs_write = known.way == Way::LockingRead;
            shipment.is_unproven = known.way == Way::UnprovenRead;
            let ask = if is_writing {
                self.check_log()?;
                Ask::SingleUpdate(known.locks.set(), shipment)
            } else {
                Ask::SingleRead(known.locks.set(), shipment)
            };
            if let Some(told) = self.ask(ask, catalogue.generation()).await? {
                return self.relay(told);
            }
        }
    }

    /// A statement inside a transaction whose locks are held.
    async fn inside(&mut self, sent: &Sent<'_>, text: &str) -> Result<(), Fault> {
        let catalogue = self.worker.coordinator.catalogue();
        let known = statement::know(sent.statement, text, &catalogue)?;
        let State::Open(open) = &self.state else { return Err(Fault::Client) };
        let Known { way, locks } = known;
        let is_writing = matches!(way, Way::Write | Way::Plain | Way::Ddl | Way::Draw);
        if is_writing && open.is_read_only {
            return Err(read_only().into());
        }
        // What the change made of defaults and triggers is not known before the catalogue is read again.
        if way == Way::Write && open.has_ddl {
            let what = "a write after a schema change in the same transaction";
            return Err(statement::refused(what, "Give the schema change a transaction of its own.").into());
        }
        if way == Way::UnprovenRead && !open.is_read_only {
            return Err(statement::refused(
                "a query that may be more than a query, inside a transaction that may write",
                "Run it outside of the transaction, or say READ ONLY.",
            )
            .into());
        }
        if let Some(lacking) = open.locks.lack(&locks, &catalogue) {
            return Err(Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("the transaction did not declare that it would {lacking}"),
                "All tables of a transaction are locked when it begins; declare this one, too.",
            )
            .into());
        }
        match way {
            Way::Read | Way::UnprovenRead | Way::LockingRead => {
                let mut shipment = self.shipment(sent, sent.text.to_vec());
                shipment.is_unproven = way == Way::UnprovenRead;
                let told = self.operate(Kind::Read, shipment).await?;
                self.relay(told)
            }
            Way::Draw => self.draw(sent, text).await,
            Way::Ddl | Way::Plain => {
                self.note_written(way == Way::Ddl, sent.text.len())?;
                let shipment = self.shipment(sent, sent.text.to_vec());
                let told = self.operate(Kind::Write, shipment).await?;
                self.relay(told)
            }
            Way::Write => self.write(sent, text, &catalogue).await,
        }
    }

    /// Draws at one replica, and tells the others how far the sequences have come.
    async fn draw(&mut self, sent: &Sent<'_>, text: &str) -> Result<(), Fault> {
        let mut shipment = self.shipment(sent, sent.text.to_vec());
        shipment.after = Some(statement::ask_states(&statement::drawn_from(text)));
        let told = self.operate(Kind::Read, shipment).await?;
        let states = told.reply.as_ref().map(|reply| reply.asked.clone()).unwrap_or_default();
        self.relay(told)?;
        let sql = statement::move_to(&states)
            .ok_or_else(|| Refusal::plain(sqlstate::INTERNAL_ERROR, "a sequence does not tell its state"))?;
        self.ship_own(sql).await
    }

    /// A statement of ours that all replicas run.
    pub(super) async fn ship_own(&mut self, sql: String) -> Result<(), Fault> {
        self.note_written(false, sql.len())?;
        let shipment = self.shipment_of(sql.into_bytes(), Form::Simple, sql::TemplateId::default());
        let told = self.operate(Kind::Write, shipment).await?;
        match told.reply.and_then(|reply| reply.error) {
            Some(body) => Err(Fault::Server(body)),
            None => Ok(()),
        }
    }

    async fn write(&mut self, sent: &Sent<'_>, text: &str, catalogue: &Catalogue) -> Result<(), Fault> {
        let mut before = None;
        let shipped = match self.alike(sent, text, catalogue)? {
            Text::Same => sent.text.to_vec(),
            Text::Rewritten(rewrite) => {
                let mut values = Vec::new();
                if let Some((query, names)) = statement::evaluation(&rewrite)? {
                    let State::Open(open) = &self.state else { return Err(Fault::Client) };
                    if let Some(lacking) = open.locks.lack(&statement::draws(&names), catalogue) {
                        let text = format!("the transaction did not declare that it would {lacking}");
                        return Err(Refusal::plain(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, text).into());
                    }
                    let mut asked =
                        self.shipment_of(query.into_bytes(), Form::Simple, sql::TemplateId::default());
                    asked.after = (!names.is_empty()).then(|| statement::ask_states(&names));
                    let told = self.operate(Kind::Read, asked).await?;
                    let reply = told.reply.ok_or_else(lost)?;
                    if let Some(body) = reply.error {
                        return Err(Fault::Server(body));
                    }
                    values = rows_of(&reply.bytes).into_iter().next().unwrap_or_default();
                    before = statement::move_to(&reply.asked).filter(|sql| !sql.is_empty());
                }
                let State::Open(open) = &self.state else { return Err(Fault::Client) };
                statement::with_constants(&rewrite, open.now_us, &values)?.into_bytes()
            }
        };
        let mut shipment = self.shipment(sent, shipped);
        shipment.before = before;
        self.note_written(false, shipment.bytes())?;
        let told = self.operate(Kind::Write, shipment).await?;
        self.relay(told)
    }

    fn alike(&self, sent: &Sent<'_>, text: &str, catalogue: &Catalogue) -> Result<Text, Refusal> {
        alike(sent, text, self.settings.noted.conforming, catalogue)
    }

    /// The transaction ships so much more.
    fn note_written(&mut self, has_ddl: bool, bytes: usize) -> Result<(), Refusal> {
        let State::Open(open) = &mut self.state else { return Ok(()) };
        open.has_written = true;
        open.has_ddl |= has_ddl;
        open.bytes += bytes;
        if open.bytes > TRANSACTION_BYTES_MAX {
            return Err(Refusal::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!(
                    "the statements of a transaction may have {} MB at most",
                    TRANSACTION_BYTES_MAX >> 20
                ),
                "Do it in several transactions.",
            ));
        }
        Ok(())
    }

    pub(super) fn check_log(&self) -> Result<(), Refusal> {
        match self.worker.coordinator.log.refusal() {
            None => Ok(()),
            Some(LogRefusal::DiskFull) => {
                let hint = "Make room where Onecopy's log is.";
                Err(Refusal::new(sqlstate::DISK_FULL, "the disk of the log is full", hint))
            }
        }
    }

    fn shipment(&self, sent: &Sent<'_>, text: Vec<u8>) -> Shipment {
        let mut form = sent.form.clone();
        // Kept is only what is the same text each time, under the settings and the schema that are everybody's.
        let is_astray = matches!(&self.state, State::Open(open) if open.has_ddl || open.has_set)
            || !sent.statement.settings.is_empty();
        if let Form::Extended { number, .. } = &mut form
            && (is_astray || text != sent.text)
        {
            *number = None;
        }
        self.shipment_of(text, form, sent.statement.template)
    }

    fn shipment_of(&self, text: Vec<u8>, form: Form, template: sql::TemplateId) -> Shipment {
        let is_read_only = matches!(&self.state, State::Open(open) if open.is_read_only);
        Shipment {
            id: cluster::protocols::shipping::StatementId(0),
            session: self.id,
            is_write: false,
            role: Arc::clone(&self.role),
            setup: Arc::clone(&self.setup),
            before: None,
            text,
            form,
            after: None,
            needs_write: false,
            is_unproven: false,
            is_read_only,
            template,
        }
    }

    /// The next operation of the open transaction.
    async fn operate(&mut self, kind: Kind, shipment: Shipment) -> Result<Told, Fault> {
        match self.ask(Ask::Execute(kind, shipment), 0).await? {
            Some(told) => Ok(told),
            None => Err(Fault::Client),
        }
    }

    /// Passes a reply on; an error of the statement is one of the session's.
    fn relay(&mut self, told: Told) -> Result<(), Fault> {
        let Reply { bytes, error, .. } = told.reply.ok_or_else(lost)?;
        self.client.out.extend_from_slice(&bytes);
        match error {
            Some(body) => Err(Fault::Server(body)),
            None => Ok(()),
        }
    }
}

/// The statement as text.
pub(super) fn text_of<'a>(sent: &Sent<'a>) -> Result<&'a str, Refusal> {
    std::str::from_utf8(sent.text)
        .map_err(|_| Refusal::plain(sqlstate::SYNTAX_ERROR, "the statement is not UTF-8"))
}

/// The text that all replicas run, if there is one.
fn alike(sent: &Sent<'_>, text: &str, is_conforming: bool, catalogue: &Catalogue) -> Result<Text, Refusal> {
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
            // 25, 1043, 1042: what was declared as text stays text.
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
    statement::alike(text, &types, is_conforming, has_looked, catalogue)
}

/// Whether a table that it writes has columns that could read the clock off a text.
fn has_times(sent: &Sent<'_>, catalogue: &Catalogue) -> bool {
    let tables = sent.statement.writes.iter().map(|name| catalogue.tables_named(name));
    tables
        .into_iter()
        .any(|found| found.is_none_or(|ids| ids.iter().any(|id| catalogue.table(*id).is_none_or(has_time))))
}

fn has_time(table: &sql::Table) -> bool {
    // Numbers, texts, bytes and their like; whatever else there is could.
    const TIMELESS: [u32; 16] =
        [16, 17, 20, 21, 23, 25, 114, 700, 701, 869, 1042, 1043, 1186, 1700, 2950, 3802];
    table.coded_types || table.columns.iter().any(|column| !TIMELESS.contains(&column.type_oid))
}

pub(super) fn read_only() -> Refusal {
    Refusal::plain(sqlstate::READ_ONLY_SQL_TRANSACTION, "cannot write in a read-only transaction")
}

/// A replica has done it, and was lost before it could say what came of it.
fn lost() -> Fault {
    Fault::Fatal(Refusal::plain(
        sqlstate::CONNECTION_FAILURE,
        "the transaction is done, but the replica that had its result was lost",
    ))
}
