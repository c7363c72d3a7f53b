//! The components that sessions, agents and tasks of a node share: the core, the replicas, the mailboxes of sessions.
//!
//! Each component owns its state and is used directly: `coordinator.core.tell(event)`, `coordinator.view.anchor()`.
//! Methods of [`Coordinator`] itself are those that need several components, such as the end of a session.
//!
//! A [`Coordinator`] is what sessions need. A [`Leader`] has one, and has what only the leader of a cluster has: the log, and
//! what is known of the members.

mod absence;
mod catalogue;
pub(crate) mod checkpoints;
mod core;
mod crew_service;
mod crew_spills;
mod crews;
mod current_replicas;
pub(crate) mod dispatch;
mod drivers;
pub(crate) mod elasticity;
pub(crate) mod errands;
pub(crate) mod etcd_log;
pub(crate) mod evictions;
pub(crate) mod following;
pub(crate) mod held_backends;
pub(crate) mod identities;
pub(crate) mod leader;
mod leading;
pub(crate) mod log_retention;
pub(crate) mod mailbox;
pub(crate) mod mailboxes;
mod members;
pub(crate) mod messages;
pub(crate) mod node_kind;
pub(crate) mod node_link;
pub(crate) mod open_error;
pub(crate) mod parking;
pub(crate) mod performances;
pub(crate) mod placement_file;
mod placing;
pub(crate) mod plan;
pub(crate) mod quarantines;
pub(crate) mod register;
mod replica_address;
mod replicas;
pub(crate) mod requests;
pub(crate) mod resync_progress;
pub(crate) mod scheduler_messages;
mod seat;
mod seats;
mod sequence_allocation;
pub(crate) mod splits;
pub(crate) mod term;
mod version_lease;
mod view;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use cluster::event::Event;
use cluster::ids::{ClusterId, ReplicaId, SessionId, TableId};
use cluster::placement::Holdings;
use cluster::protocols::ReplicaStatus;
use cluster::record::Sequence;
use commitlog::SpillStore;
use tokio::sync::Notify;

use self::core::Core;
use crate::capture::quoting::quoted;
use crate::capture::shares::{Numbering, Shares};
use crate::database::Database;
use crate::local::LocalState;
use mailbox::Mailbox;
use mailboxes::Mailboxes;
use node_kind::NodeKind;
use performances::{Performance, PerformanceQueue, Performances};
use resync_progress::ResyncStage;
use sequence_allocation::SequenceAllocation;
use splits::LastSplits;
use view::View;

pub(crate) use absence::{Absence, Obstacle};
pub(crate) use current_replicas::FreshReplica;
pub(crate) use leader::{Leader, LeaderOptions};
pub(crate) use leading::{Leading, NodeRole, NodeStatus};
pub(crate) use quarantines::QuarantineDuration;
pub(crate) use replica_address::ReplicaAddress;
pub(crate) use requests::AgentOrder;
pub(crate) use seat::{MemberState, RunProof, Seat};
pub(crate) use seats::Seats;
pub(crate) use version_lease::VersionLease;

/// What the sessions of a node share. Its parts own their data.
pub(crate) struct Coordinator {
    /// The cluster that the node belongs to.
    pub(crate) cluster_id: ClusterId,
    /// The way to the cluster core.
    pub(crate) core: Core,
    /// The state of the cluster that is visible without asking the core.
    pub(crate) view: Arc<View>,
    /// The mailboxes of the open sessions.
    pub(crate) mailboxes: Arc<Mailboxes>,
    /// The replicas.
    pub(crate) seats: Arc<Seats>,
    /// How this node keeps its replicas equal.
    pub(crate) kind: Arc<dyn NodeKind>,
    performances: Arc<Performances>,
    /// The database that is served.
    pub(crate) database: Arc<Database>,
    /// Where rows go that are too many for records.
    pub(crate) spills: Arc<dyn SpillStore>,
    /// The demand for ranges of sequences.
    pub(crate) sequences: SequenceAllocation,
    /// Starts the next search for deadlocks between homes.
    pub(crate) deadlock_search: Notify,
    last_splits: LastSplits,
    /// The state of this node.
    pub(crate) local: Arc<LocalState>,
}

impl Coordinator {
    /// A new session and its mailbox, whose transactions other replicas do not perform.
    pub(crate) fn open_session(&self) -> (SessionId, Arc<Mailbox>) {
        self.open_session_with(Arc::default())
    }

    /// A new session and its mailbox. Other replicas perform its transactions through this queue.
    pub(crate) fn open_session_with(&self, performances: Arc<PerformanceQueue>) -> (SessionId, Arc<Mailbox>) {
        self.local.stats.sessions.fetch_add(1, Ordering::Relaxed);
        self.mailboxes.open(performances)
    }

