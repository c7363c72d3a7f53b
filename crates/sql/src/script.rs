//! A query string, split into its statements.

use std::fmt;
use std::sync::Arc;

use crate::lexer::Span;
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

impl Part {
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
}

impl SyntaxError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SyntaxError {}
