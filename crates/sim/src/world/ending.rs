//! The end of a transaction: with a record, without one, by a cancel request, or by the loss of its home.

use cluster::claims::{Claimed, Claims};
use cluster::event::{Effect, Event, Reads};
use cluster::ids::{ReplicaId, SessionId, Version};
use cluster::protocols::rows::Perform;

use super::session::Phase;
use super::{Cancel, Happening, Message, World, performing};
use crate::history::Level;
use crate::record::{self, Done};
use crate::schema::{DATABASE, VIEW_NAME};
use crate::server::SqlError;
use crate::trace::Stage;

/// The SQLSTATE when the connection to the server is lost in the middle of a transaction.
pub(super) const CONNECTION_FAILURE: &str = "08006";

impl World {
    /// The client sent COMMIT, or its single statement has run.
    pub(super) fn finish(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let Some((line, ..)) = run.line else { return };
        // A write sees the newest rows, a read the snapshot. At SERIALIZABLE both must be of one moment, even if no row changed.
        let is_certified = run.has_tried
            && run.program.level == Level::Serializable
            && self.rules.serializable_is_told
            && self.rules.tries_are_certified;
        if run.changes.is_empty() && !is_certified {
            run.phase = Phase::Closing;
            self.send(line, Message::Commit);
            return;
        }
        if !self.reserves_rest(session) {
            self.identify(session);
        }
    }

    /// Every statement has run and every row is reserved: stores the identity, then the core can order the transaction.
    pub(super) fn identify(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let Some((line, ..)) = run.line else { return };
        run.phase = Phase::Identifying;
        let identities = run.identity.filter(|_| self.rules.identity_inserted);
        self.send(line, Message::Identities(identities.into_iter().collect()));
    }

    pub(super) fn say_finish(&mut self, session: usize, lsn: u64) {
        if let Some(run) = self.sessions[session].run.as_mut() {
            run.phase = Phase::Ordering;
        }
        let Some(run) = self.sessions[session].run.as_ref() else { return };
        let body = Box::new(record::body(&run.changes, run.has_ddl, &run.placement));
        let (changes, locked) = (&run.changes[..], &run.locked[..]);
        let done = Done { changes, locked, row_claims_max: self.plan.row_claims_max };
        let claims = record::claims(done, run.unbounded, run.turns, &self.rules);
        let digest = performing::digest(run.changes.iter().map(|(_, change)| change));
        let changed = record::changed(&run.changes, &self.rules);
        let is_misjudged = self.rules.conclusions_are_checked && self.is_misjudged(&run.concluded);
        // The analysis was outdated, so its claims and reads are unknown.
        let claims = if is_misjudged {
            vec![Claimed { turn: 0, is_held: false, claims: Claims::everything() }]
        } else {
            claims
        };
        let reads = match self.rules.reads_told {
            true if is_misjudged => Reads::All,
            true => record::reads_so_far(&run.program, &run.views),
            false => Reads::Tables([].into()),
        };
        self.tell(Event::LockLsn { session: SessionId(session as u64), lsn });
        if self.rules.protocol.perform == Perform::AllHolders {
            self.tell(Event::Digest { session: SessionId(session as u64), digest });
        }
        let before = self.disk.last();
        self.tell(Event::Finish { session: SessionId(session as u64), body, claims, changed, reads });
        if self.disk.last() == before
            && let Some(after_us) = self.kill_next_waiting.take()
            && let Some((connection, ..)) = self.sessions[session].run.as_ref().and_then(|run| run.line)
        {
            self.agenda.enter(after_us, Happening::Kill { connection });
        }
    }

    /// Whether the view has changed since one of these catalogues.
    pub(super) fn is_misjudged(&self, concluded: &[Version]) -> bool {
        let Some(node) = &self.node else { return false };
        concluded.iter().any(|catalogue| node.cluster.redefines(*catalogue, DATABASE, &[VIEW_NAME]))
    }

    /// Ends the transaction once its client has the outcome and nothing more comes from its home.
    pub(super) fn settle(&mut self, session: usize, is_settled: bool) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.is_settled |= is_settled;
        if run.is_settled && run.is_acknowledged {
            self.end_run(session);
        }
    }

    pub(super) fn undo(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.phase = Phase::Undoing;
        match run.line {
            Some((line, ..)) => self.send(line, Message::Rollback),
            None => self.fail(session, CONNECTION_FAILURE),
        }
    }

    pub(super) fn tell_end(&mut self, session: usize) {
        let begun = self.sessions[session].run.as_mut().is_some_and(|run| std::mem::take(&mut run.is_begun));
        let id = SessionId(session as u64);
        if begun {
            self.tell(Event::End { session: id });
        } else {
            self.tell(Event::Executed { session: id });
        }
        self.sessions[session].mailbox.clear();
    }

    pub(super) fn lost_line(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let Some((_, replica, incarnation)) = run.line.take() else { return };
        match run.phase {
            // The core has the record: the log decides the outcome, and the core has to bring home up to date.
            Phase::Ordering => {
                if run.commit_sent && !self.rules.lost_commit_is_loss {
                    self.tell(Event::Committed { session: SessionId(session as u64) });
                    self.settle(session, true);
                    return;
                }
                self.tell(Event::ReplicaLost { replica: ReplicaId(replica as u16), incarnation });
            }
            Phase::Client | Phase::Placing => {
                // The client learns of it with its next request; for the core the transaction is over.
                let was_asked = run.phase == Phase::Placing;
                if was_asked {
                    self.tell(Event::GiveUp { session: SessionId(session as u64) });
                    self.fail(session, CONNECTION_FAILURE);
                } else {
                    self.tell_end(session);
                }
            }
            Phase::Running
            | Phase::Reserving
            | Phase::Reverting
            | Phase::Identifying
            | Phase::Closing
            | Phase::Undoing => {
                self.rerun_or_fail(session);
            }
        }
    }

    /// The client sends a cancel request. It is ignored if no statement runs.
    pub(super) fn user_cancel(&mut self, session: usize, number: u64) {
        if self.sessions[session].number != number {
            return;
        }
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let line = run.line;
        self.trace.say(self.agenda.now_us(), Stage::Accept, || format!("session {session} is cancelled"));
        match (run.phase, line) {
            (Phase::Placing, Some(_)) if run.is_begun => {
                self.tell(Event::Withdraw { session: SessionId(session as u64) });
                let mailbox = &mut self.sessions[session].mailbox;
                // If the core has aborted or undone it already, that effect is still in the mailbox.
                let is_over =
                    |effect: &Effect| matches!(effect, Effect::Abort { .. } | Effect::RunAgain { .. });
                if !mailbox.iter().any(is_over) {
                    mailbox.clear();
                    self.statement_failed(session, SqlError::Cancelled);
                }
            }
            (Phase::Placing, line) => {
                self.tell(Event::GiveUp { session: SessionId(session as u64) });
                self.sessions[session].mailbox.clear();
                let Some(run) = self.sessions[session].run.as_mut() else { return };
                // The core has dropped the transaction, so the server must roll it back.
                run.is_begun = false;
                if line.is_some() {
                    self.undo(session);
                } else {
                    self.fail(session, SqlError::Cancelled.code());
                }
            }
            (Phase::Running, Some((connection, replica, _))) => {
                let generation = self.servers[replica].generation;
                let cancel = Cancel { replica, generation, connection };
                let after = self.dice.delay(self.plan.pace.network_us);
                self.agenda.enter(after, Happening::Cancel(cancel));
            }
            _ => {}
        }
    }
}
