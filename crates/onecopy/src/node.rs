//! One node over servers that run: log, core, agents and front end, put together and taken apart again.
//!
//! The order matters. The log is fenced with a record of the new epoch before the core exists. Clients are served when
//! every replica that can serve is connected ([`beginning`]), which is after the backends of an earlier incarnation are gone
//! and its applied set was read. A node that is told to stop takes no new clients, lets each session finish its transaction for as long as the
//! operator allows, and closes the log last; a second signal ends the waiting.
//!
//! Not here: where the servers come from ([`up`] runs its own).

pub(crate) mod metrics;
pub(crate) mod serve;
mod start;
pub(crate) mod systemd;
pub(crate) mod up;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster::Cluster;
use cluster::event::Event;
use cluster::ids::{Epoch, ReplicaId, Version};
use cluster::parts::replica::State;
use cluster::placement::{Placement, REPLICAS_MAX};
use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::rows::{KEYS_MAX, Options, REFRESH_PAUSE_US, REFRESH_VERSIONS_MAX, Rows, Rules};
use cluster::time::Time;
use commitlog::{FileLog, LogFailure, Notices};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::accept::listener::Workers;
use crate::capture::vouch::Voucher;
use crate::coordinator::identities::Identities;
use crate::coordinator::mailbox::End;
use crate::coordinator::plan::{self, Plan};
use crate::coordinator::requests::Reason;
use crate::coordinator::session_registry::STATS_PERIOD;
use crate::coordinator::{AgentOrder, Coordinator, CoordinatorOptions, Seat};
use crate::replica::driver::ReplicaDriver;
use crate::replica::sequence_allocator;
use crate::shipping::Opened;

use crate::replica::lock_wait_probe;
use crate::security::seal::Seal;
use crate::terminal::Progress;

/// How long sessions get to end when they were told to end at once.
const STOP_SESSIONS: Duration = Duration::from_secs(5);
/// How often it is looked whether the replicas serve, or the sessions have ended.
const LOOK: Duration = Duration::from_millis(20);
/// Names a consistency rule that is switched off, for tests that show that a checker notices.
const RULE_OFF: &str = "ONECOPY_TEST_RULE_OFF";
/// Slows the refresh at the last replica down by so many milliseconds a batch, for the same tests.
const SLOW_REFRESH: &str = "ONECOPY_TEST_SLOW_REFRESH_MS";

/// From now on this signal is heard, and does nothing by itself.
pub(crate) fn take(kind: SignalKind) -> Result<Signal, Reason> {
    signal(kind).map_err(|error| format!("signals cannot be caught: {error}"))
}

/// The signals that end a node.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on they do not end the process by themselves.
    pub(crate) fn take() -> Result<Self, Reason> {
        Ok(Self { interrupt: take(SignalKind::interrupt())?, terminate: take(SignalKind::terminate())? })
    }

    /// Waits for one.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A node that is put together.
pub(crate) struct Node {
    /// Where everybody meets.
    pub(crate) coordinator: Arc<Coordinator>,
    chores: Vec<JoinHandle<()>>,
    /// What nobody takes in a node without agents.
    _orders: Vec<mpsc::Receiver<AgentOrder>>,
    start_patience: Option<Duration>,
}

