//! Gives sessions the answers of the scheduler ([`super::session_slots`]).

use cluster::ids::SessionId;
use cluster::protocols::shipping::{Answer, Ending, Kind, Output, Request};

use super::request::RequestOutcome;
use super::session_slots::{SlotClient, UpdateStep};
use super::state::SchedulerState;
use crate::coordinator::scheduler_messages::{LinkedAnswer, ToCrew};

impl SchedulerState {
    /// Gives a session the answer to its request.
    pub(super) fn answer(&mut self, session: SessionId, answer: Answer, out: &mut Vec<Output>) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        let statement = slot.awaited.take();
        match &mut slot.client {
            SlotClient::Here { outcomes, reply, .. } => {
                // A session that has ended receives nothing.
                let _ = outcomes.send(RequestOutcome {
                    answer: answer.into(),
                    reply: reply.take(),
                    lasting: None,
                });
            }
            SlotClient::Crew { update } => match update.take() {
                Some(step) => return self.go_on(session, step, answer, out),
                None => self.tell_answer(session, answer.into()),
            },
        }
        // A write statement is kept until its transaction is over.
        let Some(statement) = statement else { return };
        if self.statements.get(statement).is_some_and(|shipment| shipment.kind == Kind::Read) {
            self.statements.remove(statement);
        }
        if self.linked.statements.get(statement).is_some_and(|statement| statement.kind == Kind::Read) {
            self.linked.statements.remove(statement);
        }
    }

    /// Tells a session of another node the answer.
    pub(super) fn tell_answer(&mut self, session: SessionId, answer: LinkedAnswer) {
        let at_node = SessionId(session.counter());
        self.linked.mail.push((session.crew(), ToCrew::Answer { session: at_node, answer }));
    }

    /// A step of an update is answered.
    fn go_on(&mut self, session: SessionId, step: UpdateStep, answer: Answer, out: &mut Vec<Output>) {
        let (request, next) = match (step, answer) {
            (UpdateStep::Begins(operation), Answer::Done) => {
                (Request::Execute(operation), UpdateStep::Runs { has_failed: false })
            }
            (UpdateStep::Begins(operation), _) => {
                self.linked.statements.remove(operation.statement);
                return self.tell_answer(session, answer.into());
            }
            (UpdateStep::Runs { has_failed: false }, Answer::Done) => {
                (Request::End(Ending::Commit), UpdateStep::Ends(Answer::Done))
            }
            (UpdateStep::Runs { .. }, answer) => (Request::End(Ending::Abort), UpdateStep::Ends(answer)),
            (UpdateStep::Ends(Answer::Done), answer) | (UpdateStep::Ends(answer), _) => {
                return self.tell_answer(session, answer.into());
            }
        };
        if let Some(slot) = self.sessions.get_mut(&session) {
            slot.client = SlotClient::Crew { update: Some(next) };
            if let Request::Execute(operation) = &request {
                slot.awaited = Some(operation.statement);
            }
        }
        self.pass(session, request, out);
    }
}

impl From<Answer> for LinkedAnswer {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Done => Self::Done,
            Answer::Refused => Self::Refused,
            Answer::Lost => Self::Lost,
        }
    }
}
