//! How a session waits for one at another home: its limits, how it is shown, and how the wait ends.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

use crate::cluster::script::{ask, sqlstate, within};
use crate::cluster::{self, Cluster, run, value};
use crate::{PATIENCE, admin_of, at, holder, until_waiting, waits};

/// Two kinds of transactions, with statistics of their own.
const STRAINED: &str = "update strained set v = v + 1 where k = 1";
const STRAINED_MOST: &str = "update strained set v = v - 1 where k = 1";

/// Waits for another home for `hold`; returns the time from the end of the wait to the answer.
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

/// A session that waits for another home continues as soon as the wait ends, not at its next search for deadlocks, which comes
/// 200 and 700 ms after the wait began.
pub(crate) async fn waits_end_at_once(cluster: &Cluster) {
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
pub(crate) async fn transactions_that_wait_most_stay_at_the_anchor(cluster: &Cluster) {
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

/// The client's own limits count while it waits for another home, and so does a cancel request.
pub(crate) async fn limits_of_waiting(cluster: &Cluster) {
    const ADD: &str = "update q set v = v + 10 where k = 1";
    let a = holder(cluster, 2).await;
    let b = at(cluster, 3).await;
    for (setting, code) in [("lock_timeout", "55P03"), ("statement_timeout", "57014")] {
        run(&b, &format!("set {setting} = '400ms'")).await;
        let alone = within(ask(&b, ADD.to_owned())).await;
        assert_eq!(sqlstate(&alone), Some(code), "{alone}");
        unlimited(&b, setting).await;
        // The limit applies from here on, so that the statements before it succeed on a slow machine, too.
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

/// Resets a limit, which may be too short for the RESET itself.
async fn unlimited(client: &Client, setting: &str) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = client.batch_execute(&format!("reset {setting}")).await {
        assert!(Instant::now() < deadline, "{error:?}");
    }
}

/// SHOW TRANSACTIONS shows a waiting session with the sessions that it waits for, inside a transaction and before one.
pub(crate) async fn waits_are_shown(cluster: &Cluster) {
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

/// A client disconnects while it waits, or while others wait for it.
pub(crate) async fn a_client_that_leaves_is_not_waited_for(cluster: &Cluster) {
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
