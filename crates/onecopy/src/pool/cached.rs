//! The statements that are prepared on one server connection.
//!
//! With `pool_mode = session` they have the client's names. Where sessions share connections, each distinct text has a
//! name of ours, so that the names of sessions do not collide and a text is prepared once (PgBouncer does the same). The
//! number of these is bounded; the clock algorithm chooses the one to close.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::client::prepared_statement::OURS;

/// Statements with names of ours on one connection, at most.
const OURS_MAX: usize = 500;

/// The name of a statement that is never prepared. Closing it has no effect and is answered.
pub(crate) const NOTHING: &[u8] = b"onecopy nothing";

/// Whether a name may be one of ours.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    name.starts_with(OURS)
}

#[derive(Debug)]
struct Entry {
    generation: u64,
    is_used: bool,
}

/// Name and number of each statement.
#[derive(Debug, Default)]
pub(crate) struct Cached {
    known: FxHashMap<Vec<u8>, Entry>,
    /// Names of ours, in the order of the clock.
    ours: VecDeque<Vec<u8>>,
}

impl Cached {
    /// Whether the statement of that number is prepared under the name; marks it as used.
    pub(crate) fn has(&mut self, name: &[u8], generation: u64) -> bool {
        let Some(entry) = self.known.get_mut(name) else { return false };
        entry.is_used = true;
        entry.generation == generation
    }

    /// Whether any statement may be prepared under the name.
    pub(crate) fn may_have(&self, name: &[u8]) -> bool {
        self.known.contains_key(name)
    }

    /// The statement is prepared.
    pub(crate) fn insert(&mut self, name: &[u8], generation: u64) {
        let before = self.known.insert(name.to_vec(), Entry { generation, is_used: true });
        if before.is_none() && is_ours(name) {
            self.ours.push_back(name.to_vec());
        }
    }

    /// The statement was closed.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        if self.known.remove(name).is_some() && is_ours(name) {
            self.ours.retain(|ours| ours != name);
        }
    }

    /// The number of named statements.
    pub(crate) fn named(&self) -> usize {
        self.known.len() - usize::from(self.known.contains_key(&b""[..]))
    }

    /// Keeps only these of the named statements.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&[u8]) -> bool) {
        self.known.retain(|name, _| name.is_empty() || is_there(name));
        self.ours.retain(|name| is_there(name));
    }

    /// Whether none is prepared.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// All were closed.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.ours.clear();
    }

    /// Removes a statement that has to be closed to make room for another; call again until there is none.
    pub(crate) fn evict(&mut self) -> Option<Vec<u8>> {
        while self.ours.len() >= OURS_MAX {
            let name = self.ours.pop_front()?;
            let Some(entry) = self.known.get_mut(&name) else { continue };
            if std::mem::take(&mut entry.is_used) {
                self.ours.push_back(name);
            } else {
                self.known.remove(&name);
                return Some(name);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::prepared_statement::name_of;

    #[test]
    fn what_is_used_stays_and_the_rest_is_bounded() {
        let mut cached = Cached::default();
        cached.insert(b"of the client's", 1);
        let often = name_of(7);
        let mut closed = Vec::new();
        for generation in 0..2_000 {
            let name = name_of(generation);
            closed.extend(cached.evict());
            cached.insert(&name, generation);
            assert!(generation < 7 || cached.has(&often, 7));
        }
        assert!(cached.has(b"of the client's", 1) && !cached.has(b"of the client's", 2));
        assert_eq!(cached.ours.len(), OURS_MAX);
        assert_eq!(closed.len(), 2_000 - OURS_MAX);
        assert!(!closed.contains(&often));
        cached.remove(&often);
        assert!(!cached.may_have(&often) && !cached.ours.contains(&often));
    }
}
