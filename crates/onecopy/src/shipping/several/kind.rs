//! One of several nodes that ship statements, as the rest of the node sees it ([`NodeKind`], [`ServesClients`]).
//!
//! Its sessions use the scheduler of whichever node leads. While this node leads, it has that scheduler, too.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, RwLock};

use cluster::ids::{CrewId, ReplicaId, Version};
use cluster::protocols::ReplicaStatus;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::catalogue;
use super::crews::CrewService;
use super::remote::RemoteScheduler;
use crate::coordinator::node_kind::{Feature, HoldingSession, NodeKind, SchedulerLink};
use crate::coordinator::open_error::OpenError;
use crate::coordinator::plan::Term;
use crate::coordinator::scheduler_messages::{ToCrew, ToScheduler};
use crate::coordinator::{AgentOrder, Coordinator, Leader};
use crate::error::Refusal;
use crate::link::Worker;
use crate::link::node_kind::{LoggedIn, ServesClients, Unserved};
use crate::shipping::kind::check_feature;
use crate::shipping::node::Shipping;
use crate::shipping::session;
use crate::shipping::start::{ShippingError, ShippingOptions};

/// Such a node.
pub(crate) struct ShippingOfSeveral {
    options: ShippingOptions,
    sessions: Arc<RemoteScheduler>,
    /// The scheduler, while this node leads.
    present: RwLock<Option<Arc<Shipping>>>,
}

impl ShippingOfSeveral {
    pub(crate) fn new(options: ShippingOptions) -> Self {
        Self { options, sessions: Arc::default(), present: RwLock::default() }
    }

    /// The sessions of this process have this in common. Keeps their catalogue until the task is dropped.
    pub(crate) fn attach(&self, coordinator: &Arc<Coordinator>) -> JoinHandle<()> {
        self.sessions.attach(coordinator);
        tokio::spawn(catalogue::keep(Arc::clone(&self.sessions)))
    }

    /// A term of this node begins.
    pub(crate) fn begin(&self, replicas: &[ReplicaId], term: Term) -> Result<(), ShippingError> {
        let epoch = term.epoch;
        let shipping = Shipping::new(self.options, replicas, term)?;
        shipping.lock().linked.begin(epoch);
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(shipping));
        Ok(())
    }

    /// The term of this node is over.
    pub(crate) fn end(&self) {
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn present(&self) -> Option<Arc<Shipping>> {
        self.present.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl NodeKind for ShippingOfSeveral {
    fn replicas(&self, coordinator: &Coordinator) -> Vec<ReplicaStatus> {
        match self.present() {
            Some(shipping) => shipping.replicas(coordinator),
            None => coordinator.core.replicas(),
        }
    }

    fn logged(self: Arc<Self>, coordinator: &Coordinator, upto: Version) {
        if let Some(shipping) = self.present() {
            shipping.logged(coordinator, upto);
        }
    }

    fn shut_out(self: Arc<Self>, coordinator: &Coordinator, replica: ReplicaId) {
        if let Some(shipping) = self.present() {
            shipping.shut_out(coordinator, replica);
        }
    }

    fn let_in(&self, coordinator: &Coordinator, replica: ReplicaId) {
        if let Some(shipping) = self.present() {
            shipping.let_in(coordinator, replica);
        }
    }

    fn hold<'a>(
        &'a self,
        coordinator: &'a Coordinator,
        session: &'a HoldingSession,
    ) -> Pin<Box<dyn Future<Output = Version> + Send + 'a>> {
        Box::pin(async move {
            match self.present() {
                Some(shipping) => shipping.hold(coordinator, session).await,
                // Only the leader holds transactions, and the command ends with its term.
                None => std::future::pending().await,
            }
        })
    }

    fn end_hold(&self, session: &HoldingSession) {
        if let Some(shipping) = self.present() {
            shipping.end_hold(session);
        }
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

    fn scheduler_link(self: Arc<Self>) -> Option<Arc<dyn SchedulerLink>> {
        Some(self)
    }

    fn check(&self, feature: Feature) -> Result<(), Refusal> {
        check_feature(feature)
    }
}

impl SchedulerLink for ShippingOfSeveral {
    fn crew_joined(&self, crew: CrewId) {
        if let Some(shipping) = self.present() {
            CrewService(shipping).join(crew);
        }
    }

    fn crew_left(&self, crew: CrewId) {
        if let Some(shipping) = self.present() {
            CrewService(shipping).leave(crew);
        }
    }

    fn hear_crew<'a>(
        &'a self,
        crew: CrewId,
        message: ToScheduler,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            if let Some(shipping) = self.present() {
                CrewService(shipping).hear(crew, message).await;
            }
        })
    }

    fn hear_leader(&self, message: ToCrew) {
        self.sessions.hear(message);
    }

    fn link_lost(&self) {
        self.sessions.link_lost();
    }
}

impl ServesClients for ShippingOfSeveral {
    fn start(
        self: Arc<Self>,
        leader: &Arc<Leader>,
        orders: Vec<(ReplicaId, mpsc::Receiver<AgentOrder>)>,
    ) -> Result<Vec<JoinHandle<()>>, OpenError> {
        self.present().expect("a term begins before its leader starts").start(leader, orders)
    }

    fn serve(
        self: Arc<Self>,
        worker: Rc<Worker>,
        client: LoggedIn,
    ) -> Pin<Box<dyn Future<Output = Result<(), Box<Unserved>>>>> {
        let sessions = Arc::clone(&self.sessions);
        Box::pin(session::serve(sessions, worker, client))
    }
}
