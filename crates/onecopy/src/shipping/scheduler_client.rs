//! A session's connection with the scheduler, and the signals that end the session.

use std::sync::Arc;

use cluster::ids::SessionId;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use wire::sqlstate;

use super::connections::SessionConnections;
use super::request::{Answer, Remains, RequestOutcome, RequestRejected, SessionRequest};
use super::scheduling::{LockTime, PAUSE, Scheduling};
use crate::client::cancel::{CancelState, CancelTarget};
use crate::coordinator::mailbox::{End, Mailbox, Note};
use crate::error::{Fault, Refusal};

/// A session, as the scheduler knows it.
pub(super) struct SchedulerClient {
    pub(super) shipping: Arc<dyn Scheduling>,
    pub(super) id: SessionId,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) cancel: Arc<CancelTarget>,
    connections: Arc<SessionConnections>,
    outcomes: mpsc::UnboundedReceiver<RequestOutcome>,
    ending: Option<End>,
    /// The scheduler has aborted the open transaction, and the session does not know it yet.
    gave_up: bool,
}

fn store_is_full() -> Refusal {
    let text = "too many statements are kept for replicas that have not run them yet";
    let hint = "Try again later, with less in a transaction. SHOW REPLICAS shows which replica is behind.";
    Refusal::new(sqlstate::CONFIGURATION_LIMIT_EXCEEDED, text, hint)
}

impl SchedulerClient {
    /// Registers a session with the scheduler.
    pub(super) fn register(
        shipping: &Arc<dyn Scheduling>,
        id: SessionId,
        mailbox: Arc<Mailbox>,
        cancel: Arc<CancelTarget>,
        connections: &Arc<SessionConnections>,
    ) -> Self {
        let outcomes = shipping.open_session(id, Arc::clone(connections));
        let (shipping, connections) = (Arc::clone(shipping), Arc::clone(connections));
        Self { shipping, id, mailbox, cancel, connections, outcomes, ending: None, gave_up: false }
    }

    /// When the scheduler wants to know tables.
    pub(super) fn lock_time(&self) -> LockTime {
        self.shipping.lock_time()
    }

    /// Whether the scheduler has aborted the open transaction since the last call.
    pub(super) fn take_given_up(&mut self) -> bool {
        std::mem::take(&mut self.gave_up)
    }

    /// Notes an order to end the session.
    pub(super) fn note_end(&mut self, end: End) {
        self.ending = self.ending.max(Some(end));
    }

    /// Fails if the session must end and may end now.
    pub(super) fn check_ending(&self, is_in_transaction: bool) -> Result<(), Fault> {
        let why = match self.ending {
            Some(End::Killed) => "the session was ended by an administrator",
            Some(End::Now) => "the node is stopping",
            Some(End::Succession | End::AfterTransaction) if !is_in_transaction => "the node is stopping",
            _ => return Ok(()),
        };
        Err(Fault::Fatal(Refusal::plain(sqlstate::ADMIN_SHUTDOWN, format!("terminating connection: {why}"))))
    }

