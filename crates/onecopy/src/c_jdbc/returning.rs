//! How a replica takes part again, while the others work (section 2.2.4).
//!
//! Transactions that only the log has are run again first ([`crate::shipping::recovery`]), in the order of their
//! commits. Meanwhile everything that is not over yet is kept in memory, and the replica gets it when it joins
//! (`cluster::protocols::c_jdbc::Scheduler::replica_joined`).
//!
//! Under `pass-through` a transaction that reads rows of others may only run among the same others, so it cannot be run
//! again from the log. There a replica returns only if it lacks nothing, and while no transaction is open: after a clean
//! stop, or rebuilt from another one.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::ids::{Epoch, Identity, ReplicaId, Version};
use cluster::protocols::c_jdbc::message::{OperationNumber, TransactionId};
use cluster::protocols::c_jdbc::{Level, Return};
use tokio::time::sleep;

use super::node::{CJdbc, Delivery};
use super::placing::Placer;
use super::state::{ShippedTransaction, State};
use super::waits;
use crate::backend::OwnConnection;
use crate::replica::agent::applied_set::AppliedSet;
use crate::shipping::recovery::{
    FENCE_PAUSE, LackedRecords, RejoinError, Rejoins, ReplayOrder, connect, prepare, roll_forward,
};
use crate::shipping::replica_run::{LeadingHost, ReplicaRun};
use crate::shipping::state::{Eligibility, replica};

/// What the log and the scheduler had when the replica was asked for its transactions.
struct ReturnPoint {
    run: ReplicaRun,
    lacked: LackedRecords,
}

impl Rejoins for CJdbc {
    const KEEPS_MARKS: bool = true;

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
        Placer { node: self }.forget_unheld(id).await?;
        self.join(&start, &has)?;
        tokio::spawn(waits::watch(Arc::clone(self), start.run));
        Ok((start.run, control))
    }

    fn over_at(&self, replica: ReplicaId) -> Option<Version> {
        let state = self.lock();
        let index = usize::from(replica.0);
        state.replicas[index].again.is_empty().then(|| state.over_at(index))
    }

    fn least_number(&self, first: Version) -> Option<u64> {
        let mut state = self.lock();
        state.numbers = state.numbers.split_off(&first);
        state.numbers.values().min().map(|transaction| transaction.0)
    }

    fn epoch(&self) -> Epoch {
        self.term.epoch
    }
}

impl CJdbc {
    /// Keeps from now on what the replica may lack.
    fn ask_to_return(&self, id: ReplicaId) -> ReturnPoint {
        let mut state = self.lock();
        let index = usize::from(id.0);
        if !state.scheduler.expects(id) {
            // What is kept from now on is all that it may lack, unless another replica needs more.
            state.sweep();
            state.scheduler.forget_over();
            state.scheduler.expect(id);
        }
        let decided = state.active.iter().filter(|(_, transaction)| transaction.version.is_some());
        let under_way = decided.map(|(transaction, _)| self.identity(*transaction)).collect();
        let upto = state.appended;
        let order = match self.choices.level {
            Level::PassThrough => ReplayOrder::None,
            Level::Optimistic | Level::Pessimistic => ReplayOrder::AsLogged,
        };
        let lacked = LackedRecords { replica: id, upto, under_way, order };
        ReturnPoint { run: state.run(index), lacked }
    }

    /// Lets the replica take part.
    fn join(self: &Arc<Self>, start: &ReturnPoint, has: &BTreeSet<Identity>) -> Result<(), RejoinError> {
        let index = usize::from(start.run.replica.0);
        let mut state = self.lock();
        if state.present(start.run).is_none() {
            return Err(RejoinError::Passing("it was given up again".into()));
        }
        let returned = if self.choices.level == Level::PassThrough {
            if !self.is_between(&state, has) || state.appended != start.lacked.upto {
                let text = "transactions are open; under pass-through a replica returns when none is";
                return Err(RejoinError::Passing(text.into()));
            }
            state.replicas[index].undone.clear();
            Return::AsOf(OperationNumber(u64::MAX))
        } else {
            Return::Kept(self.note_lacked(&mut state, index, start, has))
        };
        let mut out = Vec::new();
        state.scheduler.replica_joined(start.run.replica, &returned, &mut out);
        self.deliver(state, out.into_iter().map(Delivery::Scheduler).collect());
        tracing::info!(replica = %self.leader().seats[start.run.replica].name, "the replica takes part");
        self.changed();
        Ok(())
    }

    /// Whether no transaction is open that a replica without its writes could meet. When all replicas were lost, one that has
    /// what was decided ends that for the others.
    fn is_between(&self, state: &State, has: &BTreeSet<Identity>) -> bool {
        let is_done = |(transaction, shipped): (&TransactionId, &ShippedTransaction)| {
            shipped.version.is_some() && has.contains(&self.identity(*transaction))
        };
        let takes_part = |index: usize| state.scheduler.takes_part(replica(index));
        let are_all_lost = !(0..state.replicas.len()).any(takes_part);
        state.scheduler.is_quiet() || are_all_lost && state.active.iter().all(is_done)
    }

    /// The transactions in memory that the replica has. The others it is about to run.
    fn note_lacked(
        &self,
        state: &mut State,
        index: usize,
        start: &ReturnPoint,
        has: &BTreeSet<Identity>,
    ) -> BTreeSet<TransactionId> {
        let was_run = |transaction: TransactionId, version: Option<Version>| {
            let identity = self.identity(transaction);
            let from_log = version.is_some_and(|version| version <= start.lacked.upto)
                && !start.lacked.under_way.contains(&identity);
            from_log || has.contains(&identity)
        };
        let (mut kept, mut undone, mut again) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (transaction, shipped) in state.active.iter().chain(&state.past) {
            if was_run(*transaction, shipped.version) {
                kept.insert(*transaction);
            } else {
                undone.extend(shipped.version);
                // The others may end an open one without waiting for this replica. Aborted ones are not sent.
                if !shipped.is_aborted
                    && (shipped.version.is_some() || state.active.contains_key(transaction))
                {
                    again.insert(*transaction);
                }
            }
        }
        let replica = &mut state.replicas[index];
        (replica.undone, replica.again) = (undone, again);
        kept
    }
}
