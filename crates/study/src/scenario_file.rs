//! A user's scenario file in TOML.
//!
//! ```toml
//! protocol = ["conflict-aware", "onecopy"]    # default: all
//! replicas = [1, 2, 4, 8]
//! clients = [200, 400]                        # default: search for the peak
//! think_ms = 7000
//! workload = "tpcw-shopping"                  # or templates and interactions of your own:
//!
//! [[template]]
//! name = "read item"
//! cost_ms = 2.5
//! reads = ["item"]
//!
//! [[template]]
//! name = "sell item"
//! cost_ms = 1
//! writes = ["item"]
//!
//! [[interaction]]
//! name = "buy"
//! weight = 3
//! transactions = [["read item"], ["read item", "sell item"]]
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::ids::{DatabaseId, TableId};
use serde::Deserialize;
use sim::paper::figures::Setting;
use sim::paper::scenario::{
    Discipline, Front, Interaction, Next, Protocol, REPLICAS_MAX, Scenario, Step, Template, Workload,
};
use sim::paper::tpcw::{self, Mix};

use crate::command::Error;

/// The most clients of a scenario.
const CLIENTS_MAX: usize = 1_000_000;
/// The limit of Onecopy's placement map.
const ONECOPY_REPLICAS_MAX: usize = 64;
/// The longest time in a scenario, in seconds.
const SECONDS_MAX: f64 = 86_400.0;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    #[serde(default)]
    protocol: Vec<String>,
    replicas: Vec<usize>,
    #[serde(default)]
    clients: Vec<usize>,
    #[serde(default = "think_ms")]
    think_ms: f64,
    #[serde(default = "network_ms")]
    network_ms: f64,
    #[serde(default)]
    log_ms: f64,
    #[serde(default = "one")]
    speed: u32,
    #[serde(default = "one_part")]
    parts: u16,
    #[serde(default = "one_seed")]
    seed: u64,
    #[serde(default = "warm_up_s")]
    warm_up_s: f64,
    #[serde(default = "measure_s")]
    measure_s: f64,
    #[serde(default)]
    service: Sharing,
    workload: Option<String>,
    #[serde(default)]
    template: Vec<FileTemplate>,
    #[serde(default)]
    interaction: Vec<FileInteraction>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Sharing {
    #[default]
    Queue,
    Sharing,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTemplate {
    name: String,
    cost_ms: f64,
    #[serde(default)]
    reads: Vec<String>,
    #[serde(default)]
    writes: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileInteraction {
    name: String,
    weight: u32,
    transactions: Vec<Vec<String>>,
}

fn think_ms() -> f64 {
    7_000.0
}
fn network_ms() -> f64 {
    0.2
}
fn warm_up_s() -> f64 {
    150.0
}
fn measure_s() -> f64 {
    300.0
}
fn one() -> u32 {
    1
}
fn one_part() -> u16 {
    1
}
fn one_seed() -> u64 {
    1
}

fn wrong<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::Scenario(text.into()))
}

#[expect(clippy::cast_sign_loss, reason = "the range was checked")]
fn micros(name: &str, value: f64, unit_us: f64) -> Result<u64, Error> {
    let us = value * unit_us;
    if us.is_finite() && (0.0..=SECONDS_MAX * 1e6).contains(&us) {
        Ok(us.round() as u64)
    } else {
        wrong(format!("{name} must lie between 0 and a day"))
    }
}

/// A simulation to run: with a given number of clients, or at the peak.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) scenario: Scenario,
    pub(crate) is_peak: bool,
}

/// Reads the text of a scenario.
pub(crate) fn parse(text: &str) -> Result<Vec<Job>, Error> {
    let file: File = toml::from_str(text).map_err(|error| Error::Scenario(error.to_string()))?;
    let workload = workload(&file)?;
    let protocols = protocols(&file.protocol)?;
    if file.replicas.is_empty() || file.replicas.iter().any(|n| !(1..=REPLICAS_MAX).contains(n)) {
        return wrong(format!("replicas must be numbers from 1 to {REPLICAS_MAX}"));
    }
    if file.clients.iter().any(|n| !(1..=CLIENTS_MAX).contains(n)) {
        return wrong(format!("clients must be numbers from 1 to {CLIENTS_MAX}"));
    }
    if file.speed == 0 || file.parts == 0 {
        return wrong("speed and parts are at least 1");
    }
    let mut jobs = Vec::new();
    for protocol in protocols {
        for replicas in &file.replicas {
            if protocol == Protocol::Onecopy && *replicas > ONECOPY_REPLICAS_MAX {
                return wrong(format!("onecopy has at most {ONECOPY_REPLICAS_MAX} replicas"));
            }
            let scenario = Scenario {
                seed: file.seed,
                protocol,
                replicas: *replicas,
                clients: 1,
                workload: workload.clone(),
                think_us: micros("think_ms", file.think_ms, 1e3)?,
                network_us: micros("network_ms", file.network_ms, 1e3)?,
                log_us: micros("log_ms", file.log_ms, 1e3)?,
                front: Front::default(),
                discipline: match file.service {
                    Sharing::Queue => Discipline::Queue,
                    Sharing::Sharing => Discipline::Sharing,
                },
                speed: file.speed,
                parts: file.parts,
                warm_up_us: micros("warm_up_s", file.warm_up_s, 1e6)?,
                measure_us: micros("measure_s", file.measure_s, 1e6)?.max(1),
            };
            if file.clients.is_empty() {
                jobs.push(Job { scenario, is_peak: true });
                continue;
            }
            for clients in &file.clients {
                let scenario = Scenario { clients: *clients, ..scenario.clone() };
                jobs.push(Job { scenario, is_peak: false });
            }
        }
    }
    Ok(jobs)
}

