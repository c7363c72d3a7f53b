//! Explains the analysis of one statement in lines of text.
//!
//! The answer to `EXPLAIN (ROUTING) statement` and to `onecopy explain`. Each line is a word and what it says, so that
//! a person can read it and a script can cut it. Nothing is executed, and no parameter needs a value: rows are told as
//! the statement names them. Where a statement of an open transaction runs was decided by its first one; what is said
//! here is where it would run by itself.

use std::collections::BTreeSet;

use crate::access::{Access, Because};
use crate::accesses::{Grade, Teller};
use crate::analyzer::{Analyzer, Limits};
use crate::catalogue::{Catalogue, TableId};
use crate::classify::classify;
use crate::determinism::{Determinism, Subject, determinism};
use crate::home::{draws, may_leave_anchor};
use crate::parser::{self, Parsed};
use crate::script::{Part, SyntaxError};
use crate::statement::{Statement, Verb};

/// The width of the first words.
const WORD_WIDTH: usize = 12;

/// The lines of `EXPLAIN (ROUTING) statement`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explained<'a> {
    /// The statement inside, as it stands in the text.
    pub statement: &'a str,
    /// The whole text with spaces instead of the options, so that positions stay.
    pub plain: String,
    /// The numbers of its parameters.
    pub parameters: BTreeSet<u32>,
}

/// Takes `EXPLAIN (ROUTING) statement` apart; `None` if it is something else.
pub fn explained(text: &str) -> Option<Explained<'_>> {
    let tokens = parser::tokens(text)?;
    let word = |index: usize| tokens.get(index).map_or("", |token| &text[token.start..token.end]);
    if !word(0).eq_ignore_ascii_case("explain") || word(1) != "(" {
        return None;
    }
    let close = (2..tokens.len()).find(|&index| word(index) == ")")?;
    let first = tokens.get(close + 1)?;
    let last = tokens.iter().rfind(|token| &text[token.start..token.end] != ";")?;
    let (before, after) = (text.get(..tokens[1].start)?, text.get(tokens[close].end..)?);
    let options = text.get(tokens[1].start..tokens[close].end)?.chars();
    let plain = before.chars().chain(options.map(|_| ' ')).chain(after.chars()).collect();
    let number = |index: usize| word(index).strip_prefix('$')?.parse().ok();
    let parameters = (close..tokens.len()).filter_map(number).collect();
    Some(Explained { statement: text.get(first.start..last.end)?, plain, parameters })
}

/// Whether a text is EXPLAIN (ROUTING) of a CALL or DO, which PostgreSQL's grammar does not have.
pub(crate) fn explains_call(text: &str) -> bool {
    let Some(Explained { statement, .. }) = explained(text) else { return false };
    let only = |text: &str| match parser::parse(text, true) {
        Ok(Parsed::Trees(mut trees)) if trees.len() == 1 => trees.pop().and_then(|tree| tree.stmt),
        _ => None,
    };
    let head = &text[..statement.as_ptr().addr() - text.as_ptr().addr()];
    let is_routing = || {
        let explain = only(&format!("{head} SELECT 1"));
        explain.is_some_and(|tree| classify(&tree).verb == Verb::ExplainRouting)
    };
    only(statement).is_some_and(|tree| matches!(classify(&tree).verb, Verb::Call | Verb::Do)) && is_routing()
}

/// Explains each statement of a text under a catalogue, for a session that draws from lent ranges of sequences or does not.
///
/// # Errors
/// If PostgreSQL's parser does not accept the text.
pub fn explain(
    text: &str,
    standard_conforming_strings: bool,
    catalogue: &Catalogue,
    borrows: bool,
) -> Result<Vec<String>, SyntaxError> {
    let mut analyzer = Analyzer::new(Limits { entries: 0, bytes: 0 });
    let script = analyzer.script(text.as_bytes(), standard_conforming_strings)?;
    let mut lines = Vec::new();
    for part in &script.statements {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let subject = Subject {
            text: text.get(part.start..part.end).unwrap_or_default(),
            standard_conforming_strings,
            parameter_types: &[],
        };
        let told = Told { part, text, catalogue, subject, borrows, lines: Vec::new() }.all();
        lines.extend(
            told.iter().map(|(word, what)| format!("{word:<WORD_WIDTH$}{what}").trim_end().to_owned()),
        );
    }
    Ok(lines)
}

struct Told<'a> {
    part: &'a Part,
    text: &'a str,
    catalogue: &'a Catalogue,
    subject: Subject<'a>,
    borrows: bool,
    lines: Vec<(&'static str, String)>,
}

