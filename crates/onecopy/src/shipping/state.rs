//! The state behind a node's mutex: the scheduler, the proxies, and their drivers' data.
//!
//! The scheduler knows statements by name. The store keeps their texts until their transaction is over everywhere,
//! and longer while a returning replica may have to run them. The first outcome of a write statement counts. A
//! replica with another outcome has diverged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cluster::ids::{CrewId, Incarnation, ReplicaId, SessionId, Version};
use cluster::parts::lock_queues::LockSet;
use cluster::protocols::shipping::{
    Decided, Kind, Operation, Output, Proxy, ProxyOutput, Request, Scheduler, SequenceNumber, StatementId,
    Transaction,
};
use sql::TemplateId;

use super::delivery::Delivery;
use super::lane_site::{Lane, LaneSite};
use super::replica_run::ReplicaRun;
use super::request::SessionRequest;
use super::session_slots::SessionSlot;
use super::several::linked_crews::LinkedCrews;
use super::shipment::{Command, Reply, Shipment};
use super::statement_store::{MemoryLimits, StatementStore};
use crate::coordinator::scheduler_messages::ToCrew;

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
    pub(super) lanes: BTreeMap<Transaction, Lane>,
    /// Decided versions that are not over here.
    pub(super) undone: BTreeSet<Version>,
    pub(super) rejoining: Rejoining,
    pub(super) eligibility: Eligibility,
    pub(super) reads: u64,
    pub(super) writes: u64,
}

impl ReplicaState {
    /// A replica that takes no part yet. All incarnations in this term follow `before`.
    pub(super) fn new(before: Incarnation) -> Self {
        Self {
            proxy: Proxy::new(SequenceNumber(0)),
            incarnation: before.next(),
            lanes: BTreeMap::new(),
            undone: BTreeSet::new(),
            rejoining: Rejoining::default(),
            eligibility: Eligibility::Member,
            reads: 0,
            writes: 0,
        }
    }
}

impl ReplicaState {
    /// The lanes of a crew are lost. Returns the transactions for which they were doing something.
    pub(super) fn lose_lanes(&mut self, crew: CrewId) -> Vec<Transaction> {
        let lost = self.lanes.iter().filter(|(_, lane)| lane.is_at(crew));
        let transactions = lost.map(|(transaction, _)| *transaction);
        let lost: Vec<Transaction> = transactions.filter(|name| self.proxy.works_for(*name)).collect();
        self.lanes.retain(|_, lane| !lane.is_at(crew));
        lost
    }
}

/// An update transaction that some replica has not ended.
pub(super) struct ShippedTransaction {
    pub(super) site: LaneSite,
    pub(super) locks: LockSet,
    pub(super) writes: Vec<Operation>,
    /// Its version in the log, once it is decided.
    pub(super) version: Option<Version>,
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
    /// The nodes whose sessions the scheduler serves over links.
    pub(super) linked: LinkedCrews,
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
    pub(super) fn new(
        mut scheduler: Scheduler,
        replicas: &[ReplicaId],
        appended: Version,
        before: Incarnation,
    ) -> Self {
        for id in replicas {
            scheduler.replica_lost(*id, &mut Vec::new());
        }
        Self {
            scheduler,
            replicas: replicas.iter().map(|_| ReplicaState::new(before)).collect(),
            sessions: BTreeMap::new(),
            active: BTreeMap::new(),
            past: BTreeMap::new(),
            statements: StatementStore::default(),
            linked: LinkedCrews::default(),
            outcomes: BTreeMap::new(),
            last_statement: 0,
            exclusive: None,
            pending: VecDeque::new(),
            appended,
            numbers: BTreeMap::new(),
            times: BTreeMap::new(),
        }
    }

    /// Whether all transactions are over at all replicas that take part.
    pub(super) fn is_idle(&self) -> bool {
        // A replica that has joined may still run what it lacked, which is over for all others.
        self.scheduler.active() == 0 && self.replicas.iter().all(|replica| replica.rejoining.again.is_empty())
    }

    /// Once every replica has a change of the schema, the nodes read it, and others may begin transactions again.
    pub(super) fn tell_new_schema(&mut self) {
        if self.linked.is_changing_schema() && self.is_idle() && self.linked.finish_change() {
            self.exclusive = None;
        }
    }

    /// Lets no other session begin a transaction; `false` if another one has the exclusive turn.
    pub(super) fn acquire_exclusive(&mut self, session: SessionId) -> bool {
        *self.exclusive.get_or_insert(session) == session
    }

    /// Ends the exclusive turn, if the session has it. After a change of the schema it lasts until the nodes know that.
    pub(super) fn release(&mut self, session: SessionId) {
        if !self.linked.is_changing_schema() {
            self.exclusive.take_if(|holder| *holder == session);
        }
    }

