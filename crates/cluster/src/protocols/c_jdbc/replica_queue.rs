//! The operations at one replica: which may be given to the server now.
//!
//! C-JDBC, section 2.2.2: "Update operations are multicast in total order to all the replicas." Operations arrive in the order of their
//! numbers, and those that share a table are executed in it, with one exception. A statement is *stuck* if it waits inside the
//! server for a lock, or is queued behind one that is stuck. It is passed by the statements of the transaction that holds
//! the lock, and by the ends of all transactions, and comes after them from then on. Example, on one row:
//!
//! ```text
//! 3 T1 writes, 4 T2 writes and waits for T1, 5 T3 writes: queued behind 4, 6 T1 writes and 7 T1 commits: pass both
//! ```
//!
//! Two statements share a table if both write it. An end shares all tables that its transaction used, and those of what it may free:
//! the statements that are stuck for it, or queued behind one of its own. An end is never stuck. A statement is stuck only behind
//! statements that all holders of what it writes have, whatever else each of them holds.
//!
//! Only the holder of the lock passes. If it waits for a third transaction in turn, a statement of the third queues, and the
//! scheduler sees a cycle. If the third passed, an abort in the middle of the chain could free the first statement earlier at one
//! replica than at another.
//!
//! Invariant: of two statements that write a table, the server never runs both, and never frees both at once. So it has no choice
//! between two orders, and all replicas come to the same state, whatever their speeds.
//!
//! A replica that returns has much to do, and each look at the queue compares its operations with each other. So only so many are in
//! the queue at once, as if the others had not arrived yet; if all of these wait, one more comes in, because it may free them.
//!
//! Reads are not ordered, but for the writes of their own transaction. Not here: connections and texts of statements; the driver has
//! them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::TableId;
use crate::parts::lock_queues::Mode;
use crate::protocols::shipping::StatementId;

use super::message::{FromReplica, Operation, OperationNumber, ReadId, Step, ToReplica, TransactionId};

/// The operations that are compared with each other, so also the most that the server executes at once.
pub const WINDOW: usize = 64;

/// Work for the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// An operation. An end may come while a statement of its transaction waits for a lock: the driver cancels that first.
    Operation(Operation),
    /// A read, on the connection of its transaction if it has one.
    Read(ReadId, Option<TransactionId>, StatementId),
}

/// What the queue asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueueOutput {
    /// To the server; [`ReplicaQueue::executed`] or [`ReplicaQueue::read`] tells that it is done.
    Server(Work),
    /// To the scheduler.
    Report(FromReplica),
}

/// Rules of the queue that a mutant of the simulator can switch off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueRules {
    /// Operations that share a table keep their order.
    pub keeps_order: bool,
    /// Statements queue behind one that waits for a lock.
    pub queues_behind_stuck: bool,
    /// Ends pass what is stuck.
    pub ends_pass: bool,
    /// A statement waits for what has passed it.
    pub passed_await_passers: bool,
    /// An end shares the tables of what it may free.
    pub ends_share_what_they_free: bool,
    /// A statement that waited for a transaction is running again when that has ended.
    pub awaits_freed: bool,
    /// The operations in the queue at once; at least one.
    pub window: usize,
    /// If all of these wait, one more comes in.
    pub waiting_make_room: bool,
}

