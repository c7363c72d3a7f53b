//! Onecopy's own tables of the admin database.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cluster::ids::Version;
use cluster::parts::conflicts::Count;
use cluster::parts::replica::State;
use cluster::protocols::ChainStatus;

use super::bouncer;
use super::checkpoints;
use super::command::{Dialect, View, help};
use super::elastic;
use super::memory::{Kept, kept_in_memory, resident_bytes};
use super::placement;
use super::placement_advice::{self, held_by};
use super::transactions::number;
use crate::coordinator::parking::ParkingState;
use crate::coordinator::{Coordinator, Leader, MemberState};
use crate::database::workload_stats::Shown;
use crate::link::Worker;

/// A replica that lacks more versions than this is called catching up.
const CATCHING_UP_VERSIONS: u64 = 1_000;

/// The most templates that SHOW prints.
const TEMPLATES_MAX: usize = 1_000;

/// The rows of a table that each node knows of itself, in the order of its columns.
pub(super) fn of_node(worker: &Worker, view: View, dialect: Dialect) -> Vec<Vec<String>> {
    let coordinator = &worker.coordinator;
    match view {
        View::Cache => cache(coordinator),
        View::Config => coordinator.local.runtime_config.shown().into_iter().map(Vec::from).collect(),
        View::Databases => bouncer::databases(worker),
        View::Help => help(),
        View::Lists => bouncer::lists(worker),
        View::Memory => memory(worker),
        View::Pools => bouncer::pools(worker),
        View::Servers => bouncer::servers(worker),
        View::Stats if dialect == Dialect::Own => stats(worker),
        View::Stats => bouncer::stats(coordinator),
        View::StatsAverages => bouncer::averages(coordinator),
        View::StatsTotals => bouncer::totals(coordinator),
        View::Templates => templates(coordinator),
        View::Users => bouncer::users(worker),
        View::Version if dialect == Dialect::Own => version(coordinator),
        View::Version => vec![vec![format!("onecopy {}", env!("CARGO_PKG_VERSION"))]],
        _ => unreachable!("the leader knows it, or all nodes together"),
    }
}

/// The rows of a table that only the leader knows by itself.
pub(super) fn of_leader(leader: &Leader, view: View) -> Vec<Vec<String>> {
    match view {
        View::Chains => chains(leader),
        View::Checkpoints => checkpoints::rows(leader),
        View::Conflicts => conflicts(leader),
        View::Cost => elastic::cost(leader),
        View::Elastic => elastic::elastic(leader),
        View::Log => log(leader),
        View::Placement => placement::rows(leader),
        View::PlacementAdvice => placement_advice::rows(leader),
        View::Replicas => replicas(leader),
        _ => unreachable!("each node knows it, or all together"),
    }
}

fn log(leader: &Leader) -> Vec<Vec<String>> {
    // The replica whose applied set holds back trimming.
    let slowest = leader.replicas().into_iter().min_by_key(|status| (status.applied, status.replica));
    let slowest = slowest.map(|status| leader.seats[usize::from(status.replica.0)].name.clone());
    vec![vec![
        leader.term.cluster_id.to_string(),
        leader.term.epoch.to_string(),
        leader.log.first_retained().to_string(),
        leader.log.durable().to_string(),
        slowest.unwrap_or_default(),
    ]]
}

fn cache(coordinator: &Coordinator) -> Vec<Vec<String>> {
    let cache = &coordinator.local.result_cache;
    let (entries, bytes, limit) = cache.in_memory();
    let sizes = [("answers", entries as u64), ("bytes", bytes), ("limit_bytes", limit)];
    let rows = sizes.into_iter().chain(cache.counts.shown());
    rows.map(|(name, value)| vec![name.to_owned(), value.to_string()]).collect()
}

