//! Promise: after a schema change that computes values of rows, every replica has the values of the home.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::{Cluster, run, table, value};
use tokio_postgres::Client;

#[tokio::test]
async fn every_replica_has_the_values_of_the_home() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    added_columns(&cluster, &client).await;
    changed_types(&cluster, &client).await;
    more_than_memory_takes(&cluster, &client).await;
    trees(&cluster, &client).await;
    tables_from_queries(&cluster, &client).await;
    materialized_views(&cluster, &client).await;
    transactions(&cluster, &client).await;
    functions_that_write(&cluster, &client).await;
    without_concurrently(&cluster, &client).await;
    after_a_crash(&mut cluster).await;
    cluster.stop().await;
}

/// Asserts that the schema change goes through, and that the query then gives the same everywhere.
async fn same(cluster: &Cluster, client: &Client, change: &str, query: &str) -> Vec<Vec<String>> {
    run(client, change).await;
    let rows = cluster.everywhere(query).await;
    cluster.verify().await;
    rows
}

async fn refused(client: &Client, statement: &str, code: &str) {
    let error = client.batch_execute(statement).await.expect_err(statement);
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some(code), "{statement}: {error:?}");
}

async fn added_columns(cluster: &Cluster, client: &Client) {
    run(
        client,
        "create table a (id int primary key, v text);
         insert into a select g, 'row ' || g from generate_series(1, 100) g;
         create table referring (a int references a deferrable initially deferred);
         insert into referring select id from a;
         create type mood as enum ('sad', 'happy');
         create domain stamped as timestamptz default now() check (value > '2000-01-01');
         create domain tossed as float8 default random();
         create function today_is() returns text stable language sql as $$ select 'it is ' || now() $$",
    )
    .await;
    for (column, distinct) in [
        ("c1 timestamptz not null default now()", 1),
        ("c2 float8 default random()", 100),
        ("c3 uuid default gen_random_uuid()", 100),
        ("c4 serial", 100),
        ("c5 int generated always as identity", 100),
        ("c6 stamped", 1),
        ("c7 tossed", 100),
        ("c8 mood default 'happy'", 1),
        ("c9 mood", 0),
        ("c10 text default today_is()", 1),
        ("c11 interval default age(now(), '2001-02-03')", 1),
        ("c12 int generated always as (length(v)) stored", 3),
        ("c13 text default lower('X') || 'y' not null check (c13 <> '')", 1),
        ("c14 date default current_date, add c15 timestamptz[] default array[now()]", 1),
        ("c16 bytea default decode(md5(now()::text), 'hex'), add c17 float8 default random()", 1),
        ("c18 text default today_is() check (c18 like 'it is%'), alter v set default 'x'", 1),
        ("c19 char(5) default null, add c20 numeric(12, 2) default extract(epoch from now())", 0),
    ] {
        let name = column.split(' ').next().unwrap();
        let query = format!("select count(distinct {name}) from a");
        let rows = same(cluster, client, &format!("alter table a add column {column}"), &query).await;
        assert_eq!(rows[0][0], distinct.to_string(), "{column}");
    }
    // The real defaults are there, and later inserts use them.
    run(client, "insert into a (id, v) values (1000, 'later')").await;
    let rows = cluster
        .everywhere("select c1 > (select c1 from a where id = 1), c9, c19 from a where id = 1000")
        .await;
    assert_eq!(rows, [["t", "", ""]]);
    // It is there already: nothing is computed again, and its default stays.
    let before = value(client, "select md5(string_agg(a::text, ',' order by id)) from a").await;
    let add = "alter table a add column if not exists c1 timestamptz default '2001-01-01'::timestamptz + now()::time";
    same(cluster, client, add, "select count(*) from a").await;
    assert_eq!(value(client, "select md5(string_agg(a::text, ',' order by id)) from a").await, before);
    run(client, "drop table referring").await;
}

async fn changed_types(cluster: &Cluster, client: &Client) {
    run(
        client,
        "create table b (id int primary key, at text, m text, n text, f float8);
         insert into b select g, '2026-01-01', 'sad', g::text, g / 3.0 from generate_series(1, 50) g;
         update b set at = 'now' where id = 7;
         create index on b (n)",
    )
    .await;
    for change in [
        "alter at type timestamptz using at::timestamptz",
        "alter m type mood using m::mood",
        "alter n type int using (random() * 1000)::int + n::int",
        "alter f type numeric, alter n type text using upper(n::text)",
        "alter f type text, alter f set default random()::text, add r float8 default random()",
        "alter id type bigint",
    ] {
        same(cluster, client, &format!("alter table b {change}"), "select * from b order by id").await;
    }
    // The cast that no statement names is code of a user's, also when it was made just now.
    run(
        client,
        "create table b2 (id int primary key, t point, u point);
         insert into b2 select g, '(1, 1)', '(1, 1)' from generate_series(1, 20) g;
         create function tossed(point) returns int language sql as $$ select (random() * 1000000)::int $$",
    )
    .await;
    let cast = "create cast (point as int) with function tossed(point) as assignment";
    let query = "select * from b2 order by id";
    same(cluster, client, &format!("begin; {cast}; alter table b2 alter t type int; commit"), query).await;
    same(cluster, client, "alter table b2 alter u type int", query).await;
    run(client, "drop cast (point as int); drop function tossed(point)").await;
}

