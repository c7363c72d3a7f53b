//! The loss of a replica while clients go on: throughput and response times in pieces of 100 ms.
//!
//! The experiment of the conflict-aware scheduling paper's companion (fail-over under TPC-W with 300 emulated browsers,
//! `seeds/`). The replica's server is killed at once, and cannot be started for a while, like one whose machine is off; then
//! `onecopy up` starts it again, and it comes back when it has caught up. Afterwards everything is checked as after any run.

use std::cell::Cell;
use std::future::pending;
use std::time::Duration;

use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use tokio::time::{Instant, sleep, sleep_until};

use super::contestant::{Contestant, Environment, config};
use super::measure::Reading;
use super::result::{Loss, Phase, Piece};
use crate::drive::{self, Course, Outcome, SLICE};
use crate::judge;
use crate::load::{open, runtime};
use crate::plan::Failure;

/// Between two looks at the replicas' states.
const LOOK: Duration = Duration::from_millis(100);
/// How long a replica may take to come back after the load has ended.
const RETURN_MAX: Duration = Duration::from_mins(1);

/// Kills a replica under load.
pub(crate) fn run(
    failure: &Failure,
    seed: u64,
    contestant: &Contestant,
    environment: &Environment<'_>,
) -> Result<Loss, Fault> {
    let workload = failure.course.which()?.workload(&failure.course.size());
    let course = Course {
        clients: failure.course.clients(1),
        pace: failure.course.pace(1),
        warm_up: Duration::ZERO,
        length: Duration::from_secs(u64::from(failure.seconds)),
        seed,
        isolation: failure.course.isolation()?,
    };
    let runtime = runtime()?;
    let (outcome, seen) = (Cell::new(None), Seen::default());
    let mut wrong = runtime.block_on(async {
        let client = open(&contestant.endpoints.main).await?;
        let before = judge::counts(&client, &*workload).await?;
        let watch = |at: Duration, _| {
            if seen.begin.get().is_none() {
                seen.begin.set(Some(Instant::now() - at));
            }
        };
        let load = drive::drive(&*workload, &contestant.endpoints, &course, environment.interrupt, &watch);
        tokio::select! {
            ended = load => outcome.set(Some(ended?)),
            fault = disturb(failure, contestant, &seen) => return Err(fault),
        }
        let ended: Outcome = outcome.take().expect("it was set just now");
        settled(contestant).await?;
        let wrong = judge::wrong(&client, &*workload, &before, &ended.ledger).await?;
        outcome.set(Some(ended));
        Ok(wrong)
    })?;
    wrong.extend(contestant.differences(environment)?);
    let outcome = outcome.take().expect("the load has ended");
    let killed_s = f64::from(failure.after_s);
    let timeline = timeline(&outcome, course.length);
    Ok(Loss {
        load: workload.name(),
        contestant: contestant.name.clone(),
        clients: course.clients,
        killed: failure.killed,
        killed_s,
        away_s: f64::from(failure.away_s),
        back_s: seen.back_s.get(),
        failed: outcome.tally.failed(),
        driver_cores: outcome.driver,
        strangers: seen.strangers.get(),
        silence_s: silence(timeline.iter().filter(|piece| piece.at_s >= killed_s).map(|piece| piece.done)),
        phases: phases(&timeline, killed_s, seen.back_s.get()),
        timeline,
        wrong,
    })
}

/// The observations beside those of the clients.
#[derive(Default)]
struct Seen {
    /// When clients began to work, after all of them had connected.
    begin: Cell<Option<Instant>>,
    /// How much of the machine strangers used before the kill.
    strangers: Cell<f64>,
    /// When the replica served again.
    back_s: Cell<Option<f64>>,
}

/// Kills the replica when it is time, and tells when it is back; ends only with a fault.
async fn disturb(failure: &Failure, contestant: &Contestant, seen: &Seen) -> Fault {
    let begin = loop {
        match seen.begin.get() {
            Some(begin) => break begin,
            None => sleep(LOOK).await,
        }
    };
    let earlier = Reading::take(contestant);
    sleep_until(begin + Duration::from_secs(u64::from(failure.after_s))).await;
    match earlier.and_then(|earlier| Ok(Reading::take(contestant)?.strangers(&earlier))) {
        Ok(share) => seen.strangers.set(share),
        Err(fault) => return fault,
    }
    let Some(absence) = contestant.kill(u64::from(failure.killed)) else {
        return Fault::Missing("the replica that was to be killed does not run".into());
    };
    let returns = begin + Duration::from_secs(u64::from(failure.after_s + failure.away_s));
    let mut absence = Some(absence);
    let mut is_gone = false;
    while seen.back_s.get().is_none() {
        sleep(LOOK).await;
        if Instant::now() >= returns {
            drop(absence.take());
        }
        match states(contestant).await {
            Ok(states) => {
                let is_up = states.get(usize::from(failure.killed) - 1).is_some_and(|state| state == "up");
                is_gone |= !is_up;
                if is_gone && is_up {
                    seen.back_s.set(Some(begin.elapsed().as_secs_f64()));
                }
            }
            Err(fault) => return fault,
        }
    }
    pending().await
}

