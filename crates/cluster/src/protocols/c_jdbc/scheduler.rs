//! The scheduler: takes requests of clients, lets them wait for locks, numbers them, answers.
//!
//! It joins components that have state of their own: [`Delivery`] (numbers, the log, which replica has executed what),
//! [`TableLocks`], [`Balancer`], and the waits at replicas. `waiting` has the locks, `reading` the reads, `members` the
//! replicas that come and go.

mod delivery;
mod members;
mod reading;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{ReplicaId, SessionId, TableId};
use crate::parts::lock_queues::Mode;
use crate::placement::{Placement, ReplicaSet};
use crate::protocols::shipping::{Ending, StatementId};

use super::balancer::Balancer;
use super::message::{
    Answer, FromReplica, Operation, OperationNumber, ReadId, Request, Step, Tables, ToReplica, TransactionId,
};
use super::query_cache::{Moment, Writings};
use super::table_locks::TableLocks;
use super::{Choices, Level};
use delivery::{Delivery, Progress};
pub use members::Return;
use waiting::{Owner, ReplicaWaits};

/// Most transactions that are not over at all replicas; a request beyond is refused.
const TRANSACTIONS_MAX: usize = 1 << 16;

/// An output of the scheduler. Outputs are carried out in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Send it. Messages to one replica keep their order.
    ToReplica(ReplicaId, ToReplica),
    /// Reply to the client.
    Answer(SessionId, Answer),
    /// The answer that follows may be kept as of this moment.
    Keep(SessionId, Moment),
    /// Append it to the log. Of a commit, [`Scheduler::logged`] says that it is on disk, with all before it.
    Log(Operation),
}

/// A request that is not answered yet.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Pending {
    /// It waits for table locks.
    Locks(Request),
    /// It was numbered.
    Operation,
    /// It is a read at a replica.
    Read { id: ReadId, at: ReplicaId, tables: Tables, statement: StatementId, moment: Option<Moment> },
    /// It is a read, and no replica that could run it has everything yet.
    Unplaced { tables: Tables, statement: StatementId },
}

#[derive(Debug, Default)]
struct Session {
    open: Option<TransactionId>,
    pending: Option<Pending>,
    /// The owner of the locks of a read that is a transaction by itself.
    single: Option<Owner>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Open,
    Ending(Ending),
}

/// A transaction that is not over at all replicas.
#[derive(Debug)]
struct Transaction {
    session: SessionId,
    owner: Owner,
    has_written: bool,
    stage: Stage,
}

/// The scheduler of a virtual database.
#[derive(Debug)]
pub struct Scheduler {
    choices: Choices,
    placement: Placement,
    delivery: Delivery,
    locks: TableLocks<Owner>,
    balancer: Balancer,
    /// What was written, if answers are kept.
    writings: Option<Writings>,
    replica_waits: ReplicaWaits,
    transactions: BTreeMap<TransactionId, Transaction>,
    sessions: BTreeMap<SessionId, Session>,
    owners: BTreeMap<Owner, SessionId>,
    owners_so_far: u64,
    reads: BTreeMap<ReadId, SessionId>,
    reads_so_far: u64,
    /// Sessions whose reads may be unplaced.
    unplaced: BTreeSet<SessionId>,
    /// Replicas that are being rolled forward: what goes on meanwhile is kept for them.
    expected: BTreeSet<ReplicaId>,
}

impl Scheduler {
    /// A client asks.
    pub fn request(&mut self, session: SessionId, request: Request, out: &mut Vec<Output>) {
        let begins = request == Request::Begin;
        if !self.fits(session, &request) || begins && self.transactions.len() >= TRANSACTIONS_MAX {
            out.push(Output::Answer(session, Answer::Refused));
            return;
        }
        self.sessions.entry(session).or_default();
        if let Some(tables) = self.not_held(&request) {
            self.answer(session, Answer::NotHeld(tables), out);
            return;
        }
        match &request {
            Request::Begin => self.begin(session, out),
            Request::End(ending) => self.end(session, *ending, out),
            Request::Read(tables, _) | Request::Write(tables, _) => {
                let tables = self.locks_of(matches!(request, Request::Write(..)), tables);
                self.lock_and_go(session, &tables, request, out);
            }
        }
    }

