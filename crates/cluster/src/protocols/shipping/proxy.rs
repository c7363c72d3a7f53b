//! The proxy of one replica: lets an operation go to the database when it is its turn (sections 4.1 and 4.3).
//!
//! State as in the paper: lock queues per table in order of sequence numbers, a queue per transaction with the number of
//! its locks that are still missing, and the out-of-order queue. The database does one thing at a time for each
//! transaction, and the driver reports when that is done.
//!
//! A decided transaction that is done again keeps its locks meanwhile, so that nothing with a higher number gets in
//! between. An abort of a transaction whose lock request never came takes the number's place (section 5.3.1: "fill the gap in
//! lock sequence numbers"). Per table the last committed write is known, for fail-over.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::ids::{FragmentId, SessionId};
use crate::parts::lock_queues::{LockQueues, LockSet, Mode};
use crate::parts::numbered::Numbered;
use crate::parts::sequence_gate::SequenceGate;

use super::message::{Ending, FromProxy, Kind, Operation, SequenceNumber, ToProxy, Transaction};

/// Work of the database for a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Run a query inside the transaction.
    Run(Operation),
    /// Run a query that is a transaction of its own.
    RunAlone(Operation),
    /// Roll back, and begin again under the same locks.
    Restart,
    /// Commit or roll back.
    End(Ending),
}

/// An output of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyOutput {
    /// To the database; [`Proxy::finished`] tells that it is done.
    Database(Transaction, Work),
    /// To the scheduler.
    Report(FromProxy),
}

#[derive(Debug)]
enum Arrival {
    Locks(Transaction, LockSet),
    Gap(SequenceNumber),
}

/// The queue of one transaction.
#[derive(Debug, Default)]
struct Queue {
    /// `None` before its lock request has passed the gate.
    locks: Option<LockSet>,
    missing: usize,
    /// Only the report of its end is waited for.
    is_quiet: bool,
    /// The next operation; there is seldom more than one.
    next: Option<Work>,
    /// The operations after that.
    pending: VecDeque<Work>,
    running: Option<Work>,
    /// All writes, if it is done again.
    again: Option<Box<[Operation]>>,
}

impl Queue {
    fn single(operation: Operation) -> Self {
        Self { is_quiet: true, next: Some(Work::RunAlone(operation)), ..Self::default() }
    }

    fn push(&mut self, work: Work) {
        if self.next.is_none() {
            self.next = Some(work);
        } else {
            self.pending.push_back(work);
        }
    }

    /// Drops what is still to be done, and does the whole transaction again. Returns the time that this adds, and the time of what
    /// was dropped.
    fn do_again(&mut self, writes: &[Operation], is_new: bool) -> (u64, u64) {
        let dropped_us = self.clear();
        let restart = [Work::Restart].into_iter().filter(|_| !is_new);
        let all = writes.iter().map(|write| Work::Run(*write)).chain([Work::End(Ending::Commit)]);
        restart.chain(all).for_each(|work| self.push(work));
        self.again = Some(writes.into());
        (writes.iter().map(|write| u64::from(write.cost_us)).sum(), dropped_us)
    }

    /// Drops what is still to be done. Returns the time that it would have taken.
    fn clear(&mut self) -> u64 {
        let dropped = self.next.take().into_iter().chain(self.pending.drain(..));
        dropped.map(|work| u64::from(work.cost().0)).sum()
    }

    fn pop(&mut self) -> Option<Work> {
        let next = self.next.take();
        self.next = self.pending.pop_front();
        next
    }
}

/// The queues of the transactions that are under way.
#[derive(Debug)]
struct Queues {
    numbered: Numbered<Queue>,
    singles: BTreeMap<SessionId, Queue>,
}

impl Queues {
    fn get_mut(&mut self, name: Transaction) -> Option<&mut Queue> {
        match name {
            Transaction::Numbered(number) => self.numbered.get_mut(number.0),
            Transaction::Single(session) => self.singles.get_mut(&session),
        }
    }

