//! The parts of a process that do not depend on which node leads: the database, the clients' state, pools, and the kind of node.
//!
//! A leader is made of it for each term of this node ([`Process::lead`]). Sessions use the leader's coordinator where a node is alone.
//! Where there are several, they have one of their own, which outlives terms ([`Process::follow`]).

use std::sync::Arc;
use std::time::Duration;

use cluster::Cluster;
use cluster::ids::{ClusterId, ReplicaId};
use commitlog::SpillStore;
use tokio::task::JoinHandle;

use super::fenced_log::FencedLog;
use crate::capture::vouch::Voucher;
use crate::config::runtime::RuntimeConfig;
use crate::coordinator::checkpoints::Checkpoints;
use crate::coordinator::errands::Errands;
use crate::coordinator::evictions::EvictionsByReplica;
use crate::coordinator::following::Following;
use crate::coordinator::held_backends::HeldBackends;
use crate::coordinator::open_error::OpenError;
use crate::coordinator::term::TermState;
use crate::coordinator::{Coordinator, Leader, LeaderOptions, ReplicaAddress, Seat};
use crate::database::Database;
use crate::link::node_kind::ServesClients;
use crate::local::limits::Limits;
use crate::local::{IdleConnections, LocalState};
use crate::pool::Pools;
use crate::security::seal::Seal;

/// The parts of a process that outlive terms.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) cluster: ClusterId,
    pub(super) database: Arc<Database>,
    pub(super) kind: Arc<dyn ServesClients>,
    pub(super) local: Arc<LocalState>,
    pub(super) pools: Arc<Pools>,
    limits: Limits,
    evictions: Arc<EvictionsByReplica>,
}

/// What a term begins with, beside its log.
pub(super) struct TermParts {
    /// The members, in the order of their numbers.
    pub(super) places: Vec<ReplicaAddress>,
    /// The core, if this kind of node has one.
    pub(super) core: Option<Cluster>,
    /// The first anchor.
    pub(super) anchor: ReplicaId,
    /// What the log is also kept for.
    pub(super) checkpoints: Checkpoints,
    /// No client was ever served.
    pub(super) is_founding: bool,
    /// Where sessions of the former term have left state.
    pub(super) held: HeldBackends,
}

impl Process {
    pub(super) fn new(
        cluster: ClusterId,
        database: Arc<Database>,
        kind: Arc<dyn ServesClients>,
        limits: Limits,
        runtime_config: RuntimeConfig,
        seal: Seal,
    ) -> Self {
        let local = LocalState::new(&limits, runtime_config, Arc::new(seal));
        let pools = Pools::new(limits.pooling);
        local.set_idle_connections(Arc::clone(&pools) as Arc<dyn IdleConnections>);
        Self { cluster, database, kind, local, pools, limits, evictions: Arc::default() }
    }

    /// The leader of a term, with the tasks that it runs beside its drivers.
    pub(super) fn lead(
        &self,
        fenced: FencedLog,
        parts: TermParts,
    ) -> Result<(Arc<Leader>, Vec<JoinHandle<()>>), OpenError> {
        let FencedLog { log, recovered, identities, register, term, receiver } = fenced;
        let TermParts { places, core, anchor, checkpoints, is_founding, held } = parts;
        let (seats, queues): (Vec<Seat>, Vec<_>) =
            places.into_iter().map(|at| Seat::new(at, &self.evictions)).unzip();
        let members: Vec<ReplicaId> = seats.iter().map(|seat| seat.replica).collect();
        let options = LeaderOptions {
            kind: Arc::clone(&self.kind) as Arc<_>,
            core,
            anchor,
            database: Arc::clone(&self.database),
            term: TermState::new(self.cluster, term.epoch, recovered.begun, is_founding, register),
            identities,
            voucher: Voucher::draw()?,
            checkpoints,
            limits: self.limits,
            local: Arc::clone(&self.local),
            evictions: Arc::clone(&self.evictions),
            held,
        };
        self.database.begin_term();
        let leader = Leader::new(log, seats, options);
        if !receiver.set(&leader) {
            return Err(OpenError::Twice("the log was started"));
        }
        let orders = members.into_iter().zip(queues).collect();
        let chores = Arc::clone(&self.kind).start(&leader, orders)?;
        Ok((leader, chores))
    }

    /// The coordinator of sessions that reach the core over a link.
    pub(super) fn follow(
        &self,
        members: Vec<ReplicaAddress>,
        anchor: ReplicaId,
        spills: Arc<dyn SpillStore>,
        errands: Errands,
        patience: Duration,
    ) -> Arc<Coordinator> {
        Coordinator::following(Following {
            cluster_id: self.cluster,
            kind: Arc::clone(&self.kind) as Arc<_>,
            members,
            anchor,
            database: Arc::clone(&self.database),
            spills,
            local: Arc::clone(&self.local),
            evictions: Arc::clone(&self.evictions),
            errands,
            patience,
        })
    }
}
