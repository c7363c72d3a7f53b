//! `onecopy up`: a node with servers of its own.
//!
//! The node claims its port and data folder before it starts anything, so a failure leaves nothing half done.
//! Supervisors restart servers while the node runs and stop them afterwards. A server that does not start does not
//! keep the others from serving. If its data is damaged, it is rebuilt.
//!
//! With `--nodes` the nodes are processes of their own ([`nodes`]).

mod auto_rebuild;
mod nodes;
mod server_registry;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use commitlog::Entry;
use pgserver::{Home, Server, ServerError, UpError, UpOptions};
use tokio::net::TcpListener;

use super::NodeError;
use super::clients::Clients;
use super::metrics;
use super::open::open;
use super::signals::Signals;
use crate::backend::Served;
use crate::cli::Up;
use crate::client::own_settings::SEQUENCES_LENT;
use crate::config::c_jdbc::CJdbcWords;
use crate::config::hba::Access;
use crate::config::log::LogPlace;
use crate::config::placement::PlacementRules;
use crate::config::protocol::{self, Adjustments};
use crate::config::runtime::{DEFAULT_SESSIONS_MAX, Logins, POOLED_SESSIONS_MAX, RuntimeConfig};
use crate::coordinator::Leader;
use crate::coordinator::parking::parked_at;
use crate::coordinator::plan::{Adoption, Plan};
use crate::coordinator::register::TermRegister;
use crate::elastic;
use crate::elastic::ServerSource;
use crate::local::limits::{Limits, Pooling, ReplicaTimeouts};
use crate::pool::POOL_MODE_TRANSACTION;
use crate::terminal::Progress;
pub(crate) use nodes::NodesError;
use server_registry::{ServerRegistry, place};

fn adjustments(up: &Up) -> Adjustments<'_> {
    let flags = &up.protocol;
    Adjustments {
        rule: &flags.rule,
        see: &flags.see,
        memory_bytes: flags.memory,
        patience: Duration::from_millis(u64::from(flags.chain_patience_ms)),
        start: &flags.start,
        message_max: Duration::from_millis(u64::from(flags.message_max_ms)),
        perform: &flags.perform,
        c_jdbc: CJdbcWords {
            level: &flags.transaction_level,
            respond: &flags.early_response,
            balancer: &flags.balancer,
            weights: &flags.balancer_weights,
            cache: &flags.query_cache,
            cache_bytes: u64::from(flags.query_cache_mb) << 20,
        },
    }
}

/// Runs a node and its servers until it is stopped.
pub(crate) async fn run(up: Up, progress: &Progress) -> Result<(), NodeError> {
    match nodes::wanted(&up)? {
        1 => Box::pin(run_one(up, progress)).await,
        several => Box::pin(nodes::run(up, several, progress)).await,
    }
}

