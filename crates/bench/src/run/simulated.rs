//! The simulator's forecast of the same runs: costs from one server, then more servers.
//!
//! One client alone sends each load to the contestant that is one plain PostgreSQL, without a limit, and every statement is
//! timed; that gives the weight of each template and which transactions an interaction is made of. BEGIN and COMMIT count
//! with the last statement that writes, or the last. How much a server with its limit gets done is taken from the
//! protocol's own run with one server, so of that only the agreement of several servers means something. The simulation
//! then has as many clients as the run, databases that share their time, and the delays below, which are assumed.
//!
//! Not simulated: an open loop, contestants other than onecopy, and the middleware's own time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sim::paper::run::{Outcome, run};
use sim::paper::scenario::{
    DatabaseId, Discipline, Front, Interaction, Next, Protocol, Scenario, Step, TableId, Template, Workload,
};
use sql::{Analyzer, Limits};
use testbed::fault::Fault;

use super::result::{Run, Simulated};
use crate::drive::{Heard, Pace, Texts};
use crate::plan::{Course, Entrant, Plan};
use crate::spread::Spread;

/// One message between two processes of a machine.
const NETWORK_US: u64 = 100;
/// Making a record durable.
const LOG_US: u64 = 1_000;
/// Simulated, and not counted, resp. counted.
const WARM_UP_US: u64 = 30_000_000;
const MEASURE_US: u64 = 120_000_000;
/// Think times of TPC-W.
const THINK_US: f64 = 7e6;

