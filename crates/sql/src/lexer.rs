//! From a text to the key of its template, without parsing.
//!
//! The key is the text with every constant replaced by one marker byte and every comment emptied; all other bytes are
//! kept as they were sent, so equal keys mean equal token sequences up to the values of constants. Markers are control
//! bytes, which the lexer accepts nowhere else. There is one marker for each kind of constant that the grammar can
//! tell apart. Whatever is not understood here (`U&''`, unusual numbers, control bytes, open quotes) is left to the
//! parser; so is everything but a single statement that reads or writes rows.
//!
//! Precondition: `standard_conforming_strings` is on, and the bytes of the encoding's wider characters are all above
//! 0x7f, as in every encoding that a server can have.

mod cut;
mod weight;

pub(crate) use cut::{Cutter, Piece};
pub(crate) use weight::tokens;

/// The token that a byte begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Word,
    Digit,
    Quote,
    DoubleQuote,
    Dollar,
    Semicolon,
    /// An operator or a bracket, taken byte by byte.
    Mark,
    Refuse,
}

const CLASSES: [Class; 256] = classes();

const fn classes() -> [Class; 256] {
    let mut classes = [Class::Mark; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0c => Class::Space,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => Class::Word,
            b'0'..=b'9' => Class::Digit,
            b'\'' => Class::Quote,
            b'"' => Class::DoubleQuote,
            b'$' => Class::Dollar,
            b';' => Class::Semicolon,
            0..0x20 | 0x7f | b'\\' => Class::Refuse,
            _ => Class::Mark,
        };
        byte += 1;
    }
    classes
}

/// Markers of constants in a key.
mod marker {
    pub(super) const STRING: u8 = 1;
    pub(super) const ESCAPED: u8 = 2;
    pub(super) const INTEGER: u8 = 3;
    pub(super) const LONG_INTEGER: u8 = 4;
    pub(super) const DECIMAL: u8 = 5;
    pub(super) const BITS: u8 = 6;
    pub(super) const HEX: u8 = 7;
    pub(super) const DOLLAR: u8 = 0x0e;
}

/// An integer of this many digits may not fit into four bytes and is another token to the grammar then.
const LONG_DIGITS: usize = 10;

/// Tags of dollar quotes longer than this are left to the parser: looking for one costs its length for every byte.
const MAX_TAG: usize = 64;

/// First words of statements that read or write rows.
const ROW_WORDS: [&[u8]; 8] =
    [b"delete", b"insert", b"merge", b"select", b"table", b"update", b"values", b"with"];

/// The lexer does not understand the text, or it is not of the kind that is looked up by key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unclear;

/// A part of a text: where it begins and one past its end, in bytes. Of a statement: its tokens, a final semicolon left
/// out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its first byte.
    pub start: usize,
    /// One past its last byte.
    pub end: usize,
}

/// Writes the key of a text that is one statement about rows, and the places of its constants in their order.
pub(crate) fn key(text: &[u8], key: &mut Vec<u8>, constants: &mut Vec<Span>) -> Result<Span, Unclear> {
    constants.clear();
    let mut lexer = Lexer::new(text, key, constants);
    lexer.gap()?;
    let start = lexer.at;
    lexer.key.clear();
    let mut first_word = true;
    let mut end = start;
    let mut kept = 0;
    while let Some(&byte) = text.get(lexer.at) {
        let begin = lexer.at;
        match CLASSES[usize::from(byte)] {
            Class::Semicolon => {
                lexer.semicolons()?;
                if lexer.at < text.len() {
                    return Err(Unclear);
                }
                break;
            }
            class => lexer.token(byte, class)?,
        }
        if first_word && byte != b'(' {
            if !is_row_word(&text[begin..lexer.at]) {
                return Err(Unclear);
            }
            first_word = false;
        }
        end = lexer.at;
        kept = lexer.key.len();
        lexer.gap()?;
    }
    lexer.key.truncate(kept);
    if first_word { Err(Unclear) } else { Ok(Span { start, end }) }
}

/// Where the tokens of a part of a text begin and end. White space and comments around it are left out, if they can be
/// told from tokens.
pub(crate) fn trimmed(text: &[u8], part: Span) -> Span {
    let (mut scratch, mut constants) = (Vec::new(), Vec::new());
    let part_text = &text[part.start..part.end];
    let mut lexer = Lexer::new(part_text, &mut scratch, &mut constants);
    let mut found: Option<Span> = None;
    loop {
        lexer.key.clear();
        if lexer.gap().is_err() {
            break;
        }
        let begin = lexer.at;
        let Some(&byte) = part_text.get(begin) else {
            let span = found.unwrap_or(Span { start: 0, end: 0 });
            return Span { start: part.start + span.start, end: part.start + span.end };
        };
        let class = CLASSES[usize::from(byte)];
        if class == Class::Semicolon {
            lexer.at += 1;
            if found.is_none() {
                continue;
            }
        } else if lexer.token(byte, class).is_err() {
            break;
        }
        found = Some(Span { start: found.map_or(begin, |span| span.start), end: lexer.at });
    }
    // Only white space can be left out where the lexer lost its way.
    let is_space = |byte: &u8| CLASSES[usize::from(*byte)] == Class::Space;
    let end = part_text.iter().rposition(|byte| !is_space(byte)).map_or(0, |last| last + 1);
    let first = part_text.iter().position(|byte| !is_space(byte)).unwrap_or(end);
    let start = found.map_or(first, |span| span.start).min(end);
    Span { start: part.start + start, end: part.start + end }
}

