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

use wire::sqlstate;

use super::server::Server;
use crate::coordinator::Coordinator;
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

/// State that was only on connections that are gone or cannot be used any more.
#[derive(Debug, Default)]
pub(crate) struct LostState(Pins);

impl LostState {
    /// The session has closed a connection.
    pub(super) fn note_closed(&mut self, server: &Server) {
        self.0 = self.0.with(server.pins.held());
    }

    /// Looks at the open connections, too. None if nothing is lost.
    pub(super) fn among<'a>(
        &mut self,
        servers: impl Iterator<Item = &'a Server>,
        coordinator: &Coordinator,
    ) -> Option<Pins> {
        let anchor = coordinator.view.anchor();
        for server in servers {
            let is_usable = || {
                let seat = &coordinator.seats[usize::from(server.replica.0)];
                server.replica == anchor
                    && !coordinator.local.sessions.is_leaving(anchor)
                    && seat.run.has_backend(server.incarnation, server.pid())
            };
            if !server.pins.held().is_empty() && !is_usable() {
                self.note_closed(server);
            }
        }
        (!self.0.is_empty()).then_some(self.0)
    }
}
