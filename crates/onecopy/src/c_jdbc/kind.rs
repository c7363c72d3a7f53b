//! A node of C-JDBC, as the rest of the node sees it ([`NodeKind`], [`ServesClients`]).
//!
//! This kind has no core and no agents. The scheduler says which replicas take part.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ReplicaId, Version};
use cluster::parts::replica::State;
use cluster::placement::Placement;
use cluster::protocols::ReplicaStatus;
use cluster::protocols::c_jdbc::Level;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use wire::sqlstate;

use super::node::CJdbc;
use super::placing::Placer;
use crate::coordinator::node_kind::{Feature, HoldingSession, NodeKind, Order, Placing};
use crate::coordinator::open_error::OpenError;
use crate::coordinator::{AgentOrder, Coordinator, Leader};
use crate::error::Refusal;
use crate::link::Worker;
use crate::link::node_kind::{LoggedIn, ServesClients, Unserved};
use crate::shipping::replica_run::LeadingHost;
use crate::shipping::scheduling::Scheduling;
use crate::shipping::state::{Eligibility, replica};
use crate::shipping::{recovery, session};

/// Interval at which a hold checks for unfinished transactions.
const HOLD_PAUSE: Duration = Duration::from_millis(5);

impl NodeKind for CJdbc {
    fn replicas(&self, _: &Coordinator) -> Vec<ReplicaStatus> {
        let state = self.lock();
        let all = state.replicas.iter().enumerate();
        all.map(|(index, member)| {
            let serves = match member.eligibility {
                Eligibility::Quarantined => State::Quarantined,
                Eligibility::Member if state.scheduler.takes_part(replica(index)) => State::Up,
                Eligibility::Member => State::Down,
            };
            let applied = state.over_at(index);
            ReplicaStatus {
                replica: replica(index),
                state: serves,
                is_suspect: false,
                is_drained: false,
                is_forgotten: false,
                incarnation: member.incarnation,
                applied,
                lag: state.appended.0 - applied.0,
                reads: member.reads,
                writes: member.writes,
                expected_wait_us: 0,
                waiting: 0,
                open: member.lanes.len(),
            }
        })
        .collect()
    }

    fn logged(self: Arc<Self>, coordinator: &Coordinator, upto: Version) {
        coordinator.view.note_durable(upto);
        self.durable_upto(upto);
    }

    fn shut_out(self: Arc<Self>, _: &Coordinator, replica: ReplicaId) {
        self.shut_out_replica(replica);
    }

    fn let_in(&self, _: &Coordinator, replica: ReplicaId) {
        self.lock().replicas[usize::from(replica.0)].eligibility = Eligibility::Member;
    }

    fn hold<'a>(
        &'a self,
        _: &'a Coordinator,
        session: &'a HoldingSession,
    ) -> Pin<Box<dyn Future<Output = Version> + Send + 'a>> {
        Box::pin(async move {
            while !self.acquire_exclusive(session.id) || !self.is_idle() {
                sleep(HOLD_PAUSE).await;
            }
            self.lock().appended
        })
    }

    fn end_hold(&self, session: &HoldingSession) {
        self.release_exclusive(session.id);
    }

    fn needs_anchor(&self) -> bool {
        false
    }

    fn gives_up_servers(&self) -> bool {
        false
    }

    fn knows_lacking_records(&self) -> bool {
        false
    }

    fn placement(&self, _: &Coordinator) -> Option<Placement> {
        Some(self.lock().placement_of_tables())
    }

    fn place(self: Arc<Self>, order: Order) -> Option<Placing> {
        Some(Box::pin(async move {
            Placer { node: &self }.place_tables(order).await.map_err(|error| error.refusal())
        }))
    }

    fn check(&self, feature: Feature) -> Result<(), Refusal> {
        match feature {
            Feature::Rebuild if self.lock().scheduler.placement().is_partial() => Err(Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "a replica cannot be rebuilt while only some replicas hold some tables",
                "No other replica has what it holds. PLACE TABLE .. EVERYWHERE comes first, with all replicas up.",
            )),
            Feature::Placement if self.leader().checkpoints.oldest().is_some() => Err(Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "tables cannot be placed while there are checkpoints",
                "The log does not have the rows that move. DROP CHECKPOINT removes a checkpoint.",
            )),
            Feature::Checkpoints if self.choices.level == Level::PassThrough => Err(Refusal::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "checkpoints are not offered under transaction_level = pass-through",
                "Its transactions cannot be run again from the log. REBUILD REPLICA gives a replica the data of another one.",
            )),
            Feature::Checkpoints if self.lock().scheduler.placement().is_partial() => Err(Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "checkpoints are not offered while only some replicas hold some tables",
                "No replica has a copy for the others. PLACE TABLE .. EVERYWHERE comes first.",
            )),
            Feature::Placement | Feature::Rebuild | Feature::Checkpoints => Ok(()),
            Feature::ChangeMembers | Feature::Pause | Feature::Refill => Err(Refusal::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "this command is not offered where statements are shipped",
                "The protocol onecopy has it.",
            )),
        }
    }
}

impl ServesClients for CJdbc {
    fn start(
        self: Arc<Self>,
        leader: &Arc<Leader>,
        orders: Vec<(ReplicaId, mpsc::Receiver<AgentOrder>)>,
    ) -> Result<Vec<JoinHandle<()>>, OpenError> {
        if !self.attach(leader) {
            return Err(OpenError::Twice("the node was opened"));
        }
        let maintain = |(id, _)| tokio::spawn(recovery::maintain(Arc::clone(&self), id));
        Ok(orders.into_iter().map(maintain).collect())
    }

    fn serve(
        self: Arc<Self>,
        worker: Rc<Worker>,
        client: LoggedIn,
    ) -> Pin<Box<dyn Future<Output = Result<(), Box<Unserved>>>>> {
        Box::pin(session::serve(self, worker, client))
    }
}
