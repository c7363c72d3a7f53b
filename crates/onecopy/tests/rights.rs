//! Promise: no role gets rights, or sees secrets, that it would not have on one PostgreSQL, whatever objects it creates as
//! traps for other roles.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
#[path = "rights/code.rs"]
mod code;
#[path = "rights/traps.rs"]
mod traps;

use std::time::{Duration, Instant};

use cluster::{Cluster, Replica, connect, run, value};
use tokio_postgres::{Client, NoTls};

#[tokio::test]
async fn a_role_gets_no_rights_of_others() {
    let mut cluster = Cluster::start(2).await;
    let root = cluster.client().await;
    run(
        &root,
        "create role mallory login createrole; create role eve login superuser; create role app login",
    )
    .await;
    traps::statements_of_onecopy_call_nothing_of_a_users_schema(&cluster, &root).await;
    nothing_that_a_role_can_read_opens_a_server(&cluster, &root).await;
    code::code_in_a_schema_change_becomes_no_superuser(&cluster, &root).await;
    explain_tells_a_role_nothing_of_tables_without_rights(&cluster, &root).await;
    code::code_that_rows_call_becomes_no_superuser(&cluster, &root).await;
    code::code_finds_nothing_in_schemas_of_strangers(&cluster, &root).await;
    rows_that_a_role_makes_up_prove_nothing(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// No value that a role can read through Onecopy or in the catalogues opens the server's own port to it.
async fn nothing_that_a_role_can_read_opens_a_server(cluster: &Cluster, root: &Client) {
    run(
        root,
        "create table public.secrets (k int primary key, open int, hidden text); insert into secrets values (1, 1, 'x');
         grant insert, update (open), select (k, open) on secrets to mallory; grant create on schema public to mallory;
         create table public.ours (v int); alter table ours owner to mallory",
    )
    .await;
    let mallory = login(cluster, "mallory").await;
    // Settings of her session, and every word in the functions' sources.
    let settings = "select string_agg(format('set %s = %L', name, setting), ';') from (
         select name, setting from pg_settings where source in ('client', 'session') union all
         select 'onecopy.' || word, current_setting('onecopy.' || word, true) from unnest('{via,ddl}'::text[]) as word
     ) as known(name, setting) where setting is not null";
    let settings = value(&mallory, settings).await;
    let words = "select string_agg(distinct word[1], ' ') from pg_proc,
         regexp_matches(prosrc, '([0-9a-z_]*[0-9a-f]{32})', 'g') as word where pronamespace::regnamespace::text ~ 'onecopy'";
    let words = value(&mallory, words).await;
    assert!(words.split(' ').count() >= 3, "{words}");
    for replica in cluster.caught_up().await {
        let direct = login_at(replica.port, "mallory").await;
        for set in settings.split(';').filter(|set| !set.is_empty()) {
            let _ = direct.simple_query(set).await;
        }
        run(&direct, "set default_transaction_read_only = off").await;
        for word in words.split(' ') {
            for setting in ["onecopy.via", "onecopy.ddl", "backtrace_functions"] {
                let _ = direct.simple_query(&format!("set {setting} = '{word}'")).await;
            }
            for statement in [
                "update secrets set open = 2",
                "insert into secrets values (2, 2, 'y')",
                "insert into ours values (1)",
                "truncate ours",
                "alter table ours disable trigger all",
                "create table public.theirs (v int)",
            ] {
                let error = direct.simple_query(statement).await.expect_err(statement);
                let code = error.code().unwrap().code();
                assert!(matches!(code, "25006" | "0A000" | "42501"), "{statement} with {word}: {error:?}");
            }
        }
        for attempt in [
            "select onecopy.vouch(repeat('0', 64))",
            "table onecopy_capture.voucher",
            "table onecopy_capture.vouched",
        ] {
            assert_eq!(direct.simple_query(attempt).await.unwrap_err().code().unwrap().code(), "42501");
        }
    }
    a_session_may_reset_all(&mallory).await;
    run(root, "drop table secrets, ours; revoke create on schema public from mallory").await;
}

/// RESET ALL removes the mark by which the server knows a session; Onecopy sets it again.
async fn a_session_may_reset_all(mallory: &Client) {
    for reset in ["reset all", "do $$ begin execute 'reset all'; end $$", "discard all"] {
        run(mallory, reset).await;
        run(
            mallory,
            "insert into ours values (7); create table public.short (v int); drop table public.short",
        )
        .await;
        run(mallory, &format!("begin; {}; delete from ours; commit", reset.replace("discard", "reset")))
            .await;
    }
    assert_eq!(value(mallory, "select count(*) from ours").await, "0");
}

/// Asserts that mallory is no superuser at any replica, once all have applied her writes.
async fn no_role_has_gained_rights(cluster: &Cluster, what: &str) {
    for replica in cluster.caught_up().await {
        assert_eq!(replica.state, "up", "{what} at {}", replica.name);
        let direct = cluster.direct(&replica).await;
        let rights = "select rolsuper from pg_roles where rolname = 'mallory'";
        assert_eq!(value(&direct, rights).await, "f", "{what} at {}", replica.name);
    }
}

/// EXPLAIN (ROUTING) asks for the rights that EXPLAIN asks for: those of the role that counts in the session.
async fn explain_tells_a_role_nothing_of_tables_without_rights(cluster: &Cluster, root: &Client) {
    run(
        root,
        "create table public.seen (k int primary key, v int); create table public.hidden (k int primary key, v int);
         grant select on seen to mallory; grant select (k) on hidden to mallory;
         create schema closed; create table closed.t (v int); grant select on closed.t to mallory;
         create view public.some as select v from hidden; grant select on public.some to mallory;
         alter role mallory noinherit; create role reader; grant reader to mallory;
         grant select, update on hidden to reader",
    )
    .await;
    let mallory = login(cluster, "mallory").await;
    for allowed in [
        "select * from seen where k = $1",
        "select k from hidden",
        "select v from public.some where v = $2",
        "select $65535::int",
    ] {
        run(&mallory, &format!("explain (routing) {allowed}")).await;
    }
    for (statement, denied) in [
        ("select v from hidden where k = 1", "table hidden"),
        ("select seen.v from seen join hidden using (k) where hidden.v = $1", "table hidden"),
        ("insert into hidden values ($1, $2)", "table hidden"),
        ("update seen set v = 1 where k = 1", "table seen"),
        ("delete from seen where k in (select k from hidden)", "table seen"),
        ("select * from closed.t", "schema closed"),
    ] {
        let text = format!("explain (routing, costs off) {statement}");
        let message = Some(format!("permission denied for {denied}"));
        assert_eq!(refused(&mallory, &text).await, ("42501".to_owned(), message.clone()), "{statement}");
        let error = mallory.query(&text, &[]).await.expect_err(statement);
        assert_eq!(error.as_db_error().map(|error| error.message().to_owned()), message, "{statement}");
    }
    // Inside transactions, which fail as they do with any other error.
    for before in ["select 1", "set local statement_timeout = 0", "create temp table mine (v int)"] {
        for begin in ["begin", "begin read only", "begin isolation level serializable"] {
            if before.starts_with("create") && begin.ends_with("only") {
                continue;
            }
            run(&mallory, &format!("{begin}; {before}; explain (routing) table seen")).await;
            assert_eq!(
                refused(&mallory, "explain (routing) table hidden").await.0,
                "42501",
                "{begin}; {before}"
            );
            assert_eq!(refused(&mallory, "select 1").await.0, "25P02", "{begin}; {before}");
            run(&mallory, "rollback").await;
        }
    }
    run(
        &mallory,
        "begin; create temp table mine (v int); explain (routing) table mine; set local role reader",
    )
    .await;
    run(&mallory, "explain (routing) update hidden set v = 1; commit").await;
    assert_eq!(refused(&mallory, "explain (routing) update hidden set v = 1").await.0, "42501");
    run(root, "set role mallory").await;
    assert_eq!(refused(root, "explain (routing) table hidden").await.0, "42501");
    run(root, "reset role; explain (routing) table hidden").await;
    // An error of PostgreSQL has its position in the client's text.
    let error =
        root.simple_query("  select 1; explain (routing) /* \u{e9} */ select nothing").await.unwrap_err();
    let place = tokio_postgres::error::ErrorPosition::Original(46);
    assert_eq!(error.as_db_error().unwrap().position(), Some(&place));
    assert_eq!(refused(root, "explain (routing) select $65536::int").await.0, "54000");
    run(
        root,
        "drop view public.some; drop table seen, hidden, closed.t; drop schema closed; drop role reader",
    )
    .await;
}

/// The error that a statement gets: its code and message.
async fn refused(client: &Client, statement: &str) -> (String, Option<String>) {
    let error = client.simple_query(statement).await.expect_err(statement);
    let message = error.as_db_error().map(|error| error.message().to_owned());
    (error.code().unwrap().code().to_owned(), message)
}

/// By its rows in `onecopy.applied` a server tells, when it comes back, which transactions it has. They would look like those
/// of a log that was lost.
async fn rows_that_a_role_makes_up_prove_nothing(cluster: &Cluster) {
    const ROWS: i64 = 30_000;
    let mallory = login(cluster, "mallory").await;
    run(
        &mallory,
        &format!("do $$ begin insert into onecopy.applied select 99, g, 7, g from generate_series(1, {ROWS}) g; end $$"),
    )
    .await;
    // It stays where it was written, as it is no transaction's.
    let count = async |replica: &Replica| {
        let direct = connect(&replica.host, replica.port, "postgres").await.ok()?;
        let count = "select count(*) from onecopy.applied where epoch = 99";
        direct.query_one(count, &[]).await.ok().map(|row| row.get::<_, i64>(0))
    };
    let mut hit = None;
    for replica in cluster.caught_up().await {
        if count(&replica).await == Some(ROWS) {
            hit = Some(replica);
        }
    }
    let hit = hit.expect("the rows are somewhere");
    // So that they outlast the server.
    run(&cluster.direct(&hit).await, "checkpoint").await;
    cluster.kill_server(&hit, true);
    let deadline = Instant::now() + Duration::from_mins(2);
    loop {
        let states: Vec<String> = cluster.replicas().await.into_iter().map(|replica| replica.state).collect();
        assert!(Instant::now() < deadline && !states.contains(&"quarantined".to_owned()), "{states:?}");
        if states.iter().all(|state| state == "up") && count(&hit).await == Some(0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A client that logs in as another role.
async fn login(cluster: &Cluster, role: &str) -> Client {
    login_at(cluster.port, role).await
}

async fn login_at(port: u16, role: &str) -> Client {
    let settings = format!("host=127.0.0.1 port={port} user={role} dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}
