//! Promise: what one PostgreSQL does for two sessions, Onecopy does for two whose transactions have their homes at
//! different replicas: cascades, references, unique values, deferred checks, savepoints, locks of all kinds, time-outs,
//! cancels, schema changes, large transactions, deadlocks.
//!
//! Most of it are scripts, compared with a PostgreSQL beside ([`scenarios`]). At the end of each all replicas are alike.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "across_homes/afterwards.rs"]
mod afterwards;
mod cluster;
#[path = "across_homes/pipelines.rs"]
mod pipelines;
#[path = "across_homes/scenarios.rs"]
mod scenarios;
#[path = "across_homes/schemas.rs"]
mod schemas;
#[path = "across_homes/undone.rs"]
mod undone;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::plain::Plain;
use cluster::script::{Answer, Played, Waits, ask, later, open, play, says_the_same, sqlstate, within};
use cluster::{Cluster, run, table, value};
use scenarios::{Closeness, SCENARIOS, SCHEMA, TABLES};
use tokio_postgres::{Client, NoTls};

const LEVEL: &str = "read committed";
/// Each client at a replica of its own; the anchor is the first of the second list.
const HOMES: [&[&str]; 2] =
    [&["replica-2", "replica-3", "replica-1"], &["replica-1", "replica-2", "replica-3"]];
/// Large transactions begin here.
const SPILL_BYTES: &str = "4000";
/// That something waits is believed after this long.
const WAITS_FOR: Duration = Duration::from_millis(120);
/// How long is waited for what has to come.
const PATIENCE: Duration = Duration::from_mins(2);

