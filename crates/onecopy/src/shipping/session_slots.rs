//! The sessions as the scheduler's node knows them: what each waits for, and how it gets its answer.
//!
//! A session of this process gets the reply with the answer. At other nodes the replies are there already, so these get the answer only.
//!
//! Example: an update of another node that is a transaction of its own goes to the scheduler as three requests: begin, execute, end. So
//! its node knows the identity before anything is decided, and can ask for the outcome if this node is lost meanwhile.

use std::sync::Arc;

use cluster::ids::SessionId;
use cluster::protocols::shipping::{Answer, Operation, SequenceNumber, StatementId};
use tokio::sync::mpsc;

use super::connections::SessionConnections;
use super::lane_site::LaneSite;
use super::request::RequestOutcome;
use super::shipment::Reply;

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
