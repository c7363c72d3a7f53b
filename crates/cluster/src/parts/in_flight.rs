//! Transactions of one home that have finished but are not settled, and those that must wait for them.
//!
//! The trap (pitfalls 1.1): T1 is in the log. Its backend dies before COMMIT, and its row locks fall. T2, which waited for them,
//! goes on *with the old row* and is appended after T1. T1's update, durable and acknowledged, is lost. While home works, T2
//! cannot get past T1's locks before T1's COMMIT. So the rule (DESIGN section 3, "Commit, step by step"): a transaction that
//! overlaps one that finished before it is appended only when home has acknowledged the COMMIT of that one. If home does not,
//! everything open there is rolled back before anything more is appended from it.
//!
//! "Finished" counts, not "appended": T1 may die while it waits to be appended, and T2 would get ahead of it.
//!
//! PostgreSQL's own locks decide the order of transactions of one home. Between homes the certifier decides
//! ([`super::version_index`]).

use super::claim_index::{ClaimIndex, Owner};
use crate::claims::Claims;

/// The place of a transaction in the order in which transactions finished.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place(pub u64);

impl Owner for Place {
    const FIRST: Self = Self(0);
}

/// Claims of the transactions that finished at one home and are not settled.
#[derive(Debug, Default)]
pub struct InFlight {
    claims: ClaimIndex<Place>,
}

impl InFlight {
    /// The last transaction before this place that overlaps these claims.
    pub fn overlap(&self, before: Place, claims: &Claims) -> Option<Place> {
        self.claims.last_before(before, claims)
    }

    /// A transaction finishes.
    pub fn insert(&mut self, place: Place, claims: &Claims) {
        self.claims.insert(place, claims);
    }

    /// It is committed at its home, or over there.
    pub fn remove(&mut self, place: Place, claims: &Claims) {
        self.claims.remove(place, claims);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DatabaseId;

    const END: Place = Place(u64::MAX);

    fn rows(rows: &[(u32, u64)]) -> Claims {
        Claims {
            rows: rows.iter().map(|(t, k)| (DatabaseId::FIRST.table(*t), *k)).collect(),
            ..Claims::default()
        }
    }

    fn table(id: u32) -> Claims {
        Claims { tables: vec![DatabaseId::FIRST.table(id)], ..Claims::default() }
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
            "a transaction does not wait for itself"
        );
        flight.remove(Place(2), &rows(&[(1, 7), (1, 8)]));
        assert_eq!(flight.overlap(END, &rows(&[(1, 7)])), Some(Place(1)));
    }
}
