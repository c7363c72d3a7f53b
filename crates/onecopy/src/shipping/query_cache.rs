//! The session's side of the query result cache of C-JDBC ("Middle-R, C-JDBC and MySQL Cluster", section 2.2.2).
//!
//! A read outside a transaction is first looked for among the kept answers ([`crate::result_cache`], which protocol `onecopy`
//! has, too). The scheduler says whether one is still the answer, and whether that of a replica may be kept.
//!
//! Example: `SELECT name FROM item WHERE id = 7` runs at a replica. The scheduler has seen no write of `item` meanwhile, so the
//! answer is kept. The next session of the same role and settings gets it without a replica, until a write of `item` gets its
//! number.
//!
//! Invariant: an answer is given only to sessions that a server would answer the same. A session opens connections when it
//! needs them, and each begins with the settings that ALTER ROLE has given its role by then
//! ([`crate::result_cache::role_changes`]). So a session gets no kept answers after an ALTER ROLE, and none that were kept for
//! sessions from before.
//!
//! Non-goals: answers inside transactions; what the text alone does not determine ([`sql::Fleeting`]); ALTER ROLE inside
//! functions.

use std::sync::Arc;

use sql::{Access, Catalogue, Verb};

use super::locks::TableLocks;
use super::request::{Lasting, RequestOutcome};
use super::scheduler_client::SchedulerClient;
use super::session::{ClientStatement, Session};
use super::shipment::{Form, SessionSettings};
use crate::client::settings::Settings;
use crate::result_cache::answer::{ANSWER_BYTES_MAX, Answer, Basis, body_of};
use crate::result_cache::counts::count;
use crate::result_cache::request::{Question, Request};
use crate::result_cache::{Audience, ResultCache, Traits};

/// A setting on which no kept answer depends, and that many clients give values of their own.
const NAME_OF_CLIENT: &str = "application_name";
/// Answers to longer texts and values are not kept.
const QUESTION_BYTES_MAX: usize = 64 << 10;
/// Schema changes after which new connections may begin with other settings, or as another role of the same name.
const CHANGES_OF_ROLES: [&str; 5] =
    ["AlterRoleStmt", "AlterRoleSetStmt", "DropRoleStmt", "AlterDatabaseStmt", "AlterDatabaseSetStmt"];

/// What a session remembers for the query cache.
#[derive(Debug)]
pub(super) struct SessionAnswers {
    /// The number of changes of roles when it began; `None` if one was under way.
    roles: Option<u64>,
    /// Its audience, and when it holds.
    audience: Option<(Stamp, Audience)>,
}

/// A session has one audience as long as none of these changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    settings: u64,
    era: u64,
}

/// What came of looking for an answer.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The client has it.
    Given,
    /// A replica has to answer, and its answer may be kept.
    Asked(Asked),
    /// A replica has to answer.
    Replica,
}

/// A read whose answer may be kept.
#[derive(Debug)]
pub(super) struct Asked {
    request: Request,
    template: u64,
    /// A kept answer, which a replica has to confirm. The client gets this one.
    audited: Option<Arc<Answer>>,
}

impl SessionAnswers {
    /// Of a session that has opened no connection yet. `roles` is the number of changes of roles, if none is under way.
    pub(super) fn new(roles: Option<u64>) -> Self {
        Self { roles, audience: None }
    }

    /// The number of the sessions that a server would answer as this one. `None` if its connections may differ.
    fn audience(
        &mut self,
        cache: &ResultCache,
        settings: &Settings,
        shipped: &SessionSettings,
    ) -> Option<Audience> {
        let roles = self.roles?;
        let is_refreshed = shipped.generation == settings.generation();
        if !is_refreshed || settings.is_astray() || cache.role_changes.settled() != Some(roles) {
            return None;
        }
        let stamp = Stamp { settings: settings.generation(), era: cache.era() };
        if let Some((of, audience)) = self.audience
            && of == stamp
        {
            return Some(audience);
        }
        let mut traits = Traits::default();
        let options = settings.server_options();
        let start_up = settings.start_up(&options);
        let start_up = start_up.iter().filter(|(name, _)| *name != NAME_OF_CLIENT);
        traits.add_all(start_up.flat_map(|(name, value)| [name, value]).map(|text| text.as_bytes()));
        traits.add(settings.answer_relevant().as_bytes());
        traits.add(shipped.shipped.as_bytes());
        traits.add(&roles.to_le_bytes());
        let audience = cache.audience(traits);
        self.audience = Some((stamp, audience));
        Some(audience)
    }
}

impl Session {
    /// Looks for a kept answer to a read by itself, and gives it.
    pub(super) fn look_up(
        &mut self,
        sent: &ClientStatement<'_>,
        text: &str,
        catalogue: &Catalogue,
    ) -> Lookup {
        let cache = &self.worker.local.result_cache;
        if !cache.is_on() || !may_be_kept(sent, text, catalogue) {
            return Lookup::Replica;
        }
        let audience = self.answers.audience(cache, &self.settings, &self.identity.settings);
        let (Some(question), Some(audience)) = (question(sent), audience) else {
            return Lookup::Replica;
        };
        let request = Request::new(audience, catalogue.generation(), question);
        let found = cache.find(&request);
        let valid = found.as_ref().filter(|answer| self.scheduler.is_still_answer(answer));
        match (&found, valid) {
            (_, Some(answer)) => {
                cache.note_given(answer);
                if !cache.audits() {
                    self.client.out.extend_from_slice(&answer.body);
                    return Lookup::Given;
                }
            }
            (Some(answer), None) => cache.discard(&request, answer),
            (None, None) => {}
        }
        let audited = valid.cloned();
        Lookup::Asked(Asked { request, template: sent.statement.template.0, audited })
    }

