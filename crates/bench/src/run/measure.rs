//! One run: a load on a contestant, what it cost everybody, and whether the answers were right.

use std::time::{Duration, Instant};

use super::contestant::{Contestant, Ground};
use super::probe::Probe;
use super::result::{self, Middleware, Quantiles, Run};
use crate::cpu::{self, SETTLE, Ticks};
use crate::drive::{self, Course, Outcome, Workload};
use crate::fault::Fault;
use crate::judge;
use crate::load::{open, runtime};
use crate::plan::Entrant;
use crate::quota::Limit;

/// What is run.
pub(crate) struct Order<'a> {
    pub(crate) workload: &'a dyn Workload,
    pub(crate) course: &'a Course,
    pub(crate) entrant: &'a Entrant,
    pub(crate) round: u32,
    pub(crate) limit: Option<Limit>,
}

/// Everybody's processor time at one moment.
pub(super) struct Reading {
    at: Instant,
    machine: Ticks,
    ourselves: Ticks,
    middleware: Ticks,
    servers: Vec<Ticks>,
}

impl Reading {
    pub(super) fn take(contestant: &Contestant) -> Result<Self, Fault> {
        Ok(Self {
            at: Instant::now(),
            machine: cpu::of_machine()?,
            ourselves: cpu::of_process(std::process::id())?,
            middleware: contestant.middleware_used()?,
            servers: contestant.servers_used()?,
        })
    }

    /// Processors that something used since an earlier reading.
    fn cores(&self, earlier: &Self, used: Ticks) -> f64 {
        used.micros() / 1e6 / (self.at - earlier.at).as_secs_f64()
    }

    fn servers_cores(&self, earlier: &Self) -> Vec<f64> {
        let pairs = self.servers.iter().zip(&earlier.servers);
        pairs.map(|(later, before)| self.cores(earlier, *later - *before)).collect()
    }

    fn middleware_cores(&self, earlier: &Self) -> f64 {
        self.cores(earlier, self.middleware - earlier.middleware)
    }

    /// How much of the machine strangers have used since an earlier reading, from 0 to 1.
    pub(super) fn strangers(&self, earlier: &Self) -> f64 {
        let clients = self.cores(earlier, self.ourselves - earlier.ourselves);
        let servers: f64 = self.servers_cores(earlier).iter().sum();
        let ours = servers + self.middleware_cores(earlier) + clients;
        let there = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        ((self.cores(earlier, self.machine - earlier.machine) - ours) / there).clamp(0.0, 1.0)
    }
}

/// Runs it, and checks everything afterwards.
pub(crate) fn run(order: &Order<'_>, contestant: &Contestant, ground: &Ground<'_>) -> Result<Run, Fault> {
    let runtime = runtime()?;
    let before = runtime
        .block_on(async { judge::counts(&open(&contestant.doors.main).await?, order.workload).await })?;
    contestant.limit(order.limit)?;
    ground.interrupt.pause(SETTLE)?;
    let earlier = Reading::take(contestant)?;
    let driven = runtime.block_on(driven(order, contestant, ground));
    ground.interrupt.pause(SETTLE)?;
    let later = Reading::take(contestant)?;
    // What follows is not measured, and need not wait for a share of the processors.
    contestant.limit(None)?;
    let (outcome, reads, stale) = driven?;
    let mut wrong = runtime.block_on(async {
        let client = open(&contestant.doors.main).await?;
        judge::wrong(&client, order.workload, &before, &outcome.ledger).await
    })?;
    wrong.extend(contestant.differences(ground)?);
    if stale > 0 {
        wrong.push(format!("{stale} of {reads} probing reads were stale"));
    }
    summed(order, contestant, &earlier, &later, &outcome, (reads, stale), wrong)
}

/// The load with the probe beside it.
async fn driven(
    order: &Order<'_>,
    contestant: &Contestant,
    ground: &Ground<'_>,
) -> Result<(Outcome, u64, u64), Fault> {
    let probe = Probe::open(&contestant.doors).await?;
    let load = drive::drive(order.workload, &contestant.doors, order.course, ground.interrupt, &|_, _| {});
    let outcome = tokio::select! {
        outcome = load => outcome?,
        never = probe.look() => match never {},
    };
    let (reads, stale) = probe.seen();
    Ok((outcome, reads, stale))
}

fn summed(
    order: &Order<'_>,
    contestant: &Contestant,
    earlier: &Reading,
    later: &Reading,
    outcome: &Outcome,
    (probe_reads, stale_reads): (u64, u64),
    wrong: Vec<String>,
) -> Result<Run, Fault> {
    // Everything that ended within the course, its warm-up included, was paid for.
    let paid: u64 = outcome.tally.timeline.iter().map(|slice| slice.done + slice.failed).sum();
    let middleware = contestant.middleware_bytes()?.map(|bytes| Middleware {
        cores: later.middleware_cores(earlier),
        us_each: (later.middleware - earlier.middleware).micros() / paid.max(1) as f64,
        peak_mb: bytes / 1e6,
    });
    let tally = &outcome.tally;
    Ok(Run {
        load: order.workload.name(),
        contestant: contestant.name.clone(),
        family: order.entrant.family(),
        servers: order.entrant.servers(),
        round: order.round,
        seed: order.course.seed,
        clients: order.course.clients,
        throughput: tally.throughput(),
        response_ms: Quantiles::of(&tally.response_us()),
        kinds: result::kinds(tally),
        failed: tally.failed(),
        retries: tally.retries(),
        unsent: tally.unsent,
        late: result::late(order.workload, tally),
        driver_cores: outcome.driver,
        middleware,
        servers_cores: later.servers_cores(earlier),
        strangers: later.strangers(earlier),
        probe_reads,
        stale_reads,
        wrong,
    })
}

/// The part of a course that a plan tells.
pub(crate) fn course(
    plan: &crate::plan::Plan,
    load: &crate::plan::Course,
    servers: u16,
) -> Result<Course, Fault> {
    let seconds = |count: u32| Duration::from_secs(u64::from(count));
    Ok(Course {
        clients: load.clients(servers),
        pace: load.pace(servers),
        warm_up: seconds(plan.warm_up_s),
        length: seconds(plan.seconds),
        seed: plan.seed,
        isolation: load.isolation()?,
    })
}
