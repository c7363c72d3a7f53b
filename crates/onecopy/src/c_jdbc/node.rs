//! The scheduler and the queues of a node, their databases, and the log.
//!
//! Invariant: no code waits while it holds the mutex, nor takes the coordinator's lock meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cluster::ids::{Identity, ReplicaId};
use cluster::placement::Placement;
use cluster::protocols::c_jdbc::message::{Operation, OperationNumber, Step, TransactionId};
use cluster::protocols::c_jdbc::recovery_log::RecoveryLog;
use cluster::protocols::c_jdbc::replica_queue::{QueueOutput, Work};
use cluster::protocols::c_jdbc::{Choices, Level, Output, Scheduler};
use cluster::protocols::shipping::{self, Ending, Kind, SequenceNumber, StatementId, Transaction};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::state::{Divergence, Doing, LaneState, NumberedWrite, State};
use crate::client::cancel::Running;
use crate::coordinator::plan::Term;
use crate::coordinator::{Leader, QuarantineDuration};
use crate::shipping::lane::{self, Job};
use crate::shipping::replica_run::{Completed, LaneHost, LeadingHost, ReplicaHost, ReplicaRun};
use crate::shipping::state::{Eligibility, replica};
use crate::shipping::statement_store::MemoryLimits;

/// The state that sessions, replicas and the log share.
pub(crate) struct CJdbc {
    state: Mutex<State>,
    leader: OnceLock<Arc<Leader>>,
    pub(super) term: Term,
    pub(super) choices: Choices,
    pub(super) limits: MemoryLimits,
    pub(super) started: Instant,
    /// Counts the changes that a session may wait for.
    changes: watch::Sender<u64>,
}

/// A message to be delivered.
pub(super) enum Delivery {
    Scheduler(Output),
    Queue(usize, QueueOutput),
}

/// Work of a lane.
#[derive(Clone, Copy)]
struct LaneWork {
    transaction: Transaction,
    doing: Doing,
    work: shipping::Work,
    statement: Option<StatementId>,
}

impl LeadingHost for CJdbc {}

impl ReplicaHost for CJdbc {
    fn leading(&self) -> Option<&Arc<Leader>> {
        self.leader.get()
    }

    fn is_present(&self, run: ReplicaRun) -> bool {
        self.lock().present(run).is_some()
    }
}

impl LaneHost for CJdbc {
    fn reply_bytes_max(&self) -> usize {
        self.limits.reply_bytes
    }

    fn finished(self: Arc<Self>, run: ReplicaRun, transaction: Transaction, completed: Option<Completed>) {
        let index = usize::from(run.replica.0);
        let mut state = self.lock();
        let Some(lane) = state.present(run).and_then(|replica| replica.lanes.get_mut(&transaction)) else {
            return;
        };
        let Some(doing) = lane.doing.pop_front() else { return };
        lane.since = Instant::now();
        // A write without a reply was cancelled, because its transaction was aborted.
        let is_cancelled = completed.is_none() && matches!(doing, Doing::Write(_));
        // Without table locks the server lets others have the rows of a failed transaction at once.
        let has_failed = self.choices.level == Level::PassThrough
            && completed.as_ref().is_some_and(|completed| completed.reply.error.is_some());
        if let Some(Completed { shipment, reply, .. }) = completed
            && let Err(Divergence { outcome }) = state.note_reply(&shipment, reply)
        {
            let reason = format!(
                "a statement ended there with {outcome}, but elsewhere with another outcome: `{}`",
                String::from_utf8_lossy(&shipment.command.text)
            );
            drop(state);
            return self.diverged(run, &reason);
        }
        let mut out = Vec::new();
        let replica = &mut state.replicas[index];
        match doing {
            Doing::Write(_) if is_cancelled => {}
            Doing::Write(number) if has_failed => replica.queue.failed(number, &mut out),
            Doing::Write(number) => replica.queue.executed(number, &mut out),
            Doing::Read(id) => {
                if matches!(transaction, Transaction::Single(_)) {
                    replica.lanes.remove(&transaction);
                }
                replica.queue.read(id, &mut out);
            }
            Doing::End(number) => {
                replica.lanes.remove(&transaction);
                if let Transaction::Numbered(SequenceNumber(transaction)) = transaction {
                    state.ended_at(index, TransactionId(transaction));
                }
                state.replicas[index].queue.executed(number, &mut out);
            }
        }
        self.deliver(state, out.into_iter().map(|output| Delivery::Queue(index, output)).collect());
    }

    fn give_up(self: Arc<Self>, run: ReplicaRun, reason: &str) {
        let mut state = self.lock();
        let Some(replica) = state.present(run) else { return };
        replica.lose();
        let name = &self.leader().seats[run.replica].name;
        tracing::warn!(replica = %name, reason, "the replica is given up");
        let mut out = Vec::new();
        state.scheduler.replica_lost(run.replica, &mut out);
        self.deliver(state, out.into_iter().map(Delivery::Scheduler).collect());
        self.changed();
    }

