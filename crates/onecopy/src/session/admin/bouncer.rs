//! PgBouncer's tables.
//!
//! The columns have PgBouncer's names and meaning, so that its exporter and dashboards work. A column without a
//! counterpart is 0 or empty. Where a session keeps its server connections, the pool mode is `session`, and a server
//! connection is active while its session is. Where sessions share them, the mode is `transaction`: a connection is
//! active while a session has it, and idle otherwise. `pinned` says why a session keeps a shared connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use crate::calendar;
use crate::coordinator::Coordinator;
use crate::link::Worker;
use crate::local::pins::Pins;
use crate::local::session_registry::{Activity, STATS_PERIOD, SessionCounts, SessionEntry};
use crate::pool::POOL_MODE_TRANSACTION;
use crate::pool::pools::Usage;

fn pool_mode(worker: &Worker) -> &'static str {
    if worker.pools.pooling.is_shared { POOL_MODE_TRANSACTION } else { "session" }
}

/// Columns of SHOW CLIENTS at a node that is alone.
pub(super) const CLIENT_COLUMNS: usize = 20;

/// SHOW CLIENTS of this node.
pub(super) fn clients(coordinator: &Coordinator) -> Vec<Vec<String>> {
    let row = |entry: &SessionEntry| {
        let activity = entry.activity();
        let wait = if matches!(activity, Activity::Waiting | Activity::Paused) {
            entry.since()
        } else {
            Duration::ZERO
        };
        let [addr, port] = of_address(entry.client_info.peer);
        let [local_addr, local_port] = of_address(entry.client_info.local);
        let link = entry.servers().values().next().map(i32::to_string).unwrap_or_default();
        vec![
            "C".to_owned(),
            entry.client_info.user.clone(),
            coordinator.database.served.database.clone(),
            activity.word().to_owned(),
            addr,
            port,
            local_addr,
            local_port,
            timestamp(entry.connected),
            timestamp(entry.last_query()),
            wait.as_secs().to_string(),
            wait.subsec_micros().to_string(),
            "0".to_owned(),
            format!("{:#x}", entry.id.0),
            link,
            "0".to_owned(),
            String::new(),
            entry.client_info.application_name.clone(),
            entry.id.0.to_string(),
            Pins::of(entry.pins.load(Ordering::Relaxed)).words(),
        ]
    };
    coordinator.local.sessions.entries().iter().map(|entry| row(entry)).collect()
}

/// SHOW SERVERS.
pub(super) fn servers(worker: &Worker) -> Vec<Vec<String>> {
    let coordinator = &worker.coordinator;
    let mut rows = idle_servers(worker);
    for entry in coordinator.local.sessions.entries() {
        let is_used = worker.pools.pooling.is_shared || is_active(entry.activity());
        let state = if is_used { "active" } else { "idle" };
        for (replica, pid) in entry.servers() {
            let seat = &coordinator.seats[usize::from(replica.0)];
            rows.push(vec![
                "S".to_owned(),
                entry.client_info.user.clone(),
                coordinator.database.served.database.clone(),
                state.to_owned(),
                seat.name.clone(),
                seat.host.clone(),
                seat.port.to_string(),
                timestamp(entry.connected),
                timestamp(entry.last_query()),
                entry.id.0.to_string(),
                pid.to_string(),
                String::new(),
                entry.client_info.application_name.clone(),
            ]);
        }
    }
    rows
}

/// Shared connections that no session holds.
fn idle_servers(worker: &Worker) -> Vec<Vec<String>> {
    let coordinator = &worker.coordinator;
    let of = |usage: &Usage| -> Vec<Vec<String>> {
        let seat = &coordinator.seats[usage.replica];
        let row = |pid: &i32| {
            let told =
                [usage.role.as_str(), &coordinator.database.served.database, "idle", &seat.name, &seat.host];
            let mut row = vec!["S".to_owned()];
            row.extend(told.map(str::to_owned));
            row.push(seat.port.to_string());
            row.extend(std::iter::repeat_n(String::new(), 3));
            row.push(pid.to_string());
            row.extend(std::iter::repeat_n(String::new(), 2));
            row
        };
        usage.idle.iter().map(row).collect()
    };
    worker.pools.usage().iter().flat_map(of).collect()
}

#[derive(Default)]
struct Pool {
    active: usize,
    waiting: usize,
    servers_active: usize,
    servers_idle: usize,
    longest_us: u128,
}

/// SHOW POOLS: one for each role that is connected.
pub(super) fn pools(worker: &Worker) -> Vec<Vec<String>> {
    let coordinator = &worker.coordinator;
    let mut pools: BTreeMap<String, Pool> = BTreeMap::new();
    for entry in coordinator.local.sessions.entries() {
        let pool = pools.entry(entry.client_info.user.clone()).or_default();
        let (activity, servers) = (entry.activity(), entry.servers().len());
        if matches!(activity, Activity::Waiting | Activity::Paused) {
            pool.waiting += 1;
            pool.longest_us = pool.longest_us.max(entry.since().as_micros());
        } else {
            pool.active += 1;
        }
        if is_active(activity) || worker.pools.pooling.is_shared {
            pool.servers_active += servers;
        } else {
            pool.servers_idle += servers;
        }
    }
    for usage in worker.pools.usage() {
        pools.entry(usage.role).or_default().servers_idle += usage.idle.len();
    }
    let row = |(user, pool): (String, Pool)| {
        let mut row = vec![coordinator.database.served.database.clone(), user];
        let numbers =
            [pool.active, pool.waiting, 0, 0, pool.servers_active, 0, 0, pool.servers_idle, 0, 0, 0];
        row.extend(numbers.iter().map(usize::to_string));
        row.extend([(pool.longest_us / 1_000_000).to_string(), (pool.longest_us % 1_000_000).to_string()]);
        row.push(pool_mode(worker).to_owned());
        row
    };
    pools.into_iter().map(row).collect()
}

