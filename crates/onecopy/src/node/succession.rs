//! Another process takes the place of this one: a restart, or an upgrade, that clients notice as a pause.
//!
//! ```text
//!  SIGUSR2, RESTART NODE -> `check` by the program on disk -> sessions rest ([`crate::session::passing`])
//!    -> the node closes -> exec -> the new program opens the node -> the same sessions, with their next messages
//! ```
//!
//! The process executes the program that now lies where its own did, with the same arguments. It keeps its process number, so a service
//! manager does not see it end. The new program gets the sockets of clients and listeners through its standard input
//! ([`sockets`]), so no connection is refused or lost meanwhile.
//!
//! Invariant: nothing changes for clients if the new program refuses the configuration. If it fails later, each client is told
//! (57P01).
//!
//! Non-goal: sessions that are encrypted, or have state on a server connection. They end with 57P01.

mod sockets;

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::mpsc;
use wire::sqlstate;

use super::NodeError;
use super::signals;
use crate::accept::inherited::Inherited;
use crate::client::passed::{FORMAT, PassedSession};
use crate::error::Refusal;
use crate::local::LocalState;
use crate::local::succession::{Parcel, Request};
use sockets::Received;

/// Says that the standard input is a socket with what the process before this one has left.
const VARIABLE: &str = "ONECOPY_INHERITS";
/// The command whose arguments those of [`CHECK`] are.
const SERVE: &str = "serve";
/// The command that says whether the program would start.
const CHECK: &str = "check";
/// How long it may take.
const CHECK_PATIENCE: Duration = Duration::from_secs(30);
/// How many of its last lines an error tells.
const LINES: usize = 3;
/// Requests that wait; one is carried out at a time.
const REQUESTS_MAX: usize = 1;
/// How long sessions that rest wait for others, whose transactions are then ended.
pub(super) const PASS_PATIENCE: Duration = Duration::from_secs(10);

/// What a node leaves to its successor.
pub(super) struct Estate {
    pub(super) listeners: Vec<tokio::net::TcpListener>,
    pub(super) parcels: Vec<Parcel>,
    /// How many sessions have had numbers.
    pub(super) numbers_given: u64,
}

impl Estate {
    /// Tells the clients that their sessions end.
    pub(super) fn turn_away(self) {
        turn_away(self.parcels.into_iter().map(|parcel| parcel.socket).collect());
    }
}

/// The part of it that is no socket.
#[derive(Debug, Serialize, Deserialize)]
struct Will {
    /// The encoding of sessions, [`FORMAT`].
    format: u32,
    numbers_given: u64,
    /// In the order of their sockets.
    sessions: Vec<Vec<u8>>,
}

/// The program that takes the place of this one.
#[derive(Clone, Debug)]
pub(super) struct Successor {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Successor {
    /// The program of this process, and what it was told. Call it early: later another file may be in its place.
    pub(super) fn find() -> Result<Self, NodeError> {
        let program = std::env::current_exe().map_err(NodeError::Successor)?;
        Ok(Self { program, arguments: std::env::args_os().skip(1).collect() })
    }

    /// Asks the program whether it would start.
    async fn check(&self) -> Result<(), Refusal> {
        let refused = |why: String| {
            Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!(
                    "`{} check` fails, so it does not take the place of this process",
                    self.program.display()
                ),
                "This process serves on. Mend the configuration or the program, and try again.",
            )
            .about(why)
        };
        let mut command = tokio::process::Command::new(&self.program);
        let mut arguments = self.arguments.clone();
        if let Some(word) = arguments.iter_mut().find(|word| *word == SERVE) {
            *word = CHECK.into();
        }
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let checked = tokio::time::timeout(CHECK_PATIENCE, command.output()).await;
        let output = match checked {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(refused(error.to_string())),
            Err(_) => return Err(refused(format!("it does not end within {} s", CHECK_PATIENCE.as_secs()))),
        };
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().rev().take(LINES).collect();
        Err(refused(lines.into_iter().rev().collect::<Vec<_>>().join(" ")))
    }

    /// Becomes this program. Returns if that fails; then the clients have been told.
    pub(super) fn take_over(&self, estate: Estate) -> NodeError {
        let Estate { listeners, parcels, numbers_given } = estate;
        let (sockets, sessions): (Vec<_>, Vec<_>) =
            parcels.into_iter().map(|Parcel { socket, state }| (socket, state)).unzip();
        let will = Will { format: FORMAT, numbers_given, sessions };
        let listeners: io::Result<Vec<TcpListener>> =
            listeners.into_iter().map(tokio::net::TcpListener::into_std).collect();
        let left = postcard::to_allocvec(&will)
            .map_err(io::Error::other)
            .and_then(|will| sockets::leave(&will, &listeners?, &sockets));
        let error = match left {
            Ok(inheritance) => std::process::Command::new(&self.program)
                .args(&self.arguments)
                .env(VARIABLE, "1")
                .stdin(Stdio::from(inheritance))
                .exec(),
            Err(error) => error,
        };
        turn_away(sockets);
        NodeError::Successor(error)
    }
}

