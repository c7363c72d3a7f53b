//! The short way of a read: it stays where the session's last one ran, and the core is not asked.
//!
//! Most reads need no decision. The text is known and changes nothing ([`sql::Routing::is_plain_read`]), the session has no
//! state that binds it to a place, and the replica of its last read has every durable version
//! ([`crate::coordinator::FreshReplica`]). Such a read takes no lock of the core, and no footprint is made of it. For
//! example, of the reads of `pgbench -S` all but one in [`cluster::parts::balancer::STAYS`] go this way.
//!
//! Invariant: where this way ends without an answer the client has seen nothing, and the usual way begins anew.

use std::rc::Rc;

use cluster::ids::{ReplicaId, Version};

use crate::classify::requirements::Requirements;
use crate::coordinator::FreshReplica;
use crate::drive::reading::READ_COST_US;
use crate::error::Fault;
use crate::execute::Executor;
use crate::link::Worker;
use crate::local::count;
use crate::relay::work::Work;
use crate::relay::{Ended, Hold};
use crate::transaction::open::{Assignment, Transaction};

/// A read that counts as load of its replica as long as it runs.
struct CountedRead {
    worker: Rc<Worker>,
    replica: ReplicaId,
    cost_us: u32,
}

impl CountedRead {
    fn begin(worker: &Rc<Worker>, replica: ReplicaId, cost_us: u32) -> Self {
        worker.coordinator.view.current_replicas.begins(replica, cost_us);
        Self { worker: Rc::clone(worker), replica, cost_us }
    }
}

impl Drop for CountedRead {
    fn drop(&mut self) {
        self.worker.coordinator.view.current_replicas.ends(self.replica, self.cost_us);
    }
}

impl Executor<'_> {
    /// Runs one read where the session's last one ran, if nothing follows it in an implicit transaction. `None` if it has to
    /// go the usual way; then nothing of it is in the client's output.
    pub(crate) async fn read_staying(
        &mut self,
        requirements: &Requirements,
        work: Work<'_>,
        ends: bool,
    ) -> Option<Result<Ended, Fault>> {
        self.link.client.shown = false;
        let cost_us = self.txn.cost_us.unwrap_or(READ_COST_US);
        let anchor = self.link.anchor();
        let place = self.staying_place(requirements, cost_us).filter(|_| ends)?;
        if self.connector().is_unknown_at(anchor) {
            return None;
        }
        let _counted = CountedRead::begin(&self.link.worker, place.replica, cost_us);
        let mark = self.link.client.out.len();
        let result = match self.connector().connect(place).await {
            Ok(()) => self.driver().exchange_with(place.replica, work, Hold::Usual).await,
            Err(fault) => Err(fault),
        };
        let is_shown = self.link.client.shown;
        match &result {
            Ok(ended) if ended.sqlstate().is_some_and(|code| self.view().is_hidden_write(code)) => {
                requirements.note_write(self.link.coordinator());
                if is_shown {
                    return Some(Err(self.placer().found_out_too_late(&result)));
                }
            }
            Ok(_) => {
                count(&self.link.local().stats.reads);
                count(&self.link.local().stats.reads_placed);
                return Some(result);
            }
            Err(fault) => {
                self.link.servers.close(place.replica);
                if is_shown || !matches!(fault, Fault::Lost(_) | Fault::Evicted | Fault::Unplaced(_)) {
                    return Some(result);
                }
            }
        }
        self.link.client.take_back(mark);
        count(&self.link.local().stats.retried);
        None
    }

    /// Where one read may run without asking the core, if it may.
    fn staying_place(&self, requirements: &Requirements, cost_us: u32) -> Option<Assignment> {
        let [statement] = requirements.statements.as_slice() else { return None };
        let protocol = requirements.protocol;
        let is_alone = matches!(self.txn.state, Transaction::None) && self.link.settling.is_none();
        let is_bound = self.link.servers.has_other_defaults() || self.link.leftovers.pinned;
        let is_kept = self.link.answers.asked.is_some();
        if !is_alone || is_bound || is_kept || requirements.has_unparsed || protocol.declares_users {
            return None;
        }
        let database = self.link.database();
        let catalogue = database.catalogue();
        let routing = statement.routing(&catalogue);
        let has_ids = protocol.is_binary && routing.user_types;
        if !routing.is_plain_read
            || has_ids
            || database.workload.hides_write(statement.template, catalogue.generation())
        {
            return None;
        }
        let view = &self.link.coordinator().view;
        let FreshReplica { replica, incarnation, applied } =
            view.place(self.txn.last_ran_at, Version(catalogue.generation()), cost_us)?;
        Some(Assignment { replica, incarnation, identity: None, applied })
    }
}
