//! Promise: two sessions with homes at different replicas see what they would see on one PostgreSQL: cascades, references,
//! unique values, deferred checks, savepoints, locks, time-outs, cancels, schema changes, large transactions, deadlocks.
//!
//! Most cases are scripts that also run on a plain PostgreSQL ([`scenarios`]). After each, all replicas are identical.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "across_homes/afterwards.rs"]
mod afterwards;
mod cluster;
#[path = "across_homes/losers.rs"]
mod losers;
#[path = "across_homes/many_rows.rs"]
mod many_rows;
#[path = "across_homes/pipelines.rs"]
mod pipelines;
#[path = "across_homes/scenarios.rs"]
mod scenarios;
#[path = "across_homes/schemas.rs"]
mod schemas;
#[path = "across_homes/undone.rs"]
mod undone;
#[path = "across_homes/waiting.rs"]
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::plain::Plain;
use cluster::script::{Answer, Played, Waits, ask, later, open, play, says_the_same, sqlstate, within};
use cluster::{Cluster, run, value};
use scenarios::{Closeness, SCHEMA, TABLES};
use tokio_postgres::Client;

const LEVEL: &str = "read committed";
/// Each client at a replica of its own; the anchor is the first of the second list.
const HOMES: [&[&str]; 2] =
    [&["replica-2", "replica-3", "replica-1"], &["replica-1", "replica-2", "replica-3"]];
/// Large transactions begin here.
const SPILL_BYTES: &str = "4000";
/// A statement without an answer for this long counts as waiting.
const WAITS_FOR: Duration = Duration::from_millis(120);
/// The deadline of an expected event.
const PATIENCE: Duration = Duration::from_mins(2);

