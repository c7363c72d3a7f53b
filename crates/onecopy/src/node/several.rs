//! One of several nodes: all serve clients, one leads, and another one takes over when it is lost.
//!
//! ```text
//!  clients -> sessions -> ledger --link--> the leader's core          (any node)
//!                                             |-> log on etcd
//!                                             '-> agents of all replicas
//! ```
//!
//! | part | does |
//! |---|---|
//! | [`founding`] | finds the cluster, or founds it |
//! | [`conductor`] | runs the machine of take-over, on a thread of its own |
//! | [`desk`] | asks the chair |
//! | [`office`] | carries out what the conductor orders |
//! | [`term`] | one term of this node |
//! | [`copy`] | this node's copy of the log |
//! | [`last_schema_change`] | what a new leader need not take for a schema change |
//!
//! Sessions outlive terms: their coordinator reaches the core over a link, also in the process of the leader. So nothing in them differs
//! between a leader and a follower ([`crate::coordinator::following`]).
//!
//! Invariant: a client is served by what the leader of the present term has let run, or waits for one.

mod board;
mod conductor;
mod copy;
mod crews;
mod desk;
mod dispatches;
mod founding;
mod kind;
mod last_schema_change;
mod links;
mod office;
mod orders;
mod parcel;
mod settings;
mod spills;
mod term;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::ids::{ClusterId, NodeId, Nonce, Version};
use cluster::nodes::Rules;
use cluster::nodes::term::{Member, Term};
use cluster::time::Time;
use commitlog::{EtcdChair, EtcdKeys, FileRegister, Keys};
use peers::Peers;
use pgserver::LOG_FOLDER;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::NodeError;
use super::clients::{Clients, Ended, Reason};
use super::metrics::Subject;
use super::open::raise_file_limit;
use super::process::Process;
use super::running::end_periods;
use super::signals::Signals;
use crate::accept::listener::Workers;
use crate::client::cancel::CancelKeys;
use crate::config::log::{EtcdPlace, PeersPlace};
use crate::config::runtime::RuntimeConfig;
use crate::coordinator::dispatch::{Dispatcher, Outgoing};
use crate::coordinator::errands::Errands;
use crate::coordinator::following::UnknownMember;
use crate::coordinator::open_error::OpenError;
use crate::coordinator::{Coordinator, Leading, NodeRole, NodeStatus, ReplicaAddress, etcd_log};
use crate::database::Database;
use crate::membership::adoption;
use crate::membership::cluster_file::Membership;
use crate::replica::errands;
use crate::security::seal::Seal;
use crate::session::admin::{Here, before_stop};
use crate::terminal::Progress;
use board::Board;
use conductor::{Conductor, Outputs, Queues};
use copy::CopyKeeper;
use desk::Desk;
use kind::SeveralKind;
use office::Office;
use orders::{News, OfficeQueues};
pub(super) use settings::Settings;
use spills::LeaderSpills;
use term::OwnTerm;

/// Orders and news that can wait.
const ORDERS_MAX: usize = 1_024;
/// Interval at which a starting node looks whether it can serve.
const LOOK: Duration = Duration::from_millis(20);
/// How often it says what it waits for.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// A node that is one of several, before it serves.
pub(super) struct SeveralNode {
    pub(super) coordinator: Arc<Coordinator>,
    leading: Arc<Leading>,
    process: Process,
    keys: Arc<CancelKeys>,
    copy: CopyKeeper,
    chores: Vec<JoinHandle<()>>,
    has_served: Arc<AtomicBool>,
    /// Ends with the error that ends the node.
    failed: mpsc::Receiver<NodeError>,
    office: JoinHandle<()>,
    news: mpsc::Sender<News>,
    conductor: ConductorThread,
}

/// What has ended a wait for the next leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    ForNode,
    ForSignal,
}

/// The thread of the conductor.
struct ConductorThread {
    thread: std::thread::JoinHandle<()>,
    /// Closed when the thread ends, whatever the reason.
    ended: oneshot::Receiver<()>,
}

