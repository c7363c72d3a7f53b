//! `run`: a plan of comparisons on servers that it starts itself, and a folder of results.
//!
//! For each group of loads with the same tables, all contestants are started and filled from one seed. Then they take
//! turns, load by load and round by round, so that other load on the machine affects all of them alike. After every
//! run the replicas are compared, the workload's rules are checked, acknowledged transactions are counted in the
//! database, and stale reads are counted. The report marks each contestant that fails.

pub(crate) mod contestant;
mod delay;
mod elastic;
pub(crate) mod failure;
pub(crate) mod measure;
mod origin;
mod pgpool;
mod plot;
mod probe;
mod report;
pub(crate) mod result;
mod scaling;
mod simulated;
mod stamped;
mod stamps;
mod steady;
mod streaming;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use testbed::account::Account;
use testbed::build;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::machine::Circumstances;
use testbed::postgres::{Binaries, Likeness};
use testbed::program;
use testbed::scratch::Scratch;

use crate::drive::{self, Workload};
use crate::load::runtime;
use crate::plan::{self, Entrant, Plan};
use crate::quota::{Group, Limit};
use contestant::{Contestant, Environment, Filling};
use measure::Order;
use result::{Results, Stamped};
use simulated::Calibrated;

/// Clients of the probe and of checks, beside those of a load.
const OTHERS: u32 = 24;

/// `run`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// File of the plan; `crates/bench/plans` has some.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    /// Folder of the results, which must not exist [default: named by the plan and the time].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Folder of PostgreSQL's programs [default: searched].
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,

    /// Program to measure [default: the one beside this program, else built from these sources].
    #[arg(long, value_name = "FILE")]
    onecopy: Option<PathBuf>,
}

/// Runs a plan; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let plan = Plan::read(&options.plan)?;
    let text = fs::read_to_string(&options.plan).map_err(Fault::system("read the plan"))?;
    if plan.cores_per_server.is_some() {
        // A missing right to limit servers is reported now and not in the middle.
        drop(Group::new("trial")?);
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = Scratch::new()?;
    let onecopy = match &options.onecopy {
        Some(program) => program.clone(),
        None => match beside() {
            Some(program) => program,
            None => build::onecopy(&repository, &scratch, interrupt, news)?,
        },
    };
    let folder = folder(options)?;
    let binaries = Binaries::find(options.pg_bin.as_deref())?;
    let environment = Environment {
        binaries: &binaries,
        account: Account::choose()?,
        scratch: &scratch,
        interrupt,
        onecopy: &onecopy,
        clients: most_clients(&plan) + OTHERS,
    };
    let mut results = Results {
        title: plan.title.clone(),
        circumstances: Circumstances::now(&repository).to_string(),
        versions: vec![version(&onecopy, &scratch, interrupt)?],
        plan: text,
        contestants: plan.contestants.iter().map(Entrant::name).collect(),
        notes: notes(&plan),
        runs: Vec::new(),
        losses: Vec::new(),
        sizes: Vec::new(),
        simulated: Vec::new(),
        stamped: Stamped::default(),
    };
    let mut bench =
        Bench { plan: &plan, environment: &environment, news, begun: Instant::now(), next: 0, started: 0 };
    for group in plan.groups()? {
        bench.group(&group, &mut results)?;
        // What has been measured is kept, whatever happens later.
        write(&results, &folder)?;
    }
    for failure in &plan.failures {
        bench.failure(failure, &mut results)?;
        write(&results, &folder)?;
    }
    for wave in &plan.waves {
        bench.wave(wave, &mut results)?;
        write(&results, &folder)?;
    }
    bench.stamped(&mut results, &folder)?;
    let report = format!("{}\n\nThe results are in {}.", write(&results, &folder)?, folder.display());
    if is_ours_wrong(&results) { Err(Fault::Wrong(report)) } else { Ok(report) }
}

/// The version that `onecopy` reports.
fn version(onecopy: &Path, scratch: &Scratch, interrupt: &Interrupt) -> Result<String, Fault> {
    let mut ask = program::command(onecopy);
    let said = program::run("onecopy", ask.arg("--version"), &scratch.path("version.log"), interrupt)?;
    Ok(said.trim().to_owned())
}

/// Whether onecopy gave wrong answers. The report marks every contestant that does; if onecopy does, the command fails.
fn is_ours_wrong(results: &Results) -> bool {
    let mut ours = results.runs.iter().filter(|run| run.family.starts_with("onecopy"));
    ours.any(|run| !run.wrong.is_empty())
        || results.losses.iter().any(|loss| !loss.wrong.is_empty())
        || results.sizes.iter().any(|size| !size.wrong.is_empty())
        || results.stamped.is_wrong()
}

