//! Lock waits inside the servers, as reported to the node.
//!
//! A refresh never waits long: the transaction that holds a row lock it needs is rolled back. Each server detects the
//! deadlocks inside itself only, so the node reports the lock waits of all servers to the core.

use std::collections::{BTreeMap, BTreeSet};

use cluster::event::{AbortCause, Effect, Event};
use cluster::ids::SessionId;

use super::{Happening, Owner, World};
use crate::check::Anomaly;
use crate::server::Connection;

/// While a lock wait lasts it is reported again after this time.
const WAITS_AGAIN_US: u64 = 5_000;

/// One attempt of a session at a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    session: usize,
    transaction: usize,
    reruns: u32,
}

/// A lock wait inside a server.
#[derive(Debug)]
pub(super) struct Seen {
    waiter: Attempt,
    holder: Attempt,
}

fn is_in_ring(graph: &BTreeMap<usize, BTreeSet<usize>>, who: usize) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![who];
    while let Some(next) = open.pop() {
        for one in graph.get(&next).into_iter().flatten() {
            if *one == who {
                return true;
            }
            if seen.insert(*one) {
                open.push(*one);
            }
        }
    }
    false
}

impl World {
    /// The agent's refresh waits for row locks; their holders are rolled back.
    pub(super) fn clear_way(&mut self, replica: usize, refresh: Connection) {
        let is_heard = self.node.is_some() && self.servers[replica].has(refresh);
        if !self.rules.refresh_goes_first || !is_heard {
            return;
        }
        let blockers = self.servers[replica].blockers(refresh);
        if blockers.is_empty() {
            return;
        }
        let incarnation = self.incarnation(replica);
        for blocker in blockers {
            if self.is_committing_performer(blocker) {
                continue;
            }
            self.performer_gives_way(blocker);
            if let Some(session) = self.session_of(blocker) {
                if self.is_being_reverted(session) || self.evict(session, blocker) {
                    continue;
                }
                let id = cluster::ids::ReplicaId(replica as u16);
                self.tell(Event::BlocksApply {
                    session: SessionId(session as u64),
                    replica: id,
                    incarnation,
                });
            }
            self.terminate(blocker);
        }
        // An earlier waiter may have got the lock now.
        let generation = self.servers[replica].generation;
        let after = self.dice.delay(self.plan.pace.notice_us) + 1;
        self.agenda.enter(after, Happening::Blocked { replica, generation, connection: refresh });
    }

    /// Collects the lock waits of all servers; the node receives them later.
    pub(super) fn look_at_waits(&mut self) {
        if !self.rules.server_waits_told || self.node.is_none() || !self.waits_seen.is_empty() {
            return;
        }
        self.clear_way_of_sessions();
        for session in 0..self.sessions.len() {
            let line = self.sessions[session].run.as_ref().and_then(|run| run.line);
            let Some((connection, replica, _)) = line else { continue };
            for blocker in self.servers[replica].blockers(connection) {
                if let Some(holder) = self.session_of(blocker)
                    && let (Some(waiter), Some(holder)) = (self.attempt(session), self.attempt(holder))
                {
                    self.waits_seen.push(Seen { waiter, holder });
                }
            }
        }
        if !self.waits_seen.is_empty() {
            let after = self.dice.delay(self.plan.pace.notice_us) + 1;
            self.agenda.enter(after, Happening::WaitsHeard { epoch: self.epoch });
        }
    }

    /// The core may break a deadlock only if there is a ring of transactions that are all still open.
    pub(super) fn hear_of_waits(&mut self, epoch: u32) {
        let seen = std::mem::take(&mut self.waits_seen);
        let Some(node) = self.node.as_ref().filter(|_| epoch == self.epoch) else {
            // The node that asked is gone. Meanwhile no wait was reported, so the next one begins now.
            self.agenda.enter(WAITS_AGAIN_US, Happening::ServerWaits);
            return;
        };
        let mut graph: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for Seen { waiter, holder } in &seen {
            if self.attempt(waiter.session) == Some(*waiter) && self.attempt(holder.session) == Some(*holder)
            {
                graph.entry(waiter.session).or_default().insert(holder.session);
            }
        }
        for waiting in node.cluster.waiting() {
            let rivals = waiting.rivals.iter().map(|rival| rival.0 as usize);
            graph.entry(waiting.session.0 as usize).or_default().extend(rivals);
        }
        let before = self.deadlocked();
        let id = |attempt: &Attempt| SessionId(attempt.session as u64);
        let edges = seen.iter().map(|seen| (id(&seen.waiter), id(&seen.holder))).collect();
        self.tell(Event::ServerWaits { edges });
        let after = self.deadlocked();
        let mut victims = after.difference(&before).copied().peekable();
        // When one ring is broken, the next waiter in a queue may close another.
        if victims.peek().is_some() && !victims.any(|victim| is_in_ring(&graph, victim)) {
            self.find(
                Anomaly::NoDeadlock,
                format!("a deadlock was broken without a ring of waits: {graph:?}"),
            );
        }
        self.agenda.enter(WAITS_AGAIN_US, Happening::ServerWaits);
    }

    /// The sessions with a deadlock error in their mailbox.
    fn deadlocked(&self) -> BTreeSet<usize> {
        let is_told =
            |effect: &Effect| matches!(effect, Effect::Abort { cause: AbortCause::Deadlock(_), .. });
        let sessions = self.sessions.iter().enumerate();
        sessions.filter(|(_, session)| session.mailbox.iter().any(is_told)).map(|(index, _)| index).collect()
    }

    fn attempt(&self, session: usize) -> Option<Attempt> {
        let run = self.sessions[session].run.as_ref()?;
        Some(Attempt { session, transaction: run.transaction, reruns: run.reruns })
    }

    fn session_of(&self, connection: Connection) -> Option<usize> {
        match self.lines.get(&connection)?.owner {
            Owner::Session(session) => {
                let line = self.sessions[session].run.as_ref().and_then(|run| run.line);
                line.is_some_and(|(own, ..)| own == connection).then_some(session)
            }
            Owner::Agent(_) | Owner::Performer { .. } => None,
        }
    }
}
