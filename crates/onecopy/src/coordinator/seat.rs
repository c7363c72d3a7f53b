//! One replica as the tasks of the node see it, grouped by the tasks that use each part: its address for all tasks,
//! [`ServerRun`] for connections, evictions for the agent and sessions, and the channels to the tasks that own the
//! server.

mod member_state;
mod server_run;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use cluster::ids::ReplicaId;
use tokio::sync::mpsc;

use super::absence::Absence;
use super::evictions::{Evictions, EvictionsByReplica};
use super::replica_address::ReplicaAddress;
use super::requests::{AGENT_QUEUE, AgentOrder, SupervisorOrder};
use super::resync_progress::ResyncStage;
use crate::backend::Address;
use member_state::MemberCell;

pub(crate) use member_state::MemberState;
pub(crate) use server_run::{RunProof, ServerRun};

/// A replica that is or was a member while the node runs.
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
    /// The address at which Onecopy connects.
    pub(crate) address: Address,
    member: MemberCell,
    /// The run of its server, for connections.
    pub(crate) run: ServerRun,
    /// Backends of sessions that were evicted for a refresh.
    pub(crate) evictions: Arc<Evictions>,
    /// How long a read may hold a refresh up here, in milliseconds.
    pub(crate) reader_patience_ms: Arc<AtomicU64>,
    /// The positions of its sequences may lie in ranges that it was leased.
    pub(crate) is_lent: AtomicBool,
    /// The reason why it does not serve, while it is down.
    pub(crate) absence: Absence,
    /// The stage of its resync.
    pub(super) stage: Mutex<Option<ResyncStage>>,
    /// The channel to the supervisor of the server, if this node runs the server.
    pub(crate) supervisor: OnceLock<mpsc::Sender<SupervisorOrder>>,
    orders: mpsc::Sender<AgentOrder>,
}

impl Seat {
    /// A member that is not connected yet, and the queue of its agent.
    pub(crate) fn new(
        at: ReplicaAddress,
        evictions: &EvictionsByReplica,
    ) -> (Self, mpsc::Receiver<AgentOrder>) {
        Self::of(at, MemberState::Member, evictions)
    }

    /// A replica that joins while the node runs, and the queue of its agent.
    pub(super) fn joining(
        at: ReplicaAddress,
        evictions: &EvictionsByReplica,
    ) -> (Self, mpsc::Receiver<AgentOrder>) {
        Self::of(at, MemberState::New, evictions)
    }

    /// A member, for sessions that reach the core over a link. No agent takes orders from there.
    pub(super) fn of_session(at: ReplicaAddress, evictions: &EvictionsByReplica) -> Self {
        Self::of(at, MemberState::Member, evictions).0
    }

    /// Where its server listens.
    pub(crate) fn address(&self) -> ReplicaAddress {
        let Self { replica, name, host, port, address, .. } = self;
        let (replica, name, host, port, address) =
            (*replica, name.clone(), host.clone(), *port, address.clone());
        ReplicaAddress { replica, name, host, port, address }
    }

    fn of(
        at: ReplicaAddress,
        state: MemberState,
        evictions: &EvictionsByReplica,
    ) -> (Self, mpsc::Receiver<AgentOrder>) {
        let ReplicaAddress { replica, name, host, port, address } = at;
        let (orders, queue) = mpsc::channel(AGENT_QUEUE);
        let seat = Self {
            replica,
            name,
            host,
            port,
            address,
            member: MemberCell::new(state),
            run: ServerRun::default(),
            evictions: evictions.of(replica),
            reader_patience_ms: Arc::default(),
            is_lent: AtomicBool::new(false),
            absence: Absence::default(),
            stage: Mutex::default(),
            supervisor: OnceLock::new(),
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

    pub(crate) fn member_state(&self) -> MemberState {
        self.member.get()
    }

    /// The replica is up and serves.
    pub(crate) fn arrive(&self) {
        self.member.arrive();
        self.absence.end_catching_up();
    }

    /// The replica is no longer a member.
    pub(super) fn leave(&self) {
        self.member.leave();
    }

    /// Its server is given up ([`ServerRun::give_up`]).
    pub(crate) fn give_up(&self) {
        let connections = self.run.give_up();
        tracing::debug!(replica = %self.name, connections, "cut");
    }
}
