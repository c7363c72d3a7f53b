//! The figures of the paper: the runs that they need, their points, and the comparison with what the text states.
//!
//! Figures 3 to 10 have bounded workers, 11 unbounded ones, 12 both. The paper averages ten runs, so do we: each cell has ten
//! seeds. Cost is the price of the workers that are busy, on average over the run, at one euro an hour each.

mod curves;
mod judge;

use std::collections::BTreeMap;

use super::super::open::Outcome;
use super::experiment::{Cell, RATE, Run, System, WORKERS};

pub use curves::{Curve, Figure, curves};
pub use judge::{Line, judge};

/// Section V-A: "ten runs".
pub const SEEDS: u64 = 10;
/// Rates with bounded workers.
pub const RATES: [u32; 11] = [10, 25, 50, 75, 100, 125, 150, 175, 200, 250, 300];
/// Rates with unbounded workers.
pub const UNBOUNDED_RATES: [u32; 6] = [10, 50, 100, 150, 175, 200];
/// The rate of figure 11.
const UNBOUNDED_RATE: u32 = 175;
/// The systems of every figure.
pub const RIVALS: [System; 3] = [System::Gargamel, System::RoundRobin, System::Tashkent];

/// All runs of a study.
pub type Runs = BTreeMap<Cell, Run>;

/// The runs that all figures need, with so many seeds.
pub fn cells(seeds: u64) -> Vec<Cell> {
    let bounded = RATES.map(|rate| (rate, Some(WORKERS)));
    let unbounded = UNBOUNDED_RATES.map(|rate| (rate, None));
    let all = || bounded.into_iter().chain(unbounded);
    let of_three =
        RIVALS.into_iter().flat_map(|system| all().map(move |(rate, bound)| (system, rate, bound)));
    let centralised = (System::Centralised, RATE, Some(WORKERS));
    let of_seeds = |(system, rate, bound)| (1..=seeds).map(move |seed| Cell { system, rate, bound, seed });
    of_three.chain([centralised]).flat_map(of_seeds).collect()
}

/// Means over seeds.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a>(pub &'a Runs);

impl Means<'_> {
    /// The runs of a system at a rate.
    fn runs(&self, system: System, rate: u32, bound: Option<usize>) -> impl Iterator<Item = &Run> {
        let cell = |seed| Cell { system, rate, bound, seed };
        self.0.range(cell(0)..=cell(u64::MAX)).map(|(_, run)| run)
    }

    /// The mean of a measure, if there are runs.
    pub fn of(
        &self,
        system: System,
        rate: u32,
        bound: Option<usize>,
        measure: impl Fn(&Outcome) -> f64,
    ) -> Option<f64> {
        let (mut sum, mut count) = (0.0, 0.0);
        for run in self.runs(system, rate, bound) {
            sum += measure(&run.outcome);
            count += 1.0;
        }
        (count > 0.0).then_some(sum / count)
    }

    /// The mean with the default number of workers.
    pub fn bounded(&self, system: System, rate: u32, measure: impl Fn(&Outcome) -> f64) -> Option<f64> {
        self.of(system, rate, Some(WORKERS), measure)
    }

    /// The first run of a system, for figures that show one.
    fn first(&self, system: System, rate: u32, bound: Option<usize>) -> Option<&Outcome> {
        self.runs(system, rate, bound).next().map(|run| &run.outcome)
    }
}
