//! The rewrite: values in place of calls, and the text that results.
//!
//! A replacement is never evaluated here: the instant comes from the caller, and so do the values of the calls that he
//! has to have evaluated, on one server and once. They are put in as constants, or as parameters whose numbers begin
//! after those that the statement has, so that a statement that was prepared once serves for many executions.

use std::fmt;
use std::fmt::Write as _;

use super::tokens::Place;
use crate::calendar;

/// The instants of one execution, in microseconds since 2000-01-01 00:00 UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// What `now()` gives.
    pub transaction_us: i64,
    /// What `statement_timestamp()` gives.
    pub statement_us: i64,
}

/// An expression that the caller has to evaluate before the statement can travel. It has no parameters and no columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evaluate {
    /// The expression, as it can stand in a SELECT list. Its value is to be given in its text form.
    pub expression: String,
    /// The type that its value is cast to.
    pub type_name: &'static str,
    /// Where its value goes, in bytes of the text; empty where the statement did not name the column.
    pub start: usize,
    /// One past the last byte that its value replaces.
    pub end: usize,
}

/// The value of a parameter of [`Rewrite::with_parameters`], in text form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bind {
    /// [`Clock::transaction_us`], as [`Clock::text`] writes it.
    Transaction,
    /// [`Clock::statement_us`].
    Statement,
    /// The value of an [`Evaluate`], by its place in [`Rewrite::evaluate`].
    Value(usize),
}

/// A part of what is put in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fragment {
    Text(String),
    /// A value, with the text of the cast that follows it.
    Bound(Bind, String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) place: Place,
    pub(super) fragments: Vec<Fragment>,
}

/// The replacements that make a statement deterministic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewrite {
    source: String,
    /// In the order of their places, which do not overlap.
    pieces: Vec<Piece>,
    evaluate: Vec<Evaluate>,
    highest_parameter: usize,
}

/// The caller's mistakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RewriteError {
    /// Not as many values as there are expressions to evaluate.
    Values {
        /// The number of values given.
        given: usize,
        /// The number of values needed.
        wanted: usize,
    },
    /// An instant beyond the years 1 to 9999.
    Instant(i64),
}

impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values { given, wanted } => write!(f, "{given} values for {wanted} expressions"),
            Self::Instant(us) => {
                write!(f, "{us} microseconds after 2000 is no instant of the years 1 to 9999")
            }
        }
    }
}

impl std::error::Error for RewriteError {}

impl Rewrite {
    /// `None` if two pieces overlap.
    pub(super) fn new(
        source: &str,
        mut pieces: Vec<Piece>,
        evaluate: Vec<Evaluate>,
        highest_parameter: usize,
    ) -> Option<Self> {
        // The sort keeps the order of several insertions at one place.
        pieces.sort_by_key(|piece| piece.place);
        let apart = pieces.windows(2).all(|pair| pair[0].place.end <= pair[1].place.start);
        apart.then(|| Self { source: source.to_owned(), pieces, evaluate, highest_parameter })
    }

    /// The expressions that the caller has to evaluate. `nextval` among it advances a sequence where it is evaluated, and nowhere else.
    pub fn evaluate(&self) -> &[Evaluate] {
        &self.evaluate
    }

    /// The parts of the source that are replaced, as they stand in it, in order.
    pub fn replaced(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().map(|piece| &self.source[piece.place.start..piece.place.end])
    }

    /// The statement with constants: for one execution. `values` are those of [`Rewrite::evaluate`] in their text
    /// form, `None` for NULL.
    ///
    /// # Errors
    /// If there are not as many values as expressions, or an instant cannot be written.
    pub fn with_constants(&self, clock: Clock, values: &[Option<&str>]) -> Result<String, RewriteError> {
        let (given, wanted) = (values.len(), self.evaluate.len());
        if given != wanted {
            return Err(RewriteError::Values { given, wanted });
        }
        let (transaction, statement) = (clock.transaction()?, clock.statement()?);
        Ok(self.written(|bind, cast, out| {
            let value = match bind {
                Bind::Transaction => Some(transaction.as_str()),
                Bind::Statement => Some(statement.as_str()),
                Bind::Value(index) => values[index],
            };
            match value {
                Some(text) => put_literal(out, text),
                None => out.push_str("NULL"),
            }
            out.push_str(cast);
        }))
    }

