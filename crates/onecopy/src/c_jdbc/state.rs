//! The state behind a node's mutex: the scheduler, the queues, and their drivers' data.
//!
//! The scheduler knows statements by name. The store keeps their texts until their transaction is over everywhere,
//! and longer while a returning replica may have to run it. The first outcome of a write counts. A replica with another
//! outcome has diverged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cluster::ids::{Incarnation, ReplicaId, SessionId, TableId, Version};
use cluster::parts::lock_queues::{LockSet, Mode};
use cluster::placement::{Placement, ReplicaSet};
use cluster::protocols::c_jdbc::Scheduler;
use cluster::protocols::c_jdbc::message::{self, OperationNumber, ReadId, Tables, TransactionId};
use cluster::protocols::c_jdbc::query_cache::Moment;
use cluster::protocols::c_jdbc::replica_queue::ReplicaQueue;
use cluster::protocols::shipping::{Kind, StatementId, Transaction};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::cancel::Running;
use crate::shipping::connections::SessionConnections;
use crate::shipping::lane::Job;
use crate::shipping::locks::{is_schema, is_sequence, schema};
use crate::shipping::replica_run::ReplicaRun;
use crate::shipping::request::{Answer, Lasting, Remains, RequestOutcome};
use crate::shipping::shipment::{Command, Reply, Shipment};
use crate::shipping::state::{Eligibility, replica};
use crate::shipping::statement_store::StatementStore;

/// Entries of the recovery log that are kept in memory before those are dropped that no replica needs.
const KEPT_ENTRIES_MAX: usize = 4_096;

/// What a lane is doing at a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Write(OperationNumber),
    Read(ReadId),
    End(OperationNumber),
}

/// A transaction's lane at a replica.
pub(super) struct LaneState {
    pub(super) jobs: mpsc::UnboundedSender<Job>,
    /// The jobs that it has, the first one running.
    pub(super) doing: VecDeque<Doing>,
    /// Since when the first one runs.
    pub(super) since: Instant,
    /// Its connection, when it has one.
    pub(super) running: Option<Arc<Running>>,
}

/// A replica's queue, and the work of its database.
pub(super) struct ReplicaState {
    pub(super) queue: ReplicaQueue,
    pub(super) incarnation: Incarnation,
    pub(super) lanes: BTreeMap<Transaction, LaneState>,
    /// Decided versions that are not over here.
    pub(super) undone: BTreeSet<Version>,
    /// Transactions that were there when it joined, and that it has not ended.
    pub(super) again: BTreeSet<TransactionId>,
    pub(super) eligibility: Eligibility,
    pub(super) reads: u64,
    pub(super) writes: u64,
}

impl ReplicaState {
    /// A replica that takes no part yet.
    fn new() -> Self {
        Self {
            queue: ReplicaQueue::default(),
            incarnation: Incarnation::default().next(),
            lanes: BTreeMap::new(),
            undone: BTreeSet::new(),
            again: BTreeSet::new(),
            eligibility: Eligibility::Member,
            reads: 0,
            writes: 0,
        }
    }

    /// It is lost: what it was doing is forgotten.
    pub(super) fn lose(&mut self) {
        self.incarnation = self.incarnation.next();
        self.queue = ReplicaQueue::default();
        self.lanes.clear();
        self.again.clear();
    }
}

/// A transaction that some replica has not ended.
pub(super) struct ShippedTransaction {
    pub(super) connections: Arc<SessionConnections>,
    pub(super) writes: Vec<NumberedWrite>,
    /// Its version in the log, once it is decided.
    pub(super) version: Option<Version>,
    /// Its abort is numbered.
    pub(super) is_aborted: bool,
}

/// A write of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberedWrite {
    pub(super) statement: StatementId,
    /// The replicas that run it, if these are not all.
    pub(super) holders: Option<ReplicaSet>,
}

/// A session with the scheduler.
pub(super) struct SessionSlot {
    pub(super) connections: Arc<SessionConnections>,
    pub(super) outcomes: mpsc::UnboundedSender<RequestOutcome>,
    /// The statement that it waits for.
    pub(super) awaited: Option<StatementId>,
    /// The first reply to that statement.
    pub(super) reply: Option<Reply>,
    /// The tables of the read by itself that it waits for, if its answer may be kept.
    pub(super) reading: Option<Tables>,
    /// Until when that answer may be given again.
    pub(super) lasting: Option<Lasting>,
}

