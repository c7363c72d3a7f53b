//! One task for each server of ours. It keeps the server running, and gives it other data on demand.
//!
//! A server that ends is started again, for ever. While it does not start, its seat says why. If its data is the cause,
//! the mender is told ([`crate::node::up`]).
//!
//! A rebuild copies the donor, or the folder of a checkpoint, while the old server still runs. That server does not serve,
//! but its data is kept until the copy is complete. Then the supervisor stops it, puts the copy in its place and starts it. A server that cannot
//! even start can be rebuilt as well.
//!
//! A server that is parked ([`crate::coordinator::parking`]) is stopped, and stays so until it is woken or replaced.

use std::sync::Arc;
use std::time::Duration;

use cluster::ids::ReplicaId;
use pgserver::{Server, ServerError};
use tokio::sync::{mpsc, watch};

use super::base_backup;
use super::base_backup::CopyError;
use crate::coordinator::requests::{CopySource, Replacement, RequestError, SupervisorOrder};
use crate::coordinator::resync_progress::Transfer;
use crate::coordinator::{Absence, Leader};
use crate::terminal::Progress;

/// The first pause between two attempts to start a server. Each further one is twice as long.
const START_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const START_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The data counts as damaged after so many attempts in a row that failed because of it.
const DAMAGED_AFTER: u32 = 2;
/// The length of the queue of orders. A rebuild is asked for once.
const ERRANDS: usize = 1;

/// Makes the channel to a supervisor.
pub(crate) fn errands() -> (mpsc::Sender<SupervisorOrder>, mpsc::Receiver<SupervisorOrder>) {
    mpsc::channel(ERRANDS)
}

/// The context of a supervisor, beside its server.
#[derive(Debug)]
pub(crate) struct SupervisorContext {
    /// The node.
    pub(crate) leader: Arc<Leader>,
    /// The replica that the server is.
    pub(crate) replica: ReplicaId,
    /// The channel to the mender.
    pub(crate) damaged: mpsc::Sender<ReplicaId>,
    /// Where news is printed.
    pub(crate) progress: Progress,
}

/// Looks after one server until the other half of `stopped` is dropped. `failure` says why it has not started.
pub(crate) async fn run(
    server: Server,
    failure: Option<ServerError>,
    mut errands: mpsc::Receiver<SupervisorOrder>,
    mut stopped: watch::Receiver<()>,
    post: SupervisorContext,
) {
    let is_parked = post.leader.parking.state(post.replica).is_parked();
    let state = match (server.is_running(), is_parked) {
        (true, _) => ServerState::Running,
        (false, true) => ServerState::Parked,
        (false, false) => ServerState::Ended,
    };
    let mut supervisor = Supervisor { server, state, failures: 0, damages: 0, post };
    if let Some(error) = failure {
        supervisor.failed(&error);
    }
    loop {
        let errand = tokio::select! {
            () = supervisor.keep_running() => continue,
            Some(errand) = errands.recv() => errand,
            _ = stopped.changed() => break,
        };
        let replacement = match errand {
            SupervisorOrder::Replace(replacement) => replacement,
            SupervisorOrder::TellAccount { account } => {
                let _ = account.send(supervisor.server.account().clone());
                continue;
            }
            SupervisorOrder::Park { done } => {
                supervisor.park().await;
                let _ = done.send(());
                continue;
            }
            SupervisorOrder::Wake { done } => {
                let woken = supervisor.wake().await;
                let _ = done.send(woken.map_err(RequestError::failed));
                continue;
            }
            SupervisorOrder::Leave { done } => {
                supervisor.server.stop().await;
                // The task that asked may have gone. The server has stopped all the same.
                let _ = done.send(());
                return;
            }
        };
        tokio::select! {
            () = supervisor.carry_out(replacement) => {}
            _ = stopped.changed() => break,
        }
    }
    supervisor.server.stop().await;
}

/// Whether the server runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerState {
    Running,
    /// It has to be started.
    Ended,
    /// It is stopped on purpose.
    Parked,
}

struct Supervisor {
    server: Server,
    state: ServerState,
    /// Failed attempts to start it since it last ran.
    failures: u32,
    /// The last of these in a row that failed because of its data.
    damages: u32,
    post: SupervisorContext,
}

impl Supervisor {
    /// Returns when the server has ended, or after an attempt to start it. Dropping the future loses at most a start.
    async fn keep_running(&mut self) {
        match self.state {
            ServerState::Parked => std::future::pending().await,
            ServerState::Running => {
                let ending = self.server.exited().await;
                self.post.progress.say(format_args!("{} ended: {ending}", self.server.name));
                self.state = ServerState::Ended;
                return;
            }
            ServerState::Ended => {}
        }
        if self.failures > 0 {
            let doubled = START_PAUSE.saturating_mul(1 << (self.failures - 1).min(8));
            tokio::time::sleep(doubled.min(START_PAUSE_MAX)).await;
        }
        // The server can be killed again while it starts. That must not leave it down for ever.
        match self.server.start().await {
            Ok(()) => {
                self.started();
                self.post.progress.say(format_args!("{} was started again", self.server.name));
            }
            Err(error) => self.failed(&error),
        }
    }

    fn started(&mut self) {
        self.state = ServerState::Running;
        (self.failures, self.damages) = (0, 0);
        self.absence().note_server(None);
    }

    /// Notes a failed start. Each reason is printed once, however often the server is tried.
    fn failed(&mut self, error: &ServerError) {
        self.failures += 1;
        self.damages = if error.is_about_data() { self.damages + 1 } else { 0 };
        if self.absence().note_server(Some(error.in_short())) {
            self.post.progress.say(error);
        }
        if self.damages >= DAMAGED_AFTER {
            // If the mender's queue is full, it is told again after the next attempt.
            let _ = self.post.damaged.try_send(self.post.replica);
        }
    }

    async fn park(&mut self) {
        self.server.stop().await;
        self.state = ServerState::Parked;
        self.absence().note_server(None);
    }

    /// Starts a parked server. If that fails, it is tried again like any server that has ended.
    async fn wake(&mut self) -> Result<(), ServerError> {
        if self.state != ServerState::Parked {
            return Ok(());
        }
        self.state = ServerState::Ended;
        let started = self.server.start().await;
        match &started {
            Ok(()) => self.started(),
            Err(error) => self.failed(error),
        }
        started
    }

    fn absence(&self) -> &Absence {
        &self.post.leader.seats[self.post.replica].absence
    }

    async fn carry_out(&mut self, replacement: Replacement) {
        let Replacement { source, transfer, done } = replacement;
        let outcome = self.replace(&source, &transfer).await;
        if let Err(reason) = &outcome {
            self.post.progress.say(reason);
        }
        if done.send(outcome.map_err(RequestError::failed)).is_err() {
            tracing::debug!(server = self.server.name, "the rebuild has ended after its client left");
        }
    }

    async fn replace(&mut self, source: &CopySource, transfer: &Arc<Transfer>) -> Result<(), CopyError> {
        if self.state != ServerState::Running {
            // The server may have been about to start.
            self.server.stop().await;
            self.state = ServerState::Ended;
        }
        match source {
            CopySource::Server { donor, superuser } => {
                base_backup::copy(&self.server, donor, superuser, transfer).await?;
            }
            CopySource::Folder { folder, bytes } => {
                base_backup::copy_of_folder(&self.server, folder, *bytes, transfer).await?;
            }
        }
        self.state = ServerState::Ended;
        self.server.take_copy().await.map_err(CopyError::Server)?;
        self.server.start().await.map_err(CopyError::Server)?;
        self.started();
        Ok(())
    }
}