/// Tells clients that their sessions end, since no process serves them.
pub(super) fn turn_away(sockets: Vec<std::os::fd::OwnedFd>) {
    for socket in sockets {
        drop(Inherited::new(TcpStream::from(socket), None));
    }
}

/// The requests for a successor: by signal, and by RESTART NODE.
pub(super) struct Restarts {
    signal: Signal,
    requests: mpsc::Receiver<Request>,
    successor: Successor,
    local: Arc<LocalState>,
}

impl Restarts {
    /// Takes the requests for this process from now on.
    pub(super) fn take(signal: Signal, successor: Successor, local: &Arc<LocalState>) -> Self {
        let (asking, requests) = mpsc::channel(REQUESTS_MAX);
        local.succession.answer_by(asking);
        Self { signal, requests, successor, local: Arc::clone(local) }
    }

    /// Says at each signal that this process cannot be replaced, because of its kind of node.
    pub(super) fn refuse(mut signal: Signal) {
        tokio::spawn(async move {
            while signal.recv().await.is_some() {
                tracing::warn!(
                    "SIGUSR2 has no effect: this kind of node cannot pass its sessions to another process"
                );
            }
        });
    }

    /// The signal that asks for a restart.
    pub(super) fn signal() -> Result<Signal, NodeError> {
        signals::take(SignalKind::user_defined2())
    }

    /// Waits for a request for a program that would start. Other requests are refused.
    pub(super) async fn wanted(&mut self) {
        loop {
            let request = tokio::select! {
                request = self.requests.recv() => request,
                _ = self.signal.recv() => None,
            };
            let checked = if self.local.sessions.pauses.is_by_command() {
                Err(paused())
            } else {
                self.successor.check().await
            };
            if let Err(refusal) = &checked {
                tracing::error!(reason = refusal.message, detail = refusal.detail, "this process serves on");
            }
            let is_certain = checked.is_ok();
            if let Some(request) = request {
                // The client may have disconnected.
                let _ = request.send(checked);
            }
            if is_certain {
                return;
            }
        }
    }
}

/// The next process would know nothing of the PAUSE.
fn paused() -> Refusal {
    Refusal::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "the node is paused, and would not be after a restart",
        "RESUME first.",
    )
}

/// What the process before this one has left.
#[derive(Debug, Default)]
pub(super) struct Inheritance {
    listeners: Vec<TcpListener>,
    pub(super) sessions: Vec<Inherited>,
    pub(super) numbers_given: u64,
    /// How many sessions are in an encoding that this release cannot read.
    unread: usize,
}

impl Inheritance {
    /// Takes it; nothing if this process was started by another kind of program.
    pub(super) fn take() -> Result<Self, NodeError> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(Self::default());
        }
        sockets::receive().map(Self::of).map_err(NodeError::Inheritance)
    }

    fn of(Received { will, listeners, sockets }: Received) -> Self {
        let will: Option<Will> = postcard::from_bytes(&will).ok();
        let numbers_given = will.as_ref().map_or(0, |will| will.numbers_given);
        let states = will.filter(|will| will.format == FORMAT).map(|will| will.sessions).unwrap_or_default();
        let session = |at: usize| postcard::from_bytes::<PassedSession>(states.get(at)?).ok();
        let sessions: Vec<Option<PassedSession>> = (0..sockets.len()).map(session).collect();
        let unread = sessions.iter().filter(|session| session.is_none()).count();
        let sessions = sockets.into_iter().zip(sessions);
        let sessions = sessions.map(|(socket, session)| Inherited::new(TcpStream::from(socket), session));
        Self { sessions: sessions.collect(), listeners, numbers_given, unread }
    }

    /// Says what becomes of sessions in another encoding.
    pub(super) fn warn(&self) {
        let Self { sessions, unread, .. } = self;
        if *unread > 0 {
            let all = sessions.len();
            tracing::error!(
                all,
                unread,
                "this release cannot read sessions of the process before it: they end"
            );
        }
    }

    /// A listener for each address: the one of the process before this one, or a new one.
    pub(super) async fn listen(
        &mut self,
        addresses: &[SocketAddr],
    ) -> Result<Vec<tokio::net::TcpListener>, NodeError> {
        let mut listeners = Vec::new();
        for address in addresses {
            let is_there = |listener: &TcpListener| listener.local_addr().ok() == Some(*address);
            let listener = match self.listeners.iter().position(is_there) {
                Some(at) => tokio::net::TcpListener::from_std(self.listeners.swap_remove(at)),
                None => tokio::net::TcpListener::bind(address).await,
            };
            listeners.push(listener.map_err(|source| NodeError::Listen { address: *address, source })?);
        }
        // Addresses that are not served any more.
        self.listeners.clear();
        Ok(listeners)
    }
}

#[cfg(test)]
mod tests;
