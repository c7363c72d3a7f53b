//! The figures of the paper: the runs that they need, their points, and the comparison with what the text states.
//!
//! Figures 13 and 15 come from the same runs. The paper does not say how often it repeated a run. A queue that is busy 87 % of the time
//! varies by some percent even over 10,000 transactions, so each of these cells has two seeds, the same for all numbers of nodes.

mod curves;
mod judge;

use std::collections::BTreeMap;

use super::experiment::{Cell, Experiment};
use super::outcome::Outcome;
use super::workload::Configuration;

pub use curves::curves;
pub use judge::{Line, judge};

/// Seeds of a study.
pub const SEEDS: u64 = 2;
/// Table 1: numbers of warehouses.
pub const WAREHOUSES: [u32; 3] = [1, 5, 10];
/// Numbers of nodes of figures 13 and 15.
pub const NODES: [u16; 4] = [8, 16, 32, 64];
/// Those of them that are simulated under settings beside the judged one.
pub const NODES_BESIDE: [u16; 2] = [8, 16];
/// Numbers of nodes of figure 14.
pub const NODES_OF_QUERIES: [u16; 5] = [8, 16, 32, 48, 64];
/// Section 6.5: "Our test involves only 8 nodes with a FR configuration".
pub const NODES_OF_DELAY: u16 = 8;
/// Sizes of transactions of figure 16.
pub const SIZES_MS: [u64; 8] = [10, 50, 100, 150, 200, 250, 300, 400];
/// Both configurations.
pub const CONFIGURATIONS: [Configuration; 2] = [Configuration::Full, Configuration::Partial];

/// All runs of a study.
pub type Runs = BTreeMap<Cell, Outcome>;

/// The runs that all figures need, with so many seeds for figures 13 and 15, and one for the others.
pub fn cells(seeds: u64) -> Vec<Cell> {
    let speed_up = both().flat_map(|(configuration, warehouses)| {
        NODES_OF_QUERIES.map(|nodes| Cell {
            experiment: Experiment::SpeedUp,
            configuration,
            warehouses,
            nodes,
            seed: 1,
        })
    });
    scale_up(seeds, &NODES).chain(speed_up).chain(delay()).collect()
}

/// Those of them that depend on the setting, with few nodes and one seed. Queries do not: they use the processor alone.
pub fn cells_beside() -> Vec<Cell> {
    scale_up(1, &NODES_BESIDE).chain(delay()).collect()
}

fn both() -> impl Iterator<Item = (Configuration, u32)> {
    CONFIGURATIONS.into_iter().flat_map(|of| WAREHOUSES.map(|warehouses| (of, warehouses)))
}

fn scale_up(seeds: u64, all_nodes: &[u16]) -> impl Iterator<Item = Cell> {
    both().flat_map(move |(configuration, warehouses)| {
        let cell = move |nodes, seed| Cell {
            experiment: Experiment::ScaleUp,
            configuration,
            warehouses,
            nodes,
            seed,
        };
        let of_nodes = move |nodes: &u16| {
            let nodes = *nodes;
            (1..=seeds).map(move |seed| cell(nodes, seed))
        };
        all_nodes.iter().flat_map(of_nodes)
    })
}

fn delay() -> impl Iterator<Item = Cell> {
    SIZES_MS.into_iter().map(|size_ms| Cell {
        experiment: Experiment::Delay { size_ms },
        configuration: Configuration::Full,
        warehouses: 1,
        nodes: NODES_OF_DELAY,
        seed: 1,
    })
}

/// Means over seeds.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a>(pub &'a Runs);

impl Means<'_> {
    /// The mean of a measure, if there are runs.
    pub fn of(
        &self,
        experiment: Experiment,
        configuration: Configuration,
        warehouses: u32,
        nodes: u16,
        measure: impl Fn(&Outcome) -> f64,
    ) -> Option<f64> {
        let cell = |seed| Cell { experiment, configuration, warehouses, nodes, seed };
        let (mut sum, mut count) = (0.0, 0.0);
        for (_, outcome) in self.0.range(cell(0)..=cell(u64::MAX)) {
            sum += measure(outcome);
            count += 1.0;
        }
        (count > 0.0).then_some(sum / count)
    }

    /// What the refreshment adds to the time of a transaction: figure 16.
    pub fn delay_ms(&self, size_ms: u64) -> Option<f64> {
        let experiment = Experiment::Delay { size_ms };
        let response_ms =
            self.of(experiment, Configuration::Full, 1, NODES_OF_DELAY, Outcome::response_ms)?;
        Some(response_ms - size_ms as f64)
    }
}
