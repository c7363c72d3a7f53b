//! The cluster core of this node: events in, effects out, questions answered.
//!
//! Sessions, agents and the writer thread of the log hand their events to [`LocalCore::tell`] or [`LocalCore::ask`]. The core
//! decides under one lock, and its effects are carried out under that lock, in the order given: a record enters the
//! queue of the log, a note enters the mailbox of a session, an order enters the queue of an agent. None of these
//! waits, so the lock is held for microseconds. A message from one agent to another is an event that follows at once. For example, `Event::Logged` lets a COMMIT be acknowledged: the note is
//! in the session's mailbox before the lock is free.
//!
//! Invariant: the [view](crate::coordinator::view::View) shows the changes of an event before any effect of the event can be seen. So a session that
//! has received an effect finds in the view at least the state that caused it, without the lock.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::Cluster;
use cluster::event::{Effect, Event};
use cluster::ids::{CrewId, Identity, ReplicaId, SessionId, Version};
use cluster::nodes::lease::Grants;
use cluster::nodes::ledger::{Question, Said};
use cluster::nodes::roster::TooManyCrews;
use cluster::parts::replica::{Offer, Outside};
use cluster::time::Time;
use tokio::sync::mpsc;

use super::clock::Clock;
use super::leases::Leases;
use super::outputs::Outputs;
use crate::coordinator::crews::Crews;
use crate::coordinator::etcd_log::timing;
use crate::coordinator::node_link::ToNode;
use crate::coordinator::replica_address::MemberSeat;
use crate::coordinator::view::View;

/// The pause between two looks whether the log has confirmed the term.
const RENEW_EVERY: Duration = Duration::from_millis(20);

/// The core behind its lock.
pub(crate) struct LocalCore {
    state: Mutex<State>,
    pub(super) clock: Clock,
    pub(super) outputs: Outputs,
}

/// The state under the lock.
struct State {
    /// `None` in a kind of node that orders transactions by itself.
    cluster: Option<Cluster>,
    /// The reads that sessions of other nodes have placed by themselves, by replica.
    elsewhere: Vec<Outside>,
    /// The effects of the present event; kept so that their memory is reused.
    effects: Vec<Effect>,
    /// The leases, if another node can take the log over.
    leases: Option<Leases>,
}

impl State {
    /// The effects of an event, once the view shows its outcome here and at other nodes.
    fn handle(&mut self, now: Time, event: Event, view: &View, crews: &Crews) -> std::vec::Drain<'_, Effect> {
        if let Some(cluster) = &mut self.cluster {
            let places = matches!(event, Event::Placed { .. } | Event::Joined { .. } | Event::Left { .. });
            view.current_replicas.tell(&self.elsewhere, cluster);
            cluster.handle(now, event, &mut self.effects);
            view.note(cluster);
            crews.show(cluster);
            if places {
                crews.show_placement(cluster);
            }
        }
        self.effects.drain(..)
    }
}

impl LocalCore {
    pub(in crate::coordinator) fn new(cluster: Option<Cluster>, outputs: Outputs) -> Self {
        if let Some(cluster) = &cluster {
            outputs.view.note(cluster);
        }
        // The lease counts from before the claim, so time has to begin there.
        let confirmed = outputs.log.confirmed_at();
        let clock = Clock::since(confirmed.unwrap_or_else(Instant::now));
        let leases = confirmed
            .zip(cluster.as_ref())
            .map(|(claimed, cluster)| Leases::new(clock.at(claimed), cluster.durable(), cluster.last_ddl()));
        let core = Self {
            state: Mutex::new(State { cluster, elsewhere: Vec::new(), effects: Vec::new(), leases }),
            clock,
            outputs,
        };
        core.renew_lease();
        core
    }

    /// Hands one event to the core and carries out its effects.
    pub(crate) fn tell(&self, event: Event) {
        self.ask(None, event);
    }

    /// Like [`LocalCore::tell`]. If the event lets this session execute at once, or answers its question, this returns that
    /// effect, which then skips the mailbox.
    pub(crate) fn ask(&self, own: Option<SessionId>, event: Event) -> Option<Effect> {
        let mut state = self.state();
        if let (Event::Logged { upto }, Some(leases)) = (&event, &mut state.leases) {
            leases.durable(*upto);
            self.release(&mut state);
            return None;
        }
        self.carry_on(&mut state, own, event)
    }

