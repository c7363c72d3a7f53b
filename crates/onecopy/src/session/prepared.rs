//! Numbers prepared statements, where sessions share connections ([`crate::client::prepared`]).

use std::sync::Arc;

use wire::backend::tag;
use wire::encode;

use crate::client::prepared_statement::{PreparedStatement, fresh_generation};
use crate::pool::statement_numbers::StatementKey;
use crate::relay::work::Message;
use crate::session::Session;
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

impl View<'_> {
    /// The number of a statement that has a name of ours on servers, where sessions share connections. Equal texts
    /// share a number if they mean the same: under the same settings and schema, and without objects that only one
    /// session sees.
    pub(crate) fn shared_number(self, name: &[u8], sql: &[u8], types: &[u8]) -> Option<u64> {
        if name.is_empty() || !self.link.servers.is_shared() {
            return None;
        }
        let is_own = match &self.txn.state {
            Transaction::Update(update) => update.schema.has_changes() || update.unseen.is_suspect(),
            _ => false,
        };
        if is_own || self.link.leftovers.pinned || self.link.settings.is_astray() {
            return Some(fresh_generation());
        }
        let coordinator = self.link.coordinator();
        let kind = self.link.servers.kind()?;
        Some(self.link.worker.pools.statements.number(StatementKey {
            kind: Arc::clone(kind),
            sql: sql.to_vec(),
            types: types.to_vec(),
            settings: self.link.settings.meaning(),
            schema: coordinator.view.last_ddl(),
        }))
    }

    /// Notes that a server has accepted these Parse messages.
    pub(crate) fn note_parsed(self, messages: &[Message]) {
        let parsed = messages.iter().filter(|message| message.is_parse);
        for known in parsed.filter_map(|message| message.statement.as_ref()).filter(|known| known.is_shared())
        {
            self.link.worker.pools.statements.note_accepted(known.generation);
        }
    }
}

impl Session {
    /// Answers messages that only parse statements which a server has accepted before, from any session. They need no
    /// connection. Only sessions that share connections do this.
    pub(crate) fn answer_parsed(&mut self, messages: &[Message]) -> bool {
        let is_known = |known: &Arc<PreparedStatement>| {
            known.is_shared() && self.link.worker.pools.statements.is_accepted(known.generation)
        };
        if !messages
            .iter()
            .all(|message| message.is_parse && message.statement.as_ref().is_some_and(is_known))
        {
            return false;
        }
        for _ in messages {
            encode::bare(&mut self.link.client.out, tag::PARSE_COMPLETE);
        }
        true
    }
}
