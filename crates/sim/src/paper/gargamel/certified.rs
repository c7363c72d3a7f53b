//! Round-Robin and Tashkent+: transactions run at once, and one that was overtaken runs again.
//!
//! *Round-Robin* (IV-B): "Transactions are assigned to each worker in equal portions and in circular order." A transaction goes
//! to the next worker in circular order that is free, so no worker is idle while another one has a queue.
//!
//! *Tashkent+*: the same within a group of workers, of which the group of the transaction's kind is taken. Workers move between
//! groups whenever that balances the loads, once they are idle: "the balance remains optimal all the time". Without a bound on
//! workers, each group gets as many as it needs.
//!
//! The paper does not state what becomes of a transaction that was overtaken: see [`Retry`].

use std::collections::{BTreeMap, VecDeque};

use cluster::ids::KindId;
use cluster::parts::chains::Link;
use cluster::parts::groups::{GroupId, Groups, pack};
use cluster::parts::workers::{State, Workers};
use cluster::time::Time;

use super::super::open::world::{Scheduler, Verdict, WorkId, WorkerId};
use super::chained::{add, workers};
use super::experiment::Retry;
use super::tpcc::{Kind, MEMORY_BYTES};

/// Workers in groups, one group for Round-Robin.
#[derive(Debug)]
pub(super) struct Certified {
    kinds: Vec<KindId>,
    retry: Retry,
    is_bounded: bool,
    groups: Groups<WorkerId>,
    pools: BTreeMap<GroupId, Pool>,
    workers: u32,
    again: VecDeque<(WorkerId, WorkId)>,
}

/// The workers of a group.
#[derive(Debug)]
struct Pool {
    workers: Workers<WorkerId>,
    last: Option<WorkerId>,
}

impl Pool {
    fn demand(&self) -> u64 {
        (self.workers.busy() + self.workers.waiting()) as u64
    }
}

impl Certified {
    /// Round-Robin over transactions of these kinds.
    pub(super) fn round_robin(kinds: Vec<KindId>, bound: Option<usize>, retry: Retry) -> Self {
        let all = [kinds.iter().copied().collect()];
        Self::new(kinds, Groups::new(&all), bound, retry)
    }

    /// Tashkent+: groups by working sets.
    pub(super) fn tashkent(kinds: Vec<KindId>, bound: Option<usize>, retry: Retry) -> Self {
        let sets: Vec<_> = Kind::MIX.iter().map(|(kind, _)| kind.working_set()).collect();
        Self::new(kinds, Groups::new(&pack(&sets, MEMORY_BYTES)), bound, retry)
    }

    fn new(kinds: Vec<KindId>, groups: Groups<WorkerId>, bound: Option<usize>, retry: Retry) -> Self {
        let pools = groups.groups().map(|group| (group, Pool { workers: workers(None), last: None }));
        let pools = pools.collect();
        let is_bounded = bound.is_some();
        let mut new = Self { kinds, retry, is_bounded, groups, pools, workers: 0, again: VecDeque::new() };
        for number in 0..bound.unwrap_or_default() {
            let worker = WorkerId(number as u32);
            if let Some(group) = new.groups.join(worker, |_| 0) {
                new.put(Time::default(), worker, group);
            }
        }
        new
    }

    fn put(&mut self, now: Time, worker: WorkerId, group: GroupId) {
        if let Some(pool) = self.pools.get_mut(&group) {
            add(now, &mut pool.workers, worker);
        }
    }

    /// The pool of a transaction's kind.
    fn pool(&mut self, work: WorkId) -> &mut Pool {
        let group = self.groups.of_kind(self.kinds[work.0]);
        group.and_then(|group| self.pools.get_mut(&group)).expect("every kind belongs to a group with a pool")
    }

    /// Starts something in a group that has both a free worker and a waiting transaction.
    fn start_in_groups(&mut self, now: Time) -> Option<(WorkerId, WorkId)> {
        for pool in self.pools.values_mut().filter(|pool| pool.workers.waiting() > 0) {
            if !self.is_bounded && pool.workers.free().is_none() {
                add(now, &mut pool.workers, WorkerId(self.workers));
                self.workers += 1;
            }
            let Some(worker) = pool.workers.free_after(pool.last) else { continue };
            let link = pool.workers.next(worker)?;
            let has_slot = pool.workers.take(now, worker);
            assert!(has_slot, "a worker that takes a link out of the queue has a free slot");
            pool.last = Some(worker);
            return Some((worker, work_of(link)));
        }
        None
    }

    /// Moves idle workers to where they are needed. Returns whether any moved.
    fn rebalance(&mut self, now: Time) -> bool {
        let mut has_moved = false;
        while let Some(moved) = self.next_move() {
            if let Some(pool) = self.pools.get_mut(&moved.from) {
                pool.workers.leave(moved.worker);
            }
            self.put(now, moved.worker, moved.to);
            has_moved = true;
        }
        has_moved
    }

    fn next_move(&mut self) -> Option<cluster::parts::groups::Move<WorkerId>> {
        let pools = &self.pools;
        let is_idle = |worker| pools.values().any(|pool| pool.workers.state(worker) == Some(State::Free));
        self.groups.rebalance(|group| pools.get(&group).map_or(0, Pool::demand), is_idle)
    }
}

impl Scheduler for Certified {
    fn arrive(&mut self, _now: Time, work: WorkId) {
        self.pool(work).workers.wait(link_of(work), None);
    }

    fn start(&mut self, now: Time) -> Option<(WorkerId, WorkId)> {
        if let Some(again) = self.again.pop_front() {
            return Some(again);
        }
        let started = self.start_in_groups(now);
        if started.is_none() && self.is_bounded && self.rebalance(now) {
            return self.start_in_groups(now);
        }
        started
    }

    fn ended(&mut self, now: Time, worker: WorkerId, work: WorkId, is_overtaken: bool) -> Verdict {
        if is_overtaken && self.retry == Retry::AtOnce {
            self.again.push_back((worker, work));
            return Verdict::Restarts;
        }
        let pool = self.pool(work);
        pool.workers.give(now, worker);
        if is_overtaken {
            pool.workers.wait(link_of(work), None);
            return Verdict::Restarts;
        }
        Verdict::Commits
    }

    fn busy(&self) -> usize {
        self.pools.values().map(|pool| pool.workers.busy()).sum()
    }

    fn waiting(&self) -> usize {
        self.pools.values().map(|pool| pool.workers.waiting()).sum()
    }
}

fn link_of(work: WorkId) -> Link {
    Link(work.0 as u64)
}

fn work_of(link: Link) -> WorkId {
    WorkId(link.0 as usize)
}
