//! State that a session has on one server connection alone ([`super::pins`]): when the connection is lost, the session ends
//! before Onecopy runs anything of it on another connection.
//!
//! Otherwise a statement that is meant for a temporary table would change the permanent table of that name, and another
//! session could get an advisory lock whose holder does not know that it has lost it. So the session ends with 57P01, as
//! on one PostgreSQL whose backend ends. Another connection gets what can be carried (settings, the protocol's prepared
//! statements), and a session that has nothing else goes on.
//!
//! A connection is lost when its socket says so, when its server is given up, and when the anchor moves: the state lives at
//! the old anchor, and the session's next statements run at the new one. An idle session watches its connections, so its
//! client hears of the loss at once.
//!
//! Invariant: [`super::servers::Servers::ensure`] gives no connection to a session that has lost such state.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use cluster::ids::{ReplicaId, SessionId};
use wire::sqlstate;

use super::pins::{Pin, Pins};
use super::servers::{Server, Servers};
use crate::coordinator::Hub;
use crate::coordinator::evictions::Tenancy;
use crate::error::{Fault, Refusal};
use crate::relay::Relay;
use crate::session::{Session, Transaction};

/// How long the last words of a server are waited for when its socket has something.
const LAST_WORDS_MAX: Duration = Duration::from_millis(100);
/// Notifications are asked for once more before a session ends; a server that does not answer has none.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(5);

/// The error with which a session ends that has lost this.
pub(crate) fn lost(what: Pins) -> Fault {
    let message = format!(
        "terminating connection: the server connection that held the session's state ({}) is lost",
        what.words()
    );
    let hint = "Connect again, and recreate temporary objects, locks, cursors, LISTEN and settings. \
                No statement of the session ran on another connection.";
    Fault::Fatal(Refusal::new(sqlstate::ADMIN_SHUTDOWN, message, hint))
}

impl Server {
    /// An update transaction of the session begins here.
    pub(crate) fn move_in(&self, session: SessionId) -> Tenancy {
        let tenancy = self.evictions.move_in(self.running.pid, session);
        if !self.pins.held().is_empty() {
            tenancy.hold();
        }
        tenancy
    }
}

impl Servers {
    /// What of the session was on a connection that is gone or cannot be used any more, and nowhere else.
    pub(crate) fn lost_state(&mut self, hub: &Hub) -> Option<Pins> {
        let anchor = hub.anchor();
        for server in self.all.iter().flatten() {
            let held = server.pins.held();
            let is_usable = || {
                let seat = &hub.seats[usize::from(server.replica.0)];
                server.replica == anchor
                    && !hub.clients.is_leaving(anchor)
                    && seat.proof_of(server.incarnation).is_some()
            };
            if !held.is_empty() && !is_usable() {
                self.lost = self.lost.with(held);
            }
        }
        (!self.lost.is_empty()).then_some(self.lost)
    }

    /// Waits until one of the connections that hold something says something, or ends.
    pub(crate) async fn heard(&mut self) -> (ReplicaId, std::io::Result<()>) {
        std::future::poll_fn(|context| {
            for server in self.all.iter_mut().flatten() {
                if server.pins.held().is_empty() {
                    continue;
                }
                let filling = pin!(server.connection.listen());
                if let Poll::Ready(filled) = filling.poll(context) {
                    return Poll::Ready((server.replica, filled));
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl Session {
    /// Ends the session if something of it is lost that it had on one connection alone.
    pub(crate) fn keep_state(&mut self) -> Result<(), Fault> {
        match self.servers.lost_state(&self.worker.hub) {
            Some(what) => Err(lost(what)),
            None => Ok(()),
        }
    }

    /// A connection that holds something has said something while nothing was asked, or has ended.
    pub(crate) fn take_unasked(&mut self, replica: ReplicaId, has_ended: bool) -> Result<(), Fault> {
        let Some(server) = self.servers.find(replica) else { return Ok(()) };
        if has_ended {
            self.servers.close(replica);
        } else if let Err(fault) = Relay::new(&mut self.client, server, None).idle() {
            self.servers.close(replica);
            if let Fault::Fatal(_) = fault {
                return Err(fault);
            }
        }
        self.keep_state()
    }

    /// The client has said something: before that is looked at, what its connections have said is. One that has ended
    /// may not have been noticed yet.
    pub(crate) async fn hear_servers(&mut self) -> Result<(), Fault> {
        for number in self.servers.numbers() {
            let Some(replica) = self.servers.held(number) else { continue };
            while let Some(server) = self.servers.find(replica)
                && !server.pins.held().is_empty()
                && !server.connection.is_quiet()
            {
                // What is encrypted may be no message at all.
                let Ok(filled) = tokio::time::timeout(LAST_WORDS_MAX, server.connection.listen()).await
                else {
                    break;
                };
                self.take_unasked(replica, filled.is_err())?;
            }
        }
        self.keep_state()
    }

    /// Whether the connection to a replica holds something, and waits for a command.
    fn is_worth_keeping(&mut self, replica: ReplicaId) -> bool {
        self.servers
            .find(replica)
            .is_some_and(|server| !server.pins.held().is_empty() && server.connection.is_in_step())
    }

    /// The open update transaction is over, as its connection is not: what the session has there is kept, and only the
    /// transaction is rolled back. Without anything to be kept the connection is closed, which takes no time.
    pub(crate) async fn step_back(&mut self) {
        let Transaction::Update(update) = &self.transaction else { return };
        let (replica, options, is_implicit) = (update.replica, update.options, update.is_implicit);
        if !self.is_worth_keeping(replica) {
            return self.abandon_home();
        }
        Box::pin(self.roll_back_home()).await;
        if let Some(server) = self.servers.find(replica) {
            // A refresh may have sent it away at the same time.
            server.evictions.take(server.running.pid);
            if !server.connection.is_at_rest() {
                self.servers.close(replica);
            }
        }
        if !is_implicit {
            self.lose(options);
        }
    }

    /// An exchange in the open update transaction has failed. After a fault of the connection that is given up.
    pub(crate) async fn leave_home(&mut self, fault: &Fault) {
        match fault {
            Fault::Evicted => self.step_back().await,
            _ => self.abandon_home(),
        }
    }

    /// The session ends: what was notified before the anchor moved, say, has been sent to its connection by the time this is
    /// answered.
    pub(crate) async fn last_notifications(&mut self) -> Vec<u8> {
        let mut news = Vec::new();
        for server in self.servers.iter_mut() {
            if server.pins.has(Pin::Listen) && server.connection.is_at_rest() {
                let _ = tokio::time::timeout(LAST_ANSWER_MAX, server.ask("")).await;
                news.append(&mut server.connection.notifications);
            }
        }
        news
    }
}