impl Default for QueueRules {
    fn default() -> Self {
        Self {
            keeps_order: true,
            queues_behind_stuck: true,
            ends_pass: true,
            passed_await_passers: true,
            ends_share_what_they_free: true,
            awaits_freed: true,
            window: WINDOW,
            waiting_make_room: true,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Queued,
    Running,
    WaitsFor(TransactionId),
}

#[derive(Debug)]
struct Entry {
    operation: Operation,
    state: State,
}

#[derive(Debug)]
struct PendingRead {
    id: ReadId,
    transaction: TransactionId,
    statement: StatementId,
}

type TableSet = BTreeSet<TableId>;

/// The queue of one replica.
#[derive(Debug, Default)]
pub struct ReplicaQueue {
    /// Operations that are not executed yet.
    entries: BTreeMap<OperationNumber, Entry>,
    /// Those that have arrived after these, in the order of their numbers.
    later: VecDeque<Operation>,
    /// The tables that each open transaction has used here.
    used: BTreeMap<TransactionId, TableSet>,
    reads: Vec<PendingRead>,
    /// For each transaction with a stuck statement, those that it waits for, as the scheduler was told.
    told: BTreeMap<TransactionId, BTreeSet<TransactionId>>,
    rules: QueueRules,
}

/// An operation as the others see it.
#[derive(Debug)]
struct Placed {
    number: OperationNumber,
    transaction: TransactionId,
    state: State,
    is_end: bool,
    /// The tables that it writes. Of an end: none.
    writes: TableSet,
    /// The tables that it writes or reads. Of an end: those that its transaction used, and those of what it frees.
    uses: TableSet,
    /// If it is stuck, the transactions that must end before it can go on.
    stuck_for: BTreeSet<TransactionId>,
    /// The transactions of the stuck statements behind which it is queued. The abort of one may free it as well.
    behind: BTreeSet<TransactionId>,
}

impl Placed {
    fn new(number: OperationNumber, entry: &Entry) -> Self {
        let tables = match &entry.operation.step {
            Step::Write(tables, _) => &tables[..],
            Step::Begin | Step::End(_) => &[],
        };
        let writes = tables.iter().filter(|(_, mode)| *mode == Mode::Write);
        Self {
            number,
            transaction: entry.operation.transaction,
            state: entry.state,
            is_end: matches!(entry.operation.step, Step::End(_)),
            writes: writes.map(|(table, _)| *table).collect(),
            uses: tables.iter().map(|(table, _)| *table).collect(),
            stuck_for: BTreeSet::new(),
            behind: BTreeSet::new(),
        }
    }

    fn shares(&self, other: &Self) -> bool {
        if self.is_end || other.is_end {
            !self.uses.is_disjoint(&other.uses)
        } else {
            !self.writes.is_disjoint(&other.writes)
        }
    }

    fn is_stuck(&self) -> bool {
        !self.stuck_for.is_empty()
    }

    /// Whether this operation, which comes before another one, lets that run.
    fn lets_run(&self, next: &Self, rules: QueueRules) -> bool {
        let end_passes = next.is_end && self.is_stuck() && rules.ends_pass;
        if self.transaction == next.transaction {
            return end_passes;
        }
        if !rules.keeps_order || !self.shares(next) {
            return true;
        }
        let is_passed = self.stuck_for.contains(&next.transaction)
            || (matches!(self.state, State::WaitsFor(_)) && !rules.queues_behind_stuck);
        end_passes || is_passed
    }
}

impl ReplicaQueue {
    /// An empty queue; [`ReplicaQueue::default`] has all rules.
    pub fn new(rules: QueueRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// A message of the scheduler has arrived.
    pub fn handle(&mut self, message: ToReplica, out: &mut Vec<QueueOutput>) {
        match message {
            ToReplica::Operation(operation) => {
                self.later.push_back(operation);
            }
            ToReplica::Read(id, Some(transaction), statement) => {
                self.reads.push(PendingRead { id, transaction, statement });
            }
            ToReplica::Read(id, None, statement) => {
                out.push(QueueOutput::Server(Work::Read(id, None, statement)));
            }
        }
        self.advance(out);
    }

    /// The server has executed an operation.
    pub fn executed(&mut self, number: OperationNumber, out: &mut Vec<QueueOutput>) {
        let Some(entry) = self.entries.remove(&number) else { return };
        out.push(QueueOutput::Report(FromReplica::Executed(number)));
        let transaction = entry.operation.transaction;
        if let Step::End(_) = entry.operation.step {
            self.used.remove(&transaction);
            self.entries.retain(|_, other| other.operation.transaction != transaction);
            self.freed(transaction);
        }
        self.advance(out);
    }

    /// A statement has failed, and the server has rolled its transaction back: what waited for that goes on.
    pub fn failed(&mut self, number: OperationNumber, out: &mut Vec<QueueOutput>) {
        let Some(entry) = self.entries.remove(&number) else { return };
        self.freed(entry.operation.transaction);
        out.push(QueueOutput::Report(FromReplica::Failed(number)));
        self.advance(out);
    }

    /// What waited for a transaction is running again.
    fn freed(&mut self, transaction: TransactionId) {
        for other in self.entries.values_mut() {
            if other.state == State::WaitsFor(transaction) && self.rules.awaits_freed {
                other.state = State::Running;
            }
        }
    }

    /// The server has answered a read.
    pub fn read(&mut self, id: ReadId, out: &mut Vec<QueueOutput>) {
        out.push(QueueOutput::Report(FromReplica::Read(id)));
    }

    /// An operation waits inside the server for a lock of another transaction. Not heard if that has ended meanwhile.
    pub fn waits(&mut self, number: OperationNumber, blocker: TransactionId, out: &mut Vec<QueueOutput>) {
        let Some(entry) = self.entries.get_mut(&number).filter(|entry| entry.state != State::Queued) else {
            return;
        };
        if self.used.contains_key(&blocker) {
            entry.state = State::WaitsFor(blocker);
            self.advance(out);
        }
    }

    /// Whether nothing is left to execute.
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.later.is_empty() && self.reads.is_empty()
    }

    /// The operations that the server has, and then those in the queue: what has passed another one is before it now.
    fn placed(&self) -> Vec<Placed> {
        let mut placed: Vec<Placed> =
            self.entries.iter().map(|(number, entry)| Placed::new(*number, entry)).collect();
        if self.rules.passed_await_passers {
            placed.sort_by_key(|placed| placed.state == State::Queued);
        }
        for place in 0..placed.len() {
            let (before, rest) = placed.split_at_mut(place);
            let Some(next) = rest.first_mut().filter(|next| !next.is_end) else { continue };
            match next.state {
                State::Running => {}
                State::WaitsFor(blocker) => next.stuck_for = BTreeSet::from([blocker]),
                State::Queued => {
                    let stops = |before: &&Placed| before.is_stuck() && !before.lets_run(next, self.rules);
                    let stuck: Vec<&Placed> = before.iter().filter(stops).collect();
                    for before in stuck {
                        next.stuck_for.extend(&before.stuck_for);
                        next.behind.extend(&before.behind);
                        next.behind.insert(before.transaction);
                    }
                }
            }
        }
        for place in 0..placed.len() {
            if !placed[place].is_end {
                continue;
            }
            let transaction = placed[place].transaction;
            let mut uses = self.used.get(&transaction).cloned().unwrap_or_default();
            for other in placed.iter().filter(|other| !other.is_end) {
                let is_freed = other.stuck_for.contains(&transaction) || other.behind.contains(&transaction);
                if is_freed && self.rules.ends_share_what_they_free || other.transaction == transaction {
                    uses.extend(&other.uses);
                }
            }
            placed[place].uses = uses;
        }
        placed
    }

    fn advance(&mut self, out: &mut Vec<QueueOutput>) {
        while self.entries.len() < self.rules.window && self.let_in() {}
        let mut placed = self.give(out);
        while self.rules.waiting_make_room && self.all_wait() && self.let_in() {
            placed = self.give(out);
        }
        self.tell(&placed, out);
        if self.reads.is_empty() {
            return;
        }
        let entries = self.entries.values().map(|entry| &entry.operation);
        let busy: BTreeSet<TransactionId> =
            entries.chain(&self.later).map(|operation| operation.transaction).collect();
        for read in self.reads.extract_if(.., |read| !busy.contains(&read.transaction)) {
            out.push(QueueOutput::Server(Work::Read(read.id, Some(read.transaction), read.statement)));
        }
    }

    /// Takes in one operation more; `false` if there is none.
    fn let_in(&mut self) -> bool {
        let Some(operation) = self.later.pop_front() else { return false };
        self.entries.insert(operation.number, Entry { operation, state: State::Queued });
        true
    }

    /// Whether the server is at work on nothing: each of its statements waits for another transaction.
    fn all_wait(&self) -> bool {
        self.entries.values().all(|entry| entry.state != State::Running)
    }

    /// Gives the server what may run now. Returns the operations as they were before.
    fn give(&mut self, out: &mut Vec<QueueOutput>) -> Vec<Placed> {
        let placed = self.placed();
        for (place, next) in placed.iter().enumerate() {
            let may_run = |before: &Placed| before.lets_run(next, self.rules);
            if next.state != State::Queued || !placed[..place].iter().all(may_run) {
                continue;
            }
            let Some(entry) = self.entries.get_mut(&next.number) else { continue };
            entry.state = State::Running;
            if let Step::Write(..) = entry.operation.step {
                self.used.entry(next.transaction).or_default().extend(&next.uses);
            }
            out.push(QueueOutput::Server(Work::Operation(entry.operation.clone())));
        }
        placed
    }

    /// Tells the scheduler what has changed of the waits.
    fn tell(&mut self, placed: &[Placed], out: &mut Vec<QueueOutput>) {
        let mut waits: BTreeMap<TransactionId, BTreeSet<TransactionId>> = BTreeMap::new();
        for stuck in placed.iter().filter(|placed| placed.is_stuck()) {
            waits.entry(stuck.transaction).or_default().extend(&stuck.stuck_for);
        }
        for waiter in self.told.keys().filter(|waiter| !waits.contains_key(waiter)) {
            out.push(QueueOutput::Report(FromReplica::Waits(*waiter, BTreeSet::new())));
        }
        for (waiter, blockers) in &waits {
            if self.told.get(waiter) != Some(blockers) {
                out.push(QueueOutput::Report(FromReplica::Waits(*waiter, blockers.clone())));
            }
        }
        self.told = waits;
    }
}

#[cfg(test)]
mod tests;
