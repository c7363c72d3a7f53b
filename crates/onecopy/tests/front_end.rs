//! Regressions of the front end: each function covers one defect that an attempt to break it has found.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use cluster::raw::Raw;
use cluster::{Cluster, run, table, value};
use futures_util::{SinkExt as _, TryStreamExt as _, pin_mut};
use tokio_postgres::Client;
use wire::backend::tag;
use wire::encode;

/// Less than the minute for which something waited here once.
const PATIENCE: Duration = Duration::from_secs(40);

#[tokio::test]
async fn former_bugs_of_the_front_end() {
    let mut cluster = Cluster::start(3).await;
    fresh(&cluster).await;
    a_statement_that_was_closed_is_gone(&cluster);
    a_session_has_no_number_of_a_process(&cluster).await;
    a_deferrable_transaction_says_so(&cluster).await;
    a_schema_change_does_not_commit_the_transaction_around_it(&cluster).await;
    fresh(&cluster).await;
    what_execute_reads_is_never_stale(&cluster).await;
    fresh(&cluster).await;
    a_transaction_whose_home_is_lost_stays_failed_until_it_is_ended(&cluster).await;
    fresh(&cluster).await;
    a_commit_that_fails_ends_the_transaction(&cluster).await;
    fresh(&cluster).await;
    a_cursor_with_hold_that_fails_at_commit_fails_only_that_commit(&cluster).await;
    fresh(&cluster).await;
    temporary_tables_have_deferred_constraints_too(&cluster).await;
    fresh(&cluster).await;
    large_objects_are_refused_inside_functions_too(&cluster).await;
    fresh(&cluster).await;
    capture_cannot_be_switched_off_inside_a_function(&cluster).await;
    fresh(&cluster).await;
    triggers_that_always_fire_do_not_fire_at_refresh(&cluster).await;
    fresh(&cluster).await;
    schema_changes_that_need_a_temporary_table_or_compute_values_are_refused(&cluster).await;
    fresh(&cluster).await;
    a_lone_transaction_may_write_in_a_trigger(&cluster).await;
    fresh(&cluster).await;
    copy_in_the_extended_protocol_ends(&cluster).await;
    fresh(&cluster).await;
    a_portal_lives_as_long_as_its_transaction(&cluster).await;
    fresh(&cluster).await;
    an_unnamed_portal_lives_over_batches(&cluster).await;
    fresh(&cluster).await;
    a_query_with_a_nul_is_an_error(&cluster).await;
    a_length_that_a_message_cannot_have_ends_the_session(&cluster);
    a_statement_may_declare_40_000_parameters(&cluster).await;
    a_parameter_may_be_larger_than_a_batch(&cluster).await;
    fresh(&cluster).await;
    a_name_is_free_again_when_its_parse_failed(&cluster).await;
    fresh(&cluster).await;
    the_first_write_of_a_connection_may_fail(&cluster).await;
    fresh(&cluster).await;
    a_second_verify_is_told_at_once(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// DEALLOCATE closes a statement that Parse has prepared, and so does Close in a failed transaction.
fn a_statement_that_was_closed_is_gone(cluster: &Cluster) {
    let mut raw = Raw::connect(cluster.port);
    let parse = |raw: &mut Raw, sql: &str| {
        raw.exchange(|out| {
            encode::parse(out, b"ps", sql.as_bytes(), &[]);
            encode::sync(out);
        })
    };
    let ask = |raw: &mut Raw| {
        let told = raw.exchange(|out| {
            encode::bind(out, b"", b"ps", &[], encode::Format::Text);
            encode::execute(out, b"", 0);
            encode::sync(out);
        });
        let error = told.iter().find(|(tag, _)| *tag == tag::ERROR_RESPONSE);
        let code = error.map(|(_, body)| wire::backend::Fields::new(body).sqlstate().to_vec());
        let row = told.iter().find(|(tag, _)| *tag == tag::DATA_ROW).map(|(_, body)| body[6..].to_vec());
        String::from_utf8(code.or(row).unwrap()).unwrap()
    };
    let fails = |raw: &mut Raw| {
        raw.exchange(|out| encode::query(out, b"begin"));
        raw.exchange(|out| encode::query(out, b"select 1/0"));
    };
    let closes = |raw: &mut Raw| {
        raw.exchange(|out| {
            encode::close(out, wire::frontend::Target::Statement(b"ps"));
            encode::sync(out);
        })
    };
    // Often enough for it to be prepared at every replica.
    for _ in 0..3 {
        for in_transaction in [false, true] {
            assert_eq!(parse(&mut raw, "select 'old'"), [(tag::PARSE_COMPLETE, Vec::new())]);
            (0..6).for_each(|_| assert_eq!(ask(&mut raw), "old"));
            if in_transaction {
                fails(&mut raw);
                assert_eq!(closes(&mut raw), [(tag::CLOSE_COMPLETE, Vec::new())]);
                raw.exchange(|out| encode::query(out, b"rollback"));
            } else {
                raw.exchange(|out| encode::query(out, b"deallocate ps"));
            }
            assert_eq!(ask(&mut raw), "26000");
            // Nor is it there for SQL, at the home.
            let told = raw.exchange(|out| encode::query(out, b"execute ps"));
            let [(tag::ERROR_RESPONSE, body)] = told.as_slice() else { panic!("it is there: {told:?}") };
            assert_eq!(wire::backend::Fields::new(body).sqlstate(), b"26000");
            assert_eq!(parse(&mut raw, "select 'new'"), [(tag::PARSE_COMPLETE, Vec::new())]);
            (0..6).for_each(|_| assert_eq!(ask(&mut raw), "new"));
            assert_eq!(closes(&mut raw), [(tag::CLOSE_COMPLETE, Vec::new())]);
        }
    }
}

/// A server that is asked to end the session's number finds no process of its own under it.
async fn a_session_has_no_number_of_a_process(cluster: &Cluster) {
    const PIDS_MAX: i32 = 1 << 22;
    let (raw, told) = Raw::connect_as(
        cluster.port,
        &[("user", "postgres"), ("database", "postgres"), ("application_name", "n")],
    );
    let (_, key) = told.iter().find(|(tag, _)| *tag == tag::BACKEND_KEY_DATA).unwrap();
    let pid = i32::from_be_bytes(key[..4].try_into().unwrap());
    assert!(pid > PIDS_MAX, "{pid}");
    let admin = cluster.try_client("onecopy").await.unwrap();
    let clients = cluster::rows(&admin, "show clients").await;
    assert!(clients.iter().any(|row| row["application_name"] == "n"), "{clients:?}");
    run(&admin, &format!("kill {pid}")).await;
    drop(raw);
}

async fn a_deferrable_transaction_says_so(cluster: &Cluster) {
    let client = cluster.client().await;
    for begin in ["begin deferrable", "begin isolation level serializable read only deferrable"] {
        run(&client, begin).await;
        assert_eq!(value(&client, "show transaction_deferrable").await, "on", "{begin}");
        assert_eq!(value(&client, "select current_setting('transaction_deferrable')").await, "on", "{begin}");
        run(&client, "commit").await;
        assert_eq!(value(&client, "show transaction_deferrable").await, "off");
    }
}

/// Every case begins without the tables of the one before.
async fn fresh(cluster: &Cluster) {
    let client = cluster.client().await;
    run(&client, "drop table if exists a, b, c, l, t cascade").await;
}

async fn a_schema_change_does_not_commit_the_transaction_around_it(cluster: &Cluster) {
    let client = cluster.client().await;
    run(&client, "create table a (v int)").await;
    for statement in ["begin", "insert into a values (1)", "create table b (v int)", "rollback"] {
        run(&client, statement).await;
    }
    assert_eq!(value(&client, "select count(*) from a").await, "0");
    assert!(client.simple_query("select * from b").await.is_err());
}

async fn what_execute_reads_is_never_stale(cluster: &Cluster) {
    let (writer, reader) = (cluster.client().await, cluster.client().await);
    run(&writer, "create table t (id int primary key, v int); insert into t values (1, 0)").await;
    run(&reader, "prepare p as select v from t where id = 1").await;
    for n in 1..=500 {
        run(&writer, &format!("update t set v = {n} where id = 1")).await;
        assert_eq!(value(&reader, "execute p").await, n.to_string());
    }
}

/// A client inside a transaction whose backend has ended.
async fn with_lost_transaction(cluster: &Cluster) -> Client {
    let client = cluster.client().await;
    run(&client, "create table t (v int)").await;
    run(&client, "begin").await;
    run(&client, "insert into t values (1)").await;
    let home = cluster.direct(&cluster.replicas().await[0]).await;
    run(&home, "select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction'")
        .await;
    client
}

async fn a_transaction_whose_home_is_lost_stays_failed_until_it_is_ended(cluster: &Cluster) {
    let client = with_lost_transaction(cluster).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let told = tokio::time::timeout(PATIENCE, client.simple_query("insert into t values (2)")).await;
    assert!(told.expect("it is told").is_err());
    // On PostgreSQL: 25P02. Here it ran by itself, and was committed.
    assert!(client.simple_query("insert into t values (3)").await.is_err());
    let _ = client.simple_query("commit").await;
    assert_eq!(value(&client, "select count(*) from t").await, "0");
}

async fn a_commit_that_fails_ends_the_transaction(cluster: &Cluster) {
    let client = with_lost_transaction(cluster).await;
    let error = client.simple_query("commit").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "40001");
    assert_eq!(value(&client, "select count(*) from t").await, "0");
}

async fn a_cursor_with_hold_that_fails_at_commit_fails_only_that_commit(cluster: &Cluster) {
    let (client, bystander) = (cluster.client().await, cluster.client().await);
    run(&client, "create table t (v int)").await;
    run(&bystander, "begin").await;
    run(&bystander, "insert into t values (1)").await;
    run(&client, "begin").await;
    run(&client, "insert into t values (2)").await;
    run(&client, "declare c cursor with hold for select 1 / (g - 3) from generate_series(1, 5) g").await;
    assert!(client.simple_query("commit").await.is_err());
    assert_eq!(value(&client, "select count(*) from t").await, "0");
    // It waited for a minute here: the Abort had been taken from the mailbox while the session was idle, and dropped.
    let told = tokio::time::timeout(PATIENCE, bystander.simple_query("select 1")).await;
    assert!(told.is_ok());
}

async fn temporary_tables_have_deferred_constraints_too(cluster: &Cluster) {
    let client = cluster.client().await;
    run(&client, "create table t (v int)").await;
    run(&client, "create temp table u (v int unique deferrable initially deferred)").await;
    for statement in ["begin", "insert into t values (1)", "insert into u values (1), (1)"] {
        run(&client, statement).await;
    }
    assert!(client.simple_query("commit").await.is_err());
    assert_eq!(value(&client, "select count(*) from t").await, "0");
}

async fn large_objects_are_refused_inside_functions_too(cluster: &Cluster) {
    let client = cluster.client().await;
    let error = client.simple_query("do $$ begin perform lo_create(0); end $$").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "0A000");
    assert_eq!(value(&client, "select count(*) from pg_largeobject_metadata").await, "0");
}

