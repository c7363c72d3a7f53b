//! Waits for row locks inside the servers, as far as the node hears of them.
//!
//! A refresh waits for nobody: whose locks it needs is rolled back. Between sessions the servers' own deadlock detection
//! sees only what is inside one of them, so the core is told who waits for whom in all of them.

use cluster::event::Event;
use cluster::ids::SessionId;

use super::{Happening, Owner, World};
use crate::server::Connection;

/// As long as somebody waits, it is told again after so long.
const WAITS_AGAIN_US: u64 = 5_000;

impl World {
    /// The agent's refresh waits; who is in its way has to go.
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
            if let Some(session) = self.session_of(blocker) {
                if self.is_taken_back(session) || self.evict(session, blocker) {
                    continue;
                }
                let id = cluster::ids::ReplicaId(replica as u16);
                self.tell(Event::InTheWay { session: SessionId(session as u64), replica: id, incarnation });
            }
            self.terminate(blocker);
        }
        // Whoever stood in line before it may have the lock now.
        let generation = self.servers[replica].generation;
        let after = self.dice.delay(self.plan.pace.notice_us) + 1;
        self.agenda.enter(after, Happening::Blocked { replica, generation, connection: refresh });
    }

    pub(super) fn tell_server_waits(&mut self) {
        if !self.rules.server_waits_told || self.node.is_none() {
            return;
        }
        let mut edges = Vec::new();
        for session in 0..self.sessions.len() {
            let line = self.sessions[session].run.as_ref().and_then(|run| run.line);
            let Some((connection, replica, _)) = line else { continue };
            for blocker in self.servers[replica].blockers(connection) {
                if let Some(holder) = self.session_of(blocker) {
                    edges.push((SessionId(session as u64), SessionId(holder as u64)));
                }
            }
        }
        if !edges.is_empty() {
            self.tell(Event::ServerWaits { edges });
            self.agenda.enter(WAITS_AGAIN_US, Happening::ServerWaits);
        }
    }

    fn session_of(&self, connection: Connection) -> Option<usize> {
        match self.lines.get(&connection)?.owner {
            Owner::Session(session) => {
                let line = self.sessions[session].run.as_ref().and_then(|run| run.line);
                line.is_some_and(|(own, ..)| own == connection).then_some(session)
            }
            Owner::Agent(_) => None,
        }
    }
}
