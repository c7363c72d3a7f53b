//! A load that grows and falls, on a cluster whose replicas come and go with it.
//!
//! The load is an open loop, so it does not follow the system: each phase has a rate of its own. Meanwhile the states of
//! the replicas are read every 100 ms. Three things are judged: how long the number of serving replicas takes to reach
//! the one that it keeps to the end of a phase, whether any interaction fails, and what the servers cost beside as many
//! as there may be, all the time. Afterwards parked replicas are woken, and everything is checked as after any run.

use std::cell::RefCell;
use std::time::Duration;

use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::contestant::{Contestant, Environment, config};
use super::result::{Quantiles, Size, Step, Verdict};
use crate::drive::{self, Course, Ledger, Pace};
use crate::judge;
use crate::load::{open, runtime};
use crate::plan::Wave;

/// Between two looks at the replicas' states.
const LOOK: Duration = Duration::from_millis(100);
/// The time in which replicas should have followed the load.
const FOLLOWED_MAX_S: f64 = 30.0;
/// The cost should be below this, as a part of the cost of all replicas all the time.
const COST_MAX: f64 = 0.7;

/// Runs the phases one after the other.
pub(crate) fn run(
    wave: &Wave,
    seed: u64,
    contestant: &Contestant,
    environment: &Environment<'_>,
) -> Result<Size, Fault> {
    let workload = wave.course.which()?.workload(&wave.course.size());
    let (mut steps, mut ledger) = (Vec::new(), Ledger::default());
    let (mut wrong, cost) = runtime()?.block_on(async {
        let client = open(&contestant.endpoints.main).await?;
        let before = judge::counts(&client, &*workload).await?;
        let admin = admin(contestant).await?;
        let (begun, paid) = (Instant::now(), replica_hours(&admin).await?);
        for (number, phase) in (0..).zip(&wave.phases) {
            let course = Course {
                clients: wave.course.clients(1),
                pace: Pace::Rate(wave.rate * phase.factor),
                warm_up: Duration::ZERO,
                length: Duration::from_secs(u64::from(phase.seconds)),
                seed: seed.wrapping_add(number),
                isolation: wave.course.isolation()?,
            };
            let sizes = RefCell::new(Vec::new());
            let load =
                drive::drive(&*workload, &contestant.endpoints, &course, environment.interrupt, &|_, _| {});
            let outcome = tokio::select! {
                ended = load => ended?,
                fault = observe(&admin, &sizes) => return Err(fault),
            };
            ledger += &outcome.ledger;
            steps.push(step(phase.factor, course.length, &outcome, &sizes.into_inner()));
        }
        let hours = begun.elapsed().as_secs_f64() / 3_600.0;
        let cost = (replica_hours(&admin).await? - paid) / (hours * f64::from(wave.most));
        wake_all(&admin).await?;
        Ok((judge::wrong(&client, &*workload, &before, &ledger).await?, cost))
    })?;
    wrong.extend(contestant.differences(environment)?);
    let verdicts = verdicts(&steps, cost);
    Ok(Size {
        load: workload.name(),
        contestant: contestant.name.clone(),
        rate: wave.rate,
        most: wave.most,
        cost,
        steps,
        verdicts,
        wrong,
    })
}

/// Notes the number of replicas that serve, again and again. Ends only with a fault.
async fn observe(admin: &Client, sizes: &RefCell<Vec<(f64, usize)>>) -> Fault {
    let begun = Instant::now();
    loop {
        match states(admin).await {
            Ok(states) => {
                let serving = states.iter().filter(|(_, state)| state == "up").count();
                sizes.borrow_mut().push((begun.elapsed().as_secs_f64(), serving));
            }
            Err(fault) => return fault,
        }
        sleep(LOOK).await;
    }
}

fn step(factor: f64, length: Duration, outcome: &drive::Outcome, sizes: &[(f64, usize)]) -> Step {
    let (replicas, followed_s) = followed(sizes);
    let tally = &outcome.tally;
    let mut all = None;
    for kind in tally.kinds.values() {
        match &mut all {
            None => all = Some(kind.response_us.clone()),
            // All have the same bounds, so adding cannot fail; what could not be added is not in the quantiles.
            Some(all) => drop(all.add(&kind.response_us)),
        }
    }
    let done: u64 = tally.kinds.values().map(drive::Kind::done).sum();
    Step {
        factor,
        seconds: length.as_secs_f64(),
        throughput: done as f64 / length.as_secs_f64(),
        failed: tally.failed(),
        unsent: tally.unsent,
        response_ms: all.as_ref().map(Quantiles::of),
        replicas,
        followed_s,
        sizes: changes(sizes),
    }
}

/// The number of replicas at the end, and since when the number was within one of that without a break: with a load between two
/// numbers, the last replica comes and goes.
fn followed(sizes: &[(f64, usize)]) -> (usize, f64) {
    let Some((_, last)) = sizes.last() else { return (0, 0.0) };
    let since = sizes.iter().rev().take_while(|(_, size)| size.abs_diff(*last) <= 1).last();
    let begins = sizes.first().is_some_and(|first| since == Some(first));
    (*last, since.filter(|_| !begins).map_or(0.0, |(at, _)| *at))
}