async fn capture_cannot_be_switched_off_inside_a_function(cluster: &Cluster) {
    let client = cluster.client().await;
    run(&client, "create table t (v int)").await;
    let _ = client
        .simple_query(
            "do $$ begin set local session_replication_role = replica; insert into t values (1); end $$",
        )
        .await;
    cluster.verify().await;
}

async fn triggers_that_always_fire_do_not_fire_at_refresh(cluster: &Cluster) {
    let client = cluster.client().await;
    run(&client, "create table t (v int); create table l (v int)").await;
    run(&client, "create rule r as on insert to t do also insert into public.l values (new.v)").await;
    let _ = client.simple_query("alter table t enable always rule r").await;
    run(&client, "insert into t values (1)").await;
    cluster.verify().await;
}

async fn schema_changes_that_need_a_temporary_table_or_compute_values_are_refused(cluster: &Cluster) {
    let client = cluster.client().await;
    run(&client, "create temp table x (v int)").await;
    let _ = client.simple_query("create function f(x) returns int language sql as 'select 1'").await;
    let _ = client.simple_query("create domain d as float8 default random()").await;
    run(&client, "create table t (v int); insert into t values (1)").await;
    let _ = client.simple_query("alter table t add column r d").await;
    run(&client, "create table c (v text); insert into c values ('now')").await;
    let _ = client.simple_query("alter table c alter v type timestamptz using v::timestamptz").await;
    cluster.verify().await;
}

