//! One run of calls at a constant rate on a cluster, with or without clients that only read beside them.
//!
//! The rate is that of all clients together and does not follow the system, so the same transactions come to one server and to
//! eight. Readers are a closed loop, and use what is left of the servers. Afterwards everything is checked as after any run.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde::Serialize;
use testbed::fault::Fault;

use super::contestant::{Contestant, Environment};
use super::elastic::admin;
use super::measure::{self, Reading};
use super::result::Quantiles;
use super::stamps::Counts;
use crate::drive::{self, Course, Isolation, Ledger, Outcome, Pace, Tally, Workload};
use crate::judge;
use crate::load::{open, runtime};
use crate::nap::Nap;
use crate::plan::stamped::{Called, Steady};
use crate::plan::{Plan, SETTLING};
use crate::quota::Limit;
use crate::tpcc::{self, Form, Mix, Tpcc};

/// Connections get warm at this multiple of the rate, for this long, before the first run on a cluster.
const WARMING: f64 = 4.0;
const WARMED: Duration = Duration::from_secs(4);
/// Seeds of readers differ from those of updates by this.
const READERS: u64 = 1 << 40;
/// The kinds that write.
const UPDATES: [&str; 3] = ["NewOrder", "Payment", "probe"];

/// A run to be made.
pub(super) struct Trial<'a> {
    pub(super) plan: &'a Plan,
    pub(super) load: &'a Steady,
    /// Warehouses that clients use.
    pub(super) warehouses: i32,
    /// Clients that only read.
    pub(super) readers: usize,
    pub(super) limit: Option<Limit>,
}

/// The measurements of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) servers: usize,
    pub(crate) warehouses: i32,
    pub(crate) readers: usize,
    /// Updates that were committed in a second.
    pub(crate) updates: f64,
    /// Times of updates from the moment when they were due. Nothing if none succeeded.
    pub(crate) update_ms: Option<Quantiles>,
    /// Reads in a second of the clients that only read.
    pub(crate) reads: f64,
    pub(crate) read_ms: Option<Quantiles>,
    pub(crate) failed: u64,
    /// Due and not sent by the end.
    pub(crate) unsent: u64,
    /// What clients were told 40001 for, and tried again.
    pub(crate) conflicts: u64,
    /// How much of a processor each server used.
    pub(crate) servers_cores: Vec<f64>,
    pub(crate) middleware_cores: f64,
    pub(crate) driver_cores: f64,
    /// The processor time of all servers for each update that was committed.
    pub(crate) servers_us_per_update: f64,
    /// How much of the machine strangers used, from 0 to 1.
    pub(crate) strangers: f64,
    /// What became of transactions, from the beginning of the warm-up.
    pub(crate) counts: Counts,
    /// Servers that used more than their share.
    pub(crate) beyond: Vec<String>,
    pub(crate) wrong: Vec<String>,
}

/// The observations of a run.
struct Shown {
    updates: Outcome,
    reads: Option<Outcome>,
    readings: Readings,
    counts: Counts,
}

/// The processor time before and after what is counted.
struct Readings {
    earlier: Reading,
    later: Reading,
}

/// Runs it, and checks everything afterwards.
pub(super) fn run(
    trial: &Trial<'_>,
    contestant: &Contestant,
    environment: &Environment<'_>,
) -> Result<Point, Fault> {
    let runtime = runtime()?;
    let updates = trial.workload(Mix::NoDelivery);
    let before = runtime
        .block_on(async { judge::counts(&open(&contestant.endpoints.main).await?, &*updates).await })?;
    let driven = runtime.block_on(driven(trial, contestant, environment));
    // What follows is not measured, and need not wait for a share of the processors.
    contestant.limit(None)?;
    let shown = driven?;
    let mut ledger = Ledger::default();
    ledger += &shown.updates.ledger;
    if let Some(reads) = &shown.reads {
        ledger += &reads.ledger;
    }
    let mut wrong = runtime.block_on(async {
        let client = open(&contestant.endpoints.main).await?;
        judge::wrong(&client, &*updates, &before, &ledger).await
    })?;
    wrong.extend(contestant.differences(environment)?);
    Ok(trial.summed(&shown, wrong))
}

/// Warms connections, caches and plans of a new cluster, without limits.
pub(super) fn warm(
    trial: &Trial<'_>,
    contestant: &Contestant,
    environment: &Environment<'_>,
) -> Result<(), Fault> {
    let pace = Pace::Rate(trial.load.rate_total * WARMING);
    let course = Course { pace, warm_up: Duration::ZERO, length: WARMED, ..trial.course() };
    let workload = trial.workload(Mix::NoDelivery);
    let load = drive::drive(&*workload, &contestant.endpoints, &course, environment.interrupt, &|_, _| {});
    runtime()?.block_on(load).map(drop)
}

