//! How a statement executes here, and the text that all replicas run.
//!
//! A write statement must have the same effect at every replica. The crate `sql` says whether it has, or which values
//! must first be put into its text. `now()` and its kin become the start of the transaction by this node's clock. A
//! volatile expression that is computed once for a given row is computed at one replica, under the transaction's
//! locks, and becomes a constant. So do values of sequences: the transaction locks the sequence, draws at one replica
//! that has all earlier transactions that drew, and ships the sequence's state with the statement. All other
//! statements are rejected.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use sql::{
    Access, Because, Catalogue, Clock, CopyDirection, Determinism, Maintenance, Rewrite, RowEffect,
    Statement, Subject, Verb, Why, determinism,
};
use wire::sqlstate;

use super::locks::TableLocks;
use crate::error::Refusal;

/// Microseconds from 1970 to 2000, where PostgreSQL's count begins.
const EPOCH_2000_US: i64 = 946_684_800_000_000;
const OTHER_PROTOCOL: &str = "The protocol onecopy ships rows, and takes it.";

/// Where and how a statement runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Execution {
    /// At one replica.
    Read,
    /// At one replica, in a read-only transaction, because it may do more than read.
    UnprovenRead,
    /// At one replica, with row locks.
    LockingRead,
    /// It draws from sequences at one replica, which are then moved at the others.
    Draw,
    /// At all replicas.
    Write,
    /// At all replicas, with unchanged text.
    Plain,
    /// At all replicas, as a schema change.
    Ddl,
}

/// How a statement runs, and with which locks.
#[derive(Clone, Debug)]
pub(super) struct Classified {
    pub(super) execution: Execution,
    pub(super) locks: TableLocks,
}

/// A text that is the same for all replicas, or the way to it.
#[derive(Debug)]
pub(super) enum ShippedText {
    /// As sent.
    Same,
    /// With these replacements.
    Rewritten(Box<Rewrite>),
}

/// The functions that draw, or return the last value drawn.
const SEQUENCE_CALLS: [&str; 4] = ["nextval", "setval", "currval", "lastval"];

/// Classifies a statement about rows or the schema.
pub(super) fn classify(
    statement: &Statement,
    text: &str,
    catalogue: &Catalogue,
) -> Result<Classified, Refusal> {
    let known = |execution, locks| Ok(Classified { execution, locks });
    let routing = statement.routing(catalogue);
    let bounded = || TableLocks::of(statement, catalogue);
    if !statement.settings.is_empty() || statement.calls("set_config") {
        return Err(refused("set_config", "Use SET."));
    }
    match &statement.verb {
        Verb::Select if SEQUENCE_CALLS.iter().any(|call| statement.calls(call)) => draw(statement, text),
        Verb::Select => {
            let writes = statement.modifies_inside || routing.writes.as_ref().is_some_and(|w| !w.is_empty());
            match (&routing.access, bounded()) {
                (_, locks) if writes => known(Execution::Write, locks.unwrap_or_else(TableLocks::everything)),
                (Access::Read(_), Some(locks)) => known(Execution::Read, locks),
                (Access::Anchor(Because::Update), Some(mut locks)) => {
                    routing.reads.iter().flatten().for_each(|table| locks.lock_rows(*table));
                    known(Execution::LockingRead, locks)
                }
                (Access::Anchor(Because::Update), None) => {
                    known(Execution::LockingRead, TableLocks::everything())
                }
                _ => known(Execution::UnprovenRead, TableLocks::all_read(catalogue)),
            }
        }
        Verb::Insert
        | Verb::Update
        | Verb::Delete
        | Verb::Merge
        | Verb::Truncate
        | Verb::Copy { direction: CopyDirection::From, .. } => {
            known(Execution::Write, bounded().unwrap_or_else(TableLocks::everything))
        }
        Verb::Explain { analyze: false } => known(Execution::UnprovenRead, TableLocks::all_read(catalogue)),
        Verb::Ddl(facts) => {
            let is_login = matches!(facts.tag, "CreateRoleStmt" | "AlterRoleStmt");
            if facts.temporary {
                Err(refused("a temporary object", OTHER_PROTOCOL))
            } else if facts.concurrently {
                Err(refused("CONCURRENTLY", "Leave the word out."))
            } else if is_login && text.to_ascii_lowercase().contains("password") {
                Err(refused(
                    "a password in a statement",
                    "Each server would salt it in its own way; set the role up before.",
                ))
            } else if *facts.effect(&Subject::new(text), catalogue) == RowEffect::Same {
                known(Execution::Ddl, TableLocks::everything())
            } else {
                Err(refused("a schema change that computes rows", OTHER_PROTOCOL))
            }
        }
        Verb::Copy { .. } => Err(refused("COPY TO", "Use SELECT.")),
        // Each replica analyzes its own rows.
        Verb::Maintenance(Maintenance::Analyze) => known(Execution::Plain, TableLocks::everything()),
        Verb::Lock => {
            Err(refused("LOCK", "Declare what the transaction writes: BEGIN /* onecopy: write t */."))
        }
        Verb::Refused { what, hint } => Err(refused(*what, hint)),
        _ => Err(refused("this kind of statement", OTHER_PROTOCOL)),
    }
}

