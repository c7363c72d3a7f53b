//! Lock LSNs: numbers that tell which of two transactions of one home had its locks first.
//!
//! A backend may die after it has answered its last statement, before the death is noticed. Its locks fall. Another
//! transaction then goes on with the old rows, and may be appended first. If the dead one was appended after it, it would undo
//! the other. So every transaction draws a number, its lock LSN, in the statement that inserts its identity: then it holds all
//! locks that it will ever hold. (It is not a position in PostgreSQL's WAL.) Of two transactions that conflict, the one that
//! had its locks first always has the lower number.
//!
//! A transaction is *overtaken* if it overlaps one with a higher number that has finished before it. Then it may have lost its
//! locks in between, or the two only seem to conflict, since claims can be whole tables. It has to draw again: if its backend
//! can still do that, it held its locks all the time. Transactions that overlap it and finish meanwhile wait for it.
//!
//! The other one counts from when it has finished, not only from when it is in the log: it may wait for a third, and would be
//! appended and committed before this one, which waits for it in turn (found by `spec/`, "one home").
//!
//! Only the last [`REMEMBERED_MAX`] numbers are remembered. A transaction with a lower one counts as overtaken.

use std::collections::BTreeMap;

use crate::claims::Claims;

/// The number of finished transactions that are remembered.
pub const REMEMBERED_MAX: usize = 1_024;

/// The numbers and claims of the transactions of one home that finished last.
#[derive(Debug, Default)]
pub struct LockLsns {
    finished: BTreeMap<u64, Claims>,
    forgotten: u64,
}

impl LockLsns {
    /// Whether a transaction with a higher number that overlaps these claims has finished already.
    pub fn is_overtaken(&self, lsn: u64, claims: &Claims) -> bool {
        lsn < self.forgotten || self.finished.range(lsn + 1..).any(|(_, other)| claims.overlaps(other))
    }

    /// A transaction has finished. It is appended at once, or after those that it waits for.
    pub fn finish(&mut self, lsn: u64, claims: Claims) {
        self.finished.insert(lsn, claims);
        if self.finished.len() > REMEMBERED_MAX
            && let Some((lsn, _)) = self.finished.pop_first()
        {
            self.forgotten = lsn;
        }
    }

    /// Home is lost with all its open transactions. Its numbers may begin anew.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DatabaseId;

    fn row(key: u64) -> Claims {
        Claims { rows: vec![(DatabaseId::FIRST.table(1), key)], ..Claims::default() }
    }

    #[test]
    fn only_a_later_number_with_the_same_claim_overtakes() {
        let mut lock_lsns = LockLsns::default();
        lock_lsns.finish(5, row(1));
        assert!(lock_lsns.is_overtaken(4, &row(1)));
        assert!(!lock_lsns.is_overtaken(4, &row(2)));
        assert!(!lock_lsns.is_overtaken(6, &row(1)));
        assert!(lock_lsns.is_overtaken(4, &Claims::everything()));
    }

    #[test]
    fn a_number_older_than_memory_counts_as_overtaken() {
        let mut lock_lsns = LockLsns::default();
        (1..=REMEMBERED_MAX as u64 + 10).for_each(|lsn| lock_lsns.finish(lsn, row(lsn)));
        assert!(lock_lsns.is_overtaken(9, &row(0)));
        assert!(!lock_lsns.is_overtaken(10, &row(0)));
        lock_lsns.clear();
        assert!(!lock_lsns.is_overtaken(1, &row(1)));
    }
}
