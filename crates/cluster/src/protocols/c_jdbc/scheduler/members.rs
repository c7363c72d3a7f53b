//! Replicas come and go, and the scheduler itself returns from its log (section 2.2.4).

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::ReplicaId;
use crate::placement::Placement;

use super::super::Choices;
use super::super::balancer::Balancer;
use super::super::message::{Operation, OperationNumber, Step, TransactionId};
use super::super::query_cache::Writings;
use super::super::recovery_log::RecoveryLog;
use super::super::table_locks::TableLocks;
use super::delivery::Delivery;
use super::waiting::ReplicaWaits;
use super::{Output, Scheduler};

/// What a replica has that returns. Nothing is open there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Return {
    /// The state of a checkpoint.
    AsOf(OperationNumber),
    /// What these transactions have committed. Only where table locks order all writers.
    Kept(BTreeSet<TransactionId>),
}

impl Scheduler {
    /// A scheduler of replicas that are all up and equal.
    pub fn new(choices: Choices, placement: Placement, replicas: u16) -> Self {
        let mut new = Self::recovered(choices, placement, RecoveryLog::default());
        for replica in (0..replicas).map(ReplicaId) {
            new.delivery.join(replica, Vec::new(), &mut Vec::new());
        }
        new
    }

    /// A scheduler that continues a log. No replica takes part before it has returned.
    pub fn recovered(choices: Choices, placement: Placement, log: RecoveryLog) -> Self {
        let balancer = Balancer::new(choices.balance.clone());
        let writings = choices.cache.map(|granularity| Writings::new(granularity, choices.rules));
        let delivery = Delivery::after(log, choices.rules);
        Self {
            choices,
            placement,
            delivery,
            locks: TableLocks::default(),
            balancer,
            writings,
            replica_waits: ReplicaWaits::default(),
            transactions: BTreeMap::new(),
            sessions: BTreeMap::new(),
            owners: BTreeMap::new(),
            owners_so_far: 0,
            reads: BTreeMap::new(),
            reads_so_far: 0,
            unplaced: BTreeSet::new(),
            expected: BTreeSet::new(),
        }
    }

    /// A replica is about to return. It gets what is over now from the driver's disk, and everything else when it joins.
    pub fn expect(&mut self, replica: ReplicaId) {
        self.expected.insert(replica);
    }

    /// Whether a replica is about to return.
    pub fn expects(&self, replica: ReplicaId) -> bool {
        self.expected.contains(&replica)
    }

    /// A replica is lost, and nothing that is outstanding there will be answered.
    pub fn replica_lost(&mut self, replica: ReplicaId, out: &mut Vec<Output>) {
        self.expected.remove(&replica);
        if !self.delivery.takes_part(replica) {
            return;
        }
        self.replica_waits.lose(replica);
        for number in self.delivery.lose(replica) {
            self.progress(number, out);
        }
        self.move_reads(replica, out);
        self.place_reads(out);
    }

    /// A replica that was lost takes part again.
    pub fn replica_joined(&mut self, replica: ReplicaId, has: &Return, out: &mut Vec<Output>) {
        self.expected.remove(&replica);
        if self.delivery.takes_part(replica) {
            return;
        }
        let mut missed = match has {
            Return::AsOf(number) => self.delivery.log().since(*number),
            Return::Kept(kept) => self.delivery.log().missing(|transaction| kept.contains(&transaction)),
        };
        missed.retain(|operation| self.concerns(replica, operation));
        if !self.choices.rules.missed_are_replayed {
            missed.clear();
        }
        for number in self.delivery.join(replica, missed, out) {
            self.progress(number, out);
        }
        self.place_reads(out);
    }

    /// Whether an operation was, or would have been, sent to a replica.
    fn concerns(&self, replica: ReplicaId, operation: &Operation) -> bool {
        match &operation.step {
            Step::Begin | Step::End(_) => true,
            Step::Write(tables, _) => self.targets(tables).contains(replica),
        }
    }
}