/// The first word of a text in lower case, brackets and comments before it left out; empty if there is none.
pub(crate) fn first_word(text: &[u8]) -> String {
    let (mut scratch, mut constants) = (Vec::new(), Vec::new());
    let mut lexer = Lexer::new(text, &mut scratch, &mut constants);
    while lexer.gap().is_ok() && matches!(text.get(lexer.at), Some(b'(' | b';')) {
        lexer.at += 1;
    }
    let word = text[lexer.at..].iter().take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'_');
    word.map(|byte| char::from(byte.to_ascii_lowercase())).collect()
}

fn is_row_word(word: &[u8]) -> bool {
    ROW_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Bytes that an identifier goes on with.
const IN_WORD: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        bytes[byte] = matches!(CLASSES[byte], Class::Word | Class::Digit | Class::Dollar);
        byte += 1;
    }
    bytes
};

fn is_word_byte(byte: u8) -> bool {
    IN_WORD[usize::from(byte)]
}

#[derive(Debug)]
struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    key: &'a mut Vec<u8>,
    constants: &'a mut Vec<Span>,
    after_string: bool,
}

impl<'a> Lexer<'a> {
    fn new(text: &'a [u8], key: &'a mut Vec<u8>, constants: &'a mut Vec<Span>) -> Self {
        Self { text, at: 0, key, constants, after_string: false }
    }

    /// A constant that began at a place has been read.
    fn constant(&mut self, marker: u8, start: usize) {
        self.key.push(marker);
        self.constants.push(Span { start, end: self.at });
    }

