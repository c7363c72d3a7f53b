//! `onecopy serve` runs a node over existing servers. `onecopy check` says whether it would start.
//!
//! The node claims its addresses first. Then it inspects the servers ([`crate::membership::adoption`]) and opens its
//! parts. At the first start it compares all servers once more before it admits a client, because other clients could
//! write to a server until the guards were installed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use cluster::ids::DatabaseId;
use commitlog::RegisterError;
use tokio::net::{TcpListener, UdpSocket};
use tokio::signal::unix::{Signal, SignalKind};
use tokio::task::spawn_blocking;

use super::NodeError;
use super::adopting::adopt;
use super::clients::{Clients, Ended};
use super::etcd_check::{self, EtcdConcern};
use super::member_registry::MemberRegistry;
use super::metrics::Subject;
use super::open::open;
use super::several::{Settings, SeveralNode};
use super::signals::{self, Signals};
use super::succession::{Inheritance, Restarts, Successor};
use super::{metrics, systemd};
use crate::accept::discovery;
use crate::backend::Served;
use crate::cli::Serve;
use crate::client::own_settings::SEQUENCES_LENT;
use crate::config::c_jdbc::CJdbcWords;
use crate::config::log::{EtcdPlace, LogPlace, LogPlaceError};
use crate::config::protocol::{self, Adjustments, Propagation};
use crate::config::runtime::{LoginLimits, Logins, ReloadError, ReloadNotes, RuntimeConfig};
use crate::config::{Config, Given, LoadError, Replica};
use crate::coordinator::etcd_log;
use crate::coordinator::open_error::OpenError;
use crate::coordinator::plan::{Adoption, Plan};
use crate::coordinator::{Leader, ReplicaAddress};
use crate::elastic;
use crate::elastic::ServerSource;
use crate::local::LocalState;
use crate::local::limits::{Limits, Pooling, ReplicaTimeouts};
use crate::logging::{self, Level};
use crate::membership::adoption::{self, Settled};
use crate::membership::place_table::configured;
use crate::pool::POOL_MODE_TRANSACTION;
use crate::security::tls::Identity;
use crate::terminal::Progress;

/// `onecopy check`.
pub(crate) fn check(serve: &Serve, progress: &Progress) -> Result<(), NodeError> {
    let config = load(serve.config.as_ref(), &serve.settings)?;
    config.check_files().map_err(LoadError::Files)?;
    let log = config.log_place(&propagation(&config)?)?;
    for [name, value, ..] in config.shown() {
        progress.result(format_args!("{name} = {value:?}"));
    }
    for Replica { name, address } in &config.replicas {
        progress.result(format_args!("replica {name} at {address}"));
    }
    for rule in config.placement.iter() {
        progress.result(rule);
    }
    let identity = config.identity().map_err(LoadError::from)?;
    if let Some(concern) = identity.and_then(|identity| identity.concern()) {
        progress.say(format_args!("warning: {concern}"));
    }
    if let LogPlace::Etcd(place) = &log {
        for concern in inspect_etcd(place)? {
            progress.say(format_args!("warning: {concern}"));
        }
        progress.result(format_args!("etcd at {}", place.urls.join(", ")));
    }
    progress.say("the configuration is valid");
    Ok(())
}

/// Runs a node until it is stopped. If another process is to take over, this one becomes it.
pub(crate) async fn run(serve: Serve, progress: &Progress) -> Result<(), NodeError> {
    let successor = Successor::find()?;
    let mut signals = Signals::take()?;
    match run_here(serve, &successor, &mut signals, progress).await? {
        // A node that is told to stop while it closes stops.
        Ended::Left(estate) if signals.has_come() => estate.turn_away(),
        Ended::Left(estate) => return Err(successor.take_over(estate)),
        Ended::Stopped => {}
    }
    Ok(())
}

