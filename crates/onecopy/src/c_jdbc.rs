//! The protocol `c-jdbc` on real servers: each statement is numbered when it comes, and sent to all replicas in that order.
//!
//! The scheduler and the queues of the replicas come from the crate `cluster`, whose code is also simulated; what they
//! guarantee is in docs/explanation/protocols/c-jdbc.md. This folder adds the databases, the log, and the waits inside
//! servers. Clients, connections, and the text that is shipped are those of `shipping`.
//!
//! Example: `UPDATE item SET price = 1` alone is three operations: begin, the UPDATE, and a commit. Each replica's lane
//! runs them on a connection of the session. A replica begins the transaction with its first statement.
//!
//! | file | holds |
//! |---|---|
//! | `node`, `state` | the scheduler and the queues behind their mutex, and what their drivers keep |
//! | `scheduling` | what sessions ask |
//! | `commit_log` | a transaction's statements are durable before any replica is told to commit |
//! | `waits` | waits inside servers, whose own search for deadlocks is off |
//! | `placing` | who holds what, and how that changes |
//! | `returning` | a replica is rolled forward from the log, and takes part again |
//! | `start`, `kind` | a node of this kind, and what the rest of the node asks of it |
//!
//! Invariant: a replica whose outcome of a statement differs from the first one is quarantined. The server of a replica
//! executes at most one write of a transaction at a time; only an abort overtakes it, and cancels it first.
//!
//! Not here: checkpoints, which any node could have whose log can be run again ([`crate::membership::checkpoint`]). Under
//! `pass-through` it cannot, so a replica that lacks transactions does not return there.

mod commit_log;
mod kind;
mod node;
mod placing;
mod returning;
mod scheduling;
mod start;
mod state;
mod waits;

pub(crate) use node::CJdbc;
pub(crate) use start::CJdbcOptions;
