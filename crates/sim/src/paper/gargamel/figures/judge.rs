//! Our value of each quantity that the paper states.

use super::super::experiment::{RATE, System, WORKERS};
use super::super::stated::{Quantity, STATED};
use super::{Means, RATES, RIVALS, Runs, UNBOUNDED_RATE};
use crate::paper::open::Outcome;

/// The high rate of figure 4.
const HIGH: u32 = 200;
/// Figure 7 gives shares of transactions up to this penalty ratio.
const LIGHT: f64 = 4.0;

/// A statement of the paper with our result.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// What is measured.
    pub quantity: Quantity,
    /// The section or figure.
    pub place: &'static str,
    /// The subject.
    pub experiment: &'static str,
    /// The paper's value.
    pub stated: &'static str,
    /// The least value that meets it.
    pub least: f64,
    /// The largest value that meets it; `None` for no limit.
    pub most: Option<f64>,
    /// Our value; `None` if a run is missing.
    pub ours: Option<f64>,
    /// Whether our value is within the bounds.
    pub met: bool,
}

/// All statements, in the paper's order.
pub fn judge(runs: &Runs) -> Vec<Line> {
    let judge = Judge { means: Means(runs) };
    let line = |stated: &super::super::stated::Stated| {
        let ours = judge.ours(stated.quantity);
        Line {
            quantity: stated.quantity,
            place: stated.place,
            experiment: stated.what,
            stated: stated.stated,
            least: stated.least,
            most: Some(stated.most).filter(|most| most.is_finite()),
            ours,
            met: ours.is_some_and(|ours| stated.least <= ours && ours <= stated.most),
        }
    };
    STATED.iter().map(line).collect()
}

struct Judge<'a> {
    means: Means<'a>,
}

