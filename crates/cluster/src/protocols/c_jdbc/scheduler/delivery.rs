//! Numbers operations, logs them, sends them in the order of their numbers, and counts which replicas have executed them.
//!
//! C-JDBC, section 2.2.2: "C-JDBC sends a total order multicast message per write operation." An operation that is numbered after a commit
//! leaves after it, and a commit leaves when the log has it on disk.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::ReplicaId;
use crate::placement::ReplicaSet;
use crate::protocols::shipping::Ending;

use super::super::Rules;
use super::super::early_response::{Respond, Tally};
use super::super::message::{Answer, Operation, OperationNumber, Step, ToReplica, TransactionId};
use super::super::recovery_log::RecoveryLog;
use super::Output;

#[derive(Debug)]
struct Numbered {
    operation: Operation,
    to: ReplicaSet,
    waits_for_log: bool,
}

#[derive(Debug)]
struct InFlight {
    transaction: TransactionId,
    end: Option<Ending>,
    /// The replicas that got it.
    to: ReplicaSet,
    /// Those of them that count.
    tally: Tally,
    /// Its client waits for the answer.
    is_awaited: bool,
}

/// How far an operation is.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) transaction: TransactionId,
    pub(super) end: Option<Ending>,
    /// The client is to be answered now.
    pub(super) answer: Option<Answer>,
    /// All replicas that take part have executed it.
    pub(super) is_over: bool,
    /// No replica that got it takes part any more.
    pub(super) is_orphaned: bool,
}

/// An operation that a replica has not executed. Its entry of the log may be forgotten already.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    transaction: TransactionId,
    ends: bool,
}

/// A replica that takes part.
#[derive(Debug, Default)]
struct Member {
    /// Operations that it has not executed.
    outstanding: BTreeMap<OperationNumber, Outstanding>,
    /// Reads that it has not answered.
    reads: usize,
    standing: Standing,
    /// It has everything when it counts and has executed all up to this number.
    level_at: OperationNumber,
}

/// Whether others wait until a member has executed the operations that are numbered now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Standing {
    /// It has too many operations to execute. Others do not wait for it.
    Behind,
    /// Others wait for it.
    #[default]
    Counts,
}

impl Member {
    fn is_level(&self, rules: Rules) -> bool {
        let counts = self.standing == Standing::Counts || !rules.behind_read_nothing;
        counts && self.outstanding.first_key_value().is_none_or(|(number, _)| *number > self.level_at)
    }
}

/// Operations from their numbers to their ends at all replicas.
#[derive(Debug)]
pub(super) struct Delivery {
    last: OperationNumber,
    log: RecoveryLog,
    outbox: VecDeque<Numbered>,
    in_flight: BTreeMap<OperationNumber, InFlight>,
    members: BTreeMap<ReplicaId, Member>,
    rules: Rules,
}

fn end_of(step: &Step) -> Option<Ending> {
    if let Step::End(ending) = step { Some(*ending) } else { None }
}

impl Delivery {
    /// What comes after a log; no replica takes part.
    pub(super) fn after(log: RecoveryLog, rules: Rules) -> Self {
        let (outbox, in_flight, members) = (VecDeque::new(), BTreeMap::new(), BTreeMap::new());
        Self { last: log.last(), log, outbox, in_flight, members, rules }
    }

    /// The number that the next operation gets.
    pub(super) fn next(&self) -> OperationNumber {
        OperationNumber(self.last.0 + 1)
    }

    pub(super) fn log(&self) -> &RecoveryLog {
        &self.log
    }

    pub(super) fn log_mut(&mut self) -> &mut RecoveryLog {
        &mut self.log
    }