/// The statements of one client, by interaction.
pub(crate) type Trace = Vec<(&'static str, Vec<Heard>)>;

/// A load as the simulator has it, with the costs of an idle server.
pub(crate) struct Calibrated {
    workload: Workload,
    /// Of an interaction, all its statements.
    mean_us: f64,
}

/// The shape of an interaction: transactions, each with the names of its statements, alone or between BEGIN and COMMIT.
type Shape = Vec<(bool, Vec<&'static str>)>;

#[derive(Default)]
struct Costs {
    /// Per statement, how often it came and how long it took in all.
    taken: BTreeMap<&'static str, (u32, Duration)>,
}

impl Costs {
    fn add(&mut self, name: &'static str, took: Duration, count: u32) {
        let (known, sum) = self.taken.entry(name).or_default();
        *known += count;
        *sum += took;
    }
}

/// Makes a workload of a trace.
pub(crate) fn calibrate(trace: &Trace, texts: &Texts) -> Result<Calibrated, Fault> {
    let mut tables = Tables::default();
    let mut costs = Costs::default();
    let mut shapes: BTreeMap<(&str, Shape), u32> = BTreeMap::new();
    for (kind, heard) in trace {
        let shape = shape(heard, &mut costs, &mut |name| tables.writes(name, texts))?;
        *shapes.entry((kind, shape)).or_default() += 1;
    }
    if shapes.keys().all(|(_, shape)| shape.is_empty()) {
        return Err(Fault::Missing("a trace of a load has no statements".into()));
    }
    let mut templates = Vec::new();
    let mut total_us = 0.0;
    for (name, (count, sum)) in &costs.taken {
        let sum_us = sum.as_secs_f64() * 1e6;
        total_us += sum_us;
        let (reads, writes) = tables.of(name, texts)?;
        let cost_us = whole_us(sum_us / f64::from(*count));
        templates.push(Template { name: (*name).to_owned(), cost_us, reads, writes });
    }
    let index = |name: &str| {
        templates.iter().position(|template| template.name == name).expect("each has a template")
    };
    let step = |(is_alone, names): &(bool, Vec<&str>)| match names.as_slice() {
        [one] if *is_alone => Step::Single(index(one)),
        all => Step::Transaction(all.iter().map(|name| index(name)).collect()),
    };
    let interactions = shapes
        .keys()
        .map(|(kind, shape)| Interaction {
            name: (*kind).to_owned(),
            steps: shape.iter().map(step).collect(),
        })
        .collect();
    let weights: Vec<u32> = shapes.values().copied().collect();
    let mean_us = total_us / trace.len().max(1) as f64;
    let workload = Workload { templates, interactions, first: 0, next: Next::by_weight(&weights) };
    Ok(Calibrated { workload, mean_us })
}

#[expect(clippy::cast_sign_loss, reason = "it is clamped")]
fn whole_us(us: f64) -> u32 {
    us.clamp(1.0, f64::from(u32::MAX)) as u32
}

fn shape(
    heard: &[Heard],
    costs: &mut Costs,
    is_write: &mut dyn FnMut(&'static str) -> Result<bool, Fault>,
) -> Result<Shape, Fault> {
    let mut shape = Shape::new();
    let mut open: Option<(Duration, Vec<&'static str>)> = None;
    for what in heard {
        match *what {
            Heard::Begin(took) => open = Some((took, Vec::new())),
            Heard::Statement(name, took) => {
                costs.add(name, took, 1);
                match &mut open {
                    Some((_, names)) => names.push(name),
                    None => shape.push((true, vec![name])),
                }
            }
            Heard::End(took) => {
                let Some((begun, names)) = open.take() else { continue };
                let Some(last) = names.last().copied() else { continue };
                let mut pays = last;
                for name in &names {
                    if is_write(name)? {
                        pays = name;
                    }
                }
                costs.add(pays, begun + took, 0);
                shape.push((false, names));
            }
        }
    }
    Ok(shape)
}

/// The tables that statements touch.
#[derive(Default)]
struct Tables {
    ids: BTreeMap<String, TableId>,
    known: BTreeMap<&'static str, bool>,
}

impl Tables {
    fn of(&mut self, name: &str, texts: &Texts) -> Result<(Vec<TableId>, Vec<TableId>), Fault> {
        let statement = statement(name, texts)?;
        let mut numbers = |names: &[sql::Name]| -> Vec<TableId> {
            let each = names.iter().filter(|table| !statement.with_names.contains(&table.name));
            let mut numbers: Vec<TableId> = each
                .map(|table| {
                    let next = DatabaseId::FIRST
                        .table(u32::try_from(self.ids.len()).unwrap_or(u32::MAX).saturating_add(1));
                    *self.ids.entry(table.name.clone()).or_insert(next)
                })
                .collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        Ok((numbers(&statement.reads), numbers(&statement.writes)))
    }

    fn writes(&mut self, name: &'static str, texts: &Texts) -> Result<bool, Fault> {
        if let Some(writes) = self.known.get(name) {
            return Ok(*writes);
        }
        let writes = !statement(name, texts)?.writes.is_empty();
        self.known.insert(name, writes);
        Ok(writes)
    }
}

fn statement(name: &str, texts: &Texts) -> Result<Arc<sql::Statement>, Fault> {
    let unread = |why: String| Fault::Missing(format!("the statement {name} cannot be read: {why}"));
    let text = texts.get(name).ok_or_else(|| unread("there is no statement of that name".into()))?;
    let script = Analyzer::new(Limits::default()).script(text.as_bytes(), true);
    let script = script.map_err(|error| unread(error.to_string()))?;
    let first = script.statements.first().ok_or_else(|| unread("it is empty".into()))?;
    Ok(Arc::clone(&first.statement))
}

/// Simulates every contestant that ran this load and can be simulated.
pub(crate) fn all(plan: &Plan, load: &Course, calibrated: &Calibrated, runs: &[Run]) -> Vec<Simulated> {
    let label = load.load.clone() + &plan.apart(load);
    let measured = |entrant: &Entrant| {
        let name = entrant.name();
        let is_meant = |run: &&Run| run.load == label && run.contestant == name && run.counts();
        let of = runs.iter().filter(is_meant);
        Spread::of(of.map(|run| run.throughput)).map(|spread| spread.median)
    };
    let alone = |entrant: &Entrant| {
        let kin = plan.contestants.iter().find(|one| one.servers() == 1 && one.family() == entrant.family());
        kin.and_then(measured)
    };
    let mut simulated = Vec::new();
    for entrant in &plan.contestants {
        let protocol = entrant.protocol().and_then(Protocol::named);
        let (Some(protocol), Some(measured), Some(alone)) = (protocol, measured(entrant), alone(entrant))
        else {
            continue;
        };
        let Some(scenario) = scenario(plan, load, entrant.servers(), protocol, calibrated, alone) else {
            continue;
        };
        let outcome = run(&scenario, None);
        let name = entrant.name();
        let is_meant = |run: &&Run| run.load == label && run.contestant == name && run.counts();
        let of: Vec<&Run> = runs.iter().filter(is_meant).collect();
        simulated.push(beside(
            &of,
            &outcome,
            scenario.replicas,
            scenario.clients,
            measured,
            plan.cores_per_server,
        ));
    }
    simulated
}

/// The simulated runs that match these runs of one contestant.
fn beside(
    runs: &[&Run],
    outcome: &Outcome,
    servers: usize,
    clients: usize,
    measured: f64,
    cores_per_server: Option<f64>,
) -> Simulated {
    let median = |value: &dyn Fn(&Run) -> f64| {
        Spread::of(runs.iter().map(|run| value(run))).map_or(0.0, |spread| spread.median)
    };
    let cores = cores_per_server.unwrap_or(1.0) * servers as f64;
    let there = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let between = |run: &Run| run.middleware.map_or(0.0, |middleware| middleware.cores);
    let used = |run: &Run| run.servers_cores.iter().sum::<f64>() + between(run) + run.driver_cores;
    let busy = median(&|run| run.servers_cores.iter().sum::<f64>() / cores);
    let [_, _, idle] = outcome.shares(servers);
    let expected = outcome.wips();
    let first = runs[0];
    Simulated {
        load: first.load.clone(),
        contestant: first.contestant.clone(),
        servers: first.servers,
        clients,
        measured,
        expected,
        difference: expected / measured - 1.0,
        busy: [busy, 1.0 - idle],
        cost: (busy / measured) / ((1.0 - idle) / expected),
        machine: median(&|run| used(run) / there + run.strangers).min(1.0),
        driver: median(&|run| run.driver_cores),
    }
}

fn scenario(
    plan: &Plan,
    load: &Course,
    servers: u16,
    protocol: Protocol,
    calibrated: &Calibrated,
    alone: f64,
) -> Option<Scenario> {
    let think_us = match load.pace(servers) {
        Pace::Busy => 0.0,
        Pace::Thinking(factor) => THINK_US * factor,
        Pace::Rate(_) | Pace::Random(_) => return None,
    };
    // One server, always busy, gets as much done as it did.
    let scale = 1e6 / (alone * calibrated.mean_us);
    let mut workload = calibrated.workload.clone();
    for template in &mut workload.templates {
        template.cost_us = whole_us(f64::from(template.cost_us) * scale);
    }
    Some(Scenario {
        seed: plan.seed,
        protocol,
        replicas: usize::from(servers),
        clients: load.clients(servers),
        workload: Arc::new(workload),
        think_us: u64::from(whole_us(think_us.max(1.0))),
        network_us: NETWORK_US,
        log_us: LOG_US,
        front: Front::default(),
        discipline: Discipline::Sharing,
        speed: 1,
        parts: 1,
        warm_up_us: WARM_UP_US,
        measure_us: MEASURE_US,
    })
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn texts() -> Texts {
        let texts = [
            ("look", "SELECT title FROM item WHERE id = $1"),
            ("take", "UPDATE item SET stock = stock - 1 WHERE id = $1"),
            ("note", "INSERT INTO orders SELECT id FROM item WHERE id = $1"),
        ];
        Rc::new(texts.into_iter().map(|(name, text)| (name, text.to_owned())).collect())
    }

    #[test]
    fn a_trace_becomes_a_workload_that_costs_as_much() {
        let look = Heard::Statement("look", ms(3));
        let buy = vec![
            Heard::Begin(ms(1)),
            Heard::Statement("take", ms(2)),
            Heard::Statement("note", ms(4)),
            Heard::Statement("look", ms(5)),
            Heard::End(ms(7)),
        ];
        let trace = vec![("browse", vec![look]), ("buy", buy.clone()), ("buy", buy), ("idle", Vec::new())];
        let Calibrated { workload, mean_us } = calibrate(&trace, &texts()).unwrap();
        assert!((mean_us - (3.0 + 19.0 + 19.0) * 1e3 / 4.0).abs() < 1.0, "{mean_us}");
        let (reads_us, writes_us) = workload.mean_costs_us(100_000);
        assert!((reads_us + writes_us - mean_us).abs() < 0.02 * mean_us, "{reads_us} {writes_us}");
        let cost = |name: &str| workload.templates.iter().find(|one| one.name == name).unwrap();
        assert_eq!(cost("note").cost_us, 12_000, "the last that writes has BEGIN and COMMIT, too");
        assert_eq!(cost("note").writes.len(), 1);
        assert_eq!(cost("note").reads, cost("take").writes, "one table, one number");
        assert_eq!(workload.interactions.len(), 3);
        let plan: Plan = toml::from_str(
            "title = 't'\nrounds = 1\nwarm_up_s = 1\nseconds = 1\n\
             [[contestant]]\nkind = 'onecopy'\nreplicas = 1\narguments = ['--protocol', 'eager']\n\
             [[load]]\nload = 'tpcw-shopping'\nclients_per_server = 8",
        )
        .unwrap();
        let calibrated = Calibrated { workload, mean_us };
        let eager = Protocol::named("eager").unwrap();
        let scenario = scenario(&plan, &plan.loads[0], 1, eager, &calibrated, 20.0).unwrap();
        let wips = run(&scenario, None).wips();
        assert!((18.5..20.5).contains(&wips), "one server does what it was measured to do: {wips}");
    }

    #[test]
    fn a_trace_of_nothing_is_refused() {
        assert!(calibrate(&vec![("idle", Vec::new())], &texts()).is_err());
    }
}
