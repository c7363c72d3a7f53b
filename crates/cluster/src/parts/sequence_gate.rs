//! Requests that arrive out of sequence wait for their turn.
//!
//! Conflict-aware scheduling, section 4.4: a lock request whose number is not one more than that of the last one
//! processed is put in the out-of-order queue, and looked at again when further ones arrive. A single read takes no
//! number, because it goes to one replica only and would leave a gap at the others: it waits until everything numbered
//! before it was ordered here has passed, and takes its place then.

use std::collections::{BTreeMap, VecDeque};

/// Lets requests pass in the order of their numbers, counted from 1 without gaps.
#[derive(Debug)]
pub struct SequenceGate<T> {
    passed: u64,
    /// The request with the next number, which most are when they arrive.
    next: Option<T>,
    early: BTreeMap<u64, T>,
    /// Requests without numbers; the number that they go after has passed.
    ready: VecDeque<T>,
    after: BTreeMap<(u64, u64), T>,
    arrivals: u64,
}

impl<T> SequenceGate<T> {
    /// A gate that numbers up to `passed` have passed.
    pub fn new(passed: u64) -> Self {
        let (early, ready, after) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        Self { passed, next: None, early, ready, after, arrivals: 0 }
    }

    /// The last number that has passed.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Whether this number has passed or waits here.
    pub fn knows(&self, number: u64) -> bool {
        number <= self.passed
            || number == self.passed + 1 && self.next.is_some()
            || self.early.contains_key(&number)
    }

    /// The highest number that has arrived.
    pub fn highest(&self) -> u64 {
        let next = self.passed + u64::from(self.next.is_some());
        self.early.last_key_value().map_or(next, |(number, _)| next.max(*number))
    }

    /// A request with a number of its own has arrived. A number that arrives twice counts once.
    pub fn arrive(&mut self, number: u64, what: T) {
        if self.knows(number) {
            return;
        }
        if number == self.passed + 1 {
            self.next = Some(what);
        } else {
            self.early.insert(number, what);
        }
    }

    /// A request without a number has arrived that goes after `number`.
    pub fn arrive_after(&mut self, number: u64, what: T) {
        if number <= self.passed {
            self.ready.push_back(what);
            return;
        }
        self.arrivals += 1;
        self.after.insert((number, self.arrivals), what);
    }

    /// Takes the next request that may pass now.
    pub fn pass(&mut self) -> Option<T> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        if let Some(first) = self.after.first_entry().filter(|first| first.key().0 <= self.passed) {
            return Some(first.remove());
        }
        let next = self.next.take().or_else(|| self.early.remove(&(self.passed + 1)))?;
        self.passed += 1;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(gate: &mut SequenceGate<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| gate.pass()).collect()
    }

    #[test]
    fn order_is_that_of_the_numbers() {
        let mut gate = SequenceGate::new(0);
        gate.arrive(2, "two");
        gate.arrive_after(2, "read after two");
        gate.arrive_after(0, "read");
        assert_eq!(all(&mut gate), ["read"]);
        gate.arrive(1, "one");
        gate.arrive(1, "one again");
        assert_eq!(all(&mut gate), ["one", "two", "read after two"]);
        gate.arrive(2, "late");
        assert!(all(&mut gate).is_empty() && gate.passed() == 2);
        gate.arrive(5, "five");
        assert_eq!((gate.highest(), gate.knows(4)), (5, false));
    }
}