    /// Numbers an operation. Returns those that have left now.
    pub(super) fn send(
        &mut self,
        transaction: TransactionId,
        step: Step,
        to: ReplicaSet,
        waits_for_log: bool,
        out: &mut Vec<Output>,
    ) -> Vec<OperationNumber> {
        self.last = self.next();
        let operation = Operation { number: self.last, transaction, step };
        out.push(Output::Log(operation.clone()));
        self.outbox.push_back(Numbered { operation, to, waits_for_log });
        self.flush(out)
    }

    /// A commit is on disk. Returns the operations that have left now.
    pub(super) fn logged(&mut self, number: OperationNumber, out: &mut Vec<Output>) -> Vec<OperationNumber> {
        for numbered in self.outbox.iter_mut().filter(|numbered| numbered.operation.number <= number) {
            numbered.waits_for_log = false;
        }
        self.flush(out)
    }

    fn flush(&mut self, out: &mut Vec<Output>) -> Vec<OperationNumber> {
        let mut left = Vec::new();
        while self.outbox.front().is_some_and(|numbered| !numbered.waits_for_log) {
            let Some(Numbered { operation, to, .. }) = self.outbox.pop_front() else { break };
            let to = to.and(self.members.keys().copied().collect());
            let (number, transaction) = (operation.number, operation.transaction);
            let end = end_of(&operation.step);
            let counting = to.and(self.counting());
            let tally = Tally::new(if counting == ReplicaSet::EMPTY { to } else { counting });
            self.in_flight.insert(number, InFlight { transaction, end, to, tally, is_awaited: true });
            self.log.append(operation.clone());
            for replica in to.iter() {
                self.send_to(replica, operation.clone(), out);
            }
            left.push(number);
        }
        left
    }

    fn send_to(&mut self, replica: ReplicaId, operation: Operation, out: &mut Vec<Output>) {
        if let Some(member) = self.members.get_mut(&replica) {
            let ends = end_of(&operation.step).is_some();
            let outstanding = Outstanding { transaction: operation.transaction, ends };
            member.outstanding.insert(operation.number, outstanding);
            out.push(Output::ToReplica(replica, ToReplica::Operation(operation)));
        }
    }

    /// A replica has executed an operation.
    pub(super) fn executed(&mut self, replica: ReplicaId, number: OperationNumber) {
        let Some(member) = self.members.get_mut(&replica) else { return };
        let Some(Outstanding { transaction, ends }) = member.outstanding.remove(&number) else { return };
        if ends {
            // A statement that waited for a lock was cancelled, and is not reported.
            let earlier =
                member.outstanding.extract_if(..number, |_, other| other.transaction == transaction);
            earlier.for_each(drop);
        }
        if member.standing == Standing::Behind && member.outstanding.len() <= self.rules.counts_within {
            member.standing = Standing::Counts;
            member.level_at = self.log.last();
        }
        if let Some(in_flight) = self.in_flight.get_mut(&number) {
            in_flight.tally.execute(replica);
        }
    }

    /// How far an operation is. Its answer is given once.
    pub(super) fn progress(&mut self, number: OperationNumber, respond: Respond) -> Option<Progress> {
        let in_flight = self.in_flight.get_mut(&number)?;
        let (transaction, end, tally) = (in_flight.transaction, in_flight.end, in_flight.tally);
        let is_lost_abort = end == Some(Ending::Abort) && tally.is_orphaned();
        let may_answer = in_flight.is_awaited && (tally.may_answer(respond) || is_lost_abort);
        in_flight.is_awaited &= !may_answer;
        Some(Progress {
            transaction,
            end,
            answer: may_answer.then(|| Answer::Done(tally.source())),
            is_over: tally.is_over() || is_lost_abort,
            is_orphaned: tally.is_orphaned() && end.is_none() && in_flight.is_awaited,
        })
    }

    /// The transaction of an operation that is under way.
    pub(super) fn transaction_of(&self, number: OperationNumber) -> Option<TransactionId> {
        self.in_flight.get(&number).map(|in_flight| in_flight.transaction)
    }

    pub(super) fn forget(&mut self, number: OperationNumber) {
        self.in_flight.remove(&number);
    }

