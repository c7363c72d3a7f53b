//! Locks on whole tables at the scheduler, taken as statements come and held until their owner ends.
//!
//! C-JDBC, section 2.2.3, names the levels `optimisticTransaction` and `pessimisticTransaction`; that they are table locks
//! is our reading. Requests on one table are granted in order of arrival. An owner that has read a table and now
//! writes it goes to the front of the queue.
//!
//! Invariant: two owners never hold conflicting locks on a table. Not here: who must die in a deadlock ([`super::deadlock`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::TableId;
use crate::parts::lock_queues::Mode;

#[derive(Debug)]
struct Table<O> {
    held: BTreeMap<O, Mode>,
    waiting: VecDeque<(O, Mode)>,
}

impl<O> Default for Table<O> {
    fn default() -> Self {
        Self { held: BTreeMap::new(), waiting: VecDeque::new() }
    }
}

fn conflict(one: Mode, other: Mode) -> bool {
    one == Mode::Write || other == Mode::Write
}

impl<O: Copy + Ord> Table<O> {
    /// The owners that hold what this request conflicts with.
    fn holders_against(&self, owner: O, mode: Mode) -> impl Iterator<Item = O> + '_ {
        let against = move |(held_by, held): &(&O, &Mode)| **held_by != owner && conflict(mode, **held);
        self.held.iter().filter(against).map(|(held_by, _)| *held_by)
    }

    fn grant(&mut self, owner: O, mode: Mode) {
        let held = self.held.entry(owner).or_insert(mode);
        *held = (*held).max(mode);
    }
}

/// The locks of all tables.
#[derive(Debug)]
pub struct TableLocks<O> {
    tables: BTreeMap<TableId, Table<O>>,
    /// For each owner that waits, for how many locks.
    missing: BTreeMap<O, usize>,
}

impl<O> Default for TableLocks<O> {
    fn default() -> Self {
        Self { tables: BTreeMap::new(), missing: BTreeMap::new() }
    }
}

impl<O: Copy + Ord> TableLocks<O> {
    /// Asks for these locks. Whether the owner has all of them now; else [`Self::release`] says when it has.
    pub fn acquire(&mut self, owner: O, tables: &[(TableId, Mode)]) -> bool {
        let mut missing = 0;
        for (table, mode) in tables {
            let table = self.tables.entry(*table).or_default();
            let held = table.held.get(&owner).copied();
            if held.is_some_and(|held| held >= *mode) {
                continue;
            }
            let is_upgrade = held.is_some();
            let is_free = table.holders_against(owner, *mode).next().is_none();
            if is_free && (table.waiting.is_empty() || is_upgrade) {
                table.grant(owner, *mode);
                continue;
            }
            if is_upgrade {
                table.waiting.push_front((owner, *mode));
            } else {
                table.waiting.push_back((owner, *mode));
            }
            missing += 1;
        }
        if missing > 0 {
            self.missing.insert(owner, missing);
        }
        missing == 0
    }

    /// Gives up the requests of an owner that wait; what it holds stays. Returns the owners that have all they asked for now.
    pub fn withdraw(&mut self, owner: O) -> Vec<O> {
        self.missing.remove(&owner);
        self.tables.values_mut().for_each(|table| table.waiting.retain(|(waiting, _)| *waiting != owner));
        self.promote()
    }

    /// Gives up all locks and requests of an owner. Returns the owners that have all they asked for now.
    pub fn release(&mut self, owner: O) -> Vec<O> {
        self.tables.values_mut().for_each(|table| {
            table.held.remove(&owner);
        });
        self.withdraw(owner)
    }

    /// The owners for which this one waits.
    pub fn blockers(&self, owner: O) -> BTreeSet<O> {
        let mut blockers = BTreeSet::new();
        for table in self.tables.values() {
            let Some(place) = table.waiting.iter().position(|(waiting, _)| *waiting == owner) else {
                continue;
            };
            let mode = table.waiting[place].1;
            blockers.extend(table.holders_against(owner, mode));
            let ahead = table.waiting.iter().take(place).filter(|(_, other)| conflict(mode, *other));
            blockers.extend(ahead.map(|(other, _)| *other));
        }
        blockers
    }

