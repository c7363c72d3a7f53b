//! Reader-writer locks on tables, each with its queue, taken whole at the beginning of a transaction.
//!
//! Conflict-aware scheduling, section 4.3: the proxy keeps a reader-writer lock queue for each table, in order of
//! sequence numbers; section 3.4: requests are executed in that order and held until commit, so conflicting operations
//! have one total order at all replicas. A request goes to the end of each of its queues, so the order of the calls
//! is the order of the queues; [`super::sequence_gate`] makes it that of the sequence numbers.
//!
//! A lock is granted when nothing before it in its queue conflicts: a reader that comes after a waiting writer waits,
//! too. Conservative two-phase locking in one global order cannot deadlock.
//!
//! A lock is on a fragment: a whole table as in the paper, or a part of one, for finer classes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::FragmentId;

/// How a transaction uses a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Mode {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
}

/// The locks of one transaction: each fragment once.
pub type LockSet = Arc<[(FragmentId, Mode)]>;

#[derive(Debug)]
struct Queue<H> {
    readers: u32,
    is_written: bool,
    waiting: VecDeque<(H, Mode)>,
}

impl<H> Default for Queue<H> {
    fn default() -> Self {
        Self { readers: 0, is_written: false, waiting: VecDeque::new() }
    }
}

impl<H: Copy> Queue<H> {
    fn is_free_for(&self, mode: Mode) -> bool {
        !self.is_written && (mode == Mode::Read || self.readers == 0)
    }

    fn grant(&mut self, mode: Mode) {
        match mode {
            Mode::Read => self.readers += 1,
            Mode::Write => self.is_written = true,
        }
    }

    /// Grants what stands first, as long as it can be granted.
    fn promote(&mut self, granted: &mut Vec<H>) {
        while let Some((holder, mode)) = self.waiting.front().copied().filter(|(_, m)| self.is_free_for(*m)) {
            self.waiting.pop_front();
            self.grant(mode);
            granted.push(holder);
        }
    }
}

/// The lock queues of one replica. `H` names who holds and who waits.
#[derive(Debug)]
pub struct LockQueues<H> {
    queues: BTreeMap<FragmentId, Queue<H>>,
}

impl<H> Default for LockQueues<H> {
    fn default() -> Self {
        Self { queues: BTreeMap::new() }
    }
}

impl<H: Copy + Eq> LockQueues<H> {
    /// Puts a holder at the end of all these queues; how many of the locks it has to wait for.
    pub fn acquire(&mut self, holder: H, locks: &[(FragmentId, Mode)]) -> usize {
        let mut missing = 0;
        for (fragment, mode) in locks {
            let queue = self.queues.entry(*fragment).or_default();
            if queue.waiting.is_empty() && queue.is_free_for(*mode) {
                queue.grant(*mode);
            } else {
                queue.waiting.push_back((holder, *mode));
                missing += 1;
            }
        }
        missing
    }

    /// Gives all these locks up, which must all be held; adds to `granted` who has one more lock now, once for each.
    pub fn release(&mut self, locks: &[(FragmentId, Mode)], granted: &mut Vec<H>) {
        for (fragment, mode) in locks {
            let queue = self.queues.get_mut(fragment).expect("a lock that is held has a queue");
            match mode {
                Mode::Read => queue.readers -= 1,
                Mode::Write => queue.is_written = false,
            }
            queue.promote(granted);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::DatabaseId;

    fn locks(read: &[u32], write: &[u32]) -> Vec<(FragmentId, Mode)> {
        let of = |tables: &[u32], mode| -> Vec<(FragmentId, Mode)> {
            tables.iter().map(|t| (FragmentId::whole(DatabaseId::FIRST.table(*t)), mode)).collect()
        };
        [of(read, Mode::Read), of(write, Mode::Write)].concat()
    }

    #[test]
    fn readers_share_and_do_not_pass_a_writer() {
        let mut queues = LockQueues::default();
        let (read, write) = (locks(&[1], &[]), locks(&[], &[1]));
        assert_eq!(queues.acquire('a', &read), 0);
        assert_eq!(queues.acquire('b', &read), 0);
        assert_eq!(queues.acquire('w', &write), 1);
        assert_eq!(queues.acquire('c', &read), 1, "the writer before it has the earlier number");
        let mut granted = Vec::new();
        queues.release(&read, &mut granted);
        assert!(granted.is_empty());
        queues.release(&read, &mut granted);
        assert_eq!(granted, ['w']);
        queues.release(&write, &mut granted);
        assert_eq!(granted, ['w', 'c']);
    }

    proptest! {
        /// Against a naive model: a lock is granted when no conflicting one of an earlier holder is still there.
        #[test]
        fn as_a_naive_model(sets in proptest::collection::vec(
            (proptest::collection::btree_map(0_u32..3, any::<bool>(), 1..3), any::<bool>()), 1..40))
        {
            let mut queues = LockQueues::default();
            let mut present: Vec<(usize, Vec<(FragmentId, Mode)>)> = Vec::new();
            let mut missing: BTreeMap<usize, usize> = BTreeMap::new();
            for (holder, (set, ends_one)) in sets.into_iter().enumerate() {
                let mode = |writes| if writes { Mode::Write } else { Mode::Read };
                let set: Vec<_> =
                    set.into_iter().map(|(t, w)| (FragmentId::whole(DatabaseId::FIRST.table(t)), mode(w))).collect();
                missing.insert(holder, queues.acquire(holder, &set));
                present.push((holder, set));
                let done = present.iter().position(|(h, _)| missing[h] == 0);
                if let Some(done) = done.filter(|_| ends_one) {
                    let (_, set) = present.remove(done);
                    let mut granted = Vec::new();
                    queues.release(&set, &mut granted);
                    for holder in granted {
                        *missing.get_mut(&holder).unwrap() -= 1;
                    }
                }
                for (at, (holder, set)) in present.iter().enumerate() {
                    let blocked = |(f, m): &&(FragmentId, Mode)| {
                        let conflicts = |(g, n): &(FragmentId, Mode)| {
                            g == f && (*m == Mode::Write || *n == Mode::Write)
                        };
                        present[..at].iter().any(|(_, before)| before.iter().any(conflicts))
                    };
                    prop_assert_eq!(missing[holder], set.iter().filter(blocked).count());
                }
            }
        }
    }
}
