//! Parks a replica's agent, and starts it again.
//!
//! Before the agent ends, it makes the applied records durable. So the driver knows how much of the log the parked
//! replica needs. For the core a parked replica is one that is lost and drained: it takes nothing, and nothing of it
//! counts. When it is woken its agent fences the server, reads the applied set and catches up, as after every start.
//!
//! Invariant: a replica is parked only while it is up, and nothing runs there; the caller has drained it.

use std::sync::Arc;

use cluster::event::Event;
use cluster::ids::{Incarnation, ReplicaId, Version};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::ReplicaDriver;
use crate::coordinator::Leader;
use crate::replica::agent::{Agent, AgentEvent, Assignment, Command, HeldAt};

/// The task of an agent, with the driver's ends of its channels. The task ends when this is dropped.
pub(super) struct RunningAgent {
    commands: mpsc::Sender<Command>,
    events: mpsc::Receiver<AgentEvent>,
    task: JoinHandle<()>,
}

impl RunningAgent {
    /// Starts the agent of a replica when the term begins.
    pub(super) fn start_with_term(leader: &Leader, replica: ReplicaId) -> Self {
        // Sessions leave state only at the anchor.
        let is_anchor = leader.view.anchor() == replica;
        let held = is_anchor.then(|| HeldAt { replica, all: Arc::clone(&leader.crews.held) });
        Self::start(leader, replica, Incarnation::before(leader.term.epoch), held)
    }

    /// Starts the agent of a replica. Its incarnations follow `after`.
    fn start(leader: &Leader, replica: ReplicaId, after: Incarnation, held: Option<HeldAt>) -> Self {
        let seat = &leader.seats[replica];
        let assignment = Assignment {
            name: seat.name.clone(),
            address: seat.address.clone(),
            served: leader.database.served.clone(),
            cluster: leader.term.cluster_id,
            after,
            voucher: leader.voucher.clone(),
            seal: Arc::clone(&leader.local.seal),
            spills: leader.log.spills(),
            reader_patience_ms: Arc::clone(&seat.reader_patience_ms),
            health_deadline: leader.local.timeouts.health_deadline,
            is_founding: leader.term.founding(),
            evictions: Arc::clone(&seat.evictions),
            held,
        };
        let (agent, commands, events) = Agent::new(assignment);
        Self { commands, events, task: tokio::spawn(agent.run()) }
    }

    pub(super) async fn send(&self, command: Command) -> Result<(), SendError<Command>> {
        self.commands.send(command).await
    }

    /// The next event of the agent. Without an agent there is none. Cancel-safe.
    pub(super) async fn next_event(agent: &mut Option<Self>) -> Option<AgentEvent> {
        match agent {
            Some(agent) => agent.events.recv().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ReplicaDriver {
    /// Has the agent make the applied records durable. Drops `done` if the replica is not up.
    pub(super) async fn begin_parking(&mut self, done: oneshot::Sender<Version>) -> Option<Command> {
        if !self.is_up {
            return None;
        }
        let command = self.maintain().await?;
        self.parking = Some(done);
        Some(command)
    }

    /// The replica has made this version durable: ends the agent of a replica that is to be parked.
    pub(super) fn park_at(&mut self, durable: Version) {
        let Some(done) = self.parking.take() else { return };
        self.agent = None;
        self.is_up = false;
        (self.recovering, self.ordered) = (None, None);
        let (leader, replica, incarnation) = (&self.leader, self.replica, self.incarnation);
        leader.database.sequences().leases.replica_changed(replica);
        leader.core.tell(Event::ReplicaLost { replica, incarnation });
        let seat = &leader.seats[replica];
        leader.give_up(replica);
        seat.absence.end();
        // The task that asked runs to its end, unless the node stops. Then nothing of this is kept.
        let _ = done.send(durable);
    }

    /// Starts the agent again.
    pub(super) fn end_parking(&mut self) {
        if self.agent.is_none() {
            self.agent = Some(RunningAgent::start(&self.leader, self.replica, self.incarnation, None));
        }
    }
}
