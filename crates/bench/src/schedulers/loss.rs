//! The loss of a node that follows, under load: how its clients and those of the other nodes fare, and whether a commit is lost.
//!
//! A third of the clients is at that node. They know the other nodes, too, as clients of libpq with several hosts do, and go there when
//! their connections break. `onecopy up` starts the node again. Afterwards everything is checked as after any run: the database must have
//! what clients were told, and beyond that at most what was in doubt, and all replicas must be identical.
//!
//! Servers are not limited here. Clients that go elsewhere get new server connections, and to a limited server these are slow for minutes,
//! which would hide what the loss itself costs.

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::node;
use testbed::nodes::name;
use tokio::time::{sleep, sleep_until, timeout};

use super::site::Site;
use crate::drive::{self, Course, Endpoints, Ledger, Outcome, SLICE, Workload};
use crate::judge;
use crate::load::{open, runtime};
use crate::run::contestant::{Environment, NODES_FOLDER, config};
use crate::run::failure::{settled, silence};

/// Between two looks whether clients work.
const LOOK: Duration = Duration::from_millis(10);
/// One client in so many is at the node that is killed.
const SHARE: usize = 3;
/// Seeds of these clients differ from those of the others by this.
const APART: u64 = 1 << 40;
/// How long the killed node may take to serve again.
const RETURN_MAX: Duration = Duration::from_mins(1);

/// A kill in the middle of a course.
pub(super) struct Strike<'a> {
    pub(super) workload: &'a dyn Workload,
    pub(super) course: &'a Course,
}

/// The clients of living nodes, or those of the killed one, around the kill.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fate {
    /// Throughput after the kill as a ratio to that before; and the same for each second.
    pub(super) ratio: f64,
    pub(super) seconds: Vec<f64>,
    /// The longest time without any success, before the kill and after it.
    pub(super) silence_before_s: f64,
    pub(super) silence_after_s: f64,
    /// Interactions that failed after the kill.
    pub(super) failed: u64,
}

/// The observations around a kill.
pub(super) struct Loss {
    pub(super) living: Fate,
    pub(super) lost: Fate,
    /// Orders and other things whose outcome their clients do not know.
    pub(super) doubtful: i64,
    /// Whether the killed node serves again.
    pub(super) is_back: bool,
    pub(super) wrong: Vec<String>,
}

/// Kills a node that follows.
pub(super) fn run(
    strike: &Strike<'_>,
    site: &mut Site,
    environment: &Environment<'_>,
) -> Result<Loss, Fault> {
    let leader = site.leader(environment)?;
    let mut followers: Vec<u16> = site.ports().filter(|port| *port != leader).collect();
    let killed = followers.pop().ok_or_else(|| Fault::Missing("a node that follows".into()))?;
    site.contestant.endpoints = site.endpoints(leader, &followers);
    let place = site.ports().position(|port| port == killed).unwrap_or_default();
    let data = site.contestant.data().ok_or_else(|| Fault::Missing("the folder of the nodes".into()))?;
    let folder = data.join(NODES_FOLDER).join(name(place));
    let mut lost = site.endpoints(killed, &[]);
    for port in [leader].iter().chain(&followers) {
        lost.main.host("127.0.0.1").port(*port);
    }
    let kill = || {
        let count = node::signal_all(&folder, Signal::KILL);
        let missing = || Fault::Missing(format!("no node runs in {}", folder.display()));
        if count > 0 { Ok(()) } else { Err(missing()) }
    };
    let runtime = runtime()?;
    let (outcomes, wrong) = runtime.block_on(async {
        let client = open(&site.contestant.endpoints.main).await?;
        let before = judge::counts(&client, strike.workload).await?;
        let outcomes = struck(strike, site, &lost, &kill, environment).await?;
        settled(&site.contestant).await?;
        let mut ledger = Ledger::default();
        outcomes.both().for_each(|outcome| ledger += &outcome.ledger);
        if ledger.0.values().all(|entry| entry.told == 0) {
            return Err(Fault::Missing("no commit was acknowledged, so none could be lost".into()));
        }
        Ok((outcomes, judge::wrong(&client, strike.workload, &before, &ledger).await?))
    })?;
    let is_back = runtime.block_on(serves(killed));
    let mut wrong = wrong;
    wrong.extend(site.contestant.differences(environment)?);
    let doubtful =
        |outcome: &Outcome| outcome.ledger.0.values().map(|entry| entry.doubtful.abs()).sum::<i64>();
    let (living, its) = (outcomes.fate(&outcomes.living, strike), outcomes.fate(&outcomes.lost, strike));
    Ok(Loss { living, lost: its, doubtful: outcomes.both().map(doubtful).sum(), is_back, wrong })
}

/// What clients saw, and when the node was killed.
struct Outcomes {
    living: Outcome,
    lost: Outcome,
    killed: Duration,
}

