//! The replicas at which a transaction that writes a table is not over yet.
//!
//! Conflict-aware scheduling, sections 3.5 and 4.8: the scheduler keeps the completion status of lock requests and
//! writes for all replicas, and so knows where no conflicting lock is held. A lock that is asked for counts like one
//! that is held: it has the earlier number, so a read would wait for it as well.

use std::collections::BTreeMap;

use crate::ids::FragmentId;
use crate::parts::lock_queues::Mode;

/// Per fragment and replica, the number of transactions that lock it for writing and have not ended there.
#[derive(Debug)]
pub struct UnfinishedWriters {
    replicas: usize,
    counts: BTreeMap<FragmentId, Vec<u32>>,
}

impl UnfinishedWriters {
    /// Nothing is under way.
    pub fn new(replicas: usize) -> Self {
        Self { replicas, counts: BTreeMap::new() }
    }

    /// A transaction with these locks is on its way to all replicas.
    pub fn begin(&mut self, locks: &[(FragmentId, Mode)]) {
        for (fragment, _) in locks.iter().filter(|(_, mode)| *mode == Mode::Write) {
            let counts = self.counts.entry(*fragment).or_insert_with(|| vec![0; self.replicas]);
            for count in counts.iter_mut() {
                *count += 1;
            }
        }
    }

    /// The replica has come back. Of all transactions under way, only those with these locks are under way there.
    pub fn reset<'a>(&mut self, replica: usize, under_way: impl Iterator<Item = &'a [(FragmentId, Mode)]>) {
        self.counts.values_mut().for_each(|counts| counts[replica] = 0);
        for (fragment, _) in under_way.flatten().filter(|(_, mode)| *mode == Mode::Write) {
            self.counts.get_mut(fragment).expect("what is under way has begun")[replica] += 1;
        }
    }

    /// A transaction with these locks is over at this replica.
    pub fn end(&mut self, replica: usize, locks: &[(FragmentId, Mode)]) {
        for (fragment, _) in locks.iter().filter(|(_, mode)| *mode == Mode::Write) {
            let counts = self.counts.get_mut(fragment).expect("what ends has begun");
            counts[replica] -= 1;
        }
    }

    /// About how much memory this takes.
    pub fn memory_bytes(&self) -> usize {
        let counts = self.counts.values().map(|counts| size_of_val(counts.as_slice()));
        self.counts.len() * size_of::<(FragmentId, Vec<u32>)>() + counts.sum::<usize>()
    }

    /// Whether a read of these finds no conflict there.
    pub fn is_free(&self, replica: usize, locks: &[(FragmentId, Mode)]) -> bool {
        locks.iter().all(|(fragment, _)| self.counts.get(fragment).is_none_or(|counts| counts[replica] == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DatabaseId;

    #[test]
    fn a_writer_is_in_the_way_until_it_has_ended_there() {
        let mut writers = UnfinishedWriters::new(2);
        let [item, orders] = [1, 2].map(|t| FragmentId::whole(DatabaseId::FIRST.table(t)));
        let locks = [(item, Mode::Write), (orders, Mode::Read)];
        writers.begin(&locks);
        assert!(!writers.is_free(0, &[(item, Mode::Read)]));
        assert!(writers.is_free(0, &[(orders, Mode::Read)]), "readers block no one");
        writers.end(1, &locks);
        assert!(writers.is_free(1, &[(item, Mode::Read), (orders, Mode::Read)]));
        assert!(!writers.is_free(0, &[(item, Mode::Read)]));
        writers.reset(0, [].into_iter());
        assert!(writers.is_free(0, &[(item, Mode::Read)]));
        writers.reset(0, [&locks[..]].into_iter());
        assert!(!writers.is_free(0, &[(item, Mode::Read)]));
    }
}
