//! The tables that people know from PgBouncer.
//!
//! The columns have PgBouncer's names and meaning, so that its exporter and dashboards work; what has no counterpart
//! here is 0 or empty. Where a session keeps its server connections the pool mode is `session`, and a server connection is
//! active while its session is; where sessions share them it is `transaction`, a connection is active while a session has
//! it, and those that nobody has are idle. A session that keeps one all the same is told with the reason (`pinned`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use crate::calendar;
use crate::coordinator::Hub;
use crate::coordinator::session_registry::{Card, Counted, Doing, STATS_PERIOD};
use crate::pool::pins::Pins;
use crate::pool::{POOL_MODE_TRANSACTION, Usage};

fn pool_mode(hub: &Hub) -> &'static str {
    if hub.pools.pooling.is_shared { POOL_MODE_TRANSACTION } else { "session" }
}

/// SHOW CLIENTS.
pub(super) fn clients(hub: &Hub) -> Vec<Vec<String>> {
    let row = |card: &Card| {
        let doing = card.doing();
        let wait =
            if matches!(doing, Doing::Waiting | Doing::Paused) { card.since() } else { Duration::ZERO };
        let [addr, port] = of_address(card.who.peer);
        let [local_addr, local_port] = of_address(card.who.local);
        let link = card.servers().values().next().map(i32::to_string).unwrap_or_default();
        vec![
            "C".to_owned(),
            card.who.user.clone(),
            hub.served.database.clone(),
            doing.word().to_owned(),
            addr,
            port,
            local_addr,
            local_port,
            timestamp(card.connected),
            timestamp(card.last_query()),
            wait.as_secs().to_string(),
            wait.subsec_micros().to_string(),
            "0".to_owned(),
            format!("{:#x}", card.id.0),
            link,
            "0".to_owned(),
            String::new(),
            card.who.application_name.clone(),
            card.id.0.to_string(),
            Pins::of(card.pins.load(Ordering::Relaxed)).words(),
        ]
    };
    hub.clients.cards().iter().map(|card| row(card)).collect()
}

/// SHOW SERVERS.
pub(super) fn servers(hub: &Hub) -> Vec<Vec<String>> {
    let mut rows = idle_servers(hub);
    for card in hub.clients.cards() {
        let is_used = hub.pools.pooling.is_shared || is_active(card.doing());
        let state = if is_used { "active" } else { "idle" };
        for (replica, pid) in card.servers() {
            let seat = &hub.seats[usize::from(replica.0)];
            rows.push(vec![
                "S".to_owned(),
                card.who.user.clone(),
                hub.served.database.clone(),
                state.to_owned(),
                seat.name.clone(),
                seat.host.clone(),
                seat.port.to_string(),
                timestamp(card.connected),
                timestamp(card.last_query()),
                card.id.0.to_string(),
                pid.to_string(),
                String::new(),
                card.who.application_name.clone(),
            ]);
        }
    }
    rows
}

