//! The sessions as the scheduler's node knows them: what each waits for, and how it gets its answer.
//!
//! A session of this process gets the reply with the answer. At other nodes the replies are there already, so these get the answer only.
//!
//! Example: an update of another node that is a transaction of its own goes to the scheduler as three requests: begin, execute, end. So
//! its node knows the identity before anything is decided, and can ask for the outcome if this node is lost meanwhile.

use std::sync::Arc;

use cluster::ids::SessionId;
use cluster::protocols::shipping::{
    Answer, Ending, Kind, Operation, Output, Request, SequenceNumber, StatementId,
};
use tokio::sync::mpsc;

use super::connections::SessionConnections;
use super::lane_site::LaneSite;
use super::request::RequestOutcome;
use super::several::messages::{LinkedAnswer, ToCrew};
use super::shipment::Reply;
use super::state::SchedulerState;

/// A session with the scheduler.
pub(super) struct SessionSlot {
    pub(super) client: SlotClient,
    pub(super) open: Option<SequenceNumber>,
    /// The statement that it waits for.
    pub(super) awaited: Option<StatementId>,
}

/// How a session gets its answers.
pub(super) enum SlotClient {
    Here {
        connections: Arc<SessionConnections>,
        outcomes: mpsc::UnboundedSender<RequestOutcome>,
        /// The first reply to the statement that it waits for.
        reply: Option<Reply>,
    },
    /// From its node.
    Crew { update: Option<UpdateStep> },
}

/// How far an update of another node is that is a transaction of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpdateStep {
    Begins(Operation),
    Runs { has_failed: bool },
    Ends(Answer),
}

impl SessionSlot {
    pub(super) fn here(
        connections: Arc<SessionConnections>,
        outcomes: mpsc::UnboundedSender<RequestOutcome>,
    ) -> Self {
        Self { client: SlotClient::Here { connections, outcomes, reply: None }, open: None, awaited: None }
    }

    pub(super) fn of_crew() -> Self {
        Self { client: SlotClient::Crew { update: None }, open: None, awaited: None }
    }

    /// Where its transactions run.
    pub(super) fn site(&self, session: SessionId) -> LaneSite {
        match &self.client {
            SlotClient::Here { connections, .. } => LaneSite::Here(Arc::clone(connections)),
            SlotClient::Crew { .. } => LaneSite::Crew(session.crew()),
        }
    }

    /// The session has ended.
    pub(super) fn close(&self) {
        if let SlotClient::Here { connections, .. } = &self.client {
            connections.close();
        }
    }

    /// The session asks something new.
    pub(super) fn begin_wait(&mut self) {
        self.awaited = None;
        match &mut self.client {
            SlotClient::Here { reply, .. } => *reply = None,
            SlotClient::Crew { update } => *update = None,
        }
    }

    /// A replica has run a statement.
    pub(super) fn note_reply(&mut self, statement: StatementId, new: Reply) {
        if let SlotClient::Here { reply, .. } = &mut self.client
            && self.awaited == Some(statement)
        {
            reply.get_or_insert(new);
        }
    }

    /// A replica has run the statement of an update.
    pub(super) fn note_failure(&mut self, statement: StatementId, failed: bool) {
        if let SlotClient::Crew { update: Some(UpdateStep::Runs { has_failed }) } = &mut self.client
            && self.awaited == Some(statement)
        {
            *has_failed |= failed;
        }
    }
}

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
        if self.elsewhere.get(statement).is_some_and(|statement| statement.kind == Kind::Read) {
            self.elsewhere.remove(statement);
        }
    }

    /// Tells a session of another node the answer.
    pub(super) fn tell_answer(&mut self, session: SessionId, answer: LinkedAnswer) {
        let at_node = SessionId(session.counter());
        self.mail.push((session.crew(), ToCrew::Answer { session: at_node, answer }));
    }

    /// A step of an update is answered.
    fn go_on(&mut self, session: SessionId, step: UpdateStep, answer: Answer, out: &mut Vec<Output>) {
        let (request, next) = match (step, answer) {
            (UpdateStep::Begins(operation), Answer::Done) => {
                (Request::Execute(operation), UpdateStep::Runs { has_failed: false })
            }
            (UpdateStep::Begins(operation), _) => {
                self.elsewhere.remove(operation.statement);
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
