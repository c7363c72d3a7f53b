//! Groups of replicas by the memory that transaction types need: the load balancing of Tashkent+.
//!
//! Elnikety, Dropsho, Zwaenepoel, "Tashkent+: memory-aware load balancing and update filtering in replicated databases"
//! (EuroSys 2007), as Gargamel describes it in section IV-B: "ensuring that the working set of the transactions sent to a
//! worker fits into the worker's main memory. Workers are assembled in groups executing the same set of transaction types. To
//! balance the load, Tashkent+ monitors each worker's CPU and disk usage, and rearranges groups, by moving workers from the
//! least loaded group to the most loaded group."
//!
//! *Packing* (MALB with size and contents): the working set of a type is the tables that its plan names, with their sizes. Types
//! go into groups by decreasing size, each into the group that it makes grow least, as long as the union fits into the memory:
//! a table that two types share counts once. For example order-status (customer, orders) beside payment (customer, history)
//! costs only the orders. A type that is larger than the memory has a group of its own.
//!
//! *Balance*: the load of a group is its demand divided by its workers; the demand is what runs and waits there. A worker moves
//! from the least to the most loaded group if it leaves both below the load of the most loaded one before, at any gain: "we
//! assume that re-allocation has no cost".
//!
//! Invariants: every type belongs to one group, every worker to one, and a group that has workers keeps at least one when they move.
//!
//! Not here: how working sets are estimated, and what runs where inside a group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use crate::event::Kind;
use crate::ids::{KindId, TableId};

/// A group of transaction types and of the workers that run them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u32);

/// The size of a type's working set.
fn bytes(kind: &Kind) -> u64 {
    kind.tables.iter().map(|(_, bytes)| *bytes).sum()
}

/// Packs types into groups, the working set of each at most `memory_bytes` unless a single type needs more. Returns the types
/// of each group.
pub fn pack(kinds: &[Kind], memory_bytes: u64) -> Vec<BTreeSet<KindId>> {
    struct Bin {
        kinds: BTreeSet<KindId>,
        tables: BTreeMap<TableId, u64>,
        bytes: u64,
    }
    let mut order: Vec<&Kind> = kinds.iter().collect();
    order.sort_by_key(|kind| (std::cmp::Reverse(bytes(kind)), kind.id));
    let mut bins: Vec<Bin> = Vec::new();
    for kind in order {
        let growth = |bin: &Bin| -> u64 {
            let new = kind.tables.iter().filter(|(table, _)| !bin.tables.contains_key(table));
            new.map(|(_, bytes)| *bytes).sum()
        };
        let fitting = bins.iter_mut().filter(|bin| bin.bytes + growth(bin) <= memory_bytes);
        match fitting.min_by_key(|bin| (growth(bin), std::cmp::Reverse(bin.bytes))) {
            Some(bin) => {
                bin.bytes += growth(bin);
                bin.tables.extend(kind.tables.iter().copied());
                bin.kinds.insert(kind.id);
            }
            None => bins.push(Bin {
                kinds: BTreeSet::from([kind.id]),
                tables: kind.tables.iter().copied().collect(),
                bytes: bytes(kind),
            }),
        }
    }
    bins.into_iter().map(|bin| bin.kinds).collect()
}

/// A worker that changes groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move<W> {
    /// The worker.
    pub worker: W,
    /// Its former group.
    pub from: GroupId,
    /// Its new group.
    pub to: GroupId,
}

/// Which types and which workers belong to which group.
#[derive(Debug)]
pub struct Groups<W> {
    kinds: BTreeMap<KindId, GroupId>,
    members: BTreeMap<GroupId, BTreeSet<W>>,
    of: BTreeMap<W, GroupId>,
}

impl<W: Copy + Ord + Debug> Groups<W> {
    /// Groups of these types, numbered from 0, without workers.
    pub fn new(packed: &[BTreeSet<KindId>]) -> Self {
        let numbered = || (0_u32..).map(GroupId).zip(packed);
        Self {
            kinds: numbered()
                .flat_map(|(group, kinds)| kinds.iter().map(move |kind| (*kind, group)))
                .collect(),
            members: numbered().map(|(group, _)| (group, BTreeSet::new())).collect(),
            of: BTreeMap::new(),
        }
    }

