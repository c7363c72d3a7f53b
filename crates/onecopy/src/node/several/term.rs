//! One term of this node: the log is opened and fenced, the leases of the former leader run out, then the leader serves until another
//! node leads.
//!
//! At the first start, and whenever all nodes were down, clients wait until the replicas are up to date, as at the start of a
//! node that is alone. At a take-over sessions join at once: the core lets each statement run as soon as some replica has what it needs.
//!
//! Invariant: nothing of this term is left when it ends: its agents, its tasks and its log. The next one may be of this node, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::ids::{Epoch, ReplicaId};
use commitlog::{
    Claim, Entry, EtcdError, EtcdLog, EtcdOptions, EtcdRegister, FileRegister, LogError, LogFailure,
    RegisterError,
};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use super::copy::CopyKeeper;
use super::crews::serve_crews;
use super::kind::{Beginning, SeveralKind};
use super::last_schema_change::KnownSchemaChanges;
use super::orders::{Admission, News, SessionLink, TermOrder};
use super::settings::Settings;
use crate::config::log::{EtcdPlace, LogPlace};
use crate::coordinator::checkpoints::Checkpoints;
use crate::coordinator::etcd_log::timing;
use crate::coordinator::held_backends::HeldBackends;
use crate::coordinator::open_error::{FenceError, OpenError};
use crate::coordinator::plan;
use crate::coordinator::register::TermRegister;
use crate::coordinator::{Coordinator, Leader, Leading, NodeRole, ReplicaAddress};
use crate::elastic::{self, ServerSource};
use crate::membership::adoption::{self, Places, Settled};
use crate::membership::cluster_file::{self, Membership};
use crate::membership::place_table::configured;
use crate::node::NodeError;
use crate::node::adopting::adopt;
use crate::node::fenced_log::{FencedLog, OpenLog, known_identities};
use crate::node::member_registry::MemberRegistry;
use crate::node::open::first_anchor;
use crate::node::process::{Process, TermParts};
use crate::node::start;
use crate::terminal::Progress;

/// The pause before the replicas are looked at again that could not serve.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A server that is busy with the sessions of the former term may take so long to end them.
const SLOW_FENCE: Duration = Duration::from_secs(1);
/// The part of a lease for which the nodes that were linked may take to tell what their sessions have left at servers.
const LEASE_PARTS: u32 = 2;

/// What each term of this node is made of.
pub(super) struct OwnTerm {
    pub(super) process: Process,
    pub(super) kind: SeveralKind,
    pub(super) settings: Arc<Settings>,
    pub(super) leading: Arc<Leading>,
    pub(super) copy: CopyKeeper,
    pub(super) links: mpsc::Sender<SessionLink>,
    /// The sessions of this node, which have followed the former leaders.
    pub(super) sessions: Arc<Coordinator>,
    /// Clients of this node were served before.
    pub(super) has_served: Arc<AtomicBool>,
    pub(super) progress: Progress,
}

/// Why a term ended, or did not begin.
enum Over {
    /// The conductor has said so.
    Ordered,
    /// The log is another node's, or etcd does not answer.
    LogLost(String),
    /// The node cannot go on.
    Failed(NodeError),
}

impl From<OpenError> for Over {
    fn from(error: OpenError) -> Self {
        let may_pass = match &error {
            OpenError::Log(error) => may_pass(error),
            OpenError::Fence(FenceError::Failed(failure)) => matches!(failure, LogFailure::Fenced { .. }),
            OpenError::Register(error) => matches!(
                error,
                RegisterError::Fenced { .. } | RegisterError::Store(_) | RegisterError::Outdated { .. }
            ),
            _ => false,
        };
        if may_pass { Self::LogLost(error.to_string()) } else { Self::Failed(error.into()) }
    }
}

/// Whether another leader, or this one later, can open the log.
fn may_pass(error: &LogError) -> bool {
    // The tasks of a former term may have the copy for another moment.
    let is_kept = matches!(error, LogError::InUse { .. });
    is_kept
        || matches!(
            error,
            LogError::Etcd(EtcdError::Store(_) | EtcdError::Chair(_) | EtcdError::Fenced { .. })
        )
}

impl From<NodeError> for Over {
    fn from(error: NodeError) -> Self {
        Self::Failed(error)
    }
}

/// The members as the register of a term knows them.
struct Known {
    membership: Membership,
    members: Places,
}

/// What goes on while a term is served.
struct Serving<'a> {
    admissions: mpsc::Receiver<Admission>,
    /// Closed when the term is over.
    ends: watch::Receiver<()>,
    news: &'a mpsc::Sender<News>,
}

impl OwnTerm {
    /// Serves one term. An error ends the node.
    pub(super) async fn serve(&self, order: TermOrder, news: &mpsc::Sender<News>) -> Result<(), NodeError> {
        let epoch = order.claim.epoch;
        let over = self.open_and_serve(order, news).await;
        self.copy.give_back();
        match over {
            Over::Ordered => Ok(()),
            Over::LogLost(reason) => {
                tracing::warn!(reason, "the term ends");
                // If the conductor has gone, the node stops.
                let _ = news.send(News::Lost(epoch)).await;
                Ok(())
            }
            Over::Failed(error) => Err(error),
        }
    }