/// `onecopy` beside our own program, if that is where it was installed.
pub(crate) fn beside() -> Option<PathBuf> {
    let ourselves = std::env::current_exe().ok()?;
    ourselves.parent().map(|folder| folder.join("onecopy")).filter(|program| program.is_file())
}

fn folder(options: &Options) -> Result<PathBuf, Fault> {
    let folder = options.out.clone().unwrap_or_else(|| {
        let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let name = options.plan.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        PathBuf::from(format!("bench-{name}-{}", seconds.map_or(0, |since| since.as_secs())))
    });
    fs::create_dir(&folder).map_err(Fault::system(format!("make {}", folder.display())))?;
    Ok(folder)
}

fn most_clients(plan: &Plan) -> u32 {
    let servers = plan.contestants.iter().map(Entrant::servers).max().unwrap_or(1);
    let clients = plan.loads.iter().map(|load| load.clients(servers)).max().unwrap_or(1);
    u32::try_from(clients).unwrap_or(u32::MAX)
}

fn notes(plan: &Plan) -> Vec<String> {
    let cores = plan.cores_per_server.map_or_else(
        || "Servers use what the machine has, and share it with each other, the clients and what is between.".into(),
        |cores| {
            format!(
                "Each server may use {cores} of a processor, counted over {} ms; clients and what is between are not \
                 limited. Latencies are distorted by that period. While a run warms up, no contestant is limited: clients have \
                 connected and have worked for {} s with the whole machine when its servers are given their share, and {} s after \
                 that what is counted begins. So connections that have lived for a while are measured, everybody's. A run in \
                 which a server used more than its share does not count.",
                plan.period_ms,
                plan.warm_up_s,
                plan::SETTLING.as_secs()
            )
        },
    );
    let method = format!(
        "{} rounds of {} s after {} s of warm-up, {}; seed {}. Medians, with the least and the most; ratios are made \
         within a round. All servers are on this one machine, with one disk, and reached over the loopback. They have the same \
         settings; onecopy's replicas commit asynchronously, because its log is what makes a commit durable. Read-only \
         transactions say so (READ ONLY); with `streaming`, clients send them to all servers in turn. After every run replicas, \
         rules and what clients were told are checked; a few times a second reads are probed for staleness. \
         `servers us each` is the processor time of all servers for each interaction, failed ones included, which is what \
         bounds how many there can be; `us per commit` is the same for each interaction that was committed, and `40001 per \
         commit` counts what clients were told before they tried again.",
        plan.rounds,
        plan.seconds,
        plan.warm_up_s,
        if plan.one_by_one { "one contestant after the other, alone on the machine" } else { "in turns" },
        plan.seed
    );
    vec![method, cores]
}

/// Writes everything that is known so far; the report.
fn write(results: &Results, folder: &Path) -> Result<String, Fault> {
    let plots = plot::draw(results, folder);
    let mut report = report::markdown(results, plots.as_deref().unwrap_or_default());
    if let Err(why) = plots {
        report.push_str(&format!("\nNo plots: {why}.\n"));
    }
    let json = serde_json::to_string_pretty(results).map_err(|error| Fault::Unreadable {
        what: "the results, to write them".into(),
        said: error.to_string(),
    })?;
    for (name, text) in [("result.json", &json), ("report.md", &report)] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Fault::system(format!("write {}", path.display())))?;
    }
    Ok(report)
}

struct Bench<'a> {
    plan: &'a Plan,
    environment: &'a Environment<'a>,
    news: &'a dyn Fn(&str),
    begun: Instant,
    /// The number of the run that goes on, from 1.
    next: usize,
    /// How many contestants were started so far, which gives each a name of its own.
    started: usize,
}