fn memory(worker: &Worker) -> Vec<Vec<String>> {
    let row = |kept: Kept| {
        let [entries, bytes, limit] = [kept.entries, kept.bytes, kept.limit_bytes].map(|n| n.to_string());
        vec![kept.name.to_owned(), entries, bytes, limit]
    };
    let sessions = worker.local.sessions.entries().len().to_string();
    let resident = vec!["process".to_owned(), sessions, resident_bytes().to_string(), String::new()];
    kept_in_memory(worker).into_iter().map(row).chain([resident]).collect()
}

fn replicas(leader: &Leader) -> Vec<Vec<String>> {
    let quarantined = leader.quarantined();
    leader
        .replicas()
        .iter()
        .map(|status| {
            let seat = &leader.seats[status.replica];
            let stage = leader.stage(status.replica);
            let parking = leader.parking.state(status.replica);
            let detail = match (&stage, quarantined.get(&status.replica)) {
                _ if let ParkingState::Parked { durable } = parking => parked_detail(leader, durable),
                (Some(stage), _) => stage.to_string(),
                (None, Some(reason)) => format!("{reason}; REBUILD REPLICA {} repairs it", seat.name),
                (None, None) if status.state == State::Down => {
                    seat.absence.reason().map_or_else(String::new, |(_, reason)| reason)
                }
                (None, None) => String::new(),
            };
            let state = match status.state {
                _ if parking.is_parked() => "parked",
                _ if stage.is_some() && seat.member_state() == MemberState::New => "joining",
                _ if stage.is_some() => "rebuilding",
                State::Up | State::Down if parking == ParkingState::Waking => "waking",
                State::Up if status.is_drained && leader.users_of(status) > 0 => "draining",
                State::Up if status.is_drained => "drained",
                State::Up if status.is_suspect => "suspect",
                State::Up if status.lag > CATCHING_UP_VERSIONS => "catching_up",
                State::Down if seat.absence.is_catching_up() => "catching_up",
                State::Up => "up",
                State::Down => "down",
                State::Quarantined => "quarantined",
                State::Absent => "dropped",
            };
            vec![
                seat.name.clone(),
                seat.host.clone(),
                seat.port.to_string(),
                state.to_owned(),
                parked_at(parking).unwrap_or(status.applied).to_string(),
                status.lag.to_string(),
                status.reads.to_string(),
                status.writes.to_string(),
                format!("{:.3}", Duration::from_micros(status.expected_wait_us).as_secs_f64() * 1e3),
                if status.replica == leader.view.anchor() { "anchor" } else { "replica" }.to_owned(),
                detail,
            ]
        })
        .collect()
}

/// The version that a parked replica has. The core does not know it after a restart.
fn parked_at(parking: ParkingState) -> Option<Version> {
    match parking {
        ParkingState::Parked { durable } => Some(durable),
        ParkingState::Awake | ParkingState::Parking | ParkingState::Waking => None,
    }
}

fn parked_detail(leader: &Leader, durable: Version) -> String {
    if leader.is_left_behind(durable) {
        return "the log no longer has what it lacks; WAKE REPLICA rebuilds it".to_owned();
    }
    "the log has what it lacks".to_owned()
}

fn stats(worker: &Worker) -> Vec<Vec<String>> {
    let stats = &worker.local.stats;
    let counters: [(&str, &AtomicU64); 15] = [
        ("reads_spread", &stats.reads),
        ("reads_placed", &stats.reads_placed),
        ("anchor_because.update", &stats.anchor_update),
        ("anchor_because.unknown", &stats.anchor_unknown),
        ("anchor_because.interactive", &stats.anchor_interactive),
        ("anchor_because.catalogue", &stats.anchor_catalogue),
        ("anchor_because.waits", &stats.anchor_waits),
        ("anchor_because.chosen", &stats.anchor_chosen),
        ("transactions_roamed", &stats.roamed),
        ("transactions_came_home", &stats.came_home),
        ("records", &stats.records),
        ("retried_unseen", &stats.retried),
        ("takeovers", &stats.takeovers),
        ("aborted_40001", &stats.aborted),
        ("sessions", &stats.sessions),
    ];
    let counted = counters.map(|(name, counter)| (name, counter.load(Ordering::Relaxed)));
    let (logins, logins_cut) = worker.local.half_open.counts();
    let logins = [("logins", logins as u64), ("logins_cut", logins_cut)];
    let of_leader = worker.leading.get().map_or_else(Vec::new, |leader| stats_of_leader(&leader));
    let all = counted.into_iter().chain(logins).chain(of_leader);
    all.map(|(name, count)| vec![name.to_owned(), count.to_string()]).collect()
}

