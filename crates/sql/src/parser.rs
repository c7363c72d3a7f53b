//! PostgreSQL's parser, called with care.
//!
//! While it parses, the C library points the process's standard error at a pipe of its own, so two threads must never
//! be in it at once: one would restore the other's pipe for good. Hence one lock around every call.
//!
//! Its result is decoded by recursion, at most 100 levels deep but with some 25 kB of stack for each: more than a
//! thread of the usual size has, and a stack that overflows ends the process. So parse and look
//! at the tree within [`with_deep_stack`]. The C code measures the stack by itself, never takes more than 2.5 MB, and
//! reports what is too deep as an error.
//!
//! The parser reads UTF-8 only. In a text of another encoding every foreign byte is replaced by a character that lexes
//! the same way, so that statements are split correctly; what was understood of their names is then thrown away.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use pg_query::NodeEnum;
use pg_query::protobuf::{
    LimitOption, Node, ParseResult, RawStmt, ResTarget, ScanToken, SelectStmt, SetOperation,
};
use pg_query::{DeparseOptions, Error, FingerprintOptions, ParserOptions};

use crate::script::SyntaxError;

/// What decoding a tree of the greatest depth takes, and as much again for what the C code and the walks need.
const STACK_NEEDED: usize = 6 << 20;

/// The stack that is made where less than that is left.
const STACK_MADE: usize = 8 << 20;

/// Runs something on a stack that is deep enough to parse and to walk trees.
pub(crate) fn with_deep_stack<T>(run: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_NEEDED, STACK_MADE, run)
}

/// Held while the C library runs.
static IN_PARSER: Mutex<()> = Mutex::new(());

/// A longer text may keep the library busy for longer than a session's thread should wait.
const LONG_TEXT: usize = 4 << 10;

/// How many long texts are in the library, or wait for it.
static LONG_TEXTS: AtomicUsize = AtomicUsize::new(0);

/// Whether the parser is at work on a long text, so that a call would have to wait.
pub fn is_parser_busy() -> bool {
    LONG_TEXTS.load(Ordering::Relaxed) > 0
}

/// Counts a long text among [`LONG_TEXTS`] while it lives.
struct Long;

