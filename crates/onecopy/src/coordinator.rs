//! The one cluster core behind its mutex, and the ways in and out of it.
//!
//! Everybody hands events to [`Coordinator::handle`]: sessions on their threads, the log's writer thread, the agents. Effects
//! are carried out under the same lock, in the order given: a record is queued for the log, a note put into a
//! session's mailbox, a command put into an agent's queue. None of these waits, so the lock is held for microseconds.

mod absence;
mod catalogue;
pub(crate) mod evictions;
pub(crate) mod identities;
pub(crate) mod log_retention;
pub(crate) mod mailbox;
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
mod waits;
mod wake_up;

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cluster::Cluster;
use cluster::event::{Effect, Event};
use cluster::ids::{ClusterId, Epoch, ReplicaId, SessionId, Version};
use cluster::protocols::ReplicaStatus;
use cluster::time::Time;
use commitlog::{LogEngine, LogFailure};
use rustc_hash::FxHashMap;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use crate::database::Database;
use crate::local::limits::Limits;
use crate::local::{LocalState, count};
use identities::Identities;
use log_retention::{LogRetention, Retention};
use mailbox::{End, Mailbox, Note};
use node_kind::NodeKind;
use quarantines::Quarantines;
use requests::MemberRequest;

pub(crate) use absence::{Absence, Obstacle};
pub(crate) use quarantines::QuarantineDuration;
pub(crate) use replica_address::ReplicaAddress;
pub(crate) use requests::AgentOrder;
pub(crate) use seat::Seat;
pub(crate) use seats::Seats;

struct Inside {
    /// None in a kind of node that orders transactions by itself.
    core: Option<Cluster>,
    effects: Vec<Effect>,
    sessions: FxHashMap<SessionId, Arc<Mailbox>>,
}

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

/// The state that all parts of the node share: the core behind its lock, the log and the replicas.
pub(crate) struct Coordinator {
    inside: Mutex<Inside>,
    /// The state of this node.
    pub(crate) local: Arc<LocalState>,
    /// The log.
    pub(crate) log: Arc<dyn LogEngine>,
    /// The replicas.
    pub(crate) seats: Seats,
    /// How this node keeps its replicas equal.
    pub(crate) kind: Arc<dyn NodeKind>,
    /// Their replica_drivers.
    replica_drivers: Mutex<JoinSet<()>>,
    /// Where those run, whoever calls for a new one.
    runtime: Handle,
    /// The way to whoever keeps the list of members.
    pub(crate) registry: OnceLock<mpsc::Sender<MemberRequest>>,
    /// The home of updates.
    anchor: AtomicU16,
    /// How long a read may hold up a refresh.
    pub(crate) reader_patience: Duration,
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
    /// Which version each identity has.
    pub(crate) identities: Identities,
    /// VERIFY is running.
    pub(crate) is_verifying: AtomicBool,
    /// Wakes whoever looks for deadlocks.
    pub(crate) looking: Notify,
    /// When the core wants to be woken up.
    wake_ups: watch::Sender<Option<Time>>,
    /// Wakes whoever lends ranges of them.
    pub(crate) lending: Notify,
    /// The next record of the anchor's should bring marks for what was drawn to be lent.
    pub(crate) wants_marks: AtomicBool,
    /// What is known of them includes what was logged before this node started.
    has_learned: AtomicBool,
    /// Held by the replica_driver that finds that out.
    pub(crate) learning: tokio::sync::Mutex<()>,
    /// What is durable at each replica, and why one is quarantined.
    pub(crate) retention: Retention,
    next_session: AtomicU64,
    start: Instant,
    failure: watch::Sender<Option<String>>,
}

impl Coordinator {
    /// Nothing runs yet; the log's writer is started by the caller.
    pub(crate) fn new(log: Arc<dyn LogEngine>, seats: Vec<Seat>, options: CoordinatorOptions) -> Arc<Self> {
        let CoordinatorOptions { anchor, cluster_id, database, epoch, log_was_empty, is_founding, .. } =
            options;
        let CoordinatorOptions { kind, core, identities, quarantines, limits, local, .. } = options;
        let Limits { reader_patience, log_bytes_max, .. } = limits;
        let seats = Seats::new(seats);
        let retention = LogRetention::of(seats.iter().map(|seat| seat.replica));
        let retention = Retention::new(retention, quarantines, log_bytes_max);
        let inside = Inside { core, effects: Vec::new(), sessions: FxHashMap::default() };
        let coordinator = Arc::new(Self {
            inside: Mutex::new(inside),
            local,
            log,
            seats,
            kind,
            replica_drivers: Mutex::default(),
            runtime: Handle::current(),
            registry: OnceLock::new(),
            anchor: AtomicU16::new(anchor.0),
            reader_patience,
            cluster_id,
            database,
            epoch,
            log_was_empty,
            is_founding: Arc::new(AtomicBool::new(is_founding)),
            log_is_lost: AtomicBool::new(false),
            identities,
            is_verifying: AtomicBool::new(false),
            looking: Notify::new(),
            wake_ups: watch::channel(None).0,
            lending: Notify::new(),
            wants_marks: AtomicBool::new(false),
            has_learned: AtomicBool::new(false),
            retention,
            learning: tokio::sync::Mutex::default(),
            next_session: AtomicU64::new(1),
            start: Instant::now(),
            failure: watch::channel(None).0,
        });
        coordinator.set_reader_patience();
        coordinator.forget_oids();
        coordinator.remember_quarantines();
        coordinator
    }

