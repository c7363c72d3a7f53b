//! The operator's limits that are fixed when the node starts.

use std::time::Duration;

/// Limits of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Largest size of one transaction's captured rows.
    pub(crate) transaction_bytes_max: u64,
    /// A read may delay a refresh at most this long.
    pub(crate) reader_patience: Duration,
    /// Beyond this size the log is not kept for absent replicas.
    pub(crate) log_bytes_max: u64,
    /// Beyond this size the log is not kept for parked replicas.
    pub(crate) parked_log_bytes_max: u64,
    /// Size of the result cache; 0 if there is none.
    pub(crate) result_cache_bytes_max: u64,
    /// Time-outs for replicas.
    pub(crate) timeouts: ReplicaTimeouts,
    /// How sessions share server connections.
    pub(crate) pooling: Pooling,
}

/// Time-outs for replicas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaTimeouts {
    /// A server that has not answered for this long is down.
    pub(crate) health_deadline: Duration,
    /// An anchor that has been down for this long is replaced.
    pub(crate) takeover_after: Duration,
    /// Before a command moves the anchor, sessions with state there get this long to release it.
    pub(crate) drain: Duration,
}

/// How sessions share server connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pooling {
    /// Sessions share connections (`pool_mode = transaction`). If false, each session keeps its own.
    pub(crate) is_shared: bool,
    /// Most connections of a role to a replica.
    pub(crate) size: usize,
    /// A session waits at most this long for one.
    pub(crate) wait: Duration,
}
