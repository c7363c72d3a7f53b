//! A session: it runs one transaction after another by the contract of the core.
//!
//! It is a simplified copy of the binary's session: statements are lists of ops, not bytes. Its client is in
//! [`super::client`], the end of a transaction in [`super::ending`]. Effects wait for a random time in the session's
//! mailbox. When the session ends a transaction itself, it drops that transaction's effects.

use std::collections::VecDeque;
use std::rc::Rc;

use cluster::event::{Effect, Event, Foreseen, Home, Level, Needs};
use cluster::ids::{Identity, Incarnation, ReplicaId, SessionId, Version};
use cluster::placement::Placement;

use super::ending::CONNECTION_FAILURE;
use super::late_reservation::LateReservation;
use super::{Happening, Message, Owner, Reply, World};
use crate::history::{self, Outcome};
use crate::program::{Ending, Frame, Program};
use crate::record::{self, Done, Locked};
use crate::server::{Answer, Change, Connection, Op, SqlError};
use crate::trace::Stage;

/// The phase of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The client's next request is awaited.
    Client,
    /// The core was asked where the statement runs.
    Placing,
    /// The server executes a statement.
    Running,
    /// The core was asked to reserve rows that the statement wrote.
    Reserving,
    /// The server rolls back to the session's savepoint.
    Reverting,
    /// The server inserts the identity.
    Identifying,
    /// The core has the record.
    Ordering,
    /// COMMIT was sent for a transaction that leaves no record.
    Closing,
    /// ROLLBACK was sent.
    Undoing,
}

/// The current transaction.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) program: Rc<Program>,
    /// Its index in the history.
    pub(super) transaction: usize,
    /// The index of the statement that runs or comes next.
    pub(super) at: usize,
    pub(super) reruns: u32,
    pub(super) phase: Phase,
    /// Whether the core knows it as an update transaction.
    pub(super) is_begun: bool,
    pub(super) line: Option<(Connection, usize, Incarnation)>,
    pub(super) identity: Option<Identity>,
    pub(super) catalogue: Version,
    /// The version that its replica had when its last statement was placed there.
    pub(super) applied: Version,
    /// For each statement: how often the view had changed in the catalogue by which it was analysed; `None` if the
    /// transaction had changed the view itself.
    pub(super) views: Vec<Option<usize>>,
    /// The catalogues by which the statements were analysed that use the view.
    pub(super) concluded: Vec<Version>,
    /// Each change with the turn of its statement; likewise the locks.
    pub(super) changes: Vec<(u32, Change)>,
    pub(super) locked: Vec<(u32, Locked)>,
    /// The first turn in which an unbounded statement ran.
    pub(super) unbounded: Option<u32>,
    /// How many statements the core has let run.
    pub(super) turns: u32,
    pub(super) has_ddl: bool,
    /// The placement when it began, by which the parts of its rows are told.
    pub(super) placement: Placement,
    pub(super) late: LateReservation,
    /// The client's savepoints.
    pub(super) savepoints: Vec<Mark>,
    /// A statement about data has run, so the server has taken the transaction's snapshot.
    pub(super) has_snapshot: bool,
    /// A statement that may write has run, with any result.
    pub(super) has_tried: bool,
    /// Its client was sent 40001 or 40P01.
    pub(super) may_try_again: bool,
    pub(super) is_acknowledged: bool,
    /// Home has acknowledged its COMMIT, or is lost, so nothing more comes from there.
    pub(super) is_settled: bool,
    pub(super) commit_sent: bool,
    pub(super) client_is_gone: bool,
}

/// The extent of a transaction at a savepoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The index of SAVEPOINT among the statements of the history.
    statement: usize,
    changes: usize,
    locked: usize,
    has_ddl: bool,
}

/// One in so many update transactions finds no free connection at its home.
const YIELDS: u64 = 8;

/// One client and its session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) programs: VecDeque<Rc<Program>>,
    pub(super) run: Option<Run>,
    /// Counts the transactions, so that agenda entries for an earlier one are recognised.
    pub(super) number: u64,
    /// How often the current program was tried.
    pub(super) tries: u32,
    pub(super) mailbox: VecDeque<Effect>,
}

