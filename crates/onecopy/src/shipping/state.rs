//! The state behind a node's mutex: the scheduler, the proxies, and their drivers' data.
//!
//! The scheduler knows statements by name. The store keeps their texts until their transaction is over everywhere,
//! and longer while a returning replica may have to run them. The first outcome of a write statement counts. A
//! replica with another outcome has diverged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cluster::ids::{Incarnation, ReplicaId, SessionId, Version};
use cluster::parts::lock_queues::LockSet;
use cluster::protocols::shipping::{
    Answer, Decided, Kind, Operation, Output, Proxy, Request, Scheduler, SequenceNumber, StatementId,
    Transaction,
};
use sql::TemplateId;
use tokio::sync::mpsc;

use super::connections::SessionConnections;
use super::lane::Job;
use super::replica_run::ReplicaRun;
use super::request::{RequestOutcome, SessionRequest};
use super::shipment::{Command, Reply, Shipment};
use super::statement_store::{MemoryLimits, StatementStore};

/// Most templates whose durations are known.
const TEMPLATES_MAX: usize = 8_192;
/// Assumed duration of an unknown statement, in microseconds.
const COST_US: u32 = 1_000;

/// A replica that returns, or that has joined and still runs the transactions it lacked.
#[derive(Default)]
pub(super) struct Rejoining {
    /// Decisions since the replica was asked for its transactions; `None` unless it is being rolled forward.
    pub(super) decided: Option<BTreeMap<SequenceNumber, Decided>>,
    /// Transactions from before its return that it runs again.
    pub(super) again: BTreeSet<SequenceNumber>,
}

impl Rejoining {
    /// Whether it may still need statements of transactions that are over elsewhere.
    pub(super) fn is_under_way(&self) -> bool {
        self.decided.is_some() || !self.again.is_empty()
    }
}

/// Whether a replica may take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eligibility {
    /// As soon as it has been rolled forward.
    Member,
    /// Not before it has another replica's data.
    Quarantined,
}

/// A replica's proxy, and the work of its database.
pub(super) struct ReplicaState {
    pub(super) proxy: Proxy,
    pub(super) incarnation: Incarnation,
    pub(super) lanes: BTreeMap<Transaction, mpsc::UnboundedSender<Job>>,
    /// Decided versions that are not over here.
    pub(super) undone: BTreeSet<Version>,
    pub(super) rejoining: Rejoining,
    pub(super) eligibility: Eligibility,
    pub(super) reads: u64,
    pub(super) writes: u64,
}

impl ReplicaState {
    /// A replica that takes no part yet.
    pub(super) fn new() -> Self {
        Self {
            proxy: Proxy::new(SequenceNumber(0)),
            incarnation: Incarnation::default().next(),
            lanes: BTreeMap::new(),
            undone: BTreeSet::new(),
            rejoining: Rejoining::default(),
            eligibility: Eligibility::Member,
            reads: 0,
            writes: 0,
        }
    }
}

/// An update transaction that some replica has not ended.
pub(super) struct ShippedTransaction {
    pub(super) connections: Arc<SessionConnections>,
    pub(super) locks: LockSet,
    pub(super) writes: Vec<Operation>,
    /// Its version in the log, once it is decided.
    pub(super) version: Option<Version>,
}

/// A session with the scheduler.
pub(super) struct SessionSlot {
    pub(super) connections: Arc<SessionConnections>,
    pub(super) outcomes: mpsc::UnboundedSender<RequestOutcome>,
    pub(super) open: Option<SequenceNumber>,
    /// The statement that it waits for.
    pub(super) awaited: Option<StatementId>,
    /// The first reply to that statement.
    pub(super) reply: Option<Reply>,
}

/// A replica's outcome of a statement, if another replica had a different one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Divergence {
    /// The command tag or SQLSTATE.
    pub(super) outcome: String,
}

pub(super) struct SchedulerState {
    pub(super) scheduler: Scheduler,
    pub(super) replicas: Vec<ReplicaState>,
    pub(super) sessions: BTreeMap<SessionId, SessionSlot>,
    /// Transactions that are not over.
    pub(super) active: BTreeMap<SequenceNumber, ShippedTransaction>,
    /// Transactions that are over, kept for returning replicas.
    pub(super) past: BTreeMap<SequenceNumber, ShippedTransaction>,
    pub(super) statements: StatementStore,
    /// The first outcome of each write statement.
    pub(super) outcomes: BTreeMap<StatementId, Vec<u8>>,
    pub(super) last_statement: u64,
    /// The session that has the exclusive turn, or waits for it.
    pub(super) exclusive: Option<SessionId>,
    /// Appended versions that are not durable yet, in order.
    pub(super) pending: VecDeque<(Version, SequenceNumber)>,
    pub(super) appended: Version,
    /// Of the records of this term that the log still has.
    pub(super) numbers: BTreeMap<Version, SequenceNumber>,
    pub(super) times: BTreeMap<TemplateId, u32>,
}