    /// A replica reports.
    pub fn report(&mut self, replica: ReplicaId, report: FromReplica, out: &mut Vec<Output>) {
        if !self.delivery.takes_part(replica) {
            return;
        }
        match report {
            FromReplica::Executed(number) => {
                self.delivery.executed(replica, number);
                self.progress(number, out);
                self.place_reads(out);
            }
            FromReplica::Failed(number) => {
                self.delivery.executed(replica, number);
                self.failed(replica, number, out);
                self.progress(number, out);
                self.place_reads(out);
            }
            FromReplica::Read(id) => self.read_done(replica, id, out),
            FromReplica::Waits(waiter, blockers) => {
                self.replica_waits.set(replica, waiter, blockers);
                self.break_replica_cycles(waiter, out);
            }
        }
    }

    /// A commit is on disk, with all entries before it.
    pub fn logged(&mut self, number: OperationNumber, out: &mut Vec<Output>) {
        for number in self.delivery.logged(number, out) {
            self.progress(number, out);
        }
    }

    /// Whether an answer that was kept as of a moment is still the answer to a read of a session outside a transaction.
    pub fn may_answer_again(&self, session: SessionId, tables: &Tables, since: Moment) -> bool {
        let is_alone = !self.sessions.contains_key(&session);
        is_alone && self.writings.as_ref().is_some_and(|writings| writings.are_unwritten(tables, since))
    }

    /// The number of transactions that are not over at all replicas.
    pub fn active(&self) -> usize {
        self.transactions.len()
    }

    /// Whether a transaction is not over at all replicas.
    pub fn has(&self, transaction: TransactionId) -> bool {
        self.transactions.contains_key(&transaction)
    }

    /// Whether nothing is under way anywhere.
    pub fn is_quiet(&self) -> bool {
        self.transactions.is_empty() && self.reads.is_empty() && self.delivery.is_quiet()
    }

    /// Whether a replica takes part.
    pub fn takes_part(&self, replica: ReplicaId) -> bool {
        self.delivery.takes_part(replica)
    }

    /// Whether a replica has everything that is over for the others.
    pub fn is_level(&self, replica: ReplicaId) -> bool {
        self.delivery.level().contains(replica)
    }

    /// Forgets the entries of transactions that are over at all replicas, unless a replica is expected. The driver has them on
    /// disk.
    pub fn forget_over(&mut self) {
        if self.expected.is_empty() {
            let transactions = &self.transactions;
            self.delivery.log_mut().retain(|transaction| transactions.contains_key(&transaction));
        }
    }

    /// The number of entries that are kept in memory.
    pub fn kept_entries(&self) -> usize {
        self.delivery.log().len()
    }

    /// Gives the present moment a name, if nothing is under way anywhere. A copy of a replica that is made now can later return
    /// as of this checkpoint.
    pub fn checkpoint(&mut self, name: String) -> Option<OperationNumber> {
        self.is_quiet().then(|| self.delivery.log_mut().name(name))
    }

    /// Who holds what.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Other replicas hold some tables from now on. `false`, and nothing changes, unless nothing is under way and every replica
    /// has everything: otherwise one would be sent what it no longer holds.
    pub fn place(&mut self, placement: Placement, replicas: u16) -> bool {
        let all_take_part = (0..replicas).all(|replica| self.takes_part(ReplicaId(replica)));
        if !self.is_quiet() || !all_take_part {
            return false;
        }
        self.delivery.log_mut().retain(|_| false);
        self.placement = placement;
        true
    }