async fn a_lone_transaction_may_write_in_a_trigger(cluster: &Cluster) {
    // Its own number is the newest there is, so it was taken for one of the future.
    let client = cluster.client().await;
    run(&client, "create table t (v int)").await;
    run(&client, "do $$ begin insert into t values (1); end $$").await;
    assert_eq!(value(&client, "select count(*) from t").await, "1");
}

async fn copy_in_the_extended_protocol_ends(cluster: &Cluster) {
    let client = cluster.client().await;
    run(&client, "create table t (v int)").await;
    let copied = async {
        let sink = client.copy_in("copy t from stdin").await?;
        pin_mut!(sink);
        sink.send(Bytes::from_static(b"1\n2\n")).await?;
        sink.finish().await
    };
    let copied = tokio::time::timeout(PATIENCE, copied).await;
    assert_eq!(copied.unwrap().unwrap(), 2);
}

async fn a_portal_lives_as_long_as_its_transaction(cluster: &Cluster) {
    let mut client = cluster.client().await;
    let statement = client.prepare("select g from generate_series(1, 5) g").await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind(&statement, &[]).await.unwrap();
    assert_eq!(transaction.query_portal(&portal, 2).await.unwrap().len(), 2);
    assert_eq!(transaction.query_portal(&portal, 9).await.unwrap().len(), 3);
}