async fn run_one(up: Up, progress: &Progress) -> Result<(), NodeError> {
    let propagation = protocol::named(&up.protocol.name.name(), adjustments(&up))?;
    super::check_elastic(&up.elastic.config, &propagation)?;
    super::check_cache(result_cache_bytes(&up), &propagation)?;
    let mut signals = Signals::take()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, up.port));
    let listener =
        TcpListener::bind(address).await.map_err(|source| NodeError::Port { port: up.port, source })?;
    let limits = limits(&up);
    let pages = match up.http_port {
        None => None,
        Some(port) => {
            let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
            Some(listener.map_err(|source| NodeError::Port { port, source })?)
        }
    };
    let options = UpOptions { replicas: up.replicas, data: up.data, pg_bin: up.pg_bin };
    let shown: Arc<dyn pgserver::Progress> = Arc::new(progress.clone());
    let starting = async {
        let mut home = pgserver::prepare(&options, &shown).await?;
        let failed = start_awake(&mut home, progress).await?;
        Ok::<(Home, BTreeMap<u16, ServerError>), UpError>((home, failed))
    };
    let (mut home, failed) = tokio::select! {
        home = starting => home.map_err(|error| NodeError::Servers(Box::new(error)))?,
        () = signals.stop() => return Err(NodeError::Interrupted),
    };
    let plan = Plan {
        cluster: home.cluster,
        served: Served::of_new_servers(),
        data: home.dir.clone(),
        log: LogPlace::Files,
        members: None,
        adoption: Adoption::AsTheLogSays,
        places: home.servers.iter().map(place).collect(),
        limits,
        runtime_config: RuntimeConfig::new(
            if limits.pooling.is_shared { POOLED_SESSIONS_MAX } else { DEFAULT_SESSIONS_MAX },
            Duration::from_secs(up.patience.stop_patience.into()),
            // Node and servers listen on the loopback only, and trust all accounts of the machine.
            Access::open(),
        ),
        start_patience: None,
        propagation,
        new_tables: PlacementRules::default(),
    };
    plan.runtime_config.set_logins(Logins::of(up.logins_max.into()));
    plan.runtime_config.set_lends_sequences(up.sequences == SEQUENCES_LENT);
    let mut node = match open(plan).await {
        Ok(node) => node,
        Err(error) => {
            home.stop().await;
            return Err(error.into());
        }
    };
    if let Some(listener) = pages {
        tokio::spawn(metrics::serve(node.subject(address), listener));
    }
    node.add_chore(elastic::run(Arc::clone(&node.leader), up.elastic.config, ServerSource::Node));
    let mut server_registry = ServerRegistry::open(&node.leader, home, failed, progress)?;
    let begin = async |_: &Leader| {
        progress.result(format_args!("psql -h 127.0.0.1 -p {} -U postgres", up.port));
        Ok(())
    };
    let ended = tokio::select! {
        ended = node.run(Clients::at(vec![listener]), &mut signals, progress, begin) => ended,
        () = server_registry.run() => Err(NodeError::RegistryEnded),
    };
    server_registry.close().await;
    ended.map(|_| ())
}

/// Starts the servers that are not parked. If none of them starts, the parked ones are woken. One whose file cannot be
/// read counts as awake; the coordinator reports it.
async fn start_awake(home: &mut Home, progress: &Progress) -> Result<BTreeMap<u16, ServerError>, UpError> {
    let register = TermRegister::in_folder(&home.dir);
    let is_parked = |server: &Server| matches!(parked_at(&register, &server.name), Ok(Some(_)));
    let (parked, awake): (Vec<Server>, Vec<Server>) = home.servers.drain(..).partition(is_parked);
    home.servers = awake;
    let started = home.start().await;
    let is_alone = started.is_err() || home.servers.is_empty();
    let names: Vec<String> = parked.iter().map(|server| server.name.clone()).collect();
    home.servers.extend(parked);
    home.servers.sort_by_key(Server::number);
    if names.is_empty() || !is_alone {
        return started;
    }
    for name in names {
        match register.change(Entry::Parked(name.clone()), None).await {
            Ok(()) => progress.say(format_args!("waking {name}, because no other server starts")),
            Err(error) => progress.say(format_args!("{name} is parked and cannot be woken: {error}")),
        }
    }
    home.start().await
}

/// The size of the cache of protocol `onecopy`; 0 if it is off.
fn result_cache_bytes(up: &Up) -> u64 {
    u64::from(up.limits.result_cache_mb) << 20
}

/// The limits from the flags.
fn limits(up: &Up) -> Limits {
    Limits {
        transaction_bytes_max: u64::from(up.limits.transaction_max_mb) << 20,
        reader_patience: Duration::from_secs(up.limits.reader_patience.into()),
        log_bytes_max: u64::from(up.limits.log_max_mb) << 20,
        parked_log_bytes_max: u64::from(up.limits.parked_log_max_mb) << 20,
        result_cache_bytes_max: result_cache_bytes(up).max(adjustments(up).c_jdbc.cache_bytes()),
        timeouts: ReplicaTimeouts {
            health_deadline: Duration::from_millis(up.patience.health_deadline_ms.into()),
            takeover_after: Duration::from_millis(up.patience.takeover_after_ms.into()),
            drain: Duration::from_millis(up.patience.drain_patience_ms.into()),
        },
        pooling: Pooling {
            is_shared: up.pool.mode == POOL_MODE_TRANSACTION,
            size: up.pool.size.into(),
            wait: Duration::from_millis(up.pool.wait_ms.into()),
        },
    }
}
