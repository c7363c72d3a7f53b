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

use std::io;

use cluster::claims::Claims;
use cluster::event::{Event, Rival};
use cluster::ids::{DatabaseId, Identity, Incarnation, ReplicaId, SessionId, Version};
use cluster::nodes::ledger::{Heard, Said};
use cluster::nodes::version_leases::Granted;
use cluster::parts::replica::{Offer, Outside};
use cluster::parts::sequences::{Draw, Reading, Verdict};
use cluster::placement::{Edition, Placement};
use cluster::protocols::{ReplicaStatus, Waiting};
use cluster::record::Chunk;
use cluster::time::Time;
use commitlog::LogRefusal;
use serde::{Deserialize, Serialize};

use super::RunProof;
use super::replica_address::MemberSeat;
use crate::coordinator::scheduler_messages::{ToCrew, ToScheduler};

/// Messages that can wait in one direction. A link with more breaks.
pub(crate) const QUEUE_MAX: usize = 1 << 16;

/// From a node to the leader.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToLeader {
    /// A session says something.
    Said(Said),
    /// An event that is not of one session.
    Reported(Box<Event>),
    /// A question, answered in its turn.
    Ask { number: u64, question: Question },
    /// A session waits for long, so the servers are to be asked for their lock waits.
    SearchDeadlocks,
    /// The backends at which sessions of this node are, as [`ToNode::TellBackends`] wants to know.
    Backends { round: u64, backends: Vec<Backend> },
    /// Rows of a transaction that are too many for its record. Answered once they are kept.
    Spill { number: u64, identity: Identity, part: SpillPart },
    /// A refresh overtakes the open transaction of a session of this node.
    Overtaken { replica: ReplicaId, session: SessionId },
    /// Asks for a version lease. The time is one of the node's own clock.
    Lease { sent: Time },
    /// The node has noted that every version up to this one may have been answered.
    Noted { upto: Version },
    /// The reads that sessions of the node have placed by themselves, by replica.
    Outside(Vec<Outside>),
    /// The node stops, and places no more reads by itself.
    LeaseEnded,
    /// The backends at which sessions of this node have left state. The first message to a leader.
    Held(Vec<(ReplicaId, i32)>),
    /// To the scheduler, where statements are shipped.
    Scheduler(Box<ToScheduler>),
}

/// A step of keeping the rows of a transaction, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SpillPart {
    Chunk(Chunk),
    /// There are no more; they belong to the record from now on.
    Finish,
    /// There will be no record.
    Remove,
}

/// Why rows were not kept.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SpillProblem {
    /// The disk, or etcd, has no room.
    is_full: bool,
    reason: String,
}

impl SpillProblem {
    pub(super) fn of(error: &io::Error) -> Self {
        Self { is_full: error.kind() == io::ErrorKind::StorageFull, reason: error.to_string() }
    }

    pub(super) fn error(self) -> io::Error {
        let kind = if self.is_full { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        io::Error::new(kind, self.reason)
    }
}

/// A connection of a session.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Backend {
    pub(crate) replica: ReplicaId,
    pub(crate) pid: i32,
    pub(crate) session: SessionId,
}

/// From the leader to a node.
#[derive(Debug, Serialize, Deserialize)]
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
    /// All members.
    Members(Vec<MemberSeat>),
    /// A new member.
    Joined(MemberSeat),
    /// A replica is no longer a member.
    Left { replica: ReplicaId },
    /// The anchor is about to be replaced; `None` ends that.
    Leaving { anchor: Option<ReplicaId> },
    /// A replica is drained, or takes work again.
    Drained { replica: ReplicaId, is_drained: bool },
    /// The anchor has the schema of this version, so the catalogue can be read there.
    Schema { version: Version },
    /// A refresh waits for this backend. If a session of the node is there, it has to give way.
    GiveWay(Obstruction),
    /// The work of this backend is ended for a refresh.
    Evicted { replica: ReplicaId, pid: i32 },
    /// Say which backends sessions have.
    TellBackends { round: u64 },
    /// A version lease for the request that was sent at this time. No assigned version after this one may have changed the schema.
    Granted { sent: Time, granted: Granted, last_ddl: Version },
    /// A version is assigned, which may change the schema. It is answered once it is noted.
    Assigned { version: Version, may_change_schema: bool },
    /// What the replicas offer to reads, by replica.
    Offers(Vec<Option<Offer>>),
    /// From the scheduler, where statements are shipped.
    Scheduler(Box<ToCrew>),
}

/// A backend for which a refresh waits.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Obstruction {
    pub(crate) replica: ReplicaId,
    pub(crate) pid: i32,
    /// Not through another backend.
    pub(crate) is_direct: bool,
    /// For longer than others need to end by themselves.
    pub(crate) is_late: bool,
}

/// What a node has to know without asking, as it is from now on.
#[derive(Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Intake {
    /// It has room for another one.
    pub(crate) has_room: bool,
    /// Why it takes no new ones.
    pub(crate) refusal: Option<LogRefusal>,
}

/// What a session asks the leader for.
#[derive(Debug, Serialize, Deserialize)]
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
    /// [`super::core::Core::judge_draw`].
    JudgeDraw(Draw),
}

/// The leader's answer to a [`Question`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Wait(Option<Box<Waiting>>),
    Writer(Option<Rival>),
    YesOrNo(bool),
    Duty { verdict: Verdict, reading: Reading },
    Spilled(Option<SpillProblem>),
}

impl Answer {
    /// Whether it says yes, or is no answer to such a question.
    pub(crate) fn is_yes(&self) -> bool {
        !matches!(self, Self::YesOrNo(false))
    }
}