async fn run_here(
    serve: Serve,
    successor: &Successor,
    signals: &mut Signals,
    progress: &Progress,
) -> Result<Ended, NodeError> {
    let mut inheritance = Inheritance::take()?;
    let config = load(serve.config.as_ref(), &serve.settings)?;
    config.check_files().map_err(LoadError::Files)?;
    let propagation = propagation(&config)?;
    let log = config.log_place(&propagation)?;
    let level = logging::start(config.text("log_level"), config.text("log_format") == "json");
    inheritance.warn();
    let hangup = signals::take(SignalKind::hangup())?;
    let restart = Restarts::signal()?;
    let listeners = inheritance.listen(config.addresses("listen")).await?;
    let pages = listen(config.addresses("http_listen")).await?;
    let group = group(&config).await?;
    let served = served(&config)?;
    warn_of_etcd(&log).await?;
    let folder = config.path("data");
    if let LogPlace::Etcd(place) = &log
        && place.peers.is_some()
    {
        let settings = several_settings(&config, (**place).clone(), &propagation, served)?;
        let running = Running { config, serve, level, hangup, pages, group };
        let clients = Clients::of_process(listeners, inheritance);
        let restarts = |local: &Arc<LocalState>| Restarts::take(restart, successor.clone(), local);
        return run_several(settings, running, clients, restarts, signals, progress).await;
    }
    let (Settled { membership, places, .. }, mut node) = loop {
        let patience = config.duration("start_patience");
        let settling = adoption::settle(&folder, &log, &served, &config.replicas, patience);
        let settled = tokio::select! {
            settled = settling => settled?,
            () = signals.stop() => return Err(NodeError::Interrupted),
        };
        match open(plan(&config, &served, &log, &propagation, &settled)?).await {
            // A former leader has changed the members before this node's claim; now none can.
            Err(OpenError::Register(RegisterError::Outdated { .. })) => {}
            opened => break (settled, opened?),
        }
    };
    let leader = Arc::clone(&node.leader);
    tell_of_node(&node.subject(listens_on(&config)), pages, group);
    if let Some(concern) = put_into_force(&config, &leader.local.runtime_config, &level)? {
        tracing::warn!("{concern}");
    }
    let (replicas, placement) = (config.replicas.clone(), config.placement.clone());
    node.add_chore(elastic::run(Arc::clone(&leader), config.elastic(), ServerSource::Operator));
    reload_by(config, serve, &leader.local, level);
    let mut clients = Clients::of_process(listeners, inheritance);
    let addresses = clients.addresses();
    let reloading = Arc::downgrade(&leader.local);
    let begin = async |leader: &Leader| {
        if !membership.is_adopted() {
            adopt(leader, &membership, &served, &replicas, progress).await?;
        }
        configured::report(leader, &placement).await;
        progress.result(format_args!("onecopy serves database {} on {addresses}", served.database));
        systemd::tell("READY=1");
        reload_on(hangup, reloading);
        Ok(())
    };
    if node.passes_sessions() {
        clients = clients.restarted_by(Restarts::take(restart, successor.clone(), &leader.local));
    } else {
        Restarts::refuse(restart);
    }
    let mut member_registry = MemberRegistry::open(&leader, membership.clone(), places)?;
    tokio::select! {
        ended = node.run(clients, signals, progress, begin) => ended,
        () = member_registry.run() => Err(NodeError::RegistryEnded),
    }
}

/// The plan of a node over these servers.
fn plan(
    config: &Config,
    served: &Served,
    log: &LogPlace,
    propagation: &Propagation,
    settled: &Settled,
) -> Result<Plan, NodeError> {
    let Settled { membership, places, on_etcd } = settled;
    Ok(Plan {
        cluster: membership.id()?,
        served: served.clone(),
        data: config.path("data"),
        log: log.clone(),
        members: on_etcd.clone(),
        adoption: if membership.is_adopted() { Adoption::Done } else { Adoption::UnderWay },
        places: places.iter().map(|(replica, member)| ReplicaAddress::of(*replica, member)).collect(),
        limits: limits(config),
        runtime_config: runtime_config(config),
        start_patience: Some(config.duration("start_patience")),
        propagation: propagation.clone(),
        new_tables: config.placement.clone(),
    })
}

/// The database that is served, and the account for it.
fn served(config: &Config) -> Result<Served, NodeError> {
    Ok(Served {
        id: DatabaseId::FIRST,
        database: config.text("database").to_owned(),
        superuser: config.text("superuser").to_owned(),
        secret: config.secret().map_err(LoadError::from)?,
    })
}

