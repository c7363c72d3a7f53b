//! Gives the work of a proxy to the connection on which it runs: in this process, at another node, or of Onecopy's own.
//!
//! Invariant: the jobs of one transaction at one replica reach its lane in order.

use std::sync::Arc;

use cluster::ids::{CrewId, Identity, SessionId};
use cluster::protocols::shipping::{Kind, SequenceNumber, Transaction, Work};
use tokio::sync::mpsc;

use super::connections::SessionConnections;
use super::lane::{self, Job};
use super::lane_site::{Lane, LaneSite, OrphanJob};
use super::orphan;
use super::replica_run::{LaneHost, LeadingHost, ReplicaRun};
use super::state::SchedulerState;
use crate::coordinator::scheduler_messages::{Performed, ToCrew};

/// Whether work for a database has found the connection on which it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dispatched {
    Sent,
    /// The session that wanted it has gone.
    ForNobody,
}

/// A transaction at a replica.
#[derive(Clone, Copy)]
struct Place {
    run: ReplicaRun,
    transaction: Transaction,
}

/// Gives work to lanes.
pub(super) struct Dispatcher<'a> {
    pub(super) host: Arc<dyn LeadingHost>,
    pub(super) state: &'a mut SchedulerState,
    /// That of number 0 in this term.
    pub(super) identity: Identity,
}

impl Dispatcher<'_> {
    /// Gives work to a transaction's lane at a replica.
    pub(super) fn dispatch(&mut self, index: usize, transaction: Transaction, work: Work) -> Dispatched {
        let state = &mut *self.state;
        let run = state.run(index);
        let (statement, is_write) = match work {
            Work::Run(operation) | Work::RunAlone(operation) => {
                (Some(operation.statement), operation.kind == Kind::Write)
            }
            Work::Restart | Work::End(_) => (None, false),
        };
        let replica = &mut state.replicas[index];
        replica.writes += u64::from(is_write);
        replica.reads += u64::from(statement.is_some() && !is_write);
        let (site, identity) = match transaction {
            Transaction::Numbered(number @ SequenceNumber(n)) => {
                let site = state.transaction(number).map(|shipped| shipped.site.clone());
                (site, Some(Identity { n, ..self.identity }))
            }
            Transaction::Single(session) => {
                (state.sessions.get(&session).map(|slot| slot.site(session)), None)
            }
        };
        let place = Place { run, transaction };
        match site {
            None => return Dispatched::ForNobody,
            Some(LaneSite::Here(connections)) => {
                let shipment = statement.and_then(|statement| state.statements.get(statement)).cloned();
                self.perform_here(place, &connections, Job { work, shipment, identity });
            }
            Some(LaneSite::Crew(crew)) => {
                state.replicas[index].lanes.insert(transaction, Lane::Crew(crew));
                let statement = statement.and_then(|statement| state.linked.statements.get(statement));
                let statement = statement.map(|statement| statement.number);
                let transaction = as_at_node(transaction);
                let performed = Performed { run, transaction, work, statement, identity };
                state.linked.mail.push((crew, ToCrew::Perform(Box::new(performed))));
            }
            Some(LaneSite::Orphaned(crew)) => {
                let kept = statement.and_then(|statement| state.linked.statements.get(statement));
                let logged = kept.map(|statement| statement.logged.clone()).unwrap_or_default();
                self.perform_orphaned(place, crew, OrphanJob { work, logged, identity });
            }
        }
        Dispatched::Sent
    }

    fn perform_here(&mut self, place: Place, connections: &Arc<SessionConnections>, job: Job) {
        let Place { run, transaction } = place;
        let lanes = &mut self.state.replicas[usize::from(run.replica.0)].lanes;
        if let Some(Lane::Here(lane)) = lanes.get(&transaction) {
            // A lane ends before its transaction only if the replica is lost.
            let _ = lane.send(job);
            return;
        }
        let (sender, jobs) = mpsc::unbounded_channel();
        let _ = sender.send(job);
        lanes.insert(transaction, Lane::Here(sender));
        let runtime = connections.runtime.clone();
        let host = Arc::clone(&self.host) as Arc<dyn LaneHost>;
        runtime.spawn(lane::run(host, Arc::clone(connections), run, transaction, jobs));
    }

    fn perform_orphaned(&mut self, place: Place, crew: CrewId, job: OrphanJob) {
        let Place { run, transaction } = place;
        let lanes = &mut self.state.replicas[usize::from(run.replica.0)].lanes;
        if let Some(Lane::Orphaned(lane)) = lanes.get(&transaction) {
            let _ = lane.send(job);
            return;
        }
        let (sender, jobs) = mpsc::unbounded_channel();
        let _ = sender.send(job);
        lanes.insert(transaction, Lane::Orphaned(sender));
        let host = Arc::clone(&self.host);
        self.host.leader().drivers.spawn(orphan::run(host, crew, run, transaction, jobs));
    }
}

/// A transaction as its node names it.
fn as_at_node(transaction: Transaction) -> Transaction {
    match transaction {
        Transaction::Numbered(_) => transaction,
        Transaction::Single(session) => Transaction::Single(SessionId(session.counter())),
    }
}
