//! How values reach the statements of a body: which variable is given what, and under which conditions of IF.
//!
//! In `FOREACH v_id IN ARRAY p_ids LOOP UPDATE item SET .. WHERE i_id = v_id` the variable is given the elements of the
//! array, and nothing else. The order of statements does not count: a variable may have, whenever it is used, whatever
//! it is given anywhere.
//!
//! The tree of PL/pgSQL's parser does not show everything. So words are counted: each place of the source where a name
//! stands is in the text of some expression, or is one that is understood (a declaration, the head of a loop). A name
//! with another place is *loose*: the variable of that name may have any value, and if it names a table or a function,
//! that may be used in a way that no statement shows.
//!
//! Invariant: a variable that is not loose has no values but those that it is given.

use std::collections::{BTreeMap, BTreeSet};

use pg_query::protobuf::Token;

use super::source as token_source;
use crate::accesses::{Form, Guard, Operand};
use crate::parser;

/// The ways of values in a body.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flow {
    /// For each statement, what has to hold for it to run; empty beyond.
    pub(crate) guards: Vec<Vec<Guard>>,
    /// Beside the parameters, as far as these are not assigned: what each variable is given.
    pub(crate) given: BTreeMap<String, Vec<Given>>,
    pub(crate) passed: Vec<Passed>,
    loose: BTreeSet<String>,
}

/// Variables that are passed to a procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Passed {
    /// Its name, in whatever schema.
    pub(crate) procedure: String,
    /// Their names.
    pub(crate) names: Vec<String>,
}

/// Something that a variable is given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Given {
    /// What has to hold for that.
    pub(crate) guards: Vec<Guard>,
    pub(crate) source: Source,
    /// The variable's type; `None` if values of it cannot be told apart by looking at them.
    pub(crate) form: Option<Form>,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Value(Operand),
    /// Each element of an array in turn.
    ElementOf(Operand),
    Unknown,
}

impl Flow {
    /// Whether a variable may get values in other ways.
    pub(crate) fn is_loose(&self, name: &str) -> bool {
        self.loose.contains(name)
    }

    /// The names that stand where no statement shows them.
    pub(crate) fn loose(&self) -> impl Iterator<Item = &String> {
        self.loose.iter()
    }

    pub(super) fn give(&mut self, name: &str, given: Given) {
        self.given.entry(name.to_owned()).or_default().push(given);
    }

    /// Compares the places of names in a source with those that are accounted for.
    pub(super) fn count(&mut self, source: &Counts, understood: &Counts) {
        let names = source.0.keys().chain(understood.0.keys());
        let is_loose = |name: &&String| source.0.get(*name) != understood.0.get(*name);
        self.loose = names.filter(is_loose).cloned().collect();
    }
}

/// How often each name stands somewhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts(BTreeMap<String, usize>);

impl Counts {
    pub(super) fn add(&mut self, name: &str) {
        *self.0.entry(name.to_owned()).or_default() += 1;
    }

    /// Adds the names of an expression.
    pub(super) fn add_expression(&mut self, text: &str) -> Option<()> {
        words(text)?.into_iter().for_each(|(name, _)| self.add(&name));
        Some(())
    }

    /// Adds the names of a source, but for those in types that are given as `name%TYPE` or `name%ROWTYPE`: they use
    /// nothing.
    pub(super) fn add_source(&mut self, text: &str) -> Option<()> {
        for (name, is_type) in words(text)? {
            if !is_type {
                self.add(&name);
            }
        }
        Some(())
    }
}

/// The names in a text, each with whether it belongs to such a type; `None` if the text is not understood.
fn words(text: &str) -> Option<Vec<(String, bool)>> {
    let mut found: Vec<(String, bool)> = Vec::new();
    // Where the name began that is being read, in parts.
    let (mut path, mut is_open, mut is_type) = (0, false, false);
    for token in &parser::scan(text)? {
        let source = token_source(text, token)?;
        match Token::try_from(token.token) {
            Ok(Token::Uident) | Err(_) => return None,
            Ok(Token::SqlComment | Token::CComment) => continue,
            Ok(_) => {}
        }
        if let Some(name) = name_in(source) {
            if is_type && matches!(name.as_str(), "type" | "rowtype") {
                found[path..].iter_mut().for_each(|(_, is_type)| *is_type = true);
            } else if !is_open {
                path = found.len();
            }
            found.push((name, is_type));
            (is_open, is_type) = (false, false);
        } else {
            is_type = source == "%" && !found.is_empty() && !is_open;
            is_open = source == ".";
            if !is_open && !is_type {
                path = found.len();
            }
        }
    }
    Some(found)
}

/// The name that a token is, if it is one; keywords and `$1` count as well.
fn name_in(token: &str) -> Option<String> {
    let first = token.chars().next()?;
    if first == '_' || first.is_alphabetic() {
        // Constants such as E'..' and B'..' begin with a letter as well.
        return (!token.contains('\'')).then(|| token.to_ascii_lowercase());
    }
    match first {
        '"' => Some(token.trim_matches('"').replace("\"\"", "\"")),
        '$' if token[1..].bytes().all(|byte| byte.is_ascii_digit()) => Some(token.to_owned()),
        _ => None,
    }
}
