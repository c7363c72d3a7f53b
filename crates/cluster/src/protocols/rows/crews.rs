//! Sessions at other nodes: a node that is lost, and sessions that come back and ask for an outcome (DESIGN section 6).
//!
//! For example, node 2 dies while one of its sessions has a finished transaction in the queue, another one has a record in the log
//! whose COMMIT home has not acknowledged, and a third one waits for a row. The first transaction is dropped: its locks may have fallen
//! with its connection, and no client of node 2 was told anything. The second one stays, since after an append only the log
//! decides. Its home is reset, because a COMMIT that may never be sent would hold up every later version there. The third
//! one waits no more.
//!
//! A session whose node lives, and which only lost its link, asks for the outcome as part of its new crew. What was dropped is
//! not in the log and cannot get there any more, so the answer is "unknown" only if the log was trimmed beyond it meanwhile.
//!
//! Not here: the backends of the lost node. The driver ends them, since no machine that died says that its connections are
//! closed.

use std::collections::BTreeSet;

use super::{Out, Phase, Rows};
use crate::event::{AbortCause, Effect, Found};
use crate::ids::{CrewId, ReplicaId, SessionId};
use crate::parts::replica::State;

impl Rows {
    /// Ends all that the sessions of a node wait for or have open.
    pub(super) fn node_lost(&mut self, crew: CrewId, out: &mut Out<'_>) {
        let is_theirs = |session: &SessionId| session.crew() == crew;
        let uncommitted = self.versions.values().filter(|assigned| is_theirs(&assigned.session));
        let homes: BTreeSet<usize> = uncommitted.filter_map(|assigned| assigned.home).collect();
        // First, so that nothing of theirs is appended there because another one goes.
        for home in homes {
            let replica = self.replicas[home].id;
            self.replica_lost(ReplicaId(replica.0), State::Down, out);
        }
        let waiting = self.replicas.iter().flat_map(|replica| replica.waiting.sessions());
        let stranded = self.stranded.iter().map(|(_, session, _)| *session);
        let known = self.transactions.keys().chain(self.running.keys()).chain(&self.unclassified).copied();
        let theirs: BTreeSet<SessionId> = waiting.chain(stranded).chain(known).filter(is_theirs).collect();
        // All that finished are out of the order before anything that waited for one of them is appended.
        for session in &theirs {
            self.close_unless_appended(*session);
        }
        for session in theirs {
            self.give_up(session, out);
        }
        self.asking.retain(|(_, session)| !is_theirs(session));
        if let Some(locals) = &mut self.locals {
            locals.close_crew(crew);
        }
        if let Some((holder, _)) = self.hold
            && is_theirs(&holder)
        {
            self.release(holder, out);
        }
    }

    fn close_unless_appended(&mut self, session: SessionId) {
        let is_appended = |phase: &Phase| matches!(phase, Phase::Appended(_));
        if self.transactions.get(&session).is_some_and(|transaction| !is_appended(&transaction.phase)) {
            let others = |waiter: &SessionId| *waiter != session;
            self.delayed.retain(|(_, waiter)| others(waiter));
            self.ready.retain(|(_, waiter)| others(waiter));
            self.held.retain(|(_, waiter)| others(waiter));
            self.proving.retain(|(.., waiter)| others(waiter));
            self.close(session);
        }
    }

    /// Answers a session that asks what became of its transaction.
    pub(super) fn outcome(&mut self, session: SessionId, found: Found, out: &mut Out<'_>) {
        let cause = match found {
            Found::At(version) => {
                assert!(version <= self.last, "the log has no version that was not recovered or appended");
                self.asking.insert((version, session));
                return self.tell_outcomes(out);
            }
            Found::Nowhere => AbortCause::HomeLost,
            Found::Forgotten => AbortCause::OutcomeForgotten,
        };
        out.effects.push(Effect::Abort { session, cause });
    }

    /// Tells the outcomes that are durable by now.
    pub(super) fn tell_outcomes(&mut self, out: &mut Out<'_>) {
        while let Some((version, session)) = self.asking.first().copied()
            && version <= self.index.last()
        {
            self.asking.remove(&(version, session));
            self.sees_own(session, version);
            out.effects.push(Effect::Acknowledge { session, version });
            out.effects.push(Effect::HomeLost { session });
        }
    }
}
