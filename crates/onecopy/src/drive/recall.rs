//! A transaction that the core recalls, because an older one that conflicts goes first (protocol `preventive`, section 5.1 of the
//! paper: "abort").
//!
//! Example: `CALL pay(3)` with the stamp 105 runs when a message brings one with the stamp 100. Its statement is cancelled and rolled
//! back at home. The core lets it run again when the older one is shown there, with the same stamp and identity. The client notices
//! only that it took longer.
//!
//! Invariant: a transaction of which the client has seen anything fails with 40001 instead.

use cluster::event::{AbortCause, Rival};

use crate::drive::Driver;
use crate::error::Fault;
use crate::relay::{Expected, Relay};
use crate::transaction::open::Transaction;
use crate::transaction::update::Boundary;

/// Replies to messages of ours that may be on their way when a statement is cancelled: those to the insert of the identity.
const REPLIES_MAX: usize = 2;

impl Driver<'_> {
    /// Whether the core has recalled the open transaction, and the session has not followed yet.
    pub(crate) fn is_recalled(&self) -> bool {
        self.link.client.may_be_recalled && self.link.session_registration.mailbox.call.is_recalled()
    }

    /// Rolls the recalled transaction back. Returns [`Fault::Recalled`] if it may run again, otherwise the error for its client.
    pub(crate) async fn follow_recall(&mut self) -> Fault {
        self.link.session_registration.mailbox.call.forget_recall();
        let Transaction::Update(update) = &self.txn.state else { return Fault::Lost(self.txn.last_home) };
        if update.boundary == Boundary::Statement && !self.link.client.shown {
            Box::pin(self.undo_home()).await;
            self.txn.retry_hints.is_recalled = true;
            return Fault::Recalled;
        }
        let cause = AbortCause::Conflict(Rival::default());
        let fault = self.view().aborted(cause, self.txn.last_home);
        Box::pin(self.step_back()).await;
        fault
    }

    /// Rolls the open update transaction back at its home, without a word to the core.
    async fn undo_home(&mut self) {
        let home = self.view().home();
        let mut replies = 0;
        while let Some(server) = self.link.servers.find(home) {
            let is_in_step = server.connection.is_in_step();
            if is_in_step {
                server.query_own("ROLLBACK");
            }
            replies += 1;
            let relay = Relay::new(&mut self.link.client, server, None);
            let ended = relay.run(Expected::silent()).await;
            if ended.is_err() || replies > REPLIES_MAX {
                self.link.servers.close(home);
            } else if is_in_step {
                break;
            }
        }
        self.end_local(false);
    }
}
