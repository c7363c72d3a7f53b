//! Answers a request of the client from the result cache ([`crate::result_cache`]), if an answer is kept that is still the
//! answer. Nothing else of the session is touched: no transaction begins, and no replica is asked.
//!
//! Example: `SELECT v FROM t WHERE k = 7` in a Query message, or as Bind, Execute and Sync of a prepared statement. If no
//! answer is kept, the request is remembered while it runs, and [`crate::execute::keeping`] keeps its answer.

use std::sync::Arc;

use sql::Asks;
use wire::frontend::tag;

use super::Session;
use super::batch::Batch;
use crate::client::sent::{KEPT_BYTES_MAX, Sent};
use crate::link::answers::{Asked, Form};
use crate::relay::work::Message;
use crate::result_cache::request::Question;
use crate::transaction::open::Transaction;

/// The first words of texts that may be queries.
const FIRST_WORDS: [&str; 4] = ["select", "with", "values", "table"];
/// Describe of the portal without a name.
const DESCRIBE_PORTAL: [u8; 7] = [tag::DESCRIBE, 0, 0, 0, 6, b'P', 0];

impl Session {
    /// Answers a text of the simple protocol. Returns whether it did.
    pub(crate) fn replay_text(&mut self, sql: &[u8]) -> bool {
        self.link.answers.asked = None;
        self.may_replay()
            && sql.len() <= KEPT_BYTES_MAX
            && may_be_query(sql)
            && self.replay(Question::Text(sql), Form::Simple)
    }

    /// Answers a batch, if Sync has ended it. Returns whether it did.
    pub(crate) fn replay_batch(&mut self, batch: &Batch, at_sync: bool) -> bool {
        self.link.answers.asked = None;
        if !at_sync || !self.may_replay() {
            return false;
        }
        let Some((form, is_described)) = form(batch) else { return false };
        let [Sent::Bound { known, values }] = batch.requirements.sent.as_slice() else { return false };
        let question = Question::Bound { sql: &known.sql, types: &known.types, values, is_described };
        if !self.replay(question, form) {
            return false;
        }
        self.link.prepared.drop_portals();
        self.view().note_parsed(&batch.messages);
        true
    }

    /// Whether the session is in a state in which a read would run by itself, on any replica.
    fn may_replay(&self) -> bool {
        self.link.local().result_cache.is_on()
            && matches!(self.txn.state, Transaction::None)
            && !self.txn.failed
            && !self.txn.must_tell_loss
    }

    fn replay(&mut self, question: Question<'_>, form: Form) -> bool {
        let Some(request) = self.link.request(question) else { return false };
        let kept = self.link.kept_answer(&request);
        let cache = &self.link.worker.local.result_cache;
        if let Some(answer) = kept.as_ref().filter(|_| !cache.audits()) {
            cache.note_given(answer);
            form.write(answer, &mut self.link.client.out);
            return true;
        }
        if let Some(answer) = &kept {
            cache.note_given(answer);
        }
        self.link.answers.asked = Some(Asked { request, form, audited: kept });
        false
    }
}

/// The form of a batch, and whether its portal is described, if it runs one statement and does nothing else.
fn form(batch: &Batch) -> Option<(Form, bool)> {
    let has_one = batch.requirements.statements.len() == 1 && batch.bound.len() == 1;
    if !has_one || batch.requirements.protocol.keeps_portal || batch.asks != Asks::default() {
        return None;
    }
    let (parse, rest) = match batch.messages.as_slice() {
        [parse, rest @ ..] if parse.is_parse => (Some(parse), rest),
        rest => (None, rest),
    };
    let (bind, is_described) = match rest {
        [bind, execute] if is(execute, tag::EXECUTE) => (bind, false),
        [bind, describe, execute] if is(execute, tag::EXECUTE) && *describe.bytes == DESCRIBE_PORTAL => {
            (bind, true)
        }
        _ => return None,
    };
    let bound = bind.statement.as_ref().filter(|known| is(bind, tag::BIND) && !known.has_stand_ins())?;
    let is_parsed =
        |parse: &Message| parse.statement.as_ref().is_some_and(|parsed| Arc::ptr_eq(parsed, bound));
    if parse.is_some_and(|parse| !is_parsed(parse)) {
        return None;
    }
    Some((Form::Extended { parses: parse.is_some() }, is_described))
}

fn is(message: &Message, tag: u8) -> bool {
    message.bytes.first() == Some(&tag)
}

/// Whether the text begins as a query does. One after a comment is not looked for.
fn may_be_query(sql: &[u8]) -> bool {
    let text = sql.trim_ascii_start();
    FIRST_WORDS
        .iter()
        .any(|word| text.get(..word.len()).is_some_and(|first| first.eq_ignore_ascii_case(word.as_bytes())))
}
