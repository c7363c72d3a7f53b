//! `bench schedulers`: what a log and several schedulers cost on TPC-W, and what the loss of a scheduler costs the clients of the others.
//!
//! The live bars of figure 10 of the conflict-aware scheduling paper (section 8.4):
//!
//! | bar | log | clients |
//! |---|---|---|
//! | 1 | none: a decision counts as logged at once | at the only node |
//! | 2 | files | at the only node |
//! | 3 | etcd | at the node that leads, of three |
//! | 4 | etcd | dealt over two nodes |
//! | 5 | etcd | dealt over three nodes |
//!
//! Three clusters run side by side, one for the last three bars. The bars take turns under the same load, in rounds whose order changes, so
//! that other load on the machine affects all alike. Each server has a small share of a processor, so the peak is that of the servers. After
//! each run everything is checked as after any run of a plan. At the end a node dies under load ([`loss`]).
//!
//! The report has only ratios within a round. Absolute throughput is left out on purpose: it says more about the day than about the program.

mod bar;
mod loss;
mod report;
mod site;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use testbed::account::Account;
use testbed::build;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::machine::Circumstances;
use testbed::postgres::Binaries;
use testbed::scratch::Scratch;

use crate::drive::{Course, Isolation, Pace, Workload};
use crate::plan::SETTLING;
use crate::quota::{Group, Limit};
use crate::run::contestant::{Environment, Filling};
use crate::run::measure::{self, Order};
use crate::run::{beside, result};
use crate::tpcw::{Mix, Scale, Tpcw};
use bar::Bar;
use loss::{Loss, Strike};
use report::{Measured, Report};
use site::{Kind, Site};

/// Over how long a server's share of a processor is counted.
const PERIOD_MS: u32 = 20;
/// Books on sale, the least that is specified.
const ITEMS: i32 = 1_000;
const MIXES: [Mix; 3] = [Mix::Browsing, Mix::Shopping, Mix::Ordering];
/// Under this mix a node is killed: it commits most.
const KILLED_UNDER: Mix = Mix::Ordering;

/// `bench schedulers`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Bars to measure: 1 without a log, 2 log in files, 3 log on etcd, 4 clients at two of three nodes, 5 at three.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,2,3,4,5", value_parser = clap::value_parser!(u8).range(1..=5))]
    bars: Vec<u8>,

    /// Number of rounds; each measures every bar once.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Length of a run, in seconds.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Warm-up before each run without limits, in seconds.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=600))]
    warm_up: u32,

    /// Seconds of load before a node is killed at the end, and after that; 0 leaves it out.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=600))]
    kill_s: u32,

    /// Number of clients, all busy.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(3..=1_000))]
    clients: u16,

    /// Number of servers in each cluster.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=8))]
    replicas: u16,

    /// Share of a processor that each server may use; needs root.
    #[arg(long, value_name = "CORES", default_value_t = 0.1)]
    cores_per_server: f64,

    /// Emulated browsers for which the tables are filled.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(i32).range(1..=1_000))]
    scale: i32,

    /// Protocol to measure; bar 1 needs one that ships statements.
    #[arg(long, value_name = "NAME", default_value = "conflict-aware")]
    protocol: String,

    /// Seed of everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Folder of PostgreSQL's programs [default: searched].
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,

    /// Program to measure [default: the one beside this program, else built from these sources].
    #[arg(long, value_name = "FILE")]
    onecopy: Option<PathBuf>,

    /// Program `etcd` [default: the one that scripts/etcd has built, else searched by onecopy].
    #[arg(long, value_name = "FILE")]
    etcd_bin: Option<PathBuf>,
}

impl Options {
    fn bars(&self) -> Vec<Bar> {
        Bar::ALL.into_iter().filter(|bar| self.bars.contains(&bar.number())).collect()
    }

    fn workload(&self, mix: Mix) -> Tpcw {
        Tpcw { scale: Scale { items: ITEMS, browsers: self.scale }, mix }
    }

    fn limit(&self) -> Limit {
        Limit { cores: self.cores_per_server, period_ms: PERIOD_MS }
    }

    fn course(&self, seconds: u32, seed: u64) -> Course {
        Course {
            clients: self.clients.into(),
            pace: Pace::Busy,
            warm_up: Duration::from_secs(self.warm_up.into()) + SETTLING,
            length: Duration::from_secs(seconds.into()),
            seed,
            isolation: Isolation::default(),
        }
    }
}

