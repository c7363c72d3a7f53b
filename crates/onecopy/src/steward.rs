//! One task for each server of ours: it keeps the server running, and gives it other data when it is told to.
//!
//! A server that ends is started again, for ever. A rebuild copies the donor while the old server goes on (it serves
//! nothing, but what it has is not given up before there is something better), then stops it, puts the copy in its
//! place and starts it. A server that cannot even start can be rebuilt as well.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::backend::Address;
use crate::postgres::{Server, Transfer};
use crate::terminal::Progress;

/// Between two attempts to start a server.
const START_PAUSE: Duration = Duration::from_secs(1);
/// Errands that can wait; a rebuild is asked for once.
const ERRANDS: usize = 1;

/// What a steward is told to do.
#[derive(Debug)]
pub(crate) enum Errand {
    /// Replace the data of the server by that of another one.
    Replace(Replacement),
    /// Stop the server, and look after it no longer.
    Leave {
        /// Hears when the server has stopped.
        done: oneshot::Sender<()>,
    },
}

/// Replace the data of the server by that of another one.
#[derive(Debug)]
pub(crate) struct Replacement {
    /// Whom to copy.
    pub(crate) donor: Address,
    /// The role that may copy it.
    pub(crate) superuser: String,
    /// How far it is.
    pub(crate) transfer: Arc<Transfer>,
    /// Hears when the server runs on the copy, or why it does not.
    pub(crate) done: oneshot::Sender<Result<(), String>>,
}

/// The way to a steward, and its own end of it.
pub(crate) fn errands() -> (mpsc::Sender<Errand>, mpsc::Receiver<Errand>) {
    mpsc::channel(ERRANDS)
}

/// Looks after one server, which runs, until the other half of `stopped` is dropped.
pub(crate) async fn run(
    server: Server,
    mut errands: mpsc::Receiver<Errand>,
    mut stopped: watch::Receiver<()>,
    progress: Progress,
) {
    let mut steward = Steward { server, is_running: true, progress };
    loop {
        let errand = tokio::select! {
            () = steward.keep_running() => continue,
            Some(errand) = errands.recv() => errand,
            _ = stopped.changed() => break,
        };
        let replacement = match errand {
            Errand::Replace(replacement) => replacement,
            Errand::Leave { done } => {
                steward.server.stop().await;
                // Whoever asked may have gone; the server has stopped all the same.
                let _ = done.send(());
                return;
            }
        };
        tokio::select! {
            () = steward.carry_out(replacement) => {}
            _ = stopped.changed() => break,
        }
    }
    steward.server.stop().await;
}

struct Steward {
    server: Server,
    is_running: bool,
    progress: Progress,
}

impl Steward {
    /// Returns when the server has ended, or has been started again. Whoever drops this loses nothing but a start.
    async fn keep_running(&mut self) {
        if self.is_running {
            let ending = self.server.exited().await;
            self.progress.say(format_args!("{} ended: {ending}", self.server.name));
            self.is_running = false;
            return;
        }
        // It can be struck down again while it starts; that must not leave it down for ever.
        match self.server.start().await {
            Ok(()) => {
                self.progress.say(format_args!("{} was started again", self.server.name));
                self.is_running = true;
            }
            Err(error) => {
                self.progress.say(error);
                tokio::time::sleep(START_PAUSE).await;
            }
        }
    }

    async fn carry_out(&mut self, replacement: Replacement) {
        let Replacement { donor, superuser, transfer, done } = replacement;
        let outcome = self.replace(&donor, &superuser, &transfer).await;
        if let Err(reason) = &outcome {
            self.progress.say(reason);
        }
        if done.send(outcome).is_err() {
            tracing::debug!(server = self.server.name, "nobody waits for the rebuild any more");
        }
    }

    async fn replace(&mut self, donor: &Address, superuser: &str, transfer: &Transfer) -> Result<(), String> {
        let text = |error: crate::postgres::ServerError| error.to_string();
        if !self.is_running {
            // It may have been on its way up.
            self.server.stop().await;
        }
        self.server.copy(donor, superuser, transfer).await.map_err(text)?;
        self.is_running = false;
        self.server.take_copy().await.map_err(text)?;
        self.server.start().await.map_err(text)?;
        self.is_running = true;
        Ok(())
    }
}
