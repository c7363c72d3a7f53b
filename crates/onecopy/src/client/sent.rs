//! A statement as the client sent it: its position in its text, and its parameter values.
//!
//! Onecopy predicts rows and the transaction profile from it. Statements share their text instead of copying it.

use std::sync::Arc;

use sql::accesses::{Arguments, Parameter};
use sql::profile::Digests;
use sql::{Part, Statement};
use wire::frontend::bound_values;

use super::prepared_statement::PreparedStatement;

/// Longer texts and values are not kept. Such a statement is known by its tables only.
pub(crate) const KEPT_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Debug)]
pub(crate) enum Sent {
    /// Sent by the simple protocol.
    Text {
        /// The whole query string.
        text: Arc<[u8]>,
        /// End of the statement before it.
        from: usize,
        /// The part of the text that is this statement.
        part: Part,
    },
    /// Sent by the extended protocol.
    Bound {
        /// The prepared statement.
        known: Arc<PreparedStatement>,
        /// Formats and values, as in Bind.
        values: Arc<[u8]>,
    },
}

impl Sent {
    pub(crate) fn statement(&self) -> &Arc<Statement> {
        &self.part().statement
    }

    fn part(&self) -> &Part {
        match self {
            Self::Text { part, .. } => part,
            Self::Bound { known, .. } => {
                let script = known.script.as_ref().expect("only what was parsed becomes a statement");
                &script.statements[0]
            }
        }
    }

    fn text(&self) -> &[u8] {
        match self {
            Self::Text { text, .. } => text,
            Self::Bound { known, .. } => &known.sql,
        }
    }

    /// Its text with the comments before it; `None` if it is not UTF-8.
    pub(crate) fn with_comments(&self) -> Option<&str> {
        let text = match self {
            Self::Text { text, from, .. } => text.get(*from..)?,
            Self::Bound { known, .. } => &known.sql,
        };
        std::str::from_utf8(text)
            .ok()
            .map(|text| text.trim_start_matches(|c: char| c == ';' || c.is_whitespace()))
    }

    /// Counts a word in its text, in any case. Constants and comments count, too.
    pub(crate) fn mentions(&self, word: &str) -> usize {
        let text = match self {
            Self::Text { text, part, .. } => text.get(part.start..part.end).unwrap_or_default(),
            Self::Bound { known, .. } => &known.sql,
        };
        String::from_utf8_lossy(text).to_ascii_lowercase().matches(word).count()
    }

    /// The text without its constants.
    pub(crate) fn template(&self) -> String {
        self.part().template(&String::from_utf8_lossy(self.text()))
    }

    /// The parameter values for [`Sent::arguments`]; empty if the Bind is malformed.
    pub(crate) fn parameters(&self) -> Vec<Parameter<'_>> {
        let Self::Bound { known, values } = self else { return Vec::new() };
        let types = known.types.get(2..).unwrap_or_default();
        let mut types = types.chunks_exact(4).map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]));
        let values = bound_values(values).unwrap_or_default().into_iter();
        values
            .map(|(binary, value)| Parameter { type_oid: types.next().unwrap_or(0), value, binary })
            .collect()
    }

    /// The constants and parameter values of the statement.
    pub(crate) fn arguments<'a>(&'a self, parameters: &'a [Parameter<'a>]) -> Arguments<'a> {
        Arguments { text: self.text(), constants: &self.part().constants, parameters }
    }

    /// The digests of its values, which are kept until the transaction ends.
    pub(crate) fn digests(&self) -> Digests {
        Digests::of(&self.arguments(&self.parameters()))
    }

    /// Whether a constant or parameter could be read off the clock. Example: `'now'`, the start of the transaction.
    pub(crate) fn may_read_clock(&self) -> bool {
        let reads = |value: &[u8]| std::str::from_utf8(value).is_ok_and(sql::may_read_clock);
        let parameters = self.parameters();
        let arguments = self.arguments(&parameters);
        let constants =
            arguments.constants.iter().filter_map(|span| arguments.text.get(span.start..span.end));
        let texts = parameters.iter().filter(|parameter| !parameter.binary).filter_map(|p| p.value);
        constants.chain(texts).any(reads)
    }
}
