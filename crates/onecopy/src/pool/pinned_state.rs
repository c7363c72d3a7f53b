//! State that a session has on one server connection alone ([`crate::local::pins`]): when the connection is lost, the session ends
//! before a statement of it runs on another connection.
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

use cluster::ids::{ReplicaId, SessionId};
use wire::sqlstate;

use super::servers::{Server, Servers};
use crate::coordinator::Coordinator;
use crate::coordinator::evictions::Tenancy;
use crate::error::{Fault, Refusal};
use crate::local::pins::Pins;

/// The error that ends a session that has lost this state.
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
    /// Notes that an update transaction of the session begins here.
    pub(crate) fn move_in(&self, session: SessionId) -> Tenancy {
        let tenancy = self.registration.evictions.move_in(self.registration.running.pid, session);
        if !self.pins.held().is_empty() {
            tenancy.hold();
        }
        tenancy
    }
}

impl Servers {
    /// State that was only on a connection that is gone or cannot be used any more.
    pub(crate) fn lost_state(&mut self, coordinator: &Coordinator) -> Option<Pins> {
        let anchor = coordinator.view.anchor();
        for server in self.all.iter().flatten() {
            let held = server.pins.held();
            let is_usable = || {
                let seat = &coordinator.seats[usize::from(server.replica.0)];
                server.replica == anchor
                    && !coordinator.local.sessions.is_leaving(anchor)
                    && seat.proof_of(server.incarnation).is_some()
            };
            if !held.is_empty() && !is_usable() {
                self.lost = self.lost.with(held);
            }
        }
        (!self.lost.is_empty()).then_some(self.lost)
    }

    /// Waits until a connection that holds state receives bytes, or ends.
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
