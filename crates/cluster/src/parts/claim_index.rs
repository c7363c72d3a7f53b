//! An index of claims: which of many owners conflict with given claims.
//!
//! Owners are numbered in the order in which they came, and an owner's claims are entered and removed as a whole. Owners are
//! transactions that have finished at a home and are not settled ([`super::in_flight`]), or requests of open transactions
//! ([`super::order::lock_table`]).

use std::collections::BTreeSet;

use crate::claims::Claims;
use crate::ids::TableId;

type Row = (TableId, u64);

/// The claims of many owners.
#[derive(Debug)]
pub struct ClaimIndex<O> {
    rows: BTreeSet<(Row, O)>,
    shared: BTreeSet<(Row, O)>,
    groups: BTreeSet<(Row, O)>,
    whole: BTreeSet<(TableId, O)>,
    touched: BTreeSet<(TableId, O)>,
    everything: BTreeSet<O>,
    all: BTreeSet<O>,
}

impl<O> Default for ClaimIndex<O> {
    fn default() -> Self {
        Self {
            rows: BTreeSet::new(),
            shared: BTreeSet::new(),
            groups: BTreeSet::new(),
            whole: BTreeSet::new(),
            touched: BTreeSet::new(),
            everything: BTreeSet::new(),
            all: BTreeSet::new(),
        }
    }
}

/// Where owners lie between the bounds of their type.
pub trait Owner: Ord + Copy {
    /// The least of all.
    const FIRST: Self;
}

/// The last of one key before an owner.
fn last<K: Ord + Copy, O: Owner>(set: &BTreeSet<(K, O)>, key: K, before: O) -> Option<O> {
    set.range((key, O::FIRST)..(key, before)).next_back().map(|(_, owner)| *owner)
}

impl<O: Owner> ClaimIndex<O> {
    /// The last owner before this one whose claims conflict with these.
    pub fn last_before(&self, before: O, claims: &Claims) -> Option<O> {
        if claims.everything {
            return self.all.range(..before).next_back().copied();
        }
        let everything = self.everything.range(..before).next_back().copied();
        let tables = claims.tables.iter().map(|table| last(&self.touched, *table, before));
        let written = |row: &Row| last(&self.rows, *row, before).max(last(&self.whole, row.0, before));
        let relied = |row: &Row| last(&self.shared, *row, before);
        let grouped = |row: &Row| last(&self.groups, *row, before);
        let rows = claims.rows.iter().map(|row| written(row).max(relied(row)).max(grouped(row)));
        let shared = claims.shared.iter().map(|row| written(row).max(grouped(row)));
        let groups = claims.groups.iter().map(|row| written(row).max(relied(row)));
        tables.chain(rows).chain(shared).chain(groups).fold(everything, Option::max)
    }

    /// All owners before this one whose claims conflict with these.
    pub fn all_before(&self, before: O, claims: &Claims) -> BTreeSet<O> {
        if claims.everything {
            return self.all.range(..before).copied().collect();
        }
        let mut found: BTreeSet<O> = self.everything.range(..before).copied().collect();
        let of_table = |set: &BTreeSet<(TableId, O)>, table: TableId, found: &mut BTreeSet<O>| {
            found.extend(set.range((table, O::FIRST)..(table, before)).map(|(_, owner)| *owner));
        };
        let of_row = |set: &BTreeSet<(Row, O)>, row: Row, found: &mut BTreeSet<O>| {
            found.extend(set.range((row, O::FIRST)..(row, before)).map(|(_, owner)| *owner));
        };
        for table in &claims.tables {
            of_table(&self.touched, *table, &mut found);
        }
        for row in claims.rows.iter().chain(&claims.shared).chain(&claims.groups) {
            of_row(&self.rows, *row, &mut found);
            of_table(&self.whole, row.0, &mut found);
        }
        for row in claims.rows.iter().chain(&claims.groups) {
            of_row(&self.shared, *row, &mut found);
        }
        for row in claims.rows.iter().chain(&claims.shared) {
            of_row(&self.groups, *row, &mut found);
        }
        found
    }