    /// Hands one event to the core and carries out its effects.
    pub(crate) fn handle(&self, event: Event) {
        self.ask(None, event);
    }

    /// As [`Coordinator::handle`]; if the event lets this session execute at once, or answers its question, that effect is returned
    /// instead of going through the mailbox.
    pub(crate) fn ask(&self, own: Option<SessionId>, event: Event) -> Option<Effect> {
        let now = Time { us: u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX) };
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let Inside { core, effects, sessions } = &mut *inside;
        core.as_mut()?.handle(now, event, effects);
        let mut granted = None;
        for effect in effects.drain(..) {
            match effect {
                effect if own.is_some_and(|own| effect.answers(own)) => granted = Some(effect),
                other => self.carry_out(other, sessions),
            }
        }
        granted
    }

    fn carry_out(&self, effect: Effect, sessions: &FxHashMap<SessionId, Arc<Mailbox>>) {
        match effect {
            Effect::Append { version, identity, body } => {
                count(&self.local.stats.records);
                self.identities.insert(identity, version);
                if body.writes_everything() {
                    // What a statement draws from, and how, may be another thing after it.
                    self.database.sequences().leases.void_all();
                }
                if body.moves_sequences() {
                    body.sequences().for_each(|mark| self.database.sequences().note(version, mark));
                }
                let header = self.database.header(self.cluster_id, identity, version);
                self.log.append(Arc::new(body.finish(header)));
            }
            Effect::Apply { replica, incarnation, from, upto } => {
                self.order(replica, AgentOrder::Apply { incarnation, from, upto });
            }
            Effect::Reset { replica } => self.order(replica, AgentOrder::Reset),
            Effect::LoadCatalogue { replica, version } => {
                self.order(replica, AgentOrder::LoadCatalogue { version });
            }
            Effect::Anchor { replica } => {
                self.move_anchor(replica);
                // What a session has at the old one is lost to it.
                sessions.values().map(Arc::as_ref).for_each(Mailbox::drained);
            }
            Effect::WakeAt { at } => drop(self.wake_ups.send_replace(Some(at))),
            other => {
                let session =
                    other.session().expect("the effects for nobody in particular are matched above");
                if let Some(mailbox) = sessions.get(&session) {
                    mailbox.push(Note::Effect(other));
                }
            }
        }
    }

    /// The home of updates, and the server of the catalogues.
    pub(crate) fn anchor(&self) -> ReplicaId {
        ReplicaId(self.anchor.load(Ordering::Acquire))
    }

    /// Sessions find the new anchor with their next transaction; what its objects are called counts from now on.
    fn move_anchor(&self, replica: ReplicaId) {
        let (old, new) = (&self.seats[self.anchor()].name, &self.seats[replica].name);
        tracing::warn!(%old, %new, "another replica is the anchor from now on");
        count(&self.local.stats.takeovers);
        self.anchor.store(replica.0, Ordering::Release);
        self.database.sequences().leases.replica_changed(replica);
        if self.seats[replica].is_lent.load(Ordering::Acquire) {
            self.order(replica, AgentOrder::TakeBack);
        }
        self.set_reader_patience();
        self.forget_oids();
    }

    /// At the home a blocker is no read: its transaction is lost already.
    fn set_reader_patience(&self) {
        let patience_ms = u64::try_from(self.reader_patience.as_millis()).unwrap_or(u64::MAX);
        for seat in self.seats.iter() {
            let is_anchor = seat.replica == self.anchor();
            seat.reader_patience_ms.store(if is_anchor { 0 } else { patience_ms }, Ordering::Relaxed);
        }
    }

    pub(crate) fn order(&self, replica: ReplicaId, order: AgentOrder) {
        if self.seats[replica].orders.try_send(order).is_err() {
            tracing::error!(replica = %replica.0, "an agent does not take its orders");
        }
    }

    /// A new session and its mailbox.
    pub(crate) fn open_session(&self) -> (SessionId, Arc<Mailbox>) {
        let id = SessionId(self.next_session.fetch_add(1, Ordering::Relaxed));
        let mailbox = Arc::new(Mailbox::default());
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.sessions.insert(id, Arc::clone(&mailbox));
        self.local.stats.sessions.fetch_add(1, Ordering::Relaxed);
        (id, mailbox)
    }

    /// The session is gone; whatever it waited for is given up.
    pub(crate) fn close_session(&self, id: SessionId) {
        self.handle(Event::GiveUp { session: id });
        self.handle(Event::Release { session: id });
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.sessions.remove(&id);
        self.local.remove_session(id);
        self.local.stats.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Tells every session to end.
    pub(crate) fn end_sessions(&self, end: End) {
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.sessions.values().for_each(|mailbox| mailbox.end(end));
    }

    /// Asks the core something; without a core the answer is the default: nothing, or none.
    pub(crate) fn core<T: Default>(&self, ask: impl FnOnce(&Cluster) -> T) -> T {
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.core.as_ref().map(ask).unwrap_or_default()
    }

    /// The members, in the order of their numbers.
    pub(crate) fn replicas(&self) -> Vec<ReplicaStatus> {
        self.kind.replicas(self)
    }

    /// The last durable version.
    pub(crate) fn durable(&self) -> Version {
        self.kind.durable(self)
    }

    /// Forgets the object ids of all replicas: a server came up anew, or another replica is the anchor.
    pub(crate) fn forget_oids(&self) {
        let anchor = self.anchor();
        let others = self.seats.iter().filter(|seat| seat.replica != anchor);
        self.database
            .forget_oids(&self.seats[anchor].address, others.map(|seat| (seat.replica, &seat.address)));
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
