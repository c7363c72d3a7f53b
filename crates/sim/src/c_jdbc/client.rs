//! Clients: each runs its transactions one after the other, and writes down what it saw.

use cluster::protocols::c_jdbc::message::{Answer, Request};
use cluster::protocols::shipping::{Ending, StatementId};

use super::draw::Program;
use super::replica::Texts;
use super::server::Reply;
use crate::history::{History, Level, Outcome, Statement, Transaction, Write};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Beginning,
    Running(usize),
    Ending(Ending),
    Over,
}

#[derive(Debug)]
pub(super) struct Client {
    number: u32,
    level: Level,
    programs: std::vec::IntoIter<Program>,
    program: Option<Program>,
    phase: Phase,
    /// Its present transaction in the history.
    transaction: usize,
    /// The statement that it waits for.
    pub(super) statement: StatementId,
}

/// What a client does after an answer.
#[derive(Debug)]
pub(super) enum Next {
    Ask(Request),
    /// Its transaction is over.
    Rest,
    /// It has no more transactions.
    Over,
}

impl Client {
    pub(super) fn new(number: u32, level: Level, programs: Vec<Program>) -> Self {
        let (program, phase, statement) = (None, Phase::Idle, StatementId(0));
        Self { number, level, programs: programs.into_iter(), program, phase, transaction: 0, statement }
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Begins its next transaction.
    pub(super) fn begin(&mut self, now_us: u64, texts: &mut Texts, history: &mut History) -> Next {
        let Some(program) = self.programs.next() else {
            self.phase = Phase::Over;
            return Next::Over;
        };
        self.transaction = history.transactions.len();
        history.transactions.push(Transaction {
            session: self.number,
            level: self.level,
            outcome: Outcome::Aborted,
            finish_us: 0,
            end_us: 0,
            statements: Vec::new(),
        });
        let is_single = program.is_single;
        self.program = Some(program);
        if is_single {
            history.transactions[self.transaction].finish_us = now_us;
            return self.run(0, now_us, texts, history);
        }
        self.phase = Phase::Beginning;
        Next::Ask(Request::Begin)
    }

    fn run(&mut self, place: usize, now_us: u64, texts: &mut Texts, history: &mut History) -> Next {
        let Some(program) = &self.program else { return Next::Rest };
        let Some(statement) = program.statements.get(place) else {
            let ending = program.ending;
            return self.end(ending, now_us, history);
        };
        self.phase = Phase::Running(place);
        self.statement = StatementId(texts.len() as u64 + 1);
        texts.insert(self.statement, statement.clone());
        let write =
            |(row, element): &(u32, u64)| Write { row: *row, element: *element, base: None, is_gone: false };
        let writes = statement.writes.iter().map(write).collect();
        history.transactions[self.transaction].statements.push(Statement {
            begin_us: now_us,
            writes,
            ..Statement::default()
        });
        let tables = statement.tables();
        Next::Ask(if statement.is_write() {
            Request::Write(tables, self.statement)
        } else {
            Request::Read(tables, self.statement)
        })
    }

    fn end(&mut self, ending: Ending, now_us: u64, history: &mut History) -> Next {
        self.phase = Phase::Ending(ending);
        history.transactions[self.transaction].finish_us = now_us;
        Next::Ask(Request::End(ending))
    }

    fn finish(&mut self, outcome: Outcome, now_us: u64, history: &mut History) -> Next {
        self.phase = Phase::Idle;
        let transaction = &mut history.transactions[self.transaction];
        transaction.outcome = outcome;
        transaction.end_us = now_us;
        Next::Rest
    }

    /// The scheduler has answered.
    pub(super) fn answered(
        &mut self,
        answer: &Answer,
        reply: Option<Reply>,
        now_us: u64,
        texts: &mut Texts,
        history: &mut History,
    ) -> Next {
        let is_single = self.program.as_ref().is_some_and(|program| program.is_single);
        match (answer, self.phase) {
            (Answer::Done(_), Phase::Beginning) => self.run(0, now_us, texts, history),
            (Answer::Done(_), Phase::Running(_)) if reply.as_ref().is_some_and(|reply| reply.has_failed) => {
                self.end(Ending::Abort, now_us, history)
            }
            (Answer::Done(_), Phase::Running(place)) => {
                let statement = history.transactions[self.transaction].statements.last_mut();
                if let (Some(statement), Some(reply)) = (statement, reply) {
                    statement.end_us = now_us;
                    statement.reads = reply.reads;
                    if statement.writes.len() == reply.writes.len() {
                        statement.writes = reply.writes;
                    }
                }
                if is_single {
                    self.finish(Outcome::Committed, now_us, history)
                } else {
                    self.run(place + 1, now_us, texts, history)
                }
            }
            (Answer::Done(_), Phase::Ending(Ending::Commit)) => {
                self.finish(Outcome::Committed, now_us, history)
            }
            (Answer::NotHeld(_), Phase::Running(_)) if !is_single => self.end(Ending::Abort, now_us, history),
            (_, Phase::Over) => Next::Over,
            _ => self.finish(Outcome::Aborted, now_us, history),
        }
    }

    /// The connection is lost. Whether the client goes on later.
    pub(super) fn disconnect(&mut self, history: &mut History) -> bool {
        let outcome = match self.phase {
            Phase::Over | Phase::Idle => return false,
            Phase::Ending(Ending::Commit) => Outcome::Unknown,
            Phase::Beginning | Phase::Running(_) | Phase::Ending(Ending::Abort) => Outcome::Aborted,
        };
        self.phase = Phase::Idle;
        history.transactions[self.transaction].outcome = outcome;
        true
    }
}