impl SeveralNode {
    /// Finds the cluster, links the nodes, and lets this one follow or lead.
    pub(super) async fn open(
        settings: Settings,
        runtime_config: RuntimeConfig,
        progress: &Progress,
    ) -> Result<Self, NodeError> {
        raise_file_limit();
        let settings = Arc::new(settings);
        let place = &settings.place;
        let etcd = EtcdKeys { store: etcd_log::gateway(place)?, keys: Keys::new(&place.cluster_name) };
        let membership = founding::find_cluster(&settings, &etcd).await?;
        let members = members(&settings, &membership)?;
        let anchor = members.first().ok_or(OpenError::NoReplicas)?.replica;
        let kind = SeveralKind::of(&settings)?;
        let process = process(&settings, membership.id()?, &kind, runtime_config)?;
        let cluster = process.cluster;
        let leading = Arc::<Leading>::default();
        let (tasks, errand_queue) = Errands::new();
        let spills = Arc::new(LeaderSpills::new(&leading));
        let coordinator =
            process.follow(members, anchor, Arc::clone(&spills) as Arc<_>, tasks, place.patience);
        spills.reach_by(&coordinator);
        let copy =
            CopyKeeper::new(etcd.clone(), settings.folder.join(LOG_FOLDER), cluster, place.node.clone());
        let numbers = Numbers::of(place, &settings.peers);
        coordinator.mailboxes.number_for_node(numbers.own);
        let (news, told) = mpsc::channel(ORDERS_MAX);
        let keys = CancelKeys::of_node(numbers.own, forward(news.clone()));
        let (orders, order_queue) = mpsc::channel(ORDERS_MAX);
        let (queues, work) = OfficeQueues::new();
        let links = queues.links.clone();
        let (dispatcher, replies, outgoing) = Dispatcher::new();
        leading.dispatch_by(dispatcher);
        let office = Office::new(Here::new(&leading, &coordinator, &keys), queues);
        let has_served = Arc::<AtomicBool>::default();
        let own_term = OwnTerm {
            process: process.clone(),
            kind: kind.clone(),
            settings: Arc::clone(&settings),
            leading: Arc::clone(&leading),
            copy: copy.clone(),
            links,
            sessions: Arc::clone(&coordinator),
            has_served: Arc::clone(&has_served),
            progress: progress.clone(),
        };
        let (failing, failed) = mpsc::channel(1);
        let linking = office::link_sessions(Arc::clone(&coordinator), work.links);
        let serving = term::serve_terms(own_term, work.terms, news.clone());
        let serving_sessions = kind.attach(&coordinator);
        let mut chores = vec![
            end_periods(&process.local),
            tokio::spawn(copy.clone().run()),
            tokio::spawn(errands::run(Arc::clone(&coordinator), errand_queue)),
            tokio::spawn(tell_failure(linking, serving, failing)),
        ];
        chores.extend(serving_sessions);
        let office = tokio::spawn(office.run(order_queue));
        let outputs = Outputs { office: orders, replies };
        let ends = Ends { outputs, news: told, outgoing, leading: Arc::clone(&leading) };
        let conductor = conduct(&settings, numbers, &etcd, cluster.to_string(), ends).await?;
        Ok(Self {
            coordinator,
            leading,
            process,
            keys,
            copy,
            chores,
            has_served,
            failed,
            office,
            news,
            conductor,
        })
    }

    /// What the pages for Prometheus are about, of a node that serves clients there.
    pub(super) fn subject(&self, listens_on: SocketAddr) -> Subject {
        let (coordinator, leading) = (Arc::clone(&self.coordinator), Arc::clone(&self.leading));
        Subject { coordinator, leading, listens_on }
    }

