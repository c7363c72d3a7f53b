//! Promise: two clients in conflicting transactions see what they would see on one PostgreSQL.
//!
//! A scenario is a list of steps of two clients. It runs on a PostgreSQL beside and through onecopy, and what each step
//! answers, which step waits, and what is in the tables at the end must be the same. READ COMMITTED and REPEATABLE READ,
//! with both at one home and at two. At SERIALIZABLE what commits must be as if one had run after the other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::plain::Plain;
use cluster::{Cluster, connect, run, table};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};

/// A step that has not answered on the plain server after this long is taken to wait for the other client.
const WAITS_AFTER: Duration = Duration::from_millis(400);
/// A step that must wait through onecopy as well is watched this long.
const WATCHED_FOR: Duration = Duration::from_millis(200);
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

const SCHEMA: &str = "
drop table if exists child, t;
create table t (k int primary key, v int, u int unique);
create table child (k int primary key, t int references t);
insert into t values (1, 10, 100), (2, 20, 200), (3, 30, 300);
insert into child values (1, 1);
";
const AT_THE_END: [&str; 2] = ["select * from t order by k", "select * from child order by k"];

/// Steps as `client statement`; `begin` is given the level.
const SCENARIOS: [(&str, &[&str]); 16] = [
    (
        "both add to a row",
        &[
            "a begin",
            "b begin",
            "a update t set v = v + 1 where k = 1",
            "b update t set v = v + 10 where k = 1",
            "a commit",
            "b commit",
        ],
    ),
    (
        "the first rolls back",
        &[
            "a begin",
            "b begin",
            "a update t set v = v + 1 where k = 1",
            "b update t set v = v + 10 where k = 1",
            "a rollback",
            "b commit",
        ],
    ),
    (
        "read, then write",
        &[
            "a begin",
            "b begin",
            "a select v from t where k = 1",
            "b select v from t where k = 1",
            "a update t set v = 11 where k = 1",
            "a commit",
            "b update t set v = 12 where k = 1",
            "b commit",
        ],
    ),
    (
        "write skew",
        &[
            "a begin",
            "b begin",
            "a select sum(v) from t",
            "b select sum(v) from t",
            "a update t set v = 0 where k = 1",
            "b update t set v = 0 where k = 2",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a read sees what is committed, or its snapshot",
        &[
            "a begin",
            "a select v from t where k = 1",
            "b update t set v = 99 where k = 1",
            "a select v from t where k = 1",
            "a select count(*) from t",
            "b insert into t values (4, 40, 400)",
            "a select count(*) from t",
            "a commit",
            "a select v from t where k = 1",
        ],
    ),
    (
        "a snapshot begins with the first statement",
        &["a begin", "b update t set v = 99 where k = 1", "a select v from t where k = 1", "a commit"],
    ),
    (
        "no dirty read",
        &[
            "a begin",
            "a update t set v = 99 where k = 1",
            "b select v from t where k = 1",
            "a rollback",
            "b select v from t where k = 1",
        ],
    ),
    (
        "one sees its own writes",
        &[
            "a begin",
            "a update t set v = 99 where k = 1",
            "a select v from t where k = 1",
            "b select v from t where k = 1",
            "a savepoint s",
            "a delete from t where k = 2",
            "a rollback to s",
            "a select count(*) from t",
            "a commit",
            "b select count(*), sum(v) from t",
        ],
    ),
    (
        "the same key twice",
        &[
            "a begin",
            "b begin",
            "a insert into t values (5, 50, 500)",
            "b insert into t values (5, 55, 555)",
            "a commit",
            "b commit",
        ],
    ),
    (
        "the same key twice, the first rolls back",
        &[
            "a begin",
            "b begin",
            "a insert into t values (5, 50, 500)",
            "b insert into t values (6, 55, 500)",
            "a rollback",
            "b commit",
        ],
    ),
    (
        "insert on conflict",
        &[
            "a begin",
            "b begin",
            "a insert into t values (5, 50, 500)",
            "b insert into t values (5, 55, 555) on conflict (k) do update set v = t.v + 1",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a parent goes while a child comes",
        &[
            "a begin",
            "b begin",
            "a delete from t where k = 3",
            "b insert into child values (2, 3)",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a child comes while the parent goes",
        &[
            "a begin",
            "b begin",
            "b insert into child values (2, 3)",
            "a delete from t where k = 3",
            "b commit",
            "a commit",
        ],
    ),
    (
        "select for update",
        &[
            "a begin",
            "b begin",
            "a select v from t where k = 1 for update",
            "b update t set v = v + 1 where k = 1",
            "a update t set v = v * 2 where k = 1",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a row leaves the condition while one waits",
        &[
            "a begin",
            "b begin",
            "a update t set v = v + 100 where k = 1",
            "b delete from t where v < 15",
            "a commit",
            "b commit",
        ],
    ),
    (
        "autocommit waits for a transaction",
        &[
            "a begin",
            "a update t set v = v + 1 where k = 1",
            "b update t set v = v + 10 where k = 1",
            "a commit",
            "b select v from t where k = 1",
        ],
    ),
];

type Answer = JoinHandle<String>;

/// What became of one step: whether it waited, and at last its answer.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Trace {
    step: &'static str,
    waited: bool,
    answer: String,
}

#[tokio::test]
async fn conflicts_end_as_on_one_postgresql() {
    let (mut cluster, plain) = (Cluster::start(3).await, Plain::start().await);
    let mut different = Vec::new();
    for level in ["read committed", "repeatable read"] {
        for (name, steps) in SCENARIOS {
            let (theirs, their_end) = play(plain.port, level, steps, None, None).await;
            for homes in [None, Some(["replica-2", "replica-3"]), Some(["replica-1", "replica-2"])] {
                let (ours, our_end) = play(cluster.port, level, steps, Some(&theirs), homes).await;
                let as_one = match homes {
                    Some(_) if level == "repeatable read" => is_allowed(&ours, &theirs),
                    _ => (&ours, &our_end) == (&theirs, &their_end),
                };
                if !as_one {
                    let report = format!(
                        "=== {name}, {level}, {homes:?}\nonecopy {ours:#?}\n{our_end:?}\nPostgreSQL {theirs:#?}\n{their_end:?}"
                    );
                    different.push(report);
                }
                for query in AT_THE_END {
                    cluster.everywhere(query).await;
                }
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

/// Between homes a statement that waits is sent when it waits no more, so a snapshot that it takes is a later one: it may
/// do what it could not on one server. Elsewhere a transaction may fail that would not have.
fn is_allowed(ours: &[Trace], theirs: &[Trace]) -> bool {
    let waited_instead = ours.iter().zip(theirs).any(|(our, their)| {
        our.waited && their.waited && their.answer.starts_with("40001") && !our.answer.starts_with("40001")
    });
    let is_stricter = |our: &Trace, their: &Trace| our == their || our.answer.starts_with("40001");
    waited_instead || ours.iter().zip(theirs).all(|(our, their)| is_stricter(our, their))
}

/// Plays the steps; `expected` says which of them wait, where that is known.
async fn play(
    port: u16,
    level: &str,
    steps: &[&'static str],
    expected: Option<&[Trace]>,
    homes: Option<[&str; 2]>,
) -> (Vec<Trace>, Vec<Vec<Vec<String>>>) {
    let clients = [open(port).await, open(port).await];
    run(&clients[0], SCHEMA).await;
    for (client, home) in clients.iter().zip(homes.into_iter().flatten()) {
        run(client, &format!("set onecopy.home = '{home}'")).await;
    }
    let mut traces: Vec<Trace> = Vec::new();
    let mut waiting: [Option<(usize, Answer)>; 2] = [None, None];
    for (n, step) in steps.iter().copied().enumerate() {
        let (who, statement) = step.split_once(' ').expect("client and statement");
        let who = usize::from(who == "b");
        if let Some((earlier, answer)) = waiting[who].take() {
            traces[earlier].answer = within(answer, traces[earlier].step).await;
        }
        let statement = if statement == "begin" {
            format!("begin isolation level {level}")
        } else {
            statement.to_owned()
        };
        let mut answer = ask(&clients[who], statement);
        let patience = match expected {
            None => WAITS_AFTER,
            Some(expected) if expected.get(n).is_none_or(|trace| trace.waited) => WATCHED_FOR,
            Some(_) => ANSWERS_WITHIN,
        };
        if let Ok(answer) = tokio::time::timeout(patience, &mut answer).await {
            traces.push(Trace { step, waited: false, answer: answer.unwrap() });
        } else {
            traces.push(Trace { step, waited: true, answer: String::new() });
            waiting[who] = Some((n, answer));
        }
    }
    for (earlier, answer) in waiting.into_iter().flatten() {
        traces[earlier].answer = within(answer, traces[earlier].step).await;
    }
    let mut end = Vec::new();
    for query in AT_THE_END {
        end.push(table(&clients[0], query).await);
    }
    (traces, end)
}

async fn open(port: u16) -> Arc<Client> {
    Arc::new(connect("127.0.0.1", port, "postgres").await.unwrap())
}

async fn within(answer: Answer, step: &str) -> String {
    tokio::time::timeout(ANSWERS_WITHIN, answer)
        .await
        .unwrap_or_else(|_| panic!("`{step}` never answers"))
        .unwrap()
}

/// Sends a statement at once; the answer is its rows and counts, or its SQLSTATE.
fn ask(client: &Arc<Client>, statement: String) -> Answer {
    let client = Arc::clone(client);
    tokio::spawn(async move {
        let part = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                let cells = (0..row.len()).map(|n| row.get(n).unwrap_or("null"));
                Some(cells.collect::<Vec<_>>().join(","))
            }
            SimpleQueryMessage::CommandComplete(count) => Some(format!("done {count}")),
            _ => None,
        };
        match client.simple_query(&statement).await {
            Ok(messages) => messages.iter().filter_map(part).collect::<Vec<_>>().join("; "),
            Err(error) => match error.as_db_error() {
                Some(error) => format!("{} {}", error.code().code(), error.message()),
                None => format!("{error:?}"),
            },
        }
    })
}

/// SERIALIZABLE, at one home and at two: what committed has answered and left what it would have one after the other.
async fn serializable_is_serial(cluster: &Cluster, plain: &Plain) {
    const LEVEL: &str = "serializable";
    let both_begin = |steps: &&[&str]| steps.contains(&"a begin") && steps.contains(&"b begin");
    for (name, steps) in SCENARIOS.into_iter().filter(|(_, steps)| both_begin(steps)) {
        for homes in [None, Some(["replica-2", "replica-3"]), Some(["replica-1", "replica-2"])] {
            let (ours, our_end) = play(cluster.port, LEVEL, steps, Some(&[]), homes).await;
            let committed: Vec<&str> =
                ["a", "b"].into_iter().filter(|who| has_committed(&ours, who)).collect();
            let answers = |who: &str, traces: &[Trace]| -> Vec<String> {
                traces.iter().filter(|t| t.step.starts_with(who)).map(|t| t.answer.clone()).collect()
            };
            let mut serial = Vec::new();
            for order in [["a", "b"], ["b", "a"]] {
                let kept = order.into_iter().filter(|who| committed.contains(who));
                let steps: Vec<&'static str> =
                    kept.flat_map(|who| steps.iter().copied().filter(move |s| s.starts_with(who))).collect();
                let (theirs, end) = play(plain.port, LEVEL, &steps, None, None).await;
                let same = committed.iter().all(|who| answers(who, &ours) == answers(who, &theirs));
                serial.push((same && end == our_end, theirs, end));
            }
            let is_serial = serial.iter().any(|(is_same, ..)| *is_same);
            assert!(is_serial, "{name}, {homes:?}: {ours:#?} {our_end:?}\nserially {serial:#?}");
        }
    }
}

/// It said COMMIT and no statement before it has failed.
fn has_committed(traces: &[Trace], who: &str) -> bool {
    let is_error = |answer: &str| {
        answer.split_once(' ').is_some_and(|(code, _)| {
            code.len() == 5 && code.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase())
        })
    };
    let own: Vec<&Trace> = traces.iter().filter(|trace| trace.step.starts_with(who)).collect();
    own.last().is_some_and(|trace| trace.step.ends_with("commit"))
        && own.iter().all(|trace| !is_error(&trace.answer))
}

/// One row, many clients at homes of their own, single statements: no client hears of it.
async fn a_counter_counts(cluster: &Cluster) {
    const CLIENTS: usize = 12;
    const TIMES: usize = 20;
    let client = cluster.client().await;
    run(&client, SCHEMA).await;
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
        run(&a, SCHEMA).await;
        run(&a, "begin; update t set v = v + 1 where k = 1").await;
        run(&b, "begin; update t set v = v + 1 where k = 2").await;
        let first = ask(&a, "update t set v = v + 1 where k = 2".to_owned());
        let second = ask(&b, "update t set v = v + 1 where k = 1".to_owned());
        let (first, second) = tokio::join!(within(first, "the first"), within(second, "the second"));
        let mut outcomes = [&first[..5], &second[..5]];
        outcomes.sort_unstable();
        assert_eq!(outcomes, ["40P01", "done "], "{first} / {second}");
        run(&a, "commit").await;
        run(&b, "commit").await;
        assert_eq!(table(&a, "select sum(v) from t").await, [["62"]]);
    }
}

/// SERIALIZABLE: of two transactions that each rely on what the other changes, not both succeed. Retried, both do.
async fn write_skew_is_prevented(cluster: &Cluster) {
    const ROUNDS: usize = 10;
    let client = cluster.client().await;
    for _ in 0..ROUNDS {
        run(&client, SCHEMA).await;
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
    const RETRIES: usize = 20;
    let client = open(port).await;
    for _ in 0..RETRIES {
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
    panic!("{RETRIES} tries were not enough");
}