    /// The statement with further parameters, and what each of them is to be given. Their numbers follow those of the
    /// statement, of which the client declared `declared`.
    pub fn with_parameters(&self, declared: usize) -> (String, Vec<Bind>) {
        let first = self.highest_parameter.max(declared) + 1;
        let mut binds: Vec<Bind> = Vec::new();
        let text = self.written(|bind, cast, out| {
            let known = binds.iter().position(|&other| other == bind);
            let index = known.unwrap_or_else(|| {
                binds.push(bind);
                binds.len() - 1
            });
            // A parameter has one type, so what several casts start from is given a type of its own first.
            let own = if matches!(bind, Bind::Value(_)) { "" } else { "::pg_catalog.timestamptz" };
            write!(out, "(${}{own})", first + index).expect("writing to a string cannot fail");
            out.push_str(cast);
        });
        (text, binds)
    }

    fn written(&self, mut put: impl FnMut(Bind, &str, &mut String)) -> String {
        let mut out = String::with_capacity(self.source.len() + 64 * self.pieces.len());
        let mut done = 0;
        for piece in &self.pieces {
            out.push_str(&self.source[done..piece.place.start]);
            for fragment in &piece.fragments {
                match fragment {
                    Fragment::Text(text) => out.push_str(text),
                    Fragment::Bound(bind, cast) => put(*bind, cast, &mut out),
                }
            }
            done = piece.place.end;
        }
        out.push_str(&self.source[done..]);
        out
    }

    /// The same for a source without its first bytes, which no piece touches.
    pub(super) fn without(mut self, prefix: usize) -> Self {
        self.source.drain(..prefix);
        for piece in &mut self.pieces {
            piece.place.start -= prefix;
            piece.place.end -= prefix;
        }
        for evaluate in &mut self.evaluate {
            evaluate.start -= prefix;
            evaluate.end -= prefix;
        }
        self
    }

    /// The whole as fragments that can be put into another statement's text, with the expressions to evaluate: their
    /// indexes begin at `first`.
    pub(super) fn into_fragments(self, first: usize) -> (Vec<Fragment>, Vec<Evaluate>) {
        let mut fragments = Vec::new();
        let mut done = 0;
        for piece in self.pieces {
            fragments.push(Fragment::Text(self.source[done..piece.place.start].to_owned()));
            fragments.extend(piece.fragments.into_iter().map(|fragment| match fragment {
                Fragment::Bound(Bind::Value(index), cast) => {
                    Fragment::Bound(Bind::Value(first + index), cast)
                }
                other => other,
            }));
            done = piece.place.end;
        }
        fragments.push(Fragment::Text(self.source[done..].to_owned()));
        (fragments, self.evaluate)
    }
}

impl Clock {
    /// An instant in the form that every setting of DateStyle reads alike, in UTC; `None` beyond the years 1 to 9999.
    pub fn text(us: i64) -> Option<String> {
        calendar::instant_text(us)
    }

    fn transaction(self) -> Result<String, RewriteError> {
        Self::text(self.transaction_us).ok_or(RewriteError::Instant(self.transaction_us))
    }

    fn statement(self) -> Result<String, RewriteError> {
        Self::text(self.statement_us).ok_or(RewriteError::Instant(self.statement_us))
    }
}

/// A string constant that reads alike with standard_conforming_strings on and off.
fn put_literal(out: &mut String, text: &str) {
    if text.contains('\\') {
        out.push_str(" E");
    }
    out.push('\'');
    for character in text.chars() {
        match character {
            '\'' => out.push_str("''"),
            '\\' => out.push_str("\\\\"),
            other => out.push(other),
        }
    }
    out.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_as_the_server_writes_them() {
        let text = |us| Clock::text(us).unwrap();
        assert_eq!(text(0), "2000-01-01 00:00:00.000000+00");
        assert_eq!(text(-1), "1999-12-31 23:59:59.999999+00");
        assert_eq!(text(131_373_296_000_000), "2004-02-29 12:34:56.000000+00");
        assert_eq!(Clock::text(i64::MAX), None);
        assert_eq!(Clock::text(i64::MIN), None);
    }
}