/// The error for a statement that is not supported where statements are shipped.
pub(super) fn refused(what: impl std::fmt::Display, hint: &str) -> Refusal {
    Refusal::new(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("{what} is not supported where statements are shipped"),
        hint,
    )
}

/// `SELECT nextval('a')`, with nothing else in it.
fn draw(statement: &Statement, text: &str) -> Result<Classified, Refusal> {
    let call = if statement.calls("setval") { "setval" } else { "nextval" };
    let is_alone = statement.functions.iter().all(|function| function.name == call)
        && statement.reads.is_empty()
        && statement.writes.is_empty()
        && !statement.modifies_inside;
    let names = named_by(call, text);
    if !is_alone || names.is_empty() {
        return Err(refused(
            "a sequence function other than SELECT nextval('name') or setval('name', ..)",
            "INSERT .. RETURNING tells what a row has drawn.",
        ));
    }
    let mut locks = TableLocks::none();
    for name in &names {
        locks.draw(last_part(name));
    }
    Ok(Classified { execution: if call == "setval" { Execution::Plain } else { Execution::Draw }, locks })
}

/// The sequences in calls of `nextval('name')` in a text, as written. Empty if one is not a plain name.
pub(super) fn drawn_from(text: &str) -> Vec<String> {
    named_by("nextval", text)
}

/// The sequences that calls of this function name.
fn named_by(call: &str, text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.to_ascii_lowercase().find(call) {
        rest = rest[at + call.len()..].trim_start();
        let name = rest.strip_prefix('(').map(str::trim_start).and_then(|rest| rest.strip_prefix('\''));
        let Some((name, after)) = name.and_then(|rest| rest.split_once('\'')) else { return Vec::new() };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '"');
        if name.is_empty() || !name.chars().all(is_plain) {
            return Vec::new();
        }
        names.push(name.to_owned());
        rest = after;
    }
    names
}

/// The name without its schema, as a table's default has it.
fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name).trim_matches('"')
}

/// Statements that read the state of sequences.
pub(super) fn ask_states(names: &[String]) -> String {
    let each = names.iter().map(|name| format!("SELECT '{name}', last_value FROM {name}"));
    each.collect::<Vec<_>>().join("; ")
}

/// Statements that move sequences to these states.
pub(super) fn move_to(states: &[Vec<Option<String>>]) -> Option<String> {
    let mut sql = String::new();
    for state in states {
        let [Some(name), Some(value)] = state.as_slice() else { return None };
        value.parse::<i64>().ok()?;
        let _ = write!(sql, "SELECT pg_catalog.setval('{name}'::pg_catalog.regclass, {value}); ");
    }
    Some(sql)
}