    fn has(&self, number: SequenceNumber) -> bool {
        self.numbered.get(number.0).is_some()
    }

    /// The queue of a transaction, which is there from now on.
    fn of(&mut self, name: Transaction) -> &mut Queue {
        match name {
            Transaction::Numbered(SequenceNumber(number)) => {
                if self.numbered.get(number).is_none() {
                    self.numbered.insert(number, Queue::default());
                }
                self.numbered.get_mut(number).expect("it was put there if it was not")
            }
            Transaction::Single(session) => self.singles.entry(session).or_default(),
        }
    }

    fn remove(&mut self, name: Transaction) -> Option<Queue> {
        match name {
            Transaction::Numbered(number) => self.numbered.remove(number.0),
            Transaction::Single(session) => self.singles.remove(&session),
        }
    }
}

/// The proxy of one replica.
#[derive(Debug)]
pub struct Proxy {
    gate: SequenceGate<Arrival>,
    locks: LockQueues<Transaction>,
    transactions: Queues,
    committed: BTreeMap<FragmentId, SequenceNumber>,
    granted: Vec<Transaction>,
    /// The sum of the times of all operations that have come and are not done.
    load_us: u64,
}

impl Default for Proxy {
    fn default() -> Self {
        Self::new(SequenceNumber::default())
    }
}

impl Proxy {
    /// A proxy whose database has everything up to this number.
    pub fn new(upto: SequenceNumber) -> Self {
        Self {
            gate: SequenceGate::new(upto.0),
            locks: LockQueues::default(),
            transactions: Queues { numbered: Numbered::after(upto.0), singles: BTreeMap::new() },
            committed: BTreeMap::new(),
            granted: Vec::new(),
            load_us: 0,
        }
    }

    /// A proxy whose database was put back to a checkpoint: it has everything up to this number, and on some tables later
    /// writes (section 5.3.3).
    pub fn restored(upto: SequenceNumber, committed: BTreeMap<FragmentId, SequenceNumber>) -> Self {
        Self { committed, ..Self::new(upto) }
    }

    /// A message of the scheduler has arrived.
    pub fn handle(&mut self, message: ToProxy, out: &mut Vec<ProxyOutput>) {
        match message {
            ToProxy::Lock { number, locks } => {
                let name = Transaction::Numbered(number);
                self.gate.arrive(number.0, Arrival::Locks(name, locks));
                self.pass(out);
            }
            ToProxy::SingleUpdate { number, locks, operation } => {
                let name = Transaction::Numbered(number);
                if !self.gate.knows(number.0) {
                    self.open_single(name, operation);
                    self.gate.arrive(number.0, Arrival::Locks(name, locks));
                    self.pass(out);
                }
            }
            ToProxy::SingleRead { session, after, locks, operation } => {
                let name = Transaction::Single(session);
                self.open_single(name, operation);
                self.gate.arrive_after(after.0, Arrival::Locks(name, locks));
                self.pass(out);
            }
            ToProxy::Redo { number, locks, writes } => self.redo(number, locks, &writes, out),
            ToProxy::Undo { number } => self.undo(number, out),
            ToProxy::Execute { number, operation } => self.push(number, Work::Run(operation), out),
            ToProxy::End { number, ending } => {
                if ending == Ending::Abort && !self.gate.knows(number.0) {
                    self.gate.arrive(number.0, Arrival::Gap(number));
                    self.transactions.remove(Transaction::Numbered(number));
                    self.pass(out);
                } else {
                    self.push(number, Work::End(ending), out);
                }
            }
        }
    }

