//! `onecopy up`: servers, log, core, agents and front end of one node, put together and taken apart again.
//!
//! The order matters. The port and the data folder are claimed before anything is started, so that nothing is left
//! half done. The log is fenced with a record of the new epoch before the core exists. Clients are served when every
//! replica is connected, which is after the backends of an earlier incarnation are gone and its applied set was read.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster::Cluster;
use cluster::event::Event;
use cluster::ids::{DatabaseId, Epoch, Identity, Nonce, ReplicaId, ServiceId, Version};
use cluster::parts::replica::State;
use cluster::placement::Placement;
use cluster::protocols::onecopy::{Onecopy, Options, Rules};
use cluster::record::{Header, RecordBuilder};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::backend::Address;
use crate::cli::Up;
use crate::frontend;
use crate::hub::{AgentOrder, Birth, Hub, Seat};
use crate::keeper::{Identities, Keeper};
use crate::log::{Log, LogFailure, Notices, Recovered};
use crate::postgres::{self, Home, Server, UpError, UpOptions};
use crate::terminal::Progress;

/// The home of updates is the first replica.
const ANCHOR: ReplicaId = ReplicaId(0);
/// How long sessions get to end what they are doing when the node stops.
const STOP_SESSIONS: Duration = Duration::from_secs(5);
/// How often it is looked whether the replicas serve.
const LOOK: Duration = Duration::from_millis(20);
/// Names a consistency rule that is switched off, for tests that show that a checker notices.
const RULE_OFF: &str = "ONECOPY_TEST_RULE_OFF";
/// Slows the refresh at the last replica down by so many milliseconds a batch, for the same tests.
const SLOW_REFRESH: &str = "ONECOPY_TEST_SLOW_REFRESH_MS";

/// Why a node cannot run, in words for the person who started it.
type Reason = String;

/// Runs a node until it is told to stop.
pub(crate) async fn run(up: Up, progress: &Progress) -> Result<(), Reason> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    raise_file_limit();
    let rules = rules()?;
    let transaction_bytes_max = u64::from(up.transaction_max_mb) << 20;
    let reader_patience = Duration::from_secs(up.reader_patience.into());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, up.port));
    let listener = TcpListener::bind(address).await.map_err(|error| port_error(up.port, &error))?;
    let options = UpOptions { replicas: up.replicas, data: up.data, pg_bin: up.pg_bin };
    let starting = async {
        let mut home = postgres::prepare(&options, progress).await?;
        home.start().await?;
        Ok::<Home, UpError>(home)
    };
    let mut home = tokio::select! {
        home = starting => home.map_err(|error| error.to_string())?,
        _ = interrupt.recv() => return Err("interrupted".into()),
        _ = terminate.recv() => return Err("interrupted".into()),
    };
    let (stop, stopped) = watch::channel(());
    let mut keepers = JoinSet::new();
    let hub = match open(&home, rules, transaction_bytes_max, reader_patience, &mut keepers).await {
        Ok(hub) => hub,
        Err(reason) => {
            home.stop().await;
            return Err(reason);
        }
    };
    let mut watched = JoinSet::new();
    for server in home.servers.drain(..) {
        watched.spawn(keep_up(server, stopped.clone(), progress.clone()));
    }
    let ended = tokio::select! {
        ended = serve(&hub, listener, up.port, progress) => ended,
        reason = hub.failed() => Err(format!("the log cannot be written any more: {reason}")),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    progress.say("stopping");
    hub.shut_down_sessions();
    let deadline = tokio::time::Instant::now() + STOP_SESSIONS;
    while hub.stats.sessions.load(Ordering::Relaxed) > 0 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
    hub.log.close();
    keepers.shutdown().await;
    drop(stop);
    while watched.join_next().await.is_some() {}
    home.stop().await;
    ended
}

