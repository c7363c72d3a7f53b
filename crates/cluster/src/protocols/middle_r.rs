//! Protocol `middle-r`: a session's transactions run at the replica to which it is connected, their writesets are ordered by the log,
//! and the first committer wins ("Middle-R, C-JDBC and MySQL Cluster", section 2.1).
//!
//! ```text
//! connect    session 1 -> replica 0, session 2 -> replica 1: by chance, inversely proportional to load (2.1.5)
//! read       at the local replica, at once (2.1.2: "Read only transactions are executed locally")
//! update     at the local replica; its writeset is certified and appended: version 7 -> COMMIT at 0, applied at 1
//!            a second writeset that was made without version 7, and writes the same row -> 40001, and nothing of it is applied
//! ```
//!
//! - *Order*: none beforehand. At one replica PostgreSQL's locks order transactions, between replicas certification decides: a
//!   transaction is aborted if it "does conflict with any other concurrent committed transaction" (2.1.2). Its client is told.
//! - *Place*: the local replica ([`crate::parts::local_replicas`]).
//! - *Propagate*: row images. The paper multicasts them "in total order to all the replicas", and each certifies at delivery. All
//!   would certify the same writesets in one order, with one result. Here the log is that order, and the core certifies once.
//! - *Acknowledge*: what is logged.
//!
//! Deviations from the paper:
//! - One address serves all replicas, so the core does what the paper's driver does: it connects a session to a replica, and to
//!   another one when that is lost ("Clients connected to the failed replica detect this failure (broken connection) and connects to
//!   another replica", 2.1.4). The client's connection stays. A transaction that was open fails with 40001, unless its client has
//!   seen nothing of it: that runs again.
//! - A session sees everything that was durable when it was connected. The paper promises nothing about that.
//! - An update statement waits for versions in the log that write what it writes. The paper would execute and abort it.
//! - What only the anchor can run (schema changes, cursors, what cannot be bounded) runs there, with everything durable in sight.
//! - The writeset of a transaction is certified with the values of its unique keys and the keys of its parents, which the paper does
//!   not mention: else two replicas could accept rows that one server would refuse.
//! - READ COMMITTED is served, too, for clients that ask for it. The paper knows one level for all, that of the database.
//!
//! Guarantee: a transaction sees a prefix of the log's order, which may miss what others were told, and never less than its session
//! saw before (generalized snapshot isolation with sessions in order: Elnikety, Pedone, Zwaenepoel, SRDS 2005).
//! - REPEATABLE READ: one such prefix, and the first committer wins: snapshot isolation (2.1.3).
//! - SERIALIZABLE: what it read is certified, too, if it writes anything: serializability (2.1.3) in the order of the log. One that
//!   only reads has its place in that order, which may be an earlier one than its time.
//! - READ COMMITTED: such a prefix for each statement; what it writes is certified.

use super::rows::{Choices, HomePolicy, Order, PATIENCE_US, Perform, Retry, See};

/// Local execution and certification.
pub const MIDDLE_R: Choices = Choices {
    name: "middle-r",
    order: Order::Nothing,
    home: HomePolicy::LocalReplica,
    perform: Perform::Home,
    see: See::Local,
    retry: Retry::Tell,
    patience_us: PATIENCE_US,
};