impl Long {
    fn of(text: &str) -> Option<Self> {
        (text.len() > LONG_TEXT).then(|| {
            LONG_TEXTS.fetch_add(1, Ordering::Relaxed);
            Self
        })
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        LONG_TEXTS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of parsing a text.
pub(crate) enum Parsed {
    /// Its statements.
    Trees(Vec<RawStmt>),
    /// It is valid, as far as can be said, but too deep to be decoded.
    TooDeep,
}

/// Parses a query string.
pub(crate) fn parse(text: &str, standard_conforming_strings: bool) -> Result<Parsed, SyntaxError> {
    let options = if standard_conforming_strings {
        ParserOptions::DEFAULT
    } else {
        ParserOptions::DISABLE_STANDARD_CONFORMING_STRINGS
    };
    let parsed = {
        let _long = Long::of(text);
        let _alone = IN_PARSER.lock().unwrap_or_else(PoisonError::into_inner);
        pg_query::parse(text, options)
    };
    match parsed {
        Ok(result) => Ok(Parsed::Trees(result.protobuf.stmts)),
        Err(Error::Decode(_)) => Ok(Parsed::TooDeep),
        Err(Error::Parse(message)) if is_about_depth(&message) => Ok(Parsed::TooDeep),
        Err(error) => Err(syntax_error(error)),
    }
}

/// Parses a text that stands in PL/pgSQL, by the mode that its parser names.
pub(crate) fn parse_within(text: &str, mode: i32) -> Option<RawStmt> {
    let parsed = {
        let _alone = IN_PARSER.lock().unwrap_or_else(PoisonError::into_inner);
        pg_query::parse(text, mode)
    };
    let mut trees = parsed.ok()?.protobuf.stmts;
    trees.pop().filter(|_| trees.is_empty())
}

/// Parses the one PL/pgSQL function that a text makes.
pub(crate) fn parse_plpgsql(text: &str) -> Option<serde_json::Value> {
    let _alone = IN_PARSER.lock().unwrap_or_else(PoisonError::into_inner);
    pg_query::parse_plpgsql(text).ok()
}

/// The text of a tree.
pub(crate) fn deparse(tree: &ParseResult, options: DeparseOptions) -> Option<String> {
    let _alone = IN_PARSER.lock().unwrap_or_else(PoisonError::into_inner);
    pg_query::deparse(tree, options).ok()
}

/// The text of a statement.
pub(crate) fn statement_text(statement: NodeEnum) -> Option<String> {
    let statement = Some(Box::new(Node { node: Some(statement) }));
    let tree = ParseResult { version: 0, stmts: vec![RawStmt { stmt: statement, ..RawStmt::default() }] };
    deparse(&tree, DeparseOptions::default())
}

/// The text of an expression.
pub(crate) fn expression_text(expression: &Node) -> Option<String> {
    let target = ResTarget { val: Some(Box::new(expression.clone())), ..ResTarget::default() };
    let select = SelectStmt {
        target_list: vec![Node { node: Some(NodeEnum::ResTarget(Box::new(target))) }],
        limit_option: LimitOption::Default as i32,
        op: SetOperation::SetopNone as i32,
        ..SelectStmt::default()
    };
    let text = statement_text(NodeEnum::SelectStmt(Box::new(select)))?;
    text.strip_prefix("SELECT ").map(str::to_owned)
}

/// The key of texts that mean the same, constants apart.
pub(crate) fn fingerprint(text: &str, options: FingerprintOptions) -> Option<u64> {
    let _alone = IN_PARSER.lock().unwrap_or_else(PoisonError::into_inner);
    pg_query::fingerprint(text, ParserOptions::DEFAULT, options).ok().map(|print| print.value)
}

/// The tokens of a text.
pub(crate) fn scan(text: &str) -> Option<Vec<ScanToken>> {
    let _alone = IN_PARSER.lock().unwrap_or_else(PoisonError::into_inner);
    // The variant without protobuf makes a slice of a null pointer when there are no tokens.
    pg_query::scan(text).ok().map(|result| result.tokens)
}

/// Splits a query string into the byte ranges of its statements, without looking into them.
pub(crate) fn split(text: &str) -> Result<Vec<(usize, usize)>, SyntaxError> {
    let split = {
        let _long = Long::of(text);
        let _alone = IN_PARSER.lock().unwrap_or_else(PoisonError::into_inner);
        pg_query::split_with_parser(text)
    };
    let base = text.as_ptr().addr();
    let ranges = split.map_err(syntax_error)?.into_iter().map(|part| {
        let start = part.as_ptr().addr() - base;
        (start, start + part.len())
    });
    Ok(ranges.collect())
}

/// A token of a text.
pub(crate) struct Token {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Cuts a text into tokens, comments left out; `None` if that is not possible.
pub(crate) fn tokens(text: &str) -> Option<Vec<Token>> {
    let scanned = {
        let _alone = IN_PARSER.lock().unwrap_or_else(PoisonError::into_inner);
        pg_query::scan_tokens(text)
    };
    let comments = [pg_query::protobuf::Token::SqlComment, pg_query::protobuf::Token::CComment];
    let tokens = scanned
        .ok()?
        .into_iter()
        .filter(|token| comments.iter().all(|&comment| token.token != comment as i32));
    tokens
        .map(|token| {
            let (start, end) = (usize::try_from(token.start).ok()?, usize::try_from(token.end).ok()?);
            (text.is_char_boundary(start) && text.is_char_boundary(end)).then_some(Token { start, end })
        })
        .collect()
}

fn is_about_depth(message: &str) -> bool {
    message.contains("stack depth") || message.contains("too deep")
}

fn syntax_error(error: Error) -> SyntaxError {
    let message = match error {
        Error::Parse(message) | Error::Split(message) => message,
        other => other.to_string(),
    };
    SyntaxError::new(message)
}

/// The text as UTF-8, and whether it was that to begin with. Lengths and places are kept.
pub(crate) fn as_utf8(text: &[u8]) -> (Cow<'_, str>, bool) {
    if let Ok(text) = std::str::from_utf8(text) {
        return (Cow::Borrowed(text), true);
    }
    let mut replaced = String::with_capacity(text.len());
    for &byte in text {
        let last = replaced.as_bytes().last();
        let inside_word =
            last.is_some_and(|&byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$');
        // No keyword begins with an underscore or has a digit, so no word becomes one.
        replaced.push(match byte {
            0..=0x7f => char::from(byte),
            _ if inside_word => '0',
            _ => '_',
        });
    }
    (Cow::Owned(replaced), false)
}
