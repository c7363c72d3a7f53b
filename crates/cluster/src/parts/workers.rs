//! Workers: the replicas that run links, how many links each runs at a time, and the links that wait for one.
//!
//! Gargamel section IV: a worker runs one transaction at a time (`slots` is 1); with a client that speaks between statements,
//! a worker with one slot would stand idle during its pauses, so there may be more. Section V-B has a bounded number of
//! workers (100 in Table I), V-C an unbounded one: "an elastic cloud computing environment".
//!
//! ```text
//!   Parked -> Waking -> Free <-> Busy(k)
//!      ^                  |        |
//!      +------------------+--- Draining(k)     drain: no new links; parked when the last one ends
//! ```
//!
//! Links that are ready wait in one queue, each for a certain worker (that of its chain) or for any. A worker takes the first
//! of those that it may take, so a link of its chain does not overtake another that waited longer, nor the other way around.
//!
//! Time is an argument, for the account of what workers cost: microseconds in which slots were taken, and microseconds in which
//! the worker was not parked.
//!
//! Invariants: a worker never runs more links than it has slots; a parked or leaving worker gets none; at most `bound` workers
//! are not parked. Every step is O(log n) in workers and waiting links, but for the departure of a worker, which moves those
//! that wait for it.
//!
//! Not here: when to wake or drain a worker, which is a policy; and which worker a link should prefer ([`super::chains`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::Bound;

use crate::parts::chains::Link;
use crate::time::Time;

/// The state of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It runs nothing.
    Free,
    /// It runs this many links.
    Busy(usize),
    /// It was told to start and does not run yet.
    Waking,
    /// It gets no new links, and parks when these have ended.
    Draining(usize),
    /// It is stopped.
    Parked,
}

/// What a worker has cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// The time in which it ran links, summed over its slots.
    pub busy_us: u64,
    /// The time in which it was not parked.
    pub awake_us: u64,
}

#[derive(Debug)]
struct Worker {
    state: State,
    spent: Spent,
    since: Time,
    /// The links that wait for this worker, by their places in the queue.
    queue: BTreeMap<Ticket, Link>,
}

/// A place in the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Ticket(u64);

/// All workers, named by `W`, and the queue.
#[derive(Debug)]
pub struct Workers<W> {
    slots: usize,
    bound: Option<usize>,
    all: BTreeMap<W, Worker>,
    /// Those with a free slot, by what they run, and by name.
    least_busy: BTreeSet<(usize, W)>,
    by_name: BTreeSet<W>,
    parked: BTreeSet<W>,
    busy_slots: usize,
    tickets: u64,
    /// Links that wait for any worker.
    queue: BTreeMap<Ticket, Link>,
    waiting: BTreeMap<Link, (Ticket, Option<W>)>,
}

