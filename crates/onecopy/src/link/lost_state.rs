//! State that a session has on one server connection alone: when that connection is lost, the session ends before
//! Onecopy runs anything of it on another connection ([`crate::pool::pinned_state`]).

use std::time::Duration;

use cluster::ids::ReplicaId;

use crate::error::Fault;
use crate::link::Link;
use crate::local::pins::Pin;
use crate::pool::pinned_state::lost;
use crate::relay::Relay;

/// How long the last words of a server are waited for when its socket has something.
const LAST_WORDS_MAX: Duration = Duration::from_millis(100);

/// Notifications are asked for once more before a session ends; a server that does not answer has none.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(5);

impl Link {
    /// Ends the session if something of it is lost that it had on one connection alone.
    pub(crate) fn keep_state(&mut self) -> Result<(), Fault> {
        match self.servers.lost_state(&self.worker.coordinator) {
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
    pub(crate) fn is_worth_keeping(&mut self, replica: ReplicaId) -> bool {
        self.servers
            .find(replica)
            .is_some_and(|server| !server.pins.held().is_empty() && server.connection.is_in_step())
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
