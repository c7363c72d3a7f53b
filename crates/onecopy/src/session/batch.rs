//! The messages of the extended protocol that go to a server together, and how they run.

use std::rc::Rc;
use std::sync::Arc;

use sql::{Asks, Statement, Verb};
use wire::backend::tag as server_tag;
use wire::{encode, sqlstate};

use super::Session;
use crate::classify::requirements::Requirements;
use crate::client::own_settings::is_of_session;
use crate::client::prepared_statement::PreparedStatement;
use crate::client::settings::Settings;
use crate::error::{Fault, Refusal};
use crate::relay::work::{Message, Work, doubt};
use crate::transaction::open::Transaction;

/// Approximate memory of a message beside its own bytes.
const MESSAGE_BYTES: usize = 200;

/// Messages of the client that go to a server together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) messages: Vec<Message>,
    pub(crate) requirements: Requirements,
    /// Approximate memory that it takes.
    pub(crate) bytes: usize,
    /// Statements that were bound to portals and are not executed yet.
    pub(crate) bound: Vec<Arc<Statement>>,
    /// The portals that the batch makes.
    pub(crate) portals: Vec<Vec<u8>>,
    /// The batch consists of Close messages.
    pub(crate) only_closes: bool,
    /// The batch ends with a COPY from the client, so no message may follow it in the same flush.
    pub(crate) copies_in: bool,
    /// The values that the stand-ins of the batch ask for.
    pub(crate) asks: Asks,
}

impl Batch {
    pub(crate) fn new() -> Self {
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

    /// Adds a message, or its replacement for servers.
    pub(crate) fn push(
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

impl Session {
    /// Runs a batch and leaves an empty one. Returns whether all of it succeeded.
    pub(crate) async fn run_batch(&mut self, batch: &mut Batch, at_sync: bool) -> Result<bool, Fault> {
        if self.link.client.has_notices() {
            // The statement may take long.
            self.link.flush().await?;
        }
        self.link.client.begin_statement();
        let mut batch = std::mem::replace(batch, Batch::new());
        if batch.messages.is_empty() {
            return Ok(true);
        }
        self.txn.tell_loss()?;
        if self.txn.failed && batch.only_closes {
            for message in &batch.messages {
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
        if self.replay_batch(&batch, at_sync) || self.answer_parsed(&batch.messages) {
            return Ok(true);
        }
        // A portal that was bound and not executed yet is to be executed later.
        batch.requirements.protocol.keeps_portal |= batch.bound.len() > batch.requirements.statements.len();
        let is_free = matches!(self.txn.state, Transaction::None | Transaction::Begun(_));
        // A portal lives as long as its transaction. If it is executed later, it needs an open transaction.
        let is_begun = matches!(self.txn.state, Transaction::Begun(_));
        if batch.requirements.is_empty() && !batch.bound.is_empty() && is_free && (is_begun || !at_sync) {
            batch.requirements.statements.append(&mut batch.bound);
        }
        let sync = (at_sync && !batch.copies_in) || (batch.requirements.is_empty() && is_free);
        let stand_in_values = self.view().values_for(batch.asks);
        let work =
            Work::Batch { messages: &batch.messages, sync, stand_in_values: stand_in_values.as_deref() };
        let result = self.executor().run(&batch.requirements, work, sync).await;
        if matches!(self.txn.state, Transaction::None) {
            self.link.prepared.drop_portals();
        }
        let ended = match result {
            Ok(ended) => ended,
            Err(fault) => {
                self.doubt(&batch);
                return Err(fault);
            }
        };
        self.executor().note_status(&ended);
        if ended.error.is_some() {
            let parsed = batch.messages.iter().rev().filter(|message| message.is_parse);
            for known in parsed.take(ended.parses_left).filter_map(|message| message.statement.as_ref()) {
                self.link.prepared.remove(&known.name);
            }
            self.doubt(&batch);
            self.skipping = !at_sync;
            return Ok(false);
        }
        for statement in &batch.requirements.statements {
            self.remember(statement, &[], &ended);
        }
        self.view().note_parsed(&batch.messages);
        Ok(true)
    }

    /// After an error every connection may lack statements of the batch.
    fn doubt(&mut self, batch: &Batch) {
        for server in self.link.servers.iter_mut() {
            doubt(server, &batch.messages);
        }
    }
}

/// The statement, if the session answers it itself.
pub(crate) fn own_statement(known: &Arc<PreparedStatement>) -> Option<Arc<Statement>> {
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

pub(crate) fn single(known: &PreparedStatement) -> Option<Arc<Statement>> {
    match known.script.as_ref()?.statements.as_slice() {
        [part] => Some(Arc::clone(&part.statement)),
        _ => None,
    }
}

pub(crate) fn copies_in(verb: &Verb) -> bool {
    matches!(verb, Verb::Copy { direction: sql::CopyDirection::From, .. })
}