/// SHOW DATABASES: one row for each replica.
pub(super) fn databases(worker: &Worker) -> Vec<Vec<String>> {
    let coordinator = &worker.coordinator;
    let (entries, usage) = (coordinator.local.sessions.entries(), worker.pools.usage());
    let pooling = worker.pools.pooling;
    let most = if pooling.is_shared {
        pooling.size.to_string()
    } else {
        coordinator.local.runtime_config.sessions_max().to_string()
    };
    let paused = if coordinator.local.sessions.pauses.is_by_command() { "1" } else { "0" };
    let rows = coordinator.replicas();
    let rows = rows.iter().map(|status| {
        let seat = &coordinator.seats[status.replica];
        let current = entries.iter().filter(|entry| entry.servers().contains_key(&status.replica)).count();
        let idle: usize = usage.iter().filter(|u| u.replica == status.replica).map(|u| u.idle.len()).sum();
        let disabled = status.state != cluster::parts::replica::State::Up;
        vec![
            coordinator.database.served.database.clone(),
            seat.host.clone(),
            seat.port.to_string(),
            coordinator.database.served.database.clone(),
            String::new(),
            most.clone(),
            "0".to_owned(),
            "0".to_owned(),
            pool_mode(worker).to_owned(),
            coordinator.local.runtime_config.sessions_max().to_string(),
            (current + idle).to_string(),
            paused.to_owned(),
            u8::from(disabled).to_string(),
        ]
    });
    rows.collect()
}

/// SHOW LISTS.
pub(super) fn lists(worker: &Worker) -> Vec<Vec<String>> {
    let coordinator = &worker.coordinator;
    let entries = coordinator.local.sessions.entries();
    let users = users(worker).len();
    let is_shared = worker.pools.pooling.is_shared;
    let of = |active: bool| -> usize {
        let entries = entries.iter().filter(|entry| (is_shared || is_active(entry.activity())) == active);
        entries.map(|entry| entry.servers().len()).sum()
    };
    let idle: usize = worker.pools.usage().iter().map(|usage| usage.idle.len()).sum();
    let items = [
        ("databases", 1),
        ("users", users),
        ("pools", users),
        ("replicas", coordinator.seats.len()),
        ("free_clients", 0),
        ("used_clients", entries.len()),
        ("login_clients", 0),
        ("free_servers", of(false) + idle),
        ("used_servers", of(true)),
        ("dns_names", 0),
        ("dns_zones", 0),
        ("dns_queries", 0),
        ("dns_pending", 0),
    ];
    items.iter().map(|(name, count)| vec![(*name).to_owned(), count.to_string()]).collect()
}

/// SHOW USERS.
pub(super) fn users(worker: &Worker) -> Vec<Vec<String>> {
    let coordinator = &worker.coordinator;
    let mut users: BTreeMap<String, usize> = BTreeMap::new();
    for entry in coordinator.local.sessions.entries() {
        *users.entry(entry.client_info.user.clone()).or_default() += entry.servers().len();
    }
    let row = |(user, connections): (String, usize)| {
        vec![user, String::new(), pool_mode(worker).to_owned(), connections.to_string()]
    };
    users.into_iter().map(row).collect()
}

/// SHOW STATS as PgBouncer has it.
pub(super) fn stats(coordinator: &Coordinator) -> Vec<Vec<String>> {
    let mut row = vec![coordinator.database.served.database.clone()];
    row.extend(sums(coordinator.local.sessions.totals()));
    row.extend(means(coordinator.local.sessions.last_period()));
    vec![row]
}

/// SHOW STATS_TOTALS.
pub(super) fn totals(coordinator: &Coordinator) -> Vec<Vec<String>> {
    let mut row = vec![coordinator.database.served.database.clone()];
    row.extend(sums(coordinator.local.sessions.totals()));
    vec![row]
}

/// SHOW STATS_AVERAGES.
pub(super) fn averages(coordinator: &Coordinator) -> Vec<Vec<String>> {
    let mut row = vec![coordinator.database.served.database.clone()];
    row.extend(means(coordinator.local.sessions.last_period()));
    vec![row]
}

fn sums(counted: SessionCounts) -> [String; 8] {
    [
        counted.connections,
        counted.transactions,
        counted.queries,
        counted.received_bytes,
        counted.sent_bytes,
        counted.transaction_us,
        counted.query_us,
        counted.wait_us,
    ]
    .map(|number| number.to_string())
}

/// Counts a second, and times for each transaction, query and wait.
fn means(counted: SessionCounts) -> [String; 8] {
    let a_second = |number: u64| number / STATS_PERIOD.as_secs();
    let each = |sum_us: u64, count: u64| sum_us.checked_div(count).unwrap_or_default();
    [
        a_second(counted.connections),
        a_second(counted.transactions),
        a_second(counted.queries),
        a_second(counted.received_bytes),
        a_second(counted.sent_bytes),
        each(counted.transaction_us, counted.transactions),
        each(counted.query_us, counted.queries),
        each(counted.wait_us, counted.queries),
    ]
    .map(|number| number.to_string())
}

fn is_active(activity: Activity) -> bool {
    matches!(activity, Activity::Active | Activity::InTransaction)
}

fn of_address(address: Option<SocketAddr>) -> [String; 2] {
    address.map(|address| [address.ip().to_string(), address.port().to_string()]).unwrap_or_default()
}

/// As PgBouncer writes it, in UTC.
pub(super) fn timestamp(time: SystemTime) -> String {
    calendar::shown(time.into())
}
