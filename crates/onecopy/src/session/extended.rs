//! The extended query protocol: batches of Parse, Bind, Describe, Execute, Close, ended by Flush or Sync.
//!
//! Messages are collected until a reply is due. So a usual batch, Sync included, goes to one server in one flush. The
//! statements that it executes decide which. Statements that the session runs itself (transaction control, settings,
//! schema changes) never reach a server as extended messages: the session answers their Parse and Bind, and Execute
//! runs their text. The messages before them run first, so replies keep their order.

use std::rc::Rc;
use std::sync::Arc;

use sql::{Statement, Verb};
use wire::backend::tag as server_tag;
use wire::frontend::{Frontend, Target};
use wire::{Frame, encode, oids, sqlstate};

use super::Session;
use super::batch::{Batch, copies_in, own_statement, single};
use crate::client::prepared::NewStatement;
use crate::client::prepared_statement::{PreparedStatement, never_ours};
use crate::error::{Fault, Refusal};
use crate::execute::ddl::describe_own;
use crate::execute::statement::refuse;
use crate::pool::cached::NOTHING;
use crate::relay::work::Work;

/// A batch that takes more memory than this runs in parts. Thus the servers, and the session's own reading, slow down a
/// client that sends without end.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// Whether more messages belong to a batch.
enum BatchState {
    Open,
    Flushed,
    Synced,
}

impl Session {
    /// Handles messages up to the next Flush or Sync. Returns only a fault that ends the session.
    pub(crate) async fn extended(&mut self) -> Result<(), Fault> {
        let mut batch = Batch::new();
        loop {
            let (_, total) = self.link.client.message().await?;
            let bytes: Rc<[u8]> = self.link.client.input.data()[..total].into();
            self.link.client.input.consume(total);
            let frame = Frame { tag: bytes[0], bytes: &bytes };
            let message = Frontend::parse(frame).map_err(|_| Fault::Fatal(malformed()))?;
            if self.skipping && message != Frontend::Sync {
                continue;
            }
            let result = self.take(message, &bytes, &mut batch).await;
            match result {
                Ok(BatchState::Open) => {}
                Ok(BatchState::Flushed) => return Ok(()),
                Ok(BatchState::Synced) => {
                    self.skipping = false;
                    self.ready();
                    return Ok(());
                }
                Err(fault) => {
                    batch = Batch::new();
                    self.send_error(fault)?;
                    if message == Frontend::Sync {
                        self.skipping = false;
                        self.end_implicit(false).await?;
                        self.ready();
                        return Ok(());
                    }
                    self.skipping = true;
                }
            }
        }
    }

    async fn take(
        &mut self,
        message: Frontend<'_>,
        bytes: &Rc<[u8]>,
        batch: &mut Batch,
    ) -> Result<BatchState, Fault> {
        match message {
            Frontend::Parse { name, sql, types } => self.take_parse(name, sql, types, bytes, batch).await?,
            Frontend::Bind { portal, statement, rest } => {
                batch.requirements.protocol.is_binary |= oids::has_binary(rest);
                batch.requirements.protocol.keeps_portal |= !portal.is_empty();
                self.take_bind(portal, statement, rest, bytes, batch).await?;
            }
            Frontend::Describe(target) => self.take_describe(target, bytes, batch).await?,
            Frontend::Execute { portal, rows_max } => {
                batch.requirements.protocol.keeps_portal |= rows_max > 0;
                self.take_execute(portal, bytes, batch).await?;
            }
            Frontend::Close(target) => self.take_close(target, bytes, batch).await?,
            Frontend::Flush => {
                self.run_batch(batch, false).await?;
                self.link.flush().await?;
                return Ok(BatchState::Flushed);
            }
            Frontend::Sync => {
                if self.skipping {
                    self.end_implicit(false).await?;
                    return Ok(BatchState::Synced);
                }
                let ok = self.run_batch(batch, true).await?;
                self.end_implicit(ok).await?;
                return Ok(BatchState::Synced);
            }
            Frontend::CopyData | Frontend::CopyDone | Frontend::CopyFail => {}
            Frontend::Terminate => return Err(Fault::Client),
            Frontend::Query { sql } => {
                self.run_batch(batch, false).await?;
                self.simple_query(sql).await?;
                return Ok(BatchState::Flushed);
            }
            Frontend::Password | Frontend::FunctionCall => {
                return Err(Fault::Fatal(malformed()));
            }
        }
        if batch.bytes > BATCH_BYTES_MAX {
            self.run_batch(batch, false).await?;
        }
        Ok(BatchState::Open)
    }