#[tokio::test]
async fn two_homes_are_like_one_server() {
    let environment = [("ONECOPY_TEST_SPILL_BYTES", SPILL_BYTES)];
    let (mut cluster, plain) = (Cluster::start_with(3, &environment).await, Plain::start().await);
    run(&cluster.client().await, SCHEMA).await;
    run(&plain.client().await, SCHEMA).await;
    let mut different = Vec::new();
    for (name, closeness, steps) in SCENARIOS {
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
    limits_of_waiting(&cluster).await;
    waits_are_shown(&cluster).await;
    groups_are_fresh(&cluster).await;
    a_look_ahead(&cluster).await;
    queues_skip_what_is_locked(&cluster).await;
    who_leaves_is_not_waited_for(&cluster).await;
    schema_changes(&cluster).await;
    schemas::are_known_to_who_waited(&cluster).await;
    afterwards::rows_are_shown_once(&cluster).await;
    afterwards::what_was_seen_is_not_lost_against(&cluster).await;
    undone::later_rows_are_later(&cluster).await;
    undone::later_rows_are_kept(&cluster).await;
    pipelines::wait_for_their_own_rows(&cluster).await;
    pipelines::are_run_again_together(&cluster).await;
    large_transactions(&cluster).await;
    long_transactions(&cluster).await;
    many_new_rows(&cluster).await;
    copies_wait(&cluster).await;
    surprises(&cluster).await;
    deadlocks(&cluster).await;
    errors_name_the_key_and_the_rival(&cluster).await;
    a_ring_through_a_refresh(&cluster).await;
    waits_end_at_once(&cluster).await;
    who_waits_most_stays_at_the_anchor(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// Two kinds of transactions, so that what is learned of one says nothing of the other.
const STRAINED: &str = "update strained set v = v + 1 where k = 1";
const STRAINED_MOST: &str = "update strained set v = v - 1 where k = 1";

/// Waits until at least so many transactions are shown as waiting for another home; what is shown then.
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

/// Waits for another home for so long; how long it took from the end of that to the answer.
async fn waits_for([holder, waiter, admin]: [&Client; 3], statement: &str, hold: Duration) -> Duration {
    run(holder, &format!("begin; {statement}")).await;
    let (heard, released) = tokio::join!(
        async {
            run(waiter, statement).await;
            Instant::now()
        },
        async {
            until_waiting(admin, 1).await;
            tokio::time::sleep(hold).await;
            run(holder, "commit").await;
            Instant::now()
        }
    );
    heard.saturating_duration_since(released)
}

async fn at_homes(cluster: &Cluster) -> (Client, Client) {
    let (holder, waiter) = (cluster.client().await, cluster.client().await);
    run(&holder, "set onecopy.home = 'replica-1'").await;
    run(&waiter, "set onecopy.home = 'replica-2'").await;
    (holder, waiter)
}

/// A session that waits for another home hears of the end of that when it is there, not when it looks for deadlocks the
/// next time, which it does 200 and 700 ms after its wait began.
async fn waits_end_at_once(cluster: &Cluster) {
    run(
        &cluster.client().await,
        "create table strained (k int primary key, v int); insert into strained values (1, 0)",
    )
    .await;
    let ((holder, waiter), admin) = (at_homes(cluster).await, admin_of(cluster).await);
    let (mut all, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    // On a slow machine an answer may be late now and then.
    while all.iter().all(|heard| *heard >= Duration::from_millis(200)) {
        assert!(Instant::now() < deadline, "it heard of its place after {all:?}");
        all.push(waits_for([&holder, &waiter, &admin], STRAINED, Duration::from_millis(300)).await);
    }
}

/// Transactions of a kind that waits for other homes nearly all of the time begin at the anchor, and are counted.
async fn who_waits_most_stays_at_the_anchor(cluster: &Cluster) {
    let admin = admin_of(cluster).await;
    let stayed = || async {
        let stats = cluster::rows(&admin, "SHOW STATS").await;
        let row = stats.into_iter().find(|row| row["name"] == "anchor_because.waits").unwrap();
        row["value"].parse::<u64>().unwrap()
    };
    let (holder, waiter) = at_homes(cluster).await;
    let auto = cluster.client().await;
    let before = stayed().await;
    run(&auto, STRAINED_MOST).await;
    assert_eq!(stayed().await, before, "it has never waited");
    let deadline = Instant::now() + PATIENCE;
    // The slower the machine works, the longer it has to wait for that to be most of the time.
    let mut hold = Duration::from_millis(100);
    while stayed().await == before {
        assert!(Instant::now() < deadline, "it begins elsewhere");
        for _ in 0..10 {
            waits_for([&holder, &waiter, &admin], STRAINED_MOST, hold).await;
        }
        run(&auto, STRAINED_MOST).await;
        hold *= 2;
    }
    let before = stayed().await;
    run(&auto, "update strained set v = 0 where k = 2").await;
    assert_eq!(stayed().await, before, "another kind");
    run(&auto, "drop table strained").await;
}

/// As on one server, or as there if what waited here had been sent when it waited no more.
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

/// Sends what has to wait.
async fn waits(client: &Arc<Client>, statement: &str) -> Answer {
    let answer = ask(client, statement.to_owned());
    tokio::time::sleep(WAITS_FOR).await;
    assert!(!answer.is_finished(), "`{statement}` does not wait: {}", answer.await.unwrap());
    answer
}

/// The client's own limits count while it waits for another home, and so does a cancel request.
async fn limits_of_waiting(cluster: &Cluster) {
    const ADD: &str = "update q set v = v + 10 where k = 1";
    let a = holder(cluster, 2).await;
    let b = at(cluster, 3).await;
    for (setting, code) in [("lock_timeout", "55P03"), ("statement_timeout", "57014")] {
        run(&b, &format!("set {setting} = '400ms'")).await;
        let alone = within(ask(&b, ADD.to_owned())).await;
        assert_eq!(sqlstate(&alone), Some(code), "{alone}");
        unlimited(&b, setting).await;
        // It holds for what comes after it, so that what has to be done before is done on a slow machine, too.
        run(&b, &format!("begin; update q set v = v + 10 where k = 2; set {setting} = '400ms'")).await;
        let inside = within(ask(&b, ADD.to_owned())).await;
        assert_eq!(sqlstate(&inside), Some(code), "{inside}");
        let after = within(ask(&b, "select 1".to_owned())).await;
        assert_eq!(sqlstate(&after), Some("25P02"), "{after}");
        run(&b, "rollback").await;
    }
    for setting in ["lock_timeout", "statement_timeout"] {
        run(
            &b,
            &format!("begin; update q set v = 0 where k = 3; savepoint s; set local {setting} = '400ms'"),
        )
        .await;
        let late = within(ask(&b, ADD.to_owned())).await;
        assert!(matches!(sqlstate(&late), Some("55P03" | "57014")), "{late}");
        run(&b, "rollback to s; update q set v = v + 5 where k = 4; rollback").await;
    }
    let admin = admin_of(cluster).await;
    let token = b.cancel_token();
    for begin in ["", "begin"] {
        run(&b, begin).await;
        let waiting = waits(&b, ADD).await;
        until_waiting(&admin, 1).await;
        token.cancel_query(NoTls).await.unwrap();
        let answer = within(waiting).await;
        assert_eq!(sqlstate(&answer), Some("57014"), "{answer}");
    }
    run(&b, "rollback").await;
    run(&a, "commit").await;
    run(&b, ADD).await;
    assert_eq!(value(&b, "select sum(v) from q").await, "161", "nothing of what was cancelled");
}

/// Lifts a limit that may be too short for its own end.
async fn unlimited(client: &Client, setting: &str) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = client.batch_execute(&format!("reset {setting}")).await {
        assert!(Instant::now() < deadline, "{error:?}");
    }
}

/// Who waits is shown with whom it waits for, inside a transaction and before one.
async fn waits_are_shown(cluster: &Cluster) {
    let a = holder(cluster, 2).await;
    let (b, c) = (at(cluster, 3).await, at(cluster, 1).await);
    run(&c, "begin; update q set v = v + 1 where k = 2").await;
    let first = waits(&b, "update q set v = v + 10 where k = 1").await;
    let second = waits(&c, "update q set v = v + 10 where k = 1").await;
    let shown = until_waiting(&admin_of(cluster).await, 2).await;
    let at = |home: &str| shown.iter().find(|row| row["home"] == home).expect("one at each home");
    let (holds, waits) = (at("replica-2"), [at("replica-3"), at("replica-1")]);
    assert_eq!((&*holds["state"], &*holds["waits_for"]), ("open", ""), "{shown:?}");
    for row in waits {
        let place = (&*row["state"], &*row["in_table"], &*row["at_key"]);
        assert_eq!(place, ("waiting", "q", "(k)=(1)"), "{shown:?}");
        assert!(row["waits_for"].split(", ").any(|session| *session == holds["session"]), "{shown:?}");
    }
    run(&a, "rollback").await;
    assert_eq!(within(first).await, "done 1");
    assert_eq!(within(second).await, "done 1");
    run(&c, "commit").await;
}

/// Who reads a group of rows sees what another home has just been acknowledged in it.
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

/// A transaction that begins by a read goes where what it usually writes then is being written.
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

/// A client that goes while it waits, or while others wait for it.
async fn who_leaves_is_not_waited_for(cluster: &Cluster) {
    const ADD: &str = "update q set v = v + 10 where k = 1";
    let a = holder(cluster, 2).await;
    let (b, c) = (at(cluster, 3).await, at(cluster, 1).await);
    run(&b, "begin").await;
    let gone = waits(&b, ADD).await;
    gone.abort();
    drop(b);
    let waiting = waits(&c, ADD).await;
    drop(a);
    assert_eq!(within(waiting).await, "done 1");
    assert_eq!(value(&c, "select v from q where k = 1").await, "20", "one of three commits");
}

/// A schema change waits for transactions at all homes, and they for it.
async fn schema_changes(cluster: &Cluster) {
    let a = holder(cluster, 2).await;
    let b = at(cluster, 3).await;
    let waiting = waits(&b, "alter table q add column w int default 7").await;
    run(&a, "update q set v = v + 1 where k = 2; commit").await;
    within(waiting).await;
    assert_eq!(value(&a, "select v + w from q where k = 2").await, "28");
    run(&b, "begin; alter table q drop column w").await;
    let waiting = waits(&a, "update q set v = 0 where k = 3").await;
    run(&b, "commit").await;
    assert_eq!(within(waiting).await, "done 1");
    let by_w = within(ask(&a, "update q set w = 0".to_owned())).await;
    assert_eq!(sqlstate(&by_w), Some("42703"), "{by_w}");
    run(&a, "begin; insert into q values (6, 60)").await;
    let waiting = waits(&b, "create unique index concurrently by_v on q (v)").await;
    run(&a, "commit").await;
    within(waiting).await;
    let doubled = within(ask(&a, "insert into q values (7, 60)".to_owned())).await;
    assert_eq!(sqlstate(&doubled), Some("23505"), "{doubled}");
    run(&b, "drop index by_v").await;
}

/// Rows that are in a file conflict as others do. Nobody can foresee the keys of these, so all of the table is waited for.
async fn large_transactions(cluster: &Cluster) {
    const FILL: &str = "insert into q select n, n from generate_series(1001, 3000) n";
    let a = holder(cluster, 2).await;
    let (b, c) = (at(cluster, 3).await, at(cluster, 1).await);
    run(&a, FILL).await;
    let admin = admin_of(cluster).await;
    let shown = cluster::rows(&admin, "SHOW TRANSACTIONS").await;
    assert!(shown.iter().any(|row| row["spilled_bytes"] != "0"), "{shown:?}");
    let waiting = waits(&b, "insert into q values (2000, 0)").await;
    run(&a, "rollback").await;
    assert_eq!(within(waiting).await, "done 1");
    let doubled = within(ask(&a, FILL.to_owned())).await;
    assert_eq!(sqlstate(&doubled), Some("23505"), "{doubled}");
    run(&b, "delete from q where k = 2000").await;
    run(&b, "begin; insert into q values (2000, 0)").await;
    let waiting = waits(&a, FILL).await;
    run(&b, "rollback").await;
    assert_eq!(within(waiting).await, "done 2000");
    run(&b, "begin; update q set v = v + 1 where k > 1000").await;
    let waiting = waits(&c, "update q set v = 0 where k = 1500").await;
    run(&b, "rollback").await;
    assert_eq!(within(waiting).await, "done 1");
    assert_eq!(
        cluster.everywhere("select count(*), sum(v) from q where k > 1000").await,
        [["2000", "3999500"]]
    );
}

/// What many statements of one transaction write is not lost because others write other rows of the table.
async fn long_transactions(cluster: &Cluster) {
    run(&cluster.client().await, TABLES.before).await;
    let (a, b) = (at(cluster, 2).await, at(cluster, 3).await);
    run(&a, "begin").await;
    for _ in 0..70 {
        run(&a, "update q set v = v + 1 where k = 2").await;
    }
    run(&b, "update q set v = v + 1 where k = 1").await;
    run(&a, "update q set v = v + 1 where k = 1; commit").await;
    let rows = |from: usize| (from..from + 60).map(|k| format!("({k}, 0)")).collect::<Vec<_>>().join(", ");
    run(&a, "begin").await;
    for n in 0..5 {
        run(&a, &format!("insert into q values {}", rows(1_000 + 60 * n))).await;
    }
    run(&b, "update q set v = v + 1 where k = 1").await;
    for n in 5..18 {
        run(&a, &format!("insert into q values {}", rows(1_000 + 60 * n))).await;
    }
    let waiting = waits(&b, "update q set v = v + 1 where k = 1").await;
    run(&a, "commit").await;
    assert_eq!(within(waiting).await, "done 1");
    let sums = "select count(*), sum(v) from q where k < 3 or k > 999";
    assert_eq!(cluster.everywhere(sums).await, [["1082", "104"]]);
}

/// Rows with keys from a sequence are new, so their statement asks for none; thousands of them count as their table. Others
/// with rows of their own there do not lose against that.
async fn many_new_rows(cluster: &Cluster) {
    const MANY: &str = "insert into drawn (v) select 1 from generate_series(1, 1500)";
    const ONE: &str = "insert into drawn (v) values (2)";
    run(&cluster.client().await, "create table drawn (id uuid primary key default gen_random_uuid(), v int)")
        .await;
    let (a, b, c) = (at(cluster, 2).await, at(cluster, 3).await, at(cluster, 1).await);
    for (before, last) in [(MANY, "commit"), ("select 1", MANY)] {
        run(&b, &format!("begin; {ONE}")).await;
        if last == "commit" {
            run(&a, "begin").await;
        }
        run(&a, before).await;
        let waiting = waits(&a, last).await;
        let next = waits(&c, ONE).await;
        run(&b, &format!("{ONE}; commit")).await;
        assert!(within(waiting).await.starts_with("done"), "{before}; {last}");
        assert_eq!(within(next).await, "done 1");
    }
    assert_eq!(
        cluster.everywhere("select v, count(*) from drawn group by v order by v").await,
        [["1", "3000"], ["2", "6"]]
    );
    run(&c, "drop table drawn").await;
}

/// What the client sends for a COPY comes once, so it waits before.
async fn copies_wait(cluster: &Cluster) {
    run(&cluster.client().await, TABLES.before).await;
    let (a, b) = (at(cluster, 2).await, at(cluster, 3).await);
    for (end, code) in [("rollback", None), ("commit", Some("23505"))] {
        run(&a, "delete from q where k > 5; begin; insert into q values (8, 0)").await;
        let copier = Arc::clone(&b);
        let copy = tokio::spawn(async move {
            let sink = copier.copy_in::<_, bytes::Bytes>("copy q from stdin").await?;
            tokio::pin!(sink);
            futures_util::SinkExt::send(&mut sink, bytes::Bytes::from_static(b"7\t1\n8\t1\n")).await?;
            sink.finish().await
        });
        tokio::time::sleep(WAITS_FOR).await;
        assert!(!copy.is_finished());
        run(&a, end).await;
        let copied = copy.await.unwrap();
        let error = copied.err().and_then(|error| Some(error.as_db_error()?.code().code().to_owned()));
        assert_eq!(error.as_deref(), code, "{end}");
    }
}

/// Many write at once what only their rows tell: some find a key taken, nobody has to begin again.
async fn surprises(cluster: &Cluster) {
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 12;
    run(&cluster.client().await, TABLES.before).await;
    let work = (0..CLIENTS).map(|n| {
        let port = cluster.port;
        tokio::spawn(async move {
            let client = open(port).await;
            run(&client, &format!("set onecopy.home = 'replica-{}'", n % 3 + 1)).await;
            let (mut done, mut others) = (0, Vec::new());
            for round in 0..ROUNDS {
                let from = 10 + (n * 5 + round * 3) % 8;
                let upsert = "on conflict (k) do update set v = q.v + 1";
                let end = if round % 4 == 3 { "rollback" } else { "commit" };
                for statement in [
                    "begin".to_owned(),
                    format!(
                        "insert into q select n, 0 from generate_series({from}, {}) n {upsert}",
                        from + 2
                    ),
                    format!("update p set u = u + {} where k = 3", 1 + n),
                    format!(
                        "insert into q select k + {}, 0 from q where k > {from} and k < 99 order by k",
                        90 + n
                    ),
                    end.to_owned(),
                ] {
                    let answer = ask(&client, statement).await.unwrap();
                    match sqlstate(&answer) {
                        None => done += usize::from(answer.starts_with("done")),
                        Some("23505") => _ = ask(&client, "rollback".to_owned()).await.unwrap(),
                        Some(_) => others.push(answer),
                    }
                }
            }
            (done, others)
        })
    });
    let (mut all, mut wrong) = (0, Vec::new());
    for client in work.collect::<Vec<_>>() {
        let (done, others) = client.await.unwrap();
        all += done;
        wrong.extend(others);
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(all > CLIENTS * ROUNDS * 2, "{all}");
}

/// Rings of waits through two homes, and through a home and its server's own locks: one gives way, at once.
async fn deadlocks(cluster: &Cluster) {
    let add = |k: usize| format!("update q set v = v + 1 where k = {k}");
    for homes in [[2, 3, 2], [2, 2, 3], [1, 3, 2]] {
        run(&cluster.client().await, TABLES.before).await;
        let clients = [at(cluster, homes[0]).await, at(cluster, homes[1]).await, at(cluster, homes[2]).await];
        for (n, client) in clients.iter().enumerate() {
            run(client, &format!("begin; {}", add(n + 1))).await;
        }
        let finish = |(n, client): (usize, &Arc<Client>)| {
            let (client, answer) = (Arc::clone(client), ask(client, add((n + 1) % 3 + 1)));
            // Whoever waits for one that goes on must hear of its end.
            tokio::spawn(async move {
                let answer = answer.await.unwrap();
                run(&client, "commit").await;
                answer
            })
        };
        let answers: Vec<Answer> = clients.iter().enumerate().map(finish).collect();
        let mut lost = 0;
        for answer in answers {
            let answer = within(answer).await;
            lost += usize::from(sqlstate(&answer) == Some("40P01"));
            assert!(answer == "done 1" || sqlstate(&answer) == Some("40P01"), "{homes:?}: {answer}");
        }
        assert_eq!(lost, 1, "{homes:?}");
        let rows = table(&clients[0], "select sum(v) from q").await;
        assert_eq!(rows, [["154"]], "{homes:?}: two of three, twice");
    }
}

/// What a statement, or COMMIT, is told when it loses: its code and detail.
async fn loses(client: &Client, statement: &str) -> (String, String) {
    let error = client.batch_execute(statement).await.expect_err(statement);
    let error = error.as_db_error().expect("the server has said so");
    run(client, "rollback").await;
    (error.code().code().to_owned(), error.detail().unwrap_or_default().to_owned())
}

/// Errors say which key it is about, if the client has named it, and who has it or was first; of rows that it has not
/// named, they say the table.
async fn errors_name_the_key_and_the_rival(cluster: &Cluster) {
    run(&cluster.client().await, TABLES.before).await;
    let (a, b) = (at(cluster, 2).await, at(cluster, 3).await);
    // At SERIALIZABLE, certification: b read what a has written, by a condition that names no key.
    run(&b, "begin isolation level serializable; select v from q where v < 1000").await;
    run(&b, "update q set v = v where k = 3").await;
    run(&a, "update q set v = v + 1 where k = 1").await;
    let (code, detail) = loses(&b, "commit").await;
    assert_eq!(code, "40001", "{detail}");
    assert!(detail.starts_with("Table \"q\" was taken first by "), "{detail}");
    assert!(detail.contains(", with version "), "{detail}");
    // In a kept snapshot the home itself refuses.
    run(&b, "begin isolation level repeatable read; select v from q where k = 3").await;
    run(&a, "update q set v = v + 1 where k = 1").await;
    let (code, detail) = loses(&b, "update q set v = v + 1 where k = 1").await;
    assert_eq!(code, "40001", "{detail}");
    assert!(detail.starts_with("Key (k)=(1) of table \"q\" was taken first by "), "{detail}");
    // Who does not want to wait.
    run(&a, "begin; update q set v = v + 1 where k = 2").await;
    for statement in [
        "begin; select v from q where k = 2 for update nowait",
        "begin; set local lock_timeout = '50ms'; update q set v = 1 where k = 2",
    ] {
        let (code, detail) = loses(&b, statement).await;
        assert_eq!(code, "55P03", "{detail}");
        assert!(detail.starts_with("Key (k)=(2) of table \"q\" is held by session "), "{detail}");
    }
    // A ring.
    run(&b, "begin; update q set v = v + 1 where k = 1").await;
    let waiting = waits(&a, "update q set v = v + 1 where k = 1").await;
    let (code, detail) = loses(&b, "update q set v = v + 1 where k = 2").await;
    assert_eq!(code, "40P01", "{detail}");
    assert!(
        detail.starts_with("This transaction waited for key (k)=(2) of table \"q\", and session "),
        "{detail}"
    );
    assert_eq!(within(waiting).await, "done 1");
    run(&a, "rollback").await;
}

/// Somebody who came past us holds a row that a refresh needs, and waits for one of ours, which waits for the refresh.
async fn a_ring_through_a_refresh(cluster: &Cluster) {
    run(&cluster.client().await, TABLES.before).await;
    let replica = cluster.caught_up().await.into_iter().find(|replica| replica.name == "replica-2").unwrap();
    let stranger = Arc::new(cluster.direct(&replica).await);
    let (a, b) = (at(cluster, 2).await, at(cluster, 3).await);
    run(&a, "begin; update q set v = v + 1 where k = 2").await;
    run(&stranger, "begin; select from q where k = 1 for update").await;
    let foreign = waits(&stranger, "select from q where k = 2 for update").await;
    run(&b, "update q set v = v + 10 where k = 1").await;
    let own = within(ask(&a, "update q set v = v + 1 where k = 1".to_owned())).await;
    assert_eq!(sqlstate(&own), Some("40001"), "{own}");
    within(foreign).await;
    run(&stranger, "rollback").await;
    run(&a, "rollback").await;
    assert_eq!(cluster.everywhere("select v from q where k < 3 order by k").await, [["20"], ["20"]]);
}