    /// Keeps the answer of a replica, if it may be given again.
    pub(super) fn keep(&self, asked: Asked, outcome: &mut RequestOutcome) {
        let Some(reply) = outcome.reply.as_mut().filter(|reply| reply.error.is_none()) else { return };
        let cache = &self.worker.local.result_cache;
        let body = Some(&*reply.bytes).filter(|reply| reply.len() <= ANSWER_BYTES_MAX).and_then(body_of);
        let Some(body) = body else {
            count(&cache.counts.unfit);
            return;
        };
        if let Some(kept) = asked.audited {
            if self.scheduler.is_still_answer(&kept) {
                cache.compare(&asked.request, &kept, body);
            }
            reply.bytes = kept.body.to_vec();
            return;
        }
        count(&cache.counts.misses);
        if !cache.is_worth_keeping(asked.template) {
            count(&cache.counts.seldom_valid);
            return;
        }
        let Some(Lasting { tables, since }) = outcome.lasting.take() else {
            count(&cache.counts.overtaken);
            return;
        };
        let answer = Answer::new(body.into(), Basis::Writes { tables, since }, asked.template);
        cache.keep(asked.request, answer);
    }
}

impl SchedulerClient {
    /// Whether a kept answer is still the answer.
    fn is_still_answer(&self, answer: &Answer) -> bool {
        match &answer.basis {
            Basis::Writes { tables, since } => self.shipping.is_still_answer(self.id, tables, *since),
            Basis::Rows { .. } => false,
        }
    }
}

/// Whether a schema change may change the settings with which new connections begin.
pub(super) fn changes_roles(verb: &Verb, text: &str) -> bool {
    let Verb::Ddl(facts) = verb else { return false };
    let names_roles = || {
        let text = text.to_ascii_lowercase();
        ["role", "user", "group", "database"].iter().any(|word| text.contains(word))
    };
    CHANGES_OF_ROLES.contains(&facts.tag) || facts.tag == "RenameStmt" && names_roles()
}

/// The locks of a read by itself. An answer that may be kept depends on all tables that may be read, also by policies alone.
pub(super) fn locks_of_read(
    lookup: &Lookup,
    sent: &ClientStatement<'_>,
    mut locks: TableLocks,
    catalogue: &Catalogue,
) -> TableLocks {
    if let (Lookup::Asked(_), Access::Read(tables)) = (lookup, &sent.statement.routing(catalogue).access) {
        locks.read(tables);
    }
    locks
}

/// The question that a statement asks, if it is short.
fn question<'a>(sent: &'a ClientStatement<'_>) -> Option<Question<'a>> {
    let sql = sent.text;
    let question = match &sent.form {
        Form::Simple => Question::Text(sql),
        Form::Extended { types, values, describes, .. } if values.len() <= QUESTION_BYTES_MAX => {
            Question::Bound { sql, types, values, is_described: *describes }
        }
        Form::Extended { .. } | Form::Copy(_) => return None,
    };
    (sql.len() <= QUESTION_BYTES_MAX).then_some(question)
}

/// Whether the answer to a read is a function of rows, text, parameters, role and settings.
fn may_be_kept(sent: &ClientStatement<'_>, text: &str, catalogue: &Catalogue) -> bool {
    let routing = sent.statement.routing(catalogue);
    sent.statement.verb == Verb::Select
        && matches!(routing.access, Access::Read(_))
        && routing.fleeting.is_none()
        && !routing.transaction_time
        && !routing.asks_draws
        && !routing.traces.shown
        && !may_read_clock(sent, text)
}

/// Whether a constant or a parameter could be read off the clock. A name that is such a word counts, too, and so does a
/// constant that is written with escapes.
fn may_read_clock(sent: &ClientStatement<'_>, text: &str) -> bool {
    let has_escapes = text.contains('\\') || text.to_ascii_lowercase().contains("uescape");
    let has_word = || text.split(|c: char| !c.is_alphabetic()).any(sql::may_read_clock);
    let has_value = || {
        let Form::Extended { values, .. } = &sent.form else { return false };
        let Ok(values) = wire::frontend::bound_values(values) else { return true };
        let is_read = |value: &[u8]| std::str::from_utf8(value).is_ok_and(sql::may_read_clock);
        values.into_iter().any(|(is_binary, value)| !is_binary && value.is_some_and(is_read))
    };
    has_escapes || has_word() || has_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_roles_parts_the_sessions_before_it_from_those_after_it() {
        let cache = ResultCache::new(1 << 20);
        let settings = Settings::new(&[], "ann", "postgres").unwrap();
        let shipped = SessionSettings { generation: settings.generation(), ..SessionSettings::default() };
        let begun = || SessionAnswers::new(cache.role_changes.settled());
        let seen = |session: &mut SessionAnswers| session.audience(&cache, &settings, &shipped);
        let mut before = begun();
        let former = seen(&mut before);
        assert_eq!((former.is_some(), seen(&mut begun())), (true, former), "they have the same connections");
        let change = cache.role_changes.begin();
        let mut meanwhile = begun();
        assert_eq!([seen(&mut before), seen(&mut meanwhile)], [None; 2]);
        drop(change);
        assert_eq!([seen(&mut before), seen(&mut meanwhile)], [None; 2], "their connections may differ");
        let after = seen(&mut begun());
        assert!(after.is_some() && after != former, "an answer for those before may come late");
    }
}
