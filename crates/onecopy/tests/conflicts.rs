//! Promise: clients in conflicting transactions see what they would see on one PostgreSQL.
//!
//! A scenario is a list of steps of two or three clients. It runs on a plain PostgreSQL and through Onecopy. The answer of
//! each step, the steps that wait and the final rows must be the same. The scenarios run at READ COMMITTED and REPEATABLE
//! READ, with homes that Onecopy chooses and with one home for each client. At SERIALIZABLE the committed transactions must
//! have the effect of some serial order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
#[path = "conflicts/scenarios.rs"]
mod scenarios;

use std::time::{Duration, Instant};

use cluster::plain::Plain;
use cluster::script::{Played, Stage, Trace, Waits, ask, later, open, play, says_the_same, sqlstate, within};
use cluster::{Cluster, connect, run, table};
use scenarios::{FAMILY, HERMITAGE, PAIR, SCENARIOS};

const READ_COMMITTED: &str = "read committed";
const REPEATABLE_READ: &str = "repeatable read";
const SERIALIZABLE: &str = "serializable";
/// How long a transaction is tried again.
const WITHIN: Duration = Duration::from_mins(2);

/// Left to onecopy, away from the anchor, there and at the anchor.
const HOMES: [&[&str]; 3] = [&[], &["replica-2", "replica-3"], &["replica-1", "replica-2"]];
const APART: &[&str] = &["replica-2", "replica-3", "replica-1"];

#[tokio::test]
async fn conflicts_end_as_on_one_postgresql() {
    let (mut cluster, plain) = (Cluster::start(3).await, Plain::start().await);
    let mut different = Vec::new();
    for level in [READ_COMMITTED, REPEATABLE_READ] {
        for (name, steps) in SCENARIOS.into_iter().chain(HERMITAGE) {
            let (stage, homes) = stage(name);
            let theirs = play(plain.port, stage, level, steps, (Waits::Ask, &[])).await;
            for homes in homes {
                let ours = play(cluster.port, stage, level, steps, (Waits::Like(&theirs), homes)).await;
                let mut as_one = ours == theirs;
                if !as_one && !homes.is_empty() {
                    let later = later(&ours);
                    let later = play(plain.port, stage, level, &later, (Waits::Ask, &[])).await;
                    let is_stricter = level == REPEATABLE_READ && is_stricter(&ours.traces, &theirs.traces);
                    as_one = is_stricter || says_the_same(&ours, &later);
                }
                if !as_one {
                    different.push(format!(
                        "=== {name}, {level}, {homes:?}\nonecopy {ours:#?}\nPostgreSQL {theirs:#?}"
                    ));
                }
                cluster.everywhere(stage.after).await;
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    deadlock(&cluster, &plain).await;
    write_skew_is_prevented(&cluster).await;
    serializable_is_serial(&cluster, &plain).await;
    a_counter_counts(&cluster).await;
    let admin = connect("127.0.0.1", cluster.port, "onecopy").await.unwrap();
    let waits: Vec<Vec<String>> = table(&admin, "SHOW CONFLICTS").await;
    let of_t = waits.iter().find(|row| row[0] == "t").expect("statements waited for rows of t");
    assert!(of_t[1].parse::<u64>().unwrap() > 0 && of_t[2].parse::<f64>().unwrap() > 0.0, "{waits:?}");
    cluster.verify().await;
    cluster.stop().await;
}

/// The tables of a scenario, and the homes of its clients.
fn stage(name: &str) -> (Stage, &'static [&'static [&'static str]]) {
    if SCENARIOS.iter().any(|(other, _)| *other == name) { (FAMILY, &HOMES) } else { (PAIR, &[APART]) }
}

/// A transaction failed that would not have.
fn is_stricter(ours: &[Trace], theirs: &[Trace]) -> bool {
    ours.iter().zip(theirs).all(|(our, their)| our == their || sqlstate(&our.answer) == Some("40001"))
}

/// SERIALIZABLE: the answers and effects of the committed transactions are those of some serial order.
async fn serializable_is_serial(cluster: &Cluster, plain: &Plain) {
    let both_begin = |steps: &&[&str]| steps.contains(&"a begin") && steps.contains(&"b begin");
    let all = SCENARIOS.into_iter().chain(HERMITAGE);
    for (name, steps) in all.filter(|(_, steps)| both_begin(steps)) {
        let (stage, homes) = stage(name);
        for homes in homes {
            let ours = play(cluster.port, stage, SERIALIZABLE, steps, (Waits::Watch, homes)).await;
            let committed: Vec<&str> =
                ["a", "b", "c"].into_iter().filter(|who| has_committed(&ours.traces, who)).collect();
            let mut serial = Vec::new();
            for order in orders(&committed) {
                let steps: Vec<&'static str> = order
                    .iter()
                    .flat_map(|who| {
                        in_transaction(steps.iter().copied().filter(|s| s.starts_with(*who)), |s| s)
                    })
                    .collect();
                let theirs = play(plain.port, stage, SERIALIZABLE, &steps, (Waits::Ask, &[])).await;
                let same = committed.iter().all(|who| answers(who, &ours) == answers(who, &theirs));
                serial.push((same && theirs.end == ours.end, theirs));
            }
            let is_serial = serial.iter().any(|(is_same, ..)| *is_same);
            assert!(is_serial, "{name}, {homes:?}: {ours:#?}\nserially {serial:#?}");
        }
    }
}

fn answers(who: &str, played: &Played) -> Vec<String> {
    let own = played.traces.iter().filter(|trace| trace.step.starts_with(who));
    in_transaction(own, |trace| trace.step).into_iter().map(|trace| trace.answer.clone()).collect()
}

/// Up to COMMIT: other transactions may come before the statements after that.
fn in_transaction<T: Copy>(own: impl Iterator<Item = T>, step: impl Fn(T) -> &'static str) -> Vec<T> {
    let mut found = Vec::new();
    for one in own {
        found.push(one);
        if step(one).ends_with("commit") {
            break;
        }
    }
    found
}

/// All orders of up to three.
fn orders<'a>(of: &[&'a str]) -> Vec<Vec<&'a str>> {
    let Some((first, rest)) = of.split_first() else { return vec![Vec::new()] };
    let with = |order: Vec<&'a str>| {
        (0..=order.len()).map(move |at| [&order[..at], &[*first], &order[at..]].concat())
    };
    orders(rest).into_iter().flat_map(with).collect()
}