#[tokio::test]
async fn two_homes_are_like_one_server() {
    let environment = [("ONECOPY_TEST_SPILL_BYTES", SPILL_BYTES)];
    let (mut cluster, plain) = (Cluster::start_with(3, &environment).await, Plain::start().await);
    run(&cluster.client().await, SCHEMA).await;
    run(&plain.client().await, SCHEMA).await;
    let mut different = Vec::new();
    for (name, closeness, steps) in scenarios::all() {
        let theirs = play(plain.port, TABLES, LEVEL, steps, (Waits::Ask, &[])).await;
        for homes in HOMES {
            let waits = if *closeness == Closeness::Same { Waits::Like(&theirs) } else { Waits::Watch };
            let ours = play(cluster.port, TABLES, LEVEL, steps, (waits, homes)).await;
            if !is_close(*closeness, &ours, &theirs, &plain).await {
                different.push(format!("=== {name}, {homes:?}\n{}", side_by_side(&ours, &theirs)));
            }
            cluster.everywhere(TABLES.after).await;
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    waiting::limits_of_waiting(&cluster).await;
    waiting::waits_are_shown(&cluster).await;
    groups_are_fresh(&cluster).await;
    a_look_ahead(&cluster).await;
    queues_skip_what_is_locked(&cluster).await;
    waiting::a_client_that_leaves_is_not_waited_for(&cluster).await;
    schemas::wait_and_are_waited_for(&cluster).await;
    schemas::are_known_to_statements_that_waited(&cluster).await;
    afterwards::rows_are_shown_once(&cluster).await;
    afterwards::what_was_seen_is_not_lost_against(&cluster).await;
    undone::later_rows_are_later(&cluster).await;
    undone::later_rows_are_kept(&cluster).await;
    pipelines::wait_for_their_own_rows(&cluster).await;
    pipelines::are_run_again_together(&cluster).await;
    many_rows::large_transactions(&cluster).await;
    many_rows::long_transactions(&cluster).await;
    many_rows::many_new_rows(&cluster).await;
    many_rows::copies_wait(&cluster).await;
    many_rows::surprises(&cluster).await;
    losers::deadlocks(&cluster).await;
    losers::errors_name_the_key_and_the_rival(&cluster).await;
    losers::a_ring_through_a_refresh(&cluster).await;
    waiting::waits_end_at_once(&cluster).await;
    waiting::transactions_that_wait_most_stay_at_the_anchor(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// Waits until SHOW TRANSACTIONS has at least `count` transactions that wait for another home; returns its rows.
async fn until_waiting(admin: &Client, count: usize) -> Vec<BTreeMap<String, String>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = cluster::rows(admin, "SHOW TRANSACTIONS").await;
        if shown.iter().filter(|row| row["state"] == "waiting").count() >= count {
            return shown;
        }
        assert!(Instant::now() < deadline, "not {count} that wait: {shown:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn admin_of(cluster: &Cluster) -> Client {
    cluster.try_client("onecopy").await.unwrap()
}

/// Compares with one server, or with one server where a waiting statement is sent when its wait ends.
async fn is_close(closeness: Closeness, ours: &Played, theirs: &Played, plain: &Plain) -> bool {
    let order = match closeness {
        Closeness::Same => return ours == theirs,
        Closeness::Loses if ours.traces.iter().any(|trace| sqlstate(&trace.answer) == Some("40001")) => {
            return true;
        }
        Closeness::AsIf(order) => order.to_vec(),
        Closeness::Loses | Closeness::Waits => later(ours),
    };
    let other = play(plain.port, TABLES, LEVEL, &order, (Waits::Ask, &[])).await;
    says_the_same(ours, theirs) || says_the_same(ours, &other)
}

fn side_by_side(ours: &Played, theirs: &Played) -> String {
    let mut text = String::new();
    for (our, their) in ours.traces.iter().zip(&theirs.traces) {
        let (waits, waited) =
            (if our.waited { "waits, " } else { "" }, if their.waited { "waits, " } else { "" });
        text += &format!("{}\n    {waits}{}\n    {waited}{}\n", our.step, our.answer, their.answer);
    }
    if ours.end != theirs.end {
        text += &format!("{:?}\n{:?}\n", ours.end, theirs.end);
    }
    text
}

/// A client at a home of its own.
async fn at(cluster: &Cluster, home: usize) -> Arc<Client> {
    let client = open(cluster.port).await;
    run(&client, &format!("set onecopy.home = 'replica-{home}'")).await;
    client
}

/// The rows as at first, and a transaction at one home that holds the first row of `q`.
async fn holder(cluster: &Cluster, home: usize) -> Arc<Client> {
    run(&cluster.client().await, TABLES.before).await;
    let client = at(cluster, home).await;
    run(&client, "begin; update q set v = v + 1 where k = 1").await;
    client
}

/// Sends a statement that has to wait.
async fn waits(client: &Arc<Client>, statement: &str) -> Answer {
    let answer = ask(client, statement.to_owned());
    tokio::time::sleep(WAITS_FOR).await;
    assert!(!answer.is_finished(), "`{statement}` does not wait: {}", answer.await.unwrap());
    answer
}

/// A reader of a group of rows sees the commits that another home has just acknowledged in it.
async fn groups_are_fresh(cluster: &Cluster) {
    run(&cluster.client().await, TABLES.before).await;
    let (writer, reader) = (at(cluster, 2).await, open(cluster.port).await);
    for n in 1..=100 {
        run(&writer, &format!("insert into lines values (9, {n}, 77)")).await;
        for group in ["c = 77", "a = 9"] {
            let seen = value(&reader, &format!("select count(*) from lines where {group}")).await;
            assert_eq!(seen, n.to_string(), "{group}");
        }
    }
}

/// A transaction that begins with a read goes to the home whose transactions write the rows that it usually writes next.
async fn a_look_ahead(cluster: &Cluster) {
    let client = open(cluster.port).await;
    run(&client, "set onecopy.home = 'any'").await;
    for k in (1..=5).chain(1..=5) {
        run(&client, "begin").await;
        run(&client, &format!("select v from p where k = {k}")).await;
        run(&client, &format!("update q set v = v + 1 where k = {k}")).await;
        run(&client, "commit").await;
    }
    let admin = admin_of(cluster).await;
    for home in [2, 3, 1, 3, 2] {
        let holder = holder(cluster, home).await;
        run(&client, "begin").await;
        run(&client, "select v from p where k = 1").await;
        let shown = cluster::rows(&admin, "SHOW TRANSACTIONS").await;
        let homes: Vec<&str> = shown.iter().map(|row| &*row["home"]).collect();
        assert_eq!(homes, vec![format!("replica-{home}"); 2], "{shown:?}");
        run(&client, "rollback").await;
        run(&holder, "rollback").await;
    }
}

/// Left to onecopy, transactions that take the next free row of a table run at one home, whose server skips for them.
async fn queues_skip_what_is_locked(cluster: &Cluster) {
    const NEXT: &str = "select k from q order by k limit 1 for update skip locked";
    run(&cluster.client().await, TABLES.before).await;
    let clients = [open(cluster.port).await, open(cluster.port).await, open(cluster.port).await];
    for (n, client) in clients.iter().enumerate() {
        run(client, "set onecopy.home = 'any'; begin").await;
        let taken = within(ask(client, NEXT.to_owned())).await;
        assert_eq!(taken, format!("{}; done 1", n + 1));
    }
    for client in clients {
        run(&client, "rollback").await;
    }
}
