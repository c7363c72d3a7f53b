//! Keeps the answer of a read for the result cache ([`crate::result_cache`]).
//!
//! A read by itself that any replica may serve is a function of the rows that it reads, if its text asks nothing else
//! ([`sql::Fleeting`]). Its answer is kept as of the version that its replica had when it was let run. The replica may have
//! had more by the time of its snapshot. So when the reply has ended, the core is asked whether a later version wrote any of
//! what was read; if none did, the answer is that of the earlier version, too.
//!
//! Invariant: what is kept is a reply that the client has got as a whole, in messages that a later client may get alone.

use std::fmt;

use cluster::event::Reads;
use cluster::ids::ReplicaId;
use sql::{Because, Fleeting, Verb};

use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::client::sent::Sent;
use crate::execute::Executor;
use crate::link::answers::Asked;
use crate::relay::{Ended, Hold};
use crate::result_cache::answer::{ANSWER_BYTES_MAX, Answer, Basis, body_of};
use crate::result_cache::counts::count;
use crate::transaction::open::Assignment;

/// Why an answer is not kept. Its text completes "the answer is not kept: ..".
#[derive(Clone, Debug, PartialEq, Eq)]
enum NotKept {
    /// It is no query, or several statements.
    NoQuery,
    /// Only one replica can answer.
    Placed(Because),
    /// Its text could not be kept, or its meaning is not known.
    NotKnown,
    /// It changes something of the session.
    ChangesSession,
    /// A constant may be read off the clock.
    Clock,
    /// It depends on more than rows.
    Fleeting(Fleeting),
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoQuery => f.write_str("it is not one query"),
            Self::Placed(_) => f.write_str("only one replica can answer"),
            Self::NotKnown => f.write_str("it is too long, or not known exactly"),
            Self::ChangesSession => f.write_str("the query may change something of the session"),
            Self::Clock => f.write_str("a constant may be read off the clock"),
            Self::Fleeting(why) => why.fmt(f),
        }
    }
}

/// Whether the answer to these statements may be given again.
fn keeps(requirements: &Requirements, analysis: &StatementAnalysis) -> Result<(), NotKept> {
    let ([statement], [routing]) = (requirements.statements.as_slice(), analysis.routings.as_slice()) else {
        return Err(NotKept::NoQuery);
    };
    if statement.verb != Verb::Select || requirements.protocol.keeps_portal {
        return Err(NotKept::NoQuery);
    }
    if let Err(because) = analysis.access {
        return Err(NotKept::Placed(because));
    }
    if !requirements.is_sent_whole() || analysis.knowledge.has_unparsed || analysis.knowledge.is_outdated {
        return Err(NotKept::NotKnown);
    }
    if analysis.may_leave_traces() || analysis.rows.has_locks || !statement.settings.is_empty() {
        return Err(NotKept::ChangesSession);
    }
    if let Some(why) = &routing.fleeting {
        return Err(NotKept::Fleeting(why.clone()));
    }
    if routing.transaction_time || requirements.sent.iter().any(Sent::may_read_clock) {
        return Err(NotKept::Clock);
    }
    Ok(())
}

/// What EXPLAIN (ROUTING) says about the result cache, if there is one.
pub(crate) fn explained(requirements: &Requirements, analysis: &StatementAnalysis) -> String {
    let told = match keeps(requirements, analysis) {
        Ok(()) => "the answer is kept until something that it depends on is written".to_owned(),
        Err(why) => format!("the answer is not kept: {why}"),
    };
    format!("kept        {told}")
}

impl Executor<'_> {
    /// Decides whether the answer of what is about to run may be kept.
    pub(crate) fn decide_keeping(&mut self, requirements: &Requirements, analysis: &StatementAnalysis) {
        if self.link.answers.asked.is_some() && keeps(requirements, analysis).is_err() {
            self.link.answers.asked = None;
        }
    }

    /// How much of the reply to a read is held back. What only one replica can answer is not kept.
    pub(crate) fn hold_of_read(&mut self, at: Option<ReplicaId>) -> Hold {
        if at.is_some() {
            self.link.answers.asked = None;
        }
        if self.link.answers.asked.is_some() { Hold::WholeAnswer } else { Hold::Usual }
    }

    /// Keeps the reply that begins at this position of the output, if it may be kept and nothing has written meanwhile.
    pub(crate) fn keep_answer(
        &mut self,
        mark: usize,
        reads: &Reads,
        analysis: &StatementAnalysis,
        place: Assignment,
        ended: &Ended,
    ) {
        let Some(asked) = self.link.answers.asked.take() else { return };
        if ended.error.is_some() {
            return;
        }
        let cache = &self.link.worker.local.result_cache;
        let client = &self.link.client;
        let is_whole = !client.shown && !client.has_told_notices();
        let reply = client.out.get(mark..).filter(|reply| is_whole && reply.len() <= ANSWER_BYTES_MAX);
        let Some(body) = reply.and_then(body_of) else {
            count(&cache.counts.unfit);
            return;
        };
        if asked.audited.is_some() {
            let executed = body.to_vec();
            return self.audit(mark, reads, asked, &executed);
        }
        count(&cache.counts.misses);
        let template = analysis.template.map_or(0, |template| template.0);
        if !cache.is_worth_keeping(template) {
            count(&cache.counts.seldom_valid);
            return;
        }
        let written = self.link.worker.coordinator.core.last_writer(reads);
        if written.is_none_or(|written| written > place.applied) {
            count(&cache.counts.overtaken);
            return;
        }
        let basis =
            Basis::Rows { reads: reads.clone(), as_of: place.applied, generation: analysis.generation() };
        let answer = Answer::new(body.into(), basis, template);
        cache.keep(asked.request, answer);
    }

    /// Compares a kept answer with the one that a replica has just given, unless something has written what it reads. The
    /// client gets the kept one, so that a judge of its history sees what the cache gives.
    fn audit(&mut self, mark: usize, reads: &Reads, asked: Asked, executed: &[u8]) {
        let Some(kept) = asked.audited else { return };
        let Basis::Rows { as_of, generation, .. } = kept.basis else { return };
        let coordinator = &self.link.worker.coordinator;
        let cache = &self.link.worker.local.result_cache;
        let written = coordinator.core.last_writer(reads);
        let is_comparable = written.is_some_and(|written| written <= as_of)
            && coordinator.core.answer_needs(reads, generation).is_some();
        if is_comparable {
            cache.compare(&asked.request, &kept, executed);
        }
        self.link.client.take_back(mark);
        asked.form.write(&kept, &mut self.link.client.out);
    }
}
