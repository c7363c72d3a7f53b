//! Locks on rows and tables: modes, holders, and queues of waiters that continue by themselves.
//!
//! Like ROW EXCLUSIVE, writing or locking a row takes its table shared, which conflicts with LOCK TABLE.

use std::collections::{BTreeMap, VecDeque};

use super::Connection;
use crate::schema::Key;

/// The mode of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Mode {
    /// FOR KEY SHARE, taken by a reference to the row. On a table: rows of it are written or locked.
    KeyShare,
    /// FOR NO KEY UPDATE: an ordinary UPDATE.
    Change,
    /// FOR UPDATE, or DELETE. On a table: LOCK TABLE.
    Whole,
}

impl Mode {
    fn conflicts(self, other: Self) -> bool {
        match (self, other) {
            (Self::KeyShare, other) | (other, Self::KeyShare) => other == Self::Whole,
            _ => true,
        }
    }
}

#[derive(Debug, Default)]
struct Lock {
    holders: Vec<(Connection, Mode)>,
    waiters: VecDeque<(Connection, Mode)>,
}

impl Lock {
    fn is_free_for(&self, connection: Connection, mode: Mode) -> bool {
        self.holders.iter().all(|(holder, held)| *holder == connection || !held.conflicts(mode))
    }
}

impl Lock {
    /// Grants the lock to each waiter that conflicts with no holder and no earlier waiter, and returns them.
    fn grant(&mut self) -> Vec<Connection> {
        let mut woken = Vec::new();
        let mut still: VecDeque<(Connection, Mode)> = VecDeque::new();
        for (waiter, mode) in std::mem::take(&mut self.waiters) {
            if self.is_free_for(waiter, mode) && !still.iter().any(|(_, ahead)| ahead.conflicts(mode)) {
                self.holders.push((waiter, mode));
                woken.push(waiter);
            } else {
                still.push_back((waiter, mode));
            }
        }
        self.waiters = still;
        woken
    }
}

/// All locks of a server.
#[derive(Debug, Default)]
pub(super) struct Locks(BTreeMap<Key, Lock>);

impl Locks {
    /// Takes the lock or queues for it; true if it is held now.
    pub(super) fn take(&mut self, connection: Connection, key: Key, mode: Mode) -> bool {
        let lock = self.0.entry(key).or_default();
        if lock.holders.iter().any(|(holder, held)| *holder == connection && *held >= mode) {
            return true;
        }
        if lock.waiters.iter().any(|(waiter, _)| *waiter == connection) {
            return false;
        }
        let holds_some = lock.holders.iter().any(|(holder, _)| *holder == connection);
        let may_pass = holds_some || !lock.waiters.iter().any(|(_, waited)| waited.conflicts(mode));
        if lock.is_free_for(connection, mode) && may_pass {
            lock.holders.push((connection, mode));
            return true;
        }
        lock.waiters.push_back((connection, mode));
        false
    }

    /// Releases everything that the connection holds or waits for, and returns the connections that got a lock.
    pub(super) fn release(&mut self, connection: Connection) -> Vec<Connection> {
        self.keep_only(connection, &[])
    }

    /// The locks that the connection holds.
    pub(super) fn held_by(&self, connection: Connection) -> Vec<(Key, Mode)> {
        let held = |(key, lock): (&Key, &Lock)| {
            let own = lock.holders.iter().filter(|(holder, _)| *holder == connection);
            own.map(|(_, mode)| (*key, *mode)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(held).collect()
    }

    /// Releases what the connection holds of one key, and returns the connections that got a lock.
    pub(super) fn free(&mut self, connection: Connection, key: Key) -> Vec<Connection> {
        let Some(lock) = self.0.get_mut(&key) else { return Vec::new() };
        lock.holders.retain(|(holder, _)| *holder != connection);
        lock.grant()
    }

    /// Releases all locks of the connection except these, and returns the connections that got a lock.
    pub(super) fn keep_only(&mut self, connection: Connection, kept: &[(Key, Mode)]) -> Vec<Connection> {
        let mut woken = Vec::new();
        for (key, lock) in &mut self.0 {
            let before = lock.holders.len() + lock.waiters.len();
            lock.holders.retain(|(holder, mode)| *holder != connection || kept.contains(&(*key, *mode)));
            lock.waiters.retain(|(waiter, _)| *waiter != connection);
            if lock.holders.len() + lock.waiters.len() < before {
                woken.extend(lock.grant());
            }
        }
        self.0.retain(|_, lock| !lock.holders.is_empty() || !lock.waiters.is_empty());
        woken
    }

    /// Whether the connection is part of a deadlock.
    pub(super) fn is_deadlocked(&self, connection: Connection) -> bool {
        let mut open = self.blockers(connection);
        let mut seen = open.clone();
        while let Some(next) = open.pop() {
            if next == connection {
                return true;
            }
            for blocker in self.blockers(next) {
                if !seen.contains(&blocker) {
                    seen.push(blocker);
                    open.push(blocker);
                }
            }
        }
        false
    }

    /// The connections that it waits for.
    pub(super) fn blockers(&self, connection: Connection) -> Vec<Connection> {
        let mut blockers = Vec::new();
        for lock in self.0.values() {
            let Some(place) = lock.waiters.iter().position(|(waiter, _)| *waiter == connection) else {
                continue;
            };
            let mode = lock.waiters[place].1;
            let ahead = lock.holders.iter().chain(lock.waiters.iter().take(place));
            blockers.extend(
                ahead
                    .filter(|(other, held)| *other != connection && held.conflicts(mode))
                    .map(|(other, _)| *other),
            );
        }
        blockers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Key = Key { table: 1, row: 0 };
    const B: Key = Key { table: 1, row: 1 };

    #[test]
    fn a_waiting_statement_runs_on_when_the_lock_is_released() {
        let mut locks = Locks::default();
        assert!(locks.take(1, A, Mode::Change));
        assert!(!locks.take(2, A, Mode::Change));
        assert!(locks.take(3, A, Mode::KeyShare), "a reference does not wait for an ordinary update");
        assert!(!locks.take(4, A, Mode::Whole));
        assert_eq!(locks.release(1), [2]);
        assert!(locks.take(2, A, Mode::Change), "it has the lock by now");
        assert!(locks.release(2).is_empty());
        assert_eq!(locks.release(3), [4]);
    }

    #[test]
    fn locks_taken_after_a_savepoint_are_released_with_it() {
        let mut locks = Locks::default();
        assert!(locks.take(1, A, Mode::Change));
        let kept = locks.held_by(1);
        assert!(locks.take(1, A, Mode::Whole) && locks.take(1, B, Mode::Change));
        assert!(!locks.take(2, B, Mode::Change) && !locks.take(3, A, Mode::Change));
        assert!(!locks.take(4, A, Mode::KeyShare));
        assert_eq!(locks.keep_only(1, &kept), [4, 2], "3 still waits for the first lock on A");
        assert_eq!(locks.release(1), [3]);
    }

    #[test]
    fn a_circle_is_found() {
        let mut locks = Locks::default();
        assert!(locks.take(1, A, Mode::Change));
        assert!(locks.take(2, B, Mode::Change));
        assert!(!locks.take(1, B, Mode::Change));
        assert!(!locks.is_deadlocked(1));
        assert!(!locks.take(2, A, Mode::Whole));
        assert!(locks.is_deadlocked(1) && locks.is_deadlocked(2));
    }
}
