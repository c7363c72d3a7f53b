//! A session goes on in the process that takes the place of this one.
//!
//! ```text
//!  this process                                 its successor
//!  the session rests -> socket and state ----> the session waits for its client's next message
//!  the client sends a query ............................................. and gets the answer
//! ```
//!
//! A session rests when its client has been told that it may send a query, and no transaction is open. Its settings and prepared
//! statements pass with it, as they pass to another server connection. What exists on one server connection only
//! (temporary tables, session locks, LISTEN, cursors WITH HOLD, `currval`) cannot be passed, and neither can the keys of TLS: such a session
//! ends with 57P01, as at every stop.
//!
//! Invariant: nothing that the client has received or sent is lost or said twice.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use wire::sqlstate;

use super::Session;
use crate::client::Client;
use crate::client::passed::{PassedDraws, PassedSession, PassedStatement};
use crate::coordinator::mailbox::End;
use crate::error::{Fault, Refusal};
use crate::link::Link;
use crate::link::answers::Answers;
use crate::link::node_kind::Begun;
use crate::pool::carried::AllCarried;
use crate::security::tls::Stream;
use crate::transaction::open::Transaction;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The client has been told that it may send a query.
    Client,
    /// The session has read messages since.
    Session,
}

/// How the loop of a session ends without an error.
pub(super) enum Left {
    /// The client has said goodbye.
    ByClient,
    /// The session goes on in another process.
    ForSuccessor,
}

impl Session {
    /// Whether the session was called to pass, and can pass now.
    ///
    /// # Errors
    /// 57P01 if it rests and cannot be passed.
    pub(super) fn passes(&mut self) -> Result<bool, Fault> {
        let registration = &self.link.session_registration;
        let is_called = registration.ending.max(registration.mailbox.called()) == Some(End::Succession);
        let rests =
            matches!(self.txn.state, Transaction::None) && self.turn == Turn::Client && !self.skipping;
        if !is_called || !rests {
            return Ok(false);
        }
        match what_stays(&mut self.link) {
            None => Ok(true),
            Some(why) => Err(Fault::Fatal(stays(&why))),
        }
    }

    /// Hands the session over to the successor of this process.
    pub(super) async fn pass_on(&mut self) {
        let handed = socket(&self.link.client).and_then(|socket| {
            let state = postcard::to_allocvec(&passed(&self.link)).map_err(io::Error::other)?;
            self.link.local().succession.take(socket, state);
            Ok(())
        });
        if let Err(error) = handed {
            tracing::error!(%error, "a session cannot be passed to the successor of this process");
            self.link.client.say_last(&[], &stays("no room for it")).await;
        }
    }

    /// Goes on with a session of the process before this one.
    pub(crate) async fn resume(&mut self, begun: Begun) -> Result<(), Fault> {
        let Begun { statements, prepares, draws, greeting, .. } = begun;
        self.link.answers = Answers::resumed(greeting);
        self.link.session_registration.entry.tell_beginning();
        for PassedStatement { name, sql, types } in statements {
            self.learn(&name, &sql, &types).await?;
        }
        let all = prepares.len();
        let carried = prepares.into_iter().filter_map(|(name, text)| self.view().carried(name, text));
        let carried = AllCarried(carried.collect());
        if carried.0.len() < all {
            return Err(Fault::Fatal(stays("a prepared statement that this release does not know")));
        }
        self.link.servers.carried = carried;
        if draws == PassedDraws::Lost {
            self.link.servers.draws.note_lost();
        }
        self.turn = Turn::Client;
        Ok(())
    }
}

/// What the session has that another process cannot have.
fn what_stays(link: &mut Link) -> Option<String> {
    if link.client.is_encrypted() {
        return Some("the keys of TLS".to_owned());
    }
    let mut pins = link.servers.lost_state(&link.worker.coordinator).unwrap_or_default();
    link.servers.iter_mut().for_each(|server| pins = pins.with(server.pins));
    let pins = pins.immovable();
    if !pins.is_empty() {
        return Some(pins.words());
    }
    link.leftovers.pinned.then(|| "objects of its own".to_owned())
}

/// The client's socket once more, which stays open when the session closes its own.
fn socket(client: &Client) -> io::Result<OwnedFd> {
    match &client.stream {
        Stream::Plain(stream) => stream.as_fd().try_clone_to_owned(),
        Stream::FromClient(_) | Stream::ToServer(_) => Err(io::Error::other("it is encrypted")),
    }
}

fn passed(link: &Link) -> PassedSession {
    let registration = &link.session_registration;
    PassedSession {
        number: link.id.counter(),
        key: registration.cancel.secret,
        input: link.client.input.data().to_vec(),
        settings: link.settings.clone(),
        client_info: registration.entry.client_info.clone(),
        secret: link.servers.secret().clone(),
        statements: link.prepared.passed(),
        prepares: link.servers.carried.passed(),
        draws: if link.servers.draws.has_any() { PassedDraws::Lost } else { PassedDraws::None },
        greeting: link.answers.greeting().to_vec(),
    }
}

/// The end of a session that cannot be passed.
fn stays(why: &str) -> Refusal {
    let text = format!(
        "terminating connection: Onecopy is restarting, and the session has what cannot be passed on ({why})"
    );
    Refusal::new(sqlstate::ADMIN_SHUTDOWN, text, "Connect again, and set up the session anew.")
}
