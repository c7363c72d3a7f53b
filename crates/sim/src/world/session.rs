//! A session: one transaction after another, each by the contract of the core.
//!
//! This is the state machine that the binary has, without bytes; its client is in [`super::client`]. A session reads its effects from a mailbox some time after they were put there; what
//! was put there for a transaction that it has ended itself is thrown away.

use std::collections::VecDeque;
use std::rc::Rc;

use cluster::event::{AbortCause, Effect, Event};
use cluster::ids::{Identity, Incarnation, ReplicaId, SessionId, Version};

use super::{Happening, Message, Owner, Reply, World};
use crate::history::{self, Outcome};
use crate::program::{Ending, Frame, Program};
use crate::record;
use crate::schema::Key;
use crate::server::{Answer, Change, Connection, SqlError};
use crate::trace::Stage;

/// A single statement that lost its home is run again, unseen, this often.
const RERUNS_MAX: u32 = 3;

/// Where a transaction stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The client has the word.
    Client,
    /// The core was asked for a place.
    Placing,
    /// A statement is at the server.
    Running,
    /// The identity is being inserted.
    Identifying,
    /// Finish was said.
    Ordering,
    /// COMMIT was sent for a transaction that leaves no record.
    Closing,
    /// ROLLBACK was sent.
    Undoing,
}

/// The transaction at hand.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) program: Rc<Program>,
    /// Its place in the history.
    pub(super) transaction: usize,
    /// The statement that is next or under way.
    pub(super) at: usize,
    pub(super) reruns: u32,
    pub(super) phase: Phase,
    /// Whether the core knows it as an update transaction.
    pub(super) is_begun: bool,
    pub(super) line: Option<(Connection, usize, Incarnation)>,
    pub(super) identity: Option<Identity>,
    pub(super) catalogue: Version,
    pub(super) changes: Vec<Change>,
    pub(super) locked: Vec<Key>,
    pub(super) is_unbounded: bool,
    pub(super) has_ddl: bool,
    pub(super) is_acknowledged: bool,
    /// Its COMMIT at home is acknowledged, or its home is lost: nothing more comes from there.
    pub(super) is_settled: bool,
    pub(super) commit_sent: bool,
    pub(super) client_is_gone: bool,
}

/// One client and its session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) programs: VecDeque<Rc<Program>>,
    pub(super) run: Option<Run>,
    /// Counts the transactions, so that what was meant for an earlier one is known.
    pub(super) number: u64,
    pub(super) mailbox: VecDeque<Effect>,
}

impl Session {
    pub(super) fn new(programs: &[Program]) -> Self {
        let programs = programs.iter().cloned().map(Rc::new).collect();
        Self { programs, run: None, number: 0, mailbox: VecDeque::new() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.programs.is_empty() && self.run.is_none()
    }

    /// The connection of this transaction, if it is the one at hand.
    pub(super) fn line_of(&self, identity: Identity) -> Option<Connection> {
        let run = self.run.as_ref().filter(|run| run.identity == Some(identity))?;
        run.line.map(|(line, ..)| line)
    }

    /// What it waits for, if it is not done.
    pub(super) fn stuck(&self) -> Option<String> {
        (!self.is_done()).then(|| match &self.run {
            Some(run) => format!("{:?} at statement {} of {:?}", run.phase, run.at, run.program),
            None => "between transactions".to_owned(),
        })
    }
}

impl World {
    pub(super) fn accept(&mut self, session: usize, number: u64) {
        if self.sessions[session].number != number {
            return;
        }
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let (at, program) = (run.at, Rc::clone(&run.program));
        let now_us = self.agenda.now_us();
        if at > 0 && run.line.is_none() {
            self.fail(session);
            return;
        }
        if at < program.statements.len() {
            let ops = &program.statements[at].ops;
            self.trace
                .say(now_us, Stage::Accept, || format!("session {session} {:?} {ops:?}", program.level));
            self.ask_for_place(session);
            return;
        }
        self.trace.say(now_us, Stage::Accept, || format!("session {session} {:?}", program.ending));
        if program.ending == Ending::Rollback {
            self.undo(session);
        } else {
            self.finish(session);
        }
    }

    fn ask_for_place(&mut self, session: usize) {
        let Some(node) = self.node.as_ref() else { return };
        let (catalogue, view_changes) = (node.catalogue, node.view_changes);
        let nonce = self.nonce();
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let program = Rc::clone(&run.program);
        let reads = record::classify(&program, run.at, view_changes, &self.rules, self.is_partial);
        run.phase = Phase::Placing;
        run.catalogue = catalogue;
        let is_first = !std::mem::replace(&mut run.is_begun, program.is_update());
        let at = run.line.map(|(_, replica, _)| ReplicaId(replica as u16));
        let id = SessionId(session as u64);
        let cost_us = 50;
        let event = match (program.is_update(), is_first) {
            (false, _) => Event::Read { session: id, reads, at, cost_us, catalogue },
            (true, false) => Event::Statement { session: id, reads, cost_us, catalogue },
            (true, true) => {
                use history::Level::Serializable;
                let serializable = program.level == Serializable && self.rules.serializable_is_told;
                Event::Begin { session: id, serializable, nonce, reads, cost_us, catalogue }
            }
        };
        self.tell(event);
    }