fn protocols(names: &[String]) -> Result<Vec<Protocol>, Error> {
    if names.is_empty() {
        return Ok(Protocol::ALL.to_vec());
    }
    let named = |name: &String| {
        let known = Protocol::ALL.map(Protocol::name).join(", ");
        Protocol::named(name).ok_or_else(|| Error::Scenario(format!("no protocol `{name}`: {known}")))
    };
    names.iter().map(named).collect()
}

fn workload(file: &File) -> Result<Arc<Workload>, Error> {
    let has_own = !file.template.is_empty() || !file.interaction.is_empty();
    match (&file.workload, has_own) {
        (Some(name), false) => {
            let mix = Mix::ALL.into_iter().find(|mix| *name == format!("tpcw-{}", mix.name()));
            let Some(mix) = mix else {
                return wrong(format!("no workload `{name}`: tpcw-browsing, tpcw-shopping, tpcw-ordering"));
            };
            // As the paper's figures have it.
            Ok(tpcw::workload(mix, Setting::default().calibration))
        }
        (None, true) => own_workload(file),
        _ => wrong("either `workload`, or templates and interactions of your own"),
    }
}

fn own_workload<'a>(file: &'a File) -> Result<Arc<Workload>, Error> {
    let mut tables: BTreeMap<&'a str, TableId> = BTreeMap::new();
    let mut templates = Vec::new();
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for template in &file.template {
        if template.reads.is_empty() && template.writes.is_empty() {
            return wrong(format!("template `{}` reads and writes no table", template.name));
        }
        if by_name.insert(&template.name, templates.len()).is_some() {
            return wrong(format!("two templates are called `{}`", template.name));
        }
        let mut ids = |names: &'a [String]| -> Vec<TableId> {
            let mut found = Vec::new();
            for name in names {
                let next = DatabaseId::FIRST.table(tables.len() as u32 + 1);
                found.push(*tables.entry(name).or_insert(next));
            }
            found
        };
        let (reads, writes) = (ids(&template.reads), ids(&template.writes));
        let cost_us = micros("cost_ms", template.cost_ms, 1e3)?.min(u64::from(u32::MAX)) as u32;
        templates.push(Template { name: template.name.clone(), cost_us, reads, writes });
    }
    let mut interactions = Vec::new();
    for interaction in &file.interaction {
        let mut steps = Vec::new();
        for transaction in &interaction.transactions {
            let named = |name: &String| {
                let known = by_name.get(name.as_str()).copied();
                known.ok_or_else(|| {
                    Error::Scenario(format!("`{}` names no template `{name}`", interaction.name))
                })
            };
            let indices: Vec<usize> = transaction.iter().map(named).collect::<Result<_, _>>()?;
            match indices[..] {
                [] => return wrong(format!("`{}` has an empty transaction", interaction.name)),
                [one] => steps.push(Step::Single(one)),
                _ => steps.push(Step::Transaction(indices)),
            }
        }
        interactions.push(Interaction { name: interaction.name.clone(), steps });
    }
    let weights: Vec<u32> = file.interaction.iter().map(|interaction| interaction.weight).collect();
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    if total == 0 || total > u64::from(u32::MAX) {
        return wrong("the interactions' weights must add up to a number that is neither 0 nor huge");
    }
    Ok(Arc::new(Workload { templates, interactions, first: 0, next: Next::by_weight(&weights) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = r#"
        replicas = [1, 2]
        protocol = ["conflict-aware", "onecopy"]
        clients = [10]
        [[template]]
        name = "read"
        cost_ms = 2.5
        reads = ["item", "author"]
        [[template]]
        name = "sell"
        cost_ms = 1
        writes = ["item"]
        [[interaction]]
        name = "buy"
        weight = 3
        transactions = [["read"], ["read", "sell"]]
    "#;

    #[test]
    fn a_scenario_of_ones_own() {
        let jobs = parse(OWN).unwrap();
        assert_eq!(jobs.len(), 4);
        let Scenario { workload, clients, think_us, .. } = &jobs[3].scenario;
        assert_eq!((*clients, *think_us, jobs[3].is_peak), (10, 7_000_000, false));
        assert_eq!(workload.templates[0].reads[0], workload.templates[1].writes[0], "one table, one number");
        assert_eq!(workload.interactions[0].steps[1], Step::Transaction(vec![0, 1]));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (change, to, says) in [
            ("weight = 3", "weight = 0", "weights"),
            ("[\"read\", \"sell\"]", "[\"read\", \"steal\"]", "`steal`"),
            ("replicas = [1, 2]", "replicas = [0]", "replicas"),
            ("replicas = [1, 2]", "replicas = [65]", "at most 64"),
            ("\"onecopy\"", "\"twocopy\"", "`twocopy`"),
            ("cost_ms = 1\n", "cost_ms = -1\n", "cost_ms"),
            ("clients = [10]", "clients = [10]\nworkload = \"tpcw-shopping\"", "either"),
            ("clients = [10]", "cleints = [10]", "cleints"),
        ] {
            let text = OWN.replace(change, to);
            let error = parse(&text).expect_err(to).to_string();
            assert!(error.contains(says), "{to}: {error}");
        }
    }
}
