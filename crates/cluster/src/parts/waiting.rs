//! Statements that wait at a replica until it has the versions that they need.

use std::collections::BTreeMap;

use crate::ids::{SessionId, Version};

/// A queue ordered by needed version, then by arrival.
#[derive(Debug)]
pub struct Waiting<T> {
    queue: BTreeMap<(Version, u64), (SessionId, T)>,
    arrivals: u64,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { queue: BTreeMap::new(), arrivals: 0 }
    }
}

impl<T> Waiting<T> {
    /// Adds a statement that waits until `need` is applied.
    pub fn push(&mut self, need: Version, session: SessionId, item: T) {
        self.arrivals += 1;
        self.queue.insert((need, self.arrivals), (session, item));
    }

    /// Takes the next statement whose need is met.
    pub fn pop(&mut self, applied: Version) -> Option<(SessionId, T)> {
        let entry = self.queue.first_entry()?;
        (entry.key().0 <= applied).then(|| entry.remove())
    }

    /// The lowest version that a statement waits for.
    pub fn first_need(&self) -> Option<Version> {
        self.queue.first_key_value().map(|((need, _), _)| *need)
    }

    /// Takes all statements, with their needs.
    pub fn drain(&mut self) -> Vec<(Version, SessionId, T)> {
        std::mem::take(&mut self.queue).into_iter().map(|((need, _), (s, item))| (need, s, item)).collect()
    }

    /// The statements that wait, to be changed.
    pub fn items_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.queue.values_mut().map(|(_, item)| item)
    }

    /// The sessions of the statements that wait.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.queue.values().map(|(session, _)| *session)
    }

    /// Removes the statement of a session. Returns whether one was there.
    pub fn remove(&mut self, session: SessionId) -> bool {
        let before = self.queue.len();
        self.queue.retain(|_, (waiter, _)| *waiter != session);
        self.queue.len() < before
    }

    /// The number of statements.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no statement waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_whose_need_is_met_leave_in_order() {
        let mut waiting = Waiting::default();
        waiting.push(Version(3), SessionId(1), 'a');
        waiting.push(Version(2), SessionId(2), 'b');
        waiting.push(Version(2), SessionId(3), 'c');
        assert_eq!(waiting.first_need(), Some(Version(2)));
        assert_eq!(waiting.pop(Version(1)), None);
        assert_eq!(waiting.pop(Version(2)), Some((SessionId(2), 'b')));
        assert!(waiting.remove(SessionId(3)));
        assert_eq!(waiting.pop(Version(2)), None);
        assert_eq!(waiting.drain(), vec![(Version(3), SessionId(1), 'a')]);
    }
}
