//! Calls of functions that name server processes, turned into calls of Onecopy's own functions of the same names.
//!
//! A client knows its session by a number that no server knows, and a process of a server means a session to Onecopy. So
//! `pg_terminate_backend(17)` becomes `onecopy.pg_terminate_backend(17)`, which tells Onecopy what is asked for, and
//! `pg_backend_pid()` becomes `onecopy.pg_backend_pid(1073741825)`. Columns keep their names that way.
//!
//! `pg_backend_pid()` stays as it is in a statement that may read other process numbers of the server: in
//! `SELECT .. FROM pg_stat_activity WHERE pid <> pg_backend_pid()` both are the server's.
//!
//! Calls inside functions, views and DO blocks stay as they are.

use crate::catalogue::Catalogue;
use crate::census::Census;
use crate::name::Name;
use crate::parser::{self, Parsed, Token};
use crate::reach::reach;
use crate::statement::{Statement, Verb};

/// Gives the number of one's own process.
const OWN: &str = "pg_backend_pid";
/// Ask something of another process.
const SIGNALS: [&str; 2] = ["pg_cancel_backend", "pg_terminate_backend"];
/// Longer texts stay as they are.
const MAX_BYTES: usize = 64 << 10;

/// Whether a function is one of those that this is about.
pub(crate) fn is_about_backends(name: &Name) -> bool {
    name.may_be_built_in() && (name.name == OWN || SIGNALS.contains(&name.name.as_str()))
}

/// Whether a statement, or the one inside of it, calls a function that signals a process.
pub fn signals(statement: &Statement) -> bool {
    SIGNALS.iter().any(|name| statement.calls(name)) || statement.inner.as_deref().is_some_and(signals)
}

/// The text of a statement with Onecopy's own functions in it, in a session of this number; `None` if it stays as it is.
pub fn for_session(statement: &Statement, text: &str, catalogue: &Catalogue, number: i32) -> Option<String> {
    let innermost = statement.inner.as_deref().unwrap_or(statement);
    if !innermost.functions.iter().any(is_about_backends) || !is_rewritable(&statement.verb) {
        return None;
    }
    if text.len() > MAX_BYTES || catalogue.is_user_function(OWN) {
        return None;
    }
    if SIGNALS.iter().any(|name| catalogue.is_user_function(name)) {
        return None;
    }
    parser::with_deep_stack(|| {
        let Ok(Parsed::Trees(trees)) = parser::parse(text, true) else { return None };
        let calls = Census::of(&trees).backend_calls;
        let tokens = parser::tokens(text)?;
        let found = places(text, &tokens);
        // A name of another kind looks like a call: `INSERT INTO pg_backend_pid (a)`.
        let with_own = has_own_processes(innermost, catalogue);
        (found.len() == calls)
            .then(|| written(text, &found, with_own, number))
            .filter(|written| written != text)
    })
}

/// Statements that run what their own text says, once, where the client is.
fn is_rewritable(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Select
            | Verb::Insert
            | Verb::Update
            | Verb::Delete
            | Verb::Merge
            | Verb::Copy { .. }
            | Verb::Explain { .. }
            | Verb::Prepare { .. }
            | Verb::DeclareCursor { .. }
            | Verb::Call
    )
}

/// Whether no process number of the server is in the statement but its own.
fn has_own_processes(statement: &Statement, catalogue: &Catalogue) -> bool {
    let mut rest = statement.clone();
    rest.functions.retain(|name| !is_about_backends(name));
    rest.opaque.is_none() && reach(&rest, catalogue).because.is_none()
}

/// A call in a text.
struct Place {
    start: usize,
    /// The end of its name.
    name_end: usize,
    /// The end of an empty list of arguments.
    end: Option<usize>,
    name: &'static str,
}

/// What looks like calls of these functions.
fn places(text: &str, tokens: &[Token]) -> Vec<Place> {
    let word = |index: usize| tokens.get(index).map_or("", |token| &text[token.start..token.end]);
    let names = [OWN, SIGNALS[0], SIGNALS[1]];
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let Some(name) = names.into_iter().find(|name| means(word(index), name)) else { continue };
        if word(index + 1) != "(" {
            continue;
        }
        let mut first = index;
        if index > 0 && word(index - 1) == "." {
            if index < 2 || !means(word(index - 2), "pg_catalog") {
                continue;
            }
            first = index - 2;
        }
        let end = (word(index + 2) == ")").then(|| tokens[index + 2].end);
        found.push(Place { start: tokens[first].start, name_end: token.end, end, name });
    }
    found
}

/// Whether an identifier, quoted or not, means this name.
fn means(word: &str, name: &str) -> bool {
    match word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted == name,
        None => word.eq_ignore_ascii_case(name),
    }
}

fn written(text: &str, places: &[Place], with_own: bool, number: i32) -> String {
    let mut out = String::with_capacity(text.len() + 32 * places.len());
    let mut done = 0;
    for place in places {
        out.push_str(&text[done..place.start]);
        done = match place.end {
            Some(end) if place.name == OWN && with_own => {
                out.push_str(&format!("onecopy.{OWN}({number})"));
                end
            }
            _ if place.name == OWN => {
                out.push_str(&text[place.start..place.name_end]);
                place.name_end
            }
            _ => {
                out.push_str("onecopy.");
                out.push_str(place.name);
                place.name_end
            }
        };
    }
    out.push_str(&text[done..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyzer::{Analyzer, Limits};

    fn rewritten(text: &str) -> Option<String> {
        let mut analyzer = Analyzer::new(Limits::default());
        let script = analyzer.script(text.as_bytes(), true).unwrap();
        for_session(&script.statements[0].statement, text, &Catalogue::default(), 7)
    }

    #[test]
    fn calls_become_our_own() {
        for (text, expected) in [
            ("select pg_terminate_backend($1)", "select onecopy.pg_terminate_backend($1)"),
            (
                "SELECT \"pg_catalog\" . PG_Cancel_Backend /* x */ (pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
                "SELECT onecopy.pg_cancel_backend /* x */ (pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
            ),
            (
                "prepare p as select pg_terminate_backend(pid => 5, timeout => 1)",
                "prepare p as select onecopy.pg_terminate_backend(pid => 5, timeout => 1)",
            ),
        ] {
            assert_eq!(rewritten(text).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_only_looks_like_a_call_stays() {
        for text in [
            "select 'pg_terminate_backend(1)'",
            "select s.pg_terminate_backend(1)",
            "insert into pg_terminate_backend (a) select pg_terminate_backend(1)",
            "create view v as select pg_terminate_backend(1)",
            "do 'begin perform pg_terminate_backend(1); end'",
        ] {
            assert_eq!(rewritten(text), None, "{text}");
        }
    }
}
