//! The components that sessions, agents and tasks of a node share: the core, the log, the replicas.
//!
//! Each component owns its state and is used directly: `coordinator.core.tell(event)`, `coordinator.view.anchor()`.
//! Methods of [`Coordinator`] itself are those that need several components, such as the end of a session or the
//! trimming of the log.

mod absence;
mod catalogue;
pub(crate) mod checkpoints;
mod core;
mod current_replicas;
mod drivers;
pub(crate) mod elasticity;
pub(crate) mod evictions;
pub(crate) mod identities;
mod lead;
pub(crate) mod log_retention;
pub(crate) mod mailbox;
mod mailboxes;
mod members;
pub(crate) mod messages;
pub(crate) mod node_kind;
pub(crate) mod open_error;
pub(crate) mod parking;
pub(crate) mod performances;
mod placement_file;
mod placing;
pub(crate) mod plan;
pub(crate) mod quarantines;
mod replica_address;
mod replicas;
pub(crate) mod requests;
pub(crate) mod resync_progress;
mod seat;
mod seats;
mod sequence_allocation;
pub(crate) mod splits;
pub(crate) mod term;
mod view;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::Cluster;
use cluster::event::Event;
use cluster::ids::{ReplicaId, SessionId};
use cluster::protocols::ReplicaStatus;
use cluster::record::Sequence;
use commitlog::LogEngine;

use self::core::{Core, Outputs};
use crate::database::Database;
use crate::local::LocalState;
use crate::local::limits::Limits;
use checkpoints::Checkpoints;
use drivers::Drivers;
use elasticity::UsageFile;
use identities::Identities;
use lead::{Lead, MemberFiles};
use mailbox::Mailbox;
use mailboxes::Mailboxes;
use messages::Messages;
use node_kind::NodeKind;
use parking::ParkedFiles;
use performances::{Performance, PerformanceQueue, Performances};
use placement_file::PlacementFile;
use quarantines::Quarantines;
use splits::LastSplits;
use term::TermState;
use view::View;

pub(crate) use absence::{Absence, Obstacle};
pub(crate) use quarantines::QuarantineDuration;
pub(crate) use replica_address::ReplicaAddress;
pub(crate) use requests::AgentOrder;
pub(crate) use seat::{MemberState, Seat};
pub(crate) use seats::Seats;

/// The parts of a node from which its coordinator starts.
pub(crate) struct CoordinatorOptions {
    /// How the node keeps its replicas equal.
    pub(crate) kind: Arc<dyn NodeKind>,
    /// The core, if this kind of node has one.
    pub(crate) core: Option<Cluster>,
    /// The first anchor.
    pub(crate) anchor: ReplicaId,
    /// The database that is served.
    pub(crate) database: Arc<Database>,
    /// The term that begins.
    pub(crate) term: TermState,
    /// The identities of the records in the log.
    pub(crate) identities: Identities,
    /// The quarantines that outlive a restart.
    pub(crate) quarantines: Quarantines,
    /// The files of parked replicas.
    pub(crate) parked: ParkedFiles,
    /// The file of what each replica holds.
    pub(crate) placement: PlacementFile,
    /// The file of what the servers have cost.
    pub(crate) usage: UsageFile,
    /// The checkpoints.
    pub(crate) checkpoints: Checkpoints,
    /// The operator's limits.
    pub(crate) limits: Limits,
    /// The state of this node.
    pub(crate) local: Arc<LocalState>,
}

/// The shared state of a node. Its parts own their data.
pub(crate) struct Coordinator {
    /// The way to the cluster core.
    pub(crate) core: Core,
    /// The state of the cluster that is visible without asking the core.
    pub(crate) view: Arc<View>,
    /// The state that only the leader has.
    pub(crate) lead: Lead,
    /// The term of the leader.
    pub(crate) term: TermState,
    /// The mailboxes of the open sessions.
    pub(crate) mailboxes: Arc<Mailboxes>,
    /// The replicas.
    pub(crate) seats: Arc<Seats>,
    /// The drivers of the replicas' agents.
    pub(crate) drivers: Drivers,
    /// How this node keeps its replicas equal.
    pub(crate) kind: Arc<dyn NodeKind>,
    /// The log.
    pub(crate) log: Arc<dyn LogEngine>,
    /// The version of each identity in the log.
    pub(crate) identities: Arc<Identities>,
    performances: Arc<Performances>,
    /// The database that is served.
    pub(crate) database: Arc<Database>,
    last_splits: LastSplits,
    /// The state of this node.
    pub(crate) local: Arc<LocalState>,
}