    /// Owners before this one that conflict, without those behind which another of them stands already.
    ///
    /// Among the owners of one key, the last one that claims it alone conflicts with all before it. So this owner conflicts with
    /// nothing that neither is in the set nor conflicts with a later owner, and so on, up to one in the set. The set holds the
    /// last owner that conflicts, and is as large as owners that share a key are many, not as long as the line behind the key.
    pub fn nearest_before(&self, before: O, claims: &Claims) -> BTreeSet<O> {
        let everything = self.everything.range(..before).next_back().copied();
        let mut found: BTreeSet<O> = everything.into_iter().collect();
        let from = everything.unwrap_or(O::FIRST);
        if claims.everything {
            found.extend(self.all.range(from..before));
            return found;
        }
        for table in &claims.tables {
            let from = from.max(last(&self.whole, *table, before).unwrap_or(O::FIRST));
            found.extend(self.touched.range((*table, from)..(*table, before)).map(|(_, owner)| *owner));
        }
        let beside = [
            (&claims.rows, &[&self.shared, &self.groups][..]),
            (&claims.shared, &[&self.groups]),
            (&claims.groups, &[&self.shared]),
        ];
        for (rows, others) in beside {
            for row in rows {
                let alone = last(&self.rows, *row, before).max(last(&self.whole, row.0, before));
                found.extend(alone.filter(|owner| *owner >= from));
                let from = from.max(alone.unwrap_or(O::FIRST));
                for set in others {
                    found.extend(set.range((*row, from)..(*row, before)).map(|(_, owner)| *owner));
                }
            }
        }
        found
    }

    /// An owner comes with its claims.
    pub fn insert(&mut self, owner: O, claims: &Claims) {
        self.all.insert(owner);
        if claims.everything {
            self.everything.insert(owner);
        }
        for table in &claims.tables {
            self.whole.insert((*table, owner));
            self.touched.insert((*table, owner));
        }
        let Self { rows, shared, groups, .. } = self;
        for (list, set) in [(&claims.rows, rows), (&claims.shared, shared), (&claims.groups, groups)] {
            for row in list {
                set.insert((*row, owner));
                self.touched.insert((row.0, owner));
            }
        }
    }

    /// An owner goes, with the same claims.
    pub fn remove(&mut self, owner: O, claims: &Claims) {
        self.all.remove(&owner);
        self.everything.remove(&owner);
        for table in &claims.tables {
            self.whole.remove(&(*table, owner));
            self.touched.remove(&(*table, owner));
        }
        let Self { rows, shared, groups, .. } = self;
        for (list, set) in [(&claims.rows, rows), (&claims.shared, shared), (&claims.groups, groups)] {
            for row in list {
                set.remove(&(*row, owner));
                self.touched.remove(&(row.0, owner));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::DatabaseId;

    impl Owner for u32 {
        const FIRST: Self = 0;
    }

    fn claims() -> impl Strategy<Value = Claims> {
        let table = || (0_u32..2, 0_u32..2).prop_map(|(database, number)| DatabaseId(database).table(number));
        let row = (table(), 0_u64..3);
        let rows = proptest::collection::vec(row.clone(), 0..3);
        let shared = proptest::collection::vec(row.clone(), 0..2);
        let groups = proptest::collection::vec(row, 0..2);
        let tables = proptest::collection::vec(table(), 0..2);
        let made =
            |(rows, shared, groups, tables, everything)| Claims { rows, shared, groups, tables, everything };
        (rows, shared, groups, tables, proptest::bool::weighted(0.1)).prop_map(made)
    }

    proptest! {
        #[test]
        fn finds_what_a_comparison_of_each_finds(
            many in proptest::collection::vec(claims(), 1..12),
            gone in proptest::collection::vec(0_u32..12, 0..4),
            asked in claims(),
        ) {
            let mut index = ClaimIndex::default();
            for (owner, claims) in (1_u32..).zip(&many) {
                index.insert(owner, claims);
            }
            for owner in &gone {
                if let Some(claims) = owner.checked_sub(1).and_then(|at| many.get(at as usize)) {
                    index.remove(*owner, claims);
                }
            }
            let before = 1 + many.len() as u32;
            let expected: BTreeSet<u32> = (1_u32..)
                .zip(&many)
                .filter(|(owner, claims)| !gone.contains(owner) && claims.overlaps(&asked))
                .map(|(owner, _)| owner)
                .collect();
            prop_assert_eq!(index.last_before(before, &asked), expected.last().copied());
            prop_assert_eq!(index.all_before(before, &asked), expected.clone());
            let nearest = index.nearest_before(before, &asked);
            prop_assert!(nearest.is_subset(&expected), "{:?} of {:?}", nearest, expected);
            let mut behind = nearest.clone();
            while let Some(more) = behind.iter().find_map(|owner| {
                let of_owner = index.nearest_before(*owner, &many[*owner as usize - 1]);
                of_owner.into_iter().find(|owner| !behind.contains(owner))
            }) {
                behind.insert(more);
            }
            prop_assert!(behind.is_superset(&expected), "{:?} reach {:?} of {:?}", nearest, behind, expected);
            prop_assert_eq!(nearest.last(), expected.last());
        }
    }
}
