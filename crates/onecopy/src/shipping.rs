//! The schedulers that ship statements, on real servers: `eager`, `fr-l`, `fr-c`, `vr-l` and `conflict-aware`.
//!
//! Conflict-aware scheduling, sections 3 to 6. The scheduler and the proxies come from the crate `cluster`, whose
//! code is also simulated. This folder adds the databases, the log and the clients. No row is captured: each replica
//! runs every write statement, so such a statement must have the same effect everywhere ([`statement`]). All tables
//! of a transaction are locked when it begins ([`locks`]).
//!
//! | file | holds |
//! |---|---|
//! | `lane`, `connections`, `reply` | one transaction at one replica, on a connection of its session |
//! | `node`, `state` | the scheduler and the proxies behind their mutex, and what their drivers keep |
//! | `statement_store` | how much is kept in memory for replicas that are behind |
//! | `commit_log` | decisions are durable before any replica is told to commit (section 5.3) |
//! | `recovery`, `rejoin` | a replica is fenced, rolled forward from the log, and joins the others (sections 5.3.1, 5.3.2) |
//! | `session`, `transaction`, `extended`, `control`, `data`, `copy` | a client |
//! | `scheduler_client`, `control_connection`, `transaction_state`, `batch` | the parts of a session that have state of their own |
//! | `statement`, `locks` | what a statement touches, and the text that is shipped |
//! | `scheduling`, `per_statement` | a scheduler as sessions see it, and what is refused where statements bring their own tables |
//! | `start`, `kind` | a node of this kind, and what the rest of the node asks of it |
//!
//! Guarantee: strict 1-copy serializability for every client, at any isolation level. READ COMMITTED at the servers
//! is enough. All tables that a transaction reads are locked before its first statement, so they do not change
//! between its statements. By then, all conflicting transactions with lower numbers have committed at the replica.

mod answering;
mod batch;
mod commit_log;
pub(crate) mod connections;
mod control;
mod control_connection;
mod copy;
mod data;
mod delivery;
mod dispatch;
mod extended;
mod kind;
pub(crate) mod lane;
mod lane_site;
pub(crate) mod locks;
mod node;
mod orphan;
mod per_statement;
mod query_cache;
pub(crate) mod recovery;
mod rejoin;
mod replayed;
pub(crate) mod replica_run;
mod reply;
pub(crate) mod request;
mod scheduler_client;
pub(crate) mod scheduling;
pub(crate) mod session;
mod session_slots;
pub(crate) mod several;
pub(crate) mod shipment;
pub(crate) mod start;
pub(crate) mod state;
mod statement;
pub(crate) mod statement_store;
mod transaction;
mod transaction_state;

pub(crate) use node::Shipping;
pub(crate) use several::ShippingOfSeveral;
pub(crate) use start::{LogKind, ShippingOptions, claim_log, refuse_log};
