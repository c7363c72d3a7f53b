//! Groups of replicas by the memory that kinds of transactions need: the state behind [`HomePolicy::ByMemory`].
//!
//! ```text
//! memory 1 GB     stock_level: stock 800 MB       payment: customer 600 MB       order_status: customer, orders 100 MB
//! group 0         stock_level                     replica 2
//! group 1         payment, order_status           replicas 0, 1
//! ```
//!
//! [`crate::parts::groups`] packs kinds into groups and moves replicas between them. This file feeds it:
//!
//! - *Kinds* are the first [`KINDS_MAX`] that sessions tell. Further ones have no group.
//! - *Packing*: kinds are packed anew when one is new or touches other tables, and when a table has grown by more than half
//!   since the last packing. A packing takes the longer the more kinds there are, so the pause after it grows with their
//!   number ([`PACK_PAUSE_US`]). A replica goes on in the group that got most of what its former group was asked for.
//! - *Demand* of a kind is the number of its transactions and reads that run or wait, as a running mean. It is
//!   counted, and replicas move, once in [`LOOK_EVERY_US`], and when replicas come or go.
//! - *Replicas* are those that are up, take new work and are not suspected. The last one of a group stays there.
//!
//! Invariant: a group is a preference and no promise. A kind without a group, or whose group has no replica, goes by load
//! to any replica, and nothing that is promised to clients rests on the sizes.
//!
//! Non-goals: where the sizes come from, and which replica of a group is chosen ([`crate::parts::balancer`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{HomePolicy, Rows};
use crate::event::Kind;
use crate::ids::{KindId, ReplicaId, SessionId, TableId};
use crate::parts::groups::{GroupId, Groups, pack};
use crate::parts::replica::{Replica, State};
use crate::placement::{REPLICAS_MAX, ReplicaSet};
use crate::time::Time;

/// Most kinds that have groups.
pub(super) const KINDS_MAX: usize = 1_024;

/// A kind that touches more tables than this has no group.
pub(super) const TABLES_MAX: usize = 256;

/// Between two packings this passes for each kind, so that packing takes a small part of the time.
pub(super) const PACK_PAUSE_US: u64 = 1_000;

/// Between two looks at the demand this passes, unless replicas come or go.
pub(super) const LOOK_EVERY_US: u64 = 1_000_000;

/// Weight of the newest count in the mean demand of a kind: one part in this many.
const MEAN_WEIGHT: u64 = 8;

/// The demand of one transaction that always runs.
const DEMAND_OF_ONE: u64 = 1_000;

/// The groups, and what they are made from.
#[derive(Debug)]
pub(super) struct MemoryGroups {
    memory_bytes: u64,
    kinds: BTreeMap<KindId, Known>,
    sizes: BTreeMap<TableId, Size>,
    groups: Groups<ReplicaId>,
    present: ReplicaSet,
    /// What sessions run, or wait to run.
    at_work: BTreeMap<SessionId, KindId>,
    /// The groups are not those of the present kinds and sizes.
    is_outdated: bool,
    packed: Option<Time>,
    looked: Option<Time>,
}

#[derive(Debug)]
struct Known {
    tables: Vec<TableId>,
    /// The mean number of transactions, times [`DEMAND_OF_ONE`].
    demand: u64,
}

/// The bytes of a table.
#[derive(Debug, Default)]
struct Size {
    told: u64,
    /// As of the last packing.
    packed: u64,
}

impl MemoryGroups {
    /// The groups of a protocol, if it has any.
    pub(super) fn of(home: HomePolicy) -> Option<Self> {
        let HomePolicy::ByMemory { memory_bytes } = home else { return None };
        Some(Self {
            memory_bytes,
            kinds: BTreeMap::new(),
            sizes: BTreeMap::new(),
            groups: Groups::new(&[]),
            present: ReplicaSet::EMPTY,
            at_work: BTreeMap::new(),
            is_outdated: false,
            packed: None,
            looked: None,
        })
    }

