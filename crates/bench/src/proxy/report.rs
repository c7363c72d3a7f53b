//! The result as a table: ratios to the direct way, and processor time per transaction.
//!
//! A ratio is made within a round, of runs that follow each other; then the median of the rounds is shown, with the
//! least and the most. Absolute throughput is left out on purpose: it says more about the day than about the program.

use std::fmt;

use testbed::machine::Circumstances;

use super::Options;
use super::contender::{DIRECT, ONECOPY, PGBOUNCER, Sample};
use super::pooler::Pooler;
use crate::pgbench::{Mode, Script};
use crate::spread::{Cell, Spread};

/// How much more processor time than PgBouncer onecopy may use for a point read.
const GOAL: f64 = 1.2;

/// Everything that was measured.
#[derive(Debug)]
pub(super) struct Report {
    head: String,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    script: Script,
    mode: Mode,
    contenders: Vec<(&'static str, Vec<Sample>)>,
}

impl Report {
    /// A report without results yet.
    pub(super) fn new(
        circumstances: &Circumstances,
        version: &str,
        pooler: Option<&Pooler>,
        options: &Options,
    ) -> Self {
        let pooler = pooler.map_or_else(
            || "PgBouncer is not installed, so it is not compared".to_owned(),
            ToString::to_string,
        );
        let head = format!(
            "{circumstances}; PostgreSQL {version}; {pooler}. {} rounds of {} s with {} clients (throughput, \
             processor time) and {} s with one client (latency), scale {}.",
            options.rounds, options.seconds, options.clients, options.latency_seconds, options.scale
        );
        Self { head, rows: Vec::new() }
    }

    /// Adds what was measured under one load, by contender and round.
    pub(super) fn add(&mut self, script: Script, mode: Mode, contenders: Vec<(&'static str, Vec<Sample>)>) {
        self.rows.push(Row { script, mode, contenders });
    }

    fn strangers(&self) -> Option<Spread> {
        let samples = self.rows.iter().flat_map(|row| row.contenders.iter().flat_map(|(_, samples)| samples));
        Spread::of(samples.map(|sample| sample.strangers * 100.0))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head)?;
        if let Some(strangers) = self.strangers() {
            writeln!(f, "Strangers used {strangers:.0} % of the processors meanwhile.")?;
        }
        writeln!(
            f,
            "\n| load | protocol | way | throughput : direct | latency : direct | its CPU, us | server's CPU, us |\n\
             |---|---|---|---|---|---|---|"
        )?;
        for row in &self.rows {
            row.write_lines(f)?;
        }
        writeln!(f)?;
        for row in self.rows.iter().filter(|row| row.script == Script::SelectOnly) {
            if let Some(spread) = row.cost_to_pgbouncer() {
                let verdict = if spread.median <= GOAL { "reached" } else { "missed" };
                let Row { script, mode, .. } = row;
                writeln!(
                    f,
                    "{script} {mode}: onecopy's CPU is {spread:.2} of PgBouncer's; goal {GOAL}: {verdict}."
                )?;
            }
        }
        Ok(())
    }
}

impl Row {
    fn write_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direct = self.samples(DIRECT);
        for (name, samples) in &self.contenders {
            let ratio = |of: fn(&Sample) -> f64| {
                Cell(Spread::of(samples.iter().zip(direct).map(|(own, direct)| of(own) / of(direct))), 2)
            };
            let middleware = Cell(Spread::of(samples.iter().filter_map(|sample| sample.middleware_us)), 1);
            let servers = Cell(Spread::of(samples.iter().map(|sample| sample.servers_us)), 1);
            let (throughput, latency) = match *name {
                DIRECT => (Cell(None, 2), Cell(None, 2)),
                _ => (ratio(|sample| sample.throughput), ratio(|sample| sample.latency_ms)),
            };
            let Self { script, mode, .. } = self;
            writeln!(
                f,
                "| {script} | {mode} | {name} | {throughput} | {latency} | {middleware} | {servers} |"
            )?;
        }
        Ok(())
    }

    fn samples(&self, wanted: &str) -> &[Sample] {
        let found = self.contenders.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, samples)| samples.as_slice()).unwrap_or_default()
    }

    fn cost_to_pgbouncer(&self) -> Option<Spread> {
        let pairs = self.samples(ONECOPY).iter().zip(self.samples(PGBOUNCER));
        Spread::of(pairs.filter_map(|(ours, theirs)| Some(ours.middleware_us? / theirs.middleware_us?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_made_within_a_round() {
        let sample = |throughput, middleware_us| Sample {
            throughput,
            latency_ms: 1.0,
            middleware_us,
            servers_us: 20.0,
            strangers: 0.5,
        };
        // A machine that is ten times as busy in the second round changes nothing.
        let direct = vec![sample(1000.0, None), sample(100.0, None)];
        let pooled = vec![sample(500.0, Some(10.0)), sample(50.0, Some(10.0))];
        let ours = vec![sample(800.0, Some(11.0)), sample(80.0, Some(15.0))];
        let mut report = Report { head: "head".into(), rows: Vec::new() };
        report.add(
            Script::SelectOnly,
            Mode::Simple,
            vec![(DIRECT, direct), (PGBOUNCER, pooled), (ONECOPY, ours)],
        );
        let text = report.to_string();
        for line in [
            "| `-S` | simple | direct | - | - | - | 20.0 (20.0-20.0) |",
            "| `-S` | simple | onecopy | 0.80 (0.80-0.80) | 1.00 (1.00-1.00) | 13.0 (11.0-15.0) | 20.0 (20.0-20.0) |",
            "`-S` simple: onecopy's CPU is 1.30 (1.10-1.50) of PgBouncer's; goal 1.2: missed.",
            "Strangers used 50 (50-50) % of the processors meanwhile.",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