    /// The database has done its present work for this transaction.
    pub fn finished(&mut self, name: Transaction, out: &mut Vec<ProxyOutput>) {
        let Some(queue) = self.transactions.get_mut(name) else { return };
        let Some(work) = queue.running.take() else { return };
        self.load_us = self.load_us.saturating_sub(u64::from(work.cost().0));
        match (work, name) {
            (Work::Run(operation), Transaction::Numbered(number)) => {
                if !queue.is_quiet {
                    out.push(ProxyOutput::Report(FromProxy::Done(number, operation)));
                }
                self.advance(name, out);
            }
            (Work::Restart, _) => self.advance(name, out),
            (Work::RunAlone(operation) | Work::Run(operation), Transaction::Single(session)) => {
                self.end(name, false, out);
                out.push(ProxyOutput::Report(FromProxy::Read(session, operation)));
            }
            (Work::RunAlone(operation), Transaction::Numbered(number)) => {
                self.end(name, true, out);
                out.push(ProxyOutput::Report(FromProxy::Ended(number, Some(operation))));
            }
            (Work::End(ending), Transaction::Numbered(number)) => {
                self.end(name, ending == Ending::Commit, out);
                out.push(ProxyOutput::Report(FromProxy::Ended(number, None)));
            }
            (Work::End(_), Transaction::Single(_)) => {}
        }
    }

    /// Whether the database is doing something for a transaction.
    pub fn works_for(&self, name: Transaction) -> bool {
        let queue = match name {
            Transaction::Numbered(number) => self.transactions.numbered.get(number.0),
            Transaction::Single(session) => self.transactions.singles.get(&session),
        };
        queue.is_some_and(|queue| queue.running.is_some())
    }

    /// What the database was doing for a numbered transaction is lost with its connection. A transaction that is done again is done from
    /// its beginning; of another one the next thing is done, so it has to be undone or done again first.
    pub fn lost(&mut self, number: SequenceNumber, out: &mut Vec<ProxyOutput>) {
        let name = Transaction::Numbered(number);
        let Some(queue) = self.transactions.get_mut(name) else { return };
        let Some(work) = queue.running.take() else { return };
        self.load_us = self.load_us.saturating_sub(u64::from(work.cost().0));
        if let Some(writes) = queue.again.take() {
            let (added_us, dropped_us) = queue.do_again(&writes, false);
            self.load_us = (self.load_us + added_us).saturating_sub(dropped_us);
        }
        self.advance(name, out);
    }

    /// The highest sequence number of any lock request that has arrived (section 5.3.1).
    pub fn highest(&self) -> SequenceNumber {
        SequenceNumber(self.gate.highest())
    }

    /// The last write that was committed here on each table (section 5.3).
    pub fn committed(&self) -> &BTreeMap<FragmentId, SequenceNumber> {
        &self.committed
    }

    /// Every number up to this one is over here.
    pub fn over(&self) -> SequenceNumber {
        let first = self.transactions.numbered.numbers().next();
        let passed = self.gate.passed();
        SequenceNumber(first.map_or(passed, |first| passed.min(first - 1)))
    }

    /// The load of the database: "the sum of the execution times of all queries outstanding" there (section 4.10).
    pub fn load_us(&self) -> u64 {
        self.load_us
    }

    /// Whether the transaction is under way here.
    pub fn has(&self, number: SequenceNumber) -> bool {
        self.transactions.has(number)
    }

    fn open_single(&mut self, name: Transaction, operation: Operation) {
        self.load_us += u64::from(operation.cost_us);
        *self.transactions.of(name) = Queue::single(operation);
    }

    fn redo(
        &mut self,
        number: SequenceNumber,
        locks: LockSet,
        writes: &[Operation],
        out: &mut Vec<ProxyOutput>,
    ) {
        let name = Transaction::Numbered(number);
        let is_new = !self.gate.knows(number.0);
        if !is_new && !self.transactions.has(number) {
            out.push(ProxyOutput::Report(FromProxy::Ended(number, None)));
            return;
        }
        let queue = self.transactions.of(name);
        queue.is_quiet = true;
        let (added_us, dropped_us) = queue.do_again(writes, is_new);
        self.load_us = (self.load_us + added_us).saturating_sub(dropped_us);
        if is_new {
            self.gate.arrive(number.0, Arrival::Locks(name, locks));
            self.pass(out);
        } else {
            self.advance(name, out);
        }
    }