/// What the configuration says of one of several nodes.
fn several_settings(
    config: &Config,
    place: EtcdPlace,
    propagation: &Propagation,
    served: Served,
) -> Result<Settings, NodeError> {
    let Some(peers) = place.peers.clone() else {
        return Err(NodeError::LogPlace(LogPlaceError::NodesNeedEtcd));
    };
    Ok(Settings {
        folder: config.path("data"),
        served,
        replicas: config.replicas.clone(),
        start_patience: config.duration("start_patience"),
        place,
        peers,
        propagation: propagation.clone(),
        new_tables: config.placement.clone(),
        elastic: config.elastic(),
        limits: limits(config),
    })
}

/// What a node needs to reload its configuration while it runs.
struct Running {
    config: Config,
    serve: Serve,
    level: Level,
    hangup: Signal,
    pages: Vec<TcpListener>,
    group: Option<UdpSocket>,
}

async fn run_several(
    settings: Settings,
    running: Running,
    clients: Clients,
    restarts: impl FnOnce(&Arc<LocalState>) -> Restarts,
    signals: &mut Signals,
    progress: &Progress,
) -> Result<Ended, NodeError> {
    let Running { config, serve, level, hangup, pages, group } = running;
    let node = tokio::select! {
        node = SeveralNode::open(settings, runtime_config(&config), progress) => node?,
        () = signals.stop() => return Err(NodeError::Interrupted),
    };
    tell_of_node(&node.subject(listens_on(&config)), pages, group);
    let local = Arc::clone(&node.coordinator.local);
    if let Some(concern) = put_into_force(&config, &local.runtime_config, &level)? {
        tracing::warn!("{concern}");
    }
    let database = config.text("database").to_owned();
    reload_by(config, serve, &local, level);
    let reloading = Arc::downgrade(&local);
    let addresses = clients.addresses();
    let begin = || {
        progress.result(format_args!("onecopy serves database {database} on {addresses}"));
        systemd::tell("READY=1");
        reload_on(hangup, reloading);
    };
    let clients = clients.restarted_by(restarts(&local));
    node.run(clients, signals, progress, begin).await
}

/// The first address on which clients are served.
fn listens_on(config: &Config) -> SocketAddr {
    *config.addresses("listen").first().expect("the setting has at least one address")
}

/// The socket on which the node hears who looks for nodes, if it is to answer.
async fn group(config: &Config) -> Result<Option<UdpSocket>, NodeError> {
    let Some(group) = config.addresses("discovery").first().copied() else { return Ok(None) };
    let socket = discovery::listen(group, listens_on(config)).await;
    socket.map(Some).map_err(|source| NodeError::Listen { address: group, source })
}

/// Serves the pages of a node, and answers who looks for nodes.
fn tell_of_node(of: &Subject, pages: Vec<TcpListener>, group: Option<UdpSocket>) {
    for listener in pages {
        tokio::spawn(metrics::serve(of.clone(), listener));
    }
    if let Some(socket) = group {
        let of = of.clone();
        tokio::spawn(async move { discovery::serve(socket, of.listens_on, || of.load()).await });
    }
}

/// Refuses an etcd that cannot hold the log, and logs what an operator should know of it.
async fn warn_of_etcd(log: &LogPlace) -> Result<(), NodeError> {
    let LogPlace::Etcd(place) = log.clone() else { return Ok(()) };
    let concerns = spawn_blocking(move || inspect_etcd(&place)).await;
    for concern in concerns.map_err(|error| NodeError::Threads(error.into()))?? {
        tracing::warn!("{concern}");
    }
    Ok(())
}

/// Whether this etcd can hold the log. Blocks on the network.
fn inspect_etcd(place: &EtcdPlace) -> Result<Vec<EtcdConcern>, NodeError> {
    let gateway = etcd_log::gateway(place)?;
    etcd_check::inspect(&gateway).map_err(|error| NodeError::Etcd(Box::new(error)))
}

/// The settings of protocol `c-jdbc`.
fn c_jdbc_words(config: &Config) -> CJdbcWords<'_> {
    CJdbcWords {
        level: config.text("transaction_level"),
        respond: config.text("early_response"),
        balancer: config.text("balancer"),
        weights: config.text("balancer_weights"),
        cache: config.text("query_cache"),
        cache_bytes: config.number("query_cache_size"),
    }
}

