//! Settings and prepared statements follow their session from one connection to the next, and no other session.

use std::time::Instant;

use tokio_postgres::Client;

use crate::cluster::{Cluster, raw, run, value};
use crate::{WITHIN, assert_pinned, pair};

/// Asserts the answer of a query in each of two sessions, repeatedly, so that every replica answers.
async fn says(query: &str, each: [(&Client, &str); 2]) {
    for _ in 0..4 {
        for (client, expected) in each {
            assert_eq!(value(client, query).await, expected, "{query}");
        }
    }
}

pub(crate) async fn settings(cluster: &Cluster) {
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

pub(crate) async fn prepared(cluster: &Cluster) {
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
    // A statement that one session has closed is still there for the other.
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

/// Indirect changes of a connection by one session do not affect the next one.
pub(crate) async fn hidden(cluster: &Cluster) {
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
    // A session has neither the unnamed statement of another one, nor statements with names of Onecopy.
    let mut raw = [raw::Raw::connect(cluster.port), raw::Raw::connect(cluster.port)];
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

/// Neither do changes by code.
async fn code(cluster: &Cluster, a: &Client, b: &Client) {
    // Code can deallocate the statements of its connection.
    let known = b.prepare("select v from t where k = $1").await.unwrap();
    b.query_one(&known, &[&1]).await.unwrap();
    run(a, "do $$ begin execute 'deallocate all'; end $$").await;
    assert_eq!(b.query_one(&known, &[&1]).await.unwrap().get::<_, String>(0), "row 1");
    run(b, "insert into s (v) values (1)").await;
    run(b, "begin isolation level repeatable read; update t set v = v where k = 1; commit").await;
    // A query of a catalogue may have another effect as well.
    run(a, "select pg_advisory_lock(13), relname from pg_class limit 1").await;
    assert_pinned(cluster, &["advisory lock"]).await;
    run(a, "select pg_advisory_unlock(13)").await;
    assert_pinned(cluster, &[]).await;
    // The client's time-out applies to its own statements, not to queries of Onecopy after them.
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
