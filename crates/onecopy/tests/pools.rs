//! Promise: where sessions share server connections nobody notices, but by waiting.
//!
//! Two replicas with one shared connection each, so that every statement of one session runs where another one was
//! just before. What cannot be shared keeps its connection, for a reason that is shown.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "pools/beginning.rs"]
mod beginning;
mod cluster;
#[path = "pools/handed_on.rs"]
mod handed_on;
#[path = "pools/holders.rs"]
mod holders;
#[path = "pools/meanings.rs"]
mod meanings;

use std::collections::BTreeMap;
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

/// It sets what no server tells.
const REMEMBERS: &str = "create function remembers(name text) returns text language sql as \
                         $$ select set_config('app.name', name, false) $$";

/// How long a statement waits for a connection here: longer than anybody has to.
pub(crate) const WAIT: Duration = Duration::from_mins(1);
/// How long is waited for what has to come.
pub(crate) const WITHIN: Duration = Duration::from_mins(2);

#[tokio::test]
async fn sessions_share_connections_and_do_not_notice() {
    let arguments = ["--pool-mode", "transaction", "--pool-size", "1", "--pool-wait-ms", "60000"];
    // Connections go from thread to thread, too.
    let threads = [("ONECOPY_TEST_THREADS", "2")];
    let mut cluster = Cluster::start_as(2, &threads, &arguments).await;
    run(&cluster.client().await, SCHEMA).await;
    settings(&cluster).await;
    beginning::own_settings(&cluster).await;
    beginning::unnamed(&cluster).await;
    beginning::limits_of_neighbours(&cluster).await;
    beginning::limits_at_commit(&cluster).await;
    beginning::limits_that_end_sessions(&cluster).await;
    beginning::of_the_database(&cluster).await;
    prepared(&cluster).await;
    hidden(&cluster).await;
    handed_on::no_meaning(&cluster).await;
    handed_on::no_forged_statement(&cluster).await;
    handed_on::nothing_unseen(&cluster).await;
    handed_on::nothing_of_whom_nobody_knows(&cluster).await;
    handed_on::no_others_settings(&cluster).await;
    meanings::of_one_session(&cluster).await;
    meanings::of_one_schema(&cluster).await;
    traces(&cluster).await;
    drawn(&cluster).await;
    waiting(&cluster).await;
    holders::a_second_connection(&cluster).await;
    holders::a_hot_row(&cluster).await;
    cancelling(&cluster).await;
    handed_on::no_cancel(&cluster).await;
    gone(&cluster).await;
    roles(&cluster).await;
    many(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn who_waits_for_too_long_is_told() {
    let arguments = ["--pool-mode", "transaction", "--pool-size", "2", "--pool-wait-ms", "1000"];
    let mut cluster = Cluster::start_as(2, &[], &arguments).await;
    holders::are_named(&cluster).await;
    holders::keep_nobody_else_waiting(&cluster).await;
    cluster.stop().await;
}

pub(crate) async fn pair(cluster: &Cluster) -> (Client, Client) {
    (cluster.client().await, cluster.client().await)
}

/// Asserts what a query says to each of two sessions, again and again, on every replica.
async fn says(query: &str, each: [(&Client, &str); 2]) {
    for _ in 0..4 {
        for (client, expected) in each {
            assert_eq!(value(client, query).await, expected, "{query}");
        }
    }
}

async fn settings(cluster: &Cluster) {
    let (a, b) = pair(cluster).await;
    let before = value(&b, "show work_mem").await;
    run(&a, "set work_mem = '1MB'").await;
    says("show work_mem", [(&a, "1MB"), (&b, &before)]).await;
    // Reads spread over the replicas, and the setting with them.
    says("select current_setting('work_mem') from t where k = 1", [(&a, "1MB"), (&b, &before)]).await;
    run(&a, "begin; set work_mem = '2MB'; insert into t values (100, 'x')").await;
    run(&a, "rollback").await;
    says("show work_mem", [(&a, "1MB"), (&b, &before)]).await;
    run(&a, "begin; savepoint s; set work_mem = '3MB'; rollback to s; commit").await;
    run(&b, "begin; set local work_mem = '4MB'; select 1; commit").await;
    says("show work_mem", [(&a, "1MB"), (&b, &before)]).await;
    run(&a, "reset work_mem").await;
    says("show work_mem", [(&a, &before), (&b, &before)]).await;
    run(&a, "set search_path = a").await;
    says("select v from w", [(&a, "in a"), (&b, "in public")]).await;
    run(&b, "set role reader; set application_name = 'b'").await;
    says("select current_user", [(&a, "postgres"), (&b, "reader")]).await;
    says("show application_name", [(&a, ""), (&b, "b")]).await;
    run(&a, "discard all").await;
    run(&b, "reset all; reset role").await;
    says("select v from w", [(&a, "in public"), (&b, "in public")]).await;
    // A value that is no constant, and a name that no server tells.
    a.query("select set_config('app.who', $1, false)", &[&"anna"]).await.unwrap();
    b.query("select set_config('app.who', $1, false)", &[&"bert"]).await.unwrap();
    assert_pinned(cluster, &[]).await;
    says("select current_setting('app.who', true)", [(&a, "anna"), (&b, "bert")]).await;
    run(&a, "reset app.who; set datestyle = 'SQL, DMY'").await;
    says("select '01/02/2003'::date::text", [(&a, "01/02/2003"), (&b, "2003-01-02")]).await;
    assert_eq!(value(&a, "select extract(month from '01/02/2003'::date)::text").await, "2");
    assert_pinned(cluster, &[]).await;
}

async fn prepared(cluster: &Cluster) {
    let (a, b) = pair(cluster).await;
    // The driver calls both by the same name.
    let of_a = a.prepare("select v from t where k = $1").await.unwrap();
    let of_b = b.prepare("select k + $1 from t where k = 7").await.unwrap();
    let same = b.prepare("select v from t where k = $1").await.unwrap();
    for n in 0..6 {
        assert_eq!(
            a.query_one(&of_a, &[&(n + 1)]).await.unwrap().get::<_, String>(0),
            format!("row {}", n + 1)
        );
        assert_eq!(b.query_one(&of_b, &[&n]).await.unwrap().get::<_, i32>(0), 7 + n);
        assert_eq!(b.query_one(&same, &[&2]).await.unwrap().get::<_, String>(0), "row 2");
    }
    // Pipelined, in two sessions at a time.
    let one: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&1];
    let (first, second, other) =
        tokio::join!(a.query(&of_a, &one), a.query(&of_a, &one), b.query(&of_b, &one));
    assert_eq!(first.unwrap()[0].get::<_, String>(0), second.unwrap()[0].get::<_, String>(0));
    assert_eq!(other.unwrap()[0].get::<_, i32>(0), 8);
    // The same text under other settings means something else.
    run(&a, "set search_path = a").await;
    let of_a = a.prepare("select v from w").await.unwrap();
    let of_b = b.prepare("select v from w").await.unwrap();
    for _ in 0..3 {
        assert_eq!(a.query_one(&of_a, &[]).await.unwrap().get::<_, String>(0), "in a");
        assert_eq!(b.query_one(&of_b, &[]).await.unwrap().get::<_, String>(0), "in public");
    }
    // What was closed by one is there for the other.
    drop(of_a);
    run(&a, "select 1").await;
    let all = b.prepare("select * from w").await.unwrap();
    assert_eq!(b.query_one(&all, &[]).await.unwrap().len(), 1);
    run(&a, "alter table public.w add column more int default 5").await;
    let again = a.prepare("select * from public.w").await.unwrap();
    assert_eq!(a.query_one(&again, &[]).await.unwrap().len(), 2);
    let fresh = cluster.client().await;
    assert_eq!(
        fresh.query_one("select * from w", &[]).await.unwrap().len(),
        2,
        "prepared again after the change"
    );
    for (client, names) in [(&a, "deallocate all"), (&b, "discard all")] {
        run(client, names).await;
    }
    assert_eq!(
        fresh.query_one("select v from t where k = $1", &[&3]).await.unwrap().get::<_, String>(0),
        "row 3"
    );
    let error = a.simple_query("deallocate nothing").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "26000");
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

/// What one session does to a connection by a way round is not felt by the next one.
async fn hidden(cluster: &Cluster) {
    let (a, b) = pair(cluster).await;
    run(&b, "grant select on t to reader").await;
    // A comment ends a statement, and nothing that comes after it.
    run(&a, "set work_mem = '1MB' -- for this one").await;
    run(&a, "set role reader").await;
    says("select current_user", [(&a, "reader"), (&b, "postgres")]).await;
    says("select current_user || v from t where k = 1", [(&a, "readerrow 1"), (&b, "postgresrow 1")]).await;
    // That is no setting of RESET ALL's; DISCARD ALL takes it away at every replica.
    run(&a, "reset all").await;
    says("select current_user || v from t where k = 1", [(&a, "readerrow 1"), (&b, "postgresrow 1")]).await;
    let of_a = "select current_user || v from t where k = 1";
    for _ in 0..4 {
        assert_eq!(value(&a, of_a).await, "readerrow 1");
    }
    run(&a, "discard all").await;
    for _ in 0..4 {
        assert_eq!(value(&a, of_a).await, "postgresrow 1");
    }
    // What another session has parsed without a name is not there for this one, nor is what has one of ours.
    let mut raw = [cluster::raw::Raw::connect(cluster.port), cluster::raw::Raw::connect(cluster.port)];
    let parsed = raw[0].exchange(|out| {
        wire::encode::parse(out, b"", b"select pg_backend_pid(), 'of another'", &[]);
        wire::encode::sync(out);
    });
    assert_eq!(parsed, [(wire::backend::tag::PARSE_COMPLETE, Vec::new())]);
    for name in [&b""[..], b"onecopy p1", b"onecopy applied"] {
        for describes in [false, true] {
            let answered = raw[1].exchange(|out| {
                if describes {
                    wire::encode::describe(out, wire::frontend::Target::Statement(name));
                } else {
                    wire::encode::bind(out, b"", name, &[], wire::encode::Format::Text);
                    wire::encode::execute(out, b"", 0);
                }
                wire::encode::sync(out);
            });
            let [(wire::backend::tag::ERROR_RESPONSE, body)] = answered.as_slice() else {
                panic!("{:?} is of another session: {answered:?}", String::from_utf8_lossy(name));
            };
            assert_eq!(wire::backend::Fields::new(body).sqlstate(), b"26000");
        }
    }
    code(cluster, &a, &b).await;
}

/// Nor what its code does.
async fn code(cluster: &Cluster, a: &Client, b: &Client) {
    // Code can end what is prepared on its connection.
    let known = b.prepare("select v from t where k = $1").await.unwrap();
    b.query_one(&known, &[&1]).await.unwrap();
    run(a, "do $$ begin execute 'deallocate all'; end $$").await;
    assert_eq!(b.query_one(&known, &[&1]).await.unwrap().get::<_, String>(0), "row 1");
    run(b, "insert into s (v) values (1)").await;
    run(b, "begin isolation level repeatable read; update t set v = v where k = 1; commit").await;
    // What reads a catalogue may do something else as well.
    run(a, "select pg_advisory_lock(13), relname from pg_class limit 1").await;
    assert_pinned(cluster, &["advisory lock"]).await;
    run(a, "select pg_advisory_unlock(13)").await;
    assert_pinned(cluster, &[]).await;
    // A limit of the client's holds for its statements, not for what is asked after them.
    for limit_ms in [1, 2, 5, 10, 20, 50, 100, 500, 5_000, 50_000] {
        let limited = a.simple_query(&format!("set statement_timeout = {limit_ms}")).await.is_ok();
        if limited && a.simple_query("select pg_advisory_lock(11)").await.is_ok() {
            break;
        }
    }
    let deadline = Instant::now() + WITHIN;
    while let Err(error) = a.simple_query("reset statement_timeout").await {
        assert!(Instant::now() < deadline, "{error:?}");
    }
    assert_pinned(cluster, &["advisory lock"]).await;
    run(a, "select pg_advisory_unlock_all()").await;
}

/// What a session leaves on its connection: each is kept, shown, and let go when it is undone.
const TRACES: [(&str, &str, &str); 9] = [
    ("create temp table mine (k int)", "temporary", "drop table mine"),
    ("select makes_temporary()", "temporary", "drop table made"),
    ("create function pg_temp.f() returns int language sql as 'select 1'", "temporary", "discard all"),
    ("select pg_advisory_lock(7)", "advisory lock", "select pg_advisory_unlock(7)"),
    ("listen news", "listen", "unlisten news"),
    ("begin; declare c cursor with hold for select 1; commit", "cursor with hold", "close c"),
    ("prepare p as select 1", "prepare", "deallocate p"),
    ("select setseed(0.5)", "setting", "discard all"),
    ("do $$ begin perform set_config('app.hidden', 'x', false); end $$", "function", "discard all"),
];

async fn traces(cluster: &Cluster) {
    let (a, b) = pair(cluster).await;
    for (leaves, why, undo) in TRACES {
        run(&a, leaves).await;
        assert_pinned(cluster, &[why]).await;
        run(&a, undo).await;
        assert_pinned(cluster, &[]).await;
        run(&b, "insert into s (v) values (1)").await;
    }
    // What is gone with its transaction keeps nothing.
    run(&a, "begin; create temp table mine (k int); rollback").await;
    run(&a, "begin; select pg_advisory_xact_lock(7); commit").await;
    assert_pinned(cluster, &[]).await;
    run(&b, REMEMBERS).await;
    // Code that sets what nobody sees is followed by nobody but its own connection.
    run(&a, "select remembers('anna')").await;
    assert_pinned(cluster, &["function"]).await;
    assert_eq!(value(&a, "select current_setting('app.name', true)").await, "anna");
    drop(a);
    let c = cluster.client().await;
    run(&c, "insert into s (v) values (1)").await;
    assert_eq!(value(&c, "select coalesce(current_setting('app.name', true), '')").await, "");
}

async fn drawn(cluster: &Cluster) {
    let (a, b) = pair(cluster).await;
    run(&a, "insert into s (v) values (1)").await;
    let own = value(&a, "select max(id)::text from s").await;
    // Nobody has used the connection since; and from now on nobody does.
    assert_eq!(value(&a, "select currval('s_id_seq')").await, own);
    assert_pinned(cluster, &["currval"]).await;
    run(&a, "discard sequences").await;
    assert_pinned(cluster, &[]).await;
    let c = cluster.client().await;
    for (draw, ask) in [
        ("insert into s (v) values (1)", "select currval('s_id_seq')"),
        ("select nextval('s_id_seq')", "select lastval()"),
    ] {
        let c = cluster.client().await;
        run(&c, draw).await;
        run(&b, "select nextval('s_id_seq')").await;
        let error = c.simple_query(ask).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "0A000", "{error:?}");
        // It is known now that it asks.
        run(&c, draw).await;
        let (own, max) = (value(&c, ask).await, value(&c, "select last_value from s_id_seq").await);
        assert_eq!(own, max);
    }
    drop(a);
    run(&c, "select 1").await;
    // Nobody is told what others drew on his connection.
    run(&b, "select nextval('s_id_seq')").await;
    // Where that was: at the anchor.
    run(&c, "begin; select pg_advisory_xact_lock(1)").await;
    let error = c.simple_query("select lastval()").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "55000", "{error:?}");
    run(&c, "rollback").await;
}