    fn connected(&self, run: ReplicaRun, transaction: Transaction, running: &Arc<Running>) {
        let mut state = self.lock();
        if let Some(lane) = state.present(run).and_then(|replica| replica.lanes.get_mut(&transaction)) {
            lane.running = Some(Arc::clone(running));
        }
    }

    fn cancelled_by_abort(&self, run: ReplicaRun, transaction: Transaction) -> Option<Arc<Running>> {
        let mut state = self.lock();
        let lane = state.present(run)?.lanes.get(&transaction)?;
        lane.running.clone().filter(|_| matches!(lane.doing.front(), Some(Doing::Write(_))))
    }

    fn commits_to_disk(&self) -> bool {
        self.choices.level == Level::PassThrough
    }

    fn leaves_deadlocks(&self) -> bool {
        true
    }
}

impl CJdbc {
    /// A node of this term, in which no replica takes part yet.
    pub(super) fn in_term(
        choices: Choices,
        replicas: &[ReplicaId],
        term: Term,
        placement: Placement,
    ) -> Self {
        let scheduler = Scheduler::recovered(choices.clone(), placement, RecoveryLog::default());
        Self {
            state: Mutex::new(State::new(scheduler, replicas, term.last)),
            leader: OnceLock::new(),
            term,
            choices,
            limits: MemoryLimits::from_environment(),
            started: Instant::now(),
            changes: watch::channel(0).0,
        }
    }

