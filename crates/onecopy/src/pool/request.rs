//! A session's request for a server connection: which session asks, for which run of a replica, and how urgently.

use cluster::ids::{Incarnation, ReplicaId, SessionId};

/// A worker thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(pub(crate) usize);

/// The session that asks for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    pub(crate) session: SessionId,
    /// The thread on which it lives.
    pub(crate) thread: Thread,
}

/// One run of a replica's server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerPlace {
    pub(crate) replica: ReplicaId,
    pub(crate) incarnation: Incarnation,
}

/// Why a session wants a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// It has no transaction open.
    First,
    /// It has a transaction open at another replica.
    Second,
}
