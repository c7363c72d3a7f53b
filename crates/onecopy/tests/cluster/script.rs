//! Steps of two or three clients that run on a plain PostgreSQL and through Onecopy, so that a test can compare the answers.
//!
//! A step is `client statement`. A step without an answer waits for another client. The locks of the plain server show that.
//! Through Onecopy the player watches for a while, and for longer if neither Onecopy nor a server reports a wait.

use super::{connect, rows, run, table};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};

/// A step that must wait is watched this long.
const WATCHED_FOR: Duration = Duration::from_millis(120);
/// On a busy machine a step may be slow though it does not wait; for this long the player looks for a reported wait.
const SLOW_MAX: Duration = Duration::from_secs(2);
const ANSWERS_WITHIN: Duration = Duration::from_mins(2);
/// The answer that did not come in that time.
const NEVER: &str = "it never answers";
const LOOK_EVERY: Duration = Duration::from_millis(5);
const BLOCKED: &str = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";

/// A step that was sent.
pub(crate) type Answer = JoinHandle<String>;

/// The tables of a script.
#[derive(Clone, Copy)]
pub(crate) struct Stage {
    /// Sets up the rows. Run before each play.
    pub(crate) before: &'static str,
    /// The query of the final rows.
    pub(crate) after: &'static str,
}

/// The outcome of a step: whether it waited, and its answer.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(crate) struct Trace {
    pub(crate) step: &'static str,
    pub(crate) waited: bool,
    pub(crate) answer: String,
}

/// The outcomes of all steps, and the final rows.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(crate) struct Played {
    pub(crate) traces: Vec<Trace>,
    pub(crate) end: Vec<Vec<String>>,
}

/// How the player finds out which steps wait.
#[derive(Clone, Copy)]
pub(crate) enum Waits<'a> {
    /// By the locks of the plain server.
    Ask,
    /// The same steps as in this play.
    Like(&'a Played),
    /// A step that takes long, or that Onecopy reports, waits.
    Watch,
}