impl Session {
    pub(super) fn new(programs: &[Program]) -> Self {
        let programs = programs.iter().cloned().map(Rc::new).collect();
        Self { programs, run: None, number: 0, tries: 0, mailbox: VecDeque::new() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.programs.is_empty() && self.run.is_none()
    }

    /// The connection of this transaction, if it is the current one.
    pub(super) fn line_of(&self, identity: Identity) -> Option<Connection> {
        let run = self.run.as_ref().filter(|run| run.identity == Some(identity))?;
        run.line.map(|(line, ..)| line)
    }

    /// The reason why the session waits, if it is not done.
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
            self.fail(session, CONNECTION_FAILURE);
            return;
        }
        if at < program.statements.len() {
            let ops = &program.statements[at].ops;
            self.trace
                .say(now_us, Stage::Accept, || format!("session {session} {:?} {ops:?}", program.level));
            if !self.answer_again(session) {
                self.ask_for_place(session);
            }
            return;
        }
        self.trace.say(now_us, Stage::Accept, || format!("session {session} {:?}", program.ending));
        if program.ending == Ending::Rollback {
            self.undo(session);
        } else {
            self.finish(session);
        }
    }

    /// No connection is free at the home that the core chose, so the transaction asks again.
    fn yield_place(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.is_begun = false;
        self.tell(Event::Yield { session: SessionId(session as u64) });
        self.ask_for_place(session);
    }

    pub(super) fn ask_for_place(&mut self, session: usize) {
        let Some(node) = self.node.as_ref() else { return };
        let (catalogue, view_changes) = (node.catalogue, node.view_changes);
        let nonce = self.nonce();
        // After a crash nothing is known by the old catalogue.
        let is_unsure = self.changes_view || self.is_misjudged(&[catalogue]);
        let foresees_tables = self.plan.foresees_tables || self.sessions[session].tries > 0;
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let program = Rc::clone(&run.program);
        let place = record::Place { at: run.at, has_snapshot: run.has_snapshot, is_partial: self.is_partial };
        let row_claims_max = self.plan.row_claims_max;
        let done = Done { changes: &run.changes, locked: &run.locked, row_claims_max };
        let view_changes =
            Some(view_changes).filter(|_| !done.redefines(&program.statements[run.at], &self.rules));
        let reads = record::classify(&program, place, view_changes, &self.rules);
        run.phase = Phase::Placing;
        run.catalogue = catalogue;
        run.views.truncate(run.at);
        run.views.push(view_changes);
        let at_statement = run.at;
        let is_first = !std::mem::replace(&mut run.is_begun, program.is_update());
        if is_first {
            run.placement = self.placement.clone();
        }
        let at = run.line.map(|(_, replica, _)| ReplicaId(replica as u16));
        let id = SessionId(session as u64);
        // Without a preference the core takes turns, so more replicas are used.
        let (cost_us, near) = (50, None);
        let done = Done { changes: &run.changes, locked: &run.locked, row_claims_max };
        let mut writes = record::wants(&program, run.at, done, &self.rules);
        writes.add(&run.late.missed);
        let asks_kinds = is_first && self.rules.protocol.home.asks_kinds();
        let kind = asks_kinds.then(|| record::kind(&program, self.disk.records.len())).flatten();
        let foresees = is_first && foresees_tables;
        let touches = record::touches(&program, at_statement, foresees, &self.placement, &self.rules);
        let needs = |reads, touches, kind| Needs { reads, touches, writes, cost_us, near, catalogue, kind };
        let event = match (program.is_update(), is_first) {
            (false, _) => Event::Read { session: id, reads, touches, at, cost_us, near, catalogue, kind },
            (true, false) => Event::Statement { session: id, needs: needs(reads, touches, None) },
            (true, true) => {
                let level = match program.level {
                    history::Level::Serializable if self.rules.serializable_is_told => Level::Serializable,
                    history::Level::Serializable | history::Level::RepeatableRead => Level::RepeatableRead,
                    history::Level::ReadCommitted => Level::ReadCommitted,
                };
                let home = if program.has_any_home { Home::Any } else { Home::Anchor };
                let whole = record::whole(&program, done, &self.rules);
                let whole = whole.filter(|_| self.rules.protocol.order.chains_all() && !is_unsure);
                let foreseen = match whole {
                    Some(mut whole) => {
                        self.mispredict(&mut whole);
                        Foreseen::Whole(Box::new(whole))
                    }
                    None => Foreseen::Likely(record::foreseen(&program, done, &self.rules)),
                };
                let needs = needs(reads, touches, kind);
                Event::Begin { session: id, level, nonce, home, needs, foreseen }
            }
        };
        match self.staying(session, &event) {
            Some(placed) => self.post(session, placed),
            None => self.tell(event),
        }
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
                Effect::Execute { replica, incarnation, identity, applied, .. } => {
                    if let Some(run) = self.sessions[session].run.as_mut() {
                        run.applied = applied;
                    }
                    self.execute(session, usize::from(replica.0), incarnation, identity);
                }
                Effect::Reclassify { .. } => self.ask_for_place(session),
                Effect::LateReservation { rival, .. } => self.reserved(session, rival.is_some()),
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
                            // The mutant drops the server's answer.
                            self.forget_line(session, line);
                        }
                    }
                }
                Effect::DrawLockLsn { .. } => {
                    let line = self.sessions[session].run.as_ref().and_then(|run| run.line);
                    if let Some((line, ..)) = line {
                        self.send(line, Message::Identities(Vec::new()));
                    }
                }
                Effect::RunAgain { .. } => self.run_again(session),
                Effect::HomeLost { .. } => {
                    if self.rules.no_rerun_once_finished {
                        self.drop_line(session);
                        self.settle(session, true);
                    } else {
                        self.rerun_or_fail(session);
                    }
                }
                Effect::Abort { cause, .. } => {
                    self.judge_loss(session, cause);
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

    pub(super) fn drop_line(&mut self, session: usize) {
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
        if self.is_ending(session) {
            self.tell(Event::Executed { session: SessionId(session as u64) });
            self.identify(session);
            return;
        }
        let agent = self.agent(replica);
        let (is_current, generation) =
            (agent.is_serving && agent.incarnation == incarnation, agent.generation);
        let server = &self.servers[replica];
        let is_same_server = server.is_up() && server.generation == generation;
        let may_connect =
            if self.rules.connections_are_bound { is_current && is_same_server } else { server.is_up() };
        if identity.is_some_and(|identity| identity.nonce.0.is_multiple_of(YIELDS)) {
            self.yield_place(session);
            return;
        }
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
        run.turns += 1;
        let statement = &program.statements[run.at];
        let identity = run.identity;
        let mut ops = Vec::with_capacity(statement.ops.len() + 1);
        for op in self.own_savepoint(session).iter().chain(&statement.ops) {
            self.elements += 1;
            ops.push((op.clone(), self.elements));
        }
        let shared = identity.and_then(|identity| self.shared_elements(&program, identity));
        for ((_, element), shared) in ops.iter_mut().zip(shared.into_iter().flatten()) {
            *element = shared;
        }
        self.send(line, Message::Run(ops));
    }

    pub(super) fn session_reply(&mut self, session: usize, line: Connection, reply: Reply) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        if run.line.is_none_or(|(own, ..)| own != line) {
            return;
        }
        match (run.phase, reply) {
            // A cancelled COMMIT of a logged record counts as lost, too: the log decides.
            (_, Reply::Lost) | (Phase::Ordering, Reply::RolledBack) => self.lost_line(session),
            (Phase::Running, Reply::Answer(answer)) => self.statement_done(session, answer),
            (Phase::Reverting, Reply::Answer(answer)) => self.reverted(session, &answer),
            (Phase::Identifying, Reply::Inserted { lsn }) => self.say_finish(session, lsn),
            (Phase::Identifying, Reply::Failed) => self.undo(session),
            // It is not in the log and never will be, since its transaction at the backend has failed.
            (Phase::Ordering, Reply::Failed) => self.fail(session, SqlError::Failed.code()),
            (Phase::Ordering, Reply::Inserted { lsn }) => {
                self.tell(Event::LockLsn { session: SessionId(session as u64), lsn });
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
            (Phase::Closing | Phase::Undoing, Reply::RolledBack) => {
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
        if answer.error.is_none() {
            self.keep_answer(session, &answer);
        }
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let program = Rc::clone(&run.program);
        let error = answer.error;
        let noted = &mut self.history.transactions[run.transaction].statements;
        if let Some(statement) = noted.last_mut() {
            record::note(statement, &answer);
        }
        let statement = &program.statements[run.at];
        // A failed statement may not have taken a snapshot.
        let takes_snapshot = !statement.is_control() || !self.rules.control_takes_no_snapshot;
        run.has_snapshot |= takes_snapshot && error.is_none();
        run.has_tried |= !statement.is_read();
        let turn = run.turns.saturating_sub(1);
        if statement.is_unknown || run.views.get(run.at).is_some_and(Option::is_none) {
            run.unbounded.get_or_insert(turn);
        }
        let has_defined = statement.is_ddl && !answer.changes.is_empty();
        run.has_ddl |= has_defined;
        if has_defined && !statement.is_unknown {
            run.locked.push((turn, Locked::View));
        }
        if statement.ops.contains(&Op::ReadView) {
            run.concluded.push(run.catalogue);
        }
        run.changes.extend(answer.changes.into_iter().map(|change| (turn, change)));
        // The locks of an unbounded statement are unknown.
        if !statement.is_unknown {
            run.locked.extend(answer.locked.iter().map(|(key, _)| (turn, Locked::Row(*key))));
            run.locked.extend(answer.locked_tables.iter().map(|(table, _)| (turn, Locked::Table(*table))));
        }
        let is_update = run.is_begun;
        if error.is_none() && statement.is_control() {
            self.keep_savepoints(session);
        }
        match error {
            Some(SqlError::Evicted) => self.evicted(session),
            Some(error) => self.statement_failed(session, error),
            None if program.frame != Frame::Autocommit => self.reserve_statement(session),
            None if is_update => self.finish(session),
            None => {
                self.answer_client(session, Outcome::Committed);
                self.end_run(session);
            }
        }
    }

    /// SAVEPOINT or ROLLBACK TO has run.
    fn keep_savepoints(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let noted = &mut self.history.transactions[run.transaction].statements;
        let Some(this) = noted.len().checked_sub(1) else { return };
        if run.program.statements[run.at].ops.contains(&Op::Savepoint) {
            let (changes, locked, has_ddl) = (run.changes.len(), run.locked.len(), run.has_ddl);
            run.savepoints.push(Mark { statement: this, changes, locked, has_ddl });
        } else if let Some(mark) = run.savepoints.last() {
            for statement in &mut noted[mark.statement + 1..this] {
                statement.undone_by.get_or_insert(this);
            }
            if self.rules.undone_is_forgotten {
                run.changes.truncate(mark.changes);
                run.locked.truncate(mark.locked);
                run.has_ddl = mark.has_ddl;
            }
        }
    }
}
