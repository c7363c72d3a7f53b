//! A map for consecutive numbers, of which most are removed soon and nearly in order.
//!
//! Recent entries are in a queue, where a number is a place: they are found without a search, and come and go without the
//! allocator. An entry that lasts while thousands of others begin and end moves to a map, so the queue stays short, however
//! long a transaction is left open.

use std::collections::{BTreeMap, VecDeque};

/// Places of the queue.
const RECENT_MAX: usize = 4_096;

/// Entries by number, counted from 1.
#[derive(Debug)]
pub struct Numbered<T> {
    /// The number before the first place.
    first: u64,
    recent: VecDeque<Option<T>>,
    old: BTreeMap<u64, T>,
    count: usize,
}

impl<T> Numbered<T> {
    /// An empty map for numbers after this one.
    pub fn after(number: u64) -> Self {
        Self { first: number, recent: VecDeque::new(), old: BTreeMap::new(), count: 0 }
    }

    /// The number of entries.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The highest number that has come.
    pub fn last(&self) -> u64 {
        self.first + self.recent.len() as u64
    }

    /// Every number up to this one has gone, if they came in order.
    pub fn over(&self) -> u64 {
        self.old.first_key_value().map_or(self.first, |(number, _)| number - 1)
    }

    /// The numbers that are there, in order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let first = self.first;
        let recent = (1..).zip(&self.recent).filter(|(_, slot)| slot.is_some());
        self.old.keys().copied().chain(recent.map(move |(at, _)| first + at))
    }

    /// The entry with this number.
    pub fn get(&self, number: u64) -> Option<&T> {
        match self.place(number) {
            Some(place) => self.recent.get(place)?.as_ref(),
            None => self.old.get(&number),
        }
    }

    /// The entry with this number.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        match self.place(number) {
            Some(place) => self.recent.get_mut(place)?.as_mut(),
            None => self.old.get_mut(&number),
        }
    }

    /// Inserts an entry. Returns the one that had its number before.
    pub fn insert(&mut self, number: u64, what: T) -> Option<T> {
        while number > self.last() {
            if self.recent.len() >= RECENT_MAX {
                self.retire();
            }
            self.recent.push_back(None);
        }
        let before = match self.place(number) {
            Some(place) => self.recent[place].replace(what),
            None => self.old.insert(number, what),
        };
        self.count += usize::from(before.is_none());
        before
    }

    /// Removes the entry with this number.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let gone = match self.place(number) {
            Some(place) => self.recent.get_mut(place)?.take(),
            None => self.old.remove(&number),
        };
        self.count -= usize::from(gone.is_some());
        while let Some(None) = self.recent.front() {
            self.recent.pop_front();
            self.first += 1;
        }
        gone
    }

    fn place(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.first + 1).map(|place| place as usize)
    }

    /// The first place is given up.
    fn retire(&mut self) {
        let gone = self.recent.pop_front().flatten();
        self.first += 1;
        self.old.extend(gone.map(|what| (self.first, what)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_lasts_takes_no_room_from_others() {
        let mut all = Numbered::after(0);
        for number in 1..=3 * RECENT_MAX as u64 {
            assert_eq!(all.insert(number, number), None);
            if number > 2 {
                assert_eq!(all.remove(number), Some(number));
            }
        }
        assert!(all.recent.len() <= RECENT_MAX, "{}", all.recent.len());
        assert_eq!((all.count(), all.over(), all.last()), (2, 0, 3 * RECENT_MAX as u64));
        assert_eq!(all.numbers().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(all.remove(1), Some(1));
        assert_eq!((all.over(), all.get(2), all.get(1)), (1, Some(&2), None));
        assert_eq!(all.remove(2), Some(2));
        assert_eq!((all.over(), all.count()), (all.last(), 0));
    }

    proptest::proptest! {
        /// As a sorted map, whatever the order in which numbers come and go.
        #[test]
        fn as_a_map(steps in proptest::collection::vec((0_u64..40, proptest::prelude::any::<bool>()), 1..200)) {
            let (mut all, mut model) = (Numbered::after(10), BTreeMap::new());
            for (step, (number, comes)) in steps.into_iter().enumerate() {
                let number = number + 1;
                if comes {
                    proptest::prop_assert_eq!(all.insert(number, step), model.insert(number, step));
                } else {
                    proptest::prop_assert_eq!(all.remove(number), model.remove(&number));
                }
                proptest::prop_assert_eq!(all.count(), model.len());
                proptest::prop_assert!(all.numbers().eq(model.keys().copied()));
                for number in 1..=41 {
                    proptest::prop_assert_eq!(all.get(number), model.get(&number));
                    proptest::prop_assert_eq!(all.get_mut(number).copied(), model.get(&number).copied());
                }
            }
        }
    }
}