    /// The database of a replica has done its present work for a transaction.
    pub(super) fn finish(&mut self, index: usize, transaction: Transaction, out: &mut Vec<Delivery>) {
        let mut reports = Vec::new();
        self.replicas[index].proxy.finished(transaction, &mut reports);
        let is_still_there =
            matches!(transaction, Transaction::Numbered(number) if self.replicas[index].proxy.has(number));
        if let Transaction::Numbered(number) = transaction
            && reports.iter().any(|output| matches!(output, ProxyOutput::Report(_)))
            && !is_still_there
        {
            self.ended_at(index, number);
        }
        if !is_still_there {
            self.replicas[index].lanes.remove(&transaction);
        }
        out.extend(reports.into_iter().map(|output| Delivery::Proxy(index, output)));
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
        slot.begin_wait();
        let request = match request {
            SessionRequest::Begin(locks) => Request::Begin(free(locks)),
            SessionRequest::End(ending) => Request::End(ending),
            SessionRequest::Execute(kind, _, command) => Request::Execute(self.name(session, kind, command)),
            SessionRequest::SingleRead(locks, command) => {
                Request::SingleRead(free(locks), self.name(session, Kind::Read, command))
            }
            SessionRequest::SingleUpdate(locks, command) => {
                Request::SingleUpdate(free(locks), self.name(session, Kind::Write, command))
            }
        };
        self.pass(session, request, out);
    }

    /// Passes a request to the scheduler, whose statement has its name. Returns the number of a transaction that begins.
    pub(super) fn pass(
        &mut self,
        session: SessionId,
        request: Request,
        out: &mut Vec<Output>,
    ) -> Option<SequenceNumber> {
        let begun = match &request {
            Request::Begin(locks) => {
                let number = self.track(session, locks.clone(), Vec::new());
                self.set_open(session, number);
                number
            }
            Request::SingleUpdate(locks, operation) => self.track(session, locks.clone(), vec![*operation]),
            Request::Execute(operation) if operation.kind == Kind::Write => {
                let open = self.sessions.get(&session).and_then(|slot| slot.open);
                if let Some(transaction) = open.and_then(|number| self.active.get_mut(&number)) {
                    transaction.writes.push(*operation);
                }
                None
            }
            Request::End(_) => {
                self.set_open(session, None);
                None
            }
            Request::Execute(_) | Request::SingleRead(..) | Request::InteractionOver => None,
        };
        self.scheduler.request(session, request, out);
        begun
    }

    /// Tracks a transaction that the scheduler is about to number.
    fn track(
        &mut self,
        session: SessionId,
        locks: LockSet,
        writes: Vec<Operation>,
    ) -> Option<SequenceNumber> {
        let site = self.sessions.get(&session)?.site(session);
        let number = SequenceNumber(self.scheduler.last().0 + 1);
        let transaction = ShippedTransaction { site, locks, writes, version: None };
        self.active.insert(number, transaction);
        Some(number)
    }

    fn set_open(&mut self, session: SessionId, open: Option<SequenceNumber>) {
        if let Some(slot) = self.sessions.get_mut(&session) {
            slot.open = open;
        }
    }

    /// The name of the next statement, and about how long it takes.
    pub(super) fn next_name(&mut self, template: TemplateId) -> (StatementId, u32) {
        self.last_statement += 1;
        (StatementId(self.last_statement), self.times.get(&template).copied().unwrap_or(COST_US))
    }

    /// Gives a command a name, and keeps it.
    fn name(&mut self, session: SessionId, kind: Kind, command: Command) -> Operation {
        let (id, cost_us) = self.next_name(command.template);
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
        self.note_outcome(shipment.id, shipment.kind, &reply.outcome)?;
        if let Some(slot) = self.sessions.get_mut(&shipment.session) {
            slot.note_reply(shipment.id, reply);
        }
        Ok(())
    }

    /// Takes the outcome of a statement at a replica, which has to be that of the first one.
    pub(super) fn note_outcome(
        &mut self,
        statement: StatementId,
        kind: Kind,
        outcome: &[u8],
    ) -> Result<(), Divergence> {
        if kind == Kind::Read {
            return Ok(());
        }
        match self.outcomes.get(&statement) {
            Some(first) if first != outcome => {
                let outcome = String::from_utf8_lossy(outcome).into_owned();
                Err(Divergence { outcome })
            }
            Some(_) => Ok(()),
            None => {
                self.outcomes.insert(statement, outcome.to_vec());
                Ok(())
            }
        }
    }

    /// Bytes of all statements that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.statements.bytes() + self.linked.statements.bytes()
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
            for (number, over) in std::mem::take(&mut self.past) {
                for write in over.writes {
                    self.statements.remove(write.statement);
                    self.linked.statements.remove(write.statement);
                    self.outcomes.remove(&write.statement);
                }
                if let LaneSite::Crew(crew) = over.site {
                    self.linked.mail.push((crew, ToCrew::Over { number }));
                }
            }
        }
    }

    fn bytes_of(&self, write: Operation) -> usize {
        match self.statements.get(write.statement) {
            Some(shipment) => shipment.command.bytes(),
            None => self.linked.statements.get(write.statement).map_or(0, |statement| statement.bytes),
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
                    bytes += transaction.writes.iter().map(|write| self.bytes_of(*write)).sum::<usize>();
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
