//! What a session leaves on its connection, so that it keeps the connection.

use crate::cluster::{Cluster, run, value};
use crate::{assert_pinned, pair};

/// Sets a custom setting, which no server reports.
const REMEMBERS: &str = "create function remembers(name text) returns text language sql as \
                         $$ select set_config('app.name', name, false) $$";

/// State that pins a session to its connection: the statement, the reason shown, and the statement that undoes it.
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

pub(crate) async fn traces(cluster: &Cluster) {
    let (a, b) = pair(cluster).await;
    for (leaves, why, undo) in TRACES {
        run(&a, leaves).await;
        assert_pinned(cluster, &[why]).await;
        run(&a, undo).await;
        assert_pinned(cluster, &[]).await;
        run(&b, "insert into s (v) values (1)").await;
    }
    // State that ends with its transaction pins no session.
    run(&a, "begin; create temp table mine (k int); rollback").await;
    run(&a, "begin; select pg_advisory_xact_lock(7); commit").await;
    assert_pinned(cluster, &[]).await;
    run(&b, REMEMBERS).await;
    // A session whose code may have changed settings keeps its connection.
    run(&a, "select remembers('anna')").await;
    assert_pinned(cluster, &["function"]).await;
    assert_eq!(value(&a, "select current_setting('app.name', true)").await, "anna");
    drop(a);
    let c = cluster.client().await;
    run(&c, "insert into s (v) values (1)").await;
    assert_eq!(value(&c, "select coalesce(current_setting('app.name', true), '')").await, "");
}

pub(crate) async fn drawn(cluster: &Cluster) {
    let (a, b) = pair(cluster).await;
    run(&a, "insert into s (v) values (1)").await;
    let own = value(&a, "select max(id)::text from s").await;
    // No other session has used the connection since, and from now on none does.
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
        // From now on Onecopy expects the session to ask.
        run(&c, draw).await;
        let (own, max) = (value(&c, ask).await, value(&c, "select last_value from s_id_seq").await);
        assert_eq!(own, max);
    }
    drop(a);
    run(&c, "select 1").await;
    // A session does not see the values that others drew on its connection.
    run(&b, "select nextval('s_id_seq')").await;
    // Where that was: at the anchor.
    run(&c, "begin; select pg_advisory_xact_lock(1)").await;
    let error = c.simple_query("select lastval()").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "55000", "{error:?}");
    run(&c, "rollback").await;
}
