//! Appends decisions to the log: a commit is durable before any replica is told to commit it (section 5.3).
//!
//! A record holds the write statements of one transaction. Its identity is this node's term and the sequence number.
//! Records are in the order of decisions, which is not the order of numbers. A roll-forward sorts them by number,
//! because conflicting transactions are ordered by their numbers.

use std::sync::Arc;

use cluster::ids::Version;
use cluster::protocols::shipping::{SequenceNumber, StatementId};
use cluster::record::{RecordBuilder, Shipped};

use super::delivery::Delivery;
use super::node::Shipping;
use super::replica_run::LeadingHost;
use super::several::crew_statements::CrewStatements;
use super::state::SchedulerState;
use super::statement_store::StatementStore;

/// Most bytes of statements that one transaction may ship, checked before each statement is accepted.
pub(super) const TRANSACTION_BYTES_MAX: usize = 256 << 20;

/// What the log keeps of a statement.
fn logged(here: &StatementStore, elsewhere: &CrewStatements, statement: StatementId) -> Vec<Shipped> {
    if let Some(shipment) = here.get(statement) {
        return shipment.command.logged().collect();
    }
    let kept = elsewhere.get(statement).expect("a transaction under way keeps its statements");
    kept.logged.clone()
}

impl Shipping {
    /// Appends the writes of a transaction.
    pub(super) fn append(&self, state: &mut SchedulerState, number: SequenceNumber) {
        let Some(transaction) = state.active.get_mut(&number) else { return };
        let mut body = RecordBuilder::new(self.leader().database.served.id);
        for write in &transaction.writes {
            for shipped in logged(&state.statements, &state.linked.statements, write.statement) {
                body.push_shipped(&shipped).expect("the size was checked when the statement was taken");
            }
        }
        let version = state.appended.next();
        transaction.version = Some(version);
        let (leader, identity) = (self.leader(), self.identity(number));
        let header = leader.database.header(leader.term.cluster_id, identity, version);
        for replica in &mut state.replicas {
            replica.undone.insert(version);
            if let Some(decided) = &mut replica.rejoining.decided {
                decided.insert(number, (transaction.locks.clone(), transaction.writes.clone()));
            }
        }
        state.appended = version;
        state.numbers.insert(version, number);
        state.pending.push_back((version, number));
        if state.linked.generation().is_some() {
            // A node may ask for the outcome when it has lost its link.
            leader.identities.insert(identity, version);
        }
        crate::local::count(&self.leader().local.stats.records);
        self.leader().log.append(Arc::new(body.finish(header)));
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
