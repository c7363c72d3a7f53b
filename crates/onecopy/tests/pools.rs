//! Promise: sessions that share server connections see each other only as waits.
//!
//! Two replicas have one shared connection each, so every statement runs on a connection that another session has just used.
//! A session with state that cannot be shared keeps its connection, and SHOW CLIENTS shows the reason.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "pools/beginning.rs"]
mod beginning;
#[path = "pools/carried.rs"]
mod carried;
mod cluster;
#[path = "pools/handed_on.rs"]
mod handed_on;
#[path = "pools/holders.rs"]
mod holders;
#[path = "pools/left_behind.rs"]
mod left_behind;
#[path = "pools/meanings.rs"]
mod meanings;
#[path = "pools/waiting.rs"]
mod waiting;

use std::time::{Duration, Instant};

use cluster::{Cluster, rows, run, table, value};
use tokio_postgres::{Client, NoTls};

const SCHEMA: &str = "
create table t (k int primary key, v text); insert into t select i, 'row ' || i from generate_series(1, 50) i;
create table s (id serial primary key, v int);
create schema a; create table a.w (v text); insert into a.w values ('in a'); create table w (v text); insert into w values ('in public');
create role joe login; create role reader; grant select on t, w to joe; grant usage on schema a to joe;
create function makes_temporary() returns void language plpgsql as $$ begin create temp table made (k int); end $$;
";

/// The time-out of a wait for a connection, which no statement of this test reaches.
pub(crate) const WAIT: Duration = Duration::from_mins(1);
/// The deadline of an expected event.
pub(crate) const WITHIN: Duration = Duration::from_mins(2);

