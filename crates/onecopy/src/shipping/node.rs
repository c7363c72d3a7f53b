//! The scheduler and the proxies of a node, their databases, and the log.
//!
//! Invariant: no code waits while it holds the mutex, nor takes the coordinator's lock meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cluster::ids::{Epoch, Identity, Incarnation, Nonce, ReplicaId, SessionId};
use cluster::parts::lock_queues::LockSet;
use cluster::protocols::shipping::{
    Choices, Output, ProxyOutput, Request, Scheduler, SequenceNumber, Transaction,
};
use tokio::sync::{mpsc, watch};

use super::connections::SessionConnections;
use super::delivery::Delivery;
use super::dispatch::{Dispatched, Dispatcher};
use super::replica_run::{Completed, LaneHost, LeadingHost, ReplicaHost, ReplicaRun};
use super::request::{RequestOutcome, RequestRejected, SessionRequest};
use super::session_slots::SessionSlot;
use super::state::{Divergence, Eligibility, Rejoining, SchedulerState, replica};
use super::statement_store::MemoryLimits;
use crate::coordinator::node_link::ToNode;
use crate::coordinator::plan::Term;
use crate::coordinator::scheduler_messages::ToCrew;
use crate::coordinator::{Leader, QuarantineDuration};

/// Most unfinished transactions. A session that begins another one waits.
const UNDER_WAY_MAX: usize = 10_000;

/// The rules of the protocol that hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// As the protocol says.
    All,
    /// Locks are granted at once, for tests that a checker notices.
    LocksDoNotWait,
    /// A decision counts as logged at once, and is not written: the paper's scheduler without fault tolerance (section 8.4).
    DecisionsAreNotLogged,
}

impl Rules {
    /// The locks that the scheduler sees.
    pub(super) fn visible(self, locks: LockSet) -> LockSet {
        match self {
            Self::LocksDoNotWait => LockSet::from([]),
            Self::All | Self::DecisionsAreNotLogged => locks,
        }
    }
}

/// The state that sessions, replicas and the log share.
pub(crate) struct Shipping {
    state: Mutex<SchedulerState>,
    leader: OnceLock<Arc<Leader>>,
    pub(super) term: Term,
    pub(super) rules: Rules,
    pub(super) limits: MemoryLimits,
    /// Counts the changes that a session may wait for.
    changes: watch::Sender<u64>,
}

/// What decides whether a request can be taken.
pub(super) struct Asked {
    pub(super) session: SessionId,
    pub(super) begins: bool,
    /// Of the statement, if it is kept.
    pub(super) bytes: usize,
    /// Of the catalogue by which the locks were chosen.
    pub(super) generation: u64,
}

impl LeadingHost for Shipping {}

impl ReplicaHost for Shipping {
    fn leading(&self) -> Option<&Arc<Leader>> {
        self.leader.get()
    }

    fn is_present(&self, run: ReplicaRun) -> bool {
        self.lock().replicas[usize::from(run.replica.0)].incarnation == run.incarnation
    }
}

impl LaneHost for Shipping {
    fn reply_bytes_max(&self) -> usize {
        self.limits.reply_bytes
    }

    fn finished(self: Arc<Self>, run: ReplicaRun, transaction: Transaction, completed: Option<Completed>) {
        let index = usize::from(run.replica.0);
        let mut state = self.lock();
        if state.replicas[index].incarnation != run.incarnation {
            return;
        }
        if let Some(Completed { shipment, reply, took_us }) = completed {
            state.note_time(shipment.command.template, took_us);
            if let Err(Divergence { outcome }) = state.note_reply(&shipment, reply) {
                let reason = format!(
                    "a statement ended there with {outcome}, but elsewhere with another outcome: `{}`",
                    String::from_utf8_lossy(&shipment.command.text)
                );
                drop(state);
                return self.diverged(run, &reason);
            }
        }
        self.work_finished(state, index, transaction);
    }

    fn give_up(self: Arc<Self>, run: ReplicaRun, reason: &str) {
        let mut state = self.lock();
        let replica = &mut state.replicas[usize::from(run.replica.0)];
        if replica.incarnation != run.incarnation {
            return;
        }
        let name = &self.leader().seats[run.replica].name;
        tracing::warn!(replica = %name, reason, "the replica is given up");
        let next = run.incarnation.next();
        replica.incarnation = next;
        replica.lanes.clear();
        replica.rejoining = Rejoining::default();
        state.linked.tell_all(|| ToCrew::Lost { run, next });
        let mut out = Vec::new();
        state.scheduler.replica_lost(run.replica, &mut out);
        state.sweep();
        self.deliver(state, out.into_iter().map(Delivery::Scheduler).collect());
        self.changed();
    }
}

