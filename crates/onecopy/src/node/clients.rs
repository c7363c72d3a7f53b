//! How clients reach a node, and what becomes of their sessions when it ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::Instant;

use super::NodeError;
use super::signals::Signals;
use super::succession::{Estate, Inheritance, PASS_PATIENCE, Restarts, turn_away};
use super::systemd;
use crate::accept::inherited::Inherited;
use crate::accept::listener::Workers;
use crate::coordinator::Coordinator;
use crate::coordinator::mailbox::End;
use crate::local::LocalState;
use crate::terminal::Progress;

/// Sessions that are ended at once get this long.
const STOP_SESSIONS: Duration = Duration::from_secs(5);
/// Sessions that rest get this long to be passed on, however small `stop_patience` is.
const PASS_PATIENCE_MIN: Duration = Duration::from_secs(1);
/// How long clients that are logging in may take before another process takes over.
const LOGINS: Duration = Duration::from_secs(2);
/// Interval at which a stopping node counts its sessions.
const LOOK: Duration = Duration::from_millis(20);

/// The clients of a node.
pub(super) struct Clients {
    listeners: Vec<TcpListener>,
    /// Those of the process before this one.
    inherited: Vec<Inherited>,
    numbers_given: u64,
    restarts: Option<Restarts>,
}

/// Why a node stops serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Stop,
    /// Another process takes the place of this one.
    Succession,
}

/// How a node has ended.
pub(super) enum Ended {
    Stopped,
    /// Another process has to take over what is left.
    Left(Estate),
}

/// Whether a second signal has ended the waiting for sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Kept,
    Ended,
}

impl Clients {
    /// Those that come to these listeners, of a process that none can take the place of.
    pub(super) fn at(listeners: Vec<TcpListener>) -> Self {
        Self { listeners, inherited: Vec::new(), numbers_given: 0, restarts: None }
    }

    /// Those that come to these listeners, and those of the process before this one.
    pub(super) fn of_process(listeners: Vec<TcpListener>, inheritance: Inheritance) -> Self {
        let Inheritance { sessions, numbers_given, .. } = inheritance;
        Self { listeners, inherited: sessions, numbers_given, restarts: None }
    }

    /// The same, where another process takes the place of this one on request.
    pub(super) fn restarted_by(self, restarts: Restarts) -> Self {
        Self { restarts: Some(restarts), ..self }
    }

    /// The addresses to which clients come, for people.
    pub(super) fn addresses(&self) -> String {
        let all = self.listeners.iter().filter_map(|listener| Some(listener.local_addr().ok()?.to_string()));
        all.collect::<Vec<_>>().join(", ")
    }

    /// Keeps the numbers of sessions of the process before this one. Call it before any session begins.
    pub(super) fn keep_numbers(&self, coordinator: &Coordinator) {
        coordinator.mailboxes.continue_after(self.numbers_given);
    }

    /// Serves clients until it fails, or another process is to take over.
    pub(super) async fn serve(&mut self, workers: &Workers) -> Result<Reason, NodeError> {
        let inherited = std::mem::take(&mut self.inherited);
        workers.adopt(inherited).await.map_err(NodeError::Accept)?;
        let wanted = async {
            match &mut self.restarts {
                Some(restarts) => restarts.wanted().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = workers.accept(&self.listeners) => {
                accepted.map_err(NodeError::Accept).map(|()| Reason::Stop)
            }
            () = wanted => Ok(Reason::Succession),
        }
    }

    /// Says that the node stops. Gives sessions time to finish, then ends the remaining ones. `patience` is zero if none could
    /// finish anything.
    pub(super) async fn stop(
        self,
        coordinator: &Coordinator,
        patience: Duration,
        signals: &mut Signals,
        progress: &Progress,
    ) {
        progress.say("stopping");
        systemd::tell("STOPPING=1");
        drop(self);
        end_sessions(coordinator, End::AfterTransaction, patience, signals, progress).await;
    }

    /// Says that another process takes over. Call [`Self::leave`] then.
    pub(super) fn say_leaving(progress: &Progress) {
        progress.say("another process takes over");
        systemd::reloading();
    }

    /// Has all sessions come to rest, and keeps them for the process that takes over. `None` if a signal to stop came
    /// meanwhile.
    pub(super) async fn leave(
        self,
        coordinator: &Coordinator,
        signals: &mut Signals,
        progress: &Progress,
    ) -> Option<Estate> {
        await_logins(&coordinator.local).await;
        let patience = coordinator.local.runtime_config.stop_patience();
        let patience = patience.clamp(PASS_PATIENCE_MIN, PASS_PATIENCE);
        let kept = end_sessions(coordinator, End::Succession, patience, signals, progress).await;
        let parcels = coordinator.local.succession.parcels();
        if kept == Patience::Ended {
            progress.say("stopping");
            systemd::tell("STOPPING=1");
            turn_away(parcels.into_iter().map(|parcel| parcel.socket).collect());
            return None;
        }
        let numbers_given = coordinator.mailboxes.numbers_given();
        Some(Estate { listeners: self.listeners, parcels, numbers_given })
    }
}

/// Waits for clients that are about to log in. Those that take longer are cut.
async fn await_logins(local: &LocalState) {
    let deadline = Instant::now() + LOGINS;
    loop {
        tokio::time::sleep(LOOK).await;
        if local.half_open.counts().0 == 0 || Instant::now() > deadline {
            return;
        }
    }
}

async fn end_sessions(
    coordinator: &Coordinator,
    first: End,
    patience: Duration,
    signals: &mut Signals,
    progress: &Progress,
) -> Patience {
    let mut kept = Patience::Kept;
    for (end, patience) in [(first, patience), (End::Now, STOP_SESSIONS)] {
        let deadline = Instant::now() + patience;
        let left = || coordinator.local.stats.sessions.load(Ordering::Relaxed);
        let gone = async {
            loop {
                // Again and again, because a client that was logging in may have become a session.
                coordinator.mailboxes.end(end);
                if left() == 0 || Instant::now() >= deadline {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = gone => {}
            () = signals.stop() => kept = Patience::Ended,
        }
        match left() {
            0 => return kept,
            left if end == first => {
                progress.say(format_args!("{left} sessions are in a transaction; they are ended now"));
            }
            _ => {}
        }
    }
    kept
}
