//! What the order of stamps adds to the time of a single transaction: figure 16 of preventive replication.
//!
//! One client calls a procedure that takes t without using a processor. A transaction is ordered Max + epsilon after its stamp.
//! If it starts on its arrival, it waits only for the rest of that, max(0, Max + epsilon - t); if it starts when it is ordered,
//! for all of it, whatever t is.

use std::time::Duration;

use serde::Serialize;
use testbed::fault::Fault;

use super::contestant::{Contestant, Environment};
use super::result::{Quantiles, Verdict};
use crate::drive::{self, Course, Isolation, Ledger, Pace};
use crate::judge;
use crate::load::{open, runtime};
use crate::nap::Nap;
use crate::plan::stamped::{Delay, Start};
use crate::quota::Limit;

/// How far a delay may be off.
const OFF_MAX_MS: f64 = 20.0;
/// Short calls of this many clients warm all servers for this long.
const WARMERS: usize = 16;
const WARMED: Duration = Duration::from_secs(3);

/// The results of calls of several times.
#[derive(Debug, Serialize)]
pub(crate) struct Delays {
    pub(crate) contestant: String,
    pub(crate) start: &'static str,
    pub(crate) window_ms: u32,
    pub(crate) points: Vec<Delayed>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) wrong: Vec<String>,
}

/// Calls of one time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Delayed {
    /// The time that they take by themselves.
    pub(crate) call_ms: u32,
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) response_ms: Option<Quantiles>,
    /// The delay by the law.
    pub(crate) expected_ms: f64,
}

impl Delayed {
    /// The median of what was added. Not a number if no call succeeded.
    pub(crate) fn delay_ms(&self) -> f64 {
        self.response_ms.map_or(f64::NAN, |times| times.p50) - f64::from(self.call_ms)
    }
}

/// Calls of each time, one after the other.
pub(super) fn run(
    delay: &Delay,
    seed: u64,
    limit: Option<Limit>,
    contestant: &Contestant,
    environment: &Environment<'_>,
) -> Result<Delays, Fault> {
    let called = runtime()?.block_on(called(delay, seed, limit, contestant, environment));
    contestant.limit(None)?;
    let Called { points, mut wrong } = called?;
    wrong.extend(contestant.differences(environment)?);
    Ok(Delays {
        contestant: contestant.name.clone(),
        start: delay.start.word(),
        window_ms: delay.window_ms,
        verdicts: verdicts(&points),
        points,
        wrong,
    })
}

/// The observations, and what is wrong with them.
struct Called {
    points: Vec<Delayed>,
    wrong: Vec<String>,
}

async fn called(
    delay: &Delay,
    seed: u64,
    limit: Option<Limit>,
    contestant: &Contestant,
    environment: &Environment<'_>,
) -> Result<Called, Fault> {
    let client = open(&contestant.endpoints.main).await?;
    let before = judge::counts(&client, &Nap { ms: 0 }).await?;
    let (mut ledger, mut points) = (Ledger::default(), Vec::new());
    let course = |clients, length| {
        let (pace, warm_up, isolation) = (Pace::Busy, Duration::ZERO, Isolation::default());
        Course { clients, pace, warm_up, length, seed, isolation }
    };
    let drive = |ms: u32, course: Course| async move {
        let nap = Nap { ms: i32::try_from(ms).unwrap_or(i32::MAX) };
        drive::drive(&nap, &contestant.endpoints, &course, environment.interrupt, &|_, _| {}).await
    };
    ledger += &drive(0, course(WARMERS, WARMED)).await?.ledger;
    contestant.limit(limit)?;
    for call_ms in delay.times_ms.iter().copied() {
        let expected_ms = law(delay.start, delay.window_ms, call_ms);
        let each = Duration::from_millis(u64::from(call_ms)) + Duration::from_secs_f64(expected_ms / 1e3);
        let outcome = drive(call_ms, course(1, each * delay.calls)).await?;
        ledger += &outcome.ledger;
        let tally = &outcome.tally;
        let response_ms = (tally.done() > 0).then(|| Quantiles::of(&tally.response_us()));
        let (calls, failed) = (tally.done(), tally.failed());
        points.push(Delayed { call_ms, calls, failed, response_ms, expected_ms });
    }
    let wrong = judge::wrong(&client, &Nap { ms: 0 }, &before, &ledger).await?;
    Ok(Called { points, wrong })
}

/// What the order adds to a call of that time, in milliseconds.
fn law(start: Start, window_ms: u32, call_ms: u32) -> f64 {
    match start {
        Start::OnArrival => f64::from(window_ms.saturating_sub(call_ms)),
        Start::Ordered => f64::from(window_ms),
    }
}

fn verdicts(points: &[Delayed]) -> Vec<Verdict> {
    let verdict = |point: &Delayed| Verdict {
        claim: format!(
            "calls of {} ms: delay within {OFF_MAX_MS:.0} ms of {:.0}",
            point.call_ms, point.expected_ms
        ),
        measured: format!("{:.1} ms", point.delay_ms()),
        is_met: (point.delay_ms() - point.expected_ms).abs() <= OFF_MAX_MS,
    };
    points.iter().map(verdict).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Calls of 50 ms that took so long.
    pub(in crate::run) fn delayed(p50: f64) -> Delayed {
        let times = Quantiles { p50, p90: p50, p99: p50, max: p50 };
        Delayed { call_ms: 50, calls: 4, failed: 0, response_ms: Some(times), expected_ms: 150.0 }
    }

    #[test]
    fn the_law_depends_on_the_start() {
        let law = |start, call_ms| law(start, 200, call_ms).round() as i64;
        assert_eq!([10, 200, 400].map(|ms| law(Start::OnArrival, ms)), [190, 0, 0]);
        assert_eq!([10, 200, 400].map(|ms| law(Start::Ordered, ms)), [200; 3]);
    }

    #[test]
    fn a_delay_can_be_too_long_too_short_or_missing() {
        let none = Delayed { response_ms: None, ..delayed(0.0) };
        let points = [delayed(219.0), delayed(181.0), delayed(221.0), delayed(179.0), none];
        let met: Vec<bool> = verdicts(&points).iter().map(|verdict| verdict.is_met).collect();
        assert_eq!(met, [true, true, false, false, false]);
    }
}
