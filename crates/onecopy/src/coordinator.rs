//! The components that sessions, agents and tasks of a node share: the core, the log, the replicas.
//!
//! Each component owns its state and is used directly: `coordinator.core.tell(event)`, `coordinator.view.anchor()`. Methods of
//! [`Coordinator`] itself are those that need several components, such as the end of a session or the trimming of the log.

mod absence;
mod catalogue;
mod core;
pub(crate) mod evictions;
pub(crate) mod identities;
pub(crate) mod log_retention;
pub(crate) mod mailbox;
mod mailboxes;
mod members;
pub(crate) mod node_kind;
pub(crate) mod open_error;
pub(crate) mod plan;
pub(crate) mod quarantines;
mod replica_address;
mod replicas;
pub(crate) mod requests;
pub(crate) mod resync_progress;
mod seat;
mod seats;
mod sequences;
mod view;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use cluster::Cluster;
use cluster::event::Event;
use cluster::ids::{ClusterId, Epoch, ReplicaId, SessionId, Version};
use cluster::protocols::ReplicaStatus;
use commitlog::{LogEngine, LogFailure};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use self::core::{Core, Outputs};
use crate::database::Database;
use crate::local::LocalState;
use crate::local::limits::Limits;
use identities::Identities;
use log_retention::{LogRetention, Retention};
use mailbox::Mailbox;
use mailboxes::Mailboxes;
use node_kind::NodeKind;
use quarantines::Quarantines;
use requests::MemberRequest;
use view::View;

pub(crate) use absence::{Absence, Obstacle};
pub(crate) use quarantines::QuarantineDuration;
pub(crate) use replica_address::ReplicaAddress;
pub(crate) use requests::AgentOrder;
pub(crate) use seat::Seat;
pub(crate) use seats::Seats;

/// What the node gives the coordinator when it starts.
pub(crate) struct CoordinatorOptions {
    /// How the node keeps its replicas equal.
    pub(crate) kind: Arc<dyn NodeKind>,
    /// The core, if this kind of node has one.
    pub(crate) core: Option<Cluster>,
    /// The home of updates.
    pub(crate) anchor: ReplicaId,
    /// Which cluster this is.
    pub(crate) cluster_id: ClusterId,
    /// The database that it serves.
    pub(crate) database: Arc<Database>,
    /// This leader's term.
    pub(crate) epoch: Epoch,
    /// The log had no record when it was opened.
    pub(crate) log_was_empty: bool,
    /// No client was ever served.
    pub(crate) is_founding: bool,
    /// The identities of the records in the log.
    pub(crate) identities: Identities,
    /// The quarantines that outlive a restart.
    pub(crate) quarantines: Quarantines,
    /// What the operator allows.
    pub(crate) limits: Limits,
    /// The state of this node.
    pub(crate) local: Arc<LocalState>,
}

/// The shared state of a node. Its parts own what they hold.
pub(crate) struct Coordinator {
    /// The way to the cluster core.
    pub(crate) core: Core,
    /// The cluster as it can be seen without asking the core.
    pub(crate) view: Arc<View>,
    /// The mailboxes of the open sessions.
    pub(crate) mailboxes: Arc<Mailboxes>,
    /// The state of this node.
    pub(crate) local: Arc<LocalState>,
    /// The log.
    pub(crate) log: Arc<dyn LogEngine>,
    /// The replicas.
    pub(crate) seats: Arc<Seats>,
    /// How this node keeps its replicas equal.
    pub(crate) kind: Arc<dyn NodeKind>,
    /// Their replica_drivers.
    replica_drivers: Mutex<JoinSet<()>>,
    /// Where those run.
    runtime: Handle,
    /// The way to the task that keeps the list of members.
    pub(crate) registry: OnceLock<mpsc::Sender<MemberRequest>>,
    /// Which cluster this is.
    pub(crate) cluster_id: ClusterId,
    /// The database that it serves.
    pub(crate) database: Arc<Database>,
    /// This leader's term.
    pub(crate) epoch: Epoch,
    /// The log had no record when it was opened.
    pub(crate) log_was_empty: bool,
    /// The cluster comes into being: a server that has nothing of it may become a member.
    pub(crate) is_founding: Arc<AtomicBool>,
    /// A replica has what the log never had.
    pub(crate) log_is_lost: AtomicBool,
    /// The version of each identity in the log.
    pub(crate) identities: Arc<Identities>,
    /// VERIFY is running.
    pub(crate) is_verifying: AtomicBool,
    /// Wakes the task that looks for deadlocks.
    pub(crate) looking: Notify,
    /// Wakes the task that lends ranges of sequences.
    pub(crate) lending: Notify,
    /// The next record of the anchor's should bring marks for what was drawn to be lent.
    pub(crate) wants_marks: AtomicBool,
    /// What is known of them includes what was logged before this node started.
    has_learned: AtomicBool,
    /// Held by the replica_driver that finds that out.
    pub(crate) learning: tokio::sync::Mutex<()>,
    /// What is durable at each replica, and why one is quarantined.
    pub(crate) retention: Retention,
    failure: watch::Sender<Option<String>>,
}