    /// Serves clients until a signal comes or the node fails, and stops. Calls `begin` just before it accepts clients.
    pub(super) async fn run(
        mut self,
        mut clients: Clients,
        signals: &mut Signals,
        progress: &Progress,
        begin: impl FnOnce(),
    ) -> Result<Ended, NodeError> {
        let Process { local, pools, kind, .. } = &self.process;
        let workers = Workers::start(&self.leading, &self.coordinator, pools, kind, &self.keys);
        let workers = workers.map_err(NodeError::Threads)?;
        clients.keep_numbers(&self.coordinator);
        let serve = async {
            can_serve(&self.coordinator, progress).await;
            begin();
            self.has_served.store(true, Ordering::Release);
            local.sessions.open(true);
            clients.serve(&workers).await
        };
        let reason = tokio::select! {
            ended = serve => ended,
            error = self.failed.recv() => Err(error.unwrap_or(NodeError::TaskEnded("the task of terms and links"))),
            _ = &mut self.conductor.ended => Err(NodeError::TaskEnded("the thread that conducts the node")),
            () = signals.stop() => Ok(Reason::Stop),
        };
        local.sessions.open(false);
        let ended = self.end_serving(reason, clients, signals, progress).await;
        self.coordinator.end_lease();
        if let Some(leader) = self.leading.get() {
            leader.drivers.stop().await;
            leader.term.end();
        }
        self.chores.iter().for_each(JoinHandle::abort);
        self.office.abort();
        self.copy.close().await;
        // If it has ended already, there is nothing to stop.
        let _ = self.news.send(News::Stop).await;
        let thread = self.conductor.thread;
        if !matches!(tokio::task::spawn_blocking(move || thread.join()).await, Ok(Ok(()))) {
            tracing::error!("the thread that conducts the node panicked");
        }
        ended
    }

    /// Ends the sessions, or keeps them for the process that takes over, and hands the lead over.
    async fn end_serving(
        &self,
        reason: Result<Reason, NodeError>,
        clients: Clients,
        signals: &mut Signals,
        progress: &Progress,
    ) -> Result<Ended, NodeError> {
        let patience = self.process.local.runtime_config.stop_patience();
        match reason {
            Ok(Reason::Succession) => {
                Clients::say_leaving(progress);
                // Before the sessions rest, so that their clients wait for less.
                if self.hand_over(signals).await == Waited::ForSignal {
                    clients.stop(&self.coordinator, patience, signals, progress).await;
                    return Ok(Ended::Stopped);
                }
                let estate = clients.leave(&self.coordinator, signals, progress).await;
                Ok(estate.map_or(Ended::Stopped, Ended::Left))
            }
            Ok(Reason::Stop) => {
                clients.stop(&self.coordinator, patience, signals, progress).await;
                self.hand_over(signals).await;
                Ok(Ended::Stopped)
            }
            Err(error) => {
                clients.stop(&self.coordinator, Duration::ZERO, signals, progress).await;
                Err(error)
            }
        }
    }

    /// Hands the lead over, if this node leads, unless a signal comes meanwhile.
    async fn hand_over(&self, signals: &mut Signals) -> Waited {
        let here = Here::new(&self.leading, &self.coordinator, &self.keys);
        tokio::select! {
            () = before_stop(&here) => Waited::ForNode,
            () = signals.stop() => Waited::ForSignal,
        }
    }
}

/// Waits for an error of the links or the terms, which ends the node.
async fn tell_failure(
    linking: impl Future<Output = UnknownMember>,
    serving: impl Future<Output = NodeError>,
    failing: mpsc::Sender<NodeError>,
) {
    let error = tokio::select! {
        unknown = linking => NodeError::UnknownMember(Box::new(unknown)),
        error = serving => error,
    };
    // A node that stops does not hear it.
    let _ = failing.send(error).await;
}

/// The members, in the order of their numbers.
fn members(settings: &Settings, membership: &Membership) -> Result<Vec<ReplicaAddress>, NodeError> {
    let places = adoption::places(membership, &settings.served, &settings.replicas)?;
    Ok(places.iter().map(|(replica, member)| ReplicaAddress::of(*replica, member)).collect())
}

/// What the node has for as long as it runs.
fn process(
    settings: &Settings,
    cluster: ClusterId,
    kind: &SeveralKind,
    runtime_config: RuntimeConfig,
) -> Result<Process, OpenError> {
    let seal = Seal::of(&FileRegister::in_folder(&settings.folder))?;
    let database = Database::new(settings.served.clone());
    Ok(Process::new(cluster, database, kind.serves(), settings.limits, runtime_config, seal))
}