impl Told<'_> {
    fn all(mut self) -> Vec<(&'static str, String)> {
        let statement = std::sync::Arc::clone(&self.part.statement);
        self.say("template", self.part.template(self.text));
        self.say("number", format!("{:016x}", statement.template.0));
        match &statement.verb {
            Verb::Refused { what, hint } => {
                self.say("refused", format!("{what} is not supported through Onecopy"));
                self.say("hint", (*hint).to_owned());
            }
            Verb::Ddl(facts) if facts.temporary => {
                self.say("runs", "at the anchor, where all of the session stays from then on".to_owned());
            }
            Verb::Ddl(_) => {
                self.say("runs", "at the anchor, then on every replica, in the order of versions".to_owned());
                self.say("record", "the statement itself".to_owned());
            }
            verb if is_of_session(verb) => {
                self.say("runs", "in the session: it concerns settings, names or the transaction".to_owned());
            }
            Verb::Maintenance(_) => {
                self.say("runs", "on every replica for itself, without a version".to_owned());
            }
            _ => self.rows(&statement),
        }
        self.lines
    }

    fn say(&mut self, word: &'static str, what: String) {
        self.lines.push((word, what));
    }

    /// A statement about rows, or one that may be.
    fn rows(&mut self, statement: &Statement) {
        let outline = statement.outline(self.catalogue);
        let teller =
            Teller { text: self.text.as_bytes(), constants: &self.part.constants, catalogue: self.catalogue };
        self.lines.extend(teller.lines(&outline));
        if let Some(why) = outline.unbounded() {
            self.say("unknown", why.told(self.catalogue));
        }
        let class = match Grade::of(&outline, self.catalogue) {
            Grade::Nothing => "none: it touches no rows",
            Grade::Rows => "key: it conflicts with what touches the same rows",
            Grade::Groups => "group: it conflicts with what touches rows that have the same values there",
            Grade::Columns => "columns: it conflicts with what touches these columns of any row",
            Grade::Tables => "table: it conflicts with what touches the same tables",
            Grade::Anything => "anything: it conflicts with every update",
        };
        self.say("class", class.to_owned());
        self.place(statement);
    }

    fn place(&mut self, statement: &Statement) {
        let routing = statement.routing(self.catalogue);
        let runs = match &routing.access {
            Access::Read(tables) if tables.is_empty() => "at any replica: it reads no table".to_owned(),
            Access::Read(tables) => {
                format!("at any replica that has applied what was written to {}", self.names(tables))
            }
            Access::Anchor(Because::Update)
                if may_leave_anchor(statement, &routing, false, self.catalogue) =>
            {
                match (draws(&routing, self.catalogue).is_empty(), self.borrows) {
                    (true, _) => {
                        "at any replica: where what it conflicts with runs, or ran last, else by load"
                    }
                    (false, true) => {
                        "at the anchor as long as that has room, else where ranges of its sequences are lent to"
                    }
                    (false, false) => "at the anchor: it draws from a sequence",
                }
                .to_owned()
            }
            Access::Anchor(Because::Update) => "at the anchor: it changes data, or locks it".to_owned(),
            Access::Anchor(Because::Unknown) => "at the anchor: it may do anything".to_owned(),
            Access::Anchor(Because::Catalogue) => {
                "at the anchor: it reads what differs between replicas (catalogues, object numbers)"
                    .to_owned()
            }
        };
        self.say("runs", runs);
        if matches!(routing.access, Access::Read(_)) {
            return;
        }
        match &routing.writes {
            Some(tables) => {
                for &table in tables {
                    self.say("capture", format!("rows of {}, by its trigger", self.names(&[table])));
                }
            }
            None => self.say("capture", "rows, by the triggers of whatever it writes".to_owned()),
        }
        self.determinism();
    }

    /// Whether it could travel as a statement.
    fn determinism(&mut self) {
        match determinism(&self.subject, self.catalogue) {
            Ok(Determinism::Deterministic) => self.say("as text", "the same on every replica".to_owned()),
            Ok(Determinism::AfterRewrite(rewrite)) => {
                let calls: Vec<&str> = rewrite.replaced().filter(|call| !call.is_empty()).collect();
                let of = if calls.is_empty() { "defaults".to_owned() } else { calls.join(", ") };
                self.say("as text", format!("the same on every replica once constants replace {of}"));
            }
            Ok(Determinism::No(reasons)) => {
                for why in reasons {
                    self.say("not as text", format!("{why}"));
                }
            }
            Err(_) => {}
        }
    }

    fn names(&self, tables: &[TableId]) -> String {
        let name = |id: &TableId| self.catalogue.table(*id).map_or("?", |table| table.name.as_str());
        tables.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

fn is_of_session(verb: &Verb) -> bool {
    matches!(
        verb,
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
            | Verb::Show(_)
            | Verb::Discard(_)
            | Verb::Deallocate(_)
            | Verb::ExplainRouting
            | Verb::Empty
    )
}
