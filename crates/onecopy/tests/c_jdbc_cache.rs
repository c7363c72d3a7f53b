//! Promise: under C-JDBC an answer of the query cache is the one that a replica would give at that moment, to that session.
//!
//! Each case makes an answer be kept, and sees that it is given again; then it changes something on which the answer depends,
//! and asks again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "cluster/cached.rs"]
mod cached;
mod cluster;

use std::time::Duration;

use cached::Cached;
use cluster::{Cluster, folder, programs, run, table, value};
use rustix::process::Signal;
use tokio::time::timeout;
use tokio_postgres::Client;

/// Nothing takes longer.
const LONG: Duration = Duration::from_secs(30);

async fn started(level: &str, respond: &str, granularity: &str) -> Cached {
    let words = ["--protocol", "c-jdbc", "--transaction-level", level, "--early-response", respond];
    let words = [&words[..], &["--query-cache", granularity]].concat();
    let cached = Cached::of(Cluster::start_as(3, &[], &words).await).await;
    let client = cached.client().await;
    run(&client, "create table item (id int primary key, name text, n int default 0)").await;
    run(&client, "create table kind (id int primary key)").await;
    run(&client, "insert into kind values (1)").await;
    run(&client, "insert into item select i, 'a' from generate_series(1, 9) i").await;
    cached
}

/// Its answer is the name of the first item.
const NAME: &str = "select name from item where id = 1";
const KINDS: &str = "select count(*) from kind";

#[tokio::test]
async fn by_table_an_answer_lasts_until_its_table_is_written() {
    let mut cached = started("pessimistic", "all", "table").await;
    let client = cached.client().await;
    without_servers(&cached, &client).await;
    writes(&cached, &client).await;
    hidden_writes(&cached, &client).await;
    schema(&cached, &client).await;
    never_kept(&cached, &client).await;
    requests(&cached, &client).await;
    audiences(&cached, &client).await;
    cached.cluster.verify().await;
    cached.cluster.stop().await;
}

/// A given answer needs no server.
async fn without_servers(cached: &Cached, client: &Client) {
    cached.is_kept(client, NAME, "a").await;
    let replicas = cached.cluster.replicas().await;
    for replica in &replicas {
        cached.cluster.signal_server(replica, Signal::STOP);
    }
    let given = timeout(Duration::from_secs(5), value(client, NAME)).await;
    for replica in &replicas {
        cached.cluster.signal_server(replica, Signal::CONT);
    }
    assert_eq!(given.expect("memory answers"), "a");
}

async fn writes(cached: &Cached, client: &Client) {
    cached.is_kept(client, KINDS, "1").await;
    run(client, "update item set name = 'b' where id = 2").await;
    cached.is_given(client, KINDS, "1").await;
    cached.is_kept(client, NAME, "a").await;
    // An open transaction has written the table: the answer is not given, and its own session sees what it wrote.
    let other = cached.client().await;
    run(&other, "begin; delete from kind where id = 99").await;
    cached.is_given(client, NAME, "a").await;
    run(&other, "update item set name = 'c' where id = 1").await;
    let hits = cached.count("hits").await;
    assert_eq!(value(&other, NAME).await, "c");
    let mut asking = std::pin::pin!(value(client, NAME));
    assert!(timeout(Duration::from_millis(500), &mut asking).await.is_err(), "a reader waits");
    run(&other, "commit").await;
    assert_eq!(timeout(LONG, asking).await.unwrap(), "c");
    assert_eq!(cached.count("hits").await, hits);
    // Inside a transaction nothing is given, nor kept.
    cached.is_given(client, NAME, "c").await;
    run(client, "begin").await;
    cached.is_read(client, NAME, "c").await;
    run(client, "commit").await;
    run(&other, "begin; update item set name = 'd'; rollback").await;
    cached.is_kept(client, NAME, "c").await;
}

