//! Sets of replicas, as bits.

use serde::{Deserialize, Serialize};

use crate::ids::ReplicaId;

/// The most replicas of one cluster.
pub const REPLICAS_MAX: u16 = 64;

/// A set of replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReplicaSet(u64);

impl ReplicaSet {
    /// No replica.
    pub const EMPTY: Self = Self(0);

    /// The set with these bits, the lowest for the first replica.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

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

    /// Those in one of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Its replicas, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = ReplicaId> {
        (0..REPLICAS_MAX).map(ReplicaId).filter(move |replica| self.contains(*replica))
    }
}

impl FromIterator<ReplicaId> for ReplicaSet {
    fn from_iter<I: IntoIterator<Item = ReplicaId>>(replicas: I) -> Self {
        replicas.into_iter().fold(Self::EMPTY, Self::with)
    }
}