    /// Forgets the operations of a transaction that have left.
    pub(super) fn silence(&mut self, transaction: TransactionId) {
        self.in_flight.retain(|_, in_flight| in_flight.transaction != transaction);
    }

    pub(super) fn numbers(&self) -> Vec<OperationNumber> {
        self.in_flight.keys().copied().collect()
    }

    pub(super) fn takes_part(&self, replica: ReplicaId) -> bool {
        self.members.contains_key(&replica)
    }

    pub(super) fn has_replicas(&self) -> bool {
        !self.members.is_empty()
    }

    pub(super) fn any_takes_part(&self, replicas: ReplicaSet) -> bool {
        replicas.iter().any(|replica| self.takes_part(replica))
    }

    /// The replicas that have everything that was numbered before they returned.
    pub(super) fn level(&self) -> ReplicaSet {
        self.members
            .iter()
            .filter(|(_, member)| member.is_level(self.rules))
            .map(|(replica, _)| *replica)
            .collect()
    }

    fn counting(&self) -> ReplicaSet {
        self.members
            .iter()
            .filter(|(_, member)| member.standing == Standing::Counts)
            .map(|(replica, _)| *replica)
            .collect()
    }

    pub(super) fn all(&self) -> ReplicaSet {
        self.members.keys().copied().collect()
    }

    /// The requests that a replica has not answered.
    pub(super) fn pending(&self, replica: ReplicaId) -> usize {
        self.members.get(&replica).map_or(0, |member| member.outstanding.len() + member.reads)
    }

    pub(super) fn count_read(&mut self, replica: ReplicaId, change: impl Fn(usize) -> usize) {
        if let Some(member) = self.members.get_mut(&replica) {
            member.reads = change(member.reads);
        }
    }

    /// Whether everything that was numbered is executed everywhere.
    pub(super) fn is_quiet(&self) -> bool {
        let is_idle = |member: &Member| member.outstanding.is_empty() && member.reads == 0;
        self.outbox.is_empty() && self.in_flight.is_empty() && self.members.values().all(is_idle)
    }

    /// A replica is lost. Returns the operations that may go on without it.
    pub(super) fn lose(&mut self, replica: ReplicaId) -> Vec<OperationNumber> {
        self.members.remove(&replica);
        for (number, in_flight) in &mut self.in_flight {
            in_flight.tally.lose(replica);
            in_flight.to = in_flight.to.without(replica);
            if in_flight.tally.is_orphaned() {
                // Those that are behind have it, too.
                for (behind, member) in self.members.iter().filter(|(id, _)| in_flight.to.contains(**id)) {
                    in_flight.tally.join(*behind);
                    if !member.outstanding.contains_key(number) {
                        in_flight.tally.execute(*behind);
                    }
                }
            }
        }
        self.numbers()
    }

    /// A replica takes part again, and is sent what it has missed. Returns the operations for which it counts.
    pub(super) fn join(
        &mut self,
        replica: ReplicaId,
        missed: Vec<Operation>,
        out: &mut Vec<Output>,
    ) -> Vec<OperationNumber> {
        let standing =
            if missed.len() > self.rules.counts_within { Standing::Behind } else { Standing::Counts };
        let level_at = self.log.last();
        self.members.insert(replica, Member { standing, level_at, ..Member::default() });
        let missing: Vec<OperationNumber> = missed.iter().map(|operation| operation.number).collect();
        for (number, in_flight) in &mut self.in_flight {
            if missing.binary_search(number).is_ok() {
                in_flight.to = in_flight.to.with(replica);
            }
            // A commit that no replica was left to execute.
            if in_flight.tally.is_orphaned() {
                in_flight.tally.join(replica);
                if !missing.contains(number) {
                    in_flight.tally.execute(replica);
                }
            }
        }
        for operation in missed {
            self.send_to(replica, operation, out);
        }
        self.numbers()
    }
}