    /// Whether a session in its present state may ask this.
    fn fits(&self, session: SessionId, request: &Request) -> bool {
        let is_open = self.sessions.get(&session).is_some_and(|session| session.open.is_some());
        let is_idle = self.sessions.get(&session).is_none_or(|session| session.pending.is_none());
        is_idle
            && match request {
                Request::Begin => !is_open,
                Request::Read(..) => true,
                Request::Write(..) | Request::End(_) => is_open,
            }
    }

    /// The tables of a statement, if no replica can execute it, or if a holder of what it writes cannot.
    fn not_held(&self, request: &Request) -> Option<Vec<TableId>> {
        let (Request::Read(tables, _) | Request::Write(tables, _)) = request else { return None };
        let all: Vec<TableId> = tables.iter().map(|(table, _)| *table).collect();
        let able = self.placement.holders_of_all(&all);
        let targets = self.targets(tables);
        let is_held = able != ReplicaSet::EMPTY && targets.and(able) == targets;
        (!is_held && self.choices.rules.reads_need_holders).then_some(all)
    }

    /// The holders of anything that a statement writes, whether they take part or not.
    pub fn targets(&self, tables: &Tables) -> ReplicaSet {
        let written = tables.iter().filter(|(_, mode)| *mode == Mode::Write);
        written.fold(ReplicaSet::EMPTY, |set, (table, _)| set.or(self.placement.holders_of_all(&[*table])))
    }

    fn begin(&mut self, session: SessionId, out: &mut Vec<Output>) {
        if !self.delivery.has_replicas() {
            self.answer(session, Answer::Lost, out);
            return;
        }
        let owner = self.new_owner(session);
        let transaction = TransactionId(self.delivery.next().0);
        let new = Transaction { session, owner, has_written: false, stage: Stage::Open };
        self.transactions.insert(transaction, new);
        let state = self.sessions.entry(session).or_default();
        (state.open, state.pending) = (Some(transaction), Some(Pending::Operation));
        self.send(transaction, Step::Begin, ReplicaSet::first(crate::placement::REPLICAS_MAX), out);
    }

    /// A statement has its locks.
    fn go(&mut self, session: SessionId, request: Request, out: &mut Vec<Output>) {
        match request {
            Request::Read(tables, statement) => self.send_read(session, tables, statement, out),
            Request::Write(tables, statement) => {
                let Some(transaction) = self.sessions.get(&session).and_then(|session| session.open) else {
                    return;
                };
                if let Some(writings) = &mut self.writings {
                    writings.wrote(transaction, &tables);
                }
                let targets = self.targets(&tables);
                if !self.delivery.any_takes_part(targets) {
                    self.give_up(session, Answer::Lost, out);
                    return;
                }
                if let Some(transaction) = self.transactions.get_mut(&transaction) {
                    transaction.has_written = true;
                }
                self.sessions.entry(session).or_default().pending = Some(Pending::Operation);
                self.send(transaction, Step::Write(tables, statement), targets, out);
                // A replica that is behind may have reported a wait that this statement shares.
                self.break_replica_cycles(transaction, out);
            }
            Request::Begin | Request::End(_) => {}
        }
    }

    fn end(&mut self, session: SessionId, ending: Ending, out: &mut Vec<Output>) {
        let Some(transaction) = self.sessions.get(&session).and_then(|session| session.open) else { return };
        let has_written = self.transactions.get(&transaction).is_some_and(|one| one.has_written);
        if ending == Ending::Commit && has_written && !self.delivery.has_replicas() {
            // No replica has its writes; in the log, it would be one that only a replay can execute.
            self.give_up(session, Answer::Lost, out);
            return;
        }
        self.sessions.entry(session).or_default().pending = Some(Pending::Operation);
        self.send_end(transaction, ending, out);
    }

    fn send_end(&mut self, transaction: TransactionId, ending: Ending, out: &mut Vec<Output>) {
        if let Some(state) = self.transactions.get_mut(&transaction) {
            state.stage = Stage::Ending(ending);
        }
        self.send(transaction, Step::End(ending), ReplicaSet::first(crate::placement::REPLICAS_MAX), out);
    }