/// Tables that are written or read without being named.
async fn hidden_writes(cached: &Cached, client: &Client) {
    run(client, "create table sale (id int primary key, item int references item on delete cascade)").await;
    run(client, "create view pairs as select i.n, k.id from item i, kind k").await;
    run(client, "create table part (k int, v int) partition by range (k)").await;
    run(client, "create table part_1 partition of part for values from (0) to (10)").await;
    run(client, "create table parent (k int); create table child () inherits (parent)").await;
    run(client, "insert into sale values (1, 9), (2, 8)").await;
    for (query, before, write, after) in [
        ("select count(*) from sale", "2", "delete from item where id = 9", "1"),
        ("select count(*) from pairs", "8", "insert into kind values (2)", "16"),
        ("select count(*) from part", "0", "insert into part_1 values (2, 1)", "1"),
        ("select count(*) from parent", "0", "insert into child values (1)", "1"),
        (KINDS, "2", "truncate kind", "0"),
    ] {
        cached.is_kept(client, query, before).await;
        run(client, write).await;
        assert_eq!(value(client, query).await, after, "{query} after {write}");
    }
}

async fn schema(cached: &Cached, client: &Client) {
    let all = "select i.* from item i where id = 1";
    let (other, columns) = (cached.client().await, |table: Vec<Vec<String>>| table[0].len());
    cached.is_kept(client, NAME, "c").await;
    assert_eq!(columns(table(client, all).await), 3);
    for (change, count) in [
        ("alter table item add column more int", 4),
        ("alter table item drop column more", 3),
        ("alter table kind add column more int", 3),
    ] {
        run(&other, change).await;
        cached.is_read(client, NAME, "c").await;
        for _ in 0..2 {
            assert_eq!(columns(table(client, all).await), count, "{change}");
        }
    }
    // A statement that may touch anything.
    cached.is_given(client, NAME, "c").await;
    run(&other, "analyze item").await;
    cached.is_read(client, NAME, "c").await;
    run(&other, "update item set name = 'f' where id = 1").await;
}

async fn never_kept(cached: &Cached, client: &Client) {
    for query in [
        "select now(), name from item",
        "select random() from item",
        "select 'today'::date from item",
        "select name from item where id = 1 for update",
        "select count(*) from pg_stat_activity",
        "select * from item tablesample system (50)",
        "select current_setting('work_mem'), id from item",
        "select pg_backend_pid(), id from item",
        "select nextval('numbers')",
        "select last_value from numbers",
    ] {
        if query.contains("nextval") {
            run(client, "create sequence numbers").await;
        }
        cached.is_never_kept(client, query).await;
    }
}

/// Forms and parameters part requests.
async fn requests(cached: &Cached, client: &Client) {
    let named = async |id: i32| {
        let row = client.query_one("select name, id from item where id = $1", &[&id]).await.unwrap();
        (row.get::<_, String>(0), row.get::<_, i32>(1))
    };
    let before = (cached.count("hits").await, cached.count("kept").await);
    for id in [1, 2, 1, 2] {
        assert_eq!(named(id).await, (if id == 1 { "f" } else { "b" }.to_owned(), id));
    }
    assert_eq!((cached.count("hits").await, cached.count("kept").await), (before.0 + 2, before.1 + 2));
    // The same text by the simple protocol has its columns as text.
    cached.is_kept(client, "select id from item where id = 2", "2").await;
    let row = client.query_one("select id from item where id = 2", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 2);
    run(client, "update item set name = 'g' where id = 2").await;
    assert_eq!(named(2).await, ("g".to_owned(), 2));
}

/// Who may be given an answer: roles, settings, row security, and what ALTER ROLE, GRANT and REVOKE change.
async fn audiences(cached: &Cached, owner: &Client) {
    run(owner, "create role joe login; create role ann login; grant select on item to joe, ann").await;
    let (joe, query) =
        (cached.client_as("joe", "").await, "select current_user, name from item where id = 2");
    cached.is_kept(owner, query, "postgres").await;
    cached.is_kept(&joe, query, "joe").await;
    run(owner, "set role ann").await;
    cached.is_kept(owner, query, "ann").await;
    run(owner, "reset role").await;
    cached.is_given(owner, query, "postgres").await;
    run(owner, "revoke select on item from joe").await;
    let error = joe.simple_query(query).await.unwrap_err();
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{error:?}");
    run(owner, "create table days (day date, b bytea); grant select on days to joe, ann").await;
    run(owner, r"insert into days values ('2026-11-27', '\x41')").await;
    let (client, query) = (cached.client().await, "select day from days");
    cached.is_kept(owner, query, "2026-11-27").await;
    cached.is_given(&client, query, "2026-11-27").await;
    run(&client, "set datestyle = 'German'").await;
    cached.is_kept(&client, query, "27.11.2026").await;
    cached.is_given(owner, query, "2026-11-27").await;
    run(&client, "set search_path = pg_catalog").await;
    assert!(client.simple_query(query).await.is_err(), "there is no such table on its path");
    row_security(cached, owner).await;
    let before = cached.client_as("ann", "").await;
    let bytes = "select b from days";
    cached.is_kept(&before, bytes, r"\x41").await;
    run(owner, "alter role ann set bytea_output = 'escape'; alter role ann set app.tenant = 'b'").await;
    let after = cached.client_as("ann", "").await;
    for _ in 0..2 {
        assert_eq!(value(&after, bytes).await, "A");
        assert_eq!(value(&after, "select sum(v) from tenants").await, "2", "no server reports app.tenant");
    }
    cached.is_given(&after, bytes, "A").await;
    // Some connections of this session are from before, and others may come.
    cached.is_never_kept(&before, bytes).await;
    run(owner, "alter role ann set app.tenant = 'a'").await;
    let last = cached.client_as("ann", "").await;
    for _ in 0..2 {
        assert_eq!(value(&last, "select sum(v) from tenants").await, "1");
    }
    cached.is_never_kept(&after, "select sum(v) from tenants").await;
}

