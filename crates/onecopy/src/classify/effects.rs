//! The effects of statements, in parts: on rows, on sequences and on the session; and how the statements may be run.
//!
//! Each part comes from the statements and their routings alone, and answers the questions of one stage. Row effects
//! decide about certification, sequence effects about the home, session effects about the connection, and execution
//! about retries.

use std::sync::Arc;

use sql::{Because, Catalogue, Routing, Statement, Traces, Verb};

use super::requirements::Requirements;
use crate::client::sent::Sent;

/// The function that changes a setting, given its name.
const SETS: &str = "set_config";
/// The function that sets a sequence.
const SETVAL: &str = "setval";

/// Effects of statements on rows and tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowEffects {
    /// They may write or lock, or their effects are unknown.
    pub(crate) may_write: bool,
    /// They lock rows or tables.
    pub(crate) has_locks: bool,
    /// They write rows that the command tag does not count.
    pub(crate) has_uncounted: bool,
}

impl RowEffects {
    pub(crate) fn of(requirements: &Requirements, anchor_because: Option<Because>) -> Self {
        let may_write = matches!(anchor_because, Some(Because::Update | Because::Unknown));
        Self {
            may_write: may_write && Scope::of(requirements) != Scope::Control,
            has_locks: requirements.any(locks),
            has_uncounted: requirements.any(writes_uncounted),
        }
    }
}

/// Whether a statement, or a statement inside it, locks the rows that it reads. A procedure may.
fn locks(statement: &Statement) -> bool {
    !statement.row_locks.is_empty() || runs_body(statement) || statement.inner.as_deref().is_some_and(locks)
}

fn runs_body(statement: &Statement) -> bool {
    matches!(statement.verb, Verb::Call | Verb::Do)
}

/// Whether a statement writes inside a WITH query, under EXPLAIN ANALYZE or in a procedure.
fn writes_uncounted(statement: &Statement) -> bool {
    statement.modifies_inside
        || (statement.inner.is_some() && !statement.writes.is_empty())
        || runs_body(statement)
}

/// How statements may be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Execution {
    pub(crate) verbs: Verbs,
    /// A savepoint can undo them and they can run again: queries and modifications whose rows are read to the end.
    pub(crate) is_repeatable: bool,
    /// They fail rather than wait for locks.
    pub(crate) nowait: bool,
    /// They declare a WITH HOLD cursor.
    pub(crate) holds_cursor: bool,
}

/// The kinds of statements in a group, by their verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbs {
    /// INSERT, UPDATE, DELETE and MERGE only.
    Modifications,
    /// INSERT, UPDATE, DELETE and MERGE, SELECT, CALL and DO.
    Queries,
    /// Any verb.
    Any,
}

impl Execution {
    pub(crate) fn of(requirements: &Requirements) -> Self {
        let verbs = Verbs::of(requirements);
        let is_read_whole = !requirements.protocol.keeps_portal && !requirements.has_unparsed;
        Self {
            verbs,
            is_repeatable: is_read_whole && verbs != Verbs::Any,
            nowait: requirements.any(|statement| statement.nowait),
            holds_cursor: requirements
                .any(|statement| matches!(statement.verb, Verb::DeclareCursor { hold: true, .. })),
        }
    }
}

impl Verbs {
    fn of(requirements: &Requirements) -> Self {
        let modifies = |verb: &Verb| matches!(verb, Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge);
        if requirements.all(|statement| modifies(&statement.verb)) {
            Self::Modifications
        } else if requirements
            .all(|s| matches!(s.verb, Verb::Select | Verb::Call | Verb::Do) || modifies(&s.verb))
        {
            Self::Queries
        } else {
            Self::Any
        }
    }
}

/// Effects of statements on sequences. Draws by column defaults are not here: they follow from the written tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SequenceEffects {
    pub(crate) sets: SetsSequences,
    pub(crate) asks: AsksDraws,
}

/// Whether statements set sequences explicitly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SetsSequences {
    #[default]
    No,
    /// TRUNCATE may restart the sequences of a table.
    ByTruncate,
    /// They call `setval`, whose effect no rollback takes back.
    BySetval,
}

/// Whether statements ask for values that the session has drawn, by `currval` or `lastval`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AsksDraws {
    #[default]
    No,
    /// They do, among other things.
    Also,
    /// They do nothing else.
    Only,
}