/// An unnamed portal can be executed in later batches of its transaction, however Onecopy runs these, and beside named
/// statements.
async fn an_unnamed_portal_lives_over_batches(cluster: &Cluster) {
    let client = cluster.client().await;
    run(&client, "create table copied (k int primary key); create table drawn (k serial primary key, v int)")
        .await;
    let port = cluster.port;
    let ask = move || {
        let mut raw = Raw::connect(port);
        raw.exchange(|out| encode::query(out, b"begin"));
        let copy = b"insert into copied select g from generate_series($1::int, $1::int + 4) g returning k";
        let execute = |out: &mut Vec<u8>, portal: &[u8], rows_max| {
            encode::execute(out, portal, rows_max);
            encode::sync(out);
        };
        let mut told = raw.exchange(|out| {
            encode::parse(out, b"copy", copy, &[23]);
            encode::bind(out, b"", b"copy", &[Some(b"10")], encode::Format::Text);
            encode::sync(out);
        });
        told.extend(raw.exchange(|out| execute(out, b"", 2)));
        for (portal, sql) in
            [(b"p", &copy[..]), (b"q", b"insert into drawn (v) values ($1::int) returning v")]
        {
            told.extend(raw.exchange(|out| {
                encode::parse(out, portal, sql, &[23]);
                encode::bind(out, portal, portal, &[Some(b"20")], encode::Format::Text);
                execute(out, portal, 0);
            }));
        }
        told.extend(raw.exchange(|out| execute(out, b"", 0)));
        raw.exchange(|out| encode::query(out, b"commit"));
        let seen = |(tag, body): (u8, Vec<u8>)| match tag {
            tag::DATA_ROW => {
                let row = wire::backend::data_row(&body).unwrap();
                String::from_utf8(row[0].unwrap().to_vec()).unwrap()
            }
            other => char::from(other).to_string(),
        };
        told.into_iter().map(seen).collect::<Vec<_>>().join(" ")
    };
    let told = tokio::task::spawn_blocking(ask).await.unwrap();
    assert_eq!(told, "1 2 10 11 s 1 2 20 21 22 23 24 C 1 2 20 C 12 13 14 C");
}

/// A text that goes on behind a NUL is refused, and the session goes on.
async fn a_query_with_a_nul_is_an_error(cluster: &Cluster) {
    let port = cluster.port;
    let ask = move || {
        let mut raw = Raw::connect(port);
        let mut told = raw.exchange(|out| encode::query(out, b"select 1\0; drop table t"));
        told.extend(raw.exchange(|out| encode::query(out, b"select 2")));
        told
    };
    let told = tokio::task::spawn_blocking(ask).await.unwrap();
    let tags: String = told.iter().map(|(tag, _)| char::from(*tag)).collect();
    assert_eq!(tags, "ETDC");
    assert_eq!(wire::backend::Fields::new(&told[0].1).sqlstate(), b"08P01");
}

