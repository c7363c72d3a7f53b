//! Versions that are assigned but whose COMMIT home has not acknowledged, and who may depend on their loss.
//!
//! The trap (pitfalls 1.1): T1 is in the log, its backend dies before COMMIT, its row locks fall; T2, which waited,
//! runs on *with the old row* and would be appended after T1: T1's update, durable and acknowledged, would be lost.
//! While home works, T2 cannot get past T1's locks before T1's COMMIT. So the rule (DESIGN section 3, "Commit, step by
//! step"): a transaction that overlaps an assigned version is appended only when home has acknowledged that version's
//! COMMIT; and if it does not, everything open at that home is rolled back before anything more is appended from it.
//!
//! "Overlaps" is by claims: rows by the hash of their key where the table has nothing but its primary key (a collision
//! only delays), whole tables otherwise, and everything for what nobody can bound. Certification finer than this comes
//! with the protocol in full.

use std::collections::BTreeMap;

use crate::claims::Claims;
use crate::ids::{TableId, Version};

/// Claims of the versions in flight.
#[derive(Debug, Default)]
pub struct InFlight {
    rows: BTreeMap<(TableId, u64), Version>,
    whole: BTreeMap<TableId, Version>,
    touched: BTreeMap<TableId, Version>,
    everything: Version,
    last: Version,
}

impl InFlight {
    /// The last version in flight that overlaps these claims; `ZERO` if none.
    pub fn overlap(&self, claims: &Claims) -> Version {
        if claims.everything {
            return self.last;
        }
        let of = |map: &BTreeMap<TableId, Version>, t: &TableId| map.get(t).copied().unwrap_or_default();
        let tables = claims.tables.iter().map(|t| of(&self.touched, t));
        let rows = claims
            .rows
            .iter()
            .map(|row| self.rows.get(row).copied().unwrap_or_default().max(of(&self.whole, &row.0)));
        tables.chain(rows).fold(self.everything, Version::max)
    }

    /// A version is assigned.
    pub fn insert(&mut self, version: Version, claims: &Claims) {
        self.last = version;
        if claims.everything {
            self.everything = version;
        }
        for table in &claims.tables {
            self.whole.insert(*table, version);
            self.touched.insert(*table, version);
        }
        for row in &claims.rows {
            self.rows.insert(*row, version);
            self.touched.insert(row.0, version);
        }
    }

    /// A version is committed at its home, or its home's transaction is gone and settled.
    pub fn remove(&mut self, version: Version, claims: &Claims) {
        fn drop<K: Ord>(map: &mut BTreeMap<K, Version>, key: &K, version: Version) {
            if map.get(key) == Some(&version) {
                map.remove(key);
            }
        }
        for table in &claims.tables {
            drop(&mut self.whole, table, version);
            drop(&mut self.touched, table, version);
        }
        for row in &claims.rows {
            drop(&mut self.rows, row, version);
            drop(&mut self.touched, &row.0, version);
        }
        if self.everything == version {
            self.everything = Version::ZERO;
        }
        if self.last == version {
            self.last = Version::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(u32, u64)]) -> Claims {
        Claims { rows: rows.iter().map(|(t, k)| (TableId(*t), *k)).collect(), ..Claims::default() }
    }

    fn table(id: u32) -> Claims {
        Claims { tables: vec![TableId(id)], ..Claims::default() }
    }

    #[test]
    fn rows_overlap_by_key_and_tables_by_anything_in_them() {
        let mut flight = InFlight::default();
        flight.insert(Version(1), &rows(&[(1, 7)]));
        flight.insert(Version(2), &table(2));
        assert_eq!(flight.overlap(&rows(&[(1, 8)])), Version::ZERO);
        assert_eq!(flight.overlap(&rows(&[(1, 8), (1, 7)])), Version(1));
        assert_eq!(flight.overlap(&table(1)), Version(1));
        assert_eq!(flight.overlap(&rows(&[(2, 1)])), Version(2));
        assert_eq!(flight.overlap(&Claims::everything()), Version(2));
        flight.remove(Version(1), &rows(&[(1, 7)]));
        assert_eq!(flight.overlap(&table(1)), Version::ZERO);
    }

    #[test]
    fn unbounded_claims_overlap_everyone_later() {
        let mut flight = InFlight::default();
        flight.insert(Version(5), &Claims::everything());
        assert_eq!(flight.overlap(&rows(&[(9, 9)])), Version(5));
        flight.remove(Version(5), &Claims::everything());
        assert_eq!(flight.overlap(&rows(&[(9, 9)])), Version::ZERO);
    }
}
