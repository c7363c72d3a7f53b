//! Does what the conductor orders: opens, serves and closes the terms of this node, and links its sessions to the leader, on
//! this node or on another one.
//!
//! Terms follow each other: one begins when the former has let the log go. So do the links of the sessions of this node.
//!
//! Not here: who leads, and when ([`super::conductor`]).

use std::sync::Arc;

use commitlog::Claim;
use tokio::sync::{mpsc, oneshot, watch};

use super::orders::{Admission, OfficeQueues, Order, SessionLink, TermOrder, WAITING_MAX};
use crate::coordinator::Coordinator;
use crate::coordinator::following::UnknownMember;
use crate::session::admin::{Here, carry};

/// The own term that goes on; it ends when this is dropped.
struct Present {
    serve: Option<oneshot::Sender<()>>,
    admissions: mpsc::Sender<Admission>,
    _until: watch::Sender<()>,
}

/// The office of one node.
pub(super) struct Office {
    here: Here,
    terms: mpsc::Sender<TermOrder>,
    links: mpsc::Sender<SessionLink>,
    present: Option<Present>,
}

impl Office {
    pub(super) fn new(here: Here, queues: OfficeQueues) -> Self {
        let OfficeQueues { terms, links } = queues;
        Self { here, terms, links, present: None }
    }

    /// Carries out orders until the conductor has gone.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        while let Some(order) = orders.recv().await {
            self.carry_out(order);
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Lead(claim) => self.lead(claim),
            Order::Serve => {
                if let Some(serve) = self.present.as_mut().and_then(|present| present.serve.take()) {
                    // The term may have ended by itself.
                    let _ = serve.send(());
                }
            }
            Order::StepDown => self.present = None,
            Order::Follow(node) => self.here.leading.follow(Some(node)),
            Order::Unled => self.here.leading.follow(None),
            Order::Joined(end) => self.link(SessionLink::Over(end)),
            Order::Admit { node, queue, events } => {
                let admission = Admission { node, queue, events };
                if let Some(present) = &self.present
                    && present.admissions.try_send(admission).is_err()
                {
                    tracing::warn!("a node could not join, and will try again");
                }
            }
            Order::Cancel { pid, secret } => {
                let keys = Arc::clone(&self.here.keys);
                tokio::spawn(async move { keys.cancel(pid, &secret).await });
            }
            Order::CarryOut { from, dispatch, replies } => {
                tokio::spawn(carry(self.here.clone(), from, dispatch, replies));
            }
        }
    }

    fn lead(&mut self, claim: Claim) {
        self.here.leading.follow(None);
        let (serve, may_serve) = oneshot::channel();
        let (admissions, queue) = mpsc::channel(WAITING_MAX);
        let (until, ends) = watch::channel(());
        self.present = Some(Present { serve: Some(serve), admissions, _until: until });
        if self.terms.try_send(TermOrder { claim, may_serve, admissions: queue, ends }).is_err() {
            tracing::error!("a term does not begin, because others wait to end");
            self.present = None;
        }
    }

    fn link(&self, link: SessionLink) {
        if self.links.try_send(link).is_err() {
            tracing::error!("the sessions of this node are not linked, because other links wait to end");
        }
    }
}

/// Links the sessions of this node, one link after the other. Ends only if a member is named that this node cannot serve from.
pub(super) async fn link_sessions(
    coordinator: Arc<Coordinator>,
    mut links: mpsc::Receiver<SessionLink>,
) -> UnknownMember {
    loop {
        let Some(link) = links.recv().await else { return std::future::pending().await };
        match link {
            SessionLink::Over(end) => {
                let heard = coordinator.follow(end).await;
                coordinator.lose_link();
                if let Err(unknown) = heard {
                    return unknown;
                }
            }
            SessionLink::Own(leader) => {
                let linked = async { while leader.link(&coordinator, None).await.is_ok() {} };
                tokio::select! {
                    () = linked => tracing::error!("the sessions of this node cannot join its own term"),
                    () = leader.term.ended() => {}
                }
                coordinator.lose_link();
            }
        }
    }
}