/// Connections that sessions share and nobody has.
fn idle_servers(hub: &Hub) -> Vec<Vec<String>> {
    let of = |usage: &Usage| -> Vec<Vec<String>> {
        let seat = &hub.seats[usage.replica];
        let row = |pid: &i32| {
            let told = [usage.role.as_str(), &hub.served.database, "idle", &seat.name, &seat.host];
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
    hub.pools.usage().iter().flat_map(of).collect()
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
pub(super) fn pools(hub: &Hub) -> Vec<Vec<String>> {
    let mut pools: BTreeMap<String, Pool> = BTreeMap::new();
    for card in hub.clients.cards() {
        let pool = pools.entry(card.who.user.clone()).or_default();
        let (doing, servers) = (card.doing(), card.servers().len());
        if matches!(doing, Doing::Waiting | Doing::Paused) {
            pool.waiting += 1;
            pool.longest_us = pool.longest_us.max(card.since().as_micros());
        } else {
            pool.active += 1;
        }
        if is_active(doing) || hub.pools.pooling.is_shared {
            pool.servers_active += servers;
        } else {
            pool.servers_idle += servers;
        }
    }
    for usage in hub.pools.usage() {
        pools.entry(usage.role).or_default().servers_idle += usage.idle.len();
    }
    let row = |(user, pool): (String, Pool)| {
        let mut row = vec![hub.served.database.clone(), user];
        let numbers =
            [pool.active, pool.waiting, 0, 0, pool.servers_active, 0, 0, pool.servers_idle, 0, 0, 0];
        row.extend(numbers.iter().map(usize::to_string));
        row.extend([(pool.longest_us / 1_000_000).to_string(), (pool.longest_us % 1_000_000).to_string()]);
        row.push(pool_mode(hub).to_owned());
        row
    };
    pools.into_iter().map(row).collect()
}

/// SHOW DATABASES: one row for each replica.
pub(super) fn databases(hub: &Hub) -> Vec<Vec<String>> {
    let (cards, usage) = (hub.clients.cards(), hub.pools.usage());
    let pooling = hub.pools.pooling;
    let most =
        if pooling.is_shared { pooling.size.to_string() } else { hub.in_force.sessions_max().to_string() };
    let paused = if hub.clients.is_paused() { "1" } else { "0" };
    let rows = hub.replicas();
    let rows = rows.iter().map(|status| {
        let seat = &hub.seats[status.replica];
        let current = cards.iter().filter(|card| card.servers().contains_key(&status.replica)).count();
        let idle: usize = usage.iter().filter(|u| u.replica == status.replica).map(|u| u.idle.len()).sum();
        let disabled = status.state != cluster::parts::replica::State::Up;
        vec![
            hub.served.database.clone(),
            seat.host.clone(),
            seat.port.to_string(),
            hub.served.database.clone(),
            String::new(),
            most.clone(),
            "0".to_owned(),
            "0".to_owned(),
            pool_mode(hub).to_owned(),
            hub.in_force.sessions_max().to_string(),
            (current + idle).to_string(),
            paused.to_owned(),
            u8::from(disabled).to_string(),
        ]
    });
    rows.collect()
}

/// SHOW LISTS.
pub(super) fn lists(hub: &Hub) -> Vec<Vec<String>> {
    let cards = hub.clients.cards();
    let users = users(hub).len();
    let is_shared = hub.pools.pooling.is_shared;
    let of = |active: bool| -> usize {
        let cards = cards.iter().filter(|card| (is_shared || is_active(card.doing())) == active);
        cards.map(|card| card.servers().len()).sum()
    };
    let idle: usize = hub.pools.usage().iter().map(|usage| usage.idle.len()).sum();
    let items = [
        ("databases", 1),
        ("users", users),
        ("pools", users),
        ("replicas", hub.seats.len()),
        ("free_clients", 0),
        ("used_clients", cards.len()),
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
pub(super) fn users(hub: &Hub) -> Vec<Vec<String>> {
    let mut users: BTreeMap<String, usize> = BTreeMap::new();
    for card in hub.clients.cards() {
        *users.entry(card.who.user.clone()).or_default() += card.servers().len();
    }
    let row = |(user, connections): (String, usize)| {
        vec![user, String::new(), pool_mode(hub).to_owned(), connections.to_string()]
    };
    users.into_iter().map(row).collect()
}

/// SHOW STATS as PgBouncer has it.
pub(super) fn stats(hub: &Hub) -> Vec<Vec<String>> {
    let mut row = vec![hub.served.database.clone()];
    row.extend(sums(hub.clients.totals()));
    row.extend(means(hub.clients.last_period()));
    vec![row]
}

/// SHOW STATS_TOTALS.
pub(super) fn totals(hub: &Hub) -> Vec<Vec<String>> {
    let mut row = vec![hub.served.database.clone()];
    row.extend(sums(hub.clients.totals()));
    vec![row]
}

/// SHOW STATS_AVERAGES.
pub(super) fn averages(hub: &Hub) -> Vec<Vec<String>> {
    let mut row = vec![hub.served.database.clone()];
    row.extend(means(hub.clients.last_period()));
    vec![row]
}

fn sums(counted: Counted) -> [String; 8] {
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
fn means(counted: Counted) -> [String; 8] {
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

fn is_active(doing: Doing) -> bool {
    matches!(doing, Doing::Active | Doing::InTransaction)
}

fn of_address(address: Option<SocketAddr>) -> [String; 2] {
    address.map(|address| [address.ip().to_string(), address.port().to_string()]).unwrap_or_default()
}

/// As PgBouncer writes it, in UTC.
fn timestamp(time: SystemTime) -> String {
    calendar::shown(time.into())
}
