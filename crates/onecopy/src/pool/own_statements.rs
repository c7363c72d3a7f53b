//! Onecopy's own prepared statements on one server connection, and those that wait to be sent.
//!
//! Example: before the first UPDATE of a transaction, `onecopy BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE` is put
//! ahead of it. The server answers both together, so the BEGIN costs no round trip of its own.
//!
//! Invariant: a statement counts as prepared only after the server has answered it, and only until code of users runs,
//! which can deallocate it.

use std::collections::{BTreeSet, VecDeque};

/// A statement of ours that was put ahead of the client's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// The prepared statement.
    pub(crate) name: &'static str,
    /// How many completions answer it.
    pub(crate) completions: usize,
}

/// Our own statements on one connection.
#[derive(Debug, Default)]
pub(crate) struct OwnStatements {
    /// BEGINs, savepoints and other statements whose name tells their text.
    named: Vec<&'static str>,
    /// Inserts of a transaction's identity.
    identity_inserts: Vec<&'static str>,
    ahead: VecDeque<Ahead>,
    code_has_run: bool,
}

impl OwnStatements {
    /// Code of users has run on the connection. It can deallocate prepared statements.
    pub(crate) fn note_code(&mut self) {
        self.code_has_run = true;
    }

    /// Whether an insert of an identity is prepared.
    pub(crate) fn has_identity_insert(&self, name: &str) -> bool {
        !self.code_has_run && self.identity_inserts.contains(&name)
    }

    /// The server has prepared an insert of an identity.
    pub(crate) fn add_identity_insert(&mut self, name: &'static str) {
        if !self.identity_inserts.contains(&name) {
            self.identity_inserts.push(name);
        }
    }

    /// Whether a named statement is prepared. After code of users none counts as prepared.
    pub(crate) fn has_named(&mut self, name: &str) -> bool {
        if std::mem::take(&mut self.code_has_run) {
            self.forget();
        }
        self.named.contains(&name)
    }

    /// The server has answered a statement that was put ahead.
    pub(crate) fn answered(&mut self, ahead: Ahead) {
        if !self.named.contains(&ahead.name) {
            self.named.push(ahead.name);
        }
    }

    /// A statement was put ahead of the next messages.
    pub(crate) fn put_ahead(&mut self, ahead: Ahead) {
        self.ahead.push_back(ahead);
    }

    /// The next statement that was put ahead and is not answered.
    pub(crate) fn next_ahead(&mut self) -> Option<Ahead> {
        self.ahead.pop_front()
    }

    /// Whether statements that were put ahead are not answered.
    pub(crate) fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// The output was discarded before it was sent.
    pub(crate) fn discard_ahead(&mut self) {
        self.ahead.clear();
    }

    /// How many statements are prepared.
    pub(crate) fn len(&self) -> usize {
        self.named.len() + self.identity_inserts.len()
    }

    /// The server has only these prepared statements.
    pub(crate) fn retain(&mut self, names: &BTreeSet<Vec<u8>>) {
        self.named.retain(|name| names.contains(name.as_bytes()));
        self.identity_inserts.clear();
    }

    /// No statement is prepared.
    pub(crate) fn forget(&mut self) {
        self.named.clear();
        self.identity_inserts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Ahead = Ahead { name: "onecopy BEGIN", completions: 2 };

    #[test]
    fn code_of_users_ends_all() {
        let mut own = OwnStatements::default();
        own.answered(BEGIN);
        own.add_identity_insert("onecopy applied");
        assert!(own.has_named(BEGIN.name) && own.has_identity_insert("onecopy applied"));
        own.note_code();
        assert!(!own.has_identity_insert("onecopy applied"));
        assert!(!own.has_named(BEGIN.name), "it has to be prepared again");
        assert_eq!(own.len(), 0);
    }

    #[test]
    fn only_what_the_server_has_is_kept() {
        let mut own = OwnStatements::default();
        own.answered(BEGIN);
        own.answered(Ahead { name: "onecopy COMMIT", completions: 2 });
        own.retain(&[BEGIN.name.as_bytes().to_vec()].into());
        assert_eq!((own.has_named(BEGIN.name), own.len()), (true, 1));
    }
}
