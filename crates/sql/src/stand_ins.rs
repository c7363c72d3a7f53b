//! Functions of Onecopy's own that stand in for the server's, in what a client's statement says itself.
//!
//! A client knows its session by a number that no server knows, and a process of a server means a session to Onecopy. So
//! `pg_terminate_backend(17)` becomes `onecopy.pg_terminate_backend(17)`, which tells Onecopy what is asked for, and
//! `pg_backend_pid()` becomes `onecopy.pg_backend_pid(1073741825)`. A server has other settings of transactions than the
//! session, so `current_setting('transaction_isolation')` and `FROM pg_settings` become calls that know the session's.
//! Columns keep their names that way.
//!
//! `pg_backend_pid()` stays as it is in a statement that may read other process numbers of the server: in
//! `SELECT .. FROM pg_stat_activity WHERE pid <> pg_backend_pid()` both are the server's.
//!
//! Calls inside functions, views and DO blocks stay as they are.

use crate::ast_scan::AstScan;
use crate::catalogue::Catalogue;
use crate::name::Name;
use crate::parser::{self, Parsed, Token};
use crate::statement::{Statement, Verb};
use crate::table_effects::table_effects;

/// Gives the number of one's own process.
const OWN: &str = "pg_backend_pid";
/// Ask something of another process.
const SIGNALS: [&str; 2] = ["pg_cancel_backend", "pg_terminate_backend"];
/// Gives a setting.
const SETTING: &str = "current_setting";
/// Has all settings.
const SETTINGS: &str = "pg_settings";
/// Settings that the session has, and servers have not.
pub const SESSION_SETTINGS: [&str; 4] = [
    "default_transaction_isolation",
    "default_transaction_read_only",
    "transaction_isolation",
    "transaction_read_only",
];
/// Longer texts stay as they are.
const MAX_BYTES: usize = 64 << 10;

/// The text of a statement with stand-ins, and what they have to be told before it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StandIns {
    /// The text.
    pub text: String,
    /// The information that it returns.
    pub asks: Asks,
}

/// The values that stand-ins get before their statement runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Asks {
    /// The sessions that there are.
    pub sessions: bool,
    /// The session's settings.
    pub settings: bool,
}

impl Asks {
    /// Adds what another statement asks for.
    pub fn add(&mut self, other: Self) {
        self.sessions |= other.sessions;
        self.settings |= other.settings;
    }
}

/// What a statement asks for that has stand-ins already, as a server shows it.
pub fn asks_of(statement: &Statement) -> Asks {
    let is_ours = |function: &&Name| function.schema.as_deref() == Some("onecopy");
    let calls = |names: &[&str]| {
        statement.functions.iter().filter(is_ours).any(|function| names.contains(&function.name.as_str()))
    };
    Asks { sessions: calls(&SIGNALS), settings: calls(&[SETTING, SETTINGS]) }
}

/// Whether there may be a stand-in for this function.
pub(crate) fn is_replaced(function: &Name) -> bool {
    let name = function.name.as_str();
    function.may_be_built_in() && (is_about_processes(name) || name == SETTING)
}

/// Whether there may be a stand-in for this relation.
pub(crate) fn is_replaced_relation(relation: &Name) -> bool {
    relation.may_be_built_in() && relation.name == SETTINGS
}

fn is_about_processes(name: &str) -> bool {
    name == OWN || SIGNALS.contains(&name)
}

