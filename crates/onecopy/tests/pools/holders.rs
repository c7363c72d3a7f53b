//! A session that holds locks gets a connection before the sessions that wait for those locks.

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, run, table, value};
use crate::{WAIT, WITHIN, pair};
use tokio_postgres::Client;

/// A transaction that holds a row needs a second connection, to ask the anchor something, whose only one waits for that
/// row.
pub(crate) async fn a_second_connection(cluster: &Cluster) {
    let (holder, waiter) = pair(cluster).await;
    run(&holder, "set onecopy.home = 'replica-2'").await;
    run(&waiter, "set onecopy.home = 'replica-1'").await;
    for _ in 0..2 {
        run(&holder, "begin; update t set v = v where k = 40").await;
        run(&waiter, "begin; update t set v = v where k = 41").await;
        let asked = Instant::now();
        let ((), ()) = tokio::join!(run(&waiter, "update t set v = v where k = 40"), async {
            until_waiting(cluster).await;
            let known = value(&holder, "select count(*) from pg_class where relname = 'pg_class'").await;
            assert_eq!(known, "1");
            run(&holder, "commit").await;
        });
        assert!(asked.elapsed() < WAIT, "it took {:?}", asked.elapsed());
        run(&waiter, "commit").await;
    }
}

async fn until_waiting(cluster: &Cluster) {
    let admin = cluster.try_client("onecopy").await.unwrap();
    let deadline = Instant::now() + WAIT;
    loop {
        let clients = table(&admin, "show clients").await;
        if clients.iter().any(|row| row.iter().any(|cell| cell == "waiting")) {
            return;
        }
        assert!(Instant::now() < deadline, "nobody waits: {clients:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Many sessions, a hot row, homes at both replicas, one connection each: everybody gets on.
pub(crate) async fn a_hot_row(cluster: &Cluster) {
    const SESSIONS: i32 = 12;
    const EACH: i32 = 6;
    run(
        &cluster.client().await,
        "create table hot (k int primary key, n int); insert into hot values (0, 0)",
    )
    .await;
    let mut working = tokio::task::JoinSet::new();
    for session in 0..SESSIONS {
        let client = cluster.client().await;
        working.spawn(async move {
            let home = ["replica-1", "replica-2", "any"][usize::try_from(session % 3).unwrap()];
            run(&client, &format!("set onecopy.home = '{home}'")).await;
            for round in 0..EACH {
                let own = format!("update t set v = v where k = {}", session + 1);
                let hot = "update hot set n = n + 1 where k = 0";
                match (session + round) % 3 {
                    0 => run(&client, hot).await,
                    1 => {
                        // The hot row is asked for with a connection, or before there is one.
                        for step in ["begin", own.as_str(), hot, "commit"] {
                            run(&client, step).await;
                        }
                    }
                    _ => {
                        let asks = "select count(*) from pg_class where relname = 'hot'";
                        for step in ["begin", hot, asks, own.as_str(), "commit"] {
                            run(&client, step).await;
                        }
                    }
                }
            }
        });
    }
    while let Some(done) = working.join_next().await {
        done.unwrap();
    }
    let counted = value(&cluster.client().await, "select n from hot").await;
    assert_eq!(counted, (SESSIONS * EACH).to_string());
}

/// A session that gets no connection receives an error in time, with the reason.
pub(crate) async fn are_named(cluster: &Cluster) {
    let ((a, kept), b) = (pair(cluster).await, cluster.client().await);
    run(&b, "create table n (k int); set onecopy.home = 'anchor'").await;
    run(&kept, "create temp table mine (k int)").await;
    run(&a, "begin; create table never (k int)").await;
    let begun = Instant::now();
    let error = b.simple_query("insert into n values (1)").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "53300", "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("SHOW POOLS")), "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("DROP")), "{error:?}");
    assert_eq!(error.detail(), Some("Sessions keep some: temporary (1)."), "{error:?}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "it gave up after {:?}", begun.elapsed());
    run(&a, "rollback").await;
}

/// Two sessions that keep a connection to one replica share the only one that is free at the other. They handed it to each
/// other without end, before either had used it.
pub(crate) async fn keep_no_other_session_waiting(cluster: &Cluster) {
    const ROUNDS: usize = 20;
    let ((a, b), other) = (pair(cluster).await, cluster.client().await);
    run(
        &other,
        "create table drawn (id serial primary key, v int); create table m (k int primary key, v int)",
    )
    .await;
    run(&other, "insert into m values (1, 0), (2, 0), (3, 0)").await;
    for client in [&a, &b] {
        run(client, "set onecopy.home = 'anchor'; insert into drawn (v) values (1)").await;
        // It may be refused, but then it is known that this session asks.
        drop(client.simple_query("select currval('drawn_id_seq')").await);
        run(client, "insert into drawn (v) values (1)").await;
        value(client, "select currval('drawn_id_seq')").await;
        run(client, "set onecopy.home = 'replica-2'").await;
    }
    run(&other, "set onecopy.home = 'replica-2'; begin; update m set v = 1 where k = 3").await;
    let rounds = |client: Client, k: usize| async move {
        for _ in 0..ROUNDS {
            run(&client, &format!("update m set v = v + 1 where k = {k}")).await;
        }
        client
    };
    let both = async { tokio::join!(rounds(a, 1), rounds(b, 2)) };
    let done = tokio::time::timeout(WITHIN, both).await;
    let (a, _b) = done.expect("they wait for a connection for ever");
    run(&other, "rollback").await;
    // Both connections to the anchor are kept, so a third session gets none.
    run(&other, "set onecopy.home = 'anchor'").await;
    let error = other.simple_query("insert into drawn (v) values (1)").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code().code(), error.detail()), ("53300", Some("Sessions keep some: currval (2).")));
    assert!(error.hint().is_some_and(|hint| hint.contains("DISCARD SEQUENCES")), "{error:?}");
    run(&a, "discard sequences").await;
    run(&other, "insert into drawn (v) values (1)").await;
}
