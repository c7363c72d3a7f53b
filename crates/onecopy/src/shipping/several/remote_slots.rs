//! What a session of a node has under way with the scheduler, and what it is owed when the link to the leader ends.
//!
//! ```text
//! the session waits for    then, when the link ends
//! a transaction to begin   it chooses its locks again, with the next leader
//! a statement              its transaction is rolled back
//! the end of an update     it waits until the next leader says whether the log has it
//! ```
//!
//! Invariant: no answer is given twice, and no outcome is guessed.

use std::sync::Arc;

use cluster::ids::Identity;
use cluster::protocols::shipping::{Ending, Kind};
use tokio::sync::mpsc;

use crate::coordinator::scheduler_messages::{LinkedAnswer, StatementNumber};
use crate::shipping::connections::SessionConnections;
use crate::shipping::request::{Answer, Remains, RequestOutcome, SessionRequest};
use crate::shipping::shipment::Reply;

/// A session.
pub(super) struct RemoteSlot {
    pub(super) connections: Arc<SessionConnections>,
    outcomes: mpsc::UnboundedSender<RequestOutcome>,
    /// The statement that it waits for.
    awaited: Option<StatementNumber>,
    /// The first reply to that statement.
    reply: Option<Reply>,
    transaction: RemoteTransaction,
    waits: Waits,
}

/// The transaction of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemoteTransaction {
    None,
    Open {
        identity: Identity,
        has_written: bool,
    },
    /// It was lost with the leader, and the session does not know that yet.
    Void,
}

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Nothing,
    Begin,
    Statement,
    End(Ending),
    Read,
    Update,
    /// For the outcome of a commit, since the link has ended.
    Outcome {
        identity: Identity,
        of: Undecided,
    },
}

/// What was about to commit when the link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undecided {
    Transaction,
    /// A statement that is a transaction of its own, which can be done again.
    Update,
}

impl RemoteSlot {
    pub(super) fn new(
        connections: Arc<SessionConnections>,
        outcomes: mpsc::UnboundedSender<RequestOutcome>,
    ) -> Self {
        let (transaction, waits) = (RemoteTransaction::None, Waits::Nothing);
        Self { connections, outcomes, awaited: None, reply: None, transaction, waits }
    }

    /// The session asks something, with this statement.
    pub(super) fn ask(&mut self, request: &SessionRequest, statement: Option<StatementNumber>) {
        (self.awaited, self.reply) = (statement, None);
        self.waits = match request {
            SessionRequest::Begin(_) => Waits::Begin,
            SessionRequest::Execute(kind, ..) => {
                if let (Kind::Write, RemoteTransaction::Open { has_written, .. }) =
                    (kind, &mut self.transaction)
                {
                    *has_written = true;
                }
                Waits::Statement
            }
            SessionRequest::End(ending) => Waits::End(*ending),
            SessionRequest::SingleRead(..) => Waits::Read,
            SessionRequest::SingleUpdate(..) => Waits::Update,
        };
    }

    /// The statement that it waits for.
    pub(super) fn awaited(&self) -> Option<StatementNumber> {
        self.awaited
    }

    /// The identity of the open transaction.
    pub(super) fn identity(&self) -> Option<Identity> {
        match self.transaction {
            RemoteTransaction::Open { identity, .. } => Some(identity),
            RemoteTransaction::None | RemoteTransaction::Void => None,
        }
    }

    /// Whether what it waits for is an update that is a transaction of its own.
    pub(super) fn updates(&self) -> bool {
        self.waits == Waits::Update
    }

    /// The scheduler has given its transaction an identity.
    pub(super) fn begun(&mut self, identity: Identity) {
        let has_written = self.updates();
        self.transaction = RemoteTransaction::Open { identity, has_written };
    }

    /// A replica has run a statement.
    pub(super) fn note_reply(&mut self, statement: StatementNumber, reply: Reply) {
        if self.awaited == Some(statement) {
            self.reply.get_or_insert(reply);
        }
    }

    /// The scheduler answers.
    pub(super) fn answer(&mut self, answer: LinkedAnswer) {
        let ends = match self.waits {
            Waits::End(_) | Waits::Update => true,
            Waits::Begin => answer != LinkedAnswer::Done,
            Waits::Nothing | Waits::Outcome { .. } => return,
            Waits::Statement | Waits::Read => false,
        };
        if ends {
            self.transaction = RemoteTransaction::None;
        }
        self.give(match answer {
            LinkedAnswer::Done => Answer::Done,
            LinkedAnswer::Refused => Answer::Refused,
            LinkedAnswer::Lost => Answer::Lost(Remains::Transaction),
            LinkedAnswer::Later => Answer::Again,
            LinkedAnswer::Full => Answer::StoreIsFull,
        });
    }

    /// Answers a request of a session whose transaction was lost with the leader; `false` if it was not.
    pub(super) fn answer_void(&mut self, request: &SessionRequest) -> bool {
        if self.transaction != RemoteTransaction::Void {
            return false;
        }
        self.transaction = RemoteTransaction::None;
        let answer = match request {
            SessionRequest::End(Ending::Abort) => Answer::Done,
            _ => Answer::LeaderLost,
        };
        self.give(answer);
        true
    }

    /// The link has ended.
    pub(super) fn lose_link(&mut self) {
        self.connections.close();
        let transaction = std::mem::replace(&mut self.transaction, RemoteTransaction::None);
        let undecided = match transaction {
            RemoteTransaction::Open { identity, has_written: true } => Some(identity),
            _ => None,
        };
        match (self.waits, undecided) {
            (Waits::Nothing, _) => {
                if transaction != RemoteTransaction::None {
                    self.transaction = RemoteTransaction::Void;
                }
            }
            (Waits::Begin | Waits::Read, _) | (Waits::Update, None) => self.give(Answer::Again),
            (Waits::Statement, _) => self.give(Answer::LeaderLost),
            (Waits::Update, Some(identity)) => {
                self.waits = Waits::Outcome { identity, of: Undecided::Update };
            }
            (Waits::End(Ending::Commit), Some(identity)) => {
                self.waits = Waits::Outcome { identity, of: Undecided::Transaction };
            }
            // What has only read is over, and each of its reads was in time.
            (Waits::End(_), _) => self.give(Answer::Done),
            (Waits::Outcome { .. }, _) => {}
        }
    }

    /// The transaction whose outcome the next leader has to say.
    pub(super) fn undecided(&self) -> Option<Identity> {
        match self.waits {
            Waits::Outcome { identity, .. } => Some(identity),
            _ => None,
        }
    }

    /// The next leader says what became of it.
    pub(super) fn settle(&mut self, is_committed: bool) {
        let Waits::Outcome { of, .. } = self.waits else { return };
        self.give(match of {
            _ if is_committed => Answer::Done,
            Undecided::Update => Answer::Again,
            Undecided::Transaction => Answer::LeaderLost,
        });
    }

    fn give(&mut self, answer: Answer) {
        (self.waits, self.awaited) = (Waits::Nothing, None);
        // A session that has ended receives nothing.
        let _ = self.outcomes.send(RequestOutcome { answer, reply: self.reply.take(), lasting: None });
    }
}