async fn waiting(cluster: &Cluster) {
    const INSERT: &str = "insert into s (v) values (1)";
    let ((a, b), (hasty, stopped)) = (pair(cluster).await, pair(cluster).await);
    run(&hasty, "set statement_timeout = '100ms'").await;
    let mut raw = cluster::raw::Raw::connect(cluster.port);
    for name in [&b"one"[..], b"two"] {
        let parsed = raw.exchange(|out| {
            wire::encode::parse(out, name, b"select v from s where id = $1", &[23]);
            wire::encode::sync(out);
        });
        assert_eq!(parsed, [(wire::backend::tag::PARSE_COMPLETE, Vec::new())]);
    }
    run(&a, "begin; create table never (k int)").await;
    let begun = Instant::now();
    // A limit of the client's own is met first, and it need not wait any longer than it wants.
    let error = hasty.simple_query(INSERT).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "57014", "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("SHOW POOLS")), "{error:?}");
    // What is known to be well formed needs no connection to be prepared.
    let parsed = raw.exchange(|out| {
        wire::encode::parse(out, b"again", b"select v from s where id = $1", &[23]);
        wire::encode::sync(out);
    });
    assert_eq!(parsed, [(wire::backend::tag::PARSE_COMPLETE, Vec::new())]);
    let stop = stopped.cancel_token();
    let (ended, ()) = tokio::join!(stopped.simple_query(INSERT), async {
        let admin = cluster.try_client("onecopy").await.unwrap();
        let deadline = Instant::now() + WITHIN;
        loop {
            let pools = rows(&admin, "show pools").await;
            if (pools[0]["cl_waiting"].as_str(), pools[0]["sv_active"].as_str()) == ("1", "1") {
                break;
            }
            assert!(Instant::now() < deadline, "{pools:?}");
        }
        stop.cancel_query(NoTls).await.unwrap();
    });
    assert_eq!(ended.unwrap_err().code().unwrap().code(), "57014");
    let (waited, ()) = tokio::join!(b.simple_query(INSERT), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        run(&a, "rollback").await;
    });
    waited.unwrap();
    // Its limit may be short for a slow machine; then nothing else comes of it.
    while let Err(error) = hasty.simple_query(INSERT).await {
        assert_eq!(error.code().unwrap().code(), "57014", "{error:?}");
        assert!(begun.elapsed() < WITHIN, "{error:?}");
    }
}