    async fn take_parse(
        &mut self,
        name: &[u8],
        sql: &[u8],
        types: &[u8],
        bytes: &Rc<[u8]>,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        never_ours(name)?;
        if !name.is_empty() && self.link.prepared.get(name).is_some() {
            let name = String::from_utf8_lossy(name).into_owned();
            return Err(Refusal::plain(
                sqlstate::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            )
            .into());
        }
        batch.requirements.protocol.declares_users |= oids::declares_users(types);
        let known = self.learn(name, sql, types).await?;
        if own_statement(&known).is_some() {
            if self.run_batch(batch, false).await? {
                encode::bare(&mut self.link.client.out, server_tag::PARSE_COMPLETE);
            } else {
                self.link.prepared.remove(name);
            }
            return Ok(());
        }
        let ours = known.as_parse();
        batch.push(bytes, ours, Some(known)).is_parse = true;
        Ok(())
    }

    /// Takes a statement of Parse.
    pub(super) async fn learn(
        &mut self,
        name: &[u8],
        sql: &[u8],
        types: &[u8],
    ) -> Result<Arc<PreparedStatement>, Fault> {
        let script = self.link.script(sql).await?;
        let ours = self.view().stand_ins_of(script.as_ref(), sql);
        let text = ours.as_ref().map_or(sql, |ours| ours.text.as_bytes());
        let shared = self.view().shared_number(name, text, types);
        let new = NewStatement { name, sql, stand_ins: ours, types, script, shared };
        Ok(self.link.prepared.insert(new)?)
    }

    async fn take_bind(
        &mut self,
        portal: &[u8],
        statement: &[u8],
        values: &[u8],
        bytes: &Rc<[u8]>,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        let known = self.link.prepared.get(statement).cloned();
        if known.is_none() {
            self.link.check_unknown(statement)?;
        }
        if known.as_ref().and_then(own_statement).is_some() {
            if self.run_batch(batch, false).await? {
                // The bind comes after the batch, which may end a transaction and all its portals.
                self.link.prepared.bind(portal, statement, values)?;
                encode::bare(&mut self.link.client.out, server_tag::BIND_COMPLETE);
            }
        } else {
            self.link.prepared.bind(portal, statement, values)?;
            batch.requirements.protocol.declares_users |=
                known.as_ref().is_some_and(|known| oids::declares_users(&known.types));
            batch.bound.extend(known.as_deref().and_then(single));
            batch.portals.push(portal.to_vec());
            let ours = known.as_ref().and_then(|known| known.as_bind(portal, values));
            batch.push(bytes, ours, known);
        }
        Ok(())
    }

    async fn take_describe(
        &mut self,
        target: Target<'_>,
        bytes: &Rc<[u8]>,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        let (known, statement) = match target {
            Target::Statement(name) => (self.link.prepared.get(name).cloned(), Some(name)),
            Target::Portal(name) => (self.link.prepared.portal(name).cloned(), None),
        };
        if let (None, Some(name)) = (&known, statement) {
            self.link.check_unknown(name)?;
        }
        batch.requirements.protocol.declares_users |=
            known.as_ref().is_some_and(|known| oids::declares_users(&known.types));
        if let Some(own) = known.as_ref().and_then(own_statement) {
            if self.run_batch(batch, false).await? {
                describe_own(&mut self.link.client.out, &own.verb, statement.is_some());
            }
        } else {
            let known = known.filter(|_| statement.is_some());
            let ours = known.as_ref().and_then(|known| known.as_describe());
            batch.push(bytes, ours, known);
        }
        Ok(())
    }

