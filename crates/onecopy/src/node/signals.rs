//! The signals that a node catches.

use std::task::{Context, Waker};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::NodeError;

/// Catches this signal from now on, so it has no default effect.
pub(crate) fn take(kind: SignalKind) -> Result<Signal, NodeError> {
    signal(kind).map_err(NodeError::Signals)
}

/// The signals that stop a node.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Catches them from now on, so they do not end the process.
    pub(crate) fn take() -> Result<Self, NodeError> {
        Ok(Self { interrupt: take(SignalKind::interrupt())?, terminate: take(SignalKind::terminate())? })
    }

    /// Whether one of them has come since the last wait.
    pub(super) fn has_come(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        [&mut self.interrupt, &mut self.terminate]
            .into_iter()
            .any(|signal| signal.poll_recv(&mut context).is_ready())
    }

    /// Waits for one of them.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
