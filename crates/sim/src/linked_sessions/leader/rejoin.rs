//! How a replica joins: fence it, ask what it has, run what the log has and it lacks, and let it take part.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cluster::protocols::shipping::{Proxy, SequenceNumber};

use super::{Delivery, Leading, replica};
use crate::linked_sessions::Rule;
use crate::linked_sessions::ids::{Identity, Run};
use crate::linked_sessions::log::Record;
use crate::linked_sessions::messages::{Command, Participation, Reply, ToNode};

/// How far a return is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Fences,
    /// For what was appended when it was asked to return.
    WaitsForLog,
    AsksAll,
    Redoes,
}

/// The return of a replica.
#[derive(Debug)]
pub(in crate::linked_sessions) struct Rejoin {
    pub(in crate::linked_sessions) run: Run,
    pub(in crate::linked_sessions) backend: u64,
    phase: Phase,
    /// Everything up to this number was over when the replica was asked to return.
    from: SequenceNumber,
    /// Appended then, and so awaited.
    upto: BTreeSet<SequenceNumber>,
    under_way: BTreeSet<SequenceNumber>,
    has: BTreeSet<Identity>,
    lacks: VecDeque<Record>,
}

/// What a return needs next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::linked_sessions) enum Next {
    Asks(Command),
    /// The log.
    Waits,
    Failed,
    Joined,
}

impl Rejoin {
    /// A return that fences first.
    pub(in crate::linked_sessions) fn new(run: Run, backend: u64) -> Self {
        Self {
            run,
            backend,
            phase: Phase::Fences,
            from: SequenceNumber::default(),
            upto: BTreeSet::new(),
            under_way: BTreeSet::new(),
            has: BTreeSet::new(),
            lacks: VecDeque::new(),
        }
    }
}

impl Leading {
    /// The server of a replica that returns has replied.
    pub(in crate::linked_sessions) fn returns(&mut self, index: usize, reply: Reply) -> Next {
        let Some(mut rejoin) = self.rejoins.remove(&index) else { return Next::Failed };
        if self.replicas[index].run != rejoin.run || reply == Reply::Failed {
            return Next::Failed;
        }
        match (rejoin.phase, reply) {
            (Phase::Fences, _) => {
                self.ask_to_return(index, &mut rejoin);
                rejoin.phase = Phase::WaitsForLog;
                self.rejoins.insert(index, rejoin);
                return self.looks_at_log(index);
            }
            (Phase::AsksAll, Reply::HasAll(has)) => {
                self.plan_redo(&mut rejoin, has);
                rejoin.phase = Phase::Redoes;
            }
            _ => {}
        }
        let Some(record) = rejoin.lacks.pop_front() else {
            self.take_in(&rejoin);
            return Next::Joined;
        };
        self.rejoins.insert(index, rejoin);
        Next::Asks(Command::Redo(record))
    }

    /// A return that waits for the log goes on when that is far enough.
    pub(in crate::linked_sessions) fn looks_at_log(&mut self, index: usize) -> Next {
        let Some(rejoin) = self.rejoins.get_mut(&index) else { return Next::Failed };
        let is_durable = rejoin.upto.iter().all(|number| self.durable.contains(number));
        if rejoin.phase != Phase::WaitsForLog || !is_durable {
            return Next::Waits;
        }
        rejoin.phase = Phase::AsksAll;
        Next::Asks(Command::AskAll)
    }

    /// Starts to collect decisions for the replica.
    fn ask_to_return(&mut self, index: usize, rejoin: &mut Rejoin) {
        let decided = self.active.iter().filter(|(_, shipped)| shipped.is_appended);
        let decided: BTreeMap<_, _> = decided
            .map(|(number, shipped)| (*number, (shipped.locks.clone(), shipped.writes.clone())))
            .collect();
        rejoin.under_way = decided.keys().copied().collect();
        rejoin.from = self.scheduler.over();
        rejoin.upto.clone_from(&self.appended);
        self.replicas[index].decided = Some(decided);
    }

    /// The transactions that the log has and the replica lacks, in the order in which it runs them.
    fn plan_redo(&self, rejoin: &mut Rejoin, has: BTreeSet<Identity>) {
        if self.switches.has(Rule::RejoinedSayWhatTheyHave) {
            rejoin.has = has;
        }
        let is_lacked = |record: &&Record| {
            let (identity, number) = (record.identity, record.identity.number());
            let is_own = identity.term() == self.term;
            let is_due = rejoin.upto.contains(&number) && !rejoin.under_way.contains(&number);
            !rejoin.has.contains(&identity) && (!is_own || is_due)
        };
        let mut lacks: Vec<Record> = self.records.iter().filter(is_lacked).cloned().collect();
        lacks.sort_by_key(|record| record.identity);
        rejoin.lacks = lacks.into();
    }

    /// Lets the replica take part.
    fn take_in(&mut self, rejoin: &Rejoin) {
        let index = rejoin.run.replica;
        let term = self.term;
        let has = |number: SequenceNumber| rejoin.has.contains(&Identity::of(term, number));
        let at = &mut self.replicas[index];
        at.proxy = Proxy::new(rejoin.from);
        at.watch = Some(rejoin.backend);
        let mut decided = at.decided.take().unwrap_or_default();
        if !self.switches.has(Rule::RejoinedGetTail) {
            decided.clear();
        }
        let is_again = |number: &SequenceNumber| !has(*number) && !self.scheduler.has(*number);
        at.again = decided.keys().copied().filter(is_again).collect();
        let shown = Participation { run: rejoin.run, is_up: true };
        self.tell_all(&ToNode::Shows(shown));
        let mut out = Vec::new();
        self.scheduler.replica_joined(replica(index), rejoin.from, has, &decided, &mut out);
        self.deliver(out.into_iter().map(Delivery::Scheduler).collect());
    }
}
