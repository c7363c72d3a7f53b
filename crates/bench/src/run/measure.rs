//! One run: a load on a contestant, its cost in processor time, and a check of the answers.
//!
//! A limited server would need minutes to become warm: its connections have to plan statements, compile functions and read
//! catalogues first. So servers are limited only when clients have worked for as long as the plan says, and what is
//! counted begins a moment after that ([`SETTLING`]). What is counted must be limited, whatever happens: a run whose servers
//! used more than they may have counts for nothing.

use std::cell::Cell;
use std::time::{Duration, Instant};

use testbed::fault::Fault;
use tokio::time::{sleep, sleep_until};

use super::contestant::{Contestant, Environment};
use super::probe::Probe;
use super::result::{self, Middleware, Quantiles, Run};
use crate::cpu::{self, Ticks};
use crate::drive::{self, Course, Outcome, Workload};
use crate::judge;
use crate::load::{open, runtime};
use crate::plan::{Entrant, SETTLING};
use crate::quota::Limit;

/// Between two looks whether clients work.
const LOOK: Duration = Duration::from_millis(10);
/// The processor time of all processes is read this long before the measurement. Reading it keeps clients waiting for
/// some milliseconds.
const EARLY: Duration = Duration::from_millis(50);
/// A server may use so many times its share before a run counts for nothing: the kernel's precision, and that of its clocks.
const TOLERANCE: f64 = 1.3;

/// A run to be made: its load, contestant and limit.
pub(crate) struct Order<'a> {
    pub(crate) workload: &'a dyn Workload,
    /// What tells it apart from the plan's other loads of that workload.
    pub(crate) apart: String,
    pub(crate) course: &'a Course,
    pub(crate) entrant: &'a Entrant,
    pub(crate) round: u32,
    pub(crate) limit: Option<Limit>,
}

/// The processor time of all parts at one moment.
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

    /// How much of a processor we used ourselves since an earlier reading.
    pub(super) fn our_cores(&self, earlier: &Self) -> f64 {
        self.cores(earlier, self.ourselves - earlier.ourselves)
    }

    pub(super) fn servers_cores(&self, earlier: &Self) -> Vec<f64> {
        let pairs = self.servers.iter().zip(&earlier.servers);
        pairs.map(|(later, before)| self.cores(earlier, *later - *before)).collect()
    }

    pub(super) fn middleware_cores(&self, earlier: &Self) -> f64 {
        self.cores(earlier, self.middleware - earlier.middleware)
    }

    /// How much of the machine strangers have used since an earlier reading, from 0 to 1.
    pub(super) fn strangers(&self, earlier: &Self) -> f64 {
        let clients = self.our_cores(earlier);
        let servers: f64 = self.servers_cores(earlier).iter().sum();
        let ours = servers + self.middleware_cores(earlier) + clients;
        let there = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        ((self.cores(earlier, self.machine - earlier.machine) - ours) / there).clamp(0.0, 1.0)
    }
}

/// The observations of a run.
struct Shown {
    outcome: Outcome,
    /// Before and after what was counted.
    readings: (Reading, Reading),
    /// Reads of the probe, and how many of them were stale.
    probed: (u64, u64),
}

/// Runs it, and checks everything afterwards.
pub(crate) fn run(
    order: &Order<'_>,
    contestant: &Contestant,
    environment: &Environment<'_>,
) -> Result<Run, Fault> {
    let runtime = runtime()?;
    let before = runtime
        .block_on(async { judge::counts(&open(&contestant.endpoints.main).await?, order.workload).await })?;
    let driven = runtime.block_on(driven(order, contestant, environment));
    // What follows is not measured, and need not wait for a share of the processors.
    contestant.limit(None)?;
    let shown = driven?;
    let mut wrong = runtime.block_on(async {
        let client = open(&contestant.endpoints.main).await?;
        judge::wrong(&client, order.workload, &before, &shown.outcome.ledger).await
    })?;
    wrong.extend(contestant.differences(environment)?);
    let (reads, stale) = shown.probed;
    if stale > 0 {
        wrong.push(format!("{stale} of {reads} probing reads were stale"));
    }
    summed(order, contestant, &shown, wrong)
}

