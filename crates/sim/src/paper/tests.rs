//! What any simulation of a closed system must satisfy, whatever the protocol, and that a seed is a run.

use super::figures::{self, Cell, Points, Setting};
use super::run::{Outcome, run};
use super::scenario::{Discipline, Protocol, Scenario};
use super::tpcw::{Calibration, Mix, workload};
use super::{peak, scenario};

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

/// Throughput is clients / (think time + response time): nobody is lost, nobody clicks twice.
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

/// Databases do what the interactions cost: reads once, writes at every replica.
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

/// With one replica first, chosen and last reply are the same one.
#[test]
fn one_replica_makes_the_five_one() {
    let of = |protocol: Protocol| run(&scenario(protocol, 1, 30), None);
    let five: Vec<Outcome> = Protocol::ALL[..5].iter().map(|protocol| of(*protocol)).collect();
    assert!(five.windows(2).all(|pair| pair[0] == pair[1]), "{five:?}");
}

/// Waiting for all replicas takes longer than waiting for the first; fewer conflicts never hurt.
#[test]
fn what_the_choices_are_for() {
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
    assert!(found.tried.iter().all(|(_, wips)| *wips <= found.outcome.wips()));
    assert!(found.outcome.wips() <= 1.05 * peak::capacity_wips(&base), "no more than the costs allow");
    assert!(found.outcome.wips() >= 0.7 * peak::capacity_wips(&base));
}

/// Where clients pile up behind purchases, what ends first is no throughput that lasts.
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
        // A made-up measurement; the question is which lines are there.
        let wips = cell.replicas as f64;
        (*cell, figures::Point { cell: *cell, wips, clients: 1, response_ms: 1.0, shares: [0.5, 0.2, 0.3] })
    };
    let all: Points = figures::cells(&[]).iter().map(measured).collect();
    let lines = figures::judge(&all);
    assert_eq!(lines.len(), 9 + 3 + 6 + 5 + 9 + 2 + 2, "{lines:#?}");
    assert!(lines.iter().any(|line| !line.pass), "made-up numbers do not meet what is stated");
    let one: Points = figures::cells(&[14]).iter().map(measured).collect();
    assert!(figures::judge(&one).iter().all(|line| line.experiment.starts_with("9.2")));
    assert_eq!(figures::curves(&all).len(), 9);
    assert!(figures::cells(&[7]).is_empty());
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
