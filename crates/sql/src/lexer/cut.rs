//! Cuts a long text into its statements, and shortens each for the parser.
//!
//! The parser takes a kilobyte and a few microseconds for each token, so a text of some megabytes could take gigabytes.
//! Long texts are mostly INSERTs of many rows and conditions with many constants: `VALUES (1, 'a'), (2, 'b'), ..` and
//! `k IN (1, 2, 3, ..)`. Rows and elements that differ only in constants lead to the same conclusions, as do whole
//! statements that differ only in constants (see [`super`]). So two of each kind are kept, and a short constant takes the
//! place of a long one. NULL, truth values and parameters count as constants here.
//!
//! Invariant: every constant of the shortened statement is left open, so its number and values lead to no conclusion.

use rustc_hash::FxHashMap;

use super::{CLASSES, Class, Lexer, Span, Unclear, is_row_word, marker};

/// Elements of one kind that a list keeps.
const KEPT: u8 = 2;
/// Limit of the kinds that are told apart in one list. Elements of further kinds are all kept.
const MAX_KINDS: usize = 1_000;
/// Limit of nested lists that are shortened.
const MAX_LISTS: usize = 4;
/// Longer constants are replaced by short ones.
const MAX_CONSTANT: usize = 64;
/// Separates tokens in the kind of an element.
const SEPARATOR: u8 = 0x1f;

/// One statement of a long text.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Where its tokens are in the whole text.
    pub(crate) span: Span,
    /// It reads or writes rows, so its constants can be left open.
    pub(crate) is_about_rows: bool,
    /// The shortened statement.
    pub(crate) reduced: Vec<u8>,
    /// The tokens of that.
    pub(crate) tokens: usize,
    /// It contains `BEGIN ATOMIC`, so the semicolon may not be its end.
    pub(crate) may_go_on: bool,
}

/// Cuts a text, which must be UTF-8 and without backslash escapes in plain strings.
#[derive(Debug)]
pub(crate) struct Cutter<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cutter<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The next statement; `None` at the end.
    pub(crate) fn next(&mut self, max_tokens: usize) -> Result<Option<Piece>, Unclear> {
        let (mut key, mut constants) = (Vec::new(), Vec::new());
        let rest = &self.text[self.at..];
        let mut lexer = Lexer::new(rest, &mut key, &mut constants);
        lexer.gap()?;
        lexer.semicolons()?;
        if lexer.at == rest.len() {
            return Ok(None);
        }
        let mut reducer = Reducer::new(lexer.at);
        while let Some(&byte) = rest.get(lexer.at) {
            let begin = lexer.at;
            lexer.key.clear();
            lexer.constants.clear();
            let class = CLASSES[usize::from(byte)];
            if class == Class::Semicolon {
                if reducer.depth == 0 {
                    break;
                }
                lexer.at += 1;
            } else {
                lexer.token(byte, class)?;
            }
            let constant = lexer.constants.first().and_then(|_| lexer.key.first().copied());
            reducer.take(&rest[begin..lexer.at], constant);
            reducer.end = lexer.at;
            let end = lexer.at;
            lexer.gap()?;
            reducer.has_gap = lexer.at > end;
            if reducer.tokens > 2 * max_tokens {
                // An element of so many tokens was kept, or one of its kind was.
                break;
            }
        }
        let next = lexer.at;
        let span = Span { start: self.at + reducer.start, end: self.at + reducer.end };
        self.at += next;
        Ok(Some(reducer.finish(span)))
    }
}

/// A list that is being shortened.
#[derive(Debug)]
struct List {
    /// The bracket depth at which commas separate its elements.
    depth: usize,
    /// Each element has brackets of its own; the list ends where no comma follows one.
    is_of_rows: bool,
    /// The number of kept elements of each kind.
    kinds: FxHashMap<Box<[u8]>, u8>,
    /// Where the current element begins in the output, with its comma, and the number of tokens before it.
    kept: (usize, usize),
    /// The kind of the current element so far: its tokens, with a marker for each constant.
    kind: Vec<u8>,
    /// The current element is complete.
    has_ended: bool,
}