/// Plays steps at a level; `begin` is given the level. Clients may have homes.
pub(crate) async fn play(
    port: u16,
    stage: Stage,
    level: &str,
    steps: &[&'static str],
    (waits, homes): (Waits<'_>, &[&str]),
) -> Played {
    let director = open(port).await;
    run(&director, stage.before).await;
    let mut cast: Vec<Arc<Client>> = Vec::new();
    for n in 0..=steps.iter().map(|step| part(step).0).max().unwrap_or_default() {
        cast.push(open(port).await);
        if let Some(home) = homes.get(n) {
            run(&cast[n], &format!("set onecopy.home = '{home}'")).await;
        }
    }
    // Each client says one thing at a time.
    let turns: Vec<Arc<Mutex<()>>> = cast.iter().map(|_| Arc::default()).collect();
    let mut traces: Vec<Trace> = Vec::new();
    let mut waiting: Vec<(usize, usize, Answer)> = Vec::new();
    for (n, step) in steps.iter().copied().enumerate() {
        let (who, statement) = part(step);
        if !matches!(waits, Waits::Watch) {
            let (own, others) = waiting.into_iter().partition(|(of, ..)| *of == who);
            waiting = others;
            end_waits(own, &mut traces).await;
        }
        let statement = match statement {
            "begin" => format!("begin isolation level {level}"),
            statement => statement.to_owned(),
        };
        let (client, turn) = (Arc::clone(&cast[who]), Arc::clone(&turns[who]));
        let mut answer = tokio::spawn(async move {
            let _turn = turn.lock().await;
            ask(&client, statement).await.unwrap()
        });
        let pending = 1 + waiting.iter().filter(|(.., answer)| !answer.is_finished()).count();
        let has_answered = match waits {
            Waits::Ask => answers(&director, &answer, pending).await,
            Waits::Like(played) => {
                let patience = if played.traces[n].waited { WATCHED_FOR } else { ANSWERS_WITHIN };
                tokio::time::timeout(patience, until_done(&answer)).await.is_ok()
            }
            Waits::Watch => is_not_held_up(port, &answer, pending).await,
        };
        let mut trace = Trace { step, waited: !has_answered, answer: String::new() };
        if has_answered {
            trace.answer = (&mut answer).await.unwrap();
        } else {
            waiting.push((who, n, answer));
        }
        traces.push(trace);
    }
    end_waits(waiting, &mut traces).await;
    Played { traces, end: table(&director, stage.after).await }
}

async fn end_waits(waiting: Vec<(usize, usize, Answer)>, traces: &mut [Trace]) {
    for (_, n, answer) in waiting {
        traces[n].answer = within(answer).await;
    }
}

/// Between homes a statement that waits is sent when it waits no more: the steps in the order in which that makes them.
pub(crate) fn later(played: &Played) -> Vec<&'static str> {
    let (mut steps, mut put_off) = (Vec::new(), Vec::new());
    for trace in &played.traces {
        let (mut own, others) = put_off.into_iter().partition(|step: &&str| step[..1] == trace.step[..1]);
        put_off = others;
        steps.append(&mut own);
        if trace.waited { &mut put_off } else { &mut steps }.push(trace.step);
    }
    steps.append(&mut put_off);
    steps
}

/// Every step got the same answer, in whatever order they came.
pub(crate) fn says_the_same(ours: &Played, theirs: &Played) -> bool {
    let answers = |played: &Played| {
        let mut answers: Vec<_> = played.traces.iter().map(|t| (t.step, t.answer.clone())).collect();
        answers.sort_unstable();
        answers
    };
    ours.end == theirs.end && answers(ours) == answers(theirs)
}

/// The number of a step's client, and its statement.
fn part(step: &'static str) -> (usize, &'static str) {
    let (who, statement) = step.split_once(' ').expect("client and statement");
    (usize::from(who.as_bytes()[0] - b'a'), statement)
}

async fn until_done(answer: &Answer) {
    while !answer.is_finished() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Whether a statement through onecopy answers before as many are said to wait, by it or by a server, as have not answered.
async fn is_not_held_up(port: u16, answer: &Answer, pending: usize) -> bool {
    let deadline = Instant::now() + SLOW_MAX;
    while tokio::time::timeout(WATCHED_FOR, until_done(answer)).await.is_err() {
        if Instant::now() > deadline || held_up(port).await >= pending {
            return answer.is_finished();
        }
    }
    true
}

/// The number of statements that wait, at onecopy or at a server.
pub(crate) async fn held_up(port: u16) -> usize {
    let admin = connect("127.0.0.1", port, "onecopy").await.unwrap();
    let clients = rows(&admin, "SHOW CLIENTS").await;
    let mut count = clients.iter().filter(|row| row["state"] == "waiting").count();
    for replica in rows(&admin, "SHOW REPLICAS").await {
        let direct = connect(&replica["host"], replica["port"].parse().unwrap(), "postgres").await.unwrap();
        count += table(&direct, BLOCKED).await[0][0].parse::<usize>().unwrap();
    }
    count
}

/// Whether a statement answers before as many wait for locks as have not answered.
async fn answers(director: &Client, answer: &Answer, pending: usize) -> bool {
    let deadline = Instant::now() + ANSWERS_WITHIN;
    while Instant::now() < deadline {
        tokio::time::sleep(LOOK_EVERY).await;
        let blocked: usize = table(director, BLOCKED).await[0][0].parse().unwrap();
        if answer.is_finished() {
            return true;
        }
        if blocked >= pending {
            return false;
        }
    }
    panic!("a statement neither answers nor waits");
}

/// A client of its own.
pub(crate) async fn open(port: u16) -> Arc<Client> {
    Arc::new(connect("127.0.0.1", port, "postgres").await.unwrap())
}

/// The answer to a step that has waited.
pub(crate) async fn within(answer: Answer) -> String {
    tokio::time::timeout(ANSWERS_WITHIN, answer).await.map_or_else(|_| NEVER.to_owned(), Result::unwrap)
}

/// Sends a statement at once; the answer is its rows and counts, or its SQLSTATE.
pub(crate) fn ask(client: &Arc<Client>, statement: String) -> Answer {
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

/// The SQLSTATE of an answer that is an error.
pub(crate) fn sqlstate(answer: &str) -> Option<&str> {
    let (code, _) = answer.split_once(' ')?;
    let is_code = code.len() == 5 && code.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
    is_code.then_some(code)
}