/// A statement with stand-ins, in a session of this number; `None` if it stays as it is.
pub fn stand_ins(statement: &Statement, text: &str, catalogue: &Catalogue, number: i32) -> Option<StandIns> {
    let innermost = statement.inner.as_deref().unwrap_or(statement);
    let is_about_processes = |function: &Name| is_replaced(function) && is_about_processes(&function.name);
    let may_be = innermost.functions.iter().any(is_about_processes)
        || innermost.reads.iter().any(is_replaced_relation)
        || (innermost.calls(SETTING) && may_ask_settings(text));
    if !may_be || !is_rewritable(&statement.verb) || text.len() > MAX_BYTES || is_hidden(catalogue) {
        return None;
    }
    parser::with_deep_stack(|| {
        let Ok(Parsed::Trees(trees)) = parser::parse(text, true) else { return None };
        let scan = AstScan::of(&trees);
        let tokens = Words { text, tokens: parser::tokens(text)? };
        let (calls, relations) = (tokens.calls(), tokens.relations());
        // A name of another kind looks like a call: `INSERT INTO pg_backend_pid (a)`.
        if (calls.len(), relations.len()) != (scan.replaced_calls, scan.replaced_relations) {
            return None;
        }
        let mut places: Vec<Place> = calls.into_iter().chain(relations).collect();
        if !has_own_processes(innermost, catalogue) {
            places.retain(|place| place.name != OWN);
        }
        places.retain(|place| place.is_replaced);
        places.sort_by_key(|place| place.start);
        let asks = |names: &[&str]| places.iter().any(|place| names.contains(&place.name));
        let asks = Asks { sessions: asks(&SIGNALS), settings: asks(&[SETTING, SETTINGS]) };
        (!places.is_empty()).then(|| StandIns { text: written(text, &places, number), asks })
    })
}

/// Whether a text that calls `current_setting` may ask for one of the session's settings. Many ask for one of their own for each
/// row policy, so this looks at the text before that is parsed.
fn may_ask_settings(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.split(SETTING).skip(1).any(|rest| {
        let argument = rest.trim_start().strip_prefix('(').map(str::trim_start);
        let constant = argument.and_then(|argument| argument.strip_prefix('\''));
        let constant = constant.and_then(|rest| rest.split('\'').next());
        constant.is_none_or(|name| name.contains("transaction_"))
    })
}

/// Whether functions or relations of users have these names.
fn is_hidden(catalogue: &Catalogue) -> bool {
    [OWN, SIGNALS[0], SIGNALS[1], SETTING].into_iter().any(|name| catalogue.is_user_function(name))
        || catalogue.named(None, SETTINGS).next().is_some()
}

/// Statements that run what their own text says, once, where the client is.
fn is_rewritable(verb: &Verb) -> bool {
    verb.is_dml()
        || matches!(
            verb,
            Verb::Copy { .. }
                | Verb::Explain { .. }
                | Verb::Prepare { .. }
                | Verb::DeclareCursor { .. }
                | Verb::Call
        )
}

/// Whether no process number of the server is in the statement but its own.
fn has_own_processes(statement: &Statement, catalogue: &Catalogue) -> bool {
    let mut rest = statement.clone();
    rest.functions.retain(|name| !is_replaced(name));
    rest.opaque.is_none() && table_effects(&rest, catalogue).because.is_none()
}

/// A call or a relation in a text.
struct Place {
    start: usize,
    end: usize,
    name: &'static str,
    is_replaced: bool,
}

/// The words of a text.
struct Words<'a> {
    text: &'a str,
    tokens: Vec<Token>,
}

