//! The way to the cluster core: events in, effects out, questions answered.
//!
//! Sessions, agents and the writer thread of the log hand their events to [`Core::tell`] or [`Core::ask`]. The core
//! decides under one lock, and its effects are carried out under that lock, in the order given: a record enters the
//! queue of the log, a note enters the mailbox of a session, an order enters the queue of an agent. None of these
//! waits, so the lock is held for microseconds. A message from one agent to another is an event that follows at once. For example, `Event::Logged` lets a COMMIT be acknowledged: the note is
//! in the session's mailbox before the lock is free.
//!
//! Invariant: the [`View`] shows the changes of an event before any effect of the event can be seen. So a session that
//! has received an effect finds in the view at least the state that caused it, without the lock.

mod clock;
mod outputs;
mod questions;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::Cluster;
use cluster::event::{Effect, Event};
use cluster::ids::SessionId;
use cluster::time::Time;

use super::view::View;
use clock::Clock;

pub(super) use outputs::Outputs;

/// The core behind its lock.
pub(crate) struct Core {
    state: Mutex<State>,
    clock: Clock,
    outputs: Outputs,
}

/// The state under the lock.
struct State {
    /// `None` in a kind of node that orders transactions by itself.
    cluster: Option<Cluster>,
    /// The effects of the present event; kept so that their memory is reused.
    effects: Vec<Effect>,
}

impl State {
    /// The effects of an event, once the view shows its outcome.
    fn handle(&mut self, now: Time, event: Event, view: &View) -> std::vec::Drain<'_, Effect> {
        if let Some(cluster) = &mut self.cluster {
            view.current_replicas.tell(cluster);
            cluster.handle(now, event, &mut self.effects);
            view.note(cluster);
        }
        self.effects.drain(..)
    }
}

impl Core {
    pub(super) fn new(cluster: Option<Cluster>, outputs: Outputs) -> Self {
        if let Some(cluster) = &cluster {
            outputs.view.note(cluster);
        }
        Self { state: Mutex::new(State { cluster, effects: Vec::new() }), clock: Clock::start(), outputs }
    }

    /// Hands one event to the core and carries out its effects.
    pub(crate) fn tell(&self, event: Event) {
        self.ask(None, event);
    }

    /// Like [`Core::tell`]. If the event lets this session execute at once, or answers its question, this returns that
    /// effect, which then skips the mailbox.
    pub(crate) fn ask(&self, own: Option<SessionId>, event: Event) -> Option<Effect> {
        let now = self.clock.now();
        let mut state = self.state();
        let mut granted = None;
        // What effects bring about at once: messages between agents.
        let mut next = VecDeque::new();
        let mut event = Some(event);
        while let Some(present) = event {
            for effect in state.handle(now, present, &self.outputs.view) {
                match effect {
                    effect if own.is_some_and(|own| effect.answers(own)) => granted = Some(effect),
                    Effect::WakeAt { at } => self.clock.wake_at(at),
                    other => next.extend(self.outputs.carry_out(other)),
                }
            }
            event = next.pop_front();
        }
        granted
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
    fn query<T: Default>(&self, ask: impl FnOnce(&Cluster) -> T) -> T {
        self.state().cluster.as_ref().map(ask).unwrap_or_default()
    }

    /// Lets the core know of the reads that sessions have placed by themselves, before it is asked how busy replicas are.
    fn tell_outside(&self) {
        if let Some(cluster) = &mut self.state().cluster {
            self.outputs.view.current_replicas.tell(cluster);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
