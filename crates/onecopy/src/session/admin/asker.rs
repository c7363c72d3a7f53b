//! The one that waits for the answer to a command: a client of this node, or another node on behalf of one of its clients.

use wire::{encode, sqlstate};

use crate::client::Client;
use crate::coordinator::dispatch::{Part, Replies};

/// The one that waits for an answer.
pub(super) enum Asker<'a> {
    Client(&'a mut Client),
    Node(&'a mut Replies),
}

/// Whether someone still waits for the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    Waits,
    Gone,
}

impl Asker<'_> {
    /// Tells how far the command is.
    pub(super) async fn notice(&mut self, text: &str) -> Presence {
        self.tell("NOTICE", sqlstate::SUCCESS, text).await
    }

    /// Tells of something that did not go as it should.
    pub(super) async fn warn(&mut self, text: &str) -> Presence {
        self.tell("WARNING", sqlstate::WARNING, text).await
    }

    async fn tell(&mut self, severity: &str, code: &str, text: &str) -> Presence {
        let is_told = match self {
            Self::Client(client) => {
                encode::notice(&mut client.out, severity, code, text, None);
                client.flush().await.is_ok()
            }
            Self::Node(replies) => {
                let (severity, sqlstate, text) = (severity.to_owned(), code.to_owned(), text.to_owned());
                replies.send(Part::Notice { severity, sqlstate, text }).await.is_ok()
            }
        };
        if is_told {
            return Presence::Waits;
        }
        tracing::debug!("the client that has said the command has gone");
        Presence::Gone
    }
}
