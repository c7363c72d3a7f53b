//! Protocol `preventive`: transactions run in the order of the times at which they were submitted, at every replica that holds
//! their data, and no message fixes that order (Pacitti, Coulon, Valduriez, Özsu: Preventive replication in a database cluster,
//! Distributed and Parallel Databases 2005).
//!
//! ```text
//! CALL pay(3) at 0   stamp 100   -> 1, 2 by message          order_now(8) at 1   stamp 105, does not conflict: starts beside it
//!   0, 1 perform it, 2 lacks a table and waits for its rows
//!   0 done, 100 + Max + epsilon has passed, it is the oldest   -> appended to the log as version 7, with the rows of 0
//!   0 COMMIT      1 has changed the same rows: COMMIT of its own execution      2 applies the record
//! ```
//!
//! - *Order* (4.1, 5): stamps by the clock of the home; a transaction is ordered at stamp + Max + epsilon. By
//!   [`PREVENTIVE`] it starts on arrival (5.1) beside what does not conflict with it (5.2), by [`PREVENTIVE_BASIC`] when it is ordered.
//! - *Place*: in turn, among the replicas that hold all that it touches (the paper: at the node that its client chose).
//! - *Perform* (4.2): each other replica that holds all of it executes it, too. One that does not waits for the record, which is the
//!   refresh transaction, and meanwhile lets pass what does not conflict.
//! - *Acknowledge*: what is logged.
//!
//! Deviations from the paper:
//! - The home's rows are the record in the log, and the log decides. A replica that has performed the transaction commits that in the
//!   turn of the version, and only if it has changed the same rows ([`crate::event::Digest`]); else it applies the record. So a
//!   transaction need not be deterministic, and Max is never a matter of safety.
//! - A transaction is appended only when it is the oldest that is open, and every replica hears of a record at once. A message that takes
//!   longer than Max is counted; younger transactions that conflict are undone and run again. The paper would let replicas differ.
//! - Only younger transactions that conflict are undone, at once and not when they end (5.1: all running ones).
//! - Ties of stamps are decided by the origin.
//! - A transaction that is not known as a whole claims everything, starts when it is ordered, and runs at its home alone, since its
//!   statements are not known elsewhere.
//! - A transaction is undone unseen only if its client has seen nothing of it. Otherwise it fails with 40001: a declared block when an
//!   older transaction arrives after its start, and one that is not known as a whole when a message takes longer than Max.
//! - When its home is lost, a transaction that is not in the log fails there, and runs again elsewhere under a new stamp, unseen if its
//!   client has seen nothing of it. The paper's equivalent node would go on with what it has performed. So no client is answered twice.
//! - Reads see everything acknowledged ([`See::Fresh`]), unless the operator chooses the paper's stale reads ([`See::Local`]).
//! - Certification and visibility of the family stay underneath. They never fail a known transaction
//!   ([`super::Protocol::known_misjudged`] counts, the simulator requires 0).
//!
//! Guarantee: updates that are known as a whole are strictly serializable in the order of stamps, which is that of the log, whatever
//! level their clients ask for. Other transactions have the level that they ask for. With stale reads, a read sees a prefix of that
//! order that may be old.

use super::rows::{Choices, HomePolicy, Order, PATIENCE_US, Perform, Retry, See};
use crate::parts::stamps::{Mode, Start};

/// Max + epsilon, in microseconds, unless the operator sets another.
pub const WAIT_US: u64 = 2_000;

/// Transactions start on arrival (section 5).
pub const PREVENTIVE: Choices = Choices {
    name: "preventive",
    order: Order::Stamps(Mode { start: Start::OnArrival, wait_us: WAIT_US, skew_us: 0 }),
    home: HomePolicy::InTurn,
    perform: Perform::AllHolders,
    see: See::Fresh,
    retry: Retry::Unseen,
    patience_us: PATIENCE_US,
};

/// The same, but transactions start when they are ordered (section 4).
pub const PREVENTIVE_BASIC: Choices = Choices {
    order: Order::Stamps(Mode { start: Start::Ordered, wait_us: WAIT_US, skew_us: 0 }),
    ..PREVENTIVE
};