impl Judge<'_> {
    fn ours(&self, quantity: Quantity) -> Option<f64> {
        use Quantity as Q;
        use System::{Centralised, Gargamel, RoundRobin, Tashkent};
        let most = |system, rate| self.bounded(system, rate, Outcome::most_throughput);
        let penalty = |system| self.bounded(system, RATE, Outcome::mean_penalty);
        let light = |system| self.bounded(system, RATE, |outcome| outcome.penalty_up_to(LIGHT));
        let cost = |system, rate| self.unbounded(system, rate, Outcome::mean_busy);
        match quantity {
            Q::SpreadAtLowRate => spread(|system| self.bounded(system, 10, Outcome::phase_throughput)),
            Q::AheadAtHighRate => self.ahead(Outcome::phase_throughput),
            Q::SecondPhase => largest(|system| {
                let second = self.bounded(system, HIGH, Outcome::second_throughput)?;
                Some(second / self.bounded(system, HIGH, Outcome::phase_throughput)?)
            }),
            Q::RoundRobinBeyond150 => Some(most(RoundRobin, 300)? / most(RoundRobin, 150)?),
            Q::TashkentBeyond150 => Some(most(Tashkent, 300)? / most(Tashkent, 150)?),
            Q::OverRoundRobin => Some(self.peak(Gargamel)? / self.peak(RoundRobin)?),
            Q::OverTashkent => Some(self.peak(Gargamel)? / self.peak(Tashkent)?),
            Q::GrowthOfGain => self.growth(),
            Q::BusyAt250 => self.bounded(Gargamel, 250, |outcome| outcome.busy_most as f64),
            Q::GargamelBeyond250 => Some(most(Gargamel, 300)? / most(Gargamel, 250)?),
            Q::PenaltyOverRoundRobin => Some(penalty(Gargamel)? / penalty(RoundRobin)?),
            Q::PenaltyOverTashkent => Some(penalty(Gargamel)? / penalty(Tashkent)?),
            Q::LightGargamel => light(Gargamel),
            Q::LightRoundRobin => light(RoundRobin),
            Q::LightTashkent => light(Tashkent),
            Q::SpreadOfSpeedUp => spread(|system| self.bounded(system, RATE, Outcome::speed_up)),
            Q::SpeedUpBeyond50 => largest(|system| {
                let beyond = self.bounded(system, 300, Outcome::speed_up)?;
                Some(beyond / self.bounded(system, 50, Outcome::speed_up)?)
            }),
            Q::QueueOfGargamel => self.bounded(Gargamel, RATE, |outcome| outcome.queue_most[1] as f64),
            Q::QueueOfCentralised => self.bounded(Centralised, RATE, |outcome| outcome.queue_most[1] as f64),
            Q::RivalsSaturatedAfter => self.saturated_after(),
            Q::BusyInSecondPhase => {
                Some(self.bounded(Gargamel, RATE, Outcome::mean_busy_second)? / WORKERS as f64)
            }
            Q::QueueAt300 => {
                let queue = |system| self.bounded(system, 300, |outcome| outcome.queue_most[0] as f64);
                Some(queue(Gargamel)? / queue(RoundRobin)?.min(queue(Tashkent)?))
            }
            Q::TashkentUnbounded => self.unbounded(Tashkent, UNBOUNDED_RATE, |run| run.busy_at_end as f64),
            Q::GargamelUnbounded => self.unbounded(Gargamel, UNBOUNDED_RATE, |run| run.busy_at_end as f64),
            Q::CostOverGargamel => Some(cost(Tashkent, 100)? / cost(Gargamel, 100)?),
            Q::SpreadOfCostAtLowRate => spread(|system| cost(system, 10)),
            Q::CostBeyond150 => {
                let growth = |system| {
                    let beyond = self.bounded(system, 300, Outcome::mean_busy)?;
                    Some(beyond / self.bounded(system, 150, Outcome::mean_busy)?)
                };
                Some(growth(RoundRobin)?.max(growth(Tashkent)?))
            }
            Q::UpdatesOverRivals => self.ahead(|outcome| f64::from(outcome.updates_in_phase)),
            Q::ResponseOverRivals => {
                let response = |system| self.bounded(system, HIGH, Outcome::updates_response_ms);
                Some(response(Gargamel)? / response(RoundRobin)?.min(response(Tashkent)?))
            }
            Q::FalsePositives => self.false_positives(),
        }
    }

    fn bounded(&self, system: System, rate: u32, measure: impl Fn(&Outcome) -> f64) -> Option<f64> {
        self.means.bounded(system, rate, measure)
    }

    fn unbounded(&self, system: System, rate: u32, measure: impl Fn(&Outcome) -> f64) -> Option<f64> {
        self.means.of(system, rate, None, measure)
    }

    /// Gargamel divided by the better rival, at the high rate.
    fn ahead(&self, measure: impl Fn(&Outcome) -> f64) -> Option<f64> {
        let of = |system| self.bounded(system, HIGH, &measure);
        Some(of(System::Gargamel)? / of(System::RoundRobin)?.max(of(System::Tashkent)?))
    }

    /// The maximum throughput at any rate.
    fn peak(&self, system: System) -> Option<f64> {
        let at = |rate| self.bounded(system, rate, Outcome::most_throughput);
        let all: Option<Vec<f64>> = RATES.into_iter().map(at).collect();
        Some(all?.into_iter().fold(0.0, f64::max))
    }

    fn growth(&self) -> Option<f64> {
        let gain = |rate| {
            let most = |system| self.bounded(system, rate, Outcome::most_throughput);
            Some(most(System::Gargamel)? / most(System::RoundRobin)?.max(most(System::Tashkent)?))
        };
        let gains: Option<Vec<f64>> = RATES.into_iter().filter(|rate| *rate >= 50).map(gain).collect();
        Some(gains?.windows(2).map(|pair| pair[1] / pair[0]).fold(f64::INFINITY, f64::min))
    }

    fn saturated_after(&self) -> Option<f64> {
        let after_s = |system| {
            let seconds = |outcome: &Outcome| match outcome.busy_most {
                WORKERS => outcome.busy_most_at_us as f64 / 1e6,
                _ => f64::INFINITY,
            };
            self.bounded(system, RATE, seconds)
        };
        Some(after_s(System::RoundRobin)?.max(after_s(System::Tashkent)?))
    }

    fn false_positives(&self) -> Option<f64> {
        let all = self.means.runs(System::Gargamel, RATE, Some(WORKERS)).filter_map(|run| run.classified);
        let (pairs, wrong) = all.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
        (pairs > 0).then_some(wrong as f64 / pairs as f64)
    }
}

fn of_three(measure: impl Fn(System) -> Option<f64>) -> Option<Vec<f64>> {
    RIVALS.into_iter().map(measure).collect()
}

fn largest(measure: impl Fn(System) -> Option<f64>) -> Option<f64> {
    Some(of_three(measure)?.into_iter().fold(f64::NEG_INFINITY, f64::max))
}

/// The largest of the three systems divided by the smallest.
fn spread(measure: impl Fn(System) -> Option<f64>) -> Option<f64> {
    let all = of_three(measure)?;
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    Some(all.into_iter().fold(f64::NEG_INFINITY, f64::max) / least)
}
