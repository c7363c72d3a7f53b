//! `sim run SCENARIO.toml`: simulates a user's scenario and prints a table.

use std::fs;
use std::io::Write;

use serde_json::json;
use sim::paper::peak;
use sim::paper::run::{Outcome, run as simulate};

use crate::command::{Error, Run};
use crate::parallel;
use crate::scenario_file::{self, Job};

pub(crate) fn run(options: &Run, out: &mut dyn Write) -> Result<(), Error> {
    let path = &options.scenario;
    let text = fs::read_to_string(path).map_err(|error| Error::File(path.clone(), error.to_string()))?;
    let jobs = scenario_file::parse(&text)?;
    let results = parallel::all(&jobs, "simulating", |job: &Job| {
        if job.is_peak {
            let peak = peak::peak(&job.scenario);
            (peak.clients, peak.outcome)
        } else {
            (job.scenario.clients, simulate(&job.scenario, None))
        }
    });
    if !options.json {
        writeln!(
            out,
            "{:<15} {:>8} {:>8} {:>14} {:>12} {:>7} {:>7} {:>7}",
            "protocol", "replicas", "clients", "interactions/s", "response ms", "reads", "writes", "idle"
        )?;
    }
    for (job, (clients, outcome)) in jobs.iter().zip(&results) {
        report(job, *clients, outcome, options.json, out)?;
    }
    Ok(())
}

fn report(
    job: &Job,
    clients: usize,
    outcome: &Outcome,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let (protocol, replicas) = (job.scenario.protocol.name(), job.scenario.replicas);
    let (wips, response_ms) = (outcome.wips(), outcome.mean_response_ms());
    let [reads, writes, idle] = outcome.shares(replicas);
    if as_json {
        let line = json!({
            "protocol": protocol, "replicas": replicas, "clients": clients, "peak": job.is_peak, "wips": wips,
            "response_ms": response_ms, "reads": reads, "writes": writes, "idle": idle,
        });
        writeln!(out, "{line}")?;
    } else {
        let [reads, writes, idle] = [reads, writes, idle].map(|share| format!("{:.0} %", share * 100.0));
        writeln!(
            out,
            "{protocol:<15} {replicas:>8} {clients:>8} {wips:>14.1} {response_ms:>12.1} {reads:>7} {writes:>7} {idle:>7}"
        )?;
    }
    Ok(())
}
