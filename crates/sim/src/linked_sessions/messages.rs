//! What the ends of a link say to each other, and what lanes ask of databases.

use std::collections::BTreeSet;

use cluster::ids::{CrewId, SessionId};
use cluster::protocols::shipping::{Answer, Operation, Request, SequenceNumber, Transaction, Work};

use super::ids::{Identity, Process, Run};
use super::log::Record;
use crate::interactions::programs::Seen;

/// From a node's sessions to the scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ToLeader {
    Request(SessionId, Request),
    Closed(SessionId),
    Finished(Run, Transaction),
    GiveUp(Run),
    WantsOutcome(SessionId, Identity),
    /// The link has ended.
    Gone,
}

/// A replica, as the scheduler says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Participation {
    pub(super) run: Run,
    pub(super) is_up: bool,
}

/// Work for a lane of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Performed {
    pub(super) run: Run,
    pub(super) transaction: Transaction,
    pub(super) work: Work,
    pub(super) identity: Option<Identity>,
}

/// From the scheduler to a node's sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ToNode {
    Welcome(Vec<Participation>),
    Begun(SessionId, Identity),
    Perform(Performed),
    Answer(SessionId, Answer),
    /// A replica is up or lost, and this is its run from now on.
    Shows(Participation),
    Over(SequenceNumber),
    Outcome(SessionId, bool),
}

/// What a link carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Parcel {
    ToLeader(ToLeader),
    ToNode(ToNode),
}

/// Who has asked a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// A lane of a crew.
    Lane,
    /// A lane of the leader of this term, for a crew that is lost.
    Orphan(u64, Transaction),
    /// What brings the replica back in this term.
    Rejoin(u64),
}

/// The connection of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Connection {
    pub(super) owner: Process,
    pub(super) backend: u64,
    pub(super) term: u64,
    /// The crew for which it is vouched; `None` for one of Onecopy's own.
    pub(super) crew: Option<CrewId>,
}

/// What a database is asked to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command {
    Run(Operation),
    Commit(Option<Identity>),
    RollBack,
    /// End all other backends, and let in only what this term vouches for.
    Fence,
    /// End the backends of a crew, and let none begin.
    FenceCrew(CrewId),
    Ask(Identity),
    AskAll,
    Redo(Record),
}

/// The reply of a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Done,
    Seen(Seen),
    Has(bool),
    HasAll(BTreeSet<Identity>),
    /// The connection is lost, or was never let in.
    Failed,
}
