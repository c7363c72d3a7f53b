//! How a transaction ends: with a record, without one, by an error, or with its home.

use cluster::claims::{Claimed, Claims};
use cluster::event::{Effect, Event, Reads};
use cluster::ids::{ReplicaId, SessionId, Version};

use super::session::Phase;
use super::{Cancel, Happening, Message, World};
use crate::history::{Level, Outcome};
use crate::program::Frame;
use crate::record::{self, Done};
use crate::schema::VIEW_NAME;
use crate::server::SqlError;
use crate::trace::Stage;

/// A single statement that lost its home is run again, unseen, this often.
const RERUNS_MAX: u32 = 3;
/// The SQLSTATE when the connection to the server is lost in the middle of a transaction.
pub(super) const CONNECTION_FAILURE: &str = "08006";

impl World {
    /// The client wants COMMIT, or its one statement is done.
    pub(super) fn finish(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let Some((line, ..)) = run.line else { return };
        // What a write has come to speaks of now, what was read of the snapshot: both must be of one moment.
        let is_certified = run.has_tried
            && run.program.level == Level::Serializable
            && self.rules.serializable_is_told
            && self.rules.tries_are_certified;
        if run.changes.is_empty() && !is_certified {
            run.phase = Phase::Closing;
            self.send(line, Message::Commit);
            return;
        }
        if !self.secures_rest(session) {
            self.identify(session);
        }
    }

    /// Nothing is left to be done but to order it.
    pub(super) fn identify(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let Some((line, ..)) = run.line else { return };
        run.phase = Phase::Identifying;
        let identities = run.identity.filter(|_| self.rules.identity_inserted);
        self.send(line, Message::Identities(identities.into_iter().collect()));
    }

    pub(super) fn say_finish(&mut self, session: usize, ticket: u64) {
        if let Some(run) = self.sessions[session].run.as_mut() {
            run.phase = Phase::Ordering;
        }
        let Some(run) = self.sessions[session].run.as_ref() else { return };
        let body = Box::new(record::body(&run.changes, run.has_ddl));
        let (changes, locked) = (&run.changes[..], &run.locked[..]);
        let done = Done { changes, locked, row_claims_max: self.plan.row_claims_max };
        let claims = record::claims(done, run.unbounded, run.turns, &self.rules);
        let changed = record::changed(&run.changes, &self.rules);
        let is_misjudged = self.rules.conclusions_are_checked && self.is_misjudged(&run.concluded);
        // What it claims, and what it has read, is not known then.
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
        self.tell(Event::Drawn { session: SessionId(session as u64), ticket });
        let before = self.disk.last();
        self.tell(Event::Finish { session: SessionId(session as u64), body, claims, changed, reads });
        if self.disk.last() == before
            && let Some(after_us) = self.kill_next_waiting.take()
            && let Some((connection, ..)) = self.sessions[session].run.as_ref().and_then(|run| run.line)
        {
            self.agenda.enter(after_us, Happening::Kill { connection });
        }
    }

    /// Whether the view was changed after one of these catalogues.
    fn is_misjudged(&self, concluded: &[Version]) -> bool {
        let Some(node) = &self.node else { return false };
        concluded.iter().any(|catalogue| node.cluster.redefines(*catalogue, &[VIEW_NAME]))
    }

    /// Over once the client has its answer and nothing more comes from home.
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

    /// It cannot go on: the client is told so.
    pub(super) fn fail(&mut self, session: usize, code: &'static str) {
        self.send_error(session, code);
        self.drop_line(session);
        self.tell_end(session);
        self.answer_client(session, Outcome::Aborted);
        self.end_run(session);
    }

    /// Nothing of it will ever be in the log. A single statement has shown nothing, so it may run again.
    pub(super) fn rerun_or_fail(&mut self, session: usize) {
        self.drop_line(session);
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let may_rerun = run.program.frame == Frame::Autocommit && !run.client_is_gone;
        if !may_rerun || run.reruns == RERUNS_MAX {
            run.may_try_again = true;
            self.fail(session, SqlError::Serialization.code());
            return;
        }
        run.reruns += 1;
        run.identity = None;
        run.changes.clear();
        run.locked.clear();
        run.guard.begin_again();
        run.turns = 0;
        run.views.clear();
        run.concluded.clear();
        run.unbounded = None;
        run.has_snapshot = false;
        run.has_tried = false;
        if let Some(statement) = self.history.transactions[run.transaction].statements.last_mut() {
            *statement = record::blank(statement);
        }
        self.tell_end(session);
        self.ask_for_place(session);
    }

    /// The connection was gone before the statement could be sent.
    pub(super) fn lose_statement(&mut self, session: usize) {
        self.tell(Event::Executed { session: SessionId(session as u64) });
        self.rerun_or_fail(session);
    }

    pub(super) fn lost_line(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let Some((_, replica, incarnation)) = run.line.take() else { return };
        match run.phase {
            // Finish was said: the log decides, and home has to be made whole.
            Phase::Ordering => {
                if run.commit_sent && !self.rules.lost_commit_is_loss {
                    self.tell(Event::Committed { session: SessionId(session as u64) });
                    self.settle(session, true);
                    return;
                }
                self.tell(Event::ReplicaLost { replica: ReplicaId(replica as u16), incarnation });
            }
            Phase::Client | Phase::Placing => {
                // The client hears of it with its next request; to the core the transaction is over.
                let was_asked = run.phase == Phase::Placing;
                if was_asked {
                    self.tell(Event::GiveUp { session: SessionId(session as u64) });
                    self.fail(session, CONNECTION_FAILURE);
                } else {
                    self.tell_end(session);
                }
            }
            Phase::Running
            | Phase::Securing
            | Phase::TakingBack
            | Phase::Identifying
            | Phase::Closing
            | Phase::Undoing => {
                self.rerun_or_fail(session);
            }
        }
    }

    /// The client sends a cancel request; one that comes while nothing runs is ignored.
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
                // It may be over already, and is going to hear of it.
                if !mailbox.iter().any(|effect| matches!(effect, Effect::Abort { .. })) {
                    mailbox.clear();
                    self.statement_failed(session, SqlError::Cancelled);
                }
            }
            (Phase::Placing, line) => {
                self.tell(Event::GiveUp { session: SessionId(session as u64) });
                self.sessions[session].mailbox.clear();
                let Some(run) = self.sessions[session].run.as_mut() else { return };
                // The core has forgotten the transaction; the server must, too.
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