    /// Puts an effect into the mailbox of its session.
    pub(super) fn post(&mut self, session: usize, effect: Effect) {
        self.sessions[session].mailbox.push_back(effect);
        let after = self.dice.delay(self.plan.pace.network_us / 4);
        self.agenda.enter(after, Happening::Mail { session, epoch: self.epoch });
    }

    pub(super) fn read_mail(&mut self, session: usize) {
        while let Some(effect) = self.sessions[session].mailbox.pop_front() {
            self.trace.say(self.agenda.now_us(), Stage::Place, || format!("{effect:?}"));
            match effect {
                Effect::Execute { replica, incarnation, identity, .. } => {
                    self.execute(session, usize::from(replica.0), incarnation, identity);
                }
                Effect::Reclassify { .. } => self.ask_for_place(session),
                Effect::Acknowledge { .. } => {
                    if let Some(run) = self.sessions[session].run.as_mut() {
                        run.is_acknowledged = true;
                        self.answer_client(session, Outcome::Committed);
                        self.settle(session, false);
                    }
                }
                Effect::Commit { .. } => {
                    let line = self.sessions[session].run.as_mut().and_then(|run| {
                        run.commit_sent = true;
                        run.line
                    });
                    if let Some((line, ..)) = line {
                        self.send(line, Message::Commit);
                        if !self.rules.commit_is_awaited {
                            // What the server answers is not heard any more.
                            self.forget_line(session, line);
                        }
                    }
                }
                Effect::Draw { .. } => {
                    let line = self.sessions[session].run.as_ref().and_then(|run| run.line);
                    if let Some((line, ..)) = line {
                        self.send(line, Message::Identities(Vec::new()));
                    }
                }
                Effect::HomeLost { .. } => {
                    if self.rules.no_rerun_once_finished {
                        self.drop_line(session);
                        self.settle(session, true);
                    } else {
                        self.rerun_or_fail(session);
                    }
                }
                Effect::Abort { cause: AbortCause::HomeLost, .. } => {
                    if let Some(run) = self.sessions[session].run.as_mut() {
                        run.is_begun = false;
                        self.rerun_or_fail(session);
                    }
                }
                _ => {}
            }
        }
    }

    fn forget_line(&mut self, session: usize, line: Connection) {
        self.lines.remove(&line);
        if let Some(run) = self.sessions[session].run.as_mut() {
            run.line = None;
        }
        self.tell(Event::Committed { session: SessionId(session as u64) });
        self.settle(session, true);
    }

    fn drop_line(&mut self, session: usize) {
        let line = self.sessions[session].run.as_mut().and_then(|run| run.line.take());
        if let Some((line, ..)) = line {
            self.close(line);
        }
    }

    fn execute(
        &mut self,
        session: usize,
        replica: usize,
        incarnation: Incarnation,
        identity: Option<Identity>,
    ) {
        let agent = self.agent(replica);
        let (is_current, generation) =
            (agent.is_serving && agent.incarnation == incarnation.0, agent.generation);
        let server = &self.servers[replica];
        let is_same_server = server.is_up() && server.generation == generation;
        let may_connect =
            if self.rules.connections_are_bound { is_current && is_same_server } else { server.is_up() };
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.identity = identity.or(run.identity);
        let program = Rc::clone(&run.program);
        let bound = run.line;
        let line = match bound {
            Some((line, _, of)) if of == incarnation => line,
            None if may_connect && (run.at == 0 || program.frame == Frame::Autocommit) => {
                let line = self.connect(replica, Owner::Session(session), program.keeps_snapshot());
                if let Some(run) = self.sessions[session].run.as_mut() {
                    run.line = Some((line, replica, incarnation));
                }
                line
            }
            _ => {
                self.lose_statement(session);
                return;
            }
        };
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.phase = Phase::Running;
        let statement = &program.statements[run.at];
        let mut ops = Vec::with_capacity(statement.ops.len());
        for op in &statement.ops {
            self.elements += 1;
            ops.push((op.clone(), self.elements));
        }
        self.send(line, Message::Run(ops));
    }

