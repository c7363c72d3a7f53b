//! What the sessions of a node have under way with the scheduler of the present link, and the replicas as it has told of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cluster::ids::{CrewId, ReplicaId, SessionId};
use cluster::protocols::shipping::{Kind, SequenceNumber, StatementId, Transaction};
use tokio::sync::mpsc;

use super::remote_slots::RemoteSlot;
use crate::capture::vouch::Voucher;
use crate::coordinator::Coordinator;
use crate::coordinator::scheduler_messages::{
    LinkedAnswer, LinkedRequest, LinkedStatement, Participation, StatementNumber, ToScheduler,
};
use crate::shipping::connections::SessionConnections;
use crate::shipping::lane::Job;
use crate::shipping::replica_run::ReplicaRun;
use crate::shipping::request::SessionRequest;
use crate::shipping::shipment::{Command, Shipment};

/// The link to a leader whose scheduler has welcomed the sessions.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) crew: CrewId,
    pub(super) voucher: Voucher,
}

/// A lane of this node.
pub(super) struct RemoteLane {
    jobs: mpsc::UnboundedSender<Job>,
    /// For each job that is not done, whether its transaction is over with it.
    pending: VecDeque<bool>,
}

impl RemoteLane {
    pub(super) fn new(jobs: mpsc::UnboundedSender<Job>) -> Self {
        Self { jobs, pending: VecDeque::new() }
    }

    pub(super) fn push(&mut self, job: Job, is_last: bool) {
        self.pending.push_back(is_last);
        // A lane ends before its transaction only if the replica is lost.
        let _ = self.jobs.send(job);
    }
}

/// A transaction that some replica has not ended.
struct ShippedFromHere {
    connections: Arc<SessionConnections>,
    statements: Vec<StatementNumber>,
}

/// The state behind the mutex of the node's sessions.
#[derive(Default)]
pub(super) struct RemoteState {
    /// The way to the leader, if there is one.
    coordinator: Option<Arc<Coordinator>>,
    pub(super) link: Option<Link>,
    pub(super) replicas: Vec<Participation>,
    pub(super) sessions: BTreeMap<SessionId, RemoteSlot>,
    pub(super) statements: BTreeMap<StatementNumber, Arc<Shipment>>,
    transactions: BTreeMap<SequenceNumber, ShippedFromHere>,
    pub(super) lanes: BTreeMap<(ReplicaId, Transaction), RemoteLane>,
    /// The session that has the exclusive turn.
    pub(super) turn: Option<SessionId>,
    last_statement: u64,
}

impl RemoteState {
    pub(super) fn attach(&mut self, coordinator: &Arc<Coordinator>) {
        self.coordinator = Some(Arc::clone(coordinator));
    }

    /// Says something to the scheduler, if there is a leader. What is not sent is over with the link.
    pub(super) fn send(&self, message: ToScheduler) {
        if let Some(coordinator) = &self.coordinator {
            coordinator.core.tell_scheduler(message);
        }
    }

    /// Whether this is the present run of a replica.
    pub(super) fn is_present(&self, run: ReplicaRun) -> bool {
        self.replicas.get(usize::from(run.replica.0)).is_some_and(|replica| replica.run == run)
    }

    /// How a replica stands from now on.
    pub(super) fn show(&mut self, participation: Participation) {
        if let Some(replica) = self.replicas.get_mut(usize::from(participation.run.replica.0)) {
            *replica = participation;
        }
    }