    async fn open_and_serve(&self, order: TermOrder, news: &mpsc::Sender<News>) -> Over {
        let TermOrder { claim, may_serve, admissions, mut ends } = order;
        let epoch = claim.epoch;
        let opened = match self.open_log(claim.clone()).await {
            Ok(opened) => opened,
            Err(over) => return over,
        };
        let (log, register) = (Arc::clone(&opened.log), Arc::clone(&opened.register));
        let begun = async {
            let known = self.known(&opened.register).await?;
            let identities = known_identities(&opened.recovered);
            let Process { cluster, database, .. } = &self.process;
            let fenced = FencedLog::fence(opened, identities, *cluster, database).await?;
            // If the conductor has gone, the term ends with it.
            let _ = news.send(News::Opened(epoch, Arc::clone(&log))).await;
            may_serve.await.map_err(|_| Over::Ordered)?;
            Ok::<_, Over>((known, fenced))
        };
        let begun = tokio::select! {
            begun = begun => begun,
            _ = ends.changed() => Err(Over::Ordered),
        };
        let over = match begun {
            Ok((known, fenced)) => self.lead(fenced, known, epoch, Serving { admissions, ends, news }).await,
            Err(over) => over,
        };
        register.close();
        // Waits for the writer of the log, which may be waiting for etcd.
        if spawn_blocking(move || log.close()).await.is_err() {
            tracing::error!("the log of a term was not closed");
        }
        over
    }

    async fn open_log(&self, claim: Claim) -> Result<OpenLog, Over> {
        let copy = self.copy.take().await.map_err(OpenError::Log)?;
        let (etcd, settings) = (self.copy.etcd().clone(), Arc::clone(&self.settings));
        let opened = spawn_blocking(move || {
            let EtcdPlace { node, patience, .. } = settings.place.clone();
            let before = Epoch(claim.epoch.0 - 1);
            let options = EtcdOptions { node, patience };
            let (log, mut recovered) = EtcdLog::open(etcd.clone(), claim.clone(), copy, &options)?;
            // The record that opens the term has the epoch of the claim, which is above that of all records.
            recovered.last_epoch = before;
            let files = FileRegister::in_folder(&settings.folder);
            let members = EtcdRegister::peek(&etcd, &Entry::Members, patience)?;
            let register = EtcdRegister::open(etcd, claim, files, members.as_deref(), patience)?;
            let register = TermRegister::new(Arc::new(register));
            Ok::<_, OpenError>(OpenLog { log: Arc::new(log), recovered, register })
        });
        Ok(opened.await.map_err(|error| OpenError::Log(error.into()))??)
    }

    /// What the register knows of the members. Servers that are not adopted yet are inspected anew.
    async fn known(&self, register: &Arc<TermRegister>) -> Result<Known, Over> {
        let Settings { folder, served, replicas, start_patience, place, .. } = &*self.settings;
        // The files follow the register from the start of the term.
        let membership = cluster_file::read(folder).map_err(NodeError::from)?;
        let membership = membership.ok_or(NodeError::NoMembers)?;
        if membership.is_adopted() {
            let members = adoption::places(&membership, served, replicas).map_err(NodeError::from)?;
            return Ok(Known { membership, members });
        }
        tracing::info!(location = register.location(&Entry::Members), "the servers are not adopted yet");
        let log = LogPlace::Etcd(Box::new(place.clone()));
        let settled = adoption::settle(folder, &log, served, replicas, *start_patience).await;
        let Settled { membership, places, .. } = settled.map_err(NodeError::from)?;
        Ok(Known { membership, members: places })
    }

    /// Leads until the term is over, and leaves nothing of it.
    async fn lead(&self, fenced: FencedLog, known: Known, epoch: Epoch, serving: Serving<'_>) -> Over {
        let (leader, chores) = match self.assemble(fenced, &known).await {
            Ok(assembled) => assembled,
            Err(error) => {
                self.kind.end();
                return error.into();
            }
        };
        // The sessions of this node have numbers of their own: they reach the core over a link.
        leader.mailboxes.number_for_leader();
        self.leading.begin(&leader);
        let over = self.serve_leader(&leader, known, epoch, serving).await;
        self.leading.end();
        leader.term.end();
        chores.iter().for_each(JoinHandle::abort);
        leader.drivers.stop().await;
        self.kind.end();
        over
    }

