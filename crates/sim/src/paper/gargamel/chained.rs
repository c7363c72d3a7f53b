//! Gargamel, and centralised writes: transactions that may conflict run one after the other.
//!
//! Section II-B: "Conflicting transactions execute sequentially at a single worker; non-conflicting transactions are assigned
//! to parallel queues". The first link that an end makes ready goes on at the same worker. Other links go to the first free
//! worker, or wait for any. An update never runs beside one that it may conflict with, so none is ever restarted.
//!
//! Centralised writes are simulated as in the paper (IV-B), "by classifying all update transactions as mutually-conflicting".

use std::collections::{BTreeMap, BTreeSet};

use cluster::claims::Claims;
use cluster::parts::chains::{Chains, Link};
use cluster::parts::workers::Workers;
use cluster::time::Time;

use super::super::open::world::{Scheduler, Verdict, WorkId, WorkerId};

/// Chains over workers with one slot each.
#[derive(Debug)]
pub(super) struct Chained {
    claims: Vec<Claims>,
    chains: Chains<WorkerId>,
    links: BTreeMap<Link, WorkId>,
    running: BTreeMap<WorkerId, Link>,
    workers: Workers<WorkerId>,
    /// Workers that have become free, and for which a link of their chain may wait.
    freed: BTreeSet<WorkerId>,
    /// How many pairs were compared, and how many of them the written rows do not confirm.
    classified: Option<Classified>,
}

/// One arrival in so many is compared with all that are not over, which is enough to count false positives.
const COMPARED: usize = 10;

/// The account of false positives.
#[derive(Clone, Debug)]
pub(super) struct Classified {
    written: Vec<Claims>,
    /// Pairs of a transaction that arrives and one that is not over.
    pub(super) pairs: u64,
    /// Those that were predicted to conflict, and do not.
    pub(super) false_positives: u64,
}

impl Chained {
    /// A scheduler for transactions with these claims, in the order of arrival. With `written`, it compares each pair.
    pub(super) fn new(claims: Vec<Claims>, bound: Option<usize>, written: Option<Vec<Claims>>) -> Self {
        Self {
            claims,
            chains: Chains::default(),
            links: BTreeMap::new(),
            running: BTreeMap::new(),
            workers: workers(bound),
            freed: BTreeSet::new(),
            classified: written.map(|written| Classified { written, pairs: 0, false_positives: 0 }),
        }
    }

    /// The account of false positives, if it was asked for.
    pub(super) fn classified(&self) -> Option<&Classified> {
        self.classified.as_ref()
    }

    fn classify(&mut self, work: WorkId) {
        let Some(account) = self.classified.as_mut().filter(|_| work.0.is_multiple_of(COMPARED)) else {
            return;
        };
        for other in self.links.values() {
            account.pairs += 1;
            let is_predicted = self.claims[other.0].overlaps(&self.claims[work.0]);
            let is_real = || account.written[other.0].overlaps(&account.written[work.0]);
            account.false_positives += u64::from(is_predicted && !is_real());
        }
    }
}

impl Scheduler for Chained {
    fn arrive(&mut self, _now: Time, work: WorkId) {
        self.classify(work);
        let (link, _) = self.chains.enter(self.claims[work.0].clone());
        self.links.insert(link, work);
        if self.chains.is_ready(link) {
            self.workers.wait(link, None);
        }
    }

    fn start(&mut self, now: Time) -> Option<(WorkerId, WorkId)> {
        let own = loop {
            let Some(worker) = self.freed.pop_first() else { break None };
            if let Some(link) = self.workers.next(worker) {
                break Some((worker, link));
            }
        };
        let (worker, link) = if let Some(found) = own {
            found
        } else {
            let worker = free_or_new(now, &mut self.workers)?;
            (worker, self.workers.next(worker)?)
        };
        let has_slot = self.workers.take(now, worker);
        assert!(has_slot, "a worker that takes a link out of the queue has a free slot");
        self.chains.place(link, worker);
        self.running.insert(worker, link);
        Some((worker, self.links[&link]))
    }

    fn ended(&mut self, now: Time, worker: WorkerId, _work: WorkId, _is_overtaken: bool) -> Verdict {
        let link = self.running.remove(&worker).expect("what ends at a worker was started there");
        self.links.remove(&link);
        self.workers.give(now, worker);
        self.freed.insert(worker);
        let ready = self.chains.over(link);
        for (place, link) in ready.into_iter().enumerate() {
            self.workers.wait(link, (place == 0).then_some(worker));
        }
        Verdict::Commits
    }

    fn busy(&self) -> usize {
        self.workers.busy()
    }

    fn waiting(&self) -> usize {
        self.workers.waiting()
    }
}

/// Workers with one slot each, as in the paper: `bound` of them, or none yet if there is no bound.
pub(super) fn workers(bound: Option<usize>) -> Workers<WorkerId> {
    let mut workers = Workers::new(1, bound);
    for number in 0..bound.unwrap_or_default() {
        add(Time::default(), &mut workers, WorkerId(number as u32));
    }
    workers
}

/// A worker comes and is there at once.
pub(super) fn add(now: Time, workers: &mut Workers<WorkerId>, worker: WorkerId) {
    workers.join(now, worker);
    if workers.wake(now, worker) {
        workers.woke(now, worker);
    }
}

/// A free worker for what waits; a new one if the bound allows it.
fn free_or_new(now: Time, workers: &mut Workers<WorkerId>) -> Option<WorkerId> {
    if workers.waiting() == 0 {
        return None;
    }
    if workers.free().is_none() && workers.may_wake() {
        let next = WorkerId(workers.awake() as u32);
        add(now, workers, next);
    }
    workers.free()
}