    /// The session wants to run something of this kind.
    pub(super) fn begins(&mut self, session: SessionId, kind: &Kind) {
        if self.learn(kind) {
            self.at_work.insert(session, kind.id);
        } else {
            self.at_work.remove(&session);
        }
    }

    /// It has ended.
    pub(super) fn ends(&mut self, session: SessionId) {
        self.at_work.remove(&session);
    }

    /// How much runs or waits.
    #[cfg(test)]
    pub(super) fn at_work(&self) -> usize {
        self.at_work.len()
    }

    /// The replicas for what the session wants to run, of those that are present. It may be none.
    pub(super) fn replicas_for(&mut self, session: SessionId, present: ReplicaSet, now: Time) -> ReplicaSet {
        let pause_us = PACK_PAUSE_US * self.kinds.len() as u64;
        let is_due =
            |last: Option<Time>, pause_us: u64| last.is_none_or(|last| now.since_us(last) >= pause_us);
        let has_changed = self.attend(present);
        if self.is_outdated && is_due(self.packed, pause_us) {
            self.pack_anew();
            self.packed = Some(now);
            self.look(now);
        } else if has_changed || is_due(self.looked, LOOK_EVERY_US) {
            self.look(now);
        }
        let group = self.at_work.get(&session).and_then(|kind| self.groups.of_kind(*kind));
        group.map_or(ReplicaSet::EMPTY, |group| {
            self.groups.workers(group).fold(ReplicaSet::EMPTY, ReplicaSet::with)
        })
    }

    /// Returns whether the kind is, or will be, in a group.
    fn learn(&mut self, kind: &Kind) -> bool {
        if kind.tables.len() > TABLES_MAX {
            return false;
        }
        let tables = || kind.tables.iter().map(|(table, _)| *table);
        let is_full = self.kinds.len() >= KINDS_MAX;
        match self.kinds.get_mut(&kind.id) {
            Some(known) if known.tables.iter().copied().eq(tables()) => {}
            Some(known) => {
                known.tables = tables().collect();
                self.is_outdated = true;
            }
            None if is_full => return false,
            None => {
                self.kinds.insert(kind.id, Known { tables: tables().collect(), demand: 0 });
                self.is_outdated = true;
            }
        }
        for (table, bytes) in &kind.tables {
            let size = self.sizes.entry(*table).or_default();
            size.told = *bytes;
            self.is_outdated |= size.told > size.packed.saturating_add(size.packed / 2);
        }
        true
    }

    /// Takes in replicas that have come, and lets those go that are not there any more. Returns whether there were any.
    fn attend(&mut self, present: ReplicaSet) -> bool {
        let before = std::mem::replace(&mut self.present, present);
        for replica in members(before).filter(|replica| !present.contains(*replica)) {
            self.groups.leave(replica);
        }
        for replica in members(present).filter(|replica| !before.contains(*replica)) {
            let demand = self.demand();
            self.groups.join(replica, |group| demand.get(&group).copied().unwrap_or_default());
        }
        before != present
    }

    fn pack_anew(&mut self) {
        self.is_outdated = false;
        let touched: BTreeSet<TableId> =
            self.kinds.values().flat_map(|known| &known.tables).copied().collect();
        self.sizes.retain(|table, _| touched.contains(table));
        for size in self.sizes.values_mut() {
            size.packed = size.told;
        }
        let sized = |table: &TableId| (*table, self.sizes.get(table).map_or(0, |size| size.told));
        let kind = |(id, known): (&KindId, &Known)| Kind {
            id: *id,
            tables: known.tables.iter().map(sized).collect(),
        };
        let kinds: Vec<Kind> = self.kinds.iter().map(kind).collect();
        let packed = pack(&kinds, self.memory_bytes);
        let former = std::mem::replace(&mut self.groups, Groups::new(&packed));
        for replica in members(self.present) {
            let heir = former.of_worker(replica).and_then(|group| self.heir(&former, group));
            if heir.is_none_or(|group| !self.groups.put(replica, group)) {
                let demand = self.demand();
                self.groups.join(replica, |group| demand.get(&group).copied().unwrap_or_default());
            }
        }
    }

