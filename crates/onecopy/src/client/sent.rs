//! A statement as the client sent it: its place in its text, and the values of its parameters.
//!
//! What is known of rows and of the txn_profile of a transaction comes from here. Texts are shared, not copied for each of
//! their statements.

use std::sync::Arc;

use sql::accesses::{Arguments, Parameter};
use sql::profile::Digests;
use sql::{Part, Statement};
use wire::frontend::bound_values;

use super::prepared_statement::PreparedStatement;

/// Texts and values of more bytes than this are not kept: what they touch is known by tables only.
pub(crate) const KEPT_BYTES_MAX: usize = 64 << 10;

/// One statement that was sent.
#[derive(Clone, Debug)]
pub(crate) enum Sent {
    /// By the simple protocol.
    Text {
        /// The whole query string.
        text: Arc<[u8]>,
        /// Where the statement before it ends.
        from: usize,
        /// Which part of the text it is.
        part: Part,
    },
    /// By the extended protocol.
    Bound {
        /// What was prepared: one statement.
        known: Arc<PreparedStatement>,
        /// Formats and values, as Bind has them.
        values: Arc<[u8]>,
    },
}

impl Sent {
    /// The template.
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

    /// Its text with the comments before it, if it is UTF-8.
    pub(crate) fn with_comments(&self) -> Option<&str> {
        let text = match self {
            Self::Text { text, from, .. } => text.get(*from..)?,
            Self::Bound { known, .. } => &known.sql,
        };
        std::str::from_utf8(text)
            .ok()
            .map(|text| text.trim_start_matches(|c: char| c == ';' || c.is_whitespace()))
    }

    /// How often its own text has this word, in any case; also inside constants and comments.
    pub(crate) fn mentions(&self, word: &str) -> usize {
        let text = match self {
            Self::Text { text, part, .. } => text.get(part.start..part.end).unwrap_or_default(),
            Self::Bound { known, .. } => &known.sql,
        };
        String::from_utf8_lossy(text).to_ascii_lowercase().matches(word).count()
    }

    /// The text with its constants taken out.
    pub(crate) fn template(&self) -> String {
        self.part().template(&String::from_utf8_lossy(self.text()))
    }

    /// The values of its parameters, which [`Sent::arguments`] takes. A Bind that cannot be read has none that are known.
    pub(crate) fn parameters(&self) -> Vec<Parameter<'_>> {
        let Self::Bound { known, values } = self else { return Vec::new() };
        let types = known.types.get(2..).unwrap_or_default();
        let mut types = types.chunks_exact(4).map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]));
        let values = bound_values(values).unwrap_or_default().into_iter();
        values
            .map(|(binary, value)| Parameter { type_oid: types.next().unwrap_or(0), value, binary })
            .collect()
    }

    /// All that a template leaves open.
    pub(crate) fn arguments<'a>(&'a self, parameters: &'a [Parameter<'a>]) -> Arguments<'a> {
        Arguments { text: self.text(), constants: &self.part().constants, parameters }
    }

    /// What is kept of its values until the transaction ends.
    pub(crate) fn digests(&self) -> Digests {
        Digests::of(&self.arguments(&self.parameters()))
    }

    /// Whether one of its constants or parameters could be read off the clock: `'now'` is the time at which the
    /// transaction began.
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
