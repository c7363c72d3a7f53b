//! Who held its locks before whom, by numbers that the home draws.
//!
//! A backend may die after it has answered its last statement and before anybody notices. Its locks fall, another
//! transaction runs on with the old rows and may be ordered first; the dead one would then be ordered after it, and undo
//! it. Home itself knows better: in the statement that inserts the identity, when the transaction holds all that it will
//! ever hold, it draws a number from a sequence. Of two transactions that conflict, the one that had its locks first has
//! the lower number, always. So a transaction that overlaps one with a *higher* number that has finished before it may
//! have lost its locks in between. (Or the two only seem to conflict: claims can be whole tables.) It has to draw again:
//! if its backend can still do that, it held its locks all the time. What finishes meanwhile waits for it, if it overlaps.
//!
//! "Finished before it", not only "in the log": the other may wait for a third, and would be appended and committed
//! before this one, which waits for it in turn (found by `spec/`, "one home").
//!
//! Only the last [`REMEMBERED_MAX`] numbers are remembered; one that is lower than all of them counts as overtaken.

use std::collections::BTreeMap;

use crate::claims::Claims;

/// How many finished transactions are remembered.
pub const REMEMBERED_MAX: usize = 1_024;

/// The numbers and claims of what finished last.
#[derive(Debug, Default)]
pub struct LockLsns {
    finished: BTreeMap<u64, Claims>,
    forgotten: u64,
}

impl LockLsns {
    /// Whether something that overlaps these claims and drew later has finished already.
    pub fn is_overtaken(&self, lsn: u64, claims: &Claims) -> bool {
        lsn < self.forgotten || self.finished.range(lsn + 1..).any(|(_, other)| claims.overlaps(other))
    }

    /// One has finished: it is appended at once, or when those before it are out of the way.
    pub fn finish(&mut self, lsn: u64, claims: Claims) {
        self.finished.insert(lsn, claims);
        if self.finished.len() > REMEMBERED_MAX
            && let Some((lsn, _)) = self.finished.pop_first()
        {
            self.forgotten = lsn;
        }
    }

    /// Home is lost and with it everything that was open there; its numbers may begin anew.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TableId;

    fn row(key: u64) -> Claims {
        Claims { rows: vec![(TableId(1), key)], ..Claims::default() }
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
    fn what_is_older_than_memory_counts_as_overtaken() {
        let mut lock_lsns = LockLsns::default();
        (1..=REMEMBERED_MAX as u64 + 10).for_each(|lsn| lock_lsns.finish(lsn, row(lsn)));
        assert!(lock_lsns.is_overtaken(9, &row(0)));
        assert!(!lock_lsns.is_overtaken(10, &row(0)));
        lock_lsns.clear();
        assert!(!lock_lsns.is_overtaken(1, &row(1)));
    }
}