fn stats_of_leader(leader: &Leader) -> Vec<(&'static str, u64)> {
    let stamps = leader.core.stamps();
    vec![
        ("chains_misjudged", leader.core.known_misjudged()),
        ("turns_unended", leader.core.turns_unended()),
        ("messages_sent", stamps.sent),
        ("messages_unordered", stamps.unordered),
        ("messages_late", stamps.late),
        ("executions_undone", stamps.undone),
        ("performed", stamps.performed),
        ("performed_differently", stamps.differed),
        ("performers_outrun", stamps.outrun),
        ("performers_failed", stamps.failed),
    ]
}

/// `expected` are the probable accesses of a transaction that begins with the template.
fn templates(coordinator: &Coordinator) -> Vec<Vec<String>> {
    let catalogue = coordinator.database.catalogue();
    let row = |shown: Shown| {
        let mean_us = shown.total_us / shown.count.max(1);
        let prediction = coordinator.database.workload.predict(&[shown.template]);
        let (begins, foreseen, expected) = prediction.map_or_else(Default::default, |prediction| {
            let expected = prediction.accesses(&catalogue, &[]).describe(&catalogue);
            let share = format!("{}.{} %", prediction.confidence / 10, prediction.confidence % 10);
            (prediction.seen.to_string(), share, expected.join("; "))
        });
        let mean = format!("{:.3}", Duration::from_micros(mean_us).as_secs_f64() * 1e3);
        let number = format!("{:016x}", shown.template.0);
        let held_by = held_by(coordinator, shown.tables.as_ref());
        vec![shown.text, number, shown.count.to_string(), mean, begins, foreseen, expected, held_by]
    };
    coordinator.database.workload.show().into_iter().take(TEMPLATES_MAX).map(row).collect()
}

/// Chains of known transactions, with the sessions in the order in which they run.
fn chains(leader: &Leader) -> Vec<Vec<String>> {
    let row = |chain: ChainStatus| {
        let sessions: Vec<String> = chain.sessions.iter().map(|session| number(*session)).collect();
        let replica = leader.seats[chain.worker].name.clone();
        vec![chain.chain.to_string(), replica, sessions.len().to_string(), sessions.join(" ")]
    };
    leader.core.chains().into_iter().map(row).collect()
}

/// Conflicts by table. A row without a table counts conflicts about several tables, or any.
fn conflicts(leader: &Leader) -> Vec<Vec<String>> {
    let catalogue = leader.database.catalogue();
    let row = |count: Count| {
        let table = count.table.map_or_else(String::new, |id| {
            catalogue.table(id).map_or_else(|| format!("number {}", id.number), |table| table.name.clone())
        });
        let waited = Duration::from_micros(count.waited_us).as_secs_f64() * 1e3;
        let numbers = [count.waits.to_string(), format!("{waited:.3}")];
        let ends = [count.aborts.to_string(), count.deadlocks.to_string()];
        std::iter::once(table).chain(numbers).chain(ends).collect()
    };
    leader.core.conflicts().into_iter().map(row).collect()
}

fn version(coordinator: &Coordinator) -> Vec<Vec<String>> {
    vec![vec![
        format!("onecopy {}", env!("CARGO_PKG_VERSION")),
        coordinator.cluster_id.to_string(),
        coordinator.view.durable().to_string(),
    ]]
}
