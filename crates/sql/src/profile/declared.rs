//! Declarations of an application about a transaction.
//!
//! `/* onecopy: read item, author; write orders */` on BEGIN or before a transaction's first statement, or the same
//! words as the value of the setting `onecopy.access`. A table that is written is read as well. A name without a schema
//! stands for every table of that name, as everywhere.

use std::collections::BTreeSet;
use std::fmt;

use crate::accesses::{Access, Accesses, Columns, Rows};
use crate::catalogue::{Catalogue, TableId};
use crate::name::Name;

/// The prefix of a declaration in a comment.
const MARK: &str = "onecopy:";

/// More names than this in one declaration are refused.
const MAX_NAMES: usize = 256;

/// More of a text than this is not searched for a comment.
const MAX_SEARCHED: usize = 4096;

/// Tables by name, as they were declared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Declaration {
    /// Tables that are read.
    pub reads: Vec<Name>,
    /// Tables that are written.
    pub writes: Vec<Name>,
}

/// A declaration under a catalogue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Declared {
    /// Tables that are read, in order.
    pub reads: BTreeSet<TableId>,
    /// Tables that are written, in order.
    pub writes: BTreeSet<TableId>,
    /// Names that stand for no table. Nothing follows from them.
    pub unknown: Vec<Name>,
}

/// Words that are no declaration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclarationError {
    /// Where in the declaration, in bytes.
    pub at: usize,
    /// The expected word.
    pub expected: &'static str,
}

impl fmt::Display for DeclarationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} expected at character {}", self.expected, self.at + 1)
    }
}

impl std::error::Error for DeclarationError {}

/// Reads the names of tables, with commas between them.
///
/// # Errors
/// If the text is anything else.
pub fn table_names(text: &str) -> Result<Vec<Name>, DeclarationError> {
    let mut reader = Reader { text, at: 0 };
    let mut names = Vec::new();
    loop {
        if names.len() >= MAX_NAMES {
            return Err(reader.error("no further name"));
        }
        names.push(reader.name()?);
        reader.space();
        if reader.rest().is_empty() {
            return Ok(names);
        }
        if !reader.eat(',') {
            return Err(reader.error("a comma"));
        }
    }
}

/// Finds a declaration in the comments before a statement, or in those after the word BEGIN or START TRANSACTION.
pub fn declaration_of(text: &str) -> Option<Result<Declaration, DeclarationError>> {
    let mut end = text.len().min(MAX_SEARCHED);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut rest = &text[..end];
    loop {
        rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix("/*") {
            let (inside, after) = comment.split_once("*/")?;
            if let Some(words) = inside.trim_start().strip_prefix(MARK) {
                return Some(Declaration::parse(words));
            }
            rest = after;
        } else if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n')?.1;
        } else {
            let word = rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
            // Nothing that is a declaration can stand in a string behind these words.
            let opens = ["begin", "start", "transaction", "work"].iter();
            if !opens.into_iter().any(|known| word.eq_ignore_ascii_case(known)) {
                return None;
            }
            rest = &rest[word.len()..];
        }
    }
}

impl fmt::Display for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (word, names) in [("read", &self.reads), ("write", &self.writes)] {
            if !names.is_empty() {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                write!(f, "{separator}{word} {}", names.join(", "))?;
                separator = "; ";
            }
        }
        Ok(())
    }
}

impl Declaration {
    /// Reads `read a, b; write c`. Either part may be missing, and each may come again.
    ///
    /// # Errors
    /// If the text is anything else.
    pub fn parse(text: &str) -> Result<Self, DeclarationError> {
        let mut reader = Reader { text, at: 0 };
        let mut declaration = Self::default();
        loop {
            reader.space();
            if reader.rest().is_empty() {
                return Ok(declaration);
            }
            let word = reader.word().to_ascii_lowercase();
            let list = match word.as_str() {
                "read" | "reads" => &mut declaration.reads,
                "write" | "writes" => &mut declaration.writes,
                _ => return Err(DeclarationError { at: reader.at - word.len(), expected: "read or write" }),
            };
            loop {
                if list.len() >= MAX_NAMES {
                    return Err(reader.error("no further name"));
                }
                list.push(reader.name()?);
                reader.space();
                if !reader.eat(',') {
                    break;
                }
            }
            if !reader.eat(';') && !reader.rest().is_empty() {
                return Err(reader.error("a comma, a semicolon or the end"));
            }
        }
    }