    /// Sets the coordinator of the node; `false` if it has one.
    pub(super) fn attach(&self, leader: &Arc<Leader>) -> bool {
        self.leader.set(Arc::clone(leader)).is_ok()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The identity of a transaction of this term.
    pub(super) fn identity(&self, transaction: TransactionId) -> Identity {
        Identity { epoch: self.term.epoch, n: transaction.0, nonce: self.term.nonce }
    }

    /// Receives every change that a session may wait for, from now on.
    pub(super) fn changes_from_now(&self) -> watch::Receiver<u64> {
        let mut changes = self.changes.subscribe();
        changes.mark_unchanged();
        changes
    }

    /// Wakes the sessions that wait for a change.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Quarantines a replica with an outcome that differs from the others'.
    fn diverged(&self, run: ReplicaRun, reason: &str) {
        if self.is_present(run) {
            // The coordinator keeps the quarantine over a restart, and shuts the replica out here.
            self.leader().quarantine(run.replica, reason, QuarantineDuration::UntilRebuilt);
        }
    }

    /// Shuts a replica out until it has another one's data.
    pub(super) fn shut_out_replica(self: &Arc<Self>, id: ReplicaId) {
        let run = {
            let mut state = self.lock();
            let index = usize::from(id.0);
            state.replicas[index].eligibility = Eligibility::Quarantined;
            state.run(index)
        };
        // A quarantine from an earlier start is reported before the coordinator is attached. No replica takes part
        // then.
        if self.leader.get().is_some() {
            Arc::clone(self).give_up(run, "it is in quarantine");
        }
    }

    /// Delivers messages between the scheduler and the queues, with their consequences, until none is left.
    pub(super) fn deliver(self: &Arc<Self>, mut state: MutexGuard<'_, State>, first: Vec<Delivery>) {
        let mut queue: VecDeque<Delivery> = first.into();
        while let Some(next) = queue.pop_front() {
            match next {
                Delivery::Scheduler(Output::ToReplica(to, message)) => {
                    let index = usize::from(to.0);
                    let mut out = Vec::new();
                    state.replicas[index].queue.handle(message, &mut out);
                    queue.extend(out.into_iter().map(|output| Delivery::Queue(index, output)));
                }
                Delivery::Scheduler(Output::Answer(session, answer)) => state.answer(session, &answer),
                Delivery::Scheduler(Output::Keep(session, since)) => state.keep(session, since),
                Delivery::Scheduler(Output::Log(operation)) => self.note(&mut state, &operation),
                Delivery::Queue(index, QueueOutput::Report(report)) => {
                    let mut out = Vec::new();
                    state.scheduler.report(replica(index), report, &mut out);
                    queue.extend(out.into_iter().map(Delivery::Scheduler));
                }
                Delivery::Queue(index, QueueOutput::Server(work)) => {
                    let mut out = Vec::new();
                    self.dispatch(&mut state, index, &work, &mut out);
                    queue.extend(out.into_iter().map(|output| Delivery::Queue(index, output)));
                }
            }
        }
        state.sweep();
        if state.scheduler.active() == 0 {
            self.changed();
        }
    }

    /// Keeps what a replica or the log will need of a numbered operation.
    fn note(&self, state: &mut State, operation: &Operation) {
        match operation.step {
            Step::Begin => {}
            Step::End(Ending::Abort) => {
                if let Some(transaction) = state.active.get_mut(&operation.transaction) {
                    transaction.is_aborted = true;
                }
            }
            Step::Write(ref tables, statement) => {
                let placement = state.scheduler.placement();
                let holders = placement.is_partial().then(|| state.scheduler.targets(tables));
                if let Some(transaction) = state.active.get_mut(&operation.transaction) {
                    transaction.writes.push(NumberedWrite { statement, holders });
                }
            }
            Step::End(Ending::Commit) => self.append(state, operation),
        }
    }

    /// Gives work to a server. What needs no server is done at once.
    fn dispatch(self: &Arc<Self>, state: &mut State, index: usize, work: &Work, out: &mut Vec<QueueOutput>) {
        let read = |statement| shipping::Operation { kind: Kind::Read, statement, cost_us: 0 };
        match *work {
            Work::Operation(Operation { number, step: Step::Begin, .. }) => {
                // The server begins it with its first statement.
                state.replicas[index].queue.executed(number, out);
            }
            Work::Operation(Operation { number, transaction, step: Step::Write(_, statement) }) => {
                let operation = shipping::Operation { kind: Kind::Write, ..read(statement) };
                state.replicas[index].writes += 1;
                let work = shipping::Work::Run(operation);
                let statement = Some(statement);
                let transaction = numbered(transaction);
                self.run(
                    state,
                    index,
                    LaneWork { transaction, doing: Doing::Write(number), work, statement },
                );
            }
            Work::Operation(Operation { number, transaction, step: Step::End(ending) }) => {
                self.end(state, index, Ended { number, transaction, ending }, out);
            }
            Work::Read(id, transaction, statement) => {
                let session = state.statements.get(statement).map(|shipment| shipment.session);
                let Some(session) = session else { return };
                state.replicas[index].reads += 1;
                let transaction = transaction.map_or(Transaction::Single(session), numbered);
                let work = match transaction {
                    Transaction::Single(_) => shipping::Work::RunAlone(read(statement)),
                    Transaction::Numbered(_) => shipping::Work::Run(read(statement)),
                };
                let statement = Some(statement);
                self.run(state, index, LaneWork { transaction, doing: Doing::Read(id), work, statement });
            }
        }
    }

    /// Ends a transaction at a replica, where it may have run nothing.
    fn end(self: &Arc<Self>, state: &mut State, index: usize, end: Ended, out: &mut Vec<QueueOutput>) {
        let transaction = numbered(end.transaction);
        if state.replicas[index].lanes.contains_key(&transaction) {
            let (doing, work) = (Doing::End(end.number), shipping::Work::End(end.ending));
            self.run(state, index, LaneWork { transaction, doing, work, statement: None });
            return;
        }
        state.ended_at(index, end.transaction);
        state.replicas[index].queue.executed(end.number, out);
    }

    /// Gives work to a transaction's lane at a replica.
    fn run(self: &Arc<Self>, state: &mut State, index: usize, work: LaneWork) {
        let run = state.run(index);
        let LaneWork { transaction, doing, work, statement } = work;
        let shipment = statement.and_then(|statement| state.statements.get(statement)).cloned();
        let (connections, identity) = match transaction {
            Transaction::Numbered(SequenceNumber(number)) => {
                let number = TransactionId(number);
                let connections = state.transaction(number).map(|shipped| Arc::clone(&shipped.connections));
                (connections, Some(self.identity(number)))
            }
            Transaction::Single(session) => {
                (state.sessions.get(&session).map(|slot| Arc::clone(&slot.connections)), None)
            }
        };
        let job = Job { work, shipment, identity };
        if let Some(lane) = state.replicas[index].lanes.get_mut(&transaction) {
            if lane.doing.is_empty() {
                lane.since = Instant::now();
            }
            lane.doing.push_back(doing);
            // A lane ends before its transaction only if the replica is lost.
            let _ = lane.jobs.send(job);
            return;
        }
        let Some(connections) = connections else { return };
        let (jobs, received) = mpsc::unbounded_channel();
        let _ = jobs.send(job);
        let (doing, since) = (VecDeque::from([doing]), Instant::now());
        state.replicas[index].lanes.insert(transaction, LaneState { jobs, doing, since, running: None });
        let runtime = connections.runtime.clone();
        let host = Arc::clone(self) as Arc<dyn LaneHost>;
        runtime.spawn(lane::run(host, connections, run, transaction, received));
    }
}

/// The end of a transaction, by its number.
#[derive(Clone, Copy)]
struct Ended {
    number: OperationNumber,
    transaction: TransactionId,
    ending: Ending,
}

/// The name of a transaction's lane.
pub(super) fn numbered(transaction: TransactionId) -> Transaction {
    Transaction::Numbered(SequenceNumber(transaction.0))
}