    /// The core hears what is durable and noted.
    fn release(&self, state: &mut State) {
        let logged = state.leases.as_mut().and_then(|leases| leases.logged(self.clock.now()));
        if let Some(logged) = logged {
            self.carry_on(state, None, logged);
        }
    }

    /// A node asks for a version lease.
    pub(in crate::coordinator) fn grant(&self, crew: CrewId, sent: Time) {
        let mut state = self.state();
        let Some(leases) = &mut state.leases else { return };
        self.let_go(&mut leases.grants);
        if let Some((granted, last_ddl)) = leases.grant(crew, self.clock.now()) {
            self.outputs.crews.tell(crew, ToNode::Granted { sent, granted, last_ddl });
        }
    }

    /// What sessions of a node have placed by themselves, by replica.
    pub(in crate::coordinator) fn note_outside(&self, crew: CrewId, placed: Vec<Outside>) {
        let mut state = self.state();
        state.elsewhere = self.outputs.crews.note_outside(crew, placed);
    }

    /// What the replicas offer to the reads of a node, by replica. The load is without what these have placed by themselves.
    pub(in crate::coordinator) fn offers_to(&self, crew: CrewId) -> Vec<Option<Offer>> {
        let state = self.state();
        let Some(cluster) = &state.cluster else { return Vec::new() };
        let own = self.outputs.crews.outside_of(crew);
        let at = |placed: &[Outside], number: usize| {
            placed.get(number).map_or(0, |outside| outside.outstanding_us)
        };
        let offer = |number: usize| {
            let offer = cluster.offer(ReplicaId(u16::try_from(number).ok()?))?;
            let others_us = at(&state.elsewhere, number).saturating_sub(at(&own, number));
            Some(Offer { load_us: offer.load_us.saturating_add(others_us), ..offer })
        };
        (0..cluster.seats()).map(offer).collect()
    }

    /// A node that stops has ended its version lease.
    pub(in crate::coordinator) fn lease_ended(&self, crew: CrewId) {
        let mut state = self.state();
        if let Some(leases) = &mut state.leases {
            leases.ended(crew);
        }
        self.release(&mut state);
    }

    /// A node has noted everything up to a version.
    pub(in crate::coordinator) fn noted(&self, crew: CrewId, upto: Version) {
        let mut state = self.state();
        if let Some(leases) = &mut state.leases {
            leases.noted(crew, upto);
        }
        self.release(&mut state);
    }

    /// Hands over what a session of another node has said. Returns what it asks of the log, if it does.
    pub(in crate::coordinator) fn hear(&self, crew: CrewId, said: Said) -> Option<OutcomeQuestion> {
        let mut state = self.state();
        match self.outputs.crews.hear(crew, said)? {
            Question::Event(event) => {
                self.carry_on(&mut state, None, *event);
                None
            }
            Question::Outcome { session, identity, after } => {
                Some(OutcomeQuestion { session, identity, after })
            }
        }
    }

    /// The sessions of another node join: from now on everything that they have to know enters this queue.
    pub(in crate::coordinator) fn join(&self, queue: mpsc::Sender<ToNode>) -> Result<CrewId, TooManyCrews> {
        let state = self.state();
        let cluster = state.cluster.as_ref();
        let members = self.outputs.seats.iter().map(|seat| MemberSeat::of(&seat.address())).collect();
        self.outputs.crews.join(queue, cluster, self.outputs.view.anchor(), members)
    }

    /// The sessions of a crew are those of this process.
    pub(in crate::coordinator) fn own(&self, crew: CrewId) {
        self.outputs.crews.own(crew);
    }

    /// A session of this process, as events name it that others tell of it.
    pub(crate) fn named(&self, session: SessionId) -> SessionId {
        self.outputs.crews.in_core(session)
    }

    /// The link of a crew has ended, and so has what its sessions were doing.
    pub(in crate::coordinator) fn leave(&self, crew: CrewId) {
        let mut state = self.state();
        if let Some(lost) = self.outputs.crews.leave(crew) {
            state.elsewhere = self.outputs.crews.outside();
            self.carry_on(&mut state, None, lost);
        }
    }

