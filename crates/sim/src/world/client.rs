//! The client of a session: it sends statements, reads replies, pauses, and may vanish. The history records its view.

use std::rc::Rc;

use cluster::event::Event;
use cluster::ids::{SessionId, Version};

use super::session::{Phase, Run};
use super::{Happening, World};
use crate::history::{self, ClientError, Outcome};
use crate::program::{Ending, Frame};
use crate::trace::Stage;

/// How long a client waits before it connects again to a node that is down.
const RECONNECT_US: u64 = 500;

impl World {
    pub(super) fn client(&mut self, session: usize, number: u64) {
        if self.sessions[session].number != number {
            return;
        }
        if self.node.is_none() {
            self.agenda.enter(RECONNECT_US, Happening::Client { session, run: number });
            return;
        }
        if self.sessions[session].run.is_none() && !self.start_program(session) {
            return;
        }
        let now_us = self.agenda.now_us();
        let after = self.dice.delay(self.plan.pace.network_us);
        let number = self.sessions[session].number;
        let run = self.sessions[session].run.as_ref().expect("a program was just started, or goes on");
        let is_single = run.program.frame == Frame::Autocommit;
        let transaction = &mut self.history.transactions[run.transaction];
        if run.at < run.program.statements.len() {
            let is_control = run.program.statements[run.at].is_control();
            let statement = history::Statement { begin_us: now_us, is_control, ..Default::default() };
            transaction.statements.push(statement);
        }
        if is_single || run.at == run.program.statements.len() {
            transaction.finish_us = now_us;
        }
        self.agenda.enter(after, Happening::Accept { session, run: number });
    }

    fn start_program(&mut self, session: usize) -> bool {
        let this = &mut self.sessions[session];
        let Some(program) = this.programs.pop_front() else { return false };
        this.number += 1;
        this.mailbox.clear();
        if let Some(after_us) = program.cancel_us {
            self.agenda.enter(after_us, Happening::UserCancel { session, run: this.number });
        }
        if let Ending::Vanish(after_us) = program.ending {
            self.agenda.enter(after_us, Happening::Vanish { session, run: this.number });
        }
        this.run = Some(Run {
            transaction: self.history.transactions.len(),
            at: 0,
            reruns: 0,
            phase: Phase::Client,
            is_begun: false,
            line: None,
            identity: None,
            catalogue: Version::ZERO,
            applied: Version::ZERO,
            views: Vec::new(),
            concluded: Vec::new(),
            changes: Vec::new(),
            locked: Vec::new(),
            unbounded: None,
            turns: 0,
            has_ddl: false,
            placement: self.placement.clone(),
            late: super::late_reservation::LateReservation::default(),
            savepoints: Vec::new(),
            has_snapshot: false,
            has_tried: false,
            may_try_again: false,
            is_acknowledged: false,
            is_settled: false,
            commit_sent: false,
            client_is_gone: false,
            program: Rc::clone(&program),
        });
        let level = self.promised_level(&program);
        self.history.transactions.push(history::Transaction {
            session: session as u32,
            level,
            outcome: Outcome::Unknown,
            finish_us: 0,
            end_us: 0,
            statements: Vec::new(),
        });
        true
    }

    /// The client receives the reply to a statement and pauses before the next one.
    pub(super) fn reply_to_client(&mut self, session: usize) {
        let after = self.dice.delay(self.plan.pace.network_us);
        let think = self.dice.delay(self.plan.pace.think_us);
        let now_us = self.agenda.now_us();
        let number = self.sessions[session].number;
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.phase = Phase::Client;
        run.at += 1;
        let noted = &mut self.history.transactions[run.transaction].statements;
        if let Some(statement) = noted.last_mut() {
            statement.end_us = now_us + after;
        }
        self.agenda.enter(after + think, Happening::Client { session, run: number });
    }

    /// The session sends an error to its client.
    pub(super) fn send_error(&mut self, session: usize, code: &'static str) {
        let Some(run) = self.sessions[session].run.as_ref().filter(|run| !run.client_is_gone) else { return };
        self.errors.push(ClientError { transaction: run.transaction, at_us: self.agenda.now_us(), code });
    }

    /// The client learns the outcome of its transaction; its last statement counts as answered.
    pub(super) fn answer_client(&mut self, session: usize, outcome: Outcome) {
        let after = self.dice.delay(self.plan.pace.network_us);
        let now_us = self.agenda.now_us();
        let Some(run) = self.sessions[session].run.as_ref() else { return };
        let (transaction, is_gone) = (run.transaction, run.client_is_gone);
        self.trace.say(now_us, Stage::Acknowledge, || format!("session {session} {outcome:?}"));
        if !is_gone {
            self.note_outcome(transaction, outcome, now_us + after);
            let statements = &mut self.history.transactions[transaction].statements;
            if let Some(statement) = statements.last_mut().filter(|s| s.end_us == 0) {
                statement.end_us = now_us + after;
            }
        }
    }

    /// Ends the transaction for client and session, and schedules the next one or a retry.
    pub(super) fn end_run(&mut self, session: usize) {
        let this = &mut self.sessions[session];
        let Some(run) = this.run.take() else { return };
        this.mailbox.clear();
        let number = this.number;
        if run.may_try_again && !run.client_is_gone && this.tries < run.program.retries {
            this.tries += 1;
            this.programs.push_front(Rc::clone(&run.program));
        } else {
            this.tries = 0;
        }
        if let Some((line, ..)) = run.line {
            self.close(line);
        }
        let ended_us = self.history.transactions[run.transaction].end_us;
        let after = ended_us.saturating_sub(self.agenda.now_us()) + self.dice.delay(self.plan.pace.think_us);
        self.agenda.enter(after, Happening::Client { session, run: number });
    }

    pub(super) fn vanish(&mut self, session: usize, number: u64) {
        if self.sessions[session].number != number {
            return;
        }
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.client_is_gone = true;
        self.trace
            .say(self.agenda.now_us(), Stage::Accept, || format!("client of session {session} is gone"));
        match run.phase {
            Phase::Ordering | Phase::Closing | Phase::Undoing | Phase::Identifying => {}
            Phase::Placing => {
                self.tell(Event::GiveUp { session: SessionId(session as u64) });
                self.end_run(session);
            }
            Phase::Client | Phase::Running | Phase::Reserving | Phase::Reverting => {
                if let Some((line, ..)) = run.line.take() {
                    self.close(line);
                }
                self.tell_end(session);
                self.end_run(session);
            }
        }
    }

    /// The node has died, and the client's connection with it.
    pub(super) fn lose_session(&mut self, session: usize) {
        self.sessions[session].mailbox.clear();
        if let Some(run) = self.sessions[session].run.as_mut() {
            run.line = None;
            if !run.client_is_gone && !run.is_acknowledged {
                let transaction = &mut self.history.transactions[run.transaction];
                let may_be_logged = run.phase == Phase::Ordering;
                transaction.outcome = if may_be_logged { Outcome::Unknown } else { Outcome::Aborted };
            }
            self.end_run(session);
        }
    }
}
