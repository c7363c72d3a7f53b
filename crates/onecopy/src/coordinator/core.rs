//! The way of sessions to the cluster core, on this node or on another one.
//!
//! A session hands its events to [`Core::tell`] or [`Core::ask`]. Its effects arrive in its mailbox, or come back at once if the core
//! is here. What a session asks besides is a future, which is ready at once if the core is here, and takes an exchange with the
//! leader if not. For example, a session that withdraws a statement waits for [`Core::effects_so_far`]; then its mailbox has
//! the effects that crossed its event.
//!
//! Invariant: the view of this node shows the changes of an event before any effect of the event can be seen.
//!
//! Not here: what only the leader asks its own core ([`LocalCore`]).

mod clock;
mod leases;
mod local;
mod outputs;
mod questions;
mod remote;

use std::io;
use std::sync::Arc;

use cluster::claims::Claims;
use cluster::event::{Effect, Event, Reads, Rival};
use cluster::ids::{DatabaseId, Identity, ReplicaId, SessionId, TableId, Version};
use cluster::parts::sequences::{Draw, Reading, Verdict};
use cluster::placement::{Copies, Holdings, Placement, ReplicaSet};
use cluster::protocols::{ReplicaStatus, Waiting};
use commitlog::LogRefusal;

use super::mailbox::Mailbox;
use super::node_link::{Answer, Question, SpillPart};
use crate::coordinator::scheduler_messages::ToScheduler;

pub(crate) use local::LocalCore;
pub(super) use local::OutcomeQuestion;
pub(super) use outputs::Outputs;
pub(super) use remote::{News, RemoteCore};

/// Where the core is.
pub(crate) enum Core {
    /// On this node; sessions use it directly.
    Here(Arc<LocalCore>),
    /// At the leader, over a link.
    There(Box<RemoteCore>),
}

impl Core {
    /// Hands one event to the core.
    pub(crate) fn tell(&self, event: Event) {
        match self {
            Self::Here(core) => core.tell(event),
            Self::There(core) => core.tell(event),
        }
    }

    /// Like [`Core::tell`]. If the core is here and the event lets this session execute at once, this returns that effect,
    /// which then skips the mailbox.
    pub(crate) fn ask(&self, own: SessionId, event: Event) -> Option<Effect> {
        match self {
            Self::Here(core) => core.ask(Some(own), event),
            Self::There(core) => {
                core.tell(event);
                None
            }
        }
    }

    /// Hands over the event that ends an exchange of this session with the core: no effect of what came before reaches its mailbox
    /// any more.
    pub(crate) fn end_exchange(&self, mailbox: &Mailbox, event: Event) {
        self.tell(event);
        mailbox.clear();
    }

    /// A session has ended.
    pub(super) fn close(&self, session: SessionId) {
        match self {
            Self::Here(core) => core.tell(Event::Closed { session }),
            Self::There(core) => core.close(session),
        }
    }

    /// Whether a leader takes what sessions say.
    pub(crate) fn is_joined(&self) -> bool {
        match self {
            Self::Here(_) => true,
            Self::There(core) => core.is_joined(),
        }
    }

    /// How often the sessions have joined a leader.
    pub(crate) fn joins(&self) -> u64 {
        match self {
            Self::Here(_) => 0,
            Self::There(core) => core.joins(),
        }
    }

    /// Whether no leader has taken what sessions say for as long as the operator allows.
    pub(crate) fn is_leaderless(&self) -> bool {
        match self {
            Self::Here(_) => false,
            Self::There(core) => core.is_leaderless(),
        }
    }

    /// Whether the core is on this node.
    pub(crate) fn is_here(&self) -> bool {
        matches!(self, Self::Here(_))
    }

    /// Hands over an event that the core answers at once, and waits for the answer. `None` if the transaction is over.
    pub(crate) async fn ask_and_wait(
        &self,
        own: SessionId,
        mailbox: &Mailbox,
        event: Event,
    ) -> Option<Effect> {
        match self {
            Self::Here(core) => core.ask(Some(own), event),
            Self::There(core) => {
                core.tell(event);
                core.question(Question::EffectsSoFar).await;
                mailbox.take_answer(own)
            }
        }
    }

    /// Waits until the effects are in the mailbox that were under way when the session's last event reached the core.
    pub(crate) async fn effects_so_far(&self) {
        if let Self::There(core) = self {
            core.question(Question::EffectsSoFar).await;
        }
    }

    /// Waits until the view shows all that was durable when this was called. It always does if the core is here.
    pub(crate) async fn present_view(&self) {
        self.effects_so_far().await;
    }

    /// The wait of a session for transactions of other homes, if it waits.
    pub(crate) async fn wait_of(&self, session: SessionId) -> Option<Waiting> {
        match self {
            Self::Here(core) => core.wait_of(session),
            Self::There(core) => match core.question(Question::WaitOf { session }).await {
                Some(Answer::Wait(waiting)) => waiting.map(|waiting| *waiting),
                _ => None,
            },
        }
    }

    /// A transaction of another home that has written some of these claims since the session's transaction began.
    pub(crate) async fn earlier_writer(&self, session: SessionId, claims: Claims) -> Option<Rival> {
        match self {
            Self::Here(core) => core.earlier_writer(session, &claims),
            Self::There(core) => match core.question(Question::EarlierWriter { session, claims }).await {
                Some(Answer::Writer(rival)) => rival,
                _ => None,
            },
        }
    }

