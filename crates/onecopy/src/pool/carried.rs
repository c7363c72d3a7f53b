//! Statements of SQL's PREPARE, which follow a session to its next connection at the anchor.
//!
//! The texts come from the server ([`super::leftovers`]), so statements that code has prepared are carried, too, and those
//! that code has deallocated are not. A text is run again only if it is one PREPARE of that name and nothing else. If a
//! statement cannot be prepared at once (a table is locked or gone), its EXECUTE tries again and gets the error, as on one
//! server.
//!
//! Invariant: a connection to the anchor has them all, less those that failed, before it runs a statement of the session.

use std::sync::Arc;

use sql::Statement;

/// One prepared statement.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) name: String,
    /// The PREPARE, as the server got it.
    pub(crate) text: String,
    /// The statement that it prepares.
    pub(crate) inner: Arc<Statement>,
}

/// The prepared statements of a session.
#[derive(Debug, Default)]
pub(crate) struct AllCarried(pub(crate) Vec<Carried>);

impl AllCarried {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Name and text of each.
    pub(crate) fn passed(&self) -> Vec<(String, String)> {
        self.0.iter().map(|one| (one.name.clone(), one.text.clone())).collect()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Carried> {
        self.0.iter().find(|carried| carried.name == name)
    }
}

/// Which statements of SQL's PREPARE one connection has.
#[derive(Debug, Default)]
pub(crate) struct CarriedHere {
    /// The session's statements were prepared here.
    pub(crate) is_here: bool,
    /// The names of those that could not be prepared again.
    pub(crate) lacking: Vec<String>,
}
