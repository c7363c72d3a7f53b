//! Which replicas hold which fragments.
//!
//! Everything that asks "where may this run", "must this be applied here" or "who has the catalogues" asks here, also
//! while the answer is still "everywhere": partial replication (preventive replication section 3, C-JDBC's RAIDb-0
//! and RAIDb-2) changes this map and nothing else. A replica counts as having applied what it does not hold.

use std::collections::BTreeMap;

use crate::ids::{FragmentId, ReplicaId, TableId};

/// The most replicas of one cluster.
pub const REPLICAS_MAX: u16 = 64;

/// A set of replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaSet(u64);

impl ReplicaSet {
    /// No replica.
    pub const EMPTY: Self = Self(0);

    /// The replicas numbered below `count`.
    pub fn first(count: u16) -> Self {
        assert!(count <= REPLICAS_MAX, "a set has room for REPLICAS_MAX replicas");
        Self(if count == REPLICAS_MAX { u64::MAX } else { (1 << count) - 1 })
    }

    /// This set with one more.
    #[must_use]
    pub fn with(self, replica: ReplicaId) -> Self {
        assert!(replica.0 < REPLICAS_MAX, "a set has room for REPLICAS_MAX replicas");
        Self(self.0 | 1 << replica.0)
    }

    /// This set with one less.
    #[must_use]
    pub fn without(self, replica: ReplicaId) -> Self {
        if replica.0 < REPLICAS_MAX { Self(self.0 & !(1 << replica.0)) } else { self }
    }

    /// Whether the replica is in the set.
    pub fn contains(self, replica: ReplicaId) -> bool {
        replica.0 < REPLICAS_MAX && self.0 & 1 << replica.0 != 0
    }

    /// Those in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The map from fragments to their holders.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Every replica of the cluster: holds what is not listed.
    everyone: ReplicaSet,
    listed: BTreeMap<FragmentId, ReplicaSet>,
}

impl Placement {
    /// All replicas hold everything.
    pub fn full(replicas: u16) -> Self {
        Self { everyone: ReplicaSet::first(replicas), listed: BTreeMap::new() }
    }

    /// Restricts a fragment to these replicas.
    pub fn restrict(&mut self, fragment: FragmentId, holders: ReplicaSet) {
        assert!(holders != ReplicaSet::EMPTY, "every fragment has a holder");
        self.listed.insert(fragment, holders);
    }

    /// A replica that holds whatever is not listed.
    pub fn join(&mut self, replica: ReplicaId) {
        self.everyone = self.everyone.with(replica);
    }

    /// A replica holds nothing any more.
    pub fn leave(&mut self, replica: ReplicaId) {
        self.everyone = self.everyone.without(replica);
        for holders in self.listed.values_mut() {
            *holders = holders.without(replica);
            assert!(*holders != ReplicaSet::EMPTY, "every fragment has a holder");
        }
    }

    /// The holders of one fragment.
    pub fn holders(&self, fragment: FragmentId) -> ReplicaSet {
        self.listed.get(&fragment).copied().unwrap_or(self.everyone)
    }

    /// The replicas that hold all of these tables.
    pub fn holders_of_all(&self, tables: &[TableId]) -> ReplicaSet {
        if self.listed.is_empty() {
            return self.everyone;
        }
        tables.iter().fold(self.everyone, |set, t| set.and(self.holders(FragmentId::whole(*t))))
    }

    /// The replicas that hold everything: where a statement may run that nobody can bound.
    pub fn holders_of_everything(&self) -> ReplicaSet {
        self.listed.values().fold(self.everyone, |set, holders| set.and(*holders))
    }

    /// Whether the replica holds any of these tables.
    pub fn holds_any(&self, replica: ReplicaId, tables: &[TableId]) -> bool {
        self.listed.is_empty() || tables.iter().any(|t| self.holders(FragmentId::whole(*t)).contains(replica))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DatabaseId;

    #[test]
    fn unlisted_fragments_are_everywhere() {
        let mut placement = Placement::full(3);
        placement
            .restrict(FragmentId::whole(DatabaseId::FIRST.table(1)), ReplicaSet::EMPTY.with(ReplicaId(2)));
        assert!(placement.holders_of_all(&[DatabaseId::FIRST.table(9)]).contains(ReplicaId(0)));
        assert!(
            !placement
                .holders_of_all(&[DatabaseId::FIRST.table(9), DatabaseId::FIRST.table(1)])
                .contains(ReplicaId(0))
        );
        assert!(placement.holds_any(ReplicaId(0), &[DatabaseId::FIRST.table(9), DatabaseId::FIRST.table(1)]));
        assert!(!placement.holds_any(ReplicaId(0), &[DatabaseId::FIRST.table(1)]));
        assert!(!placement.holders_of_everything().contains(ReplicaId(1)));
        assert!(!Placement::full(3).holders_of_everything().contains(ReplicaId(3)));
    }
}
