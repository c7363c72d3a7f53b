//! The nodes whose sessions the core of this leader serves, each with the queue of what goes to it.
//!
//! A *crew* is the sessions of one run of a node. Its effects, and what its node has to know, enter one queue in the order in
//! which the core decides, under the core's lock.
//!
//! Invariant: each effect goes out after every change of the view that the core made before it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::Cluster;
use cluster::event::{Effect, Event};
use cluster::ids::{CrewId, Incarnation, ReplicaId, SessionId, Version};
use cluster::placement::{Edition, Placement};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;

use super::RunProof;
use super::node_link::{Exchange, ToNode, ViewChange};

/// One crew.
#[derive(Debug)]
struct Crew {
    id: CrewId,
    /// `None` once it was full, or its node is gone.
    queue: Option<mpsc::Sender<ToNode>>,
    /// The present exchange of its sessions that have ended one, as far as the leader has heard.
    exchanges: FxHashMap<SessionId, Exchange>,
}

/// The crews, and what they were told last.
#[derive(Debug, Default)]
struct Present {
    crews: Vec<Crew>,
    durable: Version,
    last_ddl: Version,
    /// The servers that agents vouch for.
    runs: BTreeMap<ReplicaId, (Incarnation, RunProof)>,
}

/// The crews of a leader.
#[derive(Debug, Default)]
pub(crate) struct Crews {
    present: Mutex<Present>,
    /// Whether there ever was a crew.
    has_any: AtomicBool,
}

impl Crews {
    /// A crew whose node reads this queue. It is told what is, and every change from now on. Only the holder of the core's lock may
    /// call this.
    pub(super) fn join(&self, id: CrewId, queue: mpsc::Sender<ToNode>, core: &Cluster, anchor: ReplicaId) {
        let mut present = self.present();
        let mut crew = Crew { id, queue: Some(queue), exchanges: FxHashMap::default() };
        let (durable, last_ddl) = (core.durable(), core.last_ddl());
        for change in
            [ViewChange::Anchor(anchor), ViewChange::Versions { durable, last_ddl }, placement(core)]
        {
            crew.send(ToNode::View(change));
        }
        for (replica, (incarnation, proof)) in &present.runs {
            let (replica, incarnation, proof) = (*replica, *incarnation, proof.clone());
            crew.send(ToNode::Run { replica, incarnation, proof });
        }
        present.crews.push(crew);
        self.has_any.store(true, Ordering::Release);
    }

    /// The agent of a replica is connected to this run of its server.
    pub(super) fn begin_run(&self, replica: ReplicaId, incarnation: Incarnation, proof: RunProof) {
        let mut present = self.present();
        present.tell_all(|| ToNode::Run { replica, incarnation, proof: proof.clone() });
        present.runs.insert(replica, (incarnation, proof));
    }

    /// The server of a replica is given up.
    pub(super) fn end_run(&self, replica: ReplicaId) {
        let mut present = self.present();
        present.runs.remove(&replica);
        present.tell_all(|| ToNode::GaveUp { replica });
    }

    /// An effect for a session of a crew.
    pub(super) fn deliver(&self, session: SessionId, effect: Effect) {
        let mut present = self.present();
        let Some(crew) = present.crew(session.crew()) else { return };
        let exchange = crew.exchanges.get(&session).copied().unwrap_or_default();
        crew.send(ToNode::Effect { exchange, effect });
    }

    /// The session of an event has come to this exchange.
    pub(super) fn note_exchange(&self, event: &Event, exchange: Exchange) {
        let Some(session) = event.session().filter(|_| exchange != Exchange::default()) else { return };
        let mut present = self.present();
        if let Some(crew) = present.crew(session.crew()) {
            crew.exchanges.insert(session, exchange);
        }
    }

    /// The session has ended.
    pub(super) fn forget(&self, session: SessionId) {
        if let Some(crew) = self.present().crew(session.crew()) {
            crew.exchanges.remove(&session);
        }
    }

    /// Tells one crew.
    pub(super) fn tell(&self, id: CrewId, message: ToNode) {
        if let Some(crew) = self.present().crew(id) {
            crew.send(message);
        }
    }

    /// Tells all crews.
    pub(super) fn tell_all(&self, message: impl Fn() -> ToNode) {
        self.present().tell_all(message);
    }

    /// Tells all crews of new versions. Only the holder of the core's lock may call this.
    pub(super) fn show(&self, core: &Cluster) {
        if !self.has_any.load(Ordering::Acquire) {
            return;
        }
        let mut present = self.present();
        let (durable, last_ddl) = (core.durable(), core.last_ddl());
        if (present.durable, present.last_ddl) != (durable, last_ddl) {
            (present.durable, present.last_ddl) = (durable, last_ddl);
            present.tell_all(|| ToNode::View(ViewChange::Versions { durable, last_ddl }));
        }
    }

    /// Tells all crews who holds what. Only the holder of the core's lock may call this.
    pub(super) fn show_placement(&self, core: &Cluster) {
        self.present().tell_all(|| ToNode::View(placement(core)));
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who holds what.
fn placement(core: &Cluster) -> ViewChange {
    let known = core.placement();
    ViewChange::Placement {
        placement: known.map(|known| Box::new(known.clone())),
        is_partial: core.is_partial(),
        edition: known.map_or_else(Edition::default, Placement::edition),
    }
}

impl Present {
    fn crew(&mut self, id: CrewId) -> Option<&mut Crew> {
        self.crews.iter_mut().find(|crew| crew.id == id)
    }

    fn tell_all(&mut self, message: impl Fn() -> ToNode) {
        self.crews.iter_mut().for_each(|crew| crew.send(message()));
    }
}

impl Crew {
    fn send(&mut self, message: ToNode) {
        if self.queue.as_ref().is_some_and(|queue| queue.try_send(message).is_err()) {
            // Its link ends with the queue, so the node knows that it has missed something.
            self.queue = None;
        }
    }
}