    fn promote(&mut self) -> Vec<O> {
        let mut granted = Vec::new();
        for table in self.tables.values_mut() {
            while let Some((owner, mode)) = table.waiting.front().copied() {
                if table.holders_against(owner, mode).next().is_some() {
                    break;
                }
                table.waiting.pop_front();
                table.grant(owner, mode);
                let missing = self.missing.get_mut(&owner).expect("an owner that waits lacks a lock");
                *missing -= 1;
                if *missing == 0 {
                    self.missing.remove(&owner);
                    granted.push(owner);
                }
            }
        }
        self.tables.retain(|_, table| !table.held.is_empty() || !table.waiting.is_empty());
        granted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::DatabaseId;

    fn set(read: &[u32], write: &[u32]) -> Vec<(TableId, Mode)> {
        let of = |tables: &[u32], mode| -> Vec<(TableId, Mode)> {
            tables.iter().map(|table| (DatabaseId::FIRST.table(*table), mode)).collect()
        };
        [of(read, Mode::Read), of(write, Mode::Write)].concat()
    }

    #[test]
    fn readers_share_and_do_not_pass_a_writer() {
        let mut locks = TableLocks::default();
        assert!(locks.acquire(1, &set(&[1], &[])));
        assert!(locks.acquire(2, &set(&[1], &[])));
        assert!(!locks.acquire(3, &set(&[], &[1])));
        assert!(!locks.acquire(4, &set(&[1], &[])), "the writer came first");
        assert_eq!(locks.blockers(4), BTreeSet::from([3]));
        assert_eq!(locks.blockers(3), BTreeSet::from([1, 2]));
        assert!(locks.release(1).is_empty());
        assert_eq!(locks.release(2), [3]);
        assert_eq!(locks.release(3), [4]);
    }

    #[test]
    fn a_reader_that_writes_goes_first() {
        let mut locks = TableLocks::default();
        assert!(locks.acquire(1, &set(&[1], &[])));
        assert!(locks.acquire(2, &set(&[1], &[])));
        assert!(!locks.acquire(3, &set(&[], &[1])));
        assert!(!locks.acquire(1, &set(&[], &[1])));
        assert_eq!(locks.blockers(1), BTreeSet::from([2]));
        assert_eq!(locks.release(2), [1]);
        assert_eq!(locks.release(1), [3]);
    }

    #[derive(Clone, Debug)]
    enum Act {
        Ask(u8, Vec<(u32, bool)>),
        End(u8),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let asked = proptest::collection::btree_map(0_u32..3, any::<bool>(), 1..3);
        let one = prop_oneof![
            3 => (0_u8..6, asked).prop_map(|(owner, set)| Act::Ask(owner, set.into_iter().collect())),
            2 => (0_u8..6).prop_map(Act::End),
        ];
        proptest::collection::vec(one, 1..60)
    }

    proptest! {
        /// Against a naive model: a list of held locks, and a list of requests in order, of which the first that can be granted
        /// on its table is granted until none can.
        #[test]
        fn as_a_naive_model(acts in acts()) {
            let mut locks = TableLocks::default();
            let mut held: Vec<(u8, u32, Mode)> = Vec::new();
            let mut queue: Vec<(u8, u32, Mode)> = Vec::new();
            for act in acts {
                match act {
                    Act::Ask(owner, tables) => {
                        if queue.iter().any(|(waiting, ..)| *waiting == owner) {
                            continue;
                        }
                        let mode = |writes| if writes { Mode::Write } else { Mode::Read };
                        let tables: Vec<(u32, Mode)> = tables.into_iter().map(|(t, w)| (t, mode(w))).collect();
                        let ids: Vec<(TableId, Mode)> =
                            tables.iter().map(|(t, m)| (DatabaseId::FIRST.table(*t), *m)).collect();
                        for (table, mode) in tables {
                            let own = held.iter().filter(|(o, t, _)| *o == owner && *t == table);
                            let own = own.map(|(_, _, m)| *m).max();
                            if own >= Some(mode) {
                                continue;
                            }
                            let at = own.and_then(|_| queue.iter().position(|(_, t, _)| *t == table));
                            queue.insert(at.unwrap_or(queue.len()), (owner, table, mode));
                        }
                        grant(&mut held, &mut queue);
                        let is_waiting = queue.iter().any(|(waiting, ..)| *waiting == owner);
                        prop_assert_eq!(locks.acquire(owner, &ids), !is_waiting);
                    }
                    Act::End(owner) => {
                        held.retain(|(o, ..)| *o != owner);
                        let before: BTreeSet<u8> = queue.iter().map(|(o, ..)| *o).filter(|o| *o != owner).collect();
                        queue.retain(|(o, ..)| *o != owner);
                        grant(&mut held, &mut queue);
                        let after: BTreeSet<u8> = queue.iter().map(|(o, ..)| *o).collect();
                        let granted: BTreeSet<u8> = locks.release(owner).into_iter().collect();
                        prop_assert_eq!(granted, &before - &after);
                    }
                }
                for (place, (owner, table, mode)) in queue.iter().enumerate() {
                    let against = |o: &u8, t: &u32, m: &Mode| t == table && o != owner && conflict(*mode, *m);
                    let ahead = held.iter().chain(&queue[..place]).filter(|(o, t, m)| against(o, t, m));
                    for (other, ..) in ahead {
                        prop_assert!(locks.blockers(*owner).contains(other));
                    }
                }
            }
        }
    }

    fn grant(held: &mut Vec<(u8, u32, Mode)>, queue: &mut Vec<(u8, u32, Mode)>) {
        let can = |held: &[(u8, u32, Mode)], queue: &[(u8, u32, Mode)], place: usize| {
            let (owner, table, mode) = queue[place];
            queue[..place].iter().all(|(_, t, _)| *t != table)
                && held.iter().all(|(o, t, m)| *t != table || *o == owner || !conflict(mode, *m))
        };
        while let Some(place) = (0..queue.len()).find(|place| can(held, queue, *place)) {
            held.push(queue.remove(place));
        }
    }
}