    /// The same for a session that had this number in the process before this one.
    pub(crate) fn reopen_session(
        &self,
        number: u64,
        performances: Arc<PerformanceQueue>,
    ) -> (SessionId, Arc<Mailbox>) {
        self.local.stats.sessions.fetch_add(1, Ordering::Relaxed);
        self.mailboxes.reopen(number, performances)
    }

    /// An execution at a replica that is not the home of its transaction is over.
    pub(crate) fn close_performance(&self, performance: &Arc<Performance>) {
        self.performances.ended(performance);
    }

    /// The session has ended: its wait and its transaction end, too.
    pub(crate) fn close_session(&self, id: SessionId) {
        self.core.tell(Event::GiveUp { session: id });
        self.core.tell(Event::Release { session: id });
        self.core.close(id);
        self.mailboxes.close(id);
        self.local.remove_session(id);
        self.local.stats.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// The members, in the order of their numbers.
    pub(crate) fn replicas(&self) -> Vec<ReplicaStatus> {
        self.kind.replicas(self)
    }

    /// Runs `work` with the replica's server. Returns `None` if an agent gives the server up meanwhile. In a kind of
    /// node without such agents, `work` has to end by itself.
    pub(crate) async fn unless_given_up<W: Future>(&self, replica: ReplicaId, work: W) -> Option<W::Output> {
        if !self.kind.gives_up_servers() {
            return Some(work.await);
        }
        let seat = &self.seats[replica];
        seat.run.unless_given_up(seat.run.incarnation(), work).await
    }

    /// What a replica holds of each table of the database.
    pub(crate) fn shares(&self, replica: ReplicaId) -> Shares {
        // Without a core nothing is captured.
        let has_core = self.core.placement().is_some();
        let numbering = if has_core { Numbering::ByCapture } else { Numbering::ByName };
        let placement = self.kind.placement(self);
        let holdings = placement.map_or_else(Holdings::everything, |placement| placement.holdings(replica));
        Shares { holdings, database: self.database.served.id, numbering }
    }

    /// The stage of a replica's rebuild. `None` when there is no rebuild.
    pub(crate) fn stage(&self, replica: ReplicaId) -> Option<ResyncStage> {
        let stage = &self.seats[replica].stage;
        stage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the stage of a replica's rebuild and returns the earlier one.
    pub(crate) fn set_stage(&self, replica: ReplicaId, stage: Option<ResyncStage>) -> Option<ResyncStage> {
        let noted = &self.seats[replica].stage;
        std::mem::replace(&mut *noted.lock().unwrap_or_else(PoisonError::into_inner), stage)
    }

    /// A replica was drained, or takes work again. Idle connections to a drained replica are closed.
    fn note_drain(&self, replica: ReplicaId, is_drained: bool) {
        self.local.drain(replica, is_drained);
        if is_drained {
            self.mailboxes.drained();
        }
    }

    /// The anchor is about to be replaced: sessions that hold state there end; `None` ends that.
    fn note_leaving(&self, anchor: Option<ReplicaId>) {
        self.local.sessions.leave(anchor);
        if anchor.is_some() {
            self.mailboxes.drained();
        }
    }

    pub(crate) fn drained(&self) -> Vec<ReplicaId> {
        let drained = self.replicas().into_iter().filter(|status| status.is_drained);
        drained.map(|status| status.replica).collect()
    }

    /// The number of sessions with work at a replica: a running statement, or an open transaction.
    pub(crate) fn users_of(&self, status: &ReplicaStatus) -> usize {
        let entries = self.local.sessions.entries();
        entries.iter().filter(|entry| entry.is_open_at(status.replica)).count().max(status.open)
    }

    /// The name of a table for people: with its schema, in quotes where needed.
    pub(crate) fn table_name(&self, table: TableId) -> String {
        match self.database.catalogue().table(table) {
            Some(found) => format!("{}.{}", quoted(&found.schema), quoted(&found.name)),
            None => format!("table number {}", table.number),
        }
    }

    /// The marks that the next record of the anchor's should bring, for ranges that were drawn for leases.
    pub(crate) fn wanted_marks(&self) -> Vec<Sequence> {
        if !self.sequences.wants_marks() {
            return Vec::new();
        }
        let (anchor, durable) = (self.view.anchor(), self.view.durable());
        self.database.sequences().wanted_marks(anchor, durable)
    }

    /// Forgets the object ids of all replicas: a server came up anew.
    pub(crate) fn forget_oids(&self) {
        self.seats.forget_oids(self.view.anchor(), &self.database);
    }
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator").field("cluster", &self.cluster_id).finish_non_exhaustive()
    }
}
