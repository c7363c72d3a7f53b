//! A simulated server: rows with committed values, transactions with their own, row locks in order of arrival.
//!
//! A write statement takes its snapshot when it starts, then locks its rows one after the other. Each new value depends on what the
//! statement had read, so copies that executed in different orders differ for ever (`digest`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cluster::protocols::c_jdbc::message::{OperationNumber, TransactionId};
use cluster::protocols::shipping::Ending;

use super::draw::Statement;
use crate::history::{Element, Seen, Write};

/// The value of a row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Value {
    pub(super) list: Vec<Element>,
    pub(super) digest: u64,
}

/// What a statement shows its client.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    pub(super) reads: Vec<Seen>,
    pub(super) writes: Vec<Write>,
    /// The statement has failed, and the server has rolled its transaction back.
    pub(super) has_failed: bool,
}

#[derive(Debug)]
struct Running {
    transaction: TransactionId,
    statement: Statement,
    reply: Reply,
    digest: u64,
    has_snapshot: bool,
}

#[derive(Debug)]
struct Lock {
    holder: TransactionId,
    waiting: VecDeque<OperationNumber>,
}

/// How a statement went on.
#[derive(Debug)]
pub(super) enum Went {
    /// It is done.
    Done(Reply),
    /// It has more to do.
    On,
    /// It waits for a lock of this transaction.
    Waits(TransactionId),
    /// It has failed: the server rolls its transaction back at once, long before the client says ROLLBACK.
    Failed(Reply, Freed),
}

/// What the end of a transaction set free.
#[derive(Debug, Default)]
pub(super) struct Freed {
    /// Statements that go on.
    pub(super) running: Vec<OperationNumber>,
    /// Statements that wait for another transaction now.
    pub(super) waiting: Vec<(OperationNumber, TransactionId)>,
}

/// What outlives a crash.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) rows: BTreeMap<u32, Value>,
    pub(super) committed: BTreeSet<TransactionId>,
}

/// The server of one replica.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) disk: Disk,
    own: BTreeMap<TransactionId, BTreeMap<u32, Value>>,
    running: BTreeMap<OperationNumber, Running>,
    locks: BTreeMap<u32, Lock>,
    /// Transactions that this server has ended by itself.
    ended: BTreeSet<TransactionId>,
}

fn mix(one: u64, other: u64) -> u64 {
    (one.rotate_left(7) ^ other).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Server {
    /// A server that has crashed and starts again.
    pub(super) fn restarted(disk: Disk) -> Self {
        Self { disk, ..Self::default() }
    }

    fn value(&self, transaction: Option<TransactionId>, row: u32) -> Value {
        let own = transaction.and_then(|transaction| self.own.get(&transaction)?.get(&row));
        own.or_else(|| self.disk.rows.get(&row)).cloned().unwrap_or_default()
    }

    /// Rows as of this moment.
    pub(super) fn read(&self, transaction: Option<TransactionId>, rows: &[u32]) -> Vec<Seen> {
        rows.iter().map(|row| Seen { row: *row, list: self.value(transaction, *row).list }).collect()
    }

    /// A statement begins.
    pub(super) fn start(
        &mut self,
        number: OperationNumber,
        transaction: TransactionId,
        statement: Statement,
    ) {
        let reply = Reply::default();
        self.running
            .insert(number, Running { transaction, statement, reply, digest: 0, has_snapshot: false });
    }

    /// A statement goes on: it takes its snapshot, or locks and writes its next row.
    pub(super) fn step(&mut self, number: OperationNumber) -> Option<Went> {
        let mut running = self.running.remove(&number)?;
        let transaction = running.transaction;
        if self.ended.contains(&transaction) {
            return Some(Went::Done(running.reply));
        }
        if !running.has_snapshot {
            running.has_snapshot = true;
            running.reply.reads = self.read(Some(transaction), &running.statement.reads);
            for row in &running.statement.reads {
                running.digest = mix(running.digest, self.value(Some(transaction), *row).digest);
            }
        }
        if running.statement.fails_after == Some(running.reply.writes.len()) {
            let freed = self.end(transaction, Ending::Abort);
            self.ended.insert(transaction);
            return Some(Went::Failed(Reply { has_failed: true, ..Reply::default() }, freed));
        }
        let Some((row, element)) = running.statement.writes.get(running.reply.writes.len()).copied() else {
            return Some(Went::Done(running.reply));
        };
        let lock = self.locks.entry(row).or_insert(Lock { holder: transaction, waiting: VecDeque::new() });
        if lock.holder != transaction {
            lock.waiting.push_back(number);
            let holder = lock.holder;
            self.running.insert(number, running);
            return Some(Went::Waits(holder));
        }
        let mut value = self.value(Some(transaction), row);
        running.reply.writes.push(Write { row, element, base: Some(value.list.clone()), is_gone: false });
        value.digest = mix(mix(value.digest, element), running.digest);
        value.list.push(element);
        self.own.entry(transaction).or_default().insert(row, value);
        let fails = running.statement.fails_after == Some(running.reply.writes.len());
        if running.reply.writes.len() == running.statement.writes.len() && !fails {
            return Some(Went::Done(running.reply));
        }
        self.running.insert(number, running);
        Some(Went::On)
    }

    /// The transaction of a statement that is not done.
    pub(super) fn transaction_of(&self, number: OperationNumber) -> Option<TransactionId> {
        self.running.get(&number).map(|running| running.transaction)
    }

    /// The transaction ends; a statement of it that waits is cancelled.
    pub(super) fn end(&mut self, transaction: TransactionId, ending: Ending) -> Freed {
        let own = self.own.remove(&transaction).unwrap_or_default();
        // One that wrote nothing here may be missing in the log after a crash of the controller, and its number given again.
        if ending == Ending::Commit && !own.is_empty() && !self.ended.contains(&transaction) {
            self.disk.rows.extend(own);
            self.disk.committed.insert(transaction);
        }
        self.running.retain(|_, running| running.transaction != transaction);
        let mut freed = Freed::default();
        for lock in self.locks.values_mut() {
            lock.waiting.retain(|number| self.running.contains_key(number));
            if lock.holder != transaction {
                continue;
            }
            let Some(next) = lock.waiting.pop_front() else { continue };
            lock.holder = self.running[&next].transaction;
            freed.running.push(next);
            freed.waiting.extend(lock.waiting.iter().map(|number| (*number, lock.holder)));
        }
        self.locks.retain(|_, lock| lock.holder != transaction);
        freed
    }

    /// Whether a transaction waits, by others, for itself. Only for a server that looks for deadlocks.
    pub(super) fn is_in_deadlock(&self, transaction: TransactionId) -> bool {
        let waits_for = |waiter: TransactionId| {
            let waiting =
                |lock: &&Lock| lock.waiting.iter().any(|number| self.running[number].transaction == waiter);
            self.locks.values().find(waiting).map(|lock| lock.holder)
        };
        let mut at = transaction;
        for _ in 0..=self.running.len() {
            match waits_for(at) {
                Some(next) if next == transaction => return true,
                Some(next) => at = next,
                None => return false,
            }
        }
        false
    }

    /// The server ends a transaction by itself. Returns its statement.
    pub(super) fn kill(&mut self, transaction: TransactionId) -> (Option<OperationNumber>, Freed) {
        let number = self.running.iter().find(|(_, running)| running.transaction == transaction);
        let number = number.map(|(number, _)| *number);
        let freed = self.end(transaction, Ending::Abort);
        self.ended.insert(transaction);
        (number, freed)
    }
}
