//! Server connections of sessions. With `pool_mode = session` each session opens its own and keeps them; with
//! `transaction` sessions share them, and a session uses one for a transaction at a time.
//!
//! Example: a session of role `joe` reads at replica 2. [`check_out`] gets it a connection from the pool of joe and
//! replica 2, or the permit to open one, or a place in the wait queue. [`servers`] opens the connection if need be, and
//! replaces the settings that another session has left there by this session's. After the answer the session gives the
//! connection back ([`crate::connect::check_in`]).
//!
//! Connections log in as the client's role, so only sessions of that role may use them. Where sessions share connections,
//! each has a [`kind::Kind`], and a session gets connections of its own kind only.
//!
//! | file | holds |
//! |---|---|
//! | `pools` | every pool of the node: idle connections, permits, waiting sessions |
//! | `request`, `kind`, `permit`, `wait_queue`, `shared_connection` | its parts: the request, the connections that fit, how many may exist, the next session, the state of each connection |
//! | `server` | one connection, with `cached`, `own_statements`, `carried`, `defaults`, `anchor_oids`: its prepared statements, its first settings, its OIDs |
//! | `opening`, `state_sync` | how a connection is opened, and how it gets the settings of its session |
//! | `servers` | the connections of one session, with `draws`, `pinned_state`, `sharing`: the state that the session has left there, and its permits |
//! | `check_out` | takes connections out of the pools into a session, and detaches them again |
//! | `leftovers`, `statement_numbers` | questions to servers about state that was left; numbers of prepared statements that sessions share |
//!
//! Invariant: an idle connection is at rest (`Connection::is_at_rest`) and holds only known state of its last session. The
//! next session first replaces that state by its own ([`state_sync`]).

pub(crate) mod anchor_oids;
pub(crate) mod cached;
pub(crate) mod carried;
pub(crate) mod check_out;
pub(crate) mod defaults;
pub(crate) mod draws;
pub(crate) mod kind;
pub(crate) mod leftovers;
pub(crate) mod opening;
pub(crate) mod own_statements;
pub(crate) mod permit;
pub(crate) mod pinned_state;
pub(crate) mod pools;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod servers;
pub(crate) mod shared_connection;
pub(crate) mod sharing;
pub(crate) mod state_sync;
pub(crate) mod statement_numbers;
pub(crate) mod wait_queue;

pub(crate) use pools::Pools;

/// The value of `pool_mode` with which sessions share connections.
pub(crate) const POOL_MODE_TRANSACTION: &str = "transaction";