/// Runs the comparison; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    // A missing right to limit servers is reported now and not in the middle.
    drop(Group::new("trial")?);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (binaries, scratch) = (Binaries::find(options.pg_bin.as_deref())?, Scratch::new()?);
    let onecopy = match options.onecopy.clone().or_else(beside) {
        Some(program) => program,
        None => build::onecopy(&repository, &scratch, interrupt, news)?,
    };
    let environment = Environment {
        binaries: &binaries,
        account: Account::choose()?,
        scratch: &scratch,
        interrupt,
        onecopy: &onecopy,
        clients: options.clients.into(),
    };
    let bench = Bench { options, environment: &environment, news };
    let circumstances = Circumstances::now(&repository).to_string();
    let mut sites = bench.start(&repository)?;
    let measured = bench.measure(&mut sites)?;
    let loss = bench.lose(&mut sites)?;
    let report = Report { options, circumstances: &circumstances, measured: &measured, loss: loss.as_ref() };
    if report.is_wrong() { Err(Fault::Wrong(report.to_string())) } else { Ok(report.to_string()) }
}

struct Bench<'a> {
    options: &'a Options,
    environment: &'a Environment<'a>,
    news: &'a dyn Fn(&str),
}

impl Bench<'_> {
    /// Starts and fills what the bars need.
    fn start(&self, repository: &Path) -> Result<Vec<Site>, Fault> {
        let bars = self.options.bars();
        let built = repository.join("target/etcd/etcd");
        let etcd = self.options.etcd_bin.clone().or_else(|| built.exists().then_some(built));
        let workload = self.options.workload(KILLED_UNDER);
        let filling =
            Filling { workload: &workload, tables: "tpcw", seed: self.options.seed, is_limited: true };
        let wanted = Kind::ALL.into_iter().filter(|kind| bars.iter().any(|bar| bar.kind() == *kind));
        let start = |(number, kind): (usize, Kind)| {
            (self.news)(&format!("starting {kind}"));
            let entrant = kind.entrant(&self.options.protocol, self.options.replicas, etcd.as_deref());
            Site::start(kind, entrant, number, &filling, self.environment)
        };
        wanted.enumerate().map(start).collect()
    }

    fn measure(&self, sites: &mut [Site]) -> Result<Vec<Measured>, Fault> {
        let (bars, rounds) = (self.options.bars(), self.options.rounds);
        let mut measured = Vec::new();
        for mix in MIXES {
            let workload = self.options.workload(mix);
            for round in 1..=rounds {
                for bar in bar::turns(&bars, round) {
                    (self.news)(&format!("{}, round {round} of {rounds}: {bar}", workload.name()));
                    let found = sites.iter_mut().find(|site| site.kind == bar.kind());
                    let site = found.expect("each bar has its site");
                    measured.push(self.measure_one(site, &workload, bar, round)?);
                }
            }
        }
        Ok(measured)
    }

    fn measure_one(&self, site: &mut Site, workload: &Tpcw, bar: Bar, round: u32) -> Result<Measured, Fault> {
        let leader = site.enter(bar, self.environment)?;
        // Rounds differ, bars within one do not.
        let seed = self.options.seed.wrapping_add(u64::from(round) << 32);
        let order = Order {
            workload,
            apart: String::new(),
            course: &self.options.course(self.options.seconds, seed),
            entrant: &site.entrant,
            round,
            limit: Some(self.options.limit()),
        };
        let run: result::Run = measure::run(&order, &site.contestant, self.environment)?;
        let is_led_on = site.leader(self.environment)? == leader;
        Ok(Measured { mix: workload.mix, bar, run, is_led_on })
    }

    /// Kills a node, if there are several.
    fn lose(&self, sites: &mut [Site]) -> Result<Option<Loss>, Fault> {
        let Some(site) = sites.iter_mut().find(|site| site.kind == Kind::Nodes) else { return Ok(None) };
        if self.options.kill_s == 0 {
            return Ok(None);
        }
        let workload = self.options.workload(KILLED_UNDER);
        (self.news)(&format!("{}: a node that follows is killed", workload.name()));
        let strike = Strike {
            workload: &workload,
            course: &self.options.course(2 * self.options.kill_s, self.options.seed),
        };
        loss::run(&strike, site, self.environment).map(Some)
    }
}