/// The state after the last tokens: a list may begin with the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ahead {
    Nothing,
    /// `VALUES`.
    Rows,
    /// `IN`.
    In,
    /// `ARRAY`.
    Array,
    /// The opening bracket of a list of elements.
    Elements,
}

#[derive(Debug)]
struct Reducer {
    start: usize,
    end: usize,
    out: Vec<u8>,
    tokens: usize,
    depth: usize,
    has_gap: bool,
    has_word: bool,
    is_about_rows: bool,
    ahead: Ahead,
    /// The innermost last.
    lists: Vec<List>,
    /// `BEGIN` was the last word.
    after_begin: bool,
    may_go_on: bool,
}

impl Reducer {
    fn new(start: usize) -> Self {
        Self {
            start,
            end: start,
            out: Vec::new(),
            tokens: 0,
            depth: 0,
            has_gap: false,
            has_word: false,
            is_about_rows: false,
            ahead: Ahead::Nothing,
            lists: Vec::new(),
            after_begin: false,
            may_go_on: false,
        }
    }

    /// Takes the next token, with the marker if it is a constant.
    fn take(&mut self, token: &[u8], constant: Option<u8>) {
        let is_bracket = matches!(token, b"(" | b"[" | b")" | b"]");
        if !self.has_word && token != b"(" {
            (self.is_about_rows, self.has_word) = (is_row_word(token), true);
        }
        let is = |word: &[u8]| token.eq_ignore_ascii_case(word);
        self.may_go_on |= self.after_begin && is(b"atomic");
        self.after_begin = is(b"begin");
        self.begin_list(token);
        if matches!(token, b")" | b"]") {
            self.close();
        }
        let is_next = token == b"," && self.lists.last().is_some_and(|list| list.depth == self.depth);
        if is_next {
            self.end_element();
            self.begin_element();
        } else if !is_bracket
            && self.lists.last().is_some_and(|list| list.is_of_rows && list.depth == self.depth)
        {
            // Something else than a row or a comma follows.
            self.end_element();
            self.lists.pop();
        }
        self.write(token, constant);
        if let Some(list) = self.lists.last_mut().filter(|_| is_next) {
            // The comma is no part of the kind: the first element has none.
            list.kind.clear();
        }
        if matches!(token, b"(" | b"[") {
            self.depth += 1;
        }
        self.ahead = match (self.ahead, token) {
            (Ahead::In, b"(") | (Ahead::Array, b"[") => Ahead::Elements,
            _ if is(b"values") => Ahead::Rows,
            _ if is(b"in") => Ahead::In,
            _ if is(b"array") => Ahead::Array,
            _ => Ahead::Nothing,
        };
    }

    /// Begins a list with this token if the ones before announce it.
    fn begin_list(&mut self, token: &[u8]) {
        let is_query =
            [&b"select"[..], b"with", b"values", b"table"].iter().any(|w| token.eq_ignore_ascii_case(w));
        let is_of_rows = match self.ahead {
            Ahead::Rows if token == b"(" => true,
            Ahead::Elements if !is_query && !matches!(token, b")" | b"]") => false,
            _ => return,
        };
        if self.lists.len() >= MAX_LISTS {
            return;
        }
        self.lists.push(List {
            depth: self.depth,
            is_of_rows,
            kinds: FxHashMap::default(),
            kept: (0, 0),
            kind: Vec::new(),
            has_ended: false,
        });
        self.begin_element();
    }

    fn begin_element(&mut self) {
        let kept = (self.out.len(), self.tokens);
        if let Some(list) = self.lists.last_mut() {
            (list.kept, list.has_ended) = (kept, false);
            list.kind.clear();
        }
    }

