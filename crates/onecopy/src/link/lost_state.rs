//! State that a session has on one server connection alone. When that connection is lost, the session ends before
//! Onecopy runs its statements on another connection ([`crate::pool::pinned_state`]).

use std::time::Duration;

use cluster::ids::ReplicaId;

use crate::error::Fault;
use crate::link::Link;
use crate::local::pins::Pin;
use crate::pool::pinned_state::lost;
use crate::relay::Relay;

/// How long to wait for the last message of a server whose socket is readable.
const LAST_WORDS_MAX: Duration = Duration::from_millis(100);

/// How long to wait for pending notifications when a session ends.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(5);

impl Link {
    /// The error that ends a session whose only copy of some state is lost.
    pub(crate) fn keep_state(&mut self) -> Result<(), Fault> {
        match self.servers.lost_state(&self.worker.coordinator) {
            Some(what) => Err(lost(what)),
            None => Ok(()),
        }
    }

    /// Handles an unrequested message, or the end, of a pinned connection.
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

    /// Handles messages of pinned connections before a message of the client, since such a connection may have ended
    /// unnoticed.
    pub(crate) async fn hear_servers(&mut self) -> Result<(), Fault> {
        for number in self.servers.numbers() {
            let Some(replica) = self.servers.held(number) else { continue };
            while let Some(server) = self.servers.find(replica)
                && !server.pins.held().is_empty()
                && !server.connection.is_quiet()
            {
                // Encrypted bytes may hold no message at all.
                let Ok(filled) = tokio::time::timeout(LAST_WORDS_MAX, server.connection.listen()).await
                else {
                    break;
                };
                self.take_unasked(replica, filled.is_err())?;
            }
        }
        self.keep_state()
    }

    /// Whether the connection to a replica holds state of the session, and waits for a command.
    pub(crate) fn is_worth_keeping(&mut self, replica: ReplicaId) -> bool {
        self.servers
            .find(replica)
            .is_some_and(|server| !server.pins.held().is_empty() && server.connection.is_in_step())
    }

    /// The last notifications of a session that ends. A notification that was sent before the anchor moved, for
    /// instance, has reached its connection by the time the server answers.
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
