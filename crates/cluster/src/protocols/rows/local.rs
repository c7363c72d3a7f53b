//! Sessions that are connected to replicas ([`HomePolicy::LocalReplica`]): where a session's work runs, and what it has to see there.
//!
//! For example, session 7 is connected to replica 1. Its reads and updates run there. Replica 1 is lost, and the next statement
//! connects the session to replica 2, once that has everything durable. A CREATE TABLE of the session runs at the anchor, replica 0.
//! It needs everything durable there, and so does the session's next statement at replica 2.
//!
//! The load of a replica is the number of sessions that are connected to it, and of statements that run or wait there.
//!
//! Invariant: a session sees all that it saw and committed before, wherever its statements run.
//!
//! Non-goals: fresh reads ([`super::See`]).

use super::{HomePolicy, Rows};
use crate::ids::{ReplicaId, SessionId, Version};
use crate::parts::local_replicas::LocalReplicas;
use crate::parts::replica::{Replica, State};
use crate::placement::ReplicaSet;

impl Rows {
    /// The replica to which the session is connected, if that is one of these. A session without one, or whose replica does not
    /// serve, is connected first. `None` under protocols without local replicas.
    pub(super) fn local_home(&mut self, session: SessionId, eligible: ReplicaSet) -> Option<usize> {
        let locals = self.locals.as_ref()?;
        let serves =
            |replica: &&Replica| replica.shows(Version::ZERO) && !replica.is_drained && !replica.is_suspect;
        let mut loads: Vec<(ReplicaId, u64)> =
            self.replicas.iter().filter(serves).map(|replica| (replica.id, load(locals, replica))).collect();
        if loads.is_empty() {
            let up = self.replicas.iter().filter(|replica| replica.state == State::Up);
            loads = up.map(|replica| (replica.id, load(locals, replica))).collect();
        }
        let present = locals.of(session).filter(|own| loads.iter().any(|(replica, _)| replica == own));
        let durable = if self.rules.moved_sessions_see_all { self.index.last() } else { Version::ZERO };
        let locals = self.locals.as_mut()?;
        let local = present.or_else(|| locals.connect(session, &loads, durable))?;
        eligible.contains(local).then_some(usize::from(local.0))
    }

    /// The version that the session's statement needs at a replica by what the session has seen, with the schema by which the statement
    /// was analysed.
    pub(super) fn session_needs(&mut self, session: SessionId, index: usize) -> Version {
        let (durable, replica) = (self.index.last(), self.replicas[index].id);
        let Some(locals) = &mut self.locals else { return Version::ZERO };
        let own = locals.of(session).unwrap_or(replica);
        let at = if self.rules.elsewhere_counts { replica } else { own };
        locals.need(session, at, durable).max(self.index.last_ddl())
    }

    /// The session is told that its transaction is in the log.
    pub(super) fn sees_own(&mut self, session: SessionId, version: Version) {
        if let Some(locals) = self.locals.as_mut().filter(|_| self.rules.own_commits_are_seen) {
            locals.acknowledged(session, version);
        }
    }

    /// The session has ended.
    pub(super) fn closed(&mut self, session: SessionId) {
        if let Some(locals) = &mut self.locals {
            locals.close(session);
        }
    }
}

impl HomePolicy {
    /// Whether sessions are connected to replicas.
    pub fn connects_sessions(self) -> bool {
        self == Self::LocalReplica
    }
}

fn load(locals: &LocalReplicas, replica: &Replica) -> u64 {
    let statements = u64::from(replica.running) + u64::from(replica.queued) + replica.waiting.len() as u64;
    1 + locals.connected(replica.id) + statements
}