/// A cancel request hits the statement that it was meant for, or nothing.
async fn cancelling(cluster: &Cluster) {
    let (a, b) = pair(cluster).await;
    let stop = a.cancel_token();
    let (slept, ()) = tokio::join!(a.simple_query("select pg_sleep(20) from t"), async {
        let admin = cluster.try_client("onecopy").await.unwrap();
        let is_active =
            |row: &BTreeMap<String, String>| row["database"] == "postgres" && row["sv_active"] != "0";
        while !rows(&admin, "show pools").await.iter().any(is_active) {}
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.cancel_query(NoTls).await.unwrap();
    });
    assert_eq!(slept.unwrap_err().code().unwrap().code(), "57014");
    let mut hits = 0;
    for n in 0..60 {
        let short = format!("select pg_sleep({})", f64::from(n % 6) / 1000.0);
        let (cancelled, stopped, other) = tokio::join!(
            a.simple_query(&short),
            stop.cancel_query(NoTls),
            b.simple_query("select pg_sleep(0.004)")
        );
        stopped.unwrap();
        hits += usize::from(cancelled.is_err());
        other.unwrap_or_else(|error| panic!("it was meant for another session: {error:?}"));
        run(&b, "select pg_sleep(0.001)").await;
    }
    assert!(hits < 60, "some are over before they can be cancelled");
}

/// Whoever goes in the middle of a transaction leaves a clean connection.
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
        // The server may take a moment to end what belonged to it.
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
    // One to each replica, and two more for who has a transaction open at the other one.
    assert!(number("sv_active") + number("sv_idle") <= 2 * (1 + 2), "{pool:?}");
    assert!(number("cl_active") + number("cl_waiting") >= IDLE, "{pool:?}");
    assert_eq!(pool["pool_mode"], "transaction");
    for client in &idle {
        run(client, "select 1").await;
    }
}