/// Serves clients as soon as every replica is connected.
async fn serve(hub: &Arc<Hub>, listener: TcpListener, port: u16, progress: &Progress) -> Result<(), Reason> {
    let step = progress.step("replicas are brought up to date");
    loop {
        let replicas = hub.replicas();
        let durable = hub.durable();
        let quarantined = hub.quarantined();
        if let Some(reason) = quarantined.get(&hub.anchor) {
            return Err(format!("{} cannot serve: {reason}", hub.seats[0].name));
        }
        let ready = |r: &cluster::protocols::ReplicaStatus| {
            r.state == State::Quarantined || (r.state == State::Up && r.applied == durable)
        };
        if replicas.iter().all(ready) && hub.catalogue().generation() == durable.0 {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    step.done(format_args!("{} replicas stand at version {}", hub.seats.len(), hub.durable()));
    for (replica, reason) in hub.quarantined() {
        progress.say(format_args!("{} is quarantined: {reason}", hub.seats[usize::from(replica.0)].name));
    }
    for seat in &hub.seats {
        progress.say(format_args!("{} listens on {}:{}", seat.name, seat.host, seat.port));
    }
    progress.result(format_args!("psql -h 127.0.0.1 -p {port} -U postgres"));
    frontend::accept(Arc::clone(hub), listener)
        .await
        .map_err(|error| format!("clients cannot be accepted: {error}"))
}

/// Opens and fences the log, makes the core, and starts an agent for each replica.
async fn open(
    home: &Home,
    rules: Rules,
    transaction_bytes_max: u64,
    reader_patience: Duration,
    keepers: &mut JoinSet<()>,
) -> Result<Arc<Hub>, Reason> {
    let (log, recovered) =
        Log::open(&home.dir.join("log"), home.cluster).map_err(|error| error.to_string())?;
    if let Some(torn) = &recovered.torn_tail {
        tracing::warn!(?torn, "the end of the log was cut");
    }
    let hub_cell: Arc<OnceLock<Arc<Hub>>> = Arc::default();
    let (fenced, mut fence_durable) = mpsc::channel(1);
    start_log(&log, &hub_cell, fenced)?;
    let epoch = recovered.last_epoch.next();
    let identities = Identities::default();
    for (identity, version) in &recovered.identities {
        identities.insert(*identity, *version);
    }
    let last = fence(&log, home, epoch, &recovered, &identities)?;
    match fence_durable.recv().await {
        Some(Ok(())) => {}
        Some(Err(reason)) => return Err(reason),
        None => return Err("the log's writer has ended".into()),
    }
    let (seats, queues): (Vec<Seat>, Vec<mpsc::Receiver<AgentOrder>>) = home
        .servers
        .iter()
        .map(|server| Seat::new(server.name.clone(), server.host.clone(), server.port, address(server)))
        .unzip();
    let replicas = u16::try_from(seats.len()).map_err(|_| "too many replicas".to_owned())?;
    let core = Onecopy::new(Options {
        replicas,
        anchor: ANCHOR,
        placement: Placement::full(replicas),
        epoch,
        last,
        rules,
    });
    let birth = Birth {
        anchor: ANCHOR,
        cluster_id: home.cluster,
        epoch,
        log_was_empty: recovered.begun,
        identities,
        transaction_bytes_max,
        reader_patience,
    };
    let hub = Hub::new(Cluster::new(Box::new(core)), log, seats, birth);
    if hub_cell.set(Arc::clone(&hub)).is_err() {
        return Err("the log was started twice".into());
    }
    for (index, orders) in queues.into_iter().enumerate() {
        let replica = ReplicaId(u16::try_from(index).map_err(|_| "too many replicas".to_owned())?);
        let delay = if index + 1 == hub.seats.len() { slow_refresh()? } else { Duration::ZERO };
        keepers.spawn(Keeper::run(Arc::clone(&hub), replica, orders, delay));
    }
    Ok(hub)
}

fn address(server: &Server) -> Address {
    Address { socket_dir: server.socket_dir.clone(), port: server.port }
}

/// Starts the log's writer: what it reports before there is a hub is about the fence.
fn start_log(
    log: &Log,
    hub: &Arc<OnceLock<Arc<Hub>>>,
    fenced: mpsc::Sender<Result<(), Reason>>,
) -> Result<(), Reason> {
    let (durable_hub, failed_hub, failed_fence) = (Arc::clone(hub), Arc::clone(hub), fenced.clone());
    let notices = Notices {
        durable: Box::new(move |upto: Version| match durable_hub.get() {
            Some(hub) => hub.handle(Event::Logged { upto }),
            None => drop(fenced.try_send(Ok(()))),
        }),
        failed: Box::new(move |failure: LogFailure| match failed_hub.get() {
            Some(hub) => hub.log_failed(&failure),
            None => drop(failed_fence.try_send(Err(failure.to_string()))),
        }),
    };
    log.start(notices).map_err(|error| error.to_string())
}

/// Appends the record that opens the new epoch; its version.
fn fence(
    log: &Log,
    home: &Home,
    epoch: Epoch,
    recovered: &Recovered,
    identities: &Identities,
) -> Result<Version, Reason> {
    let nonce = getrandom::u64().map_err(|error| format!("no random number: {error}"))?;
    let identity = Identity { epoch, n: 0, nonce: Nonce(nonce) };
    let version = recovered.last.next();
    let mut body = RecordBuilder::new();
    body.push_fence().map_err(|error| error.to_string())?;
    let header = Header {
        cluster: home.cluster,
        identity,
        first: version,
        last: version,
        database: DatabaseId(0),
        service: ServiceId(0),
    };
    identities.insert(identity, version);
    log.append(Arc::new(body.finish(header)));
    Ok(version)
}

/// Between two attempts to start a server.
const START_PAUSE: Duration = Duration::from_secs(1);

/// Starts a server again whenever it ends, until the other half of `stopped` is dropped.
async fn keep_up(mut server: Server, mut stopped: watch::Receiver<()>, progress: Progress) {
    loop {
        tokio::select! {
            ending = server.exited() => progress.say(format_args!("{} ended: {ending}", server.name)),
            _ = stopped.changed() => return server.stop().await,
        }
        // It can be struck down again while it starts; that must not leave it down for ever.
        while let Err(error) = server.start().await {
            progress.say(error);
            tokio::select! {
                () = tokio::time::sleep(START_PAUSE) => {}
                _ = stopped.changed() => return server.stop().await,
            }
        }
        progress.say(format_args!("{} was started again", server.name));
    }
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

fn port_error(port: u16, error: &std::io::Error) -> Reason {
    if error.kind() == std::io::ErrorKind::AddrInUse {
        return format!("port {port} is in use; stop what listens there, or choose another with --port");
    }
    format!("port {port} cannot be listened on: {error}")
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
