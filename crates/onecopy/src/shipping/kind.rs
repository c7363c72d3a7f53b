//! What the rest of a node asks of one that ships statements ([`NodeKind`], [`ServesClients`]).
//!
//! There is no core and there are no agents. The scheduler says which replicas take part, the proxies how far each is.

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

use super::{Shipping, replica, returning, session};
use crate::coordinator::node_kind::{Feature, HoldingSession, NodeKind};
use crate::coordinator::requests::Reason;
use crate::coordinator::{AgentOrder, Coordinator};
use crate::error::Refusal;
use crate::link::Worker;
use crate::link::node_kind::{LoggedIn, ServesClients, Unserved};

/// How often a holder looks whether transactions are still under way.
const HOLD_PAUSE: Duration = Duration::from_millis(5);

impl NodeKind for Shipping {
    fn start(
        self: Arc<Self>,
        coordinator: &Arc<Coordinator>,
        orders: Vec<(ReplicaId, mpsc::Receiver<AgentOrder>)>,
    ) -> Result<Vec<JoinHandle<()>>, Reason> {
        if self.coordinator.set(Arc::clone(coordinator)).is_err() {
            return Err("the node was put together twice".into());
        }
        let keep = |(id, _)| tokio::spawn(returning::keep(Arc::clone(&self), id));
        Ok(orders.into_iter().map(keep).collect())
    }

    fn replicas(&self, _: &Coordinator) -> Vec<ReplicaStatus> {
        let inside = self.lock();
        let all = inside.sides.iter().enumerate();
        all.map(|(index, side)| {
            let state = match () {
                () if side.is_diverged => State::Quarantined,
                () if inside.scheduler.is_up(replica(index)) => State::Up,
                () => State::Down,
            };
            let applied = inside.over_at(index);
            ReplicaStatus {
                replica: replica(index),
                state,
                is_suspect: false,
                is_drained: false,
                is_forgotten: false,
                incarnation: side.incarnation,
                applied,
                lag: inside.appended.0 - applied.0,
                reads: side.reads,
                writes: side.writes,
                expected_wait_us: 0,
                waiting: 0,
                open: side.lanes.len(),
            }
        })
        .collect()
    }

    fn durable(&self, coordinator: &Coordinator) -> Version {
        coordinator.log.durable()
    }

    fn logged(self: Arc<Self>, _: &Coordinator, upto: Version) {
        self.durable(upto);
    }

    fn shut_out(self: Arc<Self>, _: &Coordinator, replica: ReplicaId) {
        Self::shut_out(&self, replica);
    }

    fn let_in(&self, _: &Coordinator, replica: ReplicaId) {
        Self::let_in(self, replica);
    }

    fn hold<'a>(
        &'a self,
        _: &'a Coordinator,
        session: &'a HoldingSession,
    ) -> Pin<Box<dyn Future<Output = Version> + Send + 'a>> {
        Box::pin(async move {
            while !self.take_everything(session.id) || !self.is_idle() {
                sleep(HOLD_PAUSE).await;
            }
            self.lock().appended
        })
    }

    fn end_hold(&self, session: &HoldingSession) {
        self.give_everything_back(session.id);
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
        match feature {
            Feature::ChangeMembers | Feature::Pause | Feature::Refill => Err(Refusal::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "this command is not offered where statements are shipped",
                "The protocol onecopy has it.",
            )),
        }
    }
}

impl ServesClients for Shipping {
    fn serve(
        self: Arc<Self>,
        worker: Rc<Worker>,
        client: LoggedIn,
    ) -> Pin<Box<dyn Future<Output = Result<(), Box<Unserved>>>>> {
        Box::pin(session::serve(self, worker, client))
    }
}