    /// The group that got most of what a former one was asked for.
    fn heir(&self, former: &Groups<ReplicaId>, group: GroupId) -> Option<GroupId> {
        let mut shares: BTreeMap<GroupId, u64> = BTreeMap::new();
        for (kind, known) in self.kinds.iter().filter(|(kind, _)| former.of_kind(**kind) == Some(group)) {
            if let Some(heir) = self.groups.of_kind(*kind) {
                *shares.entry(heir).or_default() += 1 + known.demand;
            }
        }
        shares.into_iter().max_by_key(|(heir, share)| (*share, Reverse(*heir))).map(|(heir, _)| heir)
    }

    /// Counts the demand, and moves replicas to where it is.
    fn look(&mut self, now: Time) {
        self.looked = Some(now);
        let mut counts: BTreeMap<KindId, u64> = BTreeMap::new();
        for kind in self.at_work.values() {
            *counts.entry(*kind).or_default() += DEMAND_OF_ONE;
        }
        for (kind, known) in &mut self.kinds {
            let count = counts.get(kind).copied().unwrap_or_default();
            known.demand = (known.demand * (MEAN_WEIGHT - 1) + count) / MEAN_WEIGHT;
        }
        let demand = self.demand();
        while self
            .groups
            .rebalance(|group| demand.get(&group).copied().unwrap_or_default(), |_| true)
            .is_some()
        {}
    }

    /// The demand of each group that has some.
    fn demand(&self) -> BTreeMap<GroupId, u64> {
        let mut demand: BTreeMap<GroupId, u64> = BTreeMap::new();
        for (kind, known) in self.kinds.iter().filter(|(_, known)| known.demand > 0) {
            if let Some(group) = self.groups.of_kind(*kind) {
                *demand.entry(group).or_default() += known.demand;
            }
        }
        demand
    }
}

fn members(set: ReplicaSet) -> impl Iterator<Item = ReplicaId> {
    (0..REPLICAS_MAX).map(ReplicaId).filter(move |replica| set.contains(*replica))
}

impl Rows {
    /// The session wants to run something. Its kind, if it is told, counts as demand until [`Rows::kind_ends`]. A read
    /// beside an open update transaction does not count.
    pub(super) fn kind_begins(&mut self, session: SessionId, kind: Option<&Kind>) {
        let Some(groups) = self.memory_groups.as_mut().filter(|_| !self.transactions.contains_key(&session))
        else {
            return;
        };
        match kind {
            Some(kind) => groups.begins(session, kind),
            None => groups.ends(session),
        }
    }

    /// A statement of the session has ended, or its transaction. If none is open, it demands nothing any more.
    pub(super) fn kind_ends(&mut self, session: SessionId) {
        if let Some(groups) =
            self.memory_groups.as_mut().filter(|_| !self.transactions.contains_key(&session))
        {
            groups.ends(session);
        }
    }

    /// Those of these replicas that are in the group of what the session wants to run; all of them if none is.
    pub(super) fn grouped(&mut self, session: SessionId, eligible: ReplicaSet, now: Time) -> ReplicaSet {
        let Some(groups) = &mut self.memory_groups else { return eligible };
        let is_present =
            |replica: &&Replica| replica.state == State::Up && !replica.is_drained && !replica.is_suspect;
        let present = self.replicas.iter().filter(is_present);
        let present = present.fold(ReplicaSet::EMPTY, |set, replica| set.with(replica.id));
        let group = groups.replicas_for(session, present, now).and(eligible);
        if group == ReplicaSet::EMPTY { eligible } else { group }
    }
}

#[cfg(test)]
mod tests;
