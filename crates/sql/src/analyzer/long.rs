//! Long texts: mostly INSERTs of many rows, or many statements.
//!
//! Our own lexer cuts such a text into statements and shortens them ([`crate::lexer::Cutter`]). Statements that differ only
//! in constants are parsed once. A text that the lexer does not understand goes to the parser as a whole. In both cases
//! the parser gets a bounded number of tokens, since each costs a kilobyte of memory.

use std::sync::Arc;

use pg_query::protobuf::RawStmt;
use rustc_hash::FxHashMap;

use super::{Form, Parse, from_trees, large, or_empty, split, template};
use crate::accesses::attach;
use crate::classify::classify;
use crate::lexer::{self, Cutter, Piece, Unclear};
use crate::parser::{self, Parsed};
use crate::script::{Part, Script, SyntaxError};
use crate::statement::Statement;

/// Longer texts are cut. Callers keep no constants of such a text.
pub(super) const MIN_BYTES: usize = 64 << 10;

/// Most tokens that the parser gets in one call.
pub(crate) const MAX_TOKENS: usize = 100_000;

/// Longer texts that our lexer does not understand are refused.
const MAX_UNCLEAR_BYTES: usize = 64 << 20;

/// Most statements of one text, and how many of them may differ in more than constants.
const MAX_STATEMENTS: usize = 200_000;
const MAX_DIFFERENT: usize = 10_000;

/// Looks at a long text.
pub(super) fn parse(readable: &str, conforming: bool, is_faithful: bool) -> Result<Parse, SyntaxError> {
    if conforming
        && is_faithful
        && let Ok(script) = in_pieces(readable)
    {
        return Ok(Parse { script: or_empty(script?), faithful: true });
    }
    as_a_whole(readable, conforming, is_faithful)
}

/// A text that our lexer does not understand.
fn as_a_whole(readable: &str, conforming: bool, is_faithful: bool) -> Result<Parse, SyntaxError> {
    let tokens = lexer::tokens(readable.as_bytes(), conforming, MAX_TOKENS);
    if tokens > MAX_TOKENS || readable.len() > MAX_UNCLEAR_BYTES {
        return Err(SyntaxError::too_complex());
    }
    let script = match parser::parse(readable, conforming)? {
        Parsed::Trees(trees) => from_trees(readable, &trees, Form { is_faithful, has_keys: false }, None),
        Parsed::TooDeep => split(readable)?,
    };
    Ok(Parse { script: or_empty(script), faithful: is_faithful })
}

/// Looks at each statement by itself.
fn in_pieces(text: &str) -> Result<Result<Script, SyntaxError>, Unclear> {
    let mut cutter = Cutter::new(text.as_bytes());
    let mut known: FxHashMap<Vec<u8>, Arc<Statement>> = FxHashMap::default();
    let mut statements = Vec::new();
    while let Some(piece) = cutter.next(MAX_TOKENS)? {
        if piece.may_go_on {
            return Err(Unclear);
        }
        if piece.tokens > MAX_TOKENS || statements.len() == MAX_STATEMENTS {
            return Ok(Err(SyntaxError::too_complex()));
        }
        let source = &text[piece.span.start..piece.span.end];
        let (key, leaves_open) = key_of(&piece, source);
        let statement = match known.get(&key) {
            Some(statement) => Arc::clone(statement),
            None if known.len() == MAX_DIFFERENT => return Ok(Err(SyntaxError::too_complex())),
            None => match look_at(&piece, source, leaves_open)? {
                Ok(statement) => Arc::clone(known.entry(key).or_insert_with(|| Arc::new(statement))),
                Err(error) => return Ok(Err(error)),
            },
        };
        // Without their places the constants are unknown.
        statements.push(Part {
            start: piece.span.start,
            end: piece.span.end,
            statement,
            constants: Box::default(),
        });
    }
    Ok(Ok(Script { statements }))
}

/// The key under which equal statements are found, and whether it leaves constants open.
fn key_of(piece: &Piece, source: &str) -> (Vec<u8>, bool) {
    const SETS: &[u8] = b"set_config";
    const OPEN: u8 = 0;
    const WHOLE: u8 = 1;
    let mut key = Vec::new();
    // Its arguments are kept in the template.
    let sets = || piece.reduced.windows(SETS.len()).any(|window| window.eq_ignore_ascii_case(SETS));
    let is_open =
        piece.is_about_rows && !sets() && lexer::key(&piece.reduced, &mut key, &mut Vec::new()).is_ok();
    if !is_open {
        key = source.as_bytes().to_vec();
    }
    key.push(if is_open { OPEN } else { WHOLE });
    (key, is_open)
}

/// Parses one statement, with its constants left open or as they are.
fn look_at(
    piece: &Piece,
    source: &str,
    leaves_open: bool,
) -> Result<Result<Statement, SyntaxError>, Unclear> {
    let reduced = std::str::from_utf8(&piece.reduced).map_err(|_| Unclear)?;
    let text = if leaves_open { reduced } else { source };
    let parsed = match parser::parse(text, true) {
        Ok(parsed) => parsed,
        Err(error) => return Ok(Err(error)),
    };
    let number = template(text.as_bytes());
    let trees = match parsed {
        Parsed::Trees(trees) => trees,
        Parsed::TooDeep => return Ok(Ok(Statement { template: number, ..large(text) })),
    };
    let [RawStmt { stmt: Some(tree), .. }] = trees.as_slice() else { return Err(Unclear) };
    let mut statement = classify(tree);
    statement.template = number;
    let mut constants = Vec::new();
    if leaves_open {
        lexer::key(text.as_bytes(), &mut Vec::new(), &mut constants)?;
        attach(&mut statement, tree, text, Some(&constants));
    } else {
        attach(&mut statement, tree, text, None);
    }
    Ok(Ok(statement))
}

#[cfg(test)]
mod tests;
