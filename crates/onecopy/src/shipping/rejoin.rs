//! How a replica joins the scheduler and the proxies again, while they work.
//!
//! Transactions that only the log has are run again first ([`super::recovery`]), in the order of term and number, which
//! is the order of conflicting ones. Unfinished transactions are left out: when the replica joins, they are sent, or run
//! again (`cluster::protocols::shipping::Scheduler::replica_joined`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::ids::{Epoch, Identity, ReplicaId, Version};
use cluster::protocols::shipping::{Proxy, SequenceNumber};
use tokio::time::sleep;

use super::delivery::Delivery;
use super::node::Shipping;
use super::recovery::{
    FENCE_PAUSE, LackedRecords, RejoinError, Rejoins, ReplayOrder, connect, prepare, roll_forward,
};
use super::replica_run::{LeadingHost, ReplicaRun};
use super::state::{Eligibility, Rejoining};
use crate::backend::OwnConnection;
use crate::coordinator::scheduler_messages::ToCrew;
use crate::replica::agent::applied_set::AppliedSet;

/// The position in the log and the numbering when the replica was asked for its transactions.
struct RejoinPoint {
    run: ReplicaRun,
    /// All transactions up to this number were over.
    from: SequenceNumber,
    lacked: LackedRecords,
}

impl Rejoins for Shipping {
    fn is_quarantined(&self, replica: ReplicaId) -> bool {
        self.lock().replicas[usize::from(replica.0)].eligibility == Eligibility::Quarantined
    }

    async fn rejoin(
        self: &Arc<Self>,
        id: ReplicaId,
        proves_all: bool,
    ) -> Result<(ReplicaRun, OwnConnection), RejoinError> {
        let mut control = connect(&**self, id).await?;
        prepare(&**self, &mut control, proves_all).await?;
        let start = self.ask_to_return(id);
        while self.leader().log.durable() < start.lacked.upto {
            sleep(FENCE_PAUSE).await;
        }
        let has = AppliedSet::at(&mut control, &self.leader().local.seal).read().await?;
        let has: BTreeSet<Identity> = has.into_iter().collect();
        roll_forward(&**self, &mut control, &start.lacked, &has).await?;
        if !self.join(&start, &has) {
            return Err(RejoinError::Passing("it was given up again".into()));
        }
        Ok((start.run, control))
    }

    fn over_at(&self, replica: ReplicaId) -> Option<Version> {
        let state = self.lock();
        let index = usize::from(replica.0);
        state.replicas[index].rejoining.again.is_empty().then(|| state.over_at(index))
    }

    fn least_number(&self, first: Version) -> Option<u64> {
        let mut state = self.lock();
        state.numbers = state.numbers.split_off(&first);
        state.numbers.values().min().map(|number| number.0)
    }

    fn epoch(&self) -> Epoch {
        self.epoch()
    }
}

impl Shipping {
    /// Starts to collect decisions for the replica.
    fn ask_to_return(&self, id: ReplicaId) -> RejoinPoint {
        let mut state = self.lock();
        let index = usize::from(id.0);
        let decided = state.active.iter().filter(|(_, transaction)| transaction.version.is_some());
        let decided = decided
            .map(|(number, transaction)| (*number, (transaction.locks.clone(), transaction.writes.clone())));
        let decided: BTreeMap<_, _> = decided.collect();
        let under_way = decided.keys().map(|number| self.identity(*number)).collect();
        let (from, upto) = (state.scheduler.over(), state.appended);
        state.replicas[index].rejoining.decided = Some(decided);
        let lacked = LackedRecords { replica: id, upto, under_way, order: ReplayOrder::ByNumber };
        RejoinPoint { run: state.run(index), from, lacked }
    }

    /// Lets the replica take part; `false` if it was given up meanwhile.
    fn join(self: &Arc<Self>, start: &RejoinPoint, has: &BTreeSet<Identity>) -> bool {
        let index = usize::from(start.run.replica.0);
        let mut state = self.lock();
        let replica = &mut state.replicas[index];
        if replica.incarnation != start.run.incarnation {
            return false;
        }
        replica.proxy = Proxy::new(start.from);
        let decided = replica.rejoining.decided.take().unwrap_or_default();
        let has = |number: SequenceNumber| has.contains(&self.identity(number));
        let again: BTreeSet<SequenceNumber> =
            decided.keys().copied().filter(|number| !has(*number) && !state.scheduler.has(*number)).collect();
        let lacking = state.active.iter().filter(|(number, _)| !has(**number));
        let undone = lacking.chain(state.past.iter().filter(|(number, _)| again.contains(number)));
        let undone: BTreeSet<Version> = undone.filter_map(|(_, transaction)| transaction.version).collect();
        let replica = &mut state.replicas[index];
        (replica.rejoining, replica.undone) = (Rejoining { decided: None, again }, undone);
        let mut out = Vec::new();
        let run = start.run;
        state.linked.tell_all(|| ToCrew::Joined { run });
        state.scheduler.replica_joined(start.run.replica, start.from, has, &decided, &mut out);
        self.deliver(state, out.into_iter().map(Delivery::Scheduler).collect());
        tracing::info!(replica = %self.leader().seats[start.run.replica].name, "the replica takes part");
        self.changed();
        true
    }
}
