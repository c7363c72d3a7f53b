//! The nodes whose sessions the core of this leader serves, each with the queue of what goes to it.
//!
//! A *crew* is the sessions of one run of a node. Its effects, and what its node has to know, enter one queue in the order in
//! which the core decides, under the core's lock.
//!
//! Invariant: each effect goes out after every change of the view that the core made before it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::Cluster;
use cluster::event::{Effect, Event};
use cluster::ids::{CrewId, Incarnation, ReplicaId, SessionId, Version};
use cluster::nodes::ledger::{Question, Said};
use cluster::nodes::roster::{Roster, TooManyCrews};
use cluster::parts::replica::Outside;
use cluster::placement::{Edition, Placement, REPLICAS_MAX};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::RunProof;
use super::held_backends::HeldBackends;
use super::mailboxes::LEADER_NUMBERS;
use super::node_link::{Backend, ToNode, ViewChange};
use super::replica_address::MemberSeat;

/// One crew.
#[derive(Debug)]
struct Crew {
    id: CrewId,
    /// Where its sessions are, and the number of the question that this answers.
    backends: (u64, Vec<Backend>),
    /// What its sessions have placed by themselves, by replica.
    outside: Vec<Outside>,
    /// `None` once it was full, or its node is gone.
    queue: Option<mpsc::Sender<ToNode>>,
}

/// The crews, and what they were told last.
#[derive(Debug, Default)]
struct Present {
    crews: Vec<Crew>,
    roster: Roster,
    /// The crew of this process's own sessions, if they are linked.
    own: Option<CrewId>,
    durable: Version,
    last_ddl: Version,
    /// The anchor has the schema of this version.
    schema: Option<Version>,
    /// The servers that agents vouch for.
    runs: BTreeMap<ReplicaId, (Incarnation, RunProof)>,
    /// Questions where sessions are.
    rounds: u64,
    /// The reads that crews had placed by themselves that are gone.
    left: Vec<Outside>,
}

/// The crews of a leader.
#[derive(Debug, Default)]
pub(crate) struct Crews {
    present: Mutex<Present>,
    /// Whether there ever was a crew.
    has_any: AtomicBool,
    /// Some crew has said where its sessions are.
    answered: Notify,
    /// Where their sessions have left state in the former term.
    pub(crate) held: Arc<HeldBackends>,
}

impl Crews {
    /// No crew yet. Those of the former term may have left state at the servers.
    pub(super) fn after(held: HeldBackends) -> Self {
        Self { held: Arc::new(held), ..Self::default() }
    }

    /// A new crew, whose node reads this queue. It is told what is, and every change from now on. Only the holder of the core's lock
    /// may call this.
    pub(super) fn join(
        &self,
        queue: mpsc::Sender<ToNode>,
        core: Option<&Cluster>,
        anchor: ReplicaId,
        members: Vec<MemberSeat>,
    ) -> Result<CrewId, TooManyCrews> {
        let mut present = self.present();
        let id = present.roster.join()?;
        let mut crew = Crew { id, backends: (0, Vec::new()), outside: Vec::new(), queue: Some(queue) };
        crew.send(ToNode::Members(members));
        crew.send(ToNode::View(ViewChange::Anchor(anchor)));
        if let Some(core) = core {
            let (durable, last_ddl) = (core.durable(), core.last_ddl());
            crew.send(ToNode::View(ViewChange::Versions { durable, last_ddl }));
            crew.send(ToNode::View(placement(core)));
        }
        for (replica, (incarnation, proof)) in &present.runs {
            let (replica, incarnation, proof) = (*replica, *incarnation, proof.clone());
            crew.send(ToNode::Run { replica, incarnation, proof });
        }
        if let Some(version) = present.schema {
            crew.send(ToNode::Schema { version });
        }
        present.crews.push(crew);
        self.has_any.store(true, Ordering::Release);
        Ok(id)
    }

    /// The sessions of a crew are those of this process.
    pub(super) fn own(&self, id: CrewId) {
        self.present().own = Some(id);
    }

    /// A session of this process, as the core numbers it.
    pub(super) fn in_core(&self, session: SessionId) -> SessionId {
        match self.present().own {
            Some(own) if session.0 < LEADER_NUMBERS => SessionId::of(own, session.counter()),
            _ => session,
        }
    }

    /// A session of the core, as this process numbers it: without its crew, if it is one of this process.
    pub(super) fn at_node(&self, session: SessionId) -> SessionId {
        as_seen_by(self.present().own, session)
    }

    /// The link of a crew has ended. Returns the event for the core, once.
    pub(super) fn leave(&self, id: CrewId) -> Option<Event> {
        let mut present = self.present();
        let (mut gone, others) =
            std::mem::take(&mut present.crews).into_iter().partition(|crew| crew.id == id);
        present.crews = others;
        for crew in &mut gone {
            let ended = |outside: &Outside| Outside { reads: outside.reads, ..Outside::default() };
            let ended: Vec<Outside> = crew.outside.iter().map(ended).collect();
            add(&mut present.left, &ended);
        }
        present.roster.leave(id)
    }