    async fn take_execute(
        &mut self,
        portal: &[u8],
        bytes: &Rc<[u8]>,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        let known = self.link.prepared.portal(portal).cloned();
        if let Some(statement) = known.as_ref().and_then(own_statement) {
            let known = known.expect("an own statement is known");
            if !self.run_batch(batch, false).await? {
                return Ok(());
            }
            return self.execute_own(portal, &statement, &known.sql).await;
        }
        match known.as_ref().and_then(|known| single(known)) {
            Some(statement) => {
                if let Some(refusal) = refuse(&statement.verb) {
                    return Err(refusal.into());
                }
                batch.copies_in |= copies_in(&statement.verb);
                batch.asks.add(known.as_ref().map(|known| known.asks()).unwrap_or_default());
                batch.asks.add(self.view().asks_of_execute(&statement));
                batch.requirements.statements.push(statement);
                batch.requirements.sent.extend(self.link.prepared.sent(portal));
            }
            // The portal is unknown (a cursor of DECLARE, for instance), or our parser does not accept the text.
            None => batch.requirements.has_unparsed = true,
        }
        // An earlier portal is not made again when the statement is run again.
        batch.requirements.protocol.keeps_portal |= !batch.portals.iter().any(|made| made == portal);
        batch.push(bytes, None, None);
        if batch.copies_in {
            self.run_batch(batch, false).await?;
        }
        Ok(())
    }

    /// Executes a statement that the session runs itself, by its text.
    async fn execute_own(
        &mut self,
        portal: &[u8],
        statement: &Arc<Statement>,
        sql: &[u8],
    ) -> Result<(), Fault> {
        let sent = self.link.prepared.sent(portal);
        let ours = self.view().stand_ins(statement, sql);
        let text = ours.as_ref().map_or(sql, |ours| ours.text.as_bytes());
        let work = Work::Query { sql: text, position_offset: 0, stand_in_values: None };
        let mark = self.link.client.out.len();
        let ended = self.run_statement(statement, sql, sent, work, false).await?;
        self.executor().note_status(&ended);
        if matches!(statement.verb, Verb::Show(_) | Verb::ExplainRouting) {
            // Describe has sent the columns.
            if let Ok(Some(first)) = wire::next_frame(&self.link.client.out[mark..])
                && first.tag == server_tag::ROW_DESCRIPTION
            {
                let length = first.bytes.len();
                self.link.client.out.drain(mark..mark + length);
            }
        }
        if ended.error.is_some() {
            self.skipping = true;
        }
        Ok(())
    }

    async fn take_close(
        &mut self,
        target: Target<'_>,
        bytes: &Rc<[u8]>,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        let known = match target {
            Target::Statement(name) => self.link.prepared.get(name).cloned(),
            Target::Portal(name) => self.link.prepared.portal(name).cloned(),
        };
        let is_own = known.as_ref().and_then(own_statement).is_some();
        if let Target::Statement(name) = target {
            self.link.prepared.remove(name);
            if known.is_none() || is_own {
                if self.run_batch(batch, false).await? {
                    encode::bare(&mut self.link.client.out, server_tag::CLOSE_COMPLETE);
                }
                return Ok(());
            }
            if known.is_some_and(|known| known.is_shared()) {
                // Other sessions may use the statement on the same connection.
                let mut nothing = Vec::new();
                encode::close(&mut nothing, Target::Statement(NOTHING));
                batch.push(bytes, Some(nothing), None);
            } else {
                batch.push(bytes, None, None).closes = Some(name.to_vec());
            }
            return Ok(());
        }
        if let Target::Portal(name) = target {
            self.link.prepared.drop_portal(name);
        }
        if is_own {
            if self.run_batch(batch, false).await? {
                encode::bare(&mut self.link.client.out, server_tag::CLOSE_COMPLETE);
            }
        } else {
            batch.push(bytes, None, None);
        }
        Ok(())
    }
}

fn malformed() -> Refusal {
    Refusal::plain(sqlstate::PROTOCOL_VIOLATION, "malformed or unexpected message")
}
