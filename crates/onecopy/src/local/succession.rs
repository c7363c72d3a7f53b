//! Another process takes the place of this one, on request of an operator.
//!
//! Who asks gets an answer once it is certain that the other process could start; then sessions come here one by one, and the
//! node hands all of them over ([`crate::node`]).

use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::sync::{mpsc, oneshot};
use wire::sqlstate;

use crate::error::Refusal;

/// A session without its process.
#[derive(Debug)]
pub(crate) struct Parcel {
    /// The socket of its client.
    pub(crate) socket: OwnedFd,
    /// An encoded [`crate::client::passed::PassedSession`].
    pub(crate) state: Vec<u8>,
}

/// The answer goes here.
pub(crate) type Request = oneshot::Sender<Result<(), Refusal>>;

/// The sessions that wait for the other process, and the way to ask for it.
#[derive(Debug, Default)]
pub(crate) struct Succession {
    waiting: Mutex<Vec<Parcel>>,
    requests: OnceLock<mpsc::Sender<Request>>,
}

impl Succession {
    /// Takes a session that goes on in the other process.
    pub(crate) fn take(&self, socket: OwnedFd, state: Vec<u8>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(Parcel { socket, state });
    }

    /// All sessions that have come.
    pub(crate) fn parcels(&self) -> Vec<Parcel> {
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers requests by this queue, from now on.
    pub(crate) fn answer_by(&self, requests: mpsc::Sender<Request>) {
        let is_first = self.requests.set(requests).is_ok();
        debug_assert!(is_first, "a node begins to serve once");
    }

    /// Asks for another process in place of this one.
    ///
    /// # Errors
    /// If none could start, or sessions of this kind of node cannot be passed.
    pub(crate) async fn ask(&self) -> Result<(), Refusal> {
        let Some(requests) = self.requests.get() else {
            return Err(Refusal::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "this node cannot pass its sessions to another process",
                "Only `onecopy serve` with protocol onecopy can. Stop the node and start it again.",
            ));
        };
        let (request, answer) = oneshot::channel();
        let busy = || {
            Refusal::new(
                sqlstate::OBJECT_IN_USE,
                "another process takes the place of this one already",
                "Connect again later.",
            )
        };
        requests.try_send(request).map_err(|_| busy())?;
        answer.await.unwrap_or_else(|_| Err(busy()))
    }
}