/// The protocol of the configuration, with its settings. Refuses settings that do not go with it.
fn propagation(config: &Config) -> Result<Propagation, NodeError> {
    let adjustments = Adjustments {
        rule: config.text("rule"),
        see: config.text("see"),
        memory_bytes: config.number("memory"),
        patience: config.duration("chain_patience"),
        start: config.text("start"),
        message_max: config.duration("message_max"),
        perform: config.text("perform"),
        c_jdbc: c_jdbc_words(config),
    };
    let propagation = protocol::named(config.text("protocol"), adjustments)?;
    super::check_elastic(&config.elastic(), &propagation)?;
    super::check_cache(config.number("result_cache"), &propagation)?;
    super::check_placement(&config.placement, &propagation)?;
    Ok(propagation)
}

async fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, NodeError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let listener = TcpListener::bind(address).await;
        listeners.push(listener.map_err(|source| NodeError::Listen { address: *address, source })?);
    }
    Ok(listeners)
}

fn load(file: Option<&PathBuf>, flags: &Given) -> Result<Config, LoadError> {
    let environment = |name: &str| std::env::var(name).ok();
    Config::load(file.map(PathBuf::as_path), environment, flags).map_err(LoadError::Invalid)
}

/// Puts the changeable settings into force, all or none, and returns warnings.
fn put_into_force(
    config: &Config,
    runtime_config: &RuntimeConfig,
    level: &Level,
) -> Result<Option<String>, LoadError> {
    let identity = config.identity()?;
    let concern = identity.as_ref().and_then(Identity::concern);
    runtime_config.set_identity(identity);
    runtime_config.set_access(config.access());
    runtime_config.set(config.number("sessions_max"), config.duration("stop_patience"), config.shown());
    runtime_config.set_logins(logins(config));
    runtime_config.set_lends_sequences(config.text("sequences") == SEQUENCES_LENT);
    level.set(config.text("log_level"));
    Ok(concern)
}

/// Builds the function behind RELOAD and SIGHUP.
fn reload_by(config: Config, serve: Serve, local: &LocalState, level: Level) {
    local.runtime_config.reload_by(Box::new(move |runtime_config| -> Result<ReloadNotes, ReloadError> {
        let new = load(serve.config.as_ref(), &serve.settings)?;
        let differ = config.fixed_that_differ(&new);
        let concern = put_into_force(&new, runtime_config, &level)?;
        if let Some(concern) = &concern {
            tracing::warn!("{concern}");
        }
        let later = differ.into_iter().map(|name| format!("{name} takes its new value at the next start"));
        Ok(later.chain(concern).collect())
    }));
}

/// Reloads at every SIGHUP. One that came earlier is still pending.
fn reload_on(mut hangup: Signal, local: Weak<LocalState>) {
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            let Some(local) = local.upgrade() else { return };
            systemd::reloading();
            match local.reload() {
                Ok(notes) => tracing::warn!(notes = notes.join("; "), "reloaded the configuration"),
                Err(error) => {
                    tracing::error!(reason = %error, "cannot reload the configuration; the old one remains");
                }
            }
            systemd::tell("READY=1");
        }
    });
}

fn limits(config: &Config) -> Limits {
    Limits {
        transaction_bytes_max: config.number("transaction_size_max"),
        reader_patience: config.duration("reader_patience"),
        log_bytes_max: config.number("log_size_max"),
        parked_log_bytes_max: config.number("parked_log_size_max"),
        result_cache_bytes_max: config.number("result_cache").max(c_jdbc_words(config).cache_bytes()),
        timeouts: ReplicaTimeouts {
            health_deadline: config.duration("health_deadline"),
            takeover_after: config.duration("takeover_after"),
            drain: config.duration("drain_patience"),
        },
        pooling: pooling(config),
    }
}

fn runtime_config(config: &Config) -> RuntimeConfig {
    RuntimeConfig::new(config.number("sessions_max"), config.duration("stop_patience"), config.access())
}

fn logins(config: &Config) -> Logins {
    let number = |name| usize::try_from(config.number(name)).unwrap_or(usize::MAX);
    let limits =
        LoginLimits { total_max: number("logins_max"), address_max: number("logins_per_address_max") };
    Logins { limits, patience: config.duration("authentication_timeout") }
}

fn pooling(config: &Config) -> Pooling {
    Pooling {
        is_shared: config.text("pool_mode") == POOL_MODE_TRANSACTION,
        size: usize::try_from(config.number("pool_size")).unwrap_or(usize::MAX),
        wait: config.duration("pool_wait"),
    }
}