/// A replica's outcome of a statement, if another replica had a different one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Divergence {
    /// The command tag or SQLSTATE.
    pub(super) outcome: String,
}

pub(super) struct State {
    pub(super) scheduler: Scheduler,
    pub(super) replicas: Vec<ReplicaState>,
    pub(super) sessions: BTreeMap<SessionId, SessionSlot>,
    /// Transactions that are not over.
    pub(super) active: BTreeMap<TransactionId, ShippedTransaction>,
    /// Transactions that are over, kept for returning replicas.
    pub(super) past: BTreeMap<TransactionId, ShippedTransaction>,
    pub(super) statements: StatementStore,
    /// The first outcome of each write.
    outcomes: BTreeMap<StatementId, Vec<u8>>,
    last_statement: u64,
    /// The session that has the exclusive turn, or waits for it.
    pub(super) exclusive: Option<SessionId>,
    /// Appended versions that are not durable yet, in order, with their commit operations.
    pub(super) pending: VecDeque<(Version, OperationNumber)>,
    pub(super) appended: Version,
    /// Of the records of this term that the log still has.
    pub(super) numbers: BTreeMap<Version, TransactionId>,
    /// Clients have been let in.
    pub(super) is_open: bool,
}

impl State {
    /// A state in which no replica takes part.
    pub(super) fn new(scheduler: Scheduler, replicas: &[ReplicaId], appended: Version) -> Self {
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
            is_open: false,
        }
    }

    /// Who holds which tables, without their sequences.
    pub(super) fn placement_of_tables(&self) -> Placement {
        let replicas = u16::try_from(self.replicas.len()).unwrap_or(u16::MAX);
        let mut placement = Placement::full(replicas);
        for (table, copies) in self.scheduler.placement().restricted() {
            if !is_sequence(table) {
                placement.restrict(table, copies.clone());
            }
        }
        placement
    }

    /// The present run of a replica.
    pub(super) fn run(&self, index: usize) -> ReplicaRun {
        ReplicaRun { replica: replica(index), incarnation: self.replicas[index].incarnation }
    }

    /// The replica of a run, unless it was lost since.
    pub(super) fn present(&mut self, run: ReplicaRun) -> Option<&mut ReplicaState> {
        let state = &mut self.replicas[usize::from(run.replica.0)];
        (state.incarnation == run.incarnation).then_some(state)
    }

    /// Gives a command of a session a name, and keeps it.
    pub(super) fn name(&mut self, session: SessionId, kind: Kind, command: Command) -> StatementId {
        self.last_statement += 1;
        let id = StatementId(self.last_statement);
        self.statements.insert(Arc::new(Shipment { id, session, kind, command }));
        if let Some(slot) = self.sessions.get_mut(&session) {
            slot.awaited = Some(id);
        }
        id
    }

    /// Takes a reply for the session that waits for it. The first one counts.
    pub(super) fn note_reply(&mut self, shipment: &Shipment, reply: Reply) -> Result<(), Divergence> {
        if shipment.kind == Kind::Write {
            match self.outcomes.get(&shipment.id) {
                Some(first) if *first != reply.outcome => {
                    let outcome = String::from_utf8_lossy(&reply.outcome).into_owned();
                    return Err(Divergence { outcome });
                }
                None if self.statements.get(shipment.id).is_some() => {
                    self.outcomes.insert(shipment.id, reply.outcome.clone());
                }
                _ => {}
            }
        }
        if let Some(slot) = self.sessions.get_mut(&shipment.session)
            && slot.awaited == Some(shipment.id)
        {
            slot.reply.get_or_insert(reply);
        }
        Ok(())
    }

    /// The answer that follows may be given again.
    pub(super) fn keep(&mut self, session: SessionId, since: Moment) {
        if let Some(slot) = self.sessions.get_mut(&session) {
            slot.lasting = slot.reading.take().map(|tables| Lasting { tables, since });
        }
    }

    /// Gives a session the answer to its request.
    pub(super) fn answer(&mut self, session: SessionId, answer: &message::Answer) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        let statement = slot.awaited.take();
        let answer = match answer {
            message::Answer::Done(_) => Answer::Done,
            message::Answer::Refused => Answer::Refused,
            message::Answer::Deadlock => Answer::Deadlock,
            message::Answer::Failed(_) => Answer::Failed,
            message::Answer::NotHeld(tables) => Answer::NotHeld(tables.clone()),
            message::Answer::Lost => Answer::Lost(Remains::Nothing),
        };
        // A session that has ended receives nothing.
        let (reply, lasting) = (slot.reply.take(), slot.lasting.take());
        let _ = slot.outcomes.send(RequestOutcome { answer, reply, lasting });
        // A write is kept until its transaction is over.
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
    pub(super) fn ended_at(&mut self, index: usize, transaction: TransactionId) {
        let version = self.transaction(transaction).and_then(|transaction| transaction.version);
        let replica = &mut self.replicas[index];
        if let Some(version) = version {
            replica.undone.remove(&version);
        }
        replica.again.remove(&transaction);
    }

    /// A transaction, over or not.
    pub(super) fn transaction(&self, transaction: TransactionId) -> Option<&ShippedTransaction> {
        self.active.get(&transaction).or_else(|| self.past.get(&transaction))
    }

    /// Drops the statements of transactions that are over everywhere.
    pub(super) fn sweep(&mut self) {
        let scheduler = &self.scheduler;
        let over = self.active.extract_if(.., |transaction, _| !scheduler.has(*transaction));
        self.past.extend(over);
        if (0..self.replicas.len()).any(|index| self.is_returning(index)) {
            return;
        }
        for write in std::mem::take(&mut self.past).into_values().flat_map(|over| over.writes) {
            self.statements.remove(write.statement);
            self.outcomes.remove(&write.statement);
        }
        if self.scheduler.kept_entries() > KEPT_ENTRIES_MAX + 8 * self.active.len() {
            self.scheduler.forget_over();
        }
    }

    /// Whether it comes back, or has joined and still runs the transactions it lacked.
    fn is_returning(&self, index: usize) -> bool {
        let (id, scheduler) = (replica(index), &self.scheduler);
        scheduler.expects(id)
            || scheduler.takes_part(id) && !scheduler.is_level(id)
            || !self.replicas[index].again.is_empty()
    }

    /// The replicas that hold up what is kept in memory: those that return, and those that have the most commits left to do
    /// while another one has fewer.
    pub(super) fn laggards(&self) -> Vec<ReplicaRun> {
        let takes_part = |index: &usize| self.scheduler.takes_part(replica(*index));
        let undone = |index: usize| self.replicas[index].undone.len();
        let members = || (0..self.replicas.len()).filter(takes_part);
        let (least, most) = (members().map(undone).min(), members().map(undone).max());
        let lags = |index: &usize| {
            self.is_returning(*index) || takes_part(index) && least < most && Some(undone(*index)) == most
        };
        (0..self.replicas.len()).filter(lags).map(|index| self.run(index)).collect()
    }
}

/// The tables of a statement. The shared lock of the schema is left out: a change of the schema runs alone, and with it
/// the end of each transaction would wait for every statement. A statement that may touch anything writes every table that
/// only some replicas hold.
pub(super) fn tables_of(locks: &LockSet, placement: &Placement) -> Tables {
    let each = locks.iter().map(|(fragment, mode)| (fragment.table, *mode));
    let mut tables: BTreeMap<TableId, Mode> =
        each.filter(|(table, mode)| !is_schema(*table) || *mode == Mode::Write).collect();
    if tables.keys().any(|table| is_schema(*table)) {
        tables.extend(placement.restricted().map(|(table, _)| (table, Mode::Write)));
    }
    tables.into_iter().collect()
}

/// The tables of a read by itself whose answer may be kept. It reads the schema, too, so a statement that may touch anything
/// makes its answer obsolete. No transaction reads it, so nothing waits for its locks that would not wait anyway.
pub(super) fn kept_tables_of(locks: &LockSet, placement: &Placement) -> Tables {
    let tables = tables_of(locks, placement);
    tables.iter().copied().chain([(schema(), Mode::Read)]).collect()
}