async fn row_security(cached: &Cached, owner: &Client) {
    run(owner, "create table tenants (tenant text, v int); grant select on tenants to joe, ann").await;
    run(owner, "insert into tenants values ('a', 1), ('b', 2)").await;
    run(owner, "alter table tenants enable row level security").await;
    run(owner, "create policy own on tenants using (tenant = current_setting('app.tenant', true))").await;
    let query = "select v from tenants";
    let (of_a, of_b) = (cached.client_as("joe", "-c app.tenant=a").await, cached.client_as("joe", "").await);
    run(&of_b, "set app.tenant = 'b'").await;
    cached.is_kept(&of_a, query, "1").await;
    cached.is_kept(&of_b, query, "2").await;
    run(&of_b, "set app.tenant = 'a'").await;
    assert_eq!(value(&of_b, query).await, "1");
}

#[tokio::test]
async fn by_database_it_lasts_until_any_table_is() {
    let mut cached = started("optimistic", "first", "database").await;
    let (client, other) = (cached.client().await, cached.client().await);
    for round in 0..20 {
        // With early responses a read may miss what was just committed, but no later one gets an older answer from memory.
        run(&other, &format!("update item set n = {round} where id = 1")).await;
        let query = "select n from item where id = 1";
        let hits = cached.count("hits").await;
        let first: i32 = value(&client, query).await.parse().unwrap();
        assert!(first <= round);
        for _ in 0..3 {
            let given: i32 = value(&client, query).await.parse().unwrap();
            assert!(
                cached.count("hits").await == hits || given == round,
                "{given} was kept in round {round}"
            );
        }
    }
    cached.cluster.caught_up().await;
    let hits = cached.count("hits").await;
    // The end of a transaction is answered before all replicas have executed it.
    let until_given = async {
        while cached.count("hits").await == hits {
            value(&client, NAME).await;
        }
    };
    timeout(LONG, until_given).await.expect("the answer is kept some time");
    cached.is_given(&client, NAME, "a").await;
    run(&other, "insert into kind values (7)").await;
    cached.is_read(&client, NAME, "a").await;
    // While a transaction that has written anything is open, nothing is given, nor kept.
    run(&other, "begin; insert into kind values (8)").await;
    cached.is_never_kept(&client, NAME).await;
    run(&other, "rollback").await;
    cached.cluster.verify().await;
    cached.cluster.stop().await;
}

#[tokio::test]
async fn it_goes_with_its_protocol_alone() {
    for (words, said) in [
        (&["--protocol", "eager", "--query-cache", "table"][..], "query_cache"),
        (&["--query-cache-mb", "5"], "query_cache"),
        (&["--protocol", "c-jdbc", "--result-cache-mb", "5"], "query_cache"),
    ] {
        let data = folder::Folder::new("refused");
        let (port, data) = (folder::free_port().to_string(), data.path().join("data"));
        let pg_bin = programs::pg_bin();
        let common = ["up", "--replicas", "3", "--port", &port, "--data", data.to_str().unwrap()];
        let all = [&common[..], &["--pg-bin", pg_bin.to_str().unwrap()], words].concat();
        let output = programs::onecopy(&all).await;
        assert!(
            !output.status.success() && programs::text(&output).contains(said),
            "{}",
            programs::text(&output)
        );
    }
}
