//! A node that ships statements, as the rest of the node sees it ([`NodeKind`], [`ServesClients`]).
//!
//! This kind has no core and no agents. The scheduler says which replicas take part, and the proxies how far each is.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ReplicaId, Version};
use cluster::parts::replica::State;
use cluster::protocols::ReplicaStatus;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use wire::sqlstate;

use super::node::Shipping;
use super::state::{Eligibility, replica};
use super::{recovery, session};
use crate::coordinator::node_kind::{Feature, HoldingSession, NodeKind};
use crate::coordinator::open_error::OpenError;
use crate::coordinator::{AgentOrder, Coordinator, Leader};
use crate::error::Refusal;
use crate::link::Worker;
use crate::link::node_kind::{LoggedIn, ServesClients, Unserved};

/// Interval at which a hold checks for unfinished transactions.
const HOLD_PAUSE: Duration = Duration::from_millis(5);

impl NodeKind for Shipping {
    fn replicas(&self, _: &Coordinator) -> Vec<ReplicaStatus> {
        let state = self.lock();
        let all = state.replicas.iter().enumerate();
        all.map(|(index, member)| {
            let serves = match member.eligibility {
                Eligibility::Quarantined => State::Quarantined,
                Eligibility::Member if state.scheduler.is_up(replica(index)) => State::Up,
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
        self.let_in_replica(replica);
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

    fn check(&self, feature: Feature) -> Result<(), Refusal> {
        check_feature(feature)
    }
}

impl ServesClients for Shipping {
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

/// The commands that are offered where statements are shipped.
pub(super) fn check_feature(feature: Feature) -> Result<(), Refusal> {
    match feature {
        Feature::Rebuild | Feature::Checkpoints => Ok(()),
        Feature::ChangeMembers | Feature::Placement | Feature::Pause | Feature::Refill => Err(Refusal::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "this command is not offered where statements are shipped",
            "The protocol onecopy has it.",
        )),
    }
}