/// The first look, and those with another number than the one before.
fn changes(sizes: &[(f64, usize)]) -> Vec<(f64, usize)> {
    let mut changes: Vec<(f64, usize)> = Vec::new();
    for (at, size) in sizes {
        if changes.last().is_none_or(|(_, last)| last != size) {
            changes.push((*at, *size));
        }
    }
    changes
}

fn verdicts(steps: &[Step], cost: f64) -> Vec<Verdict> {
    let slowest = steps.iter().map(|step| step.followed_s).fold(0.0, f64::max);
    let failed: u64 = steps.iter().map(|step| step.failed).sum();
    let grows = steps.windows(2).all(|pair| match pair[0].factor.total_cmp(&pair[1].factor) {
        std::cmp::Ordering::Less => pair[0].replicas < pair[1].replicas,
        std::cmp::Ordering::Greater => pair[0].replicas > pair[1].replicas,
        std::cmp::Ordering::Equal => true,
    });
    let verdict =
        |claim: &str, measured: String, is_met: bool| Verdict { claim: claim.to_owned(), measured, is_met };
    let numbers: Vec<String> = steps.iter().map(|step| step.replicas.to_string()).collect();
    vec![
        verdict("more load has more replicas, less load fewer", numbers.join(", "), grows),
        verdict("replicas follow within 30 s", format!("{slowest:.1} s"), slowest <= FOLLOWED_MAX_S),
        verdict("no interaction fails", failed.to_string(), failed == 0),
        verdict("cost below 0.7 of all replicas all the time", format!("{cost:.2}"), cost < COST_MAX),
    ]
}

pub(super) async fn admin(contestant: &Contestant) -> Result<Client, Fault> {
    let port = contestant.endpoints.main.get_ports().first().copied().unwrap_or_default();
    open(&config(&Endpoint { port, database: "onecopy", options: None })).await
}

pub(super) async fn rows(admin: &Client, sql: &str) -> Result<Vec<Vec<String>>, Fault> {
    let said = |error: tokio_postgres::Error| Fault::Database(format!("{sql}: {error}"));
    let messages = admin.simple_query(sql).await.map_err(said)?;
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    };
    Ok(messages.iter().filter_map(row).collect())
}

/// The name and the state of each replica.
async fn states(admin: &Client) -> Result<Vec<(String, String)>, Fault> {
    let shown = rows(admin, "SHOW REPLICAS").await?;
    Ok(shown.into_iter().map(|row| (row[0].clone(), row[3].clone())).collect())
}

/// Those since the start of the node.
async fn replica_hours(admin: &Client) -> Result<f64, Fault> {
    let shown = rows(admin, "SHOW COST").await?;
    let hours = shown.first().and_then(|row| row[2].parse().ok());
    hours.ok_or_else(|| Fault::Database("SHOW COST shows no replica_hours".into()))
}

async fn wake_all(admin: &Client) -> Result<(), Fault> {
    for (name, state) in states(admin).await? {
        if state == "parked" {
            rows(admin, &format!("WAKE REPLICA {name}")).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_have_followed_when_their_number_stays() {
        let sizes = [(0.0, 1), (3.0, 2), (6.0, 3), (7.0, 2), (9.0, 3), (12.0, 3)];
        assert_eq!(followed(&sizes), (3, 3.0), "one comes and goes");
        assert_eq!(followed(&[(0.0, 1), (4.0, 3), (6.0, 1), (8.0, 3)]), (3, 8.0), "two do not");
        assert_eq!(followed(&[(0.1, 2), (5.0, 2)]), (2, 0.0), "from the beginning");
        assert_eq!(followed(&[]), (0, 0.0));
        assert_eq!(changes(&sizes), [(0.0, 1), (3.0, 2), (6.0, 3), (7.0, 2), (9.0, 3)]);
    }

    #[test]
    fn each_claim_can_be_missed() {
        let step = |factor, replicas, followed_s, failed| Step {
            factor,
            seconds: 10.0,
            throughput: 1.0,
            failed,
            unsent: 0,
            response_ms: None,
            replicas,
            followed_s,
            sizes: Vec::new(),
        };
        let met = |steps: &[Step], cost| -> Vec<bool> {
            verdicts(steps, cost).iter().map(|verdict| verdict.is_met).collect()
        };
        let good = [step(1.0, 1, 0.0, 0), step(4.0, 3, 20.0, 0), step(1.0, 1, 25.0, 0)];
        assert_eq!(met(&good, 0.5), [true; 4]);
        let bad = [step(1.0, 1, 0.0, 0), step(4.0, 3, 20.0, 1), step(1.0, 3, 31.0, 0)];
        assert_eq!(met(&bad, 0.7), [false; 4]);
    }
}
