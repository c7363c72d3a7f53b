//! The partition map: parts of rows, by the value of one column.
//!
//! Tables whose rows belong together are split by the same value: with `warehouse` split by `w_id` and `district` by `d_w_id`, a
//! warehouse and its districts are in one part, so a transaction of one warehouse runs where that part is held. A part has the
//! same number in all tables.
//!
//! The part of a value is a hash of its text, [`part_of`]. Servers compute the same in SQL (`onecopy.part`), and it is stored with
//! rows in the log, so it never changes. [`spread`] deals the parts to replicas.
//!
//! Example: of 16 parts with 2 copies on four replicas, each replica holds 8.
//!
//! Not here: which table is split by which column, which the driver knows; and rows themselves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ReplicaSet;
use crate::ids::{PartId, ReplicaId};

/// The most parts, so that a set of them is one word.
pub const PARTS_MAX: u8 = 64;

/// A set of parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct PartSet(u64);

impl PartSet {
    /// No part.
    pub const EMPTY: Self = Self(0);

    /// The set of these bits, of which bit 0 is part 0.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The set as bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// This set with one more.
    #[must_use]
    pub fn with(self, part: PartId) -> Self {
        assert!(part.0 < PARTS_MAX, "a set has room for PARTS_MAX parts");
        Self(self.0 | 1 << part.0)
    }

    /// Those in one of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the part is in the set.
    pub fn contains(self, part: PartId) -> bool {
        part.0 < PARTS_MAX && self.0 & 1 << part.0 != 0
    }

    /// Whether nothing is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its parts, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = PartId> {
        (0..PARTS_MAX).map(PartId).filter(move |part| self.contains(*part))
    }
}

impl FromIterator<PartId> for PartSet {
    fn from_iter<I: IntoIterator<Item = PartId>>(parts: I) -> Self {
        parts.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// The part of a value, given as the text that a server shows for it; NULL is in part 0.
///
/// # Panics
/// If there are no parts.
pub fn part_of(value: Option<&str>, count: u8) -> PartId {
    assert!(count > 0 && count <= PARTS_MAX, "the number of parts is checked where it is set");
    let Some(value) = value else { return PartId(0) };
    let hash = Sha256::digest(value.as_bytes());
    let number = u16::from_be_bytes([hash[0], hash[1]]) % u16::from(count);
    PartId(u8::try_from(number).expect("below the number of parts"))
}

/// Deals `count` parts to replicas, each to `copies` of them or to all if there are fewer. By rendezvous hashing: each part goes to
/// the replicas of the highest hashes of part and replica, as long as these have room, so no replica gets more than its share. For a
/// replica more few parts move between the others.
pub fn spread(count: u8, copies: u16, replicas: ReplicaSet) -> Vec<ReplicaSet> {
    let members = u16::try_from(replicas.iter().count()).unwrap_or(u16::MAX).max(1);
    let room = (u16::from(count) * copies.min(members)).div_ceil(members);
    let mut held: BTreeMap<ReplicaId, u16> = BTreeMap::new();
    let mut holders = |part: u8| {
        let weight = |replica: &ReplicaId| {
            let hash = Sha256::digest([&[part][..], &replica.0.to_be_bytes()].concat());
            u64::from_be_bytes([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]])
        };
        let mut order: Vec<ReplicaId> = replicas.iter().collect();
        // The last parts may find too few replicas with room; then a full one takes one more.
        let is_full = |replica: &ReplicaId| held.get(replica).copied().unwrap_or_default() >= room;
        order.sort_by_key(|replica| (is_full(replica), std::cmp::Reverse(weight(replica)), *replica));
        order.truncate(usize::from(copies));
        for replica in &order {
            *held.entry(*replica).or_default() += 1;
        }
        order.into_iter().collect()
    };
    (0..count).map(&mut holders).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are in logs and files of users.
    #[test]
    fn the_part_of_a_value_never_changes() {
        let parts = ["1", "2", "3", "-7", "", "a", "grün", "00000000-0000-0000-0000-000000000001"];
        let found: Vec<u8> = parts.iter().map(|value| part_of(Some(value), 64).0).collect();
        assert_eq!(found, [6, 51, 7, 48, 48, 23, 38, 1]);
        assert_eq!(part_of(None, 64), PartId(0));
        assert!(parts.iter().all(|value| part_of(Some(value), 1) == PartId(0)));
    }

    #[test]
    fn each_part_has_its_copies_and_few_move_for_a_new_replica() {
        let before = spread(64, 2, ReplicaSet::first(4));
        assert!(before.iter().all(|holders| holders.iter().count() == 2));
        for replica in ReplicaSet::first(4).iter() {
            let held = before.iter().filter(|holders| holders.contains(replica)).count();
            assert_eq!(held, 32, "{replica}");
        }
        let after = spread(64, 2, ReplicaSet::first(5));
        let moves = |(old, new): (&ReplicaSet, &ReplicaSet)| {
            let new = new.without(ReplicaId(4));
            new.iter().filter(|replica| !old.contains(*replica)).count()
        };
        let moved: usize = before.iter().zip(&after).map(moves).sum();
        assert!(moved <= 16, "{moved} of 128 copies move between the old ones");
        assert_eq!(spread(2, 9, ReplicaSet::first(3)), vec![ReplicaSet::first(3); 2]);
        assert_eq!(spread(0, 2, ReplicaSet::first(3)), []);
    }

    #[test]
    fn sets_have_what_was_put_in() {
        let set: PartSet = [0, 5, 63].map(PartId).into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 5, 63].map(PartId));
        assert!(set.contains(PartId(5)) && !set.contains(PartId(6)) && !set.contains(PartId(200)));
        assert_eq!(PartSet::from_bits(set.bits()), set);
    }
}