impl Node {
    /// Opens and fences the log, makes the core, and starts an agent for each replica.
    pub(crate) async fn open(plan: Plan) -> Result<Self, Reason> {
        raise_file_limit();
        if let Some(choices) = plan.shipping {
            let start_patience = plan.start_patience;
            let Opened { coordinator, mut chores, orders } = crate::shipping::open(plan, choices).await?;
            chores.push(end_periods(&coordinator));
            return Ok(Self { coordinator, chores, _orders: orders, start_patience });
        }
        crate::shipping::refuse_other_kind(&plan.data)?;
        let rules = rules()?;
        let (log, recovered) =
            FileLog::open(&plan.log_folder(), plan.cluster).map_err(|error| error.to_string())?;
        if let Some(torn) = &recovered.torn_tail {
            tracing::warn!(?torn, "the end of the log was cut");
        }
        let hub_cell: Arc<OnceLock<Arc<Coordinator>>> = Arc::default();
        let (fenced, mut fence_durable) = mpsc::channel(1);
        start_log(&log, &hub_cell, fenced)?;
        let seal = Arc::new(Seal::in_folder(&plan.data)?);
        let epoch = recovered.last_epoch.next();
        let identities = Identities::default();
        for (identity, version) in &recovered.identities {
            identities.insert(*identity, *version);
        }
        let (last, _) = plan::fence(&log, plan.cluster, epoch, &recovered, &identities)?;
        match fence_durable.recv().await {
            Some(Ok(())) => {}
            Some(Err(reason)) => return Err(reason),
            None => return Err("the log's writer has ended".into()),
        }
        let quarantines = plan.quarantines();
        let (seats, queues): (Vec<Seat>, Vec<mpsc::Receiver<AgentOrder>>) =
            plan.places.into_iter().map(Seat::new).unzip();
        let core = core(&seats, epoch, last, rules)?;
        let options = CoordinatorOptions {
            anchor: seats[0].replica,
            cluster_id: plan.cluster,
            served: plan.served,
            epoch,
            log_was_empty: recovered.begun,
            is_founding: plan.adoption.is_founding(&recovered),
            identities,
            voucher: Voucher::draw()?,
            seal,
            quarantines,
            limits: plan.limits,
            runtime_config: plan.runtime_config,
        };
        let coordinator = Coordinator::new(core, log, seats, options);
        if hub_cell.set(Arc::clone(&coordinator)).is_err() {
            return Err("the log was started twice".into());
        }
        let slow = slow_refresh()?;
        let replicas: Vec<ReplicaId> = coordinator.seats.iter().map(|seat| seat.replica).collect();
        for (replica, orders) in replicas.iter().zip(queues) {
            let delay = if replicas.last() == Some(replica) { slow } else { Duration::ZERO };
            coordinator.spawn_driver(ReplicaDriver::run(Arc::clone(&coordinator), *replica, orders, delay));
        }
        let lender = tokio::spawn(sequence_allocator::run(Arc::clone(&coordinator)));
        let looker = tokio::spawn(lock_wait_probe::run(Arc::clone(&coordinator)));
        let roused = Arc::clone(&coordinator);
        let rouser = tokio::spawn(async move { roused.rouse().await });
        let chores = vec![end_periods(&coordinator), lender, looker, rouser];
        Ok(Self { coordinator, chores, _orders: Vec::new(), start_patience: plan.start_patience })
    }

    /// Serves clients until a signal comes or the node cannot go on, and stops. `begin` is called just before
    /// clients are accepted.
    pub(crate) async fn run(
        self,
        listeners: Vec<TcpListener>,
        signals: &mut Signals,
        progress: &Progress,
        begin: impl AsyncFnOnce(&Coordinator) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        let coordinator = Arc::clone(&self.coordinator);
        let workers =
            Workers::start(&coordinator).map_err(|error| format!("no threads for sessions: {error}"))?;
        let serve = async {
            start::catch_up(&coordinator, self.start_patience, progress).await?;
            start::check_schemas(&coordinator, progress).await?;
            begin(&coordinator).await?;
            coordinator.is_founding.store(false, Ordering::Release);
            coordinator.sessions.open(true);
            let accepted = workers.accept(&listeners).await;
            accepted.map_err(|error| format!("clients cannot be accepted: {error}"))
        };
        let ended = tokio::select! {
            ended = serve => ended,
            reason = coordinator.failed() => Err(format!("the log cannot be written any more: {reason}")),
            () = signals.stop() => Ok(()),
        };
        drop(listeners);
        coordinator.sessions.open(false);
        progress.say("stopping");
        systemd::tell("STOPPING=1");
        // Without its log no session could finish anything.
        let patience =
            if ended.is_ok() { coordinator.runtime_config.stop_patience() } else { Duration::ZERO };
        end_sessions(&coordinator, patience, signals, progress).await;
        for status in coordinator.replicas().iter().filter(|status| status.state == State::Up) {
            coordinator.sequences().leases.replica_changed(status.replica);
            sequence_allocator::take_back(&coordinator, status.replica).await;
        }
        coordinator.log.close();
        coordinator.stop_drivers().await;
        self.chores.iter().for_each(JoinHandle::abort);
        ended
    }
}

