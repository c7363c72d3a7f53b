//! Transactions that have finished but are not settled, and who may depend on their loss.
//!
//! The trap (pitfalls 1.1): T1 is in the log, its backend dies before COMMIT, its row locks fall; T2, which waited,
//! runs on *with the old row* and would be appended after T1: T1's update, durable and acknowledged, would be lost.
//! While home works, T2 cannot get past T1's locks before T1's COMMIT. So the rule (DESIGN section 3, "Commit, step by
//! step"): a transaction that overlaps one that finished before it is appended only when home has acknowledged the
//! COMMIT of that one; and if it does not, everything open at that home is rolled back before anything more is appended
//! from it.
//!
//! "Finished" counts, not "appended": T1 may die while it waits to be appended, and T2 would get ahead of it.
//!
//! "Overlaps" is by claims: rows by the hash of their key where the table has nothing but its primary key (a collision
//! only delays), whole tables otherwise, and everything for what nobody can bound. Certification finer than this comes
//! with the protocol in full.

use std::collections::BTreeSet;

use crate::claims::Claims;
use crate::ids::TableId;

/// The place of a transaction among those that finished: counted, in the order of their finishing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place(pub u64);

/// Claims of the transactions that finished and are not settled.
#[derive(Debug, Default)]
pub struct InFlight {
    rows: BTreeSet<((TableId, u64), Place)>,
    whole: BTreeSet<(TableId, Place)>,
    touched: BTreeSet<(TableId, Place)>,
    everything: BTreeSet<Place>,
    all: BTreeSet<Place>,
}

/// The last of one key before a place.
fn last<K: Ord + Copy>(set: &BTreeSet<(K, Place)>, key: K, before: Place) -> Option<Place> {
    set.range((key, Place(0))..(key, before)).next_back().map(|(_, place)| *place)
}

impl InFlight {
    /// The last one before this place that overlaps these claims.
    pub fn overlap(&self, before: Place, claims: &Claims) -> Option<Place> {
        if claims.everything {
            return self.all.range(..before).next_back().copied();
        }
        let everything = self.everything.range(..before).next_back().copied();
        let tables = claims.tables.iter().map(|table| last(&self.touched, *table, before));
        let rows = claims
            .rows
            .iter()
            .map(|row| last(&self.rows, *row, before).max(last(&self.whole, row.0, before)));
        tables.chain(rows).fold(everything, Option::max)
    }

    /// A transaction finishes.
    pub fn insert(&mut self, place: Place, claims: &Claims) {
        self.all.insert(place);
        if claims.everything {
            self.everything.insert(place);
        }
        for table in &claims.tables {
            self.whole.insert((*table, place));
            self.touched.insert((*table, place));
        }
        for row in &claims.rows {
            self.rows.insert((*row, place));
            self.touched.insert((row.0, place));
        }
    }

    /// It is committed at its home, or gone from there.
    pub fn remove(&mut self, place: Place, claims: &Claims) {
        self.all.remove(&place);
        self.everything.remove(&place);
        for table in &claims.tables {
            self.whole.remove(&(*table, place));
            self.touched.remove(&(*table, place));
        }
        for row in &claims.rows {
            self.rows.remove(&(*row, place));
            self.touched.remove(&(row.0, place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Place = Place(u64::MAX);

    fn rows(rows: &[(u32, u64)]) -> Claims {
        Claims { rows: rows.iter().map(|(t, k)| (TableId(*t), *k)).collect(), ..Claims::default() }
    }

    fn table(id: u32) -> Claims {
        Claims { tables: vec![TableId(id)], ..Claims::default() }
    }

    #[test]
    fn rows_overlap_by_key_and_tables_by_anything_in_them() {
        let mut flight = InFlight::default();
        flight.insert(Place(1), &rows(&[(1, 7)]));
        flight.insert(Place(2), &table(2));
        assert_eq!(flight.overlap(END, &rows(&[(1, 8)])), None);
        assert_eq!(flight.overlap(END, &rows(&[(1, 8), (1, 7)])), Some(Place(1)));
        assert_eq!(flight.overlap(END, &table(1)), Some(Place(1)));
        assert_eq!(flight.overlap(END, &rows(&[(2, 1)])), Some(Place(2)));
        assert_eq!(flight.overlap(END, &Claims::everything()), Some(Place(2)));
        flight.remove(Place(1), &rows(&[(1, 7)]));
        assert_eq!(flight.overlap(END, &table(1)), None);
    }

    #[test]
    fn unbounded_claims_overlap_everyone_later() {
        let mut flight = InFlight::default();
        flight.insert(Place(5), &Claims::everything());
        assert_eq!(flight.overlap(END, &rows(&[(9, 9)])), Some(Place(5)));
        flight.remove(Place(5), &Claims::everything());
        assert_eq!(flight.overlap(END, &rows(&[(9, 9)])), None);
    }

    #[test]
    fn one_that_goes_uncovers_the_one_before_it() {
        let mut flight = InFlight::default();
        flight.insert(Place(1), &rows(&[(1, 7)]));
        flight.insert(Place(2), &rows(&[(1, 7), (1, 8)]));
        assert_eq!(
            flight.overlap(Place(2), &rows(&[(1, 7), (1, 8)])),
            Some(Place(1)),
            "nobody waits for itself"
        );
        flight.remove(Place(2), &rows(&[(1, 7), (1, 8)]));
        assert_eq!(flight.overlap(END, &rows(&[(1, 7)])), Some(Place(1)));
    }
}
