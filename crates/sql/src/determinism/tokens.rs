//! Places in the text that the syntax tree does not give: where a call ends, where a list of values ends.

use crate::parser::{self, Token};

/// The tokens of a text, comments left out.
pub(super) struct Tokens<'a> {
    text: &'a str,
    tokens: Vec<Token>,
}

/// Bytes of a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Where the lists of an INSERT end.
pub(super) struct Lists {
    /// The closing bracket of the list of columns, if there is one.
    pub(super) columns: Option<usize>,
    /// The closing bracket of each row.
    pub(super) rows: Vec<usize>,
}

impl<'a> Tokens<'a> {
    /// `None` if the text cannot be cut into tokens.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        parser::tokens(text).map(|tokens| Self { text, tokens })
    }

    fn word(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &self.text[token.start..token.end])
    }

    fn at(&self, start: usize) -> Option<usize> {
        self.tokens.binary_search_by_key(&start, |token| token.start).ok()
    }

    /// One past the bracket that closes the one at an index.
    fn after_brackets(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for index in open..self.tokens.len() {
            match self.word(index) {
                "(" => depth += 1,
                ")" => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(index + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// A call that begins at a byte: its dotted name and its arguments in brackets, if any follow.
    pub(super) fn call(&self, start: usize) -> Option<Place> {
        let mut index = self.at(start)?;
        while self.word(index + 1) == "." {
            index += 2;
        }
        let after = if self.word(index + 1) == "(" { self.after_brackets(index + 1)? } else { index + 1 };
        Some(Place { start, end: self.tokens.get(after - 1)?.end })
    }

    /// The one token that begins at a byte.
    pub(super) fn single(&self, start: usize) -> Option<Place> {
        self.at(start).map(|index| Place { start, end: self.tokens[index].end })
    }

    /// The lists of `INSERT INTO relation .. (columns) .. VALUES (row), (row)`, from where the relation's name begins.
    pub(super) fn insert_lists(&self, relation: usize) -> Option<Lists> {
        let mut index = self.at(relation)?;
        let mut columns = None;
        while !self.word(index).eq_ignore_ascii_case("values") {
            if index >= self.tokens.len() {
                return None;
            }
            if self.word(index) == "(" {
                index = self.after_brackets(index)?;
                columns = Some(self.tokens[index - 1].start);
            } else {
                index += 1;
            }
        }
        let mut rows = Vec::new();
        index += 1;
        loop {
            if self.word(index) != "(" {
                return None;
            }
            index = self.after_brackets(index)?;
            rows.push(self.tokens[index - 1].start);
            if self.word(index) != "," {
                return Some(Lists { columns, rows });
            }
            index += 1;
        }
    }
}
