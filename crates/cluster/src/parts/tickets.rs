//! Who held its locks before whom, by numbers that the home draws.
//!
//! A backend may die after it has answered its last statement and before anybody notices. Its locks fall, another
//! transaction runs on with the old rows and may be ordered first; the dead one would then be ordered after it, and undo
//! it. Home itself knows better: in the statement that inserts the identity, when the transaction holds all that it will
//! ever hold, it draws a number from a sequence. Of two transactions that conflict, the one that had its locks first has
//! the lower number, always. So a transaction that overlaps one with a *higher* number that is in the log already may
//! have lost its locks in between. (Or the two only seem to conflict: claims can be whole tables.) It has to draw again:
//! if its backend can still do that, it held its locks all the time, and the new number is above the other's.
//!
//! Only the last [`REMEMBERED_MAX`] numbers are remembered; one that is lower than all of them counts as overtaken.

use std::collections::BTreeMap;

use crate::claims::Claims;

/// How many appended transactions are remembered.
pub const REMEMBERED_MAX: usize = 1_024;

/// The numbers and claims of what was appended last.
#[derive(Debug, Default)]
pub struct Tickets {
    appended: BTreeMap<u64, Claims>,
    forgotten: u64,
}

impl Tickets {
    /// Whether something that overlaps these claims and drew later was appended already.
    pub fn is_overtaken(&self, ticket: u64, claims: &Claims) -> bool {
        ticket < self.forgotten || self.appended.range(ticket + 1..).any(|(_, other)| claims.overlaps(other))
    }

    /// One was appended.
    pub fn append(&mut self, ticket: u64, claims: Claims) {
        self.appended.insert(ticket, claims);
        if self.appended.len() > REMEMBERED_MAX
            && let Some((ticket, _)) = self.appended.pop_first()
        {
            self.forgotten = ticket;
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
        let mut tickets = Tickets::default();
        tickets.append(5, row(1));
        assert!(tickets.is_overtaken(4, &row(1)));
        assert!(!tickets.is_overtaken(4, &row(2)));
        assert!(!tickets.is_overtaken(6, &row(1)));
        assert!(tickets.is_overtaken(4, &Claims::everything()));
    }

    #[test]
    fn what_is_older_than_memory_counts_as_overtaken() {
        let mut tickets = Tickets::default();
        (1..=REMEMBERED_MAX as u64 + 10).for_each(|ticket| tickets.append(ticket, row(ticket)));
        assert!(tickets.is_overtaken(9, &row(0)));
        assert!(!tickets.is_overtaken(10, &row(0)));
        tickets.clear();
        assert!(!tickets.is_overtaken(1, &row(1)));
    }
}