    /// Rolls a transaction back, or fills its gap. What is over already is reported again.
    fn undo(&mut self, number: SequenceNumber, out: &mut Vec<ProxyOutput>) {
        let name = Transaction::Numbered(number);
        if !self.gate.knows(number.0) {
            self.gate.arrive(number.0, Arrival::Gap(number));
            self.pass(out);
            return;
        }
        if number.0 <= self.gate.passed() && !self.transactions.has(number) {
            out.push(ProxyOutput::Report(FromProxy::Ended(number, None)));
            return;
        }
        // Its lock request may still wait for its turn.
        let queue = self.transactions.of(name);
        (queue.is_quiet, queue.again) = (true, None);
        self.load_us = self.load_us.saturating_sub(queue.clear());
        queue.push(Work::End(Ending::Abort));
        self.advance(name, out);
    }

    fn push(&mut self, number: SequenceNumber, work: Work, out: &mut Vec<ProxyOutput>) {
        let name = Transaction::Numbered(number);
        if number.0 <= self.gate.passed() && !self.transactions.has(number) {
            // It is over here; a word that comes twice is not answered twice.
            return;
        }
        self.load_us += u64::from(work.cost().0);
        self.transactions.of(name).push(work);
        self.advance(name, out);
    }

    fn pass(&mut self, out: &mut Vec<ProxyOutput>) {
        while let Some(arrival) = self.gate.pass() {
            match arrival {
                Arrival::Gap(number) => {
                    // Operations of it may have come meanwhile, late.
                    self.transactions.remove(Transaction::Numbered(number));
                    out.push(ProxyOutput::Report(FromProxy::Ended(number, None)));
                }
                Arrival::Locks(name, locks) => {
                    let missing = self.locks.acquire(name, &locks);
                    let queue = self.transactions.of(name);
                    (queue.locks, queue.missing) = (Some(locks), missing);
                    if missing == 0 {
                        self.all_granted(name, out);
                    }
                }
            }
        }
    }

    fn all_granted(&mut self, name: Transaction, out: &mut Vec<ProxyOutput>) {
        if let Transaction::Numbered(number) = name
            && self.transactions.get_mut(name).is_some_and(|queue| !queue.is_quiet)
        {
            out.push(ProxyOutput::Report(FromProxy::Granted(number)));
        }
        self.advance(name, out);
    }

    /// Gives the database the next thing to do for this transaction, if it is its turn.
    fn advance(&mut self, name: Transaction, out: &mut Vec<ProxyOutput>) {
        let Some(queue) = self.transactions.get_mut(name) else { return };
        if queue.locks.is_none() || queue.missing > 0 || queue.running.is_some() {
            return;
        }
        if let Some(work) = queue.pop() {
            queue.running = Some(work);
            out.push(ProxyOutput::Database(name, work));
        }
    }

    fn end(&mut self, name: Transaction, is_committed: bool, out: &mut Vec<ProxyOutput>) {
        let Some(mut queue) = self.transactions.remove(name) else { return };
        self.load_us = self.load_us.saturating_sub(queue.clear());
        let Some(locks) = queue.locks else { return };
        if let (Transaction::Numbered(number), true) = (name, is_committed) {
            for (fragment, _) in locks.iter().filter(|(_, mode)| *mode == Mode::Write) {
                self.committed.insert(*fragment, number);
            }
        }
        let mut granted = std::mem::take(&mut self.granted);
        self.locks.release(&locks, &mut granted);
        for name in granted.drain(..) {
            let queue = self.transactions.get_mut(name).expect("who waits for a lock has a queue");
            queue.missing -= 1;
            if queue.missing == 0 {
                self.all_granted(name, out);
            }
        }
        self.granted = granted;
    }
}

impl Work {
    /// The time that it takes on an idle replica, and whether it changes data.
    pub fn cost(self) -> (u32, Kind) {
        match self {
            Self::Run(operation) | Self::RunAlone(operation) => (operation.cost_us, operation.kind),
            Self::Restart | Self::End(_) => (0, Kind::Write),
        }
    }
}