    /// Semicolons with nothing between them but gaps.
    fn semicolons(&mut self) -> Result<(), Unclear> {
        while self.peek(0) == Some(b';') {
            self.at += 1;
            self.gap()?;
        }
        Ok(())
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    /// Copies the text from a place to here.
    fn copy_from(&mut self, begin: usize) {
        self.key.extend_from_slice(&self.text[begin..self.at]);
    }

    /// White space and comments. White space is kept, since it decides whether strings are one; comments are emptied.
    fn gap(&mut self) -> Result<(), Unclear> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(byte), _) if CLASSES[usize::from(byte)] == Class::Space => {
                    self.key.push(byte);
                    self.at += 1;
                }
                (Some(b'-'), Some(b'-')) => {
                    self.key.extend_from_slice(b"--");
                    let rest = &self.text[self.at..];
                    let length =
                        rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
                    self.at += length;
                }
                (Some(b'/'), Some(b'*')) => {
                    self.at = after_block_comment(self.text, self.at).ok_or(Unclear)?;
                    self.key.extend_from_slice(b"/**/");
                }
                _ => return Ok(()),
            }
        }
    }

    /// One token that is neither a gap nor a semicolon.
    ///
    /// A string right after a string is left to the parser: it can be a continuation, which keeps the escapes of the
    /// first one.
    fn token(&mut self, byte: u8, class: Class) -> Result<(), Unclear> {
        let after_string = std::mem::take(&mut self.after_string);
        match class {
            Class::Quote if after_string => Err(Unclear),
            Class::Word => self.word(),
            Class::Digit => self.number(),
            Class::Mark if byte == b'.' && self.peek(1) == Some(b'.') => Err(Unclear),
            Class::Mark if byte == b'.' && self.peek(1).is_some_and(|next| next.is_ascii_digit()) => {
                self.number()
            }
            Class::Mark => {
                self.key.push(byte);
                self.at += 1;
                Ok(())
            }
            Class::Quote => self.string(marker::STRING, self.at),
            Class::DoubleQuote => self.quoted_name(),
            Class::Dollar => self.dollar(),
            Class::Refuse | Class::Semicolon | Class::Space => Err(Unclear),
        }
    }

    /// An identifier or keyword, or the letter before a string of a special kind.
    fn word(&mut self) -> Result<(), Unclear> {
        let begin = self.at;
        let rest = &self.text[begin..];
        self.at += rest.iter().position(|byte| !is_word_byte(*byte)).unwrap_or(rest.len());
        let first = self.text[begin];
        match (self.at - begin, self.peek(0)) {
            (1, Some(b'\'')) => match first {
                b'e' | b'E' => self.escaped_string(begin),
                b'b' | b'B' => self.string(marker::BITS, begin),
                b'x' | b'X' => self.string(marker::HEX, begin),
                _ => {
                    self.copy_from(begin);
                    Ok(())
                }
            },
            (1, Some(b'&')) if matches!(first, b'u' | b'U') && matches!(self.peek(1), Some(b'\'' | b'"')) => {
                Err(Unclear)
            }
            _ => {
                self.copy_from(begin);
                Ok(())
            }
        }
    }

    /// A string without backslash escapes that begins at a place; here is its opening quote. In a plain one a doubled quote stands for
    /// itself, in bits and hexadecimal digits it does not.
    fn string(&mut self, marker: u8, begin: usize) -> Result<(), Unclear> {
        self.at += 1;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'\''), Some(b'\'')) if marker == marker::STRING => self.at += 2,
                (Some(b'\''), _) => {
                    self.at += 1;
                    self.constant(marker, begin);
                    self.after_string = true;
                    return Ok(());
                }
                (Some(0) | None, _) => return Err(Unclear),
                (Some(_), _) => self.at += 1,
            }
        }
    }

    /// A string with backslash escapes that begins at a place; here is its opening quote.
    fn escaped_string(&mut self, begin: usize) -> Result<(), Unclear> {
        self.at += 1;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'\\'), Some(_)) | (Some(b'\''), Some(b'\'')) => self.at += 2,
                (Some(b'\''), _) => {
                    self.at += 1;
                    self.constant(marker::ESCAPED, begin);
                    self.after_string = true;
                    return Ok(());
                }
                (Some(0) | None, _) => return Err(Unclear),
                (Some(_), _) => self.at += 1,
            }
        }
    }

    /// A quoted identifier, kept as it is.
    fn quoted_name(&mut self) -> Result<(), Unclear> {
        let begin = self.at;
        self.at += 1;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'"'), Some(b'"')) => self.at += 2,
                (Some(b'"'), _) => {
                    self.at += 1;
                    self.copy_from(begin);
                    return Ok(());
                }
                (Some(0..0x20) | None, _) => return Err(Unclear),
                (Some(_), _) => self.at += 1,
            }
        }
    }

    /// A parameter, which is kept, or a string in dollar quotes.
    fn dollar(&mut self) -> Result<(), Unclear> {
        let begin = self.at;
        self.at += 1;
        if self.peek(0).is_some_and(|byte| byte.is_ascii_digit()) {
            while self.peek(0).is_some_and(|byte| byte.is_ascii_digit()) {
                self.at += 1;
            }
            self.copy_from(begin);
            return self.end_of_number();
        }
        if self.peek(0).is_some_and(|byte| byte != b'$' && CLASSES[usize::from(byte)] != Class::Word) {
            return Err(Unclear);
        }
        while self.peek(0).is_some_and(|byte| byte != b'$' && is_word_byte(byte)) {
            self.at += 1;
        }
        if self.peek(0) != Some(b'$') {
            return Err(Unclear);
        }
        self.at += 1;
        let tag = &self.text[begin..self.at];
        if tag.len() > MAX_TAG {
            return Err(Unclear);
        }
        let rest = &self.text[self.at..];
        let length = rest.windows(tag.len()).position(|window| window == tag).ok_or(Unclear)?;
        if rest[..length].contains(&0) {
            return Err(Unclear);
        }
        self.at += length + tag.len();
        self.constant(marker::DOLLAR, begin);
        Ok(())
    }

    /// A number in plain decimal form.
    fn number(&mut self) -> Result<(), Unclear> {
        let begin = self.at;
        let mut decimal = false;
        self.digits();
        if self.peek(0) == Some(b'.') {
            decimal = true;
            self.at += 1;
            self.digits();
        }
        if matches!(self.peek(0), Some(b'e' | b'E')) {
            decimal = true;
            self.at += 1;
            if matches!(self.peek(0), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.peek(0).is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(Unclear);
            }
            self.digits();
        }
        let long = self.at - begin >= LONG_DIGITS;
        let marker = match (decimal, long) {
            (true, _) => marker::DECIMAL,
            (false, true) => marker::LONG_INTEGER,
            (false, false) => marker::INTEGER,
        };
        self.constant(marker, begin);
        self.end_of_number()
    }

    fn digits(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    }

    /// A number must not run on: `1..2`, `0x1f`, `1_000` and `123abc` are for the parser.
    fn end_of_number(&self) -> Result<(), Unclear> {
        let runs_on = self.peek(0).is_some_and(|byte| is_word_byte(byte) || byte == b'.');
        if runs_on { Err(Unclear) } else { Ok(()) }
    }
}

/// The place after the block comment that begins at `at`; `None` if it is not closed. Block comments nest.
fn after_block_comment(text: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match (*text.get(at)?, text.get(at + 1)) {
            (b'/', Some(b'*')) => (depth, at) = (depth + 1, at + 2),
            (b'*', Some(b'/')) => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests;