async fn more_than_memory_takes(cluster: &Cluster, client: &Client) {
    run(client, "create table big (id int primary key, pad text)").await;
    run(client, "insert into big select g, repeat(md5(g::text), 40) from generate_series(1, 15000) g").await;
    let query = "select count(*), count(distinct r) from big";
    let rows = same(cluster, client, "alter table big add r float8 default random()", query).await;
    assert_eq!(rows, [["15000", "15000"]]);
    same(cluster, client, "create table bigger as select b.*, random() as q from big b", query).await;
    run(client, "drop table big, bigger").await;
}

async fn trees(cluster: &Cluster, client: &Client) {
    run(
        client,
        "create table whole (id int, v int) partition by range (id);
         create table part1 partition of whole for values from (0) to (50);
         create table part2 partition of whole for values from (50) to (1000) partition by list (v);
         create table part21 partition of part2 default;
         insert into whole select g, g from generate_series(1, 99) g;
         create table parent (id int); create table child (extra int, c float8) inherits (parent);
         insert into parent values (1), (2); insert into child values (3, 3, 3), (4, 4, 4)",
    )
    .await;
    for change in [
        "alter table whole add r float8 default random()",
        "alter table whole add at timestamptz default now()",
        "alter table parent add c float8 default random()",
        "alter table parent add d timestamptz default now()",
        "alter table only whole alter at set default null",
        "alter table whole alter r type text using r::text || random()",
    ] {
        same(
            cluster,
            client,
            change,
            "select whole::text from whole union all select parent::text from parent order by 1",
        )
        .await;
    }
}

async fn tables_from_queries(cluster: &Cluster, client: &Client) {
    for change in [
        "create table made1 as select id, random() as r, 'x'::varchar(7) as w, null::numeric(5, 2) as n from a",
        "select now() as at, v collate \"C\" as v into made2 from a order by random() limit 3",
        "create table made3 (one, two) with (fillfactor = 50) as select 1, array['sad'::mood]",
        "create table if not exists made3 as select 2",
        "create table made4 as select * from a with no data",
        "create table made5 as table a",
        "prepare p as select generate_series(1, 5) as g; create table made6 as execute p",
        "create table made7 as with w as (insert into a (id) values (7000) returning id) select * from w",
        "create temp table mine as select 5 as five; create table made8 as select * from mine",
        "create table made9 as select",
    ] {
        same(cluster, client, change, "select relname from pg_class where relname like 'made%' order by 1")
            .await;
    }
    assert_eq!(value(client, "select count(*) from made6").await, "5");
    // They are under capture like any other.
    run(client, "update made1 set r = 0 where id < 10; delete from made5 where id > 10").await;
    cluster.verify().await;
    let tag =
        client.execute("create table made10 as select g from generate_series(1, 9) g", &[]).await.unwrap();
    assert_eq!(tag, 9);
    refused(client, "explain analyze create table made11 as select 1", "0A000").await;
    run(client, "discard temp").await;
}

async fn materialized_views(cluster: &Cluster, client: &Client) {
    run(client, "create view over as select m, count(*) as n from b group by m").await;
    let query = "select * from seen order by 1";
    same(cluster, client, "create materialized view seen as select m, n from over where n > 0", query).await;
    run(client, "insert into b (id, m) values (500, 'happy')").await;
    let rows = same(cluster, client, "refresh materialized view seen", query).await;
    assert_eq!(rows, [["sad", "50"], ["happy", "1"]]);
    run(client, "create unique index on seen (m); delete from b where id = 500").await;
    let rows = same(cluster, client, "refresh materialized view concurrently seen", query).await;
    assert_eq!(rows, [["sad", "50"]]);
    assert_eq!(table(client, query).await, rows);
    same(cluster, client, "create materialized view later as select id from b with no data", "select 1")
        .await;
    same(cluster, client, "refresh materialized view later", "select sum(id) from later").await;
    for query in [
        "select random() as r",
        "select id from b limit 5",
        "select now()",
        "select sum(f::float8) from b",
        "select distinct f::numeric from b",
        "select max(n::numeric) from over",
    ] {
        refused(client, &format!("create materialized view other as {query}"), "0A000").await;
    }
    same(cluster, client, "create materialized view summed as select sum(n) from over", "table summed").await;
    // Changes of the same transaction to the tables below count.
    let made =
        "begin; create table fresh (k text, v numeric); insert into fresh values ('a', 1.0), ('a', 1.00);
         create materialized view other as select k, sum(v) from fresh group by k; commit";
    same(cluster, client, made, "table other").await;
    let change = "begin; alter table fresh alter v type float8; create materialized view more as select sum(v) from fresh";
    refused(client, change, "0A000").await;
    run(client, "rollback; drop materialized view other, summed; drop table fresh").await;
    // The tables below can change.
    run(
        client,
        "create or replace view over as select m, max(id + (random() * 10)::bigint) as n from b group by m",
    )
    .await;
    refused(client, "refresh materialized view concurrently seen", "0A000").await;
    same(cluster, client, "drop materialized view seen, later; drop view over", "select 1").await;
}

