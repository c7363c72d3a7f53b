//! A session at its node: what it waits for, and what it is owed when the link ends (as in `remote_slots` of the program).

use cluster::protocols::shipping::{Answer, Ending, Kind, Request, StatementId};

use super::ids::Identity;
use crate::interactions::programs::Seen;

/// What a client gets from its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Given {
    Done(Option<Seen>),
    Refused,
    /// No replica was left for a read.
    Lost,
    /// The session asks the same again.
    Again,
    /// The transaction is rolled back.
    LeaderLost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Own {
    None,
    Open {
        identity: Identity,
        has_written: bool,
    },
    /// It was lost with the leader, and the client does not know that yet.
    Void,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    Nothing,
    Begin,
    Statement,
    End(Ending),
    Read,
    Update,
    Outcome { identity: Identity, is_update: bool },
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) client: usize,
    awaited: Option<StatementId>,
    reply: Option<Seen>,
    transaction: Own,
    waits: Waits,
}

impl Slot {
    pub(super) fn new(client: usize) -> Self {
        Self { client, awaited: None, reply: None, transaction: Own::None, waits: Waits::Nothing }
    }

    /// The session passes a request on.
    pub(super) fn ask(&mut self, request: &Request) {
        (self.awaited, self.reply) = (None, None);
        self.waits = match request {
            Request::Begin(_) | Request::InteractionOver => Waits::Begin,
            Request::Execute(operation) => {
                self.awaited = Some(operation.statement);
                if let (Kind::Write, Own::Open { has_written, .. }) = (operation.kind, &mut self.transaction)
                {
                    *has_written = true;
                }
                Waits::Statement
            }
            Request::End(ending) => Waits::End(*ending),
            Request::SingleRead(_, operation) => {
                self.awaited = Some(operation.statement);
                Waits::Read
            }
            Request::SingleUpdate(..) => Waits::Update,
        };
    }

    pub(super) fn begun(&mut self, identity: Identity) {
        self.transaction = Own::Open { identity, has_written: self.waits == Waits::Update };
    }

    /// A replica has run a statement. The first reply counts.
    pub(super) fn note_reply(&mut self, statement: StatementId, seen: Seen) {
        if self.awaited == Some(statement) {
            self.reply.get_or_insert(seen);
        }
    }

    /// The scheduler answers.
    pub(super) fn answer(&mut self, answer: Answer) -> Option<Given> {
        let ends = match self.waits {
            Waits::End(_) | Waits::Update => true,
            Waits::Begin => answer != Answer::Done,
            Waits::Nothing | Waits::Outcome { .. } => return None,
            Waits::Statement | Waits::Read => false,
        };
        if ends {
            self.transaction = Own::None;
        }
        let given = match answer {
            Answer::Done => Given::Done(self.reply.take()),
            Answer::Refused => Given::Refused,
            Answer::Lost if self.waits == Waits::Read => Given::Again,
            Answer::Lost => Given::Lost,
        };
        Some(self.give(given))
    }

    /// The answer to a request of a session whose transaction was lost with the leader; `None` if it was not.
    pub(super) fn answer_void(&mut self, request: &Request) -> Option<Given> {
        if self.transaction != Own::Void {
            return None;
        }
        self.transaction = Own::None;
        Some(self.give(match request {
            Request::End(Ending::Abort) => Given::Done(None),
            _ => Given::LeaderLost,
        }))
    }

    /// The link has ended.
    pub(super) fn lose_link(&mut self) -> Option<Given> {
        let transaction = std::mem::replace(&mut self.transaction, Own::None);
        let undecided = match transaction {
            Own::Open { identity, has_written: true } => Some(identity),
            _ => None,
        };
        match (self.waits, undecided) {
            (Waits::Nothing, _) => {
                if transaction != Own::None {
                    self.transaction = Own::Void;
                }
                None
            }
            (Waits::Begin | Waits::Read, _) | (Waits::Update, None) => Some(self.give(Given::Again)),
            (Waits::Statement, _) => Some(self.give(Given::LeaderLost)),
            (Waits::Update, Some(identity)) => {
                self.waits = Waits::Outcome { identity, is_update: true };
                None
            }
            (Waits::End(Ending::Commit), Some(identity)) => {
                self.waits = Waits::Outcome { identity, is_update: false };
                None
            }
            (Waits::End(_), _) => Some(self.give(Given::Done(None))),
            (Waits::Outcome { .. }, _) => None,
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
    pub(super) fn settle(&mut self, is_committed: bool) -> Option<Given> {
        let Waits::Outcome { is_update, .. } = self.waits else { return None };
        Some(self.give(match is_update {
            _ if is_committed => Given::Done(None),
            true => Given::Again,
            false => Given::LeaderLost,
        }))
    }

    fn give(&mut self, given: Given) -> Given {
        (self.waits, self.awaited) = (Waits::Nothing, None);
        given
    }
}
