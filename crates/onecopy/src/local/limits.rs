//! What the operator allows, as far as it is fixed when the node starts.

use std::time::Duration;

/// Limits of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most bytes that one transaction may capture.
    pub(crate) transaction_bytes_max: u64,
    /// How long a read may hold up a refresh.
    pub(crate) reader_patience: Duration,
    /// Beyond this size the log is no longer kept for replicas that are away.
    pub(crate) log_bytes_max: u64,
    /// How long the node waits for replicas.
    pub(crate) timeouts: ReplicaTimeouts,
    /// How sessions share server connections.
    pub(crate) pooling: Pooling,
}

/// How long the node waits for replicas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaTimeouts {
    /// A server that has not answered for this long is down.
    pub(crate) health_deadline: Duration,
    /// An anchor that has been down for this long loses its place.
    pub(crate) takeover_after: Duration,
    /// Before a command moves the anchor, sessions that hold state at the old one have this long to give it up.
    pub(crate) drain: Duration,
}

/// How sessions share server connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pooling {
    /// Sessions share them (`pool_mode = transaction`); else each session keeps its own.
    pub(crate) is_shared: bool,
    /// The most connections of a role to a replica.
    pub(crate) size: usize,
    /// How long a session waits for one.
    pub(crate) wait: Duration,
}