    fn carry_on(&self, state: &mut State, own: Option<SessionId>, event: Event) -> Option<Effect> {
        let now = self.clock.now();
        let Outputs { view, crews, .. } = &self.outputs;
        let mut granted = None;
        let mut leases = state.leases.take();
        if let (Some(leases), Some(session)) = (&mut leases, event.session().filter(|_| gives_up(&event))) {
            leases.grants.drop_of(session);
        }
        // What effects bring about at once: messages between agents.
        let mut next = VecDeque::new();
        let mut event = Some(event);
        while let Some(present) = event {
            for effect in state.handle(now, present, view, crews) {
                let Some(effect) = self.pass(leases.as_mut(), effect) else { continue };
                match effect {
                    effect if own.is_some_and(|own| effect.answers(own)) => granted = Some(effect),
                    Effect::WakeAt { at } => self.clock.wake_at(at),
                    other => next.extend(self.outputs.carry_out(other)),
                }
            }
            event = next.pop_front();
        }
        state.leases = leases;
        granted
    }

    /// Returns the effect, unless it lets a statement run and the term lease is over: then it waits for the lease. Nodes that read by
    /// themselves are told of a version before it enters the log.
    fn pass(&self, leases: Option<&mut Leases>, effect: Effect) -> Option<Effect> {
        let Some(leases) = leases else { return Some(effect) };
        match &effect {
            Effect::Execute { .. } => self.let_go(&mut leases.grants),
            Effect::Append { version, body, .. } => {
                let (version, may_change_schema) = (*version, body.writes_everything());
                for crew in leases.assigned(version, may_change_schema, self.clock.now()) {
                    self.outputs.crews.tell(crew, ToNode::Assigned { version, may_change_schema });
                }
            }
            _ => {}
        }
        leases.grants.pass(effect, self.clock.now())
    }

    /// Lets the statements run that have waited for the term lease, if it was renewed.
    fn let_go(&self, grants: &mut Grants) {
        let Some(confirmed) = self.outputs.log.confirmed_at() else { return };
        for effect in grants.renewed(self.clock.at(confirmed), self.clock.now()) {
            // A statement that may run brings nothing else about.
            let _ = self.outputs.carry_out(effect);
        }
    }

    /// Looks whether the log has confirmed the term since the last time.
    fn renew_lease(&self) {
        let Some(confirmed) = self.outputs.log.confirmed_at() else { return };
        self.outputs.view.set_lease(confirmed + Duration::from_micros(timing().lease_us));
        let mut state = self.state();
        if let Some(leases) = &mut state.leases {
            self.let_go(&mut leases.grants);
        }
        // The lease of a node that says nothing may be over.
        self.release(&mut state);
    }

    /// Renews the term lease as the log confirms the term, for as long as the node runs.
    pub(crate) async fn keep_lease(&self) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            self.renew_lease();
        }
    }

    /// Wakes the core up at the times for which it asks, for as long as the node runs.
    pub(crate) async fn wake_up_in_time(&self) {
        loop {
            self.clock.due().await;
            self.tell(Event::WakeUp);
        }
    }

    /// Brings the messages that are delayed, for as long as the node runs.
    pub(crate) async fn bring_messages(&self) {
        loop {
            let message = self.outputs.messages.next().await;
            self.tell(message);
        }
    }

    /// Asks the core a question under its lock. Without a core the answer is the default.
    pub(super) fn query<T: Default>(&self, ask: impl FnOnce(&Cluster) -> T) -> T {
        self.state().cluster.as_ref().map(ask).unwrap_or_default()
    }

    /// Lets the core know of the reads that sessions have placed by themselves, before it is asked how busy replicas are.
    pub(super) fn tell_outside(&self) {
        let State { cluster, elsewhere, .. } = &mut *self.state();
        if let Some(cluster) = cluster {
            self.outputs.view.current_replicas.tell(elsewhere, cluster);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a transaction that a session has finished?
#[derive(Clone, Copy, Debug)]
pub(in crate::coordinator) struct OutcomeQuestion {
    pub(in crate::coordinator) session: SessionId,
    pub(in crate::coordinator) identity: Identity,
    /// Its record comes after this version.
    pub(in crate::coordinator) after: Version,
}

/// Whether the session no longer wants the statement to run that it has asked for.
fn gives_up(event: &Event) -> bool {
    matches!(event, Event::GiveUp { .. } | Event::Withdraw { .. } | Event::End { .. } | Event::Yield { .. })
}

#[cfg(test)]
mod tests;