/// The load with the probe beside it.
async fn driven(
    order: &Order<'_>,
    contestant: &Contestant,
    environment: &Environment<'_>,
) -> Result<Shown, Fault> {
    contestant.limit(None)?;
    let probe = Probe::open(&contestant.endpoints, order.entrant.servers()).await?;
    let begin = Cell::new(None);
    let watch = |at: Duration, _| {
        if begin.get().is_none() {
            begin.set(Instant::now().checked_sub(at));
        }
    };
    let load =
        drive::drive(order.workload, &contestant.endpoints, order.course, environment.interrupt, &watch);
    let ((outcome, readings), probed) = tokio::select! {
        both = async { tokio::try_join!(load, conducted(order.course, order.limit, contestant, &begin)) } => (both?, probe.seen()),
        never = probe.look() => match never {},
    };
    Ok(Shown { outcome, readings, probed })
}

/// Limits the warm servers, and reads the processor time of all processes before and after the measurement.
pub(super) async fn conducted(
    course: &Course,
    limit: Option<Limit>,
    contestant: &Contestant,
    begin: &Cell<Option<Instant>>,
) -> Result<(Reading, Reading), Fault> {
    let begin = loop {
        match begin.get() {
            Some(begin) => break begin,
            None => sleep(LOOK).await,
        }
    };
    let warm_up = course.warm_up;
    if limit.is_some() {
        sleep_until((begin + warm_up.saturating_sub(SETTLING)).into()).await;
        contestant.limit(limit)?;
    }
    sleep_until((begin + warm_up.saturating_sub(EARLY)).into()).await;
    let earlier = Reading::take(contestant)?;
    sleep_until((begin + warm_up + course.length).into()).await;
    Ok((earlier, Reading::take(contestant)?))
}

fn summed(
    order: &Order<'_>,
    contestant: &Contestant,
    shown: &Shown,
    wrong: Vec<String>,
) -> Result<Run, Fault> {
    let Shown { outcome, readings: (earlier, later), probed: (probe_reads, stale_reads) } = shown;
    let tally = &outcome.tally;
    // What failed was paid for, too.
    let paid = (tally.done() + tally.failed()).max(1) as f64 / tally.seconds();
    let us_each = |cores: f64| cores * 1e6 / paid;
    let middleware_cores = later.middleware_cores(earlier);
    let middleware = contestant.middleware_bytes()?.map(|bytes| Middleware {
        cores: middleware_cores,
        us_each: us_each(middleware_cores),
        peak_mb: bytes / 1e6,
    });
    let servers_cores = later.servers_cores(earlier);
    let servers_sum: f64 = servers_cores.iter().sum();
    let committed = tally.committed() as f64 / tally.seconds();
    Ok(Run {
        load: order.workload.name() + &order.apart,
        contestant: contestant.name.clone(),
        family: if contestant.name == order.entrant.name() {
            order.entrant.family()
        } else {
            contestant.name.clone()
        },
        servers: order.entrant.servers(),
        round: order.round,
        seed: order.course.seed,
        clients: order.course.clients,
        throughput: tally.throughput(),
        committed,
        response_ms: Quantiles::of(&tally.response_us()),
        kinds: result::kinds(tally),
        failed: tally.failed(),
        retries: tally.retries(),
        conflicts_each: tally.conflicts() as f64 / tally.committed().max(1) as f64,
        unsent: tally.unsent,
        late: result::late(order.workload, tally),
        driver_cores: later.our_cores(earlier),
        middleware,
        servers_us_each: us_each(servers_sum),
        servers_us_per_commit: servers_sum * 1e6 / committed.max(1.0 / tally.seconds()),
        beyond: order.limit.map_or_else(Vec::new, |limit| beyond(limit, &servers_cores)),
        servers_cores,
        strangers: later.strangers(earlier),
        probe_reads: *probe_reads,
        stale_reads: *stale_reads,
        wrong,
    })
}

/// The servers that used more than their share.
pub(super) fn beyond(limit: Limit, servers_cores: &[f64]) -> Vec<String> {
    let share = limit.given();
    let too_much = servers_cores.iter().enumerate().filter(|(_, used)| **used > share * TOLERANCE);
    too_much.map(|(at, used)| format!("server {} used {used:.3} of {share:.3} processors", at + 1)).collect()
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
        warm_up: seconds(plan.warm_up_s) + plan.cores_per_server.map_or(Duration::ZERO, |_| SETTLING),
        length: seconds(plan.seconds),
        seed: plan.seed,
        isolation: load.isolation()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_its_limit_is_noticed() {
        let limit = Limit { cores: 0.1, period_ms: 20 };
        assert_eq!(beyond(limit, &[0.02, 0.104, 0.12]), Vec::<String>::new());
        assert_eq!(beyond(limit, &[0.1, 0.31]), ["server 2 used 0.310 of 0.100 processors"]);
    }
}
