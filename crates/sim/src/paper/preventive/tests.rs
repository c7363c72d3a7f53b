//! Laws of the simulated cluster under each setting, and a small form of the study.

use cluster::parts::stamps::{Can, Classes, Reach, Start};

use super::calibration::CALIBRATION;
use super::experiment::{Cell, Experiment, Setting, measure};
use super::figures::{self, Runs};
use super::outcome::Outcome;
use super::stated::Quantity;
use super::workload::{Configuration, Kind, Update};
use crate::dice::Dice;

fn settings() -> Vec<Setting> {
    let classes = [
        (Classes::One, Reach::Younger),
        (Classes::ByClaims, Reach::Younger),
        (Classes::ByClaims, Reach::Conflicting),
    ];
    let of = |start| classes.map(|(classes, reach)| Setting { start, classes, reach, ..Setting::default() });
    [Start::Ordered, Start::OnArrival].into_iter().flat_map(of).collect()
}

fn run(
    experiment: Experiment,
    configuration: Configuration,
    (warehouses, nodes): (u32, u16),
    setting: Setting,
) -> Outcome {
    measure(Cell { experiment, configuration, warehouses, nodes, seed: 3 }, setting)
}

/// Lemmas 4.4 and 5.2, and 4.5: the world asserts that all is committed.
#[test]
fn lemma_4_4_every_node_commits_in_the_order_of_stamps() {
    for setting in settings() {
        for configuration in figures::CONFIGURATIONS {
            let outcome = run(Experiment::SpeedUp, configuration, (5, 8), setting);
            assert!(outcome.updates > 400 && outcome.queries > 0, "{outcome:?}");
            assert_eq!((outcome.disordered, outcome.counts.late), (0, 0), "{setting:?}");
            assert_eq!(outcome.counts.arrived, 8 * outcome.updates, "each update concerns every node");
            assert!(outcome.counts.unordered > 0, "{setting:?}");
            assert!(setting.start == Start::OnArrival || outcome.counts.undone == 0);
        }
    }
}

/// 6.3: "only the multicast of n messages for the nodes that carry all required copies plus 2n messages for the nodes that do not".
#[test]
fn section_6_3_messages() {
    let of = |configuration| run(Experiment::SpeedUp, configuration, (1, 8), Setting::default());
    let [full, partial] = figures::CONFIGURATIONS.map(of);
    assert_eq!((full.messages, partial.messages), (8 * full.updates, (2 + 2 * 6) * partial.updates));
    assert_eq!([full, partial].map(|outcome| outcome.messages == outcome.messages_stated), [true; 2]);
}

/// 6.2: "one fourth of the nodes hold tables needed by" each transaction; 6.4: "only half of the nodes support" Order-status.
#[test]
fn section_6_2_a_quarter_performs_an_update_and_half_answers_queries() {
    for kind in [Kind::NewOrder, Kind::Payment] {
        let can = |configuration: Configuration| {
            (0..8).map(|node| configuration.can(node, kind)).collect::<Vec<_>>()
        };
        assert!(can(Configuration::Full).iter().all(|can| *can == Some(Can::Perform)));
        let partial = can(Configuration::Partial);
        assert_eq!(partial.iter().filter(|can| **can == Some(Can::Perform)).count(), 2);
        assert_eq!(partial.iter().filter(|can| **can == Some(Can::NeedsRefresh)).count(), 6);
    }
    assert_eq!((0..8).filter(|node| Configuration::Partial.answers(*node)).count(), 4);
}