/// The text that all replicas run for a write statement. A caller that `has_looked` has checked that no text for a
/// date or time reads the clock.
pub(super) fn shipped_text(
    text: &str,
    types: &[u32],
    is_conforming: bool,
    has_looked: bool,
    catalogue: &Catalogue,
) -> Result<ShippedText, Refusal> {
    let subject = Subject { text, standard_conforming_strings: is_conforming, parameter_types: types };
    match determinism(&subject, catalogue) {
        Ok(Determinism::Deterministic) => Ok(ShippedText::Same),
        Ok(Determinism::AfterRewrite(rewrite)) => Ok(ShippedText::Rewritten(Box::new(rewrite))),
        Ok(Determinism::No(reasons))
            if has_looked && reasons.iter().all(|why| matches!(why, Why::ClockCast(_))) =>
        {
            Ok(ShippedText::Same)
        }
        Ok(Determinism::No(reasons)) => {
            let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
            Err(Refusal::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                format!("this statement may have another effect on each replica: {}", reasons.join("; ")),
                "Compute the value before, and give it as a constant or parameter. The protocol onecopy ships rows, and \
                 takes such statements.",
            ))
        }
        Err(error) => Err(Refusal::plain(sqlstate::SYNTAX_ERROR, error.message)),
    }
}

/// The query that computes the values for a text, each as text, and the sequences that it draws from.
pub(super) fn evaluation(rewrite: &Rewrite) -> Result<Option<(String, Vec<String>)>, Refusal> {
    let evaluate = rewrite.evaluate();
    if evaluate.is_empty() {
        return Ok(None);
    }
    let columns: Vec<String> =
        evaluate.iter().map(|one| format!("({})::pg_catalog.text", one.expression)).collect();
    let mut names = Vec::new();
    for one in evaluate {
        let draws = one.expression.to_ascii_lowercase().contains("nextval");
        let found = drawn_from(&one.expression);
        if draws && found.is_empty() {
            return Err(refused("a sequence whose name is not a plain one", OTHER_PROTOCOL));
        }
        names.extend(found.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
    }
    Ok(Some((format!("SELECT {}", columns.join(", ")), names)))
}

/// The locks of the sequences in such a query.
pub(super) fn sequence_locks(names: &[String]) -> TableLocks {
    let mut locks = TableLocks::none();
    for name in names {
        locks.draw(last_part(name));
    }
    locks
}

/// The start of a transaction that begins now, the same everywhere.
pub(super) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX).saturating_sub(EPOCH_2000_US)
}

/// A rewritten text with its constants.
pub(super) fn with_constants(
    rewrite: &Rewrite,
    transaction_us: i64,
    values: &[Option<String>],
) -> Result<String, Refusal> {
    let clock = Clock { transaction_us, statement_us: now_us() };
    let values: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
    rewrite
        .with_constants(clock, &values)
        .map_err(|error| Refusal::plain(sqlstate::INTERNAL_ERROR, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_found_by_plain_names_only() {
        assert_eq!(drawn_from("SELECT nextval('a'), NEXTVAL( 's.b'::regclass)"), ["a", "s.b"]);
        assert_eq!(drawn_from("SELECT nextval($1)"), [""; 0]);
        assert_eq!(drawn_from("SELECT nextval('a'), nextval(x)"), [""; 0]);
        assert_eq!(drawn_from("SELECT nextval('a b')"), [""; 0]);
        assert_eq!(last_part("s.\"b\""), "b");
    }

    #[test]
    fn states_become_settings() {
        let state = |name: &str, value: &str| vec![Some(name.to_owned()), Some(value.to_owned())];
        let sql = move_to(&[state("s.b", "7")]).unwrap();
        assert_eq!(sql, "SELECT pg_catalog.setval('s.b'::pg_catalog.regclass, 7); ");
        assert_eq!(move_to(&[state("b", "x")]), None);
    }
}
