//! The lines of figures 13 to 16. Each of (a) and (b) has one configuration in the paper; here FR is (a).

use super::super::experiment::Experiment;
use super::super::outcome::Outcome;
use super::super::workload::Configuration;
use super::{CONFIGURATIONS, Means, NODES, NODES_OF_QUERIES, Runs, SIZES_MS, WAREHOUSES};
use crate::paper::gargamel::figures::{Curve, Figure};

type Measure = fn(&Outcome) -> f64;

/// All figures for which there are runs.
pub fn curves(runs: &Runs) -> Vec<Figure> {
    let means = Means(runs);
    let letters = || ["a", "b"].into_iter().zip(CONFIGURATIONS);
    let scale_up = letters().map(|(letter, configuration)| {
        let title = format!("scale up, {}", configuration.name());
        let curves = by_nodes(means, Experiment::ScaleUp, configuration, &NODES, Outcome::response_ms);
        of_nodes(format!("13{letter}"), title, "response time, ms", curves)
    });
    let speed_up = letters().map(|(letter, configuration)| {
        let title = format!("speed-up, {}", configuration.name());
        let measure = Outcome::queries_per_s;
        let curves = by_nodes(means, Experiment::SpeedUp, configuration, &NODES_OF_QUERIES, measure);
        of_nodes(format!("14{letter}"), title, "queries a second", curves)
    });
    let messages = letters().map(|(letter, configuration)| {
        let title = format!("unordered messages and aborts, 10 warehouses, {}", configuration.name());
        of_nodes(format!("15{letter}"), title, "per cent of messages", messages(means, configuration))
    });
    let delay = Figure {
        number: "16".to_owned(),
        title: "delay and size of transactions".to_owned(),
        x: "size of transactions, ms",
        y: "delay, ms",
        curves: vec![("8 nodes".to_owned(), delays(means))],
        has_marks: true,
    };
    let mut all: Vec<Figure> = scale_up.chain(speed_up).chain(messages).chain([delay]).collect();
    all.retain(|figure| figure.curves.iter().any(|(_, points)| !points.is_empty()));
    all
}

fn of_nodes(number: String, title: String, y: &'static str, curves: Vec<Curve>) -> Figure {
    Figure { number, title, x: "nodes", y, curves, has_marks: true }
}

fn by_nodes(
    means: Means<'_>,
    experiment: Experiment,
    configuration: Configuration,
    all_nodes: &[u16],
    measure: Measure,
) -> Vec<Curve> {
    let line = |warehouses: u32| {
        let point = |nodes: &u16| {
            Some((f64::from(*nodes), means.of(experiment, configuration, warehouses, *nodes, measure)?))
        };
        let plural = if warehouses == 1 { "" } else { "s" };
        (format!("{warehouses} warehouse{plural}"), all_nodes.iter().filter_map(point).collect())
    };
    WAREHOUSES.into_iter().map(line).collect()
}

fn messages(means: Means<'_>, configuration: Configuration) -> Vec<Curve> {
    let all: [(&str, Measure); 2] =
        [("unordered", Outcome::unordered_share), ("aborted", Outcome::aborted_share)];
    let line = |(name, measure): (&str, Measure)| {
        let point = |nodes: u16| {
            let share = means.of(Experiment::ScaleUp, configuration, 10, nodes, measure)?;
            Some((f64::from(nodes), share * 100.0))
        };
        (name.to_owned(), NODES.into_iter().filter_map(point).collect())
    };
    all.into_iter().map(line).collect()
}

fn delays(means: Means<'_>) -> Vec<(f64, f64)> {
    SIZES_MS.into_iter().filter_map(|size_ms| Some((size_ms as f64, means.delay_ms(size_ms)?))).collect()
}