impl Words<'_> {
    fn word(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &self.text[token.start..token.end])
    }

    /// Where a dotted name begins that ends at an index; `None` if it is in another schema than the server's.
    fn first(&self, last: usize) -> Option<usize> {
        match last.checked_sub(1).map(|before| self.word(before)) {
            Some(".") => last.checked_sub(2).filter(|first| means(self.word(*first), "pg_catalog")),
            _ => Some(last),
        }
    }

    /// Words that look like calls of these functions.
    fn calls(&self) -> Vec<Place> {
        let names = [OWN, SIGNALS[0], SIGNALS[1], SETTING];
        let call = |index: usize| {
            let name = names.into_iter().find(|name| means(self.word(index), name))?;
            let first = self.first(index).filter(|_| self.word(index + 1) == "(")?;
            // Without its arguments, of which our own has one more.
            let is_empty = self.word(index + 2) == ")";
            let last = if name == OWN && is_empty { index + 2 } else { index };
            let is_replaced = match name {
                OWN => is_empty,
                SETTING => self.may_be_of_session(index + 2),
                _ => true,
            };
            Some(Place { start: self.tokens[first].start, end: self.tokens[last].end, name, is_replaced })
        };
        (0..self.tokens.len()).filter_map(call).collect()
    }

    /// Whether the argument at an index is one of the session's settings, or no constant.
    fn may_be_of_session(&self, index: usize) -> bool {
        let constant = self.word(index).strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        let is_whole = matches!(self.word(index + 1), ")" | ",");
        constant
            .filter(|_| is_whole)
            .is_none_or(|name| SESSION_SETTINGS.iter().any(|setting| setting.eq_ignore_ascii_case(name)))
    }

    /// Words that look like a read of this relation.
    fn relations(&self) -> Vec<Place> {
        let relation = |index: usize| {
            let first = self.first(index).filter(|_| means(self.word(index), SETTINGS))?;
            let before = first.checked_sub(1).map(|before| self.word(before).to_ascii_lowercase());
            let is_read = matches!(before.as_deref(), Some("from" | "join" | ","));
            let ends = !matches!(self.word(index + 1), "." | "(" | "*");
            let (start, end) = (self.tokens[first].start, self.tokens[index].end);
            (is_read && ends).then_some(Place { start, end, name: SETTINGS, is_replaced: true })
        };
        (0..self.tokens.len()).filter_map(relation).collect()
    }
}

/// Whether an identifier, quoted or not, means this name.
fn means(word: &str, name: &str) -> bool {
    match word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted == name,
        None => word.eq_ignore_ascii_case(name),
    }
}

fn written(text: &str, places: &[Place], number: i32) -> String {
    let mut out = String::with_capacity(text.len() + 32 * places.len());
    let mut done = 0;
    for place in places {
        out.push_str(&text[done..place.start]);
        out.push_str("onecopy.");
        out.push_str(place.name);
        match place.name {
            OWN => out.push_str(&format!("({number})")),
            SETTINGS => out.push_str("()"),
            _ => {}
        }
        done = place.end;
    }
    out.push_str(&text[done..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyzer::{Analyzer, Limits};

    fn rewritten(text: &str) -> Option<StandIns> {
        let mut analyzer = Analyzer::new(Limits::default());
        let script = analyzer.script(text.as_bytes(), true).unwrap();
        stand_ins(&script.statements[0].statement, text, &Catalogue::default(), 7)
    }

    #[test]
    fn calls_become_our_own() {
        let (sessions, settings) =
            (Asks { sessions: true, settings: false }, Asks { sessions: false, settings: true });
        for (text, expected, asks) in [
            ("select pg_terminate_backend($1)", "select onecopy.pg_terminate_backend($1)", sessions),
            (
                "SELECT \"pg_catalog\" . PG_Cancel_Backend /* x */ (pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
                "SELECT onecopy.pg_cancel_backend /* x */ (pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
                sessions,
            ),
            (
                "prepare p as select pg_terminate_backend(pid => 5, timeout => 1)",
                "prepare p as select onecopy.pg_terminate_backend(pid => 5, timeout => 1)",
                sessions,
            ),
            (
                "select current_setting('Transaction_Isolation', true), current_setting('app.x'), current_setting($1)",
                "select onecopy.current_setting('Transaction_Isolation', true), current_setting('app.x'), onecopy.current_setting($1)",
                settings,
            ),
            (
                "select s.setting from pg_class c, pg_catalog.pg_settings s where s.name = 'x'",
                "select s.setting from pg_class c, onecopy.pg_settings() s where s.name = 'x'",
                settings,
            ),
        ] {
            let text = rewritten(text).unwrap_or_else(|| panic!("nothing stands in: {text}"));
            assert_eq!((text.text.as_str(), text.asks), (expected, asks));
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
            "select current_setting('app.tenant')",
            "select 1, pg_settings from pg_settings",
            "table pg_settings",
        ] {
            assert_eq!(rewritten(text), None, "{text}");
        }
    }
}