impl Outcomes {
    fn both(&self) -> impl Iterator<Item = &Outcome> {
        [&self.living, &self.lost].into_iter()
    }

    fn fate(&self, outcome: &Outcome, strike: &Strike<'_>) -> Fate {
        let Course { warm_up, length, .. } = strike.course;
        let timeline = &outcome.tally.timeline;
        let count = slice_at(*warm_up + *length);
        // Where nothing has ended there is no piece.
        let done: Vec<u64> = (0..count).map(|at| timeline.get(at).map_or(0, |slice| slice.done)).collect();
        let killed = slice_at(self.killed);
        let failed = timeline.iter().skip(killed).map(|slice| slice.failed).sum();
        Fate { failed, ..fate(&done, slice_at(*warm_up), killed) }
    }
}

/// The load with the kill in its middle.
async fn struck(
    strike: &Strike<'_>,
    site: &Site,
    lost: &Endpoints,
    kill: &dyn Fn() -> Result<(), Fault>,
    environment: &Environment<'_>,
) -> Result<Outcomes, Fault> {
    let Strike { workload, course } = strike;
    let begins = [Cell::new(None), Cell::new(None)];
    let watch = |begin: &Cell<Option<Instant>>, at: Duration| {
        if begin.get().is_none() {
            begin.set(Instant::now().checked_sub(at));
        }
    };
    let (first, second) = (|at, _| watch(&begins[0], at), |at, _| watch(&begins[1], at));
    let few = (course.clients / SHARE).max(1);
    let most = Course { clients: course.clients - few, ..(*course).clone() };
    let few = Course { clients: few, seed: course.seed ^ APART, ..(*course).clone() };
    let interrupt = environment.interrupt;
    let living = drive::drive(*workload, &site.contestant.endpoints, &most, interrupt, &first);
    let others = drive::drive(*workload, lost, &few, interrupt, &second);
    let strike = async {
        let begin = loop {
            match (begins[0].get(), begins[1].get()) {
                (Some(one), Some(other)) => break Instant::max(one, other),
                _ => sleep(LOOK).await,
            }
        };
        sleep_until((begin + course.warm_up + course.length / 2).into()).await;
        kill()?;
        Ok(begin.elapsed())
    };
    site.contestant.limit(None)?;
    let (living, lost, killed) = tokio::try_join!(living, others, strike)?;
    Ok(Outcomes { living, lost, killed })
}

/// Whether a node serves within a time.
async fn serves(port: u16) -> bool {
    let asked = async {
        let client = open(&config(&Endpoint { port, database: "postgres", options: None })).await.ok()?;
        client.simple_query("SELECT 1").await.ok()
    };
    matches!(timeout(RETURN_MAX, asked).await, Ok(Some(_)))
}

/// The piece of a timeline that has this moment.
fn slice_at(at: Duration) -> usize {
    usize::try_from(at.as_millis() / SLICE.as_millis()).unwrap_or(usize::MAX)
}

/// How it went before and after a kill, by what was done in each piece of a timeline. The first pieces do not count.
fn fate(done: &[u64], first: usize, killed: usize) -> Fate {
    let (first, killed) = (first.min(done.len()), killed.min(done.len()));
    let rate = |pieces: Range<usize>| {
        let length = pieces.len().max(1);
        done[pieces].iter().sum::<u64>() as f64 / length as f64
    };
    let before = rate(first..killed);
    let second = slice_at(Duration::from_secs(1));
    let whole = (done.len() - killed) / second;
    let seconds = (0..whole).map(|number| killed + number * second);
    Fate {
        ratio: rate(killed..done.len()) / before,
        seconds: seconds.map(|from| rate(from..from + second) / before).collect(),
        silence_before_s: silence(done[first..killed].iter().copied()),
        silence_after_s: silence(done[killed..].iter().copied()),
        failed: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_after_a_kill_is_a_ratio_to_that_before() {
        let mut done = vec![9; 5];
        done.extend([4; 10]);
        done.extend([0, 0, 0, 2, 2, 2, 2, 2, 0, 0]);
        done.extend([4; 10]);
        let fate = fate(&done, 5, 15);
        assert_eq!(fate.seconds, [0.25, 1.0]);
        assert!((fate.ratio - 0.625).abs() < 1e-9, "{fate:?}");
        assert!(fate.silence_before_s < 1e-9 && (fate.silence_after_s - 0.3).abs() < 1e-9, "{fate:?}");
    }

    #[test]
    fn clients_that_stop_for_good_are_silent_to_the_end() {
        let fate = fate(&[3, 3, 3, 0, 0], 0, 3);
        assert!((fate.silence_after_s - 0.2).abs() < 1e-9 && fate.ratio < 1e-9, "{fate:?}");
    }
}
