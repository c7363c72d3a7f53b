//! Names of relations, functions, operators and types as a statement wrote them.
//!
//! A name is what the client sent after PostgreSQL's own folding of unquoted identifiers. It is never resolved here:
//! the search path belongs to the session, so an unqualified name stands for every object of that name.

use std::fmt;

/// The schema of PostgreSQL's built-in objects.
pub(crate) const SYSTEM_SCHEMA: &str = "pg_catalog";

/// The schema that stands for the session's own temporary objects.
pub(crate) const TEMPORARY_SCHEMA: &str = "pg_temp";

/// A possibly qualified name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name {
    /// The schema, if the statement gave one.
    pub schema: Option<String>,
    /// The object's own name.
    pub name: String,
}

impl Name {
    /// A name without a schema.
    pub fn bare(name: impl Into<String>) -> Self {
        Self { schema: None, name: name.into() }
    }

    /// A name in a schema.
    pub fn qualified(schema: impl Into<String>, name: impl Into<String>) -> Self {
        Self { schema: Some(schema.into()), name: name.into() }
    }

    /// Builds a name from the parts of a dotted name; `None` when there are more than two, or none.
    pub(crate) fn from_parts(mut parts: Vec<String>) -> Option<Self> {
        let name = parts.pop()?;
        let schema = parts.pop();
        parts.is_empty().then_some(Self { schema, name })
    }

    /// Whether the statement put this name into PostgreSQL's system schema, or left the schema open.
    pub(crate) fn may_be_built_in(&self) -> bool {
        self.schema.as_deref().is_none_or(|schema| schema == SYSTEM_SCHEMA)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