/// Statistics are taken over periods.
fn end_periods(coordinator: &Arc<Coordinator>) -> JoinHandle<()> {
    let coordinator = Arc::clone(coordinator);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(STATS_PERIOD).await;
            coordinator.sessions.end_period();
        }
    })
}

/// The core of a new term: who of all numbers is a member is known from the start.
fn core(seats: &[Seat], epoch: Epoch, last: Version, rules: Rules) -> Result<Cluster, Reason> {
    let members: Vec<ReplicaId> = seats.iter().map(|seat| seat.replica).collect();
    let (Some(first), Some(highest)) = (members.first(), members.iter().max()) else {
        return Err("there are no replicas".into());
    };
    if highest.0 >= REPLICAS_MAX {
        return Err(format!("replica number {} is too high", highest.0 + 1));
    }
    let replicas = highest.0 + 1;
    let placement = Placement::full(replicas);
    let (anchor, refresh_pause_us) = (*first, REFRESH_PAUSE_US);
    let (keys_max, refresh_versions_max) = (KEYS_MAX, REFRESH_VERSIONS_MAX);
    let options = Options {
        choices: ONECOPY,
        replicas,
        anchor,
        placement,
        epoch,
        last,
        refresh_pause_us,
        keys_max,
        refresh_versions_max,
        rules,
    };
    let mut core = Cluster::new(Box::new(Rows::new(options)));
    for absent in (0..replicas).map(ReplicaId).filter(|replica| !members.contains(replica)) {
        core.handle(Time::default(), Event::Left { replica: absent }, &mut Vec::new());
    }
    Ok(core)
}

/// Lets sessions finish what they do, and then ends those that do not.
async fn end_sessions(
    coordinator: &Coordinator,
    patience: Duration,
    signals: &mut Signals,
    progress: &Progress,
) {
    let rounds = [(End::AfterTransaction, patience), (End::Now, STOP_SESSIONS)];
    for (end, patience) in rounds {
        coordinator.end_sessions(end);
        let deadline = Instant::now() + patience;
        let left = || coordinator.stats.sessions.load(Ordering::Relaxed);
        let gone = async {
            while left() > 0 && Instant::now() < deadline {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = gone => {}
            () = signals.stop() => {}
        }
        match left() {
            0 => return,
            left if end == End::AfterTransaction => {
                progress.say(format_args!("{left} sessions are in a transaction; they are ended now"));
            }
            _ => {}
        }
    }
}

/// Starts the log's writer: what it reports before there is a coordinator is about the fence.
fn start_log(
    log: &FileLog,
    coordinator: &Arc<OnceLock<Arc<Coordinator>>>,
    fenced: mpsc::Sender<Result<(), Reason>>,
) -> Result<(), Reason> {
    let (durable_hub, failed_hub, failed_fence) =
        (Arc::clone(coordinator), Arc::clone(coordinator), fenced.clone());
    let notices = Notices {
        durable: Box::new(move |upto: Version| match durable_hub.get() {
            Some(coordinator) => coordinator.handle(Event::Logged { upto }),
            None => drop(fenced.try_send(Ok(()))),
        }),
        failed: Box::new(move |failure: LogFailure| match failed_hub.get() {
            Some(coordinator) => coordinator.log_failed(&failure),
            None => drop(failed_fence.try_send(Err(failure.to_string()))),
        }),
    };
    log.start(notices).map_err(|error| error.to_string())
}

/// All rules are on, unless a test says otherwise.
fn rules() -> Result<Rules, Reason> {
    let mut rules = Rules::default();
    match std::env::var(RULE_OFF).ok().as_deref() {
        None | Some("") => {}
        Some("reads_wait") => rules.reads_wait = false,
        Some(other) => return Err(format!("{RULE_OFF}={other}: there is no such rule")),
    }
    Ok(rules)
}

fn slow_refresh() -> Result<Duration, Reason> {
    match std::env::var(SLOW_REFRESH) {
        Ok(text) => text
            .parse()
            .map(Duration::from_millis)
            .map_err(|_| format!("{SLOW_REFRESH}={text}: a number of milliseconds is wanted")),
        Err(_) => Ok(Duration::ZERO),
    }
}

/// Each session needs a descriptor for its client and one for each replica it uses.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
    }
}
