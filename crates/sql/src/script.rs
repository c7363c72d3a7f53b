//! A query string, split into its statements.

use std::fmt;
use std::sync::Arc;

use crate::analyzer::MAX_TOKENS;
use crate::lexer::Span;
use crate::parser;
use crate::statement::Statement;

/// The statements of one query string, in order. A string of white space and comments is one part of kind
/// [`crate::Verb::Empty`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// The statements with their places in the text.
    pub statements: Vec<Part>,
}

/// One statement in its query string.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where its first token begins, in bytes.
    pub start: usize,
    /// One past its last token, the semicolon not included.
    pub end: usize,
    /// The template, shared with other texts that differ in constants only.
    pub statement: Arc<Statement>,
    /// Where the constants are that the template leaves open, in bytes of the whole text.
    pub constants: Box<[Span]>,
}

/// Longer templates are cut.
const MAX_TEMPLATE_BYTES: usize = 400;

impl Part {
    /// The text with its constants taken out, on one line, for people. `text` is the whole query string.
    pub fn template(&self, text: &str) -> String {
        let mut template = String::new();
        let mut done = self.start;
        for &Span { start, end } in &self.constants {
            template.push_str(text.get(done..start).unwrap_or_default());
            template.push('?');
            done = end;
        }
        template.push_str(text.get(done..self.end).unwrap_or_default());
        let words: Vec<&str> = template.split_whitespace().collect();
        let mut line = words.join(" ");
        if line.len() > MAX_TEMPLATE_BYTES {
            let cut = (0..=MAX_TEMPLATE_BYTES).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
            line.truncate(cut);
            line.push_str(" ..");
        }
        line
    }

    /// A statement that leaves no constant open.
    pub(crate) fn new(span: Span, statement: Statement) -> Self {
        Self { start: span.start, end: span.end, statement: Arc::new(statement), constants: Box::default() }
    }
}

/// The parser does not accept a text. Nothing is known of it then: the server is to report the error, and should it
/// accept the text after all, it may have done anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// The parser's words.
    pub message: String,
    /// Why it was not accepted.
    pub reason: Rejection,
}

/// Why a text is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// The parser reports an error.
    Syntax,
    /// It has more tokens or statements than the parser is given.
    TooComplex,
}

impl SyntaxError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: Rejection::Syntax }
    }

    pub(crate) fn too_complex() -> Self {
        let message = format!(
            "the text has more than {MAX_TOKENS} words and symbols, repeated rows and lists of constants aside"
        );
        Self { message, reason: Rejection::TooComplex }
    }
}

impl SyntaxError {
    /// Where in the text the parser stopped, in bytes; `None` if that cannot be found out. The parser tells the word
    /// only, so it is asked again for each place of that word: the first text that ends there and fails in the same
    /// way ends at the place.
    pub fn position(&self, text: &str, standard_conforming_strings: bool) -> Option<usize> {
        const MAX_TRIES: usize = 64;
        if self.message.ends_with("at end of input") {
            return Some(text.trim_end().len());
        }
        let (_, near) = self.message.split_once(" at or near \"")?;
        let near = near.strip_suffix('"')?;
        let Some(tokens) = parser::tokens(text) else { return text.rfind(near) };
        let same = tokens.iter().filter(|token| &text[token.start..token.end] == near).take(MAX_TRIES);
        let fails_there = |end: usize| {
            let parsed = parser::with_deep_stack(|| parser::parse(&text[..end], standard_conforming_strings));
            parsed.is_err_and(|error| error == *self)
        };
        same.into_iter().find(|token| fails_there(token.end)).map(|token| token.start)
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SyntaxError {}