    /// Passes a session's request on.
    pub(super) fn request(&mut self, session: SessionId, request: SessionRequest, generation: u64) {
        let kind = match &request {
            SessionRequest::Execute(kind, ..) => Some(*kind),
            SessionRequest::SingleRead(..) => Some(Kind::Read),
            SessionRequest::SingleUpdate(..) => Some(Kind::Write),
            SessionRequest::Begin(_) | SessionRequest::End(_) => None,
        };
        let number = kind.map(|_| {
            self.last_statement += 1;
            StatementNumber(self.last_statement)
        });
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        slot.ask(&request, number);
        if let (Some(identity), Some(number), Some(Kind::Write)) = (slot.identity(), number, kind)
            && let Some(transaction) = self.transactions.get_mut(&SequenceNumber(identity.n))
        {
            transaction.statements.push(number);
        }
        let mut named = |kind, command: Command| {
            let number = number.expect("a request with a statement has its number");
            let logged = if kind == Kind::Write { command.logged().collect() } else { Vec::new() };
            let linked = LinkedStatement { number, kind, template: command.template.0, logged };
            let shipment = Shipment { id: StatementId(number.0), session, kind, command };
            self.statements.insert(number, Arc::new(shipment));
            linked
        };
        let request = match request {
            SessionRequest::Begin(locks) => LinkedRequest::Begin(locks.to_vec()),
            SessionRequest::End(ending) => LinkedRequest::End(ending),
            SessionRequest::Execute(kind, _, command) => LinkedRequest::Execute(named(kind, command)),
            SessionRequest::SingleRead(locks, command) => {
                LinkedRequest::SingleRead(locks.to_vec(), named(Kind::Read, command))
            }
            SessionRequest::SingleUpdate(locks, command) => {
                LinkedRequest::SingleUpdate(locks.to_vec(), named(Kind::Write, command))
            }
        };
        self.send(ToScheduler::Request { session, request, generation });
    }

    /// A transaction of a session has this number.
    pub(super) fn begin(&mut self, session: SessionId, number: SequenceNumber) {
        let Some(slot) = self.sessions.get(&session) else { return };
        let statements = slot.awaited().filter(|_| slot.updates()).into_iter().collect();
        let connections = Arc::clone(&slot.connections);
        self.transactions.insert(number, ShippedFromHere { connections, statements });
    }

    /// The connections on which a transaction runs.
    pub(super) fn connections_of(&self, transaction: Transaction) -> Option<Arc<SessionConnections>> {
        let found = match transaction {
            Transaction::Numbered(number) => {
                self.transactions.get(&number).map(|transaction| &transaction.connections)
            }
            Transaction::Single(session) => self.sessions.get(&session).map(|slot| &slot.connections),
        };
        found.cloned()
    }

    /// The scheduler answers a session.
    pub(super) fn answer(&mut self, session: SessionId, answer: LinkedAnswer) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        let awaited = slot.awaited();
        slot.answer(answer);
        // A write is kept until its transaction is over.
        if let Some(number) = awaited
            && self.statements.get(&number).is_some_and(|shipment| shipment.kind == Kind::Read)
        {
            self.statements.remove(&number);
        }
    }

    /// The first job of a lane is done.
    pub(super) fn end_job(&mut self, run: ReplicaRun, transaction: Transaction) {
        let place = (run.replica, transaction);
        let was_last = self.lanes.get_mut(&place).and_then(|lane| lane.pending.pop_front());
        if was_last == Some(true) {
            self.lanes.remove(&place);
        }
    }

    /// No replica needs a transaction any more.
    pub(super) fn forget(&mut self, number: SequenceNumber) {
        for statement in self.transactions.remove(&number).into_iter().flat_map(|over| over.statements) {
            self.statements.remove(&statement);
        }
    }

    /// Asks a new leader what became of commits that were under way at the former one.
    pub(super) fn ask_outcomes(&self) {
        for (session, slot) in &self.sessions {
            if let Some(identity) = slot.undecided() {
                self.send(ToScheduler::WantsOutcome { session: *session, identity });
            }
        }
    }

    /// The link has ended, and what was under way with it.
    pub(super) fn lose_link(&mut self) {
        self.link = None;
        self.replicas.clear();
        self.lanes.clear();
        self.transactions.clear();
        self.statements.clear();
        self.turn = None;
        self.sessions.values_mut().for_each(RemoteSlot::lose_link);
    }
}
