//! The query result cache of the controller: answers of reads outside transactions, which it gives again.
//!
//! Example: a client reads rows 1 and 2, and another one asks for the same. It gets the kept answer unless a write to their tables
//! has a number by then ([`cluster::protocols::c_jdbc::query_cache`]). The judges see a read with that result.
//!
//! Not here: bounds in bytes.

use std::collections::BTreeMap;

use cluster::ids::SessionId;
use cluster::protocols::c_jdbc::Scheduler;
use cluster::protocols::c_jdbc::message::Tables;
use cluster::protocols::c_jdbc::query_cache::Moment;

use super::draw::Statement;
use super::server::Reply;

/// An answer, and the moment as of which it is kept.
#[derive(Debug)]
struct Entry {
    question: Statement,
    moment: Moment,
    reply: Reply,
}

/// The kept answers.
#[derive(Debug, Default)]
pub(super) struct Kept {
    entries: Vec<Entry>,
    /// Of sessions whose answer follows.
    moments: BTreeMap<SessionId, Moment>,
}

impl Kept {
    /// The answer that follows may be kept as of a moment.
    pub(super) fn note(&mut self, session: SessionId, moment: Moment) {
        self.moments.insert(session, moment);
    }

    /// The answer of a session has come.
    pub(super) fn answered(
        &mut self,
        session: SessionId,
        question: Option<&Statement>,
        reply: Option<&Reply>,
    ) {
        let Some(moment) = self.moments.remove(&session) else { return };
        if let (Some(question), Some(reply)) = (question, reply) {
            self.entries.retain(|entry| entry.question != *question);
            self.entries.push(Entry { question: question.clone(), moment, reply: reply.clone() });
        }
    }

    /// The answer to a read outside a transaction, if one is kept that is still right.
    pub(super) fn find(
        &self,
        scheduler: &Scheduler,
        session: SessionId,
        tables: &Tables,
        question: Option<&Statement>,
    ) -> Option<Reply> {
        let entry = self.entries.iter().find(|entry| Some(&entry.question) == question)?;
        scheduler.may_answer_again(session, tables, entry.moment).then(|| entry.reply.clone())
    }
}