    async fn assemble(
        &self,
        fenced: FencedLog,
        known: &Known,
    ) -> Result<(Arc<Leader>, Vec<JoinHandle<()>>), OpenError> {
        let address = |(replica, member): &(_, _)| ReplicaAddress::of(*replica, member);
        let places: Vec<ReplicaAddress> = known.members.iter().map(address).collect();
        let members: Vec<ReplicaId> = places.iter().map(|place| place.replica).collect();
        let checkpoints = Checkpoints::open(&self.settings.folder).map_err(OpenError::kind)?;
        let database = self.process.database.served.id;
        let placement = plan::placement(&fenced.register, places.clone(), database).await?;
        let anchor =
            first_anchor(&places, &self.settings.new_tables, &placement).ok_or(OpenError::NoFullReplica)?;
        let is_founding = !known.membership.is_adopted();
        let last = fenced.term.last;
        let schema = if is_founding {
            // Adoption changes the servers past the log.
            last
        } else {
            KnownSchemaChanges::of(&self.sessions).complete(fenced.log.as_ref(), last).await
        };
        let term = fenced.term;
        let beginning = Beginning { members: &members, anchor, placement, term, schema };
        let core = self.kind.begin(beginning)?;
        let patience = Duration::from_micros(timing().lease_us) / LEASE_PARTS;
        let held = HeldBackends::of(self.nodes_with_sessions(), patience);
        self.process.lead(fenced, TermParts { places, core, anchor, checkpoints, is_founding, held })
    }

    /// The nodes that may have sessions of the former term: those that are linked, and this one.
    fn nodes_with_sessions(&self) -> usize {
        if !self.has_served.load(Ordering::Acquire) {
            return 0;
        }
        let nodes = self.leading.nodes();
        nodes.iter().filter(|node| node.is_own || node.role != NodeRole::Unlinked).count()
    }

    async fn serve_leader(
        &self,
        leader: &Arc<Leader>,
        known: Known,
        epoch: Epoch,
        serving: Serving<'_>,
    ) -> Over {
        let Serving { admissions, mut ends, news } = serving;
        let Known { membership, members } = known;
        let registry = MemberRegistry::open(leader, membership.clone(), members);
        let mut registry = match registry {
            Ok(registry) => registry,
            Err(error) => return Over::Failed(error),
        };
        let elastic = elastic::run(Arc::clone(leader), self.settings.elastic.clone(), ServerSource::Operator);
        tokio::select! {
            error = self.begin(leader, &membership, epoch, news) => Over::Failed(error),
            () = serve_crews(Arc::clone(leader), admissions) => Over::Ordered,
            failure = leader.term.failed() => match &*failure {
                LogFailure::Fenced { .. } => Over::LogLost(failure.to_string()),
                _ => Over::Failed(NodeError::Log { reason: failure.to_string() }),
            },
            _ = ends.changed() => Over::Ordered,
            () = registry.run() => Over::Failed(NodeError::RegistryEnded),
            () = elastic => Over::Failed(NodeError::TaskEnded("the task of elasticity")),
        }
    }

    /// Lets sessions join as soon as they may, and goes on as long as the term does.
    async fn begin(
        &self,
        leader: &Arc<Leader>,
        membership: &Membership,
        epoch: Epoch,
        news: &mpsc::Sender<News>,
    ) -> NodeError {
        let is_cold = !self.has_served.load(Ordering::Acquire);
        if is_cold && let Err(error) = self.bring_up(leader, membership).await {
            return error;
        }
        leader.term.end_founding();
        // If these have gone, the node stops.
        let _ = self.links.send(SessionLink::Own(Arc::clone(leader))).await;
        let _ = news.send(News::Serving(epoch)).await;
        if !is_cold {
            self.look_after_replicas(leader).await;
        }
        std::future::pending().await
    }

    /// Waits until the replicas are up to date. A replica that does not come up in time is not waited for; if it is the anchor, another
    /// one takes its place.
    async fn look_after_replicas(&self, leader: &Arc<Leader>) {
        let patience = self.process.local.timeouts.takeover_after + SLOW_FENCE;
        while let Err(error) = start::catch_up(leader, Some(patience), &self.progress).await {
            tracing::error!(%error, "looking again");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// All that a node that is alone does before its first client.
    async fn bring_up(&self, leader: &Arc<Leader>, membership: &Membership) -> Result<(), NodeError> {
        let Settings { served, replicas, start_patience, new_tables, .. } = &*self.settings;
        start::catch_up(leader, Some(*start_patience), &self.progress).await?;
        start::check_schemas(leader, &self.progress).await?;
        if !membership.is_adopted() {
            adopt(leader, membership, served, replicas, &self.progress).await?;
        }
        configured::report(leader, new_tables).await;
        Ok(())
    }
}

/// Serves the terms of this node, one after the other. Ends only with an error that ends the node.
pub(super) async fn serve_terms(
    own: OwnTerm,
    mut terms: mpsc::Receiver<TermOrder>,
    news: mpsc::Sender<News>,
) -> NodeError {
    loop {
        let Some(order) = terms.recv().await else { return std::future::pending().await };
        if let Err(error) = own.serve(order, &news).await {
            return error;
        }
    }
}
