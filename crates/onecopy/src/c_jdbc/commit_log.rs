//! Appends commits to the log: one is durable before any replica is told of it.
//!
//! The paper's log has an entry for each begin, write, commit and abort (section 2.2.4). On disk a transaction is one
//! record, with its writes, at the place of its commit: the begin says nothing more, and what has not committed is
//! aborted by every restart. Table locks are held at the commit, so the order of the records is one in which the
//! transactions can be run again one after the other, except under `pass-through`.

use std::sync::Arc;

use cluster::ids::Version;
use cluster::protocols::c_jdbc::message::Operation;
use cluster::record::{RecordBuilder, Shipped};

use super::node::{CJdbc, Delivery};
use super::state::State;
use crate::shipping::replica_run::LeadingHost;

impl CJdbc {
    /// Appends the writes of a transaction, if it has any.
    pub(super) fn append(&self, state: &mut State, commit: &Operation) {
        let Some(transaction) = state.active.get_mut(&commit.transaction) else { return };
        if transaction.writes.is_empty() {
            return;
        }
        let leader = self.leader();
        let mut body = RecordBuilder::new(leader.database.served.id);
        for write in &transaction.writes {
            let shipment =
                state.statements.get(write.statement).expect("a transaction under way keeps its statements");
            for shipped in shipment.command.logged() {
                let shipped = Shipped { holders: write.holders, ..shipped };
                body.push_shipped(&shipped).expect("the size was checked when the statement was taken");
            }
        }
        let version = state.appended.next();
        transaction.version = Some(version);
        let identity = self.identity(commit.transaction);
        let header = leader.database.header(leader.term.cluster_id, identity, version);
        for replica in &mut state.replicas {
            replica.undone.insert(version);
        }
        state.appended = version;
        state.numbers.insert(version, commit.transaction);
        state.pending.push_back((version, commit.number));
        crate::local::count(&leader.local.stats.records);
        leader.log.append(Arc::new(body.finish(header)));
    }

    /// The log is durable up to this version.
    pub(super) fn durable_upto(self: &Arc<Self>, upto: Version) {
        let mut state = self.lock();
        let mut out = Vec::new();
        while let Some((_, number)) = state.pending.pop_front_if(|(version, _)| *version <= upto) {
            state.scheduler.logged(number, &mut out);
        }
        self.deliver(state, out.into_iter().map(Delivery::Scheduler).collect());
    }
}
