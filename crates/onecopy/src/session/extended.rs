//! The extended query protocol: batches of Parse, Bind, Describe, Execute, Close, ended by Flush or Sync.
//!
//! Messages are gathered until something has to be answered: the whole of a usual batch, Sync included, goes to one
//! server in one flush. What is executed decides where. Statements that are the session's own (transaction control,
//! settings, schema changes) never reach a server as extended messages: their Parse and Bind are answered here, and
//! Execute runs them by their text; what was gathered before them runs first, so replies keep their order.

use std::rc::Rc;
use std::sync::Arc;

use sql::{Asks, Statement, Verb};
use wire::backend::tag as server_tag;
use wire::frontend::{Frontend, Target};
use wire::{Frame, encode, oids, sqlstate};

use super::Session;
use crate::classify::requirements::Requirements;
use crate::client::own_settings::is_of_session;
use crate::client::prepared_statement::{PreparedStatement, never_ours};
use crate::client::settings::Settings;
use crate::error::{Fault, Refusal};
use crate::execute::ddl::describe_own;
use crate::execute::statement::refuse;
use crate::pool::cached::NOTHING;
use crate::relay::work::{Message, Work, doubt};
use crate::transaction::open::Transaction;

/// A batch that takes more memory runs in parts. A client that sends without an end is thereby slowed down to the pace of
/// the servers, and to its own pace of reading.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Approximate memory of a message beside its own bytes.
const MESSAGE_BYTES: usize = 200;

/// Messages for a server, gathered.
#[derive(Debug)]
struct Group {
    messages: Vec<Message>,
    requirements: Requirements,
    /// Approximate memory that it takes.
    bytes: usize,
    /// Statements that were bound to portals and not executed so far.
    bound: Vec<Arc<Statement>>,
    /// The portals that are made in it.
    portals: Vec<Vec<u8>>,
    /// Nothing but Close.
    only_closes: bool,
    /// It copies from the client, so nothing may follow it in the same flush.
    copies_in: bool,
    /// What stand-ins in it are to be told.
    asks: Asks,
}

impl Group {
    fn new() -> Self {
        Self {
            messages: Vec::new(),
            requirements: Requirements::default(),
            bytes: 0,
            bound: Vec::new(),
            portals: Vec::new(),
            only_closes: true,
            copies_in: false,
            asks: Asks::default(),
        }
    }

    /// Adds a message, or the one that servers get instead of it.
    fn push(
        &mut self,
        bytes: &Rc<[u8]>,
        instead: Option<Vec<u8>>,
        statement: Option<Arc<PreparedStatement>>,
    ) -> &mut Message {
        let bytes = instead.map_or_else(|| Rc::clone(bytes), Rc::from);
        self.bytes += bytes.len() + MESSAGE_BYTES;
        self.only_closes &= bytes.first() == Some(&wire::frontend::tag::CLOSE);
        self.messages.push(Message { bytes, statement, is_parse: false, closes: None });
        self.messages.last_mut().expect("it was pushed just now")
    }
}

/// What to do after a message.
enum Next {
    More,
    Flushed,
    Synced,
}

