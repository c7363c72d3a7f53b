//! A statement that failed, and what becomes of its transaction: the client goes on behind a savepoint, the session runs the
//! statement again unseen, or the transaction ends with an error.
//!
//! For example, a single UPDATE whose home is lost has shown nothing yet. It runs again at the next home, at most three times. A
//! transaction in a block has shown results, so its client gets 40001.

use cluster::event::Event;
use cluster::ids::SessionId;

use super::World;
use super::session::Phase;
use crate::history::Outcome;
use crate::program::Frame;
use crate::record;
use crate::server::{Op, SqlError};

/// How often a single statement that lost its home is retried transparently.
const RERUNS_MAX: u32 = 3;

impl World {
    pub(super) fn statement_failed(&mut self, session: usize, error: SqlError) {
        self.send_error(session, error.code());
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let noted = &mut self.history.transactions[run.transaction].statements;
        if !matches!(error, SqlError::Unique | SqlError::ForeignKey)
            && let Some(statement) = noted.last_mut()
        {
            // Such an error says nothing about the data.
            *statement = record::blank(statement);
        }
        let later = run.program.statements.iter().enumerate().skip(run.at + 1);
        let mut back = later.filter(|(_, statement)| statement.ops.contains(&Op::RollbackTo));
        if let Some((place, _)) = back.next().filter(|_| !run.savepoints.is_empty()) {
            run.at = place - 1;
            self.reply_to_client(session);
            return;
        }
        run.may_try_again = matches!(error, SqlError::Serialization | SqlError::Deadlock);
        self.undo(session);
    }

    /// Ends a transaction that cannot go on, and sends its client an error.
    pub(super) fn fail(&mut self, session: usize, code: &'static str) {
        self.send_error(session, code);
        self.drop_line(session);
        self.tell_end(session);
        self.answer_client(session, Outcome::Aborted);
        self.end_run(session);
    }

    /// The transaction will never be in the log. A single statement has shown nothing yet, so it is retried.
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
        run.views.clear();
        self.begin_anew(session);
        self.tell_end(session);
        self.ask_for_place(session);
    }

    /// Forgets what the single statement of a transaction has done.
    fn begin_anew(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.changes.clear();
        run.locked.clear();
        run.late.begin_again();
        run.turns = 0;
        run.concluded.clear();
        run.unbounded = None;
        run.has_snapshot = false;
        run.has_tried = false;
        if let Some(statement) = self.history.transactions[run.transaction].statements.last_mut() {
            *statement = record::blank(statement);
        }
    }

    /// An older transaction goes first. A single statement has shown nothing yet, so it runs again in its turn.
    pub(super) fn run_again(&mut self, session: usize) {
        self.drop_line(session);
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        if run.program.frame != Frame::Autocommit || run.client_is_gone {
            run.may_try_again = true;
            self.fail(session, SqlError::Serialization.code());
            return;
        }
        run.phase = Phase::Placing;
        self.begin_anew(session);
        self.tell(Event::Undone { session: SessionId(session as u64) });
    }

    /// The connection was lost before the statement was sent.
    pub(super) fn lose_statement(&mut self, session: usize) {
        self.tell(Event::Executed { session: SessionId(session as u64) });
        self.rerun_or_fail(session);
    }
}
