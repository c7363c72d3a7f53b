//! The lines of each figure.

use super::super::experiment::{RATE, System, WORKERS};
use super::{Means, RATES, RIVALS, Runs, UNBOUNDED_RATE, UNBOUNDED_RATES};
use crate::paper::open::Outcome;

/// Figure 7 shows penalty ratios up to this.
const PENALTIES: u32 = 40;

/// A figure with its lines.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// The number in the paper, with a letter if ours has several parts.
    pub number: String,
    /// The subject.
    pub title: String,
    /// The horizontal axis.
    pub x: &'static str,
    /// The vertical axis.
    pub y: &'static str,
    /// The lines.
    pub curves: Vec<Curve>,
    /// Whether its points are few enough to be marked.
    pub has_marks: bool,
}

/// A line: its name, and its points.
pub type Curve = (String, Vec<(f64, f64)>);

const A_SECOND: &str = "transactions a second";
const WORKERS_BUSY: &str = "busy workers";

/// All figures for which there are runs.
pub fn curves(runs: &Runs) -> Vec<Figure> {
    let means = Means(runs);
    let mut all = over_seconds(means);
    all.extend(over_rates(means));
    all.push(Figure {
        number: "07".to_owned(),
        title: format!("distribution of penalty ratios at {RATE} trans/s"),
        x: "penalty ratio",
        y: "share of transactions",
        curves: distribution(means),
        has_marks: false,
    });
    all.retain(|figure| figure.curves.iter().any(|(_, points)| !points.is_empty()));
    all.sort_by(|a, b| a.number.cmp(&b.number));
    all
}

/// Figures 5, 6, 8 and 12.
fn over_rates(means: Means<'_>) -> Vec<Figure> {
    let bounded = Some(WORKERS);
    let all: [(&str, &str, &str, Bound, Measure); 5] = [
        ("05", "maximum throughput", A_SECOND, bounded, Outcome::most_throughput),
        ("06", "penalty ratio", "response time / duration", bounded, Outcome::mean_penalty),
        ("08", "speed-up", "sequential time / total time", bounded, Outcome::speed_up),
        ("12a", "cost with 100 workers", "euro an hour", bounded, Outcome::mean_busy),
        ("12b", "cost with unbounded workers", "euro an hour", None, Outcome::mean_busy),
    ];
    let figure = |(number, title, y, bound, measure): (&str, &str, _, _, _)| Figure {
        number: number.to_owned(),
        title: title.to_owned(),
        x: "incoming transactions a second",
        y,
        curves: by_rate(means, bound, measure),
        has_marks: true,
    };
    all.map(figure).into()
}

/// Figures 3, 4, 9, 10 and 11, of one run each.
fn over_seconds(means: Means<'_>) -> Vec<Figure> {
    let bounded = Some(WORKERS);
    let (commits, queue, busy): (OverTime, OverTime, OverTime) =
        (commits_by_second, queue_by_second, busy_by_second);
    let waiting = "waiting transactions";
    let all: [(&str, &str, &str, u32, Bound, OverTime); 7] = [
        ("03", "throughput", A_SECOND, 10, bounded, commits),
        ("04", "throughput", A_SECOND, 200, bounded, commits),
        ("09a", "queue", waiting, RATE, bounded, queue),
        ("09b", "busy workers", WORKERS_BUSY, RATE, bounded, busy),
        ("10a", "queue", waiting, 300, bounded, queue),
        ("10b", "busy workers", WORKERS_BUSY, 300, bounded, busy),
        ("11", "busy workers without a bound", WORKERS_BUSY, UNBOUNDED_RATE, None, busy),
    ];
    let figure = |(number, title, y, rate, bound, series): (&str, &str, _, u32, _, OverTime)| {
        let line =
            |system: System| Some((system.name().to_owned(), series(means.first(system, rate, bound)?)));
        Figure {
            number: number.to_owned(),
            title: format!("{title} at {rate} trans/s"),
            x: "seconds",
            y,
            curves: System::ALL.into_iter().filter_map(line).collect(),
            has_marks: false,
        }
    };
    all.map(figure).into()
}

type Bound = Option<usize>;
type Measure = fn(&Outcome) -> f64;
type OverTime = fn(&Outcome) -> Vec<(f64, f64)>;

/// Figures over time end here, although a run with centralised writes goes on much longer.
const SHOWN_S: usize = 200;

fn over_time(values: impl Iterator<Item = f64>) -> Vec<(f64, f64)> {
    (0..SHOWN_S).zip(values).map(|(second, value)| (second as f64, value)).collect()
}

fn commits_by_second(outcome: &Outcome) -> Vec<(f64, f64)> {
    over_time(outcome.commits.iter().map(|commits| f64::from(*commits)))
}

fn busy_by_second(outcome: &Outcome) -> Vec<(f64, f64)> {
    over_time(outcome.series.iter().map(|(busy, _)| *busy as f64))
}

fn queue_by_second(outcome: &Outcome) -> Vec<(f64, f64)> {
    over_time(outcome.series.iter().map(|(_, queue)| *queue as f64))
}

fn by_rate(means: Means<'_>, bound: Bound, measure: Measure) -> Vec<Curve> {
    let rates: &[u32] = if bound.is_some() { &RATES } else { &UNBOUNDED_RATES };
    let line = |system: System| {
        let point = |rate: &u32| Some((f64::from(*rate), means.of(system, *rate, bound, measure)?));
        (system.name().to_owned(), rates.iter().filter_map(point).collect())
    };
    RIVALS.into_iter().map(line).collect()
}

/// "Figure 7 shows the CDF of one run".
fn distribution(means: Means<'_>) -> Vec<Curve> {
    let line = |system: System| {
        let outcome = means.first(system, RATE, Some(WORKERS))?;
        let up_to = |most: u32| (f64::from(most), outcome.penalty_up_to(f64::from(most)));
        Some((system.name().to_owned(), (0..=PENALTIES).map(up_to).collect()))
    };
    RIVALS.into_iter().filter_map(line).collect()
}
