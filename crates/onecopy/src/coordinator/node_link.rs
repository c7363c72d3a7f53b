//! What travels on the link between a node and the leader, in order in each direction.
//!
//! ```text
//! node                                     leader
//!  Said { Begin }             ->
//!                             <-  View { durable: 7 }, Heard { Execute }
//!  Said { Finish }            ->
//!                             <-  View { durable: 8 }, Heard { Acknowledge }, Heard { Commit }
//!  Said { Committed }         ->
//! ```
//!
//! Invariant: a change of the view is sent before any effect that it belongs to. So what a session has received is never
//! ahead of what its node knows.
//!
//! An effect can be under way when its session has gone on to something else. So each event carries the progress of its session,
//! and each effect the progress that the leader heard of last ([`cluster::nodes::ledger`]); the node drops what is late.

use cluster::claims::Claims;
use cluster::event::{Event, Rival};
use cluster::ids::{DatabaseId, Incarnation, ReplicaId, SessionId, Version};
use cluster::nodes::ledger::{Heard, Said};
use cluster::placement::{Edition, Placement};
use cluster::protocols::{ReplicaStatus, Waiting};
use commitlog::LogRefusal;

use super::{ReplicaAddress, RunProof};

/// Messages that can wait in one direction. A link with more breaks.
pub(crate) const QUEUE_MAX: usize = 1 << 16;

/// From a node to the leader.
#[derive(Debug)]
pub(crate) enum ToLeader {
    /// A session says something.
    Said(Said),
    /// An event that is not of one session.
    Reported(Box<Event>),
    /// A question, answered in its turn.
    Ask { number: u64, question: Question },
    /// A session waits for long, so the servers are to be asked for their lock waits.
    SearchDeadlocks,
}

/// From the leader to a node.
#[derive(Debug)]
pub(crate) enum ToNode {
    /// What the node knows of the cluster changes.
    View(ViewChange),
    /// An effect for a session of the node.
    Heard(Heard),
    /// The answer to a question.
    Answer { number: u64, answer: Answer },
    /// The agent of a replica is connected to this run of its server.
    Run { replica: ReplicaId, incarnation: Incarnation, proof: RunProof },
    /// The server of a replica is given up.
    GaveUp { replica: ReplicaId },
    /// A new member.
    Joined(ReplicaAddress),
    /// A replica is no longer a member.
    Left { replica: ReplicaId },
    /// The anchor is about to be replaced; `None` ends that.
    Leaving { anchor: Option<ReplicaId> },
    /// A replica is drained, or takes work again.
    Drained { replica: ReplicaId, is_drained: bool },
}

/// What a node has to know without asking, as it is from now on.
#[derive(Debug)]
pub(crate) enum ViewChange {
    /// The versions.
    Versions { durable: Version, last_ddl: Version },
    /// The anchor. Everything that was open at another one is over.
    Anchor(ReplicaId),
    /// Who holds what.
    Placement { placement: Option<Box<Placement>>, is_partial: bool, edition: Edition },
    /// The members, in the order of their numbers.
    Replicas(Vec<ReplicaStatus>),
    /// Whether the log takes records.
    Intake(Intake),
}

/// Whether the log takes records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Intake {
    /// It has room for another one.
    pub(crate) has_room: bool,
    /// Why it takes no new ones.
    pub(crate) refusal: Option<LogRefusal>,
}

/// What a session asks the leader for.
#[derive(Debug)]
pub(crate) enum Question {
    /// [`super::core::Core::effects_so_far`] and [`super::core::Core::present_view`].
    EffectsSoFar,
    /// [`super::core::Core::wait_of`].
    WaitOf { session: SessionId },
    /// [`super::core::Core::earlier_writer`].
    EarlierWriter { session: SessionId, claims: Claims },
    /// [`super::core::Core::redefines`].
    Redefines { since: Version, database: DatabaseId, mentioned: Vec<u64> },
    /// [`super::core::Core::voids_lent`].
    VoidsLent { since: Version },
}

/// The leader's answer to a [`Question`].
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Wait(Option<Box<Waiting>>),
    Writer(Option<Rival>),
    YesOrNo(bool),
}

impl Answer {
    /// Whether it says yes, or is no answer to such a question.
    pub(crate) fn is_yes(&self) -> bool {
        !matches!(self, Self::YesOrNo(false))
    }
}