impl Coordinator {
    /// Starts no task; the caller starts the log's writer.
    pub(crate) fn new(log: Arc<dyn LogEngine>, seats: Vec<Seat>, options: CoordinatorOptions) -> Arc<Self> {
        let CoordinatorOptions { kind, core, anchor, database, term, checkpoints, .. } = options;
        let CoordinatorOptions { identities, quarantines, parked, placement, usage, limits, local, .. } =
            options;
        let seats = Arc::new(Seats::new(seats, limits.reader_patience));
        let members = seats.iter().map(|seat| seat.replica);
        let files = MemberFiles { quarantines, parked, placement, usage, checkpoints };
        let lead = Lead::new(members, files, limits);
        let (view, mailboxes) = (Arc::new(View::new(anchor, log.durable())), Arc::<Mailboxes>::default());
        let (identities, performances) = (Arc::new(identities), Arc::<Performances>::default());
        let outputs = Outputs {
            cluster_id: term.cluster_id,
            view: Arc::clone(&view),
            mailboxes: Arc::clone(&mailboxes),
            seats: Arc::clone(&seats),
            identities: Arc::clone(&identities),
            messages: Messages::new(),
            performances: Arc::clone(&performances),
            log: Arc::clone(&log),
            database: Arc::clone(&database),
            local: Arc::clone(&local),
        };
        let core = Core::new(core, outputs);
        let drivers = Drivers::in_this_runtime();
        let coordinator = Arc::new(Self {
            core,
            view,
            lead,
            term,
            mailboxes,
            seats,
            drivers,
            kind,
            log,
            identities,
            performances,
            database,
            last_splits: LastSplits::default(),
            local,
        });
        coordinator.seats.set_reader_patience(anchor);
        coordinator.forget_oids();
        coordinator.remember_quarantines();
        coordinator.remember_parked();
        coordinator
    }

    /// A new session and its mailbox, whose transactions other replicas do not perform.
    pub(crate) fn open_session(&self) -> (SessionId, Arc<Mailbox>) {
        self.open_session_with(Arc::default())
    }

    /// A new session and its mailbox. Other replicas perform its transactions through this queue.
    pub(crate) fn open_session_with(&self, performances: Arc<PerformanceQueue>) -> (SessionId, Arc<Mailbox>) {
        self.local.stats.sessions.fetch_add(1, Ordering::Relaxed);
        self.mailboxes.open(performances)
    }

    /// An execution at a replica that is not the home of its transaction is over.
    pub(crate) fn close_performance(&self, performance: &Arc<Performance>) {
        self.performances.ended(performance);
    }

    /// The session has ended: its wait and its transaction end, too.
    pub(crate) fn close_session(&self, id: SessionId) {
        self.core.tell(Event::GiveUp { session: id });
        self.core.tell(Event::Release { session: id });
        self.mailboxes.close(id);
        self.local.remove_session(id);
        self.local.stats.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// The members, in the order of their numbers.
    pub(crate) fn replicas(&self) -> Vec<ReplicaStatus> {
        self.kind.replicas(self)
    }

    /// The marks that the next record of the anchor's should bring, for ranges that were drawn for leases.
    pub(crate) fn wanted_marks(&self) -> Vec<Sequence> {
        if !self.lead.sequences.wants_marks() {
            return Vec::new();
        }
        let (anchor, durable) = (self.view.anchor(), self.log.durable());
        self.database.sequences().wanted_marks(anchor, durable)
    }

    /// Forgets the object ids of all replicas: a server came up anew.
    pub(crate) fn forget_oids(&self) {
        self.seats.forget_oids(self.view.anchor(), &self.database);
    }
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator").field("cluster", &self.term.cluster_id).finish_non_exhaustive()
    }
}