    fn send(&mut self, transaction: TransactionId, step: Step, to: ReplicaSet, out: &mut Vec<Output>) {
        let waits_for_log = step == Step::End(Ending::Commit)
            && self.choices.rules.log_comes_first
            && self.transactions.get(&transaction).is_some_and(|transaction| transaction.has_written);
        for number in self.delivery.send(transaction, step, to, waits_for_log, out) {
            self.progress(number, out);
        }
    }

    /// Answers the client if enough replicas have executed this, and forgets what is over.
    fn progress(&mut self, number: OperationNumber, out: &mut Vec<Output>) {
        let rules = self.choices.rules;
        let respond = if rules.answers_are_counted { self.choices.respond } else { super::Respond::First };
        let Some(Progress { transaction, end, answer, is_over, is_orphaned }) =
            self.delivery.progress(number, respond)
        else {
            return;
        };
        let Some(state) = self.transactions.get(&transaction) else { return };
        let (session, owner) = (state.session, state.owner);
        // A transaction that was given up is nobody's any more.
        let is_present = self.sessions.get(&session).is_some_and(|state| state.open == Some(transaction));
        if let Some(answer) = answer.filter(|_| is_present) {
            if end.is_some() {
                self.sessions.entry(session).or_default().open = None;
                if !rules.locks_outlive_answers {
                    self.release(owner, out);
                }
            }
            self.answer(session, answer, out);
        }
        if is_orphaned && is_present {
            self.delivery.forget(number);
            self.give_up(session, Answer::Lost, out);
        } else if is_over {
            self.delivery.forget(number);
            if end.is_some() {
                self.delivery.silence(transaction);
                self.transactions.remove(&transaction);
                if let Some(writings) = &mut self.writings {
                    writings.over(transaction);
                }
                self.release(owner, out);
            }
        }
    }

    /// A statement has failed at a replica, whose server lets others have its rows from now on. So the abort gets its number before
    /// anything that they do next.
    fn failed(&mut self, replica: ReplicaId, number: OperationNumber, out: &mut Vec<Output>) {
        let transaction =
            self.delivery.transaction_of(number).filter(|_| self.choices.rules.failures_end_at_once);
        let state = transaction.and_then(|transaction| self.transactions.get(&transaction));
        let Some(session) = state.filter(|state| state.stage == Stage::Open).map(|state| state.session)
        else {
            return;
        };
        if self.sessions.get(&session).is_some_and(|state| state.open == transaction) {
            self.give_up(session, Answer::Failed(replica), out);
        }
    }

    /// The open transaction of a session is aborted, and its request is answered with the reason.
    fn give_up(&mut self, session: SessionId, why: Answer, out: &mut Vec<Output>) {
        let state = self.sessions.entry(session).or_default();
        if let Some(Pending::Read { id, .. }) = &state.pending {
            self.reads.remove(id);
        }
        let (open, single) = (state.open.take(), state.single.take());
        self.answer(session, why, out);
        if let Some(owner) = single {
            self.release(owner, out);
        }
        if let Some(transaction) = open {
            self.delivery.silence(transaction);
            if let Some(state) = self.transactions.get(&transaction) {
                let granted = self.locks.withdraw(state.owner);
                self.go_on(granted, out);
            }
            self.send_end(transaction, Ending::Abort, out);
        }
    }

    fn answer(&mut self, session: SessionId, answer: Answer, out: &mut Vec<Output>) {
        let state = self.sessions.entry(session).or_default();
        state.pending = None;
        if state.open.is_none() && state.single.is_none() {
            self.sessions.remove(&session);
        }
        out.push(Output::Answer(session, answer));
    }

    fn takes_locks(&self, is_write: bool) -> bool {
        let rules = self.choices.rules;
        match self.choices.level {
            Level::PassThrough => false,
            Level::Optimistic => is_write && rules.writers_wait,
            Level::Pessimistic => {
                if is_write {
                    rules.writers_wait
                } else {
                    rules.readers_wait
                }
            }
        }
    }
}