    /// What the sessions of a crew have placed by themselves. Returns that of all crews.
    pub(super) fn note_outside(&self, id: CrewId, placed: Vec<Outside>) -> Vec<Outside> {
        if let Some(crew) = self.present().crew(id) {
            crew.outside = placed.into_iter().take(REPLICAS_MAX.into()).collect();
        }
        self.outside()
    }

    /// What the sessions of all crews have placed by themselves, by replica.
    pub(super) fn outside(&self) -> Vec<Outside> {
        let present = self.present();
        let mut all = present.left.clone();
        present.crews.iter().for_each(|crew| add(&mut all, &crew.outside));
        all
    }

    /// The same of one crew.
    pub(super) fn outside_of(&self, id: CrewId) -> Vec<Outside> {
        self.present().crew(id).map(|crew| crew.outside.clone()).unwrap_or_default()
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

    /// The catalogue was read at the anchor, with the schema of this version.
    pub(crate) fn show_schema(&self, version: Version) {
        let mut present = self.present();
        present.schema = present.schema.max(Some(version));
        present.tell_all(|| ToNode::Schema { version });
    }

    /// An effect for a session of a crew.
    pub(super) fn deliver(&self, effect: Effect) {
        let mut present = self.present();
        let Some((id, mut heard)) = present.roster.address(effect) else { return };
        if let Effect::Abort { cause, .. } = &mut heard.effect
            && let Some(session) = cause.rival_mut().and_then(|rival| rival.session.as_mut())
        {
            *session = as_seen_by(Some(id), *session);
        }
        if let Some(crew) = present.crew(id) {
            crew.send(ToNode::Heard(heard));
        }
    }

    /// What a session of a crew has said, as a question for the core or the log. Only the holder of the core's lock may call this.
    pub(super) fn hear(&self, id: CrewId, said: Said) -> Option<Question> {
        self.present().roster.hear(id, said)
    }

    /// Tells one crew.
    pub(crate) fn tell(&self, id: CrewId, message: ToNode) {
        if let Some(crew) = self.present().crew(id) {
            crew.send(message);
        }
    }

    /// Tells all crews.
    pub(super) fn tell_all(&self, message: impl Fn() -> ToNode) {
        self.present().tell_all(message);
    }

    /// Tells the crews of other nodes.
    pub(crate) fn tell_others(&self, message: impl Fn() -> ToNode) {
        let mut present = self.present();
        let own = present.own;
        present.crews.iter_mut().filter(|crew| Some(crew.id) != own).for_each(|crew| crew.send(message()));
    }

    /// The backends of sessions of other nodes, as far as these answer in time.
    pub(crate) async fn backends(&self, patience: Duration) -> BTreeMap<(ReplicaId, i32), SessionId> {
        let round = {
            let mut present = self.present();
            present.rounds += 1;
            present.rounds
        };
        self.tell_others(|| ToNode::TellBackends { round });
        let deadline = Instant::now() + patience;
        while !self.have_answered(round)
            && tokio::time::timeout_at(deadline, self.answered.notified()).await.is_ok()
        {}
        let present = self.present();
        let of_crew = |crew: &Crew| -> Vec<_> {
            let (answered, backends) = &crew.backends;
            let backends = backends.iter().filter(|_| *answered >= round);
            let named = |session: SessionId| SessionId::of(crew.id, session.counter());
            backends.map(|at| ((at.replica, at.pid), named(at.session))).collect()
        };
        present.crews.iter().flat_map(of_crew).collect()
    }

    fn have_answered(&self, round: u64) -> bool {
        let present = self.present();
        let mut others = present.crews.iter().filter(|crew| Some(crew.id) != present.own);
        others.all(|crew| crew.backends.0 >= round || crew.queue.is_none())
    }

    /// A node has said where its sessions are.
    pub(super) fn note_backends(&self, id: CrewId, round: u64, backends: Vec<Backend>) {
        if let Some(crew) = self.present().crew(id) {
            crew.backends = (round, backends);
        }
        self.answered.notify_one();
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

/// Adds what was placed, by replica.
fn add(all: &mut Vec<Outside>, more: &[Outside]) {
    all.resize(all.len().max(more.len()), Outside::default());
    for (sum, outside) in all.iter_mut().zip(more) {
        *sum = sum.plus(*outside);
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

/// A session of the core as its messages name it to a crew: a session of that crew by the number that its node gave it.
pub(super) fn as_seen_by(crew: Option<CrewId>, session: SessionId) -> SessionId {
    if crew == Some(session.crew()) { SessionId(session.counter()) } else { session }
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