/// Waits a limited time until all replicas serve. The checks that follow find one that does not.
pub(crate) async fn settled(contestant: &Contestant) -> Result<(), Fault> {
    let end = Instant::now() + RETURN_MAX;
    while Instant::now() < end && states(contestant).await?.iter().any(|state| state != "up") {
        sleep(LOOK).await;
    }
    Ok(())
}

/// The state of each replica as onecopy shows it.
async fn states(contestant: &Contestant) -> Result<Vec<String>, Fault> {
    let port = contestant.endpoints.main.get_ports().first().copied().unwrap_or_default();
    let client = open(&config(&Endpoint { port, database: "onecopy", options: None })).await?;
    let said = |error: tokio_postgres::Error| Fault::Database(format!("SHOW REPLICAS: {error}"));
    let messages = client.simple_query("SHOW REPLICAS").await.map_err(said)?;
    let state = |message: &tokio_postgres::SimpleQueryMessage| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(3).map(str::to_owned),
        _ => None,
    };
    Ok(messages.iter().filter_map(state).collect())
}

fn timeline(outcome: &Outcome, length: Duration) -> Vec<Piece> {
    let piece = |(number, slice): (usize, &drive::Slice)| Piece {
        at_s: number as f64 * SLICE.as_secs_f64(),
        done: slice.done,
        failed: slice.failed,
        mean_ms: slice.sum_us as f64 / slice.done.max(1) as f64 / 1e3,
        max_ms: slice.longest_us as f64 / 1e3,
    };
    // What ends after the end is the rest of a piece.
    let pieces = outcome.tally.timeline.iter().enumerate().map(piece);
    pieces.filter(|piece| piece.at_s < length.as_secs_f64()).collect()
}

/// How it went before the kill, while the replica was away, and when it was back.
fn phases(timeline: &[Piece], killed_s: f64, back_s: Option<f64>) -> Vec<Phase> {
    let end_s = timeline.last().map_or(0.0, |piece| piece.at_s + SLICE.as_secs_f64());
    // At first clients connect and caches are empty.
    let before = ("before", killed_s / 2.0, killed_s);
    let away = ("away", killed_s, back_s.unwrap_or(end_s));
    let after = back_s.map(|back_s| ("back", back_s, end_s));
    let phase = |(name, from_s, to_s): (&str, f64, f64)| {
        let pieces = || timeline.iter().filter(move |piece| piece.at_s >= from_s && piece.at_s < to_s);
        let done: u64 = pieces().map(|piece| piece.done).sum();
        Phase {
            name: name.to_owned(),
            from_s,
            to_s,
            throughput: done as f64 / (pieces().count().max(1) as f64 * SLICE.as_secs_f64()),
            failed: pieces().map(|piece| piece.failed).sum(),
            mean_ms: pieces().map(|piece| piece.mean_ms * piece.done as f64).sum::<f64>()
                / done.max(1) as f64,
            max_ms: pieces().map(|piece| piece.max_ms).fold(0.0, f64::max),
        }
    };
    [before, away].into_iter().chain(after).map(phase).collect()
}

/// The longest time in which nothing succeeded, of consecutive pieces of a timeline.
pub(crate) fn silence(done: impl Iterator<Item = u64>) -> f64 {
    let (mut longest, mut now) = (0.0_f64, 0.0);
    for done in done {
        now = if done == 0 { now + SLICE.as_secs_f64() } else { 0.0 };
        longest = longest.max(now);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece((at, done): (usize, u64)) -> Piece {
        Piece { at_s: at as f64 / 10.0, done, failed: 1, mean_ms: done as f64, max_ms: 9.0 }
    }

    #[test]
    fn the_parts_of_a_loss_have_rates_of_their_own() {
        let pieces: Vec<Piece> = [9, 9, 4, 4, 1, 3, 6, 6].into_iter().enumerate().map(piece).collect();
        let told = |back_s| -> Vec<String> {
            let phases = phases(&pieces, 0.4, back_s).into_iter();
            phases
                .map(|it| format!("{} {:.0} {} {:.1}", it.name, it.throughput, it.failed, it.mean_ms))
                .collect()
        };
        assert_eq!(told(Some(0.6)), ["before 40 2 4.0", "away 20 2 2.5", "back 60 2 6.0"]);
        assert_eq!(told(None), ["before 40 2 4.0", "away 40 4 5.1"]);
    }

    #[test]
    fn the_longest_silence_is_one_without_any_success() {
        assert!((silence([5, 0, 0, 5, 0, 5].into_iter()) - 0.2).abs() < 1e-9);
    }
}