    /// Completes the current element, and removes it from the output if enough of its kind are kept.
    fn end_element(&mut self) {
        let Some(list) = self.lists.last_mut() else { return };
        if std::mem::replace(&mut list.has_ended, true) {
            return;
        }
        let has_room = list.kinds.len() < MAX_KINDS;
        match list.kinds.get_mut(list.kind.as_slice()) {
            Some(count) if *count >= KEPT => {
                self.out.truncate(list.kept.0);
                self.tokens = list.kept.1;
            }
            Some(count) => *count += 1,
            None if has_room => {
                list.kinds.insert(list.kind.as_slice().into(), 1);
            }
            None => {}
        }
    }

    /// Closes a bracket, and the lists whose elements it contains.
    fn close(&mut self) {
        while self.lists.last().is_some_and(|list| list.depth == self.depth) {
            self.end_element();
            self.lists.pop();
        }
        self.depth = self.depth.saturating_sub(1);
    }

    fn write(&mut self, token: &[u8], constant: Option<u8>) {
        self.tokens += 1;
        if self.has_gap && !self.out.is_empty() {
            self.out.push(b' ');
        }
        let is_unknown =
            constant.is_none() && self.lists.last().is_some_and(|list| list.takes_for_constant(token));
        let constant = if is_unknown { Some(marker::STRING) } else { constant };
        match constant {
            Some(marker) if is_unknown || token.len() > MAX_CONSTANT => {
                self.out.extend_from_slice(short(marker));
            }
            _ => self.out.extend_from_slice(token),
        }
        // `< -1` and `<-1` are not the same operators.
        let is_apart = self.has_gap && token.len() == 1 && !matches!(token, b"(" | b"[" | b")" | b"]" | b",");
        for list in &mut self.lists {
            if is_apart && constant.is_none() {
                list.kind.push(b' ');
            }
            list.add_to_kind(token, constant.is_some());
        }
    }

    fn finish(mut self, span: Span) -> Piece {
        while !self.lists.is_empty() {
            self.end_element();
            self.lists.pop();
        }
        let Self { out, tokens, is_about_rows, may_go_on, .. } = self;
        Piece { span, is_about_rows, reduced: out, tokens, may_go_on }
    }
}

impl List {
    /// Whether the token is a parameter, NULL or a truth value in the place of a constant. It is written as a constant, since
    /// removed elements of the same kind may have another value there.
    fn takes_for_constant(&self, token: &[u8]) -> bool {
        let is_parameter = token.len() > 1 && token[0] == b'$' && token[1].is_ascii_digit();
        let is_word = [&b"null"[..], b"true", b"false"].iter().any(|word| token.eq_ignore_ascii_case(word));
        is_parameter || (is_word && begins_item(&self.kind))
    }

    fn add_to_kind(&mut self, token: &[u8], is_constant: bool) {
        if !is_constant {
            self.kind.extend_from_slice(token);
            self.kind.push(SEPARATOR);
            return;
        }
        // A sign belongs to the number.
        let sign = [b'-', b'+'].into_iter().find_map(|sign| self.kind.strip_suffix(&[sign, SEPARATOR]));
        if let Some(before) = sign.map(|before| before.strip_suffix(b" ").unwrap_or(before))
            && begins_item(before)
        {
            self.kind.truncate(before.len());
        }
        self.kind.extend_from_slice(&[marker::STRING, SEPARATOR]);
    }
}

/// Whether the next token begins an element, or an item in brackets.
fn begins_item(kind: &[u8]) -> bool {
    kind.is_empty() || [b'(', b',', b'['].iter().any(|opening| kind.ends_with(&[*opening, SEPARATOR]))
}

/// A short constant of the same kind to the grammar.
fn short(marker: u8) -> &'static [u8] {
    match marker {
        marker::ESCAPED => b"e'x'",
        marker::BITS => b"b'1'",
        marker::HEX => b"x'1'",
        marker::INTEGER => b"1",
        marker::LONG_INTEGER => b"10000000000",
        marker::DECIMAL => b"1.5",
        _ => b"'x'",
    }
}
