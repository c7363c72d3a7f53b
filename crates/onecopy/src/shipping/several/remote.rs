//! The scheduler at the leader, as the sessions of a node see it ([`Scheduling`]).
//!
//! Requests go out on the link and are answered on it ([`crate::coordinator::scheduler_messages`]). What runs at the replicas runs here, on connections of the
//! sessions ([`super::link_lanes`]). Sessions outlive terms: what they were doing when the link ended is in [`super::remote_slots`].
//!
//! Invariant: what is under way belongs to one link. Nothing of a former link is reported on the next one.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cluster::ids::SessionId;
use cluster::protocols::shipping::{SequenceNumber, Work};
use tokio::sync::{mpsc, watch};

use super::link_lanes::LinkLanes;
use super::remote_slots::RemoteSlot;
use super::remote_state::{Link, RemoteLane, RemoteState};
use crate::coordinator::Coordinator;
use crate::coordinator::scheduler_messages::{Participation, Performed, ToCrew, ToScheduler};
use crate::shipping::connections::SessionConnections;
use crate::shipping::lane::{self, Job};
use crate::shipping::replica_run::{LaneHost, ReplicaHost, ReplicaRun};
use crate::shipping::request::{RequestOutcome, RequestRejected, SessionRequest};
use crate::shipping::scheduling::{LockTime, Scheduling, SchemaRead};
use crate::shipping::statement_store::MemoryLimits;

/// The way of this node's sessions to the scheduler.
pub(crate) struct RemoteScheduler {
    state: Mutex<RemoteState>,
    coordinator: OnceLock<Arc<Coordinator>>,
    limits: MemoryLimits,
    /// Counts the changes that a session may wait for.
    changes: watch::Sender<u64>,
    /// The generation of the catalogue that the leader has named last.
    wanted_generation: watch::Sender<u64>,
    /// The generation that every node has.
    known_generation: watch::Sender<u64>,
}

impl Default for RemoteScheduler {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            coordinator: OnceLock::new(),
            limits: MemoryLimits::from_environment(),
            changes: watch::channel(0).0,
            wanted_generation: watch::channel(0).0,
            known_generation: watch::channel(0).0,
        }
    }
}

impl ReplicaHost for RemoteScheduler {
    fn coordinator(&self) -> &Arc<Coordinator> {
        self.coordinator.get().expect("the coordinator is attached before the first session")
    }

    fn is_present(&self, run: ReplicaRun) -> bool {
        self.lock().is_present(run)
    }
}

impl Scheduling for RemoteScheduler {
    fn lock_time(&self) -> LockTime {
        LockTime::AtBegin
    }

    fn any_up(&self) -> Option<ReplicaRun> {
        let state = self.lock();
        let up = state.replicas.iter().find(|replica| replica.is_up)?;
        Some(up.run)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        let mut changes = self.changes.subscribe();
        changes.mark_unchanged();
        changes
    }

    fn open_session(
        &self,
        session: SessionId,
        connections: Arc<SessionConnections>,
    ) -> mpsc::UnboundedReceiver<RequestOutcome> {
        let (outcomes, received) = mpsc::unbounded_channel();
        self.lock().sessions.insert(session, RemoteSlot::new(connections, outcomes));
        received
    }

    fn close_session(&self, session: SessionId) {
        let mut state = self.lock();
        if let Some(slot) = state.sessions.remove(&session) {
            slot.connections.close();
        }
        state.send(ToScheduler::Closed { session });
        drop(state);
        self.changed();
    }

    fn acquire_exclusive(&self, session: SessionId) -> bool {
        let state = self.lock();
        if state.turn == Some(session) {
            return true;
        }
        state.send(ToScheduler::WantsTurn { session });
        false
    }

    fn release_exclusive(&self, session: SessionId) {
        let mut state = self.lock();
        if state.turn.take_if(|holder| *holder == session).is_some() {
            state.send(ToScheduler::EndsTurn { session });
        }
        drop(state);
        self.changed();
    }

    fn is_idle(&self) -> bool {
        // Only schedulers that want tables with each statement are asked; the schema is read by `read_schema`.
        false
    }

    fn change_schema(&self) -> Option<SchemaRead> {
        let before = *self.wanted_generation.borrow();
        let mut known = self.known_generation.subscribe();
        self.lock().send(ToScheduler::ChangedSchema);
        Some(Box::pin(async move {
            // The next leader names a later generation anyway. The sender lives as long as the process.
            let _ = known.wait_for(|known| *known > before).await;
        }))
    }