impl Session {
    /// Handles messages up to the next Flush or Sync; only a fault that ends the session is returned.
    pub(crate) async fn extended(&mut self) -> Result<(), Fault> {
        let mut group = Group::new();
        loop {
            let (_, total) = self.link.client.message().await?;
            let bytes: Rc<[u8]> = self.link.client.input.data()[..total].into();
            self.link.client.input.consume(total);
            let frame = Frame { tag: bytes[0], bytes: &bytes };
            let message = Frontend::parse(frame).map_err(|_| Fault::Fatal(malformed()))?;
            if self.skipping && message != Frontend::Sync {
                continue;
            }
            let result = self.take(message, &bytes, &mut group).await;
            match result {
                Ok(Next::More) => {}
                Ok(Next::Flushed) => return Ok(()),
                Ok(Next::Synced) => {
                    self.skipping = false;
                    self.ready();
                    return Ok(());
                }
                Err(fault) => {
                    group = Group::new();
                    self.tell(fault)?;
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
        group: &mut Group,
    ) -> Result<Next, Fault> {
        match message {
            Frontend::Parse { name, sql, types } => self.take_parse(name, sql, types, bytes, group).await?,
            Frontend::Bind { portal, statement, rest } => {
                group.requirements.protocol.is_binary |= oids::has_binary(rest);
                group.requirements.protocol.keeps_portal |= !portal.is_empty();
                self.take_bind(portal, statement, rest, bytes, group).await?;
            }
            Frontend::Describe(target) => self.take_describe(target, bytes, group).await?,
            Frontend::Execute { portal, rows_max } => {
                group.requirements.protocol.keeps_portal |= rows_max > 0;
                self.take_execute(portal, bytes, group).await?;
            }
            Frontend::Close(target) => self.take_close(target, bytes, group).await?,
            Frontend::Flush => {
                self.run_group(group, false).await?;
                self.link.flush().await?;
                return Ok(Next::Flushed);
            }
            Frontend::Sync => {
                if self.skipping {
                    self.end_implicit(false).await?;
                    return Ok(Next::Synced);
                }
                let ok = self.run_group(group, true).await?;
                self.end_implicit(ok).await?;
                return Ok(Next::Synced);
            }
            Frontend::CopyData | Frontend::CopyDone | Frontend::CopyFail => {}
            Frontend::Terminate => return Err(Fault::Client),
            Frontend::Query { sql } => {
                self.run_group(group, false).await?;
                self.simple_query(sql).await?;
                return Ok(Next::Flushed);
            }
            Frontend::Password | Frontend::FunctionCall => {
                return Err(Fault::Fatal(malformed()));
            }
        }
        if group.bytes > BATCH_BYTES_MAX {
            self.run_group(group, false).await?;
        }
        Ok(Next::More)
    }

    async fn take_parse(
        &mut self,
        name: &[u8],
        sql: &[u8],
        types: &[u8],
        bytes: &Rc<[u8]>,
        group: &mut Group,
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
        group.requirements.protocol.declares_users |= oids::declares_users(types);
        let script = self.link.script(sql).await?;
        let ours = self.view().stand_ins_of(script.as_ref(), sql);
        let shared =
            self.view().shared_number(name, ours.as_ref().map_or(sql, |ours| ours.text.as_bytes()), types);
        let known = self.link.prepared.insert(name, (sql, ours), types, script, shared)?;
        if own_statement(&known).is_some() {
            if self.run_group(group, false).await? {
                encode::bare(&mut self.link.client.out, server_tag::PARSE_COMPLETE);
            } else {
                self.link.prepared.remove(name);
            }
            return Ok(());
        }
        let ours = known.as_parse();
        group.push(bytes, ours, Some(known)).is_parse = true;
        Ok(())
    }

    async fn take_bind(
        &mut self,
        portal: &[u8],
        statement: &[u8],
        values: &[u8],
        bytes: &Rc<[u8]>,
        group: &mut Group,
    ) -> Result<(), Fault> {
        let known = self.link.prepared.get(statement).cloned();
        if known.is_none() {
            self.link.check_unknown(statement)?;
        }
        if known.as_ref().and_then(own_statement).is_some() {
            if self.run_group(group, false).await? {
                // Not before: what was gathered may end a transaction, and all portals with it.
                self.link.prepared.bind(portal, statement, values)?;
                encode::bare(&mut self.link.client.out, server_tag::BIND_COMPLETE);
            }
        } else {
            self.link.prepared.bind(portal, statement, values)?;
            group.requirements.protocol.declares_users |=
                known.as_ref().is_some_and(|known| oids::declares_users(&known.types));
            group.bound.extend(known.as_deref().and_then(single));
            group.portals.push(portal.to_vec());
            let ours = known.as_ref().and_then(|known| known.as_bind(portal, values));
            group.push(bytes, ours, known);
        }
        Ok(())
    }

    async fn take_describe(
        &mut self,
        target: Target<'_>,
        bytes: &Rc<[u8]>,
        group: &mut Group,
    ) -> Result<(), Fault> {
        let (known, statement) = match target {
            Target::Statement(name) => (self.link.prepared.get(name).cloned(), Some(name)),
            Target::Portal(name) => (self.link.prepared.portal(name).cloned(), None),
        };
        if let (None, Some(name)) = (&known, statement) {
            self.link.check_unknown(name)?;
        }
        group.requirements.protocol.declares_users |=
            known.as_ref().is_some_and(|known| oids::declares_users(&known.types));
        if let Some(own) = known.as_ref().and_then(own_statement) {
            if self.run_group(group, false).await? {
                describe_own(&mut self.link.client.out, &own.verb, statement.is_some());
            }
        } else {
            let known = known.filter(|_| statement.is_some());
            let ours = known.as_ref().and_then(|known| known.as_describe());
            group.push(bytes, ours, known);
        }
        Ok(())
    }

    async fn take_execute(
        &mut self,
        portal: &[u8],
        bytes: &Rc<[u8]>,
        group: &mut Group,
    ) -> Result<(), Fault> {
        let known = self.link.prepared.portal(portal).cloned();
        if let Some(statement) = known.as_ref().and_then(own_statement) {
            let known = known.expect("an own statement is known");
            if !self.run_group(group, false).await? {
                return Ok(());
            }
            return self.execute_own(portal, &statement, &known.sql).await;
        }
        match known.as_ref().and_then(|known| single(known)) {
            Some(statement) => {
                if let Some(refusal) = refuse(&statement.verb) {
                    return Err(refusal.into());
                }
                group.copies_in |= copies_in(&statement.verb);
                group.asks.add(known.as_ref().map(|known| known.asks()).unwrap_or_default());
                group.asks.add(self.view().asks_of_execute(&statement));
                group.requirements.statements.push(statement);
                group.requirements.sent.extend(self.link.prepared.sent(portal));
            }
            // A portal that is not known (a cursor of DECLARE, say), or a text that our parser does not accept.
            None => group.requirements.has_unparsed = true,
        }
        // One that was made before is not made again when the statement is run again.
        group.requirements.protocol.keeps_portal |= !group.portals.iter().any(|made| made == portal);
        group.push(bytes, None, None);
        if group.copies_in {
            self.run_group(group, false).await?;
        }
        Ok(())
    }

    /// Executes a statement of the session's own by its text.
    async fn execute_own(
        &mut self,
        portal: &[u8],
        statement: &Arc<Statement>,
        sql: &[u8],
    ) -> Result<(), Fault> {
        let sent = self.link.prepared.sent(portal);
        let ours = self.view().stand_ins(statement, sql);
        let text = ours.as_ref().map_or(sql, |ours| ours.text.as_bytes());
        let work = Work::Query { sql: text, position_offset: 0, told: None };
        let mark = self.link.client.out.len();
        let ended = self.run_statement(statement, sql, sent, work, false).await?;
        self.executor().note_status(&ended);
        if matches!(statement.verb, Verb::Show(_) | Verb::ExplainRouting) {
            // Its columns were told by Describe.
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
        group: &mut Group,
    ) -> Result<(), Fault> {
        let known = match target {
            Target::Statement(name) => self.link.prepared.get(name).cloned(),
            Target::Portal(name) => self.link.prepared.portal(name).cloned(),
        };
        let is_own = known.as_ref().and_then(own_statement).is_some();
        if let Target::Statement(name) = target {
            self.link.prepared.remove(name);
            if known.is_none() || is_own {
                if self.run_group(group, false).await? {
                    encode::bare(&mut self.link.client.out, server_tag::CLOSE_COMPLETE);
                }
                return Ok(());
            }
            if known.is_some_and(|known| known.is_shared()) {
                // Others may use it on the same connection.
                let mut nothing = Vec::new();
                encode::close(&mut nothing, Target::Statement(NOTHING));
                group.push(bytes, Some(nothing), None);
            } else {
                group.push(bytes, None, None).closes = Some(name.to_vec());
            }
            return Ok(());
        }
        if let Target::Portal(name) = target {
            self.link.prepared.drop_portal(name);
        }
        if is_own {
            if self.run_group(group, false).await? {
                encode::bare(&mut self.link.client.out, server_tag::CLOSE_COMPLETE);
            }
        } else {
            group.push(bytes, None, None);
        }
        Ok(())
    }

    /// Runs what was gathered; whether all went well.
    async fn run_group(&mut self, group: &mut Group, at_sync: bool) -> Result<bool, Fault> {
        self.link.begin_statement().await?;
        let mut group = std::mem::replace(group, Group::new());
        if group.messages.is_empty() {
            return Ok(true);
        }
        self.txn.tell_loss()?;
        if self.txn.failed && group.only_closes {
            for message in &group.messages {
                if let Some(name) = &message.closes {
                    self.link.close_everywhere(name).await;
                }
                encode::bare(&mut self.link.client.out, server_tag::CLOSE_COMPLETE);
            }
            return Ok(true);
        }
        if self.txn.failed {
            return Err(Refusal::plain(
                sqlstate::IN_FAILED_SQL_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )
            .into());
        }
        if self.answer_parsed(&group.messages) {
            return Ok(true);
        }
        // A portal that was bound and not executed yet is to be executed later.
        group.requirements.protocol.keeps_portal |= group.bound.len() > group.requirements.statements.len();
        let is_free = matches!(self.txn.state, Transaction::None | Transaction::Begun(_));
        // A portal lives as long as its transaction, so one that is to be executed later needs one that is open.
        let is_begun = matches!(self.txn.state, Transaction::Begun(_));
        if group.requirements.is_empty() && !group.bound.is_empty() && is_free && (is_begun || !at_sync) {
            group.requirements.statements.append(&mut group.bound);
        }
        let sync = (at_sync && !group.copies_in) || (group.requirements.is_empty() && is_free);
        let told = self.view().what_is_asked(group.asks);
        let work = Work::Batch { messages: &group.messages, sync, told: told.as_deref() };
        let result = self.executor().run(&group.requirements, work, sync).await;
        if matches!(self.txn.state, Transaction::None) {
            self.link.prepared.drop_portals();
        }
        let ended = match result {
            Ok(ended) => ended,
            Err(fault) => {
                self.doubt(&group);
                return Err(fault);
            }
        };
        self.executor().note_status(&ended);
        if ended.error.is_some() {
            let parsed = group.messages.iter().rev().filter(|message| message.is_parse);
            for known in parsed.take(ended.parses_left).filter_map(|message| message.statement.as_ref()) {
                self.link.prepared.remove(&known.name);
            }
            self.doubt(&group);
            self.skipping = !at_sync;
            return Ok(false);
        }
        for statement in &group.requirements.statements {
            self.remember(statement, &[], &ended);
        }
        self.view().note_parsed(&group.messages);
        Ok(true)
    }

    /// After an error every connection may lack what the group would have prepared.
    fn doubt(&mut self, group: &Group) {
        for server in self.link.servers.iter_mut() {
            doubt(server, &group.messages);
        }
    }
}

/// The statement, if it is one that the session answers itself.
fn own_statement(known: &Arc<PreparedStatement>) -> Option<Arc<Statement>> {
    let statement = single(known)?;
    let is_own = match &statement.verb {
        Verb::Begin(_)
        | Verb::Commit { .. }
        | Verb::Rollback { .. }
        | Verb::Savepoint(_)
        | Verb::Release(_)
        | Verb::RollbackTo(_)
        | Verb::Set { .. }
        | Verb::Reset(_)
        | Verb::SetTransaction(_)
        | Verb::SetSessionCharacteristics(_)
        | Verb::Discard(_)
        | Verb::Prepare { .. }
        | Verb::Deallocate(_)
        | Verb::Listen
        | Verb::Unlisten
        | Verb::Notify
        | Verb::Maintenance(_)
        | Verb::Ddl(_)
        | Verb::ExplainRouting
        | Verb::Empty => true,
        Verb::Show(name) => Settings::is_own(name) || is_of_session(name),
        _ => false,
    };
    is_own.then_some(statement)
}

fn single(known: &PreparedStatement) -> Option<Arc<Statement>> {
    match known.script.as_ref()?.statements.as_slice() {
        [part] => Some(Arc::clone(&part.statement)),
        _ => None,
    }
}

fn copies_in(verb: &Verb) -> bool {
    matches!(verb, Verb::Copy { direction: sql::CopyDirection::From, .. })
}

fn malformed() -> Refusal {
    Refusal::plain(sqlstate::PROTOCOL_VIOLATION, "malformed or unexpected message")
}
