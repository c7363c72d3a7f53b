//! The host of the lanes that run for one link.
//!
//! Example: the link breaks while a read runs at replica 2, and the same leader takes the sessions again, so replica 2 has the run that it
//! had. The read ends now. If it were reported on the new link, the session's next read would be taken to be done.
//!
//! Invariant: what a lane reports belongs to the link for which it runs, and its backends to the crew of that link.

use std::sync::Arc;

use cluster::ids::CrewId;
use cluster::protocols::shipping::Transaction;

use super::remote::RemoteScheduler;
use super::remote_state::{Link, RemoteState};
use crate::capture::vouch::Voucher;
use crate::coordinator::Coordinator;
use crate::coordinator::scheduler_messages::{RanStatement, StatementNumber, ToScheduler};
use crate::shipping::replica_run::{Completed, LaneHost, ReplicaHost, ReplicaRun};

/// The lanes of one link.
pub(super) struct LinkLanes {
    pub(super) scheduler: Arc<RemoteScheduler>,
    pub(super) link: Link,
}

impl LinkLanes {
    /// Whether the link is the present one, and the replica was not lost on it.
    fn reports(&self, state: &RemoteState, run: ReplicaRun) -> bool {
        state.link.as_ref().is_some_and(|link| link.crew == self.link.crew) && state.is_present(run)
    }
}

impl ReplicaHost for LinkLanes {
    fn coordinator(&self) -> &Arc<Coordinator> {
        self.scheduler.coordinator()
    }

    fn is_present(&self, run: ReplicaRun) -> bool {
        self.reports(&self.scheduler.lock(), run)
    }
}

impl LaneHost for LinkLanes {
    fn voucher(&self) -> Option<Voucher> {
        Some(self.link.voucher.clone())
    }

    fn crew(&self) -> Option<CrewId> {
        Some(self.link.crew)
    }

    fn reply_bytes_max(&self) -> usize {
        self.scheduler.reply_bytes_max()
    }

    fn finished(self: Arc<Self>, run: ReplicaRun, transaction: Transaction, completed: Option<Completed>) {
        let mut state = self.scheduler.lock();
        if !self.reports(&state, run) {
            return;
        }
        let ran = completed.map(|Completed { shipment, reply, took_us }| {
            let number = StatementNumber(shipment.id.0);
            let (outcome, has_failed) = (reply.outcome.clone(), reply.error.is_some());
            if let Some(slot) = state.sessions.get_mut(&shipment.session) {
                slot.note_reply(number, reply);
            }
            RanStatement { number, outcome, has_failed, took_us }
        });
        state.end_job(run, transaction);
        state.send(ToScheduler::Finished { run, transaction, ran });
    }

    fn give_up(self: Arc<Self>, run: ReplicaRun, reason: &str) {
        let state = self.scheduler.lock();
        if self.reports(&state, run) {
            state.send(ToScheduler::GiveUp { run, reason: reason.to_owned() });
        }
    }
}
