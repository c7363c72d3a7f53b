//! Our value of each quantity that the paper states.

use super::super::calibration::CALIBRATION;
use super::super::experiment::Experiment;
use super::super::outcome::Outcome;
use super::super::stated::{Quantity, STATED, Stated};
use super::super::workload::Configuration;
use super::{Means, Runs, SIZES_MS, WAREHOUSES};

/// A statement of the paper with our result.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// What is measured.
    pub quantity: Quantity,
    /// The section and figure.
    pub place: &'static str,
    /// The subject.
    pub experiment: &'static str,
    /// The paper's value.
    pub stated: &'static str,
    /// The least value that meets it.
    pub least: f64,
    /// The largest value that meets it.
    pub most: f64,
    /// Our value; `None` if a run is missing.
    pub ours: Option<f64>,
    /// Whether our value is within the bounds.
    pub met: bool,
}

/// All statements, in the paper's order. Figures 13 and 15 are judged over these numbers of nodes.
pub fn judge(runs: &Runs, nodes: &[u16]) -> Vec<Line> {
    let judge = Judge { means: Means(runs), nodes };
    let line = |stated: &Stated| {
        let ours = judge.ours(stated.quantity);
        Line {
            quantity: stated.quantity,
            place: stated.place,
            experiment: stated.what,
            stated: stated.stated,
            least: stated.least,
            most: stated.most,
            ours,
            met: ours.is_some_and(|ours| stated.least <= ours && ours <= stated.most),
        }
    };
    STATED.iter().map(line).collect()
}

struct Judge<'a> {
    means: Means<'a>,
    nodes: &'a [u16],
}

impl Judge<'_> {
    fn ours(&self, quantity: Quantity) -> Option<f64> {
        use Configuration::{Full, Partial};
        use Quantity as Q;
        let response = |configuration, warehouses| self.response_ms(configuration, warehouses);
        let queries = |configuration, warehouses, nodes| {
            self.means.of(Experiment::SpeedUp, configuration, warehouses, nodes, Outcome::queries_per_s)
        };
        let wait_ms = CALIBRATION.wait_us as f64 / 1e3;
        match quantity {
            Q::ResponseAt5 => response(Full, 5),
            Q::ResponseAt10 => response(Full, 10),
            Q::ResponseOfTwice => Some(response(Full, 10)? / response(Full, 5)?),
            Q::SpreadFull => self.spread(Full),
            Q::SpreadPartial => self.spread(Partial),
            Q::PartialOverFull => Some(response(Partial, 10)? / response(Full, 10)?),
            Q::Messages => mean(self.over_nodes(Partial, 10, Outcome::messages_by_stated)),
            Q::QueriesOf16 => queries(Full, 10, 16),
            Q::QueriesOf32 => queries(Full, 10, 32),
            Q::QueriesOfTwice => Some(queries(Full, 10, 32)? / queries(Full, 10, 16)?),
            Q::QueriesWhateverRate => {
                spread(WAREHOUSES.into_iter().map(|warehouses| queries(Full, warehouses, 32)))
            }
            Q::QueriesBeyond48 => Some(queries(Full, 10, 64)? / queries(Full, 10, 48)?),
            Q::QueriesPartialOverFull => Some(queries(Partial, 10, 32)? / queries(Full, 10, 32)?),
            Q::Unordered => largest(self.over_nodes(Full, 10, Outcome::unordered_share)),
            Q::Aborted => largest(self.over_nodes(Full, 10, Outcome::aborted_share)),
            Q::Aborting => largest(self.over_nodes(Full, 10, Outcome::aborting_share)),
            Q::UnorderedPartialOverFull => {
                let unordered =
                    |configuration| mean(self.over_nodes(configuration, 10, Outcome::unordered_share));
                Some(unordered(Partial)? / unordered(Full)?)
            }
            Q::DelayOf50 => self.means.delay_ms(50),
            Q::DelayLaw => {
                let sizes = SIZES_MS.into_iter().filter(|size_ms| *size_ms as f64 <= wait_ms);
                let off = |size_ms| Some((self.means.delay_ms(size_ms)? - (wait_ms - size_ms as f64)).abs());
                largest(sizes.map(off))
            }
            Q::DelayBeyond200 => {
                let sizes = SIZES_MS.into_iter().filter(|size_ms| *size_ms as f64 > wait_ms);
                largest(sizes.map(|size_ms| self.means.delay_ms(size_ms)))
            }
            Q::Gain => Some(wait_ms - self.means.delay_ms(*SIZES_MS.last()?)?),
        }
    }

    fn over_nodes(
        &self,
        configuration: Configuration,
        warehouses: u32,
        measure: fn(&Outcome) -> f64,
    ) -> impl Iterator<Item = Option<f64>> {
        self.nodes
            .iter()
            .map(move |nodes| self.means.of(Experiment::ScaleUp, configuration, warehouses, *nodes, measure))
    }

    fn response_ms(&self, configuration: Configuration, warehouses: u32) -> Option<f64> {
        mean(self.over_nodes(configuration, warehouses, Outcome::response_ms))
    }

    fn spread(&self, configuration: Configuration) -> Option<f64> {
        let of = |warehouses| spread(self.over_nodes(configuration, warehouses, Outcome::response_ms));
        largest(WAREHOUSES.into_iter().map(of))
    }
}

fn mean(all: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let all: Vec<f64> = all.collect::<Option<_>>()?;
    Some(all.iter().sum::<f64>() / all.len().max(1) as f64)
}

fn largest(all: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let all: Vec<f64> = all.collect::<Option<_>>()?;
    Some(all.into_iter().fold(f64::NEG_INFINITY, f64::max))
}

/// The largest divided by the smallest.
fn spread(all: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let all: Vec<f64> = all.collect::<Option<_>>()?;
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    Some(all.into_iter().fold(f64::NEG_INFINITY, f64::max) / least)
}