/// Waits until a leader takes what sessions say, and the catalogue is known.
async fn can_serve(coordinator: &Coordinator, progress: &Progress) {
    let begun = Instant::now();
    let mut said = Duration::ZERO;
    loop {
        let generation = Version(coordinator.database.catalogue().generation());
        let awaited = if !coordinator.core.is_joined() {
            "a node that leads"
        } else if generation == Version::ZERO || coordinator.view.is_outdated(generation) {
            "the catalogue of the anchor"
        } else {
            return;
        };
        if begun.elapsed() >= said + SAY_EVERY {
            said = begun.elapsed();
            progress.say(format_args!("waiting for {awaited}"));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Hands cancel requests for other nodes' sessions to the conductor.
fn forward(news: mpsc::Sender<News>) -> impl Fn(NodeId, i32, &[u8]) + Send + Sync {
    move |node, pid, secret| {
        if news.try_send(News::Cancel { node, pid, secret: secret.to_vec() }).is_err() {
            tracing::warn!("a cancel request for another node was dropped");
        }
    }
}

/// The nodes of a cluster by their numbers, which follow the order of their names.
struct Numbers {
    own: NodeId,
    all: BTreeMap<String, NodeId>,
}

impl Numbers {
    fn of(place: &EtcdPlace, peers: &PeersPlace) -> Self {
        let mut names: Vec<&String> = peers.others.keys().chain([&place.node]).collect();
        names.sort();
        let all: BTreeMap<String, NodeId> = names.into_iter().cloned().zip((0..).map(NodeId)).collect();
        let own = all[&place.node];
        Self { own, all }
    }
}

/// What the conductor has in common with the rest of the node.
struct Ends {
    outputs: Outputs,
    news: mpsc::Receiver<News>,
    outgoing: mpsc::Receiver<Outgoing>,
    leading: Arc<Leading>,
}

/// Starts the conductor on a thread of its own. It listens for the other nodes, and dials them.
async fn conduct(
    settings: &Settings,
    numbers: Numbers,
    etcd: &EtcdKeys,
    cluster: String,
    ends: Ends,
) -> Result<ConductorThread, NodeError> {
    let Settings { place, peers, .. } = settings;
    let run = Nonce(getrandom::u64().map_err(OpenError::Random)?);
    let options = peers::Options {
        name: place.node.clone(),
        others: peers.others.clone(),
        listen: peers.listen.clone(),
        cluster,
        run,
        tls: peers.tls.clone(),
    };
    let Numbers { own, all } = numbers;
    let address = |name: &String| peers.others.get(name).unwrap_or(&peers.address).clone();
    let status = |(name, node): (&String, &NodeId)| NodeStatus {
        name: name.clone(),
        address: address(name),
        role: NodeRole::Unlinked,
        is_own: *node == own,
    };
    let statuses = all.iter().map(status).collect();
    let others = all.values().copied().filter(|node| *node != own).collect();
    let term = Term::new(
        Member { node: own, others, nonce: run },
        etcd_log::timing(),
        Rules::default(),
        Time::default(),
    );
    let chair = EtcdChair::new(Arc::clone(&etcd.store), etcd.keys.clone(), &place.node, &peers.address);
    let (desk, answers) = Desk::new(chair, all);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(NodeError::Threads)?;
    let (linked, is_linked) = oneshot::channel();
    let Ends { outputs, news, outgoing, leading } = ends;
    let board = Board { leading, own, all: statuses, epoch: None };
    let (alive, ended) = oneshot::channel();
    let conducting = move || {
        let _alive = alive;
        runtime.block_on(async move {
            let started = Peers::start(options).await;
            let (started, links) = match started {
                Ok(links) => (Ok(()), Some(links)),
                Err(error) => (Err(error), None),
            };
            // If the node does not wait for it, it stops.
            let _ = linked.send(started);
            if let Some((peers, events)) = links {
                let conductor = Conductor::new(Instant::now(), term, desk, peers, outputs, board);
                conductor.run(Queues { events, answers, news, outgoing }).await;
            }
        });
    };
    let thread = std::thread::Builder::new().name("conductor".into()).spawn(conducting);
    let thread = thread.map_err(NodeError::Threads)?;
    match is_linked.await {
        Ok(started) => started.map_err(|error| NodeError::Links(Box::new(error)))?,
        Err(_) => return Err(NodeError::Threads(std::io::Error::other("the conductor has ended"))),
    }
    Ok(ConductorThread { thread, ended })
}