impl SequenceEffects {
    pub(crate) fn of(requirements: &Requirements, routings: &[Arc<Routing>], catalogue: &Catalogue) -> Self {
        let sets = if requirements.any(|statement| statement.calls(SETVAL)) {
            SetsSequences::BySetval
        } else if requirements.any(|statement| statement.verb == Verb::Truncate) {
            SetsSequences::ByTruncate
        } else {
            SetsSequences::No
        };
        let is_whole = !requirements.has_unparsed && !requirements.protocol.keeps_portal;
        let asks = if !routings.iter().any(|routing| routing.asks_draws) {
            AsksDraws::No
        } else if is_whole && requirements.all(|statement| sql::only_asks_draws(statement, catalogue)) {
            AsksDraws::Only
        } else {
            AsksDraws::Also
        };
        Self { sets, asks }
    }

    pub(crate) fn asks_draws(self) -> bool {
        self.asks != AsksDraws::No
    }

    pub(crate) fn calls_setval(self) -> bool {
        self.sets == SetsSequences::BySetval
    }
}

/// Effects of statements on the session, and the state that they may leave on its connection.
#[derive(Clone, Debug)]
pub(crate) struct SessionEffects {
    pub(crate) scope: Scope,
    /// The state that may stay on the connection.
    pub(crate) traces: Traces,
    pub(crate) hidden_code: HiddenCode,
    /// They call `set_config` where the session does not see the setting.
    pub(crate) sets_unseen: bool,
}

/// The scope of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The session or the transaction only: SET, SHOW, SAVEPOINT and the like.
    Control,
    /// They only call `set_config`, in a way that the session follows.
    Settings,
    /// Any object.
    Data,
}

/// Statements that may run code of users, which may set settings that no server shows.
#[derive(Clone, Debug)]
pub(crate) enum HiddenCode {
    /// These statements may.
    In(Vec<Arc<Statement>>),
    /// The code that runs is unknown.
    Anywhere,
}

impl SessionEffects {
    /// `run` are the statements that do the work, with their routings. For EXECUTE this is the prepared statement.
    pub(crate) fn of(requirements: &Requirements, run: &[(&Arc<Statement>, &Arc<Routing>)]) -> Self {
        let mut traces = if requirements.has_unparsed { Traces::ANYTHING } else { Traces::default() };
        for (_, routing) in run {
            traces.add(routing.traces);
        }
        let hidden_code = if requirements.has_unparsed {
            HiddenCode::Anywhere
        } else {
            let hides = run.iter().filter(|(_, routing)| routing.traces.hidden);
            HiddenCode::In(hides.map(|(statement, _)| Arc::clone(*statement)).collect())
        };
        Self { scope: Scope::of(requirements), traces, hidden_code, sets_unseen: sets_unseen(requirements) }
    }
}

impl Scope {
    fn of(requirements: &Requirements) -> Self {
        use Verb::{Empty, Release, Reset, RollbackTo, Savepoint, Set, Show};
        let is_control = |statement: &Statement| {
            matches!(
                statement.verb,
                Savepoint(_) | Release(_) | RollbackTo(_) | Set { .. } | Reset(_) | Show(_) | Empty
            )
        };
        if requirements.has_unparsed {
            Self::Data
        } else if requirements.all(is_control) {
            Self::Control
        } else if requirements.is_sent_whole() && requirements.sent.iter().all(only_sets_settings) {
            Self::Settings
        } else {
            Self::Data
        }
    }
}

/// Whether a statement only calls `set_config`, at the top of its SELECT list, where the session reads the new setting.
fn only_sets_settings(sent: &Sent) -> bool {
    let statement = sent.statement();
    !statement.settings.is_empty()
        && statement.verb == Verb::Select
        && statement.reads.is_empty()
        && statement.types.is_empty()
        && statement.functions.iter().all(|function| function.name == SETS)
        && statement.settings.len() == sent.mentions(SETS)
}

/// Whether statements call `set_config` anywhere but at the top of a SELECT list.
fn sets_unseen(requirements: &Requirements) -> bool {
    let followed = || requirements.statements.iter().map(|statement| statement.settings.len()).sum::<usize>();
    let mentioned = || requirements.sent.iter().map(|sent| sent.mentions(SETS)).sum::<usize>();
    requirements.any(|statement| statement.calls(SETS))
        && !(requirements.is_sent_whole() && mentioned() == followed())
}

#[cfg(test)]
mod tests;
