//! The result as a table: ratios to the direct way, made within a round, and what a transaction costs.
//!
//! Here the throughput itself is shown as well: a distance bounds it on any machine that is fast enough.

use std::fmt;

use super::way::Sample;
use crate::spread::{Cell, Spread};

/// Everything that was measured.
pub(super) struct Report {
    /// Under which circumstances.
    pub(super) head: String,
    /// The samples of each way, by round. The others are compared with the first one.
    pub(super) rows: Vec<(String, Vec<Sample>)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head)?;
        let all = self.rows.iter().flat_map(|(_, samples)| samples);
        if let Some(strangers) = Spread::of(all.map(|sample| sample.strangers * 100.0)) {
            writeln!(f, "Strangers used {strangers:.0} % of the processors meanwhile.")?;
        }
        writeln!(
            f,
            "\n| way | throughput : direct | latency : direct | a second | latency, ms | its CPU, us | servers' CPU, us | \
             relays' CPU, us | failed |\n|---|---|---|---|---|---|---|---|---|"
        )?;
        let direct = self.rows.first().map(|(_, samples)| samples.as_slice()).unwrap_or_default();
        for (number, (name, samples)) in self.rows.iter().enumerate() {
            let ratio = |of: fn(&Sample) -> f64| {
                let pairs = samples.iter().zip(direct).filter(|_| number > 0);
                Cell(Spread::of(pairs.map(|(own, direct)| of(own) / of(direct))), 2)
            };
            let plain = |of: fn(&Sample) -> f64, places| Cell(Spread::of(samples.iter().map(of)), places);
            let middleware = Cell(Spread::of(samples.iter().filter_map(|sample| sample.middleware_us)), 0);
            writeln!(
                f,
                "| {name} | {} | {} | {} | {} | {middleware} | {} | {} | {} |",
                ratio(|sample| sample.throughput),
                ratio(|sample| sample.latency_ms),
                plain(|sample| sample.throughput, 0),
                plain(|sample| sample.latency_ms, 1),
                plain(|sample| sample.servers_us, 0),
                plain(|sample| sample.relays_us, 0),
                samples.iter().map(|sample| sample.failed).sum::<u64>(),
            )?;
        }
        writeln!(
            f,
            "\nAfter every run the sums of balances agreed, history had what was acknowledged, and all replicas were identical."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_made_within_a_round() {
        let sample = |throughput: f64, middleware_us| Sample {
            throughput,
            latency_ms: 64e3 / throughput,
            failed: u64::from(throughput < 500.0),
            middleware_us,
            servers_us: 300.0,
            relays_us: 50.0,
            strangers: 0.25,
        };
        // A machine that is half as fast in the second round changes no ratio.
        let rows = vec![
            ("direct".to_owned(), vec![sample(1000.0, None), sample(500.0, None)]),
            ("onecopy x1".to_owned(), vec![sample(800.0, Some(400.0)), sample(400.0, Some(500.0))]),
        ];
        let text = Report { head: "head".to_owned(), rows }.to_string();
        for line in [
            "| direct | - | - | 750 (500-1000) | 96.0 (64.0-128.0) | - | 300 (300-300) | 50 (50-50) | 0 |",
            "| onecopy x1 | 0.80 (0.80-0.80) | 1.25 (1.25-1.25) | 600 (400-800) | 120.0 (80.0-160.0) | 450 (400-500) | \
             300 (300-300) | 50 (50-50) | 1 |",
            "Strangers used 25 (25-25) % of the processors meanwhile.",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
