//! A request by which an answer is found again: who asks, and the bytes of the question.
//!
//! Requests of the simple and of the extended protocol are different ones even for one text, since columns differ in form.
//! A Parse in front makes no difference, since its own reply is not kept.

use super::audiences::Audience;

/// A request. Two that are equal have the same answer at the same version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request(Box<[u8]>);

/// How the client asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question<'a> {
    /// A Query message with this text.
    Text(&'a [u8]),
    /// Bind and Execute of a prepared statement.
    Bound {
        /// The statement's text.
        sql: &'a [u8],
        /// Declared types of its parameters, as in Parse.
        types: &'a [u8],
        /// Formats and values, as in Bind.
        values: &'a [u8],
        /// Whether the portal is described.
        is_described: bool,
    },
}

impl Question<'_> {
    /// The form of the question, and its parts. No other form has the same number.
    fn parts(&self) -> (u8, [&[u8]; 3]) {
        match self {
            Self::Text(sql) => (0, [sql, &[], &[]]),
            Self::Bound { sql, types, values, is_described } => {
                (1 + u8::from(*is_described), [sql, types, values])
            }
        }
    }
}

impl Request {
    /// The request of this audience. `oid_edition` is the edition of the object ids that columns are described with.
    pub(crate) fn new(audience: Audience, oid_edition: u64, question: Question<'_>) -> Self {
        let (form, parts) = question.parts();
        let length: usize = parts.iter().map(|part| part.len() + size_of::<u32>()).sum();
        let mut bytes = Vec::with_capacity(2 * size_of::<u64>() + 1 + length);
        bytes.extend_from_slice(&audience.0.to_le_bytes());
        bytes.extend_from_slice(&oid_edition.to_le_bytes());
        bytes.push(form);
        for part in parts {
            // No message is as long as 4 GB.
            bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        Self(bytes.into())
    }

    /// Its size in memory.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() + size_of::<Self>()
    }
}
