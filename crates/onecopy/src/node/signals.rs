//! The signals that a node catches.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::NodeError;

/// Catches this signal from now on, so that it does nothing by itself.
pub(crate) fn take(kind: SignalKind) -> Result<Signal, NodeError> {
    signal(kind).map_err(NodeError::Signals)
}

/// The signals that end a node.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on they do not end the process by themselves.
    pub(crate) fn take() -> Result<Self, NodeError> {
        Ok(Self { interrupt: take(SignalKind::interrupt())?, terminate: take(SignalKind::terminate())? })
    }

    /// Waits for one.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