impl<W: Copy + Ord + Debug> Workers<W> {
    /// No workers yet. Each will have so many slots, at least one, and at most `bound` will be awake.
    pub fn new(slots: usize, bound: Option<usize>) -> Self {
        Self {
            slots: slots.max(1),
            bound,
            all: BTreeMap::new(),
            least_busy: BTreeSet::new(),
            by_name: BTreeSet::new(),
            parked: BTreeSet::new(),
            busy_slots: 0,
            tickets: 0,
            queue: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// A worker becomes known; it is parked.
    pub fn join(&mut self, now: Time, worker: W) {
        let fresh =
            Worker { state: State::Parked, spent: Spent::default(), since: now, queue: BTreeMap::new() };
        if let std::collections::btree_map::Entry::Vacant(place) = self.all.entry(worker) {
            place.insert(fresh);
            self.parked.insert(worker);
        }
    }

    /// A worker is lost or removed. Links that wait for it wait for any worker from now on, at their places.
    pub fn leave(&mut self, worker: W) {
        if let Some(state) = self.state(worker) {
            self.unlist(worker, state);
            self.parked.remove(&worker);
            self.busy_slots -= running(state);
            self.release(worker);
            self.all.remove(&worker);
        }
    }

    /// Whether the bound allows one more worker to be awake.
    pub fn may_wake(&self) -> bool {
        self.bound.is_none_or(|bound| self.awake() < bound)
    }

    /// The parked worker to wake next: the first by name.
    pub fn parked(&self) -> Option<W> {
        self.parked.first().copied()
    }

    /// A parked worker is told to start. False if it is not parked or the bound forbids it.
    #[must_use = "the worker may not be woken"]
    pub fn wake(&mut self, now: Time, worker: W) -> bool {
        let may = self.may_wake() && self.state(worker) == Some(State::Parked);
        if may {
            self.turn(now, worker, State::Waking);
        }
        may
    }

    /// A waking worker is there.
    pub fn woke(&mut self, now: Time, worker: W) {
        if self.state(worker) == Some(State::Waking) {
            self.turn(now, worker, State::Free);
        }
    }

    /// A worker gets no new links, and parks when it runs none. Links that wait for it wait for any worker from now on.
    pub fn drain(&mut self, now: Time, worker: W) {
        let next = match self.state(worker) {
            Some(State::Free | State::Waking) => State::Parked,
            Some(State::Busy(running)) => State::Draining(running),
            Some(State::Draining(_) | State::Parked) | None => return,
        };
        self.release(worker);
        self.turn(now, worker, next);
    }

    /// The worker with a free slot that runs least, the first by name among equals.
    pub fn free(&self) -> Option<W> {
        self.least_busy.first().map(|(_, worker)| *worker)
    }

    /// The next worker with a free slot in circular order by name, after this one.
    pub fn free_after(&self, last: Option<W>) -> Option<W> {
        let after =
            last.and_then(|last| self.by_name.range((Bound::Excluded(last), Bound::Unbounded)).next());
        after.or_else(|| self.by_name.first()).copied()
    }

    /// Whether a worker has a free slot.
    pub fn has_slot(&self, worker: W) -> bool {
        self.by_name.contains(&worker)
    }

    /// A link takes a slot. False if the worker has none that is free.
    #[must_use = "the link has no slot if this is false"]
    pub fn take(&mut self, now: Time, worker: W) -> bool {
        let has_slot = self.has_slot(worker);
        if has_slot {
            let running = self.state(worker).map_or(0, running);
            self.turn(now, worker, State::Busy(running + 1));
        }
        has_slot
    }

    /// A link gives its slot back. Returns the state after that: a draining worker is parked by the last one.
    pub fn give(&mut self, now: Time, worker: W) -> Option<State> {
        let next = match self.state(worker)? {
            State::Busy(1) => State::Free,
            State::Busy(running) => State::Busy(running - 1),
            State::Draining(1) => State::Parked,
            State::Draining(running) => State::Draining(running - 1),
            idle @ (State::Free | State::Waking | State::Parked) => return Some(idle),
        };
        self.turn(now, worker, next);
        Some(next)
    }

    /// A ready link waits for a slot: of this worker, or of any. One that waits already keeps its place. Whether the worker is
    /// there is not asked: for one that is unknown, parked or leaving, the link waits for any.
    pub fn wait(&mut self, link: Link, at: Option<W>) {
        if self.waiting.contains_key(&link) {
            return;
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let gets_links = |state: State| !matches!(state, State::Parked | State::Draining(_));
        let at = at.filter(|worker| self.state(*worker).is_some_and(gets_links));
        match at.and_then(|worker| self.all.get_mut(&worker)) {
            Some(worker) => worker.queue.insert(ticket, link),
            None => self.queue.insert(ticket, link),
        };
        self.waiting.insert(link, (ticket, at));
    }

    /// A link does not wait any more, for example because its client gave up.
    pub fn stop_waiting(&mut self, link: Link) {
        let Some((ticket, at)) = self.waiting.remove(&link) else { return };
        self.queue.remove(&ticket);
        if let Some(worker) = at.and_then(|worker| self.all.get_mut(&worker)) {
            worker.queue.remove(&ticket);
        }
    }

    /// Takes the first link that a worker with a free slot may run out of the queue.
    pub fn next(&mut self, worker: W) -> Option<Link> {
        if !self.has_slot(worker) {
            return None;
        }
        let own = self.all.get(&worker)?.queue.first_key_value();
        let any = self.queue.first_key_value();
        let (_, link) = own.into_iter().chain(any).min()?;
        let link = *link;
        self.stop_waiting(link);
        Some(link)
    }

    /// The number of links that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The number of links that run.
    pub fn busy(&self) -> usize {
        self.busy_slots
    }

    /// The number of workers that are not parked.
    pub fn awake(&self) -> usize {
        self.all.len() - self.parked.len()
    }

    /// The state of a worker.
    pub fn state(&self, worker: W) -> Option<State> {
        Some(self.all.get(&worker)?.state)
    }

    /// All workers with their states.
    pub fn states(&self) -> impl Iterator<Item = (W, State)> {
        self.all.iter().map(|(name, worker)| (*name, worker.state))
    }

    /// What a worker has cost until now.
    pub fn spent(&self, now: Time, worker: W) -> Option<Spent> {
        Some(self.all.get(&worker)?.spent_until(now))
    }

    fn turn(&mut self, now: Time, name: W, next: State) {
        let Some(worker) = self.all.get_mut(&name) else { return };
        let former = worker.state;
        worker.spent = worker.spent_until(now);
        (worker.since, worker.state) = (now, next);
        self.unlist(name, former);
        self.busy_slots = self.busy_slots - running(former) + running(next);
        if next == State::Parked {
            self.parked.insert(name);
        } else {
            self.parked.remove(&name);
        }
        if matches!(next, State::Free | State::Busy(_)) && running(next) < self.slots {
            self.least_busy.insert((running(next), name));
            self.by_name.insert(name);
        }
    }

    fn unlist(&mut self, worker: W, state: State) {
        self.least_busy.remove(&(running(state), worker));
        self.by_name.remove(&worker);
    }

    /// Those that wait for this worker wait for any.
    fn release(&mut self, name: W) {
        let Some(worker) = self.all.get_mut(&name) else { return };
        for (ticket, link) in std::mem::take(&mut worker.queue) {
            self.queue.insert(ticket, link);
            self.waiting.insert(link, (ticket, None));
        }
    }
}

impl Worker {
    fn spent_until(&self, now: Time) -> Spent {
        let passed_us = now.since_us(self.since);
        let awake_us = if self.state == State::Parked { 0 } else { passed_us };
        Spent {
            busy_us: self.spent.busy_us + passed_us * running(self.state) as u64,
            awake_us: self.spent.awake_us + awake_us,
        }
    }
}

/// How many links run in this state.
fn running(state: State) -> usize {
    match state {
        State::Busy(running) | State::Draining(running) => running,
        State::Free | State::Waking | State::Parked => 0,
    }
}

#[cfg(test)]
mod tests;
