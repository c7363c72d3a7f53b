//! The limits of queues and waits. Tests set smaller ones.

use std::time::Duration;

/// The bounds of one node's links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Messages that may wait to be sent on one link, with those being written.
    pub(crate) queue_messages: usize,
    /// Their bytes. A single message of the greatest length always fits into an empty queue.
    pub(crate) queue_bytes: usize,
    /// Events that may wait for the consumer, of all peers.
    pub(crate) events: usize,
    /// The frames' bytes of the messages among them.
    pub(crate) event_bytes: usize,
    /// Connections that have not proven yet who they are. The oldest one gives way.
    pub(crate) unauthenticated: usize,
    /// From the connection to its end of TLS and hello.
    pub(crate) handshake: Duration,
}

/// How long a connection may take to be made. A lost SYN is sent anew by the next try.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_millis(500);
/// The first pause before the next try to dial; each is twice as long as the one before.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest pause: a healed network is noticed after this time.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(200);
/// A link that lived so long lets the pauses begin anew.
pub(crate) const STEADY_AFTER: Duration = Duration::from_secs(1);
/// How long a stop waits for what is queued to be written.
pub(crate) const CLOSE_DEADLINE: Duration = Duration::from_millis(500);

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_messages: 1 << 16,
            queue_bytes: 128 << 20,
            events: 1 << 12,
            event_bytes: 128 << 20,
            unauthenticated: 32,
            handshake: Duration::from_secs(3),
        }
    }
}