impl Coordinator {
    /// Nothing runs yet; the log's writer is started by the caller.
    pub(crate) fn new(log: Arc<dyn LogEngine>, seats: Vec<Seat>, options: CoordinatorOptions) -> Arc<Self> {
        let CoordinatorOptions { anchor, cluster_id, database, epoch, log_was_empty, is_founding, .. } =
            options;
        let CoordinatorOptions { kind, core, identities, quarantines, limits, local, .. } = options;
        let Limits { reader_patience, log_bytes_max, .. } = limits;
        let seats = Arc::new(Seats::new(seats, reader_patience));
        let retention = LogRetention::of(seats.iter().map(|seat| seat.replica));
        let retention = Retention::new(retention, quarantines, log_bytes_max);
        let (view, mailboxes, identities) =
            (Arc::new(View::new(anchor)), Arc::<Mailboxes>::default(), Arc::new(identities));
        let outputs = Outputs {
            cluster_id,
            view: Arc::clone(&view),
            mailboxes: Arc::clone(&mailboxes),
            seats: Arc::clone(&seats),
            identities: Arc::clone(&identities),
            log: Arc::clone(&log),
            database: Arc::clone(&database),
            local: Arc::clone(&local),
        };
        let coordinator = Arc::new(Self {
            core: Core::new(core, outputs),
            view,
            mailboxes,
            local,
            log,
            seats,
            kind,
            replica_drivers: Mutex::default(),
            runtime: Handle::current(),
            registry: OnceLock::new(),
            cluster_id,
            database,
            epoch,
            log_was_empty,
            is_founding: Arc::new(AtomicBool::new(is_founding)),
            log_is_lost: AtomicBool::new(false),
            identities,
            is_verifying: AtomicBool::new(false),
            looking: Notify::new(),
            lending: Notify::new(),
            wants_marks: AtomicBool::new(false),
            has_learned: AtomicBool::new(false),
            retention,
            learning: tokio::sync::Mutex::default(),
            failure: watch::channel(None).0,
        });
        coordinator.seats.set_reader_patience(anchor);
        coordinator.forget_oids();
        coordinator.remember_quarantines();
        coordinator
    }

    /// A new session and its mailbox.
    pub(crate) fn open_session(&self) -> (SessionId, Arc<Mailbox>) {
        self.local.stats.sessions.fetch_add(1, Ordering::Relaxed);
        self.mailboxes.open()
    }

    /// The session is gone: its wait and its transaction end.
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

    /// The last durable version.
    pub(crate) fn durable(&self) -> Version {
        self.kind.durable(self)
    }

    /// Forgets the object ids of all replicas: a server came up anew.
    pub(crate) fn forget_oids(&self) {
        self.seats.forget_oids(self.view.anchor(), &self.database);
    }

    /// The log cannot go on, so nothing can be acknowledged any more: the node has to stop.
    pub(crate) fn log_failed(&self, failure: &LogFailure) {
        self.failure.send_replace(Some(failure.to_string()));
    }

    /// Waits for [`Coordinator::log_failed`] and returns its reason.
    pub(crate) async fn failed(&self) -> String {
        let mut failure = self.failure.subscribe();
        match failure.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator").field("cluster", &self.cluster_id).finish_non_exhaustive()
    }
}