impl Shipping {
    /// A node of this term, in which no replica takes part yet.
    pub(super) fn in_term(choices: Choices, rules: Rules, replicas: &[ReplicaId], term: Term) -> Self {
        let scheduler = Scheduler::new(choices, replicas.len());
        Self {
            state: Mutex::new(SchedulerState::new(
                scheduler,
                replicas,
                term.last,
                Incarnation::before(term.epoch),
            )),
            leader: OnceLock::new(),
            term,
            rules,
            limits: MemoryLimits::from_environment(),
            changes: watch::channel(0).0,
        }
    }

    /// Sets the coordinator of the node; `false` if it has one.
    pub(super) fn attach(&self, leader: &Arc<Leader>) -> bool {
        self.leader.set(Arc::clone(leader)).is_ok()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Any replica that takes part.
    pub(super) fn any_up(&self) -> Option<ReplicaRun> {
        let state = self.lock();
        let up = (0..state.replicas.len()).find(|index| state.scheduler.is_up(replica(*index)))?;
        Some(state.run(up))
    }

    /// The term of this node.
    pub(super) fn epoch(&self) -> Epoch {
        self.term.epoch
    }

    /// What gives work to lanes.
    fn dispatcher<'a>(self: &Arc<Self>, state: &'a mut SchedulerState) -> Dispatcher<'a> {
        let host = Arc::clone(self) as Arc<_>;
        Dispatcher { host, state, identity: self.identity(SequenceNumber(0)) }
    }

    /// The identity of a transaction of this term.
    pub(super) fn identity(&self, number: SequenceNumber) -> Identity {
        let nonce: Nonce = self.term.nonce;
        Identity { epoch: self.term.epoch, n: number.0, nonce }
    }

    /// Receives every change that a session may wait for, from now on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        let mut changes = self.changes.subscribe();
        changes.mark_unchanged();
        changes
    }

    /// Wakes the sessions that wait for a change.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Registers a session, and returns the receiver of its outcomes.
    pub(super) fn open_session(
        &self,
        session: SessionId,
        connections: Arc<SessionConnections>,
    ) -> mpsc::UnboundedReceiver<RequestOutcome> {
        let (outcomes, received) = mpsc::unbounded_channel();
        self.lock().sessions.insert(session, SessionSlot::here(connections, outcomes));
        received
    }

    /// Removes a session whose transaction has ended.
    pub(super) fn close_session(&self, session: SessionId) {
        let mut state = self.lock();
        state.scheduler.request(session, Request::InteractionOver, &mut Vec::new());
        if let Some(slot) = state.sessions.remove(&session) {
            slot.close();
        }
        state.release(session);
        drop(state);
        self.changed();
    }

    /// Blocks new transactions of other sessions until the exclusive turn is released. `false` if another session has
    /// it.
    pub(super) fn acquire_exclusive(&self, session: SessionId) -> bool {
        self.lock().acquire_exclusive(session)
    }

    /// Ends the exclusive turn of a session, if it has it.
    pub(super) fn release_exclusive(&self, session: SessionId) {
        self.lock().release(session);
        self.changed();
    }

    /// Whether all transactions are over at all replicas that take part.
    pub(super) fn is_idle(&self) -> bool {
        self.lock().is_idle()
    }

    /// Passes a session's request to the scheduler. `generation` is that of the catalogue by which the locks were
    /// chosen.
    pub(super) fn request(
        self: &Arc<Self>,
        session: SessionId,
        request: SessionRequest,
        generation: u64,
    ) -> Result<(), RequestRejected> {
        let asked = Asked { session, begins: request.begins(), bytes: request.bytes(), generation };
        let mut state = self.admit(&asked)?;
        let mut out = Vec::new();
        state.request(session, request, |locks| self.rules.visible(locks), &mut out);
        self.deliver(state, out.into_iter().map(Delivery::Scheduler).collect());
        Ok(())
    }

    /// Looks whether a request can be taken now.
    pub(super) fn admit(
        self: &Arc<Self>,
        asked: &Asked,
    ) -> Result<MutexGuard<'_, SchedulerState>, RequestRejected> {
        let Asked { session, begins, bytes, generation } = *asked;
        let mut state = self.lock();
        let is_full =
            |state: &SchedulerState| bytes > 0 && state.kept_bytes() + bytes > self.limits.kept_bytes;
        let is_crowded = |state: &SchedulerState| begins && state.scheduler.active() >= UNDER_WAY_MAX;
        if is_full(&state) || is_crowded(&state) {
            let laggards = state.laggards(self.limits, UNDER_WAY_MAX);
            drop(state);
            for run in laggards {
                let reason = "it is too far behind: the statements that it lacks do not fit into memory";
                Arc::clone(self).give_up(run, reason);
            }
            state = self.lock();
            if is_full(&state) {
                return Err(RequestRejected::StoreIsFull);
            }
        }
        let is_held = state.exclusive.is_some_and(|holder| holder != session);
        let is_old = |state: &SchedulerState| {
            let present = state.linked.generation();
            present.unwrap_or_else(|| self.leader().database.catalogue().generation()) != generation
        };
        if begins && (is_held || is_crowded(&state) || is_old(&state)) {
            return Err(RequestRejected::TryLater);
        }
        Ok(state)
    }

    /// The database of a replica has done its present work for a transaction.
    pub(super) fn work_finished(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, SchedulerState>,
        index: usize,
        transaction: Transaction,
    ) {
        let mut out = Vec::new();
        state.finish(index, transaction, &mut out);
        self.deliver(state, out);
    }

    /// Quarantines a replica with an outcome that differs from the others'.
    pub(super) fn diverged(&self, run: ReplicaRun, reason: &str) {
        if self.is_present(run) {
            // The coordinator keeps the quarantine over a restart, and shuts the replica out here.
            self.leader().quarantine(run.replica, reason, QuarantineDuration::UntilRebuilt);
        }
    }

    /// Shuts a replica out until it has another one's data.
    pub(super) fn shut_out_replica(self: &Arc<Self>, id: ReplicaId) {
        let incarnation = {
            let replica = &mut self.lock().replicas[usize::from(id.0)];
            replica.eligibility = Eligibility::Quarantined;
            replica.incarnation
        };
        // A quarantine from an earlier start is reported before the coordinator is attached. No replica takes part
        // then.
        if self.leader.get().is_some() {
            Arc::clone(self).give_up(ReplicaRun { replica: id, incarnation }, "it is in quarantine");
        }
    }

    /// Lets a replica in that has another one's data.
    pub(super) fn let_in_replica(&self, id: ReplicaId) {
        self.lock().replicas[usize::from(id.0)].eligibility = Eligibility::Member;
    }

    /// Delivers messages between the scheduler and the proxies, with their consequences, until none is left.
    pub(super) fn deliver(self: &Arc<Self>, mut state: MutexGuard<'_, SchedulerState>, first: Vec<Delivery>) {
        let mut queue: VecDeque<Delivery> = first.into();
        while let Some(next) = queue.pop_front() {
            match next {
                Delivery::Scheduler(Output::ToProxy(to, message)) => {
                    let index = usize::from(to.0);
                    let mut out = Vec::new();
                    state.replicas[index].proxy.handle(message, &mut out);
                    // A proxy's message arrives before the scheduler's next one to another proxy, as on a network.
                    queue.extend(out.into_iter().map(|output| Delivery::Proxy(index, output)));
                }
                Delivery::Scheduler(Output::Answer(session, answer)) => {
                    let mut out = Vec::new();
                    state.answer(session, answer, &mut out);
                    queue.extend(out.into_iter().map(Delivery::Scheduler));
                }
                Delivery::Scheduler(Output::Log(number, _)) if self.rules == Rules::DecisionsAreNotLogged => {
                    let mut out = Vec::new();
                    state.scheduler.logged(number, &mut out);
                    queue.extend(out.into_iter().map(Delivery::Scheduler));
                }
                Delivery::Scheduler(Output::Log(number, _)) => self.append(&mut state, number),
                Delivery::LostWork(index, transaction) => {
                    let mut out = Vec::new();
                    state.lose_work(index, transaction, &mut out);
                    queue.extend(out);
                }
                Delivery::Proxy(index, ProxyOutput::Report(report)) => {
                    let mut out = Vec::new();
                    state.scheduler.report(replica(index), report, &mut out);
                    queue.extend(out.into_iter().map(Delivery::Scheduler));
                }
                Delivery::Proxy(index, ProxyOutput::Database(transaction, work)) => {
                    if self.dispatcher(&mut state).dispatch(index, transaction, work) == Dispatched::ForNobody
                    {
                        let mut out = Vec::new();
                        state.finish(index, transaction, &mut out);
                        queue.extend(out);
                    }
                }
            }
        }
        state.sweep();
        state.tell_new_schema();
        self.send_mail(&mut state);
    }

    /// Sends what other nodes have to know. They hear of changes in the order in which these are made, under the lock.
    pub(super) fn send_mail(&self, state: &mut SchedulerState) {
        for (crew, message) in state.linked.mail.drain(..) {
            self.leader().crews.tell(crew, ToNode::Scheduler(Box::new(message)));
        }
    }
}