/// 5.2: "the transactions' parameters allow us to define a subset of tuples".
#[test]
fn section_5_2_payments_of_a_warehouse_conflict_and_new_orders_hardly_do() {
    let mut dice = Dice::new(1);
    let drawn: Vec<Update> = (0..400).map(|_| Update::draw(0, 1, &mut dice)).collect();
    let share = |one: Kind, other: Kind| {
        let of = |kind| drawn.iter().filter(move |update| update.kind == kind);
        let pairs = of(one).flat_map(|a| of(other).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let conflicts: Vec<bool> = pairs.map(|(a, b)| a.claims.overlaps(&b.claims)).collect();
        conflicts.iter().filter(|conflicts| **conflicts).count() as f64 / conflicts.len() as f64
    };
    assert!(share(Kind::Payment, Kind::Payment) >= 1.0);
    assert!(share(Kind::Payment, Kind::NewOrder) >= 1.0, "it reads the warehouse's tax");
    let new_orders = share(Kind::NewOrder, Kind::NewOrder);
    assert!((0.1..0.15).contains(&new_orders), "one district in ten, and common items: {new_orders}");
}

/// 4: one transaction at a time that waits for its order is one queue, and 200 ms before it.
#[test]
fn the_basic_algorithm_is_one_queue_after_the_wait() {
    let basic = Setting { start: Start::Ordered, classes: Classes::One, ..Setting::default() };
    let outcome = run(Experiment::ScaleUp, Configuration::Full, (5, 4), basic);
    let (wait_ms, update_ms) = (CALIBRATION.wait_us as f64 / 1e3, CALIBRATION.update_us / 1e3);
    let expected_ms = wait_ms + update_ms / (1.0 - 5.0 * update_ms / 1e3);
    let ratio = outcome.response_ms() / expected_ms;
    assert!((0.93..1.07).contains(&ratio), "{} instead of {expected_ms}", outcome.response_ms());
}

/// 6.5: "the delay introduced is equal to Max + epsilon minus the size of the transaction".
#[test]
fn section_6_5_delay() {
    let delay_ms = |setting, size_ms| {
        let experiment = Experiment::Delay { size_ms };
        run(experiment, Configuration::Full, (1, 8), setting).response_ms() - size_ms as f64
    };
    let basic = Setting { start: Start::Ordered, ..Setting::default() };
    for size_ms in [50, 150, 400] {
        let expected = 200.0 - (size_ms as f64).min(200.0);
        let (ours, basic) = (delay_ms(Setting::default(), size_ms), delay_ms(basic, size_ms));
        assert!((ours - expected).abs() < 5.0, "{size_ms} ms: {ours}");
        assert!((basic - 200.0).abs() < 5.0, "{size_ms} ms: {basic}");
    }
}

/// 6.4 by mean value analysis: eight clients of a node with a queue of 20 ms and 33 ms elsewhere do 49.9 queries a second.
#[test]
fn section_6_4_queries_are_a_closed_queue() {
    let of =
        |nodes| run(Experiment::SpeedUp, Configuration::Full, (1, nodes), Setting::default()).queries_per_s();
    let by_analysis = |clients: u32| {
        let mut waiting = 0.0;
        let mut rate = 0.0;
        for clients in 1..=clients {
            let at_node_s = 0.020 * (1.0 + waiting);
            rate = f64::from(clients) / (at_node_s + 0.033);
            waiting = rate * at_node_s;
        }
        rate
    };
    for (nodes, clients) in [(16_u16, 8), (32, 4), (64, 2)] {
        let ratio = of(nodes) / (by_analysis(clients) * f64::from(nodes));
        assert!((0.98..1.02).contains(&ratio), "{nodes} nodes: {ratio}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let cell = |seed| Cell {
        experiment: Experiment::SpeedUp,
        configuration: Configuration::Partial,
        warehouses: 5,
        nodes: 8,
        seed,
    };
    let once = measure(cell(1), Setting::default());
    assert_eq!(once, measure(cell(1), Setting::default()));
    assert_ne!(once, measure(cell(2), Setting::default()), "the seed matters");
}

/// The study with one warehouse and few nodes: what needs other runs is not judged, the rest is.
#[test]
fn the_quick_study_judges_what_it_ran() {
    let quick = |cell: &Cell| match cell.experiment {
        Experiment::ScaleUp => false,
        Experiment::SpeedUp => {
            cell.nodes <= 32 && cell.nodes > 8 && cell.configuration == Configuration::Full
        }
        Experiment::Delay { .. } => true,
    };
    let cells = figures::cells(1).into_iter().filter(quick);
    let runs: Runs = cells.map(|cell| (cell, measure(cell, Setting::default()))).collect();
    let lines = figures::judge(&runs, &figures::NODES);
    let of = |quantity| lines.iter().find(|line| line.quantity == quantity).unwrap();
    for quantity in [Quantity::QueriesOf16, Quantity::QueriesOf32, Quantity::DelayOf50, Quantity::DelayLaw] {
        assert!(of(quantity).met, "{:?}", of(quantity));
    }
    for quantity in [Quantity::ResponseAt5, Quantity::QueriesBeyond48, Quantity::Unordered] {
        assert_eq!((of(quantity).ours, of(quantity).met), (None, false));
    }
    let numbers: Vec<String> = figures::curves(&runs).into_iter().map(|figure| figure.number).collect();
    assert_eq!(numbers, ["14a", "16"]);
}

#[test]
fn every_quantity_has_its_runs() {
    // Made-up outcomes; only their presence is tested.
    let made = Outcome { updates: 1, response_us: 1_000, ..Outcome::default() };
    let runs: Runs = figures::cells(2).into_iter().map(|cell| (cell, made.clone())).collect();
    let lines = figures::judge(&runs, &figures::NODES);
    assert!(lines.iter().all(|line| line.ours.is_some()), "{lines:#?}");
    assert!(lines.iter().any(|line| !line.met), "made-up numbers do not meet what is stated");
    assert_eq!(figures::curves(&runs).len(), 7);
    assert_eq!(figures::cells(4).len(), 2 * 3 * (4 * 4 + 5) + 8);
    assert_eq!(figures::cells_beside().len(), 2 * 3 * 2 + 8);
}