    /// The group of a type.
    pub fn of_kind(&self, kind: KindId) -> Option<GroupId> {
        self.kinds.get(&kind).copied()
    }

    /// The group of a worker.
    pub fn of_worker(&self, worker: W) -> Option<GroupId> {
        self.of.get(&worker).copied()
    }

    /// The groups, in order.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.members.keys().copied()
    }

    /// The workers of a group.
    pub fn workers(&self, group: GroupId) -> impl DoubleEndedIterator<Item = W> {
        self.members.get(&group).into_iter().flatten().copied()
    }

    /// A worker comes: to a group that has none, else to the most loaded one. Returns the group.
    pub fn join(&mut self, worker: W, demand: impl Fn(GroupId) -> u64) -> Option<GroupId> {
        self.leave(worker);
        let load = |group: GroupId| self.load(group, &demand);
        let needs = |a: &GroupId, b: &GroupId| {
            let is_empty = |group: GroupId| load(group).workers == 0;
            is_empty(*a).cmp(&is_empty(*b)).then(load(*a).compare(&load(*b))).then(b.cmp(a))
        };
        let group = self.groups().max_by(needs)?;
        self.put(worker, group);
        Some(group)
    }

    /// A worker comes to this group. Returns whether the group is there.
    pub fn put(&mut self, worker: W, group: GroupId) -> bool {
        self.leave(worker);
        let Some(members) = self.members.get_mut(&group) else { return false };
        members.insert(worker);
        self.of.insert(worker, group);
        true
    }

    /// A worker is lost or parked.
    pub fn leave(&mut self, worker: W) {
        if let Some(group) = self.of.remove(&worker)
            && let Some(members) = self.members.get_mut(&group)
        {
            members.remove(&worker);
        }
    }

    /// Moves one worker from the least to the most loaded group, if that balances them better. `demand` is what runs and waits
    /// in a group; `may` tells which workers may move. Call it until it returns nothing.
    pub fn rebalance(&mut self, demand: impl Fn(GroupId) -> u64, may: impl Fn(W) -> bool) -> Option<Move<W>> {
        let load = |group: GroupId| self.load(group, &demand);
        let to = self.groups().max_by(|a, b| load(*a).compare(&load(*b)).then(b.cmp(a)))?;
        let fullest = load(to);
        let without_one = |load: Load| Load { workers: load.workers - 1, ..load };
        let givers = self.groups().filter(|group| *group != to).filter_map(|group| {
            let worker = self.workers(group).rev().find(|worker| may(*worker))?;
            (load(group).workers > 1).then_some((group, worker, without_one(load(group))))
        });
        let (from, worker, after) = givers.min_by(|(_, _, a), (_, _, b)| a.compare(b))?;
        if after.compare(&fullest).is_ge() {
            return None;
        }
        self.put(worker, to);
        Some(Move { worker, from, to })
    }

    fn load(&self, group: GroupId, demand: impl Fn(GroupId) -> u64) -> Load {
        let workers = self.members.get(&group).map_or(0, BTreeSet::len) as u64;
        Load { demand: demand(group), workers }
    }
}

/// Demand by worker, compared without fractions.
#[derive(Clone, Copy, Debug)]
struct Load {
    demand: u64,
    workers: u64,
}

impl Load {
    /// A group without workers is loaded without limit if something is demanded there, and not at all otherwise.
    fn compare(&self, other: &Self) -> std::cmp::Ordering {
        let wide = |a: u64, b: u64| u128::from(a) * u128::from(b);
        match (self.workers, other.workers) {
            (0, 0) => self.demand.cmp(&other.demand),
            (0, _) if self.demand > 0 => std::cmp::Ordering::Greater,
            (_, 0) if other.demand > 0 => std::cmp::Ordering::Less,
            (0, _) => 0.cmp(&other.demand),
            (_, 0) => self.demand.cmp(&0),
            (mine, others) => wide(self.demand, others).cmp(&wide(other.demand, mine)),
        }
    }
}

#[cfg(test)]
mod tests;
