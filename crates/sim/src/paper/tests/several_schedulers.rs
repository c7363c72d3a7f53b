//! Sections 5, 8.4, 9.2.2 and 9.3: what logs, several schedulers and their processors cost.

use super::super::figures::{self, Crowd, ROTATION_US, Reliability, Resources, Tolerance};
use super::super::run::{Outcome, run};
use super::super::scenario::{Disk, Front, Protocol, Scenario};
use super::super::tpcw::{Calibration, Mix, workload};

/// Conflict-aware scheduling with 8 replicas, near the peak of the mix.
fn at_eight(mix: Mix, clients: usize) -> Scenario {
    Scenario {
        workload: workload(mix, Calibration::C),
        log_us: 0,
        ..super::scenario(Protocol::ALL[4], 8, clients)
    }
}

fn logging(schedulers: usize, scenario: Scenario) -> Scenario {
    Scenario {
        log_us: ROTATION_US,
        front: Front { schedulers, message_us: 0, disk: Disk::InTurn },
        ..scenario
    }
}

/// Section 8.4: "negligible for the browsing and shopping mixes and around 16% for the ordering mix".
#[test]
fn a_log_costs_throughput_where_much_is_written() {
    let lost = |mix: Mix, clients: usize| {
        let without = run(&at_eight(mix, clients), None).wips();
        1.0 - run(&logging(1, at_eight(mix, clients)), None).wips() / without
    };
    let [browsing, ordering] = [lost(Mix::Browsing, 259), lost(Mix::Ordering, 465)];
    assert!(browsing < 0.05 && (0.08..0.25).contains(&ordering), "{browsing} {ordering}");
}

/// Section 8.4: "no extra overhead when replication of writes to remote schedulers is added to logging".
#[test]
fn more_schedulers_cost_no_more_than_the_log() {
    let wips = |schedulers| run(&logging(schedulers, at_eight(Mix::Ordering, 400)), None).wips();
    let (one, two, three) = (wips(1), wips(2), wips(3));
    assert!(two > 0.95 * one && three > 0.95 * one, "{one} {two} {three}");
}

/// A request that came to another scheduler than the one of its interaction would be refused, and its work would not be done.
#[test]
fn several_schedulers_do_all_the_work() {
    let scenario = logging(3, at_eight(Mix::Ordering, 200));
    let outcome = run(&scenario, None);
    let (reads_us, writes_us) = scenario.workload.mean_costs_us(50_000);
    let per_interaction = |us: u64| us as f64 / outcome.interactions as f64;
    let reads = per_interaction(outcome.busy.reads_us) / reads_us;
    let writes = per_interaction(outcome.busy.writes_us) / (8.0 * writes_us);
    assert!((0.9..1.1).contains(&reads) && (0.9..1.1).contains(&writes), "{reads} {writes}");
    let alone = run(&logging(1, at_eight(Mix::Ordering, 200)), None);
    let messages = |outcome: &Outcome| outcome.messages as f64 / outcome.interactions as f64;
    assert!(messages(&outcome) > messages(&alone) + 1.0, "schedulers tell each other of each update");
}

/// Section 9.3: one scheduler limits fast replicas, three do so less.
#[test]
fn a_busy_processor_limits_fast_replicas() {
    let with = |schedulers| {
        let front = Front { schedulers, message_us: 600, disk: Disk::Together };
        let scenario = Scenario { speed: 4, front, ..at_eight(Mix::Shopping, 1_200) };
        let outcome = run(&scenario, None);
        let busy = outcome.scheduler_us as f64 / outcome.measured_us as f64 / schedulers as f64;
        (outcome.wips(), busy)
    };
    let ((one, one_is_busy), (three, three_are_busy)) = (with(1), with(3));
    assert!(one_is_busy > 0.8 && three_are_busy < 0.6, "{one_is_busy} {three_are_busy}");
    assert!(three > 1.2 * one, "{one} {three}");
}

/// The processor takes its time for each message, and once more when a log is written.
#[test]
fn a_scheduler_is_busy_with_messages() {
    let front = Front { schedulers: 1, message_us: 20, disk: Disk::Together };
    let quick = run(&at_eight(Mix::Shopping, 60), None);
    let slow = run(&Scenario { front, ..at_eight(Mix::Shopping, 60) }, None);
    let per_message = slow.scheduler_us as f64 / slow.messages as f64;
    assert!((20.0..21.0).contains(&per_message), "{per_message}");
    assert_eq!(quick.scheduler_us, 0, "without that time it is never busy");
    assert!(slow.mean_request_ms().0 > quick.mean_request_ms().0 + 0.08, "a query is four messages or more");
}

/// Table 1: all writes are logged once; the network has the messages, and the rows that reads return.
#[test]
fn bytes_follow_from_messages() {
    let outcome = run(&at_eight(Mix::Ordering, 100), None);
    let statements = outcome.busy.writes_us as f64 / 8.0 / 5_000.0;
    let logged = outcome.log_bytes as f64 / 200.0 / statements;
    assert!((0.95..1.05).contains(&logged), "{logged}");
    let per_message = outcome.network_bytes as f64 / outcome.messages as f64;
    assert!((100.0..1_000.0).contains(&per_message), "{per_message}");
    assert!(outcome.memory_bytes > 1_000, "sessions and transactions take memory");
}

#[test]
fn figure_10_is_judged_and_drawn() {
    let bar = |(mix, reliability): (Mix, Reliability)| {
        let wips = if mix == Mix::Ordering && reliability != Reliability::Unreliable { 84.0 } else { 100.0 };
        Tolerance { mix, reliability, wips, clients: 1, response_ms: 1.0 }
    };
    let all: Vec<Tolerance> = figures::bars_of_figure_10().into_iter().map(bar).collect();
    let lines = figures::judge_tolerance(&all);
    assert!(lines.len() == 9 && lines.iter().all(|line| line.pass), "{lines:#?}");
    let mut slower = all.clone();
    slower[11].wips = 79.0;
    assert_eq!(figures::judge_tolerance(&slower).iter().filter(|line| !line.pass).count(), 1);
    let drawn = figures::draw_tolerance(&all).unwrap();
    assert_eq!((drawn.number, drawn.groups.len(), drawn.legend.len()), (10, 3, 4));
    assert!(drawn.groups.iter().all(|group| group.bars.len() == 4));
    assert_eq!(figures::draw_tolerance(&all[1..]), None, "nothing is drawn with a bar missing");
}

#[test]
fn the_fewest_schedulers_that_are_enough_are_judged() {
    let one = |crowd: Crowd| {
        let gain = if crowd.speed == 1 { 0.01 } else { 0.5 };
        let wips = 100.0 * (1.0 + gain * (crowd.schedulers.min(3) as f64 - 1.0));
        let (memory_mb, network_mb_per_s, disk_mb_per_s) = (6.0, 4.0, 0.02);
        let (messages_per_interaction, busy) = (90.0, 0.5);
        Resources { crowd, wips, messages_per_interaction, busy, memory_mb, network_mb_per_s, disk_mb_per_s }
    };
    let mut all: Vec<Resources> = figures::crowds().into_iter().map(one).collect();
    let lines = figures::judge_resources(&all);
    assert!(lines.len() == 7 && lines.iter().all(|line| line.pass), "{lines:#?}");
    if let Some(last) = all.last_mut() {
        last.wips *= 2.0;
    }
    let lines = figures::judge_resources(&all);
    let last = lines.last().unwrap();
    assert!(!last.pass && last.ours.to_string() == ">= 4", "{last:?}");
}