    /// Whether a schema change after this version may have changed the definition of an object that is mentioned in a
    /// database. `None` if the leader is lost meanwhile, and open transactions with it.
    pub(crate) async fn redefines(
        &self,
        since: Version,
        database: DatabaseId,
        mentioned: &[u64],
    ) -> Option<bool> {
        match self {
            Self::Here(core) => Some(core.redefines(since, database, mentioned)),
            Self::There(core) => {
                let question = Question::Redefines { since, database, mentioned: mentioned.to_vec() };
                core.question(question).await.map(|answer| answer.is_yes())
            }
        }
    }

    /// Whether a schema change after this version may have revoked sequence leases. Without a leader it may.
    pub(crate) async fn voids_lent(&self, since: Version) -> bool {
        match self {
            Self::Here(core) => core.voids_lent(since),
            Self::There(core) => {
                core.question(Question::VoidsLent { since }).await.is_none_or(|answer| answer.is_yes())
            }
        }
    }

    /// The time before sequences are read. Over a link it is an earlier one, which does no harm.
    pub(crate) fn sequence_reading(&self) -> Reading {
        match self {
            Self::Here(core) => core.sequence_reading(),
            Self::There(core) => core.sequence_reading(),
        }
    }

    /// The duty of a transaction that may have drawn from sequences. `None` without a leader; then the transaction ends.
    pub(crate) async fn judge_draw(&self, draw: Draw) -> Option<Verdict> {
        match self {
            Self::Here(core) => Some(core.judge_draw(&draw).0),
            Self::There(core) => match core.question(Question::JudgeDraw(draw)).await {
                Some(Answer::Duty { verdict, reading }) => {
                    core.note_reading(reading);
                    Some(verdict)
                }
                _ => None,
            },
        }
    }

    /// Has the leader keep rows of a transaction that are too many for its record, if the core is at the leader.
    pub(crate) async fn spill(&self, identity: Identity, part: SpillPart) -> io::Result<()> {
        match self {
            Self::Here(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::There(core) => core.spill(identity, part).await,
        }
    }

    /// A refresh overtakes the open transaction of a session of this node, whose core is at the leader.
    pub(crate) fn overtaken(&self, replica: ReplicaId, session: SessionId) {
        if let Self::There(core) = self {
            core.overtaken(replica, session);
        }
    }

    /// Says something to the scheduler at the leader, where statements are shipped. It is dropped while there is no leader.
    pub(crate) fn tell_scheduler(&self, message: ToScheduler) {
        if let Self::There(core) = self {
            core.tell_scheduler(message);
        }
    }

    /// The members, in the order of their numbers.
    pub(crate) fn replicas(&self) -> Vec<ReplicaStatus> {
        match self {
            Self::Here(core) => core.replicas(),
            Self::There(core) => core.news().replicas.clone(),
        }
    }

    /// The holdings of a replica. In a kind of node without a core each replica holds everything.
    pub(crate) fn holdings(&self, replica: ReplicaId) -> Holdings {
        match self {
            Self::Here(core) => core.holdings(replica),
            Self::There(core) => {
                let news = core.news();
                news.placement.as_ref().map_or_else(Holdings::everything, |known| known.holdings(replica))
            }
        }
    }

    /// The holders of a table.
    pub(crate) fn copies(&self, table: TableId) -> Copies {
        match self {
            Self::Here(core) => core.copies(table),
            Self::There(core) => {
                let news = core.news();
                let known = news.placement.as_ref().map(|placement| placement.copies(table));
                known.unwrap_or(Copies::Whole(ReplicaSet::EMPTY))
            }
        }
    }

    /// Who holds what. In a kind of node without a core each replica holds everything.
    pub(crate) fn placement(&self) -> Option<Placement> {
        match self {
            Self::Here(core) => core.placement(),
            Self::There(core) => core.news().placement.clone(),
        }
    }

    /// The version that an answer must be of, so that a session may be given it now in place of a read. Only the leader knows.
    pub(crate) fn answer_needs(&self, reads: &Reads, catalogue: Version) -> Option<Version> {
        match self {
            Self::Here(core) => core.answer_needs(reads, catalogue),
            Self::There(_) => None,
        }
    }

    /// The last assigned version that wrote any of this, durable or not, if the protocol knows. Only the leader knows.
    pub(crate) fn last_writer(&self, reads: &Reads) -> Option<Version> {
        match self {
            Self::Here(core) => core.last_writer(reads),
            Self::There(_) => None,
        }
    }

    /// Whether the log has room for another record; asked before a transaction begins to commit.
    pub(crate) fn has_room(&self) -> bool {
        match self {
            Self::Here(core) => core.has_room(),
            Self::There(core) => core.news().intake.has_room,
        }
    }

    /// Why the log takes no new records at present.
    pub(crate) fn refusal(&self) -> Option<LogRefusal> {
        match self {
            Self::Here(core) => core.refusal(),
            Self::There(core) if core.is_leaderless() => Some(LogRefusal::NoMajority),
            Self::There(core) => core.news().intake.refusal,
        }
    }
}