async fn transactions(cluster: &Cluster, client: &Client) {
    let count = "select count(*), count(distinct c) from t";
    run(client, "create table t (id int primary key); insert into t select generate_series(1, 20)").await;
    // Rows and schema changes in turn, with a part of it undone.
    let mixed = "begin; insert into t values (21);
         alter table t add c float8 default random();
         savepoint s; alter table t add d int default (random() * 100)::int; delete from t where id < 10; rollback to s;
         insert into t values (22, 1);
         alter table t alter c type text using c::text || random();
         create table u as select * from t; insert into u values (100, 'x'); delete from t where id = 5;
         commit";
    assert_eq!(same(cluster, client, mixed, count).await, [["21", "21"]]);
    run(client, "begin; alter table t add e float8 default random(); create table z as select 1; rollback")
        .await;
    cluster.verify().await;
    refused(
        client,
        "begin isolation level repeatable read; alter table t add e float8 default random()",
        "0A000",
    )
    .await;
    run(client, "rollback; begin isolation level serializable; create table s as select * from t; commit")
        .await;
    run(
        client,
        "set default_transaction_isolation = 'repeatable read'; alter table t add e float8 default random()",
    )
    .await;
    run(client, "reset default_transaction_isolation").await;
    cluster.verify().await;
    // Row-level security and missing privileges must not hide rows from the record.
    run(
        client,
        "create role owner login; grant create on schema public to owner; alter table t owner to owner;
         alter table t enable row level security; alter table t force row level security;
         create policy few on t using (id < 3); set role owner",
    )
    .await;
    refused(client, "alter table t add g float8 default random()", "42501").await;
    run(
        client,
        "alter table t no force row level security; alter table t add g float8 default random(); reset role",
    )
    .await;
    assert_eq!(cluster.everywhere("select count(distinct g) from t").await, [["21"]]);
    cluster.verify().await;
}

async fn functions_that_write(cluster: &Cluster, client: &Client) {
    run(
        client,
        "create table w (id int primary key); insert into w values (1), (2); create table noted (n float8);
         create function noting() returns float8 language plpgsql as $$ begin
             insert into noted values (random()); return random(); end $$;
         create function lying(int) returns int immutable language plpgsql as $$ begin
             insert into noted values (random()); return $1; end $$",
    )
    .await;
    let query = "select count(*) from noted";
    let rows = same(cluster, client, "alter table w add n float8 default noting()", query).await;
    assert_eq!(rows, [["2"]]);
    let rows = same(cluster, client, "create table w2 as select noting() from w", query).await;
    assert_eq!(rows, [["4"]]);
    refused(client, "create index on w (lying(id))", "0A000").await;
    cluster.verify().await;
}

async fn without_concurrently(cluster: &Cluster, client: &Client) {
    let query = "select indexrelid::regclass::text, indisvalid from pg_index where indrelid = 'a'::regclass order by 1";
    same(cluster, client, "create index concurrently if not exists a_v on a (v)", query).await;
    same(cluster, client, "reindex index concurrently a_v", query).await;
    same(cluster, client, "reindex (concurrently, verbose) table a", query).await;
    let rows = same(cluster, client, "drop index concurrently a_v", query).await;
    assert_eq!(rows.len(), 1);
    refused(client, "create unique index concurrently on a ((1))", "23505").await;
    refused(client, "begin; create index concurrently on a (v)", "25001").await;
    run(client, "rollback").await;
    same(
        cluster,
        client,
        "alter table whole detach partition part1 concurrently",
        "select count(*) from whole",
    )
    .await;
}

async fn after_a_crash(cluster: &mut Cluster) {
    cluster.kill_everything().await;
    cluster.up_again().await;
    cluster.verify().await;
}
