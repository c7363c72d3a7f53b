//! The operations at one replica: which may be given to the server now.
//!
//! C-JDBC, section 2.2.2: "Update operations are multicast in total order to all the replicas." Operations arrive in the order of their
//! numbers. One is executed when all before it that share a table are *settled*: executed, or waiting inside the server for a
//! lock. An operation that waits is running again as soon as the transaction that it waits for has ended.
//!
//! Invariant: of two operations that share a table, at least one as a writer, the server never runs both. So it has no choice
//! between two orders, and all replicas come to the same state, whatever their speeds.
//!
//! Reads are not ordered, but for the writes of their own transaction. Not here: connections and texts of statements; the driver has
//! them.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::TableId;
use crate::parts::lock_queues::Mode;
use crate::protocols::shipping::StatementId;

use super::message::{FromReplica, Operation, OperationNumber, ReadId, Step, ToReplica, TransactionId};

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

type Uses = BTreeMap<TableId, Mode>;

/// The queue of one replica.
#[derive(Debug)]
pub struct ReplicaQueue {
    /// Operations that are not executed yet.
    entries: BTreeMap<OperationNumber, Entry>,
    /// The tables that each open transaction has used here.
    used: BTreeMap<TransactionId, Uses>,
    reads: Vec<PendingRead>,
    keeps_order: bool,
    awaits_freed: bool,
}

impl Default for ReplicaQueue {
    fn default() -> Self {
        Self::new(true, true)
    }
}

fn add(uses: &mut Uses, tables: &[(TableId, Mode)]) {
    for (table, mode) in tables {
        let used = uses.entry(*table).or_insert(*mode);
        *used = (*used).max(*mode);
    }
}

fn share(one: &Uses, other: &Uses) -> bool {
    let conflicts = |(table, mode): (&TableId, &Mode)| {
        other.get(table).is_some_and(|used| *mode == Mode::Write || *used == Mode::Write)
    };
    one.iter().any(conflicts)
}

impl ReplicaQueue {
    /// An empty queue. The two rules are switched off only by mutants: operations keep their order, and what waited for a
    /// transaction is running again when that has ended.
    pub fn new(keeps_order: bool, awaits_freed: bool) -> Self {
        Self { entries: BTreeMap::new(), used: BTreeMap::new(), reads: Vec::new(), keeps_order, awaits_freed }
    }

    /// A message of the scheduler has arrived.
    pub fn handle(&mut self, message: ToReplica, out: &mut Vec<QueueOutput>) {
        match message {
            ToReplica::Operation(operation) => {
                self.entries.insert(operation.number, Entry { operation, state: State::Queued });
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
            for other in self.entries.values_mut() {
                if other.state == State::WaitsFor(transaction) && self.awaits_freed {
                    other.state = State::Running;
                }
            }
        }
        self.advance(out);
    }

    /// The server has answered a read.
    pub fn read(&mut self, id: ReadId, out: &mut Vec<QueueOutput>) {
        out.push(QueueOutput::Report(FromReplica::Read(id)));
    }

    /// An operation waits inside the server for a lock of another transaction.
    pub fn waits(&mut self, number: OperationNumber, blocker: TransactionId, out: &mut Vec<QueueOutput>) {
        let Some(entry) = self.entries.get_mut(&number).filter(|entry| entry.state != State::Queued) else {
            return;
        };
        entry.state = State::WaitsFor(blocker);
        out.push(QueueOutput::Report(FromReplica::Waits(entry.operation.transaction, blocker)));
        self.advance(out);
    }

    /// Whether nothing is left to execute.
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.reads.is_empty()
    }

    /// The tables that an operation shares with others.
    fn uses(&self, operation: &Operation) -> Uses {
        let mut uses = Uses::new();
        match &operation.step {
            Step::Begin => {}
            Step::Write(tables, _) => add(&mut uses, tables),
            Step::End(_) => {
                let transaction = operation.transaction;
                uses.clone_from(self.used.get(&transaction).unwrap_or(&Uses::new()));
                for other in self.entries.values().filter(|other| other.state == State::WaitsFor(transaction))
                {
                    if let Step::Write(tables, _) = &other.operation.step {
                        add(&mut uses, tables);
                    }
                }
            }
        }
        uses
    }

    /// Whether an operation that comes before another one lets it run.
    fn lets_run(&self, before: &Entry, before_uses: &Uses, next: &Operation, next_uses: &Uses) -> bool {
        let is_settled = matches!(before.state, State::WaitsFor(_));
        if before.operation.transaction == next.transaction {
            return is_settled && matches!(next.step, Step::End(_));
        }
        is_settled || !self.keeps_order || !share(before_uses, next_uses)
    }

    fn advance(&mut self, out: &mut Vec<QueueOutput>) {
        let mut before: Vec<(OperationNumber, Uses)> = Vec::new();
        let numbers: Vec<OperationNumber> = self.entries.keys().copied().collect();
        for number in numbers {
            let entry = &self.entries[&number];
            let uses = self.uses(&entry.operation);
            let is_free = |(number, uses_before): &(OperationNumber, Uses)| {
                self.lets_run(&self.entries[number], uses_before, &entry.operation, &uses)
            };
            if entry.state == State::Queued && before.iter().all(is_free) {
                let operation = entry.operation.clone();
                if let Step::Write(tables, _) = &operation.step {
                    add(self.used.entry(operation.transaction).or_default(), tables);
                }
                self.entries.get_mut(&number).expect("it is there").state = State::Running;
                out.push(QueueOutput::Server(Work::Operation(operation)));
            }
            before.push((number, uses));
        }
        let busy: BTreeSet<TransactionId> =
            self.entries.values().map(|entry| entry.operation.transaction).collect();
        for read in self.reads.extract_if(.., |read| !busy.contains(&read.transaction)) {
            out.push(QueueOutput::Server(Work::Read(read.id, Some(read.transaction), read.statement)));
        }
    }
}

#[cfg(test)]
mod tests;