#[tokio::test]
async fn sessions_share_connections_and_do_not_notice() {
    let arguments = ["--pool-mode", "transaction", "--pool-size", "1", "--pool-wait-ms", "60000"];
    // Connections go from thread to thread, too.
    let threads = [("ONECOPY_TEST_THREADS", "2")];
    let mut cluster = Cluster::start_as(2, &threads, &arguments).await;
    run(&cluster.client().await, SCHEMA).await;
    carried::settings(&cluster).await;
    beginning::own_settings(&cluster).await;
    beginning::unnamed(&cluster).await;
    beginning::limits_of_neighbours(&cluster).await;
    beginning::limits_at_commit(&cluster).await;
    beginning::limits_that_end_sessions(&cluster).await;
    beginning::of_the_database(&cluster).await;
    carried::prepared(&cluster).await;
    carried::hidden(&cluster).await;
    handed_on::no_meaning(&cluster).await;
    handed_on::no_forged_statement(&cluster).await;
    handed_on::nothing_unseen(&cluster).await;
    handed_on::a_connection_of_unknown_state_is_not_handed_on(&cluster).await;
    handed_on::no_others_settings(&cluster).await;
    meanings::of_one_session(&cluster).await;
    meanings::of_one_schema(&cluster).await;
    left_behind::traces(&cluster).await;
    left_behind::drawn(&cluster).await;
    waiting::waiting(&cluster).await;
    holders::a_second_connection(&cluster).await;
    holders::a_hot_row(&cluster).await;
    waiting::cancelling(&cluster).await;
    handed_on::no_cancel(&cluster).await;
    gone(&cluster).await;
    roles(&cluster).await;
    many(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_wait_for_a_connection_that_is_too_long_fails() {
    let arguments = ["--pool-mode", "transaction", "--pool-size", "2", "--pool-wait-ms", "1000"];
    let mut cluster = Cluster::start_as(2, &[], &arguments).await;
    holders::are_named(&cluster).await;
    holders::keep_no_other_session_waiting(&cluster).await;
    cluster.stop().await;
}

pub(crate) async fn pair(cluster: &Cluster) -> (Client, Client) {
    (cluster.client().await, cluster.client().await)
}

/// Asserts why sessions keep their connections; that is found out after the answer.
async fn assert_pinned(cluster: &Cluster, why: &[&str]) {
    let admin = cluster.try_client("onecopy").await.unwrap();
    let deadline = Instant::now() + WITHIN;
    loop {
        let all = rows(&admin, "show clients").await;
        let pinned: Vec<&str> =
            all.iter().map(|row| row["pinned"].as_str()).filter(|p| !p.is_empty()).collect();
        if pinned == why {
            return;
        }
        assert!(Instant::now() < deadline, "{all:?}, not {why:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A client that disconnects inside a transaction leaves a clean connection.
async fn gone(cluster: &Cluster) {
    let b = cluster.client().await;
    for begin in ["begin", "begin read only"] {
        let a = cluster.client().await;
        run(
            &a,
            &format!("{begin}; set work_mem = '1MB'; set local search_path = a, public; select * from t"),
        )
        .await;
        if begin == "begin" {
            run(&a, "insert into t values (200, 'of nobody'); select pg_advisory_lock(9)").await;
        }
        drop(a);
        assert_eq!(value(&b, "select count(*)::text from t where k = 200").await, "0");
        assert_eq!(value(&b, "show search_path").await, "\"$user\", public");
        // The server may take a moment to release the locks of the old backend.
        run(&b, "set statement_timeout = '60s'; select pg_advisory_lock(9)").await;
        run(&b, "select pg_advisory_unlock(9); reset statement_timeout").await;
    }
    // In the middle of an answer, too.
    let mut raw = cluster::raw::Raw::connect(cluster.port);
    raw.send(|out| wire::encode::query(out, b"select repeat('x', 1000) from generate_series(1, 100000)"));
    drop(raw);
    assert_eq!(value(&b, "select count(*)::text from t").await, "50");
}

/// A connection of a role is no better than a new one.
async fn roles(cluster: &Cluster) {
    let admin = cluster.client().await;
    let joe = || connect_as(cluster.port, "joe");
    let before = joe().await.unwrap();
    assert_eq!(value(&before, "select v from t where k = 1").await, "row 1");
    run(&admin, "alter role joe set work_mem = '7MB'").await;
    assert_eq!(value(&joe().await.unwrap(), "show work_mem").await, "7MB");
    run(&admin, "alter role joe nologin").await;
    let error = joe().await.expect_err("it may not log in");
    assert_eq!(error.code().unwrap().code(), "28000", "{error:?}");
    drop(before);
    run(
        &admin,
        "revoke all on t, w from joe; revoke all on schema a from joe; drop role joe; create role joe login",
    )
    .await;
    let after = joe().await.unwrap();
    let error = after.simple_query("select v from t where k = 1").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501", "it is another one: {error:?}");
    let shown = table(&cluster.try_client("onecopy").await.unwrap(), "show pools").await;
    assert!(shown.iter().any(|row| row.contains(&"joe".to_owned())), "{shown:?}");
}

async fn connect_as(port: u16, role: &str) -> Result<Client, tokio_postgres::Error> {
    let settings = format!("host=127.0.0.1 port={port} user={role} dbname=postgres connect_timeout=10");
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// Far more clients than connections: the idle ones cost no connection, the others take turns.
async fn many(cluster: &Cluster) {
    const IDLE: usize = 60;
    const ACTIVE: usize = 12;
    const EACH: i32 = 15;
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(cluster.client().await);
    }
    let mut working = tokio::task::JoinSet::new();
    for n in 0..ACTIVE {
        let client = cluster.client().await;
        working.spawn(async move {
            let change = client.prepare("update t set v = v || $2 where k = $1").await.unwrap();
            let read = client.prepare("select length(v) from t where k = $1").await.unwrap();
            let key = i32::try_from(n).unwrap() + 1;
            let before: i32 = client.query_one(&read, &[&key]).await.unwrap().get(0);
            for done in 1..=EACH {
                client.execute(&change, &[&key, &"x"]).await.unwrap();
                let now: i32 = client.query_one(&read, &[&key]).await.unwrap().get(0);
                assert_eq!(now, before + done, "a session reads its own writes");
            }
        });
    }
    while let Some(done) = working.join_next().await {
        done.unwrap();
    }
    let admin = cluster.try_client("onecopy").await.unwrap();
    let pools = rows(&admin, "show pools").await;
    let pool = pools.iter().find(|row| row["user"] == "postgres").unwrap();
    let number = |column: &str| pool[column].parse::<usize>().unwrap();
    // One to each replica, and two more for sessions with a transaction at the other replica.
    assert!(number("sv_active") + number("sv_idle") <= 2 * (1 + 2), "{pool:?}");
    assert!(number("cl_active") + number("cl_waiting") >= IDLE, "{pool:?}");
    assert_eq!(pool["pool_mode"], "transaction");
    for client in &idle {
        run(client, "select 1").await;
    }
}
