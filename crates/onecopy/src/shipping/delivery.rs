//! The messages between the scheduler and the proxies, which are delivered in one process and in one step.

use cluster::protocols::shipping::{Output, ProxyOutput, Transaction};

/// A message to be delivered.
pub(super) enum Delivery {
    Scheduler(Output),
    Proxy(usize, ProxyOutput),
    /// What the database of a replica was doing for a transaction is lost with the node of its session.
    LostWork(usize, Transaction),
}