/// It said COMMIT and no statement before it has failed.
fn has_committed(traces: &[Trace], who: &str) -> bool {
    let own = traces.iter().filter(|trace| trace.step.starts_with(who));
    let own = in_transaction(own, |trace| trace.step);
    own.last().is_some_and(|trace| trace.step.ends_with("commit"))
        && own.iter().all(|trace| sqlstate(&trace.answer).is_none())
}

/// One row, many clients at homes of their own, single statements: no client hears of it.
async fn a_counter_counts(cluster: &Cluster) {
    const CLIENTS: usize = 12;
    const TIMES: usize = 20;
    let client = cluster.client().await;
    run(&client, FAMILY.before).await;
    let tasks = (0..CLIENTS).map(|n| {
        let port = cluster.port;
        tokio::spawn(async move {
            let client = open(port).await;
            run(&client, &format!("set onecopy.home = 'replica-{}'", 1 + n % 3)).await;
            for _ in 0..TIMES {
                run(&client, "update t set v = v + 1 where k = 2").await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let expected = (20 + CLIENTS * TIMES).to_string();
    assert_eq!(table(&client, "select v from t where k = 2").await, [[expected]]);
}

/// Which of two deadlocked transactions loses is a matter of time; that one does and the other commits is not.
async fn deadlock(cluster: &Cluster, plain: &Plain) {
    for port in [plain.port, cluster.port] {
        let (a, b) = (open(port).await, open(port).await);
        run(&a, FAMILY.before).await;
        run(&a, "begin; update t set v = v + 1 where k = 1").await;
        run(&b, "begin; update t set v = v + 1 where k = 2").await;
        let first = ask(&a, "update t set v = v + 1 where k = 2".to_owned());
        let second = ask(&b, "update t set v = v + 1 where k = 1".to_owned());
        let (first, second) = tokio::join!(within(first), within(second));
        let mut outcomes = [&first[..5], &second[..5]];
        outcomes.sort_unstable();
        assert_eq!(outcomes, ["40P01", "done "], "{first} / {second}");
        run(&a, "commit").await;
        run(&b, "commit").await;
        assert_eq!(table(&a, "select sum(v) from t").await, [["62"]]);
    }
}

/// SERIALIZABLE: if two transactions each read rows that the other changes, one fails. With a retry both succeed.
async fn write_skew_is_prevented(cluster: &Cluster) {
    const ROUNDS: usize = 10;
    let client = cluster.client().await;
    for _ in 0..ROUNDS {
        run(&client, FAMILY.before).await;
        run(&client, "update t set v = 1 where k < 3; delete from t where k = 3").await;
        let port = cluster.port;
        // Each takes one away if two are left: one must remain.
        let tasks = [1, 2].map(|k| tokio::spawn(take_one(port, k)));
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(table(&client, "select sum(v) from t").await, [["1"]]);
    }
}

async fn take_one(port: u16, k: i32) {
    let (client, deadline) = (open(port).await, Instant::now() + WITHIN);
    while Instant::now() < deadline {
        let take = format!("update t set v = 0 where k = {k} and (select sum(v) from t) = 2");
        let mut outcome = client.batch_execute("begin isolation level serializable").await;
        if outcome.is_ok() {
            outcome = client.batch_execute("select sum(v) from t").await;
        }
        if outcome.is_ok() {
            outcome = client.batch_execute(&take).await;
        }
        if outcome.is_ok() {
            outcome = client.batch_execute("commit").await;
        }
        match outcome {
            Ok(()) => return,
            Err(error) => {
                assert_eq!(
                    error.code().map(tokio_postgres::error::SqlState::code),
                    Some("40001"),
                    "{error:?}"
                );
                run(&client, "rollback").await;
            }
        }
    }
    panic!("it never gets through");
}
