//! The queue of future events: a heap of (time, order of entry, event).
//!
//! Events at one time keep their order of entry, so a run depends on its seed alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Future events in the order of their times.
#[derive(Debug)]
pub struct Agenda<T> {
    now_us: u64,
    entered: u64,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    what: BTreeMap<u64, T>,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { now_us: 0, entered: 0, heap: BinaryHeap::new(), what: BTreeMap::new() }
    }
}

impl<T> Agenda<T> {
    /// The current simulated time.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Schedules an event `after_us` from now.
    pub fn enter(&mut self, after_us: u64, what: T) {
        self.entered += 1;
        self.heap.push(Reverse((self.now_us + after_us, self.entered)));
        self.what.insert(self.entered, what);
    }

    /// Takes the next event and advances the time to it.
    pub fn take_next(&mut self) -> Option<T> {
        let Reverse((at_us, entry)) = self.heap.pop()?;
        self.now_us = at_us;
        self.what.remove(&entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_then_by_entry() {
        let mut agenda = Agenda::default();
        agenda.enter(5, 'c');
        agenda.enter(1, 'a');
        agenda.enter(1, 'b');
        let order: Vec<char> = std::iter::from_fn(|| agenda.take_next()).collect();
        assert_eq!(order, ['a', 'b', 'c']);
        assert_eq!(agenda.now_us(), 5);
    }
}
