//! Protocol `onecopy`: predict to schedule, certify to be safe. Every replica takes updates and reads, and clients see one
//! copy.
//!
//! ```text
//! read      place by conflict, then load -> wait until applied(r) >= need -> Execute
//! update    choose a home -> lock what the statement may write, against other homes -> Execute ... Finish
//!           -> (overlap at home?) -> certify -> Append -> Logged -> Acknowledge
//!                                                            \-> Commit at home, in version order, groups together
//!                                                            \-> Apply elsewhere, in version order
//! ```
//!
//! Choices:
//! - *Order*: the log orders versions. PostgreSQL's own locks order conflicting transactions of one home. A lock table
//!   makes those of different homes wait beforehand, and a certifier decides ([`crate::parts::order`],
//!   [`crate::parts::version_index`]).
//! - *Place*: an update begins at the end of the chain of transactions that it conflicts with (Gargamel section III), else
//!   where the last of them ran, else by load. A read is placed by conflict first and load second (conflict-aware
//!   scheduling, section 3: "a read is sent to a replica where all conflicting writes have completed").
//! - *Propagate*: row images, as the whole family does ([`super::rows`]).
//! - *Acknowledge*: what is logged (the Tashkent papers: unite ordering and durability).
//!
//! Guarantee: clients see a history of one PostgreSQL at the isolation level that they ask for (DESIGN section 3).
//! - *Between homes*: a transaction is appended only if its statements were known to see every version of another home that
//!   claims what it claims. So it has seen each version that it overwrites, from whichever home.
//! - *At one home*: PostgreSQL's locks order, and [`crate::parts::in_flight`] and [`crate::parts::lock_lsns`] ensure that a
//!   lost backend does not undo that.
//! - *SERIALIZABLE*: reads are certified, too, against versions of every home, so the commit order is a serial order. Rows
//!   that are read by key are locked beforehand, at the transaction's own home as well, so a transaction that reads and
//!   then writes waits instead of failing.
//! - *Snapshots*: every replica shows a prefix of the version order that holds everything needed (DESIGN section 3,
//!   Visibility; rule set "needed from durable, answered at durable, serial commits" of the spec).

use super::rows::{Choices, HomePolicy, Order, PATIENCE_US, Perform, Retry, See};

/// Transactions of different homes lock statement by statement.
pub const ONECOPY: Choices = Choices {
    name: "onecopy",
    order: Order::Statements,
    home: HomePolicy::ConflictThenLoad,
    perform: Perform::Home,
    see: See::Fresh,
    retry: Retry::Unseen,
    patience_us: PATIENCE_US,
};