    pub(super) fn session_reply(&mut self, session: usize, line: Connection, reply: Reply) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        if run.line.is_none_or(|(own, ..)| own != line) {
            return;
        }
        match (run.phase, reply) {
            (_, Reply::Lost) => self.lost_line(session),
            (Phase::Running, Reply::Answer(answer)) => self.statement_done(session, answer),
            (Phase::Identifying, Reply::Inserted { ticket }) => self.say_finish(session, ticket),
            (Phase::Ordering, Reply::Inserted { ticket }) => {
                self.tell(Event::Drawn { session: SessionId(session as u64), ticket });
            }
            (Phase::Ordering, Reply::Committed) => {
                self.tell(Event::Committed { session: SessionId(session as u64) });
                self.settle(session, true);
            }
            (Phase::Closing, Reply::Committed) => {
                self.tell_end(session);
                self.answer_client(session, Outcome::Committed);
                self.end_run(session);
            }
            (Phase::Undoing, Reply::RolledBack) => {
                self.tell_end(session);
                self.answer_client(session, Outcome::Aborted);
                self.end_run(session);
            }
            _ => {}
        }
    }

    fn statement_done(&mut self, session: usize, answer: Answer) {
        self.trace.say(self.agenda.now_us(), Stage::Execute, || format!("session {session} {answer:?}"));
        self.tell(Event::Executed { session: SessionId(session as u64) });
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let program = Rc::clone(&run.program);
        let error = answer.error;
        let noted = &mut self.history.transactions[run.transaction].statements;
        if let Some(statement) = noted.last_mut() {
            record::note(statement, &answer);
        }
        let statement = &program.statements[run.at];
        run.is_unbounded |= statement.is_unknown;
        run.has_ddl |= statement.is_ddl && !answer.changes.is_empty();
        run.changes.extend(answer.changes);
        // What a statement locks that nobody understands, nobody knows.
        let locked = answer.locked.iter().filter(|_| !statement.is_unknown).map(|(key, _)| *key);
        run.locked.extend(locked);
        let is_update = run.is_begun;
        match error {
            Some(SqlError::Serialization | SqlError::Deadlock) => {
                // The reply says nothing about the data.
                if let Some(statement) = noted.last_mut() {
                    *statement = history::Statement { begin_us: statement.begin_us, ..Default::default() };
                }
                self.undo(session);
            }
            Some(_) => self.undo(session),
            None if program.frame != Frame::Autocommit => self.reply_to_client(session),
            None if is_update => self.finish(session),
            None => {
                self.answer_client(session, Outcome::Committed);
                self.end_run(session);
            }
        }
    }

    /// The client wants COMMIT, or its one statement is done.
    fn finish(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let Some((line, ..)) = run.line else { return };
        if run.changes.is_empty() {
            run.phase = Phase::Closing;
            self.send(line, Message::Commit);
            return;
        }
        run.phase = Phase::Identifying;
        let identities = run.identity.filter(|_| self.rules.identity_inserted);
        self.send(line, Message::Identities(identities.into_iter().collect()));
    }

    fn say_finish(&mut self, session: usize, ticket: u64) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.phase = Phase::Ordering;
        let body = Box::new(record::body(&run.changes, run.has_ddl));
        let claims = record::claims(&run.changes, &run.locked, run.is_unbounded, &self.rules);
        self.tell(Event::Drawn { session: SessionId(session as u64), ticket });
        self.tell(Event::Finish { session: SessionId(session as u64), body, claims });
    }

    /// Over once the client has its answer and nothing more comes from home.
    fn settle(&mut self, session: usize, is_settled: bool) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.is_settled |= is_settled;
        if run.is_settled && run.is_acknowledged {
            self.end_run(session);
        }
    }

    fn undo(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.phase = Phase::Undoing;
        match run.line {
            Some((line, ..)) => self.send(line, Message::Rollback),
            None => self.fail(session),
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
    fn fail(&mut self, session: usize) {
        self.drop_line(session);
        self.tell_end(session);
        self.answer_client(session, Outcome::Aborted);
        self.end_run(session);
    }

    /// Nothing of it will ever be in the log. A single statement has shown nothing, so it may run again.
    fn rerun_or_fail(&mut self, session: usize) {
        self.drop_line(session);
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let may_rerun = run.program.frame == Frame::Autocommit && !run.client_is_gone;
        if !may_rerun || run.reruns == RERUNS_MAX {
            self.fail(session);
            return;
        }
        run.reruns += 1;
        run.identity = None;
        run.changes.clear();
        run.locked.clear();
        if let Some(statement) = self.history.transactions[run.transaction].statements.last_mut() {
            *statement = history::Statement { begin_us: statement.begin_us, ..Default::default() };
        }
        self.tell_end(session);
        self.ask_for_place(session);
    }

    /// The connection was gone before the statement could be sent.
    fn lose_statement(&mut self, session: usize) {
        self.tell(Event::Executed { session: SessionId(session as u64) });
        self.rerun_or_fail(session);
    }

    fn lost_line(&mut self, session: usize) {
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
                    self.fail(session);
                } else {
                    self.tell_end(session);
                }
            }
            Phase::Running | Phase::Identifying | Phase::Closing | Phase::Undoing => {
                self.rerun_or_fail(session);
            }
        }
    }
}