impl Bench<'_> {
    /// All contestants on loads that share their tables.
    fn group(&mut self, loads: &[plan::Course], results: &mut Results) -> Result<(), Fault> {
        let mut calibrated: Vec<Option<Calibrated>> = loads.iter().map(|_| None).collect();
        let mut likeness = None;
        for batch in self.batches() {
            let first = self.started;
            let mut contestants = self.start(&batch, &mut likeness, &loads[0], results)?;
            for (load, calibrated) in loads.iter().zip(&mut calibrated) {
                if let Some(now) = self.calibrate(load, &contestants)? {
                    *calibrated = Some(now);
                }
                self.rounds(load, &mut contestants, results)?;
            }
            drop(contestants);
            for number in first..self.started {
                // What could not be started has none.
                let _ = fs::remove_dir_all(self.environment.scratch.path(&contestant::folder(number)));
            }
        }
        if !self.plan.simulate {
            return Ok(());
        }
        for (load, calibrated) in loads.iter().zip(calibrated) {
            let Some(calibrated) = calibrated else {
                return Err(Fault::Missing(
                    "`simulate` needs a contestant of kind postgres that runs".into(),
                ));
            };
            (self.news)(&format!("simulating {}", load.load));
            results.simulated.extend(simulated::all(self.plan, load, &calibrated, &results.runs));
        }
        Ok(())
    }

    /// The contestants that run side by side, by their places in the plan. Onecopy comes first, because the others
    /// take their settings from it.
    fn batches(&self) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.plan.contestants.len()).collect();
        order.sort_by_key(|place| !matches!(self.plan.contestants[*place], Entrant::Onecopy { .. }));
        if self.plan.one_by_one { order.into_iter().map(|place| vec![place]).collect() } else { vec![order] }
    }

    /// One load on those who run, in turns.
    fn rounds(
        &mut self,
        load: &plan::Course,
        contestants: &mut [(Entrant, Option<Contestant>)],
        results: &mut Results,
    ) -> Result<(), Fault> {
        let workload = load.which()?.workload(&load.size());
        for round in 1..=self.plan.rounds {
            // Each round begins with another contestant, so that none always follows the same neighbour.
            for turn in 0..contestants.len() {
                let next = (turn + round as usize) % contestants.len();
                let (entrant, running) = &mut contestants[next];
                self.next += 1;
                let Some(contestant) = running else { continue };
                let apart = self.plan.apart(load);
                self.tell(&format!("{}{apart}, {}, round {round}", load.load, contestant.name));
                let mut course = measure::course(self.plan, load, entrant.servers())?;
                // Rounds differ, contestants within one do not.
                course.seed = course.seed.wrapping_add(u64::from(round) << 32);
                let limit = self.limit();
                let order = Order { workload: &*workload, apart, course: &course, entrant, round, limit };
                match measure::run(&order, contestant, self.environment) {
                    Ok(run) => results.runs.push(run),
                    Err(fault) => {
                        give_up(entrant, &load.load, fault, results)?;
                        *running = None;
                    }
                }
            }
        }
        Ok(())
    }

    /// The cost of a load on one plain server, if the plan asks for a simulation and has such a server.
    fn calibrate(
        &self,
        load: &plan::Course,
        contestants: &[(Entrant, Option<Contestant>)],
    ) -> Result<Option<Calibrated>, Fault> {
        if !self.plan.simulate {
            return Ok(None);
        }
        let mut plain = contestants.iter().filter(|(entrant, _)| matches!(entrant, Entrant::Postgres { .. }));
        let Some(plain) = plain.find_map(|(_, running)| running.as_ref()) else { return Ok(None) };
        (self.news)(&format!("timing the statements of {}", load.load));
        let workload = load.which()?.workload(&load.size());
        let course = measure::course(self.plan, load, 1)?;
        let traced = runtime()?.block_on(drive::trace(
            &*workload,
            &plain.endpoints,
            &course,
            self.environment.interrupt,
        ))?;
        simulated::calibrate(&traced, &workload.texts()).map(Some)
    }

    fn limit(&self) -> Option<Limit> {
        let period_ms = self.plan.period_ms;
        self.plan.cores_per_server.map(|cores| Limit { cores, period_ms })
    }

    /// Starts and fills those of these contestants that can run. The first onecopy gives all the others their settings.
    fn start(
        &mut self,
        batch: &[usize],
        likeness: &mut Option<Likeness>,
        load: &plan::Course,
        results: &mut Results,
    ) -> Result<Vec<(Entrant, Option<Contestant>)>, Fault> {
        let mut started = Vec::new();
        for place in batch.iter().copied() {
            let entrant = &self.plan.contestants[place];
            let like = likeness.clone().unwrap_or_else(Likeness::usual);
            let contestant = match self.start_one(entrant, &like, load) {
                Ok(Some(contestant)) => contestant,
                Ok(None) => {
                    note(
                        results,
                        format!("{} is not installed here, so it is not compared.", entrant.name()),
                    );
                    continue;
                }
                Err(fault) => {
                    give_up(entrant, &load.load, fault, results)?;
                    continue;
                }
            };
            if let Some(release) = contestant.release().filter(|it| !results.versions.contains(it)) {
                results.versions.push(release);
            }
            // It may not be what the plan asks for.
            results.contestants[place].clone_from(&contestant.name);
            if likeness.is_none() {
                *likeness = contestant.likeness(self.environment)?;
            }
            started.push((place, entrant.clone(), contestant));
        }
        if let Some(likeness) = likeness {
            let version = format!("PostgreSQL {}", likeness.version());
            if !results.versions.contains(&version) {
                results.versions.push(version);
            }
        }
        started.sort_by_key(|(place, ..)| *place);
        Ok(started.into_iter().map(|(_, entrant, contestant)| (entrant, Some(contestant))).collect())
    }

    fn start_one(
        &mut self,
        entrant: &Entrant,
        likeness: &Likeness,
        load: &plan::Course,
    ) -> Result<Option<Contestant>, Fault> {
        let which = load.which()?;
        self.start_filled(entrant, likeness, &*which.workload(&load.size()), which.tables())
    }

    /// Starts a contestant, fills it and prepares these tables.
    fn start_filled(
        &mut self,
        entrant: &Entrant,
        likeness: &Likeness,
        workload: &dyn Workload,
        tables: &str,
    ) -> Result<Option<Contestant>, Fault> {
        let number = self.started;
        self.started += 1;
        (self.news)(&format!("starting {} for {}", entrant.name(), workload.name()));
        let (seed, is_limited) = (self.plan.seed, self.plan.cores_per_server.is_some());
        let filling = Filling { workload, tables, seed, is_limited };
        Contestant::start_filled(entrant, number, likeness, &filling, self.environment)
    }

    /// The loss of a replica.
    fn failure(&mut self, failure: &plan::Failure, results: &mut Results) -> Result<(), Fault> {
        let plan::Failure { replicas, arguments, .. } = failure;
        let entrant = Entrant::onecopy(*replicas, None, arguments.clone());
        let Some(contestant) = self.start_one(&entrant, &Likeness::usual(), &failure.course)? else {
            return Ok(());
        };
        let plan::Failure { killed, after_s, course, .. } = failure;
        (self.news)(&format!("replica {killed} is killed under {} in {after_s} s", course.load));
        results.losses.push(failure::run(failure, self.plan.seed, &contestant, self.environment)?);
        Ok(())
    }

    /// A load that grows and falls.
    fn wave(&mut self, wave: &plan::Wave, results: &mut Results) -> Result<(), Fault> {
        let plan::Wave { replicas, arguments, course, phases, .. } = wave;
        let entrant = Entrant::onecopy(*replicas, None, arguments.clone());
        let Some(contestant) = self.start_one(&entrant, &Likeness::usual(), course)? else {
            return Ok(());
        };
        let factors: Vec<String> = phases.iter().map(|phase| format!("{}x", phase.factor)).collect();
        (self.news)(&format!("{} at {}", course.load, factors.join(", ")));
        results.sizes.push(elastic::run(wave, self.plan.seed, &contestant, self.environment)?);
        Ok(())
    }

    /// Tells what is next, and when all is done if it goes on like this.
    fn tell(&self, what: &str) {
        let all = self.plan.loads.len() * self.plan.contestants.len() * self.plan.rounds as usize;
        let done = self.next - 1;
        let left = match u32::try_from(done) {
            Ok(count) if count > 0 => {
                let each = self.begun.elapsed() / count;
                each * u32::try_from(all.saturating_sub(done)).unwrap_or(u32::MAX)
            }
            _ => self.plan.measured(),
        };
        let minutes = left.as_secs().div_ceil(60);
        (self.news)(&format!("[{}/{all}, about {minutes} min left] {what}", self.next));
    }
}

/// A rival that cannot go on is left out from then on, and the report says why. If we cannot, there is no result.
fn give_up(entrant: &Entrant, load: &str, fault: Fault, results: &mut Results) -> Result<(), Fault> {
    match (entrant, fault) {
        (Entrant::Onecopy { .. }, fault) | (_, fault @ Fault::Interrupted) => Err(fault),
        (rival, fault) => {
            note(results, format!("**{} gave up on {load}**: {fault}", rival.name()));
            Ok(())
        }
    }
}

fn note(results: &mut Results, text: String) {
    if !results.notes.contains(&text) {
        results.notes.push(text);
    }
}
