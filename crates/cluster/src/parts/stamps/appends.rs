//! The log's side of stamps: it is kept in their order, whatever messages and clocks do.
//!
//! The paper trusts Max: "that message would have experienced a multicast delay higher than Max" (lemma 4.3), and then replicas
//! would differ. Here the log knows every stamp that was given, because it gives it. A transaction is appended only if it is the
//! oldest one that is open. So Max decides how long a transaction waits, and never what is right.
//!
//! ```text
//!   T1 stamped 100, still on its way to T2's origin
//!   T2 stamped 105, done and ordered at its origin     -> not appended, since T1 is open
//!   T1 appended by its own origin                      -> T2's origin has a record to commit first, so T2 is not ready there
//!   T1 arrives at T2's origin                          -> T2 is undone if it conflicts, and runs again
//! ```
//!
//! Invariant: the stamps of appended transactions ascend, and no stamp is given that is older than an appended one.
//!
//! Not here: whether the origin is ready ([`super::Agent::ready`]). Both are needed: "oldest open" alone would let T2 be appended
//! in the third line above, although its execution has not seen T1.

use std::collections::BTreeSet;

use super::Stamp;
use crate::ids::ReplicaId;
use crate::time::Time;

/// The transactions that are stamped and neither appended nor ended.
#[derive(Debug, Default)]
pub struct Appends {
    open: BTreeSet<Stamp>,
    last_us: Option<u64>,
    given: u64,
}

impl Appends {
    /// A client submits a transaction to a replica, whose clock shows this time. A clock that is far behind gets a stamp right after
    /// the last appended one.
    pub fn stamp(&mut self, clock: Time, origin: ReplicaId) -> Stamp {
        self.given += 1;
        let least_us = self.last_us.map_or(0, |us| us + 1);
        let stamp = Stamp { us: clock.us.max(least_us), origin, n: self.given };
        self.open.insert(stamp);
        stamp
    }

    /// Whether a transaction may be appended if its origin is ready.
    pub fn is_next(&self, stamp: Stamp) -> bool {
        self.open.first() == Some(&stamp)
    }

    /// The oldest open transaction.
    pub fn next(&self) -> Option<Stamp> {
        self.open.first().copied()
    }

    /// The transaction is in the log.
    pub fn appended(&mut self, stamp: Stamp) {
        assert!(self.is_next(stamp), "only the oldest open transaction is appended");
        self.open.pop_first();
        self.last_us = Some(stamp.us);
    }

    /// The transaction will not be appended: its client gave up, or its origin is lost.
    pub fn ended(&mut self, stamp: Stamp) {
        self.open.remove(&stamp);
    }
}