    /// Passes a request to the scheduler and waits for its outcome. `None` if the session has to choose its locks
    /// again, because another session had the exclusive turn.
    pub(super) async fn request(
        &mut self,
        request: SessionRequest,
        generation: u64,
        is_in_transaction: bool,
    ) -> Result<Option<RequestOutcome>, Fault> {
        let mut changes = self.shipping.changes();
        match Arc::clone(&self.shipping).request(self.id, request, generation) {
            Ok(()) => {}
            Err(RequestRejected::TryLater) => {
                self.wait_for(&mut changes, is_in_transaction).await?;
                return Ok(None);
            }
            Err(RequestRejected::StoreIsFull) => return Err(store_is_full().into()),
            Err(RequestRejected::Unled) => {
                let text = "no node leads at present";
                let hint =
                    "Try again in a moment. If that lasts, look whether a majority of etcd's members is up.";
                return Err(Refusal::new(sqlstate::CANNOT_CONNECT_NOW, text, hint).into());
            }
        }
        self.cancel.set(CancelState::Waiting);
        let outcome = self.outcome().await?;
        self.cancel.set(CancelState::Nothing);
        match outcome.answer {
            Answer::Done => Ok(Some(outcome)),
            Answer::Failed => {
                self.gave_up = true;
                Ok(Some(outcome))
            }
            Answer::Refused => {
                let text = "too many transactions are under way";
                Err(Refusal::new(sqlstate::CONFIGURATION_LIMIT_EXCEEDED, text, "Try again later.").into())
            }
            Answer::Lost(remains) => {
                self.gave_up = remains == Remains::Nothing;
                Err(Refusal::retry("no replica takes part that could run the statement").into())
            }
            Answer::NotHeld(tables) => {
                let coordinator = self.shipping.coordinator();
                let catalogue = coordinator.database.catalogue();
                let known = tables.iter().filter(|table| catalogue.table(**table).is_some());
                let names: Vec<String> = known.map(|table| coordinator.table_name(*table)).collect();
                let text =
                    format!("the tables of this statement are not held together: {}", names.join(", "));
                let hint = "A read needs a replica with all its tables, and a write needs them at each holder of what it writes. SHOW PLACEMENT says what each replica holds.";
                Err(Refusal::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, text, hint).into())
            }
            Answer::Again => {
                self.wait_for(&mut changes, is_in_transaction).await?;
                Ok(None)
            }
            Answer::StoreIsFull => Err(store_is_full().into()),
            Answer::LeaderLost => {
                self.gave_up = true;
                Err(Refusal::retry("another node leads now, and the transaction is rolled back").into())
            }
            Answer::Deadlock => {
                self.gave_up = true;
                let hint = "The transaction was the youngest of a cycle of transactions that waited for each other. Retry it.";
                Err(Refusal::new(sqlstate::DEADLOCK_DETECTED, "deadlock detected", hint).into())
            }
        }
    }

    async fn outcome(&mut self) -> Result<RequestOutcome, Fault> {
        loop {
            tokio::select! {
                outcome = self.outcomes.recv() => return outcome.ok_or(Fault::Client),
                note = self.mailbox.next() => match note {
                    Note::End(end) => self.note_end(end),
                    Note::Cancel => self.connections.cancel_read().await,
                    Note::Effect(_) | Note::Drained => {}
                }
            }
        }
    }

    /// Waits until no other session may begin a transaction.
    pub(super) async fn acquire_exclusive(&mut self, is_in_transaction: bool) -> Result<(), Fault> {
        loop {
            let mut changes = self.shipping.changes();
            if self.shipping.acquire_exclusive(self.id) {
                return Ok(());
            }
            self.wait_for(&mut changes, is_in_transaction).await?;
        }
    }

    /// Waits until all transactions are over at all replicas.
    pub(super) async fn wait_idle(&mut self, is_in_transaction: bool) -> Result<(), Fault> {
        loop {
            let mut changes = self.shipping.changes();
            if self.shipping.is_idle() {
                return Ok(());
            }
            self.wait_for(&mut changes, is_in_transaction).await?;
        }
    }

    /// Releases the exclusive turn, if this session has it.
    pub(super) fn release_exclusive(&self) {
        self.shipping.release_exclusive(self.id);
    }

    /// Waits until something has changed that this session may wait for.
    async fn wait_for(
        &mut self,
        changes: &mut watch::Receiver<u64>,
        is_in_transaction: bool,
    ) -> Result<(), Fault> {
        tokio::select! {
            _ = changes.changed() => {}
            // The end of a transaction is not counted among the changes.
            () = sleep(PAUSE) => {}
        }
        if let Some(Note::End(end)) = self.mailbox.try_next() {
            self.note_end(end);
            self.check_ending(is_in_transaction)?;
        }
        Ok(())
    }
}
