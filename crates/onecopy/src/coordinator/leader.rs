//! The leader of a cluster: a coordinator, and the state that only the leader has.
//!
//! That is the log with the identities in it, which records each replica still needs, what the register says of the
//! members, and the drivers of the replicas' agents. Sessions have none of it: they reach the leader by events to the core.
//!
//! Invariant: a leader lives for one term ([`super::term`]).

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use cluster::Cluster;
use cluster::ids::ReplicaId;
use commitlog::LogEngine;
use tokio::sync::{Mutex, Notify, mpsc};

use super::checkpoints::Checkpoints;
use super::core::{Core, LocalCore, Outputs};
use super::crews::Crews;
use super::drivers::Drivers;
use super::elasticity::Elasticity;
use super::evictions::EvictionsByReplica;
use super::held_backends::HeldBackends;
use super::identities::Identities;
use super::log_retention::{LogRetention, Retention};
use super::mailboxes::{Mailboxes, OWN_CREW};
use super::messages::Messages;
use super::node_kind::NodeKind;
use super::parking::Parking;
use super::performances::Performances;
use super::placement_file::PlacementFile;
use super::quarantines::Quarantines;
use super::requests::MemberRequest;
use super::sequence_allocation::SequenceAllocation;
use super::splits::LastSplits;
use super::term::TermState;
use super::view::View;
use super::{Coordinator, Seat, Seats};
use crate::capture::vouch::Voucher;
use crate::database::Database;
use crate::local::LocalState;
use crate::local::limits::Limits;

/// The parts of a node from which its leader starts.
pub(crate) struct LeaderOptions {
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
    /// Proves to the servers that a connection is Onecopy's.
    pub(crate) voucher: Voucher,
    /// The checkpoints.
    pub(crate) checkpoints: Checkpoints,
    /// The operator's limits.
    pub(crate) limits: Limits,
    /// The state of this node.
    pub(crate) local: Arc<LocalState>,
    /// Who was evicted at servers.
    pub(crate) evictions: Arc<EvictionsByReplica>,
    /// Where sessions of the former term have left state.
    pub(crate) held: HeldBackends,
}

/// A coordinator with the state of the leader. It is used like the coordinator itself: `leader.core.tell(event)`.
pub(crate) struct Leader {
    /// What sessions share.
    pub(crate) coordinator: Arc<Coordinator>,
    /// The core.
    pub(crate) core: Arc<LocalCore>,
    /// The sessions of all nodes.
    pub(crate) crews: Arc<Crews>,
    /// The term.
    pub(crate) term: TermState,
    /// The log.
    pub(crate) log: Arc<dyn LogEngine>,
    /// The version of each identity in the log.
    pub(crate) identities: Arc<Identities>,
    /// Proves to the servers that a connection is Onecopy's.
    pub(crate) voucher: Voucher,
    /// The drivers of the replicas' agents.
    pub(crate) drivers: Drivers,
    /// Which records each replica still needs, and why one is quarantined.
    pub(crate) retention: Retention,
    /// What the log is also kept for.
    pub(crate) checkpoints: Arc<Checkpoints>,
    /// Which replicas are parked.
    pub(crate) parking: Parking,
    /// The entry of what each replica holds. Held while that changes.
    pub(super) placement: std::sync::Mutex<PlacementFile>,
    /// How large the cluster is, and why.
    pub(crate) elasticity: Elasticity,
    /// The way to the task that keeps the list of members.
    pub(crate) registry: OnceLock<mpsc::Sender<MemberRequest>>,
    /// Held while VERIFY or CHECK compares the replicas.
    pub(crate) verification: Mutex<()>,
}

impl Leader {
    /// Starts no task; the caller starts the log's writer.
    pub(crate) fn new(log: Arc<dyn LogEngine>, seats: Vec<Seat>, options: LeaderOptions) -> Arc<Self> {
        let LeaderOptions { kind, core, anchor, database, term, identities, .. } = options;
        let LeaderOptions { voucher, checkpoints, limits, local, evictions, held, .. } = options;
        let register = Arc::clone(&term.register);
        let seats = Arc::new(Seats::new(seats, limits.reader_patience, evictions));
        let members = seats.iter().map(|seat| seat.replica);
        let retention =
            Retention::new(LogRetention::of(members), Quarantines::of(Arc::clone(&register)), limits);
        let (view, mailboxes) =
            (Arc::new(View::new(anchor, log.durable())), Arc::new(Mailboxes::of(OWN_CREW)));
        let (identities, performances) = (Arc::new(identities), Arc::<Performances>::default());
        let crews = Arc::new(Crews::after(held));
        let outputs = Outputs {
            cluster_id: term.cluster_id,
            view: Arc::clone(&view),
            mailboxes: Arc::clone(&mailboxes),
            crews: Arc::clone(&crews),
            seats: Arc::clone(&seats),
            identities: Arc::clone(&identities),
            messages: Messages::new(),
            performances: Arc::clone(&performances),
            log: Arc::clone(&log),
            database: Arc::clone(&database),
            local: Arc::clone(&local),
        };
        let core = Arc::new(LocalCore::new(core, outputs));
        let coordinator = Arc::new(Coordinator {
            cluster_id: term.cluster_id,
            core: Core::Here(Arc::clone(&core)),
            view,
            mailboxes,
            seats,
            kind,
            performances,
            database,
            spills: log.spills(),
            sequences: SequenceAllocation::default(),
            deadlock_search: Notify::new(),
            last_splits: LastSplits::default(),
            local,
        });
        let leader = Arc::new(Self {
            coordinator,
            core,
            crews,
            term,
            log,
            identities,
            voucher,
            drivers: Drivers::in_this_runtime(),
            retention,
            checkpoints: Arc::new(checkpoints),
            parking: Parking::new(Arc::clone(&register)),
            placement: std::sync::Mutex::new(PlacementFile::of(&register)),
            elasticity: Elasticity::new(register),
            registry: OnceLock::new(),
            verification: Mutex::default(),
        });
        leader.seats.set_reader_patience(anchor);
        leader.forget_oids();
        leader.remember_quarantines();
        leader.remember_parked();
        leader
    }
}

impl Deref for Leader {
    type Target = Coordinator;

    fn deref(&self) -> &Coordinator {
        &self.coordinator
    }
}

impl std::fmt::Debug for Leader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leader").field("term", &self.term).finish_non_exhaustive()
    }
}
