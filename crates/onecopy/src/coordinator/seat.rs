//! One replica as the node's tasks know it: where it is, how to prove that a connection is of its present run, and what
//! its agent and its sessions share.
//!
//! Invariant: from the moment the server is given up no connection of before can be proven, and none stays open.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cluster::ids::{Incarnation, ReplicaId};
use tokio::sync::{Notify, mpsc};

use super::absence::Absence;
use super::evictions::Evictions;
use super::replica_address::ReplicaAddress;
use super::requests::{AGENT_QUEUE, AgentOrder, SupervisorOrder};
use super::resync_progress::ResyncStage;
use crate::backend::{Address, ConnectionList};

/// Where a replica is, and what its present set of connections is called.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Its number.
    pub(crate) replica: ReplicaId,
    /// The name that people use.
    pub(crate) name: String,
    /// Its own TCP address.
    pub(crate) host: String,
    /// Its own TCP port.
    pub(crate) port: u16,
    /// Its Unix socket.
    pub(crate) address: Address,
    /// Incarnation, and the query that proves at log-in that the server has not restarted since.
    pub(crate) proof: Mutex<(Incarnation, String)>,
    /// Wakes tasks that wait for the server when it is given up.
    ended: Notify,
    /// Sessions' backends that were sent away for a refresh.
    pub(crate) evictions: Arc<Evictions>,
    /// How long a read may hold a refresh up here, in milliseconds.
    pub(crate) reader_patience_ms: Arc<AtomicU64>,
    /// The sessions' connections.
    pub(crate) connections: ConnectionList,
    /// The way to whoever looks after the server, if it is one of ours.
    pub(crate) errands: OnceLock<mpsc::Sender<SupervisorOrder>>,
    /// What its rebuild is at.
    pub(super) stage: Mutex<Option<ResyncStage>>,
    /// It is connected, and brought up to the log before it serves.
    pub(crate) is_catching_up: AtomicBool,
    /// Why it is not there, while it is down.
    pub(crate) absence: Absence,
    /// It was a member.
    pub(super) has_left: AtomicBool,
    /// It joined while the node ran, and has not been up yet.
    pub(crate) is_new: AtomicBool,
    /// Its sequences may stand in ranges that it was lent.
    pub(crate) is_lent: AtomicBool,
    orders: mpsc::Sender<AgentOrder>,
}

impl Seat {
    /// A replica that is not connected yet, and the queue of its agent.
    pub(crate) fn new(at: ReplicaAddress) -> (Self, mpsc::Receiver<AgentOrder>) {
        let ReplicaAddress { replica, name, host, port, address } = at;
        let (orders, queue) = mpsc::channel(AGENT_QUEUE);
        let proof = Mutex::new((Incarnation::default(), String::new()));
        let seat = Self {
            replica,
            name,
            host,
            port,
            address,
            proof,
            ended: Notify::new(),
            evictions: Arc::default(),
            reader_patience_ms: Arc::default(),
            connections: ConnectionList::default(),
            errands: OnceLock::new(),
            stage: Mutex::default(),
            is_catching_up: AtomicBool::new(false),
            absence: Absence::default(),
            has_left: AtomicBool::new(false),
            is_new: AtomicBool::new(false),
            is_lent: AtomicBool::new(false),
            orders,
        };
        (seat, queue)
    }

    /// Puts an order into the queue of the agent.
    pub(crate) fn order(&self, order: AgentOrder) {
        if self.orders.try_send(order).is_err() {
            tracing::error!(replica = %self.replica.0, "an agent does not take its orders");
        }
    }

    /// The server is given up: no connection of before is good any more, and whoever waits on one is woken.
    pub(crate) fn give_up(&self) {
        *self.proof.lock().unwrap_or_else(PoisonError::into_inner) = (Incarnation::default(), String::new());
        self.ended.notify_waiters();
        let cut = self.connections.cut();
        tracing::debug!(replica = %self.name, connections = cut, "cut");
    }

    /// Runs `work` with a server of this incarnation; `None` if the server is given up meanwhile. A connection that is being
    /// opened is not among the `lines` yet, and a server whose postmaster hangs never answers it.
    pub(crate) async fn unless_given_up<W: Future>(
        &self,
        incarnation: Incarnation,
        work: W,
    ) -> Option<W::Output> {
        let mut ended = pin!(self.ended.notified());
        ended.as_mut().enable();
        if incarnation == Incarnation::default() || self.incarnation() != incarnation {
            return None;
        }
        tokio::select! {
            biased;
            done = work => Some(done),
            () = ended => None,
        }
    }

    /// The present incarnation; the default one while the server is given up.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.proof.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// The query that must return a row on a connection of this incarnation; `None` when it is not the present one.
    pub(crate) fn proof_of(&self, incarnation: Incarnation) -> Option<String> {
        let proof = self.proof.lock().unwrap_or_else(PoisonError::into_inner);
        (proof.0 == incarnation).then(|| proof.1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn seat() -> Seat {
        let address = Address::Unix { socket_dir: "/nowhere".into(), port: 5432 };
        let (name, host) = ("replica-1".to_owned(), "127.0.0.1".to_owned());
        let (seat, _) = Seat::new(ReplicaAddress { replica: ReplicaId(0), name, host, port: 5432, address });
        *seat.proof.lock().unwrap() = (Incarnation(7), "SELECT".to_owned());
        seat
    }

    #[tokio::test]
    async fn whatever_waits_for_a_server_ends_when_that_is_given_up() {
        let seat = seat();
        assert_eq!(seat.unless_given_up(Incarnation(7), std::future::ready(1)).await, Some(1));
        assert_eq!(seat.unless_given_up(Incarnation(6), std::future::ready(1)).await, None);
        let waiting = seat.unless_given_up(Incarnation(7), std::future::pending::<()>());
        let (waited, ()) = tokio::join!(tokio::time::timeout(Duration::from_mins(1), waiting), async {
            tokio::task::yield_now().await;
            seat.give_up();
        });
        assert_eq!(waited, Ok(None));
        assert_eq!(seat.unless_given_up(seat.incarnation(), std::future::ready(1)).await, None);
    }
}