async fn driven(
    trial: &Trial<'_>,
    contestant: &Contestant,
    environment: &Environment<'_>,
) -> Result<Shown, Fault> {
    contestant.limit(None)?;
    let admin = admin(contestant).await?;
    let before = Counts::read(&admin).await?;
    let begin = Cell::new(None);
    let watch = |at: Duration, _| {
        if begin.get().is_none() {
            begin.set(Instant::now().checked_sub(at));
        }
    };
    let course = trial.course();
    let (updates, reads) = (trial.workload(Mix::NoDelivery), trial.workload(Mix::Reads));
    let updating = drive::drive(&*updates, &contestant.endpoints, &course, environment.interrupt, &watch);
    let pace = Pace::Busy;
    let others = Course { clients: trial.readers, pace, seed: course.seed ^ READERS, ..course.clone() };
    let reading = async {
        if trial.readers == 0 {
            return Ok(None);
        }
        let load = drive::drive(&*reads, &contestant.endpoints, &others, environment.interrupt, &|_, _| {});
        load.await.map(Some)
    };
    let conducted = measure::conducted(&course, trial.limit, contestant, &begin);
    let (updates, reads, (earlier, later)) = tokio::try_join!(updating, reading, conducted)?;
    let counts = Counts::read(&admin).await?.since(before);
    Ok(Shown { updates, reads, readings: Readings { earlier, later }, counts })
}

impl Trial<'_> {
    fn workload(&self, mix: Mix) -> Box<dyn Workload> {
        if self.load.calls == Called::Probe {
            return Box::new(Nap { ms: 0 });
        }
        let full = tpcc::Scale::full(self.warehouses);
        let items = self.load.items.unwrap_or(full.items);
        let customers = self.load.customers.unwrap_or(full.customers);
        Box::new(Tpcc { scale: tpcc::Scale { items, customers, ..full }, form: Form::Calls, mix })
    }

    fn course(&self) -> Course {
        let seconds = |count: u32| Duration::from_secs(u64::from(count));
        Course {
            clients: self.load.clients,
            pace: Pace::Random(self.load.rate_total),
            warm_up: seconds(self.plan.warm_up_s) + self.limit.map_or(Duration::ZERO, |_| SETTLING),
            length: seconds(self.plan.seconds),
            seed: self.plan.seed,
            isolation: Isolation::default(),
        }
    }

    fn summed(&self, shown: &Shown, wrong: Vec<String>) -> Point {
        let Shown { updates: outcome, reads, readings: Readings { earlier, later }, counts } = shown;
        let tally = &outcome.tally;
        let updates = updates(tally);
        let others = reads.as_ref().map(|reads| &reads.tally);
        let servers_cores = later.servers_cores(earlier);
        let used_us = servers_cores.iter().sum::<f64>() * 1e6;
        Point {
            servers: servers_cores.len(),
            warehouses: self.warehouses,
            readers: self.readers,
            updates: updates.committed as f64 / tally.seconds(),
            update_ms: updates.times,
            reads: others.map_or(0.0, Tally::throughput),
            read_ms: others.map(|tally| Quantiles::of(&tally.response_us())),
            failed: tally.failed() + others.map_or(0, Tally::failed),
            unsent: tally.unsent,
            conflicts: tally.conflicts() + others.map_or(0, Tally::conflicts),
            servers_us_per_update: used_us * tally.seconds() / updates.committed.max(1) as f64,
            middleware_cores: later.middleware_cores(earlier),
            driver_cores: later.our_cores(earlier),
            strangers: later.strangers(earlier),
            counts: *counts,
            beyond: self.limit.map_or_else(Vec::new, |limit| measure::beyond(limit, &servers_cores)),
            servers_cores,
            wrong,
        }
    }
}

/// The transactions that write.
struct Updates {
    committed: u64,
    times: Option<Quantiles>,
}

fn updates(tally: &Tally) -> Updates {
    let (mut committed, mut all) = (0, None);
    for kind in UPDATES.iter().filter_map(|name| tally.kinds.get(name)) {
        committed += kind.done() - kind.tries.undone.min(kind.done());
        match &mut all {
            None => all = Some(kind.response_us.clone()),
            // All have the same bounds, so adding cannot fail.
            Some(all) => drop(all.add(&kind.response_us)),
        }
    }
    let times = all.filter(|all| !all.is_empty()).map(|all| Quantiles::of(&all));
    Updates { committed, times }
}