    /// Looks the names up.
    pub fn resolve(&self, catalogue: &Catalogue) -> Declared {
        let mut declared = Declared::default();
        for (names, tables) in [(&self.reads, &mut declared.reads), (&self.writes, &mut declared.writes)] {
            for name in names {
                match catalogue.tables_named(name) {
                    Some(found) => tables.extend(found),
                    None => declared.unknown.push(name.clone()),
                }
            }
        }
        declared
    }
}

impl Declared {
    /// Whole tables.
    pub fn accesses(&self) -> Accesses {
        let whole = |&table: &TableId| Access { table, columns: Columns::All, rows: Rows::All, new: false };
        Accesses {
            reads: self.reads.union(&self.writes).map(whole).collect(),
            writes: self.writes.iter().map(whole).collect(),
            ..Accesses::default()
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, expected: &'static str) -> DeclarationError {
        DeclarationError { at: self.at, expected }
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// Letters, digits, underscores and dollar signs.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$'))).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn name(&mut self) -> Result<Name, DeclarationError> {
        let first = self.part()?;
        self.space();
        if self.eat('.') {
            return Ok(Name::qualified(first, self.part()?));
        }
        Ok(Name::bare(first))
    }

    /// One part of a name, folded as PostgreSQL folds it.
    fn part(&mut self) -> Result<String, DeclarationError> {
        self.space();
        if !self.eat('"') {
            let start = self.error("a table's name");
            let word = self.word();
            return if word.is_empty() { Err(start) } else { Ok(word.to_ascii_lowercase()) };
        }
        let mut part = String::new();
        loop {
            let Some((before, _)) = self.rest().split_once('"') else {
                return Err(self.error("a closing quote"));
            };
            part.push_str(before);
            self.at += before.len() + 1;
            if !self.eat('"') {
                return Ok(part);
            }
            part.push('"');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[Name]) -> String {
        names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    fn read(text: &str) -> Result<(String, String), DeclarationError> {
        Declaration::parse(text).map(|declaration| (names(&declaration.reads), names(&declaration.writes)))
    }

    #[test]
    fn declarations_are_read() {
        let pair = |reads: &str, writes: &str| Ok((reads.to_owned(), writes.to_owned()));
        assert_eq!(read(" read item, Author; write orders "), pair("item author", "orders"));
        assert_eq!(read("WRITE shop . \"Order\"\"s\";"), pair("", "shop.Order\"s"));
        assert_eq!(read("read a; read b"), pair("a b", ""));
        assert_eq!(read(""), pair("", ""));
    }

    #[test]
    fn a_declaration_is_shown_as_it_can_be_read() {
        let shown = |text: &str| Declaration::parse(text).unwrap().to_string();
        assert_eq!(shown("write c; reads a,s.b"), "read a, s.b; write c");
        assert_eq!(shown(""), "");
        assert_eq!(shown(&shown("write c")), "write c");
    }

    #[test]
    fn mistakes_have_a_place() {
        let wrong = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(wrong("item"), "read or write expected at character 1");
        assert_eq!(wrong("read a; change b"), "read or write expected at character 9");
        assert_eq!(wrong("read ; write b"), "a table's name expected at character 6");
        assert_eq!(wrong("read a b"), "a comma, a semicolon or the end expected at character 8");
        assert_eq!(wrong("read \"a"), "a closing quote expected at character 7");
        let many = format!("read a{}", ", a".repeat(MAX_NAMES));
        assert!(wrong(&many).starts_with("no further name"));
    }

    #[test]
    fn comments_are_found_where_they_count() {
        let found = |text: &str| declaration_of(text).map(|found| names(&found.unwrap().reads));
        assert_eq!(found("BEGIN /* onecopy: read a */"), Some("a".to_owned()));
        assert_eq!(found("/* x */ -- y\n/*onecopy:read b*/ SELECT 1"), Some("b".to_owned()));
        assert_eq!(found("begin; /* onecopy: read a */ select 1"), None);
        assert_eq!(found("SELECT '/* onecopy: read a */'"), None);
        assert_eq!(found("SELECT 1 /* onecopy: read a */"), None);
        assert_eq!(found("/* onecopy: read a"), None);
        assert_eq!(found(""), None);
    }
}