impl SchedulerState {
    /// A state in which no replica takes part.
    pub(super) fn new(mut scheduler: Scheduler, replicas: &[ReplicaId], appended: Version) -> Self {
        for id in replicas {
            scheduler.replica_lost(*id, &mut Vec::new());
        }
        Self {
            scheduler,
            replicas: replicas.iter().map(|_| ReplicaState::new()).collect(),
            sessions: BTreeMap::new(),
            active: BTreeMap::new(),
            past: BTreeMap::new(),
            statements: StatementStore::default(),
            outcomes: BTreeMap::new(),
            last_statement: 0,
            exclusive: None,
            pending: VecDeque::new(),
            appended,
            numbers: BTreeMap::new(),
            times: BTreeMap::new(),
        }
    }

    /// Ends the exclusive turn, if the session has it.
    pub(super) fn release(&mut self, session: SessionId) {
        self.exclusive.take_if(|holder| *holder == session);
    }

    /// The present run of a replica.
    pub(super) fn run(&self, index: usize) -> ReplicaRun {
        ReplicaRun { replica: replica(index), incarnation: self.replicas[index].incarnation }
    }

    /// Passes a request to the scheduler. `free` gives the locks that the scheduler is to see.
    pub(super) fn request(
        &mut self,
        session: SessionId,
        request: SessionRequest,
        free: impl Fn(LockSet) -> LockSet,
        out: &mut Vec<Output>,
    ) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        (slot.awaited, slot.reply) = (None, None);
        let open = slot.open;
        let request = match request {
            SessionRequest::Begin(locks) => {
                let locks = free(locks);
                let number = self.track(session, locks.clone(), Vec::new());
                self.set_open(session, number);
                Request::Begin(locks)
            }
            SessionRequest::End(ending) => {
                self.set_open(session, None);
                Request::End(ending)
            }
            SessionRequest::Execute(kind, _, command) => {
                let operation = self.name(session, kind, command);
                if kind == Kind::Write
                    && let Some(transaction) = open.and_then(|number| self.active.get_mut(&number))
                {
                    transaction.writes.push(operation);
                }
                Request::Execute(operation)
            }
            SessionRequest::SingleRead(locks, command) => {
                let operation = self.name(session, Kind::Read, command);
                Request::SingleRead(free(locks), operation)
            }
            SessionRequest::SingleUpdate(locks, command) => {
                let operation = self.name(session, Kind::Write, command);
                let locks = free(locks);
                self.track(session, locks.clone(), vec![operation]);
                Request::SingleUpdate(locks, operation)
            }
        };
        self.scheduler.request(session, request, out);
    }

    /// Tracks a transaction that the scheduler is about to number.
    fn track(
        &mut self,
        session: SessionId,
        locks: LockSet,
        writes: Vec<Operation>,
    ) -> Option<SequenceNumber> {
        let connections = Arc::clone(&self.sessions.get(&session)?.connections);
        let number = SequenceNumber(self.scheduler.last().0 + 1);
        let transaction = ShippedTransaction { connections, locks, writes, version: None };
        self.active.insert(number, transaction);
        Some(number)
    }

    fn set_open(&mut self, session: SessionId, open: Option<SequenceNumber>) {
        if let Some(slot) = self.sessions.get_mut(&session) {
            slot.open = open;
        }
    }

    /// Gives a command a name, and keeps it.
    fn name(&mut self, session: SessionId, kind: Kind, command: Command) -> Operation {
        self.last_statement += 1;
        let id = StatementId(self.last_statement);
        let cost_us = self.times.get(&command.template).copied().unwrap_or(COST_US);
        self.statements.insert(Arc::new(Shipment { id, session, kind, command }));
        if let Some(slot) = self.sessions.get_mut(&session) {
            slot.awaited = Some(id);
        }
        Operation { kind, statement: id, cost_us }
    }

    /// Measures durations at run time, where the paper measured beforehand (section 4.10).
    pub(super) fn note_time(&mut self, template: TemplateId, took_us: u32) {
        if self.times.len() >= TEMPLATES_MAX && !self.times.contains_key(&template) {
            self.times.clear();
        }
        let time = self.times.entry(template).or_insert(took_us);
        *time = (*time - *time / 8).saturating_add(took_us / 8);
    }

    /// Takes a reply for the session that waits for it. The first one counts.
    pub(super) fn note_reply(&mut self, shipment: &Shipment, reply: Reply) -> Result<(), Divergence> {
        if shipment.kind == Kind::Write {
            match self.outcomes.get(&shipment.id) {
                Some(first) if *first != reply.outcome => {
                    let outcome = String::from_utf8_lossy(&reply.outcome).into_owned();
                    return Err(Divergence { outcome });
                }
                Some(_) => {}
                None => {
                    self.outcomes.insert(shipment.id, reply.outcome.clone());
                }
            }
        }
        if let Some(slot) = self.sessions.get_mut(&shipment.session)
            && slot.awaited == Some(shipment.id)
        {
            slot.reply.get_or_insert(reply);
        }
        Ok(())
    }

    /// Gives a session the answer to its request.
    pub(super) fn answer(&mut self, session: SessionId, answer: Answer) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        let statement = slot.awaited.take();
        // A session that has ended receives nothing.
        let _ = slot.outcomes.send(RequestOutcome {
            answer: answer.into(),
            reply: slot.reply.take(),
            lasting: None,
        });
        // A write statement is kept until its transaction is over.
        if let Some(statement) = statement
            && self.statements.get(statement).is_some_and(|shipment| shipment.kind == Kind::Read)
        {
            self.statements.remove(statement);
        }
    }

    /// All versions up to this one are over at a replica.
    pub(super) fn over_at(&self, index: usize) -> Version {
        let first = self.replicas[index].undone.first();
        first.map_or(self.appended, |version| Version(version.0.saturating_sub(1)))
    }

    /// A transaction is over at a replica.
    pub(super) fn ended_at(&mut self, index: usize, number: SequenceNumber) {
        let version = self.transaction(number).and_then(|transaction| transaction.version);
        let replica = &mut self.replicas[index];
        if let Some(version) = version {
            replica.undone.remove(&version);
        }
        replica.rejoining.again.remove(&number);
    }

    /// A transaction, over or not.
    pub(super) fn transaction(&self, number: SequenceNumber) -> Option<&ShippedTransaction> {
        self.active.get(&number).or_else(|| self.past.get(&number))
    }

    /// Drops the statements of transactions that are over everywhere.
    pub(super) fn sweep(&mut self) {
        while let Some(number) = self.active.keys().copied().find(|number| !self.scheduler.has(*number)) {
            self.past.extend(self.active.remove(&number).map(|transaction| (number, transaction)));
        }
        if self.replicas.iter().all(|replica| !replica.rejoining.is_under_way()) {
            for write in std::mem::take(&mut self.past).into_values().flat_map(|over| over.writes) {
                self.statements.remove(write.statement);
                self.outcomes.remove(&write.statement);
            }
        }
    }

    /// Replicas that hold up more than half of the permitted statements, in bytes or in transactions: they lack
    /// finished transactions of another replica, or are returning.
    pub(super) fn laggards(&self, limits: MemoryLimits, transactions_max: usize) -> Vec<ReplicaRun> {
        let has = |index: usize, version| !self.replicas[index].undone.contains(&version);
        let takes_part = |index: &usize| self.scheduler.is_up(replica(*index));
        let mut laggards = Vec::new();
        for (index, state) in self.replicas.iter().enumerate() {
            let (mut bytes, mut count) = (0, 0);
            for (number, transaction) in self.active.iter().chain(&self.past) {
                let lacks = || {
                    let Some(version) = transaction.version else { return false };
                    let others = (0..self.replicas.len()).filter(|other| *other != index);
                    takes_part(&index)
                        && !has(index, version)
                        && others.filter(takes_part).any(|other| has(other, version))
                };
                if self.past.contains_key(number) && state.rejoining.is_under_way() || lacks() {
                    count += 1;
                    let kept = |write: &Operation| self.statements.get(write.statement);
                    bytes += transaction
                        .writes
                        .iter()
                        .filter_map(kept)
                        .map(|one| one.command.bytes())
                        .sum::<usize>();
                }
            }
            if bytes > limits.kept_bytes / 2 || count > transactions_max / 2 {
                laggards.push(self.run(index));
            }
        }
        laggards
    }
}

/// The replica with this index.
pub(crate) fn replica(index: usize) -> ReplicaId {
    ReplicaId(u16::try_from(index).expect("replicas are counted by u16"))
}