/// As in PostgreSQL, before more of the message has come.
fn a_length_that_a_message_cannot_have_ends_the_session(cluster: &Cluster) {
    for (database, before, tags) in [
        ("postgres", &b"select 1"[..], &b"CDEHSXz"[..]),
        ("postgres", b"begin; create temp table copied (k int); copy copied from stdin", b"cfz"),
        ("onecopy", b"show version", b"Sz"),
    ] {
        for tag in tags {
            let (mut raw, _) = Raw::connect_as(cluster.port, &[("user", "postgres"), ("database", database)]);
            raw.send(|out| encode::query(out, before));
            while ![tag::READY_FOR_QUERY, tag::COPY_IN_RESPONSE].contains(&raw.next().0) {}
            raw.send(|out| out.extend_from_slice(&[&[*tag][..], &20_000u32.to_be_bytes()].concat()));
            let Some((tag::ERROR_RESPONSE, body)) = raw.last() else {
                panic!("no error of {}", *tag as char)
            };
            let fields = wire::backend::Fields::new(&body);
            assert_eq!(fields.sqlstate(), b"08P01", "{}: {}", *tag as char, fields.message());
        }
    }
}

/// The protocol counts parameters with 16 bits and no sign.
async fn a_statement_may_declare_40_000_parameters(cluster: &Cluster) {
    let port = cluster.port;
    let ask = move || {
        let mut raw = Raw::connect(port);
        let sql = b"select $40000::int";
        let values = vec![Some(b"7".as_slice()); 40_000];
        raw.exchange(|out| {
            encode::parse(out, b"wide", sql, &vec![23; 40_000]);
            encode::describe(out, wire::frontend::Target::Statement(b"wide"));
            encode::bind(out, b"", b"wide", &values, encode::Format::Text);
            encode::execute(out, b"", 0);
            encode::sync(out);
        })
    };
    let told = tokio::task::spawn_blocking(ask).await.unwrap();
    let tags: String = told.iter().map(|(tag, _)| char::from(*tag)).collect();
    assert_eq!(tags, "1tT2DC");
    assert_eq!(told[1].1.len(), 2 + 4 * 40_000);
}

async fn a_parameter_may_be_larger_than_a_batch(cluster: &Cluster) {
    let client = cluster.client().await;
    run(&client, "create table t (v text)").await;
    let large = "x".repeat(20 << 20);
    client.execute("insert into t values ($1)", &[&large]).await.unwrap();
}

async fn a_name_is_free_again_when_its_parse_failed(cluster: &Cluster) {
    // tokio-postgres never uses a name twice: see r1.py, "reparse after failed parse", for the messages.
    let client = cluster.client().await;
    let rows = table(&client, "show transaction_isolation").await;
    assert_eq!(rows.len(), 1);
    let rows: Vec<_> =
        client.query_raw("show transaction_isolation", [0i32; 0]).await.unwrap().try_collect().await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].columns().len(), 1, "Describe has told of its column");
}

/// The insert of the identity goes with the statement in one flush. If that fails, the server has not prepared it.
async fn the_first_write_of_a_connection_may_fail(cluster: &Cluster) {
    run(&cluster.client().await, "create table a (v int primary key); insert into a values (1)").await;
    let client = cluster.client().await;
    // Until the catalogue knows of the table, the identity goes by itself.
    table(&client, "explain (routing) select * from a").await;
    for round in 0..3 {
        let error = client.simple_query("insert into a values (1)").await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "23505", "round {round}");
        run(&client, &format!("insert into a values ({})", round + 10)).await;
    }
    assert_eq!(value(&client, "select count(*) from a").await, "4");
}

/// Two at once: one of them is told so, and does not wait.
async fn a_second_verify_is_told_at_once(cluster: &Cluster) {
    run(&cluster.client().await, "create table a as select i as v from generate_series(1, 200000) i").await;
    let (one, two) =
        (cluster.try_client("onecopy").await.unwrap(), cluster.try_client("onecopy").await.unwrap());
    let (first, second) = (one.simple_query("VERIFY"), two.simple_query("VERIFY"));
    let (first, second) = (pin!(first), pin!(second));
    let (told, other) = futures_util::future::select(first, second).await.factor_first();
    assert_eq!(told.expect_err("whoever does not wait").code().unwrap().code(), "55006");
    other.await.expect("the other one is done");
    let after = cluster.try_client("onecopy").await.unwrap();
    after.simple_query("VERIFY").await.unwrap();
}