    fn request(
        self: Arc<Self>,
        session: SessionId,
        request: SessionRequest,
        generation: u64,
    ) -> Result<(), RequestRejected> {
        let is_leaderless = self.coordinator().core.is_leaderless();
        let mut state = self.lock();
        let is_linked = state.link.is_some();
        let Some(slot) = state.sessions.get_mut(&session) else { return Ok(()) };
        if slot.answer_void(&request) {
            return Ok(());
        }
        if !is_linked {
            return Err(if is_leaderless { RequestRejected::Unled } else { RequestRejected::TryLater });
        }
        state.request(session, request, generation);
        Ok(())
    }
}

impl RemoteScheduler {
    /// Sets what the sessions of this process share.
    pub(crate) fn attach(&self, coordinator: &Arc<Coordinator>) {
        self.lock().attach(coordinator);
        let is_first = self.coordinator.set(Arc::clone(coordinator)).is_ok();
        debug_assert!(is_first, "a process has one coordinator of sessions");
    }

    /// The catalogue of this node has this generation.
    pub(super) fn tell_known(&self, generation: u64) {
        self.lock().send(ToScheduler::KnowsSchema { generation });
    }

    /// The generations of the catalogue that leaders name.
    pub(super) fn wanted_generations(&self) -> watch::Receiver<u64> {
        self.wanted_generation.subscribe()
    }

    /// The link has ended: what was under way is over, and sessions get what they are owed for it.
    pub(super) fn link_lost(&self) {
        self.lock().lose_link();
        // Who waits for the others goes on: the next leader does not let them begin without its schema.
        self.known_generation.send_replace(u64::MAX);
        self.changed();
    }

    /// The leader says something.
    pub(super) fn hear(self: &Arc<Self>, message: ToCrew) {
        let mut state = self.lock();
        match message {
            ToCrew::Welcome(welcome) => {
                state.replicas = welcome.replicas;
                state.link = Some(Link { crew: welcome.crew, voucher: welcome.voucher });
                self.known_generation.send_replace(0);
                self.wanted_generation.send_replace(welcome.generation);
                state.ask_outcomes();
            }
            ToCrew::Begun { session, identity } => {
                state.begin(session, SequenceNumber(identity.n));
                if let Some(slot) = state.sessions.get_mut(&session) {
                    slot.begun(identity);
                }
                return;
            }
            ToCrew::Perform(performed) => return self.perform(&mut state, &performed),
            ToCrew::Answer { session, answer } => return state.answer(session, answer),
            ToCrew::Joined { run } => {
                state.show(Participation { run, is_up: true });
            }
            ToCrew::Lost { run, next } => {
                let replica = run.replica;
                state.lanes.retain(|(at, _), _| *at != replica);
                state.show(Participation { run: ReplicaRun { replica, incarnation: next }, is_up: false });
            }
            ToCrew::Turn { session } => state.turn = Some(session),
            ToCrew::Over { number } => return state.forget(number),
            ToCrew::Schema { generation } => {
                // The turn of the session that has changed the schema is over, too.
                self.wanted_generation.send_replace(generation);
            }
            ToCrew::SchemaKnown { generation } => {
                self.known_generation.send_replace(generation);
            }
            ToCrew::Outcome { session, is_committed } => {
                if let Some(slot) = state.sessions.get_mut(&session) {
                    slot.settle(is_committed);
                }
                return;
            }
        }
        drop(state);
        self.changed();
    }

    /// Wakes the sessions that wait for a change.
    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Gives work to a transaction's lane at a replica.
    fn perform(self: &Arc<Self>, state: &mut RemoteState, performed: &Performed) {
        let Performed { run, transaction, work, statement, identity } = *performed;
        if !state.is_present(run) {
            return;
        }
        let Some(link) = state.link.clone() else { return };
        let shipment = statement.and_then(|number| state.statements.get(&number)).cloned();
        let job = Job { work, shipment, identity };
        let is_last = matches!(work, Work::RunAlone(_) | Work::End(_));
        if let Some(lane) = state.lanes.get_mut(&(run.replica, transaction)) {
            lane.push(job, is_last);
            return;
        }
        let Some(connections) = state.connections_of(transaction) else {
            // The session has gone meanwhile, so the read is of no use.
            return state.send(ToScheduler::Finished { run, transaction, ran: None });
        };
        let (sender, jobs) = mpsc::unbounded_channel();
        let mut lane = RemoteLane::new(sender);
        lane.push(job, is_last);
        state.lanes.insert((run.replica, transaction), lane);
        let runtime = connections.runtime.clone();
        let host = Arc::new(LinkLanes { scheduler: Arc::clone(self), link }) as Arc<dyn LaneHost>;
        runtime.spawn(lane::run(host, connections, run, transaction, jobs));
    }

    /// Most bytes of rows that one statement may return.
    pub(super) fn reply_bytes_max(&self) -> usize {
        self.limits.reply_bytes
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RemoteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
