//! Laws that every simulation of a closed system must satisfy, and determinism: the same seed gives the same run.

use super::figures::{self, Cell, Points, Setting};
use super::run::{Outcome, run};
use super::scenario::{Discipline, Front, Protocol, Scenario};
use super::tpcw::{Calibration, Mix, workload};
use super::{peak, scenario};

mod several_schedulers;

fn scenario(protocol: Protocol, replicas: usize, clients: usize) -> Scenario {
    Scenario {
        seed: 3,
        protocol,
        replicas,
        clients,
        workload: workload(Mix::Ordering, Calibration::B),
        think_us: 7_000_000,
        network_us: 200,
        log_us: 500,
        front: Front::default(),
        discipline: Discipline::Queue,
        speed: 1,
        parts: 1,
        warm_up_us: 60_000_000,
        measure_us: 120_000_000,
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for protocol in Protocol::ALL {
        let once = format!("{:?}", run(&scenario(protocol, 3, 60), None));
        assert_eq!(once, format!("{:?}", run(&scenario(protocol, 3, 60), None)), "{}", protocol.name());
        let other = Scenario { seed: 4, ..scenario(protocol, 3, 60) };
        assert_ne!(once, format!("{:?}", run(&other, None)), "the seed matters");
    }
}

/// Throughput is clients / (think time + response time), so no browser is lost and none clicks twice.
#[test]
fn the_law_of_closed_systems_holds() {
    for protocol in Protocol::ALL {
        for discipline in [Discipline::Queue, Discipline::Sharing] {
            let outcome = run(&Scenario { discipline, ..scenario(protocol, 4, 80) }, None);
            let expected = 80.0 / (7.0 + outcome.mean_response_ms() / 1e3);
            let ratio = outcome.wips() / expected;
            assert!((0.93..1.07).contains(&ratio), "{} {discipline:?}: {ratio}", protocol.name());
        }
    }
}

/// A single browser never waits: its response time is the work of databases plus messages.
#[test]
fn without_others_a_query_waits_for_messages_only() {
    for protocol in Protocol::ALL {
        let outcome = run(&scenario(protocol, 1, 1), None);
        let worked_us = outcome.busy.reads_us + outcome.busy.writes_us;
        let ratio = outcome.in_database_us as f64 / worked_us as f64;
        assert!((0.95..1.05).contains(&ratio), "{}: {ratio}", protocol.name());
        let others_us = (outcome.request_us - outcome.in_database_us) / outcome.requests;
        // Two messages between browser and scheduler, and at most two rounds between scheduler and database.
        assert!((400..=1_600).contains(&others_us), "{}: {others_us}", protocol.name());
    }
}

/// Section 8.3: the schedulers differ in how long queries wait, not in how long they run.
#[test]
fn conflicts_make_queries_wait() {
    let times = |protocol: Protocol| run(&scenario(protocol, 8, 120), None).mean_request_ms();
    let [(eager_ms, eager_there_ms), (aware_ms, aware_there_ms)] =
        [Protocol::ALL[0], Protocol::ALL[4]].map(times);
    let [eager_waits_ms, aware_waits_ms] = [eager_ms - eager_there_ms, aware_ms - aware_there_ms];
    assert!(eager_waits_ms > 1.2 * aware_waits_ms, "{eager_waits_ms} {aware_waits_ms}");
}

/// Databases work as long as the interactions cost: reads once, writes at every replica.
#[test]
fn work_is_conserved() {
    for protocol in Protocol::ALL {
        let scenario = scenario(protocol, 4, 60);
        let outcome = run(&scenario, None);
        let (reads_us, writes_us) = scenario.workload.mean_costs_us(50_000);
        let interactions = outcome.interactions as f64;
        let near =
            |busy_us: u64, cost_us: f64| (busy_us as f64 / (interactions * cost_us) - 1.0).abs() < 0.15;
        assert!(near(outcome.busy.reads_us, reads_us), "{}: reads {outcome:?}", protocol.name());
        assert!(near(outcome.busy.writes_us, 4.0 * writes_us), "{}: writes {outcome:?}", protocol.name());
    }
}

/// With one replica the first, the chosen and the last reply are the same.
#[test]
fn one_replica_makes_the_five_one() {
    let of = |protocol: Protocol| run(&scenario(protocol, 1, 30), None);
    let five: Vec<Outcome> = Protocol::ALL[..5].iter().map(|protocol| of(*protocol)).collect();
    assert!(five.windows(2).all(|pair| pair[0] == pair[1]), "{five:?}");
}

/// Waiting for all replicas takes longer than waiting for the first; fewer conflicts never hurt.
#[test]
fn protocols_and_conflicts_change_response_times() {
    let response = |protocol: Protocol, parts: u16| {
        run(&Scenario { parts, ..scenario(protocol, 8, 120) }, None).mean_response_ms()
    };
    let [eager, _, _, _, aware, _] = Protocol::ALL;
    assert!(response(eager, 1) > 1.2 * response(aware, 1));
    assert!(response(eager, 1) > 1.2 * response(eager, 100));
}

#[test]
fn the_peak_is_a_peak() {
    let base = scenario(Protocol::ALL[4], 2, 1);
    let found = peak::peak(&base);
    let wips = found.outcome.wips();
    assert!(
        found.tried.iter().all(|(_, other)| 0.98 * other <= wips),
        "chance aside, nothing is better: {found:?}"
    );
    let best = found.tried.iter().map(|(_, wips)| *wips).fold(0.0, f64::max);
    let mut fewer = found.tried.iter().filter(|(clients, _)| *clients < found.clients);
    assert!(fewer.all(|(_, other)| *other < 0.98 * best), "fewer would not do: {found:?}");
    assert!(found.outcome.wips() <= 1.05 * peak::capacity_wips(&base), "no more than the costs allow");
    assert!(found.outcome.wips() >= 0.7 * peak::capacity_wips(&base));
}

/// Where clients pile up behind purchases, the early throughput does not last and must not count.
#[test]
fn a_growing_backlog_is_seen() {
    let eager = |clients: usize| Scenario {
        workload: workload(Mix::Ordering, Calibration::C),
        measure_us: 60_000_000,
        warm_up_us: 10_000_000,
        ..scenario(Protocol::ALL[0], 8, clients)
    };
    assert!(run(&eager(40), None).backlog() < 0.02);
    assert!(run(&eager(2_000), None).backlog() > 0.1);
}

/// Whether update queries wait beside reads in databases decides how far the schedulers differ (section 8.1).
#[test]
fn books_that_are_read_beside_purchases_part_the_schedulers() {
    let gain = |calibration: Calibration| {
        let wips = |protocol: Protocol| {
            let workload = workload(Mix::Shopping, calibration);
            run(&Scenario { workload, ..scenario(protocol, 8, 250) }, None).wips()
        };
        wips(Protocol::ALL[4]) / wips(Protocol::ALL[0])
    };
    assert!(gain(Calibration::B) < 1.4 && gain(Calibration::C) > 1.6);
}

#[test]
fn every_stated_number_has_its_points() {
    let measured = |cell: &Cell| {
        // A made-up measurement; only the presence of lines is tested.
        let wips = cell.replicas as f64;
        let (request_ms, in_database_ms) = (0.5, 0.3);
        let shares = [0.5, 0.2, 0.3];
        let (clients, response_ms) = (1, 1.0);
        (
            *cell,
            figures::Point { cell: *cell, wips, clients, response_ms, request_ms, in_database_ms, shares },
        )
    };
    let all: Points = figures::cells(&[]).iter().map(measured).collect();
    let lines = figures::judge(&all);
    assert_eq!(lines.len(), 9 + 3 + 3 + 6 + 5 + 9 + 2 + 2, "{lines:#?}");
    assert!(lines.iter().any(|line| !line.pass), "made-up numbers do not meet what is stated");
    let one: Points = figures::cells(&[14]).iter().map(measured).collect();
    assert!(figures::judge(&one).iter().all(|line| line.experiment.starts_with("9.2")));
    // Figures 3 to 9 and 11 to 17, each with a line or a bar for Onecopy.
    let curves: Vec<u8> = figures::curves(&all).iter().map(|figure| figure.number).collect();
    assert_eq!(curves, [3, 4, 5, 11, 12, 13, 15, 16, 17]);
    let has_ours =
        |figure: &figures::Figure| figure.lines.iter().any(|(name, _)| name.starts_with("onecopy"));
    assert!(figures::curves(&all).iter().all(has_ours));
    let bars: Vec<u8> = figures::bars(&all).iter().map(|figure| figure.number).collect();
    assert_eq!(bars, [6, 7, 8, 9, 14]);
    assert!(figures::bars(&all).iter().all(|figure| format!("{figure:?}").contains("onecopy")));
    let alone: Vec<u8> = figures::bars(&one).iter().map(|figure| figure.number).collect();
    assert_eq!(alone, [14], "what has no points is not drawn");
    assert!(figures::cells(&[10]).is_empty());
    let setting = Setting::default();
    assert_eq!(setting.calibration, Calibration::C);
}

#[test]
fn weights_are_kept() {
    let next = scenario::Next::by_weight(&[1, 0, 3]);
    let mut dice = crate::dice::Dice::new(1);
    let mut counts = [0; 3];
    for _ in 0..4_000 {
        counts[next.draw(0, &mut dice)] += 1;
    }
    assert!(counts[1] == 0 && (900..1_100).contains(&counts[0]), "{counts:?}");
}
