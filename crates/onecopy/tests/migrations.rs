//! Promise: migrations of Django, Rails and Alembic succeed while clients write. A replica runs a statement with the same
//! role, search path and constants as its home.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cluster::programs::{psql, text};
use cluster::{Cluster, run, value};

const MIGRATIONS: [(&str, &str); 3] = [
    ("django", include_str!("migrations/django.sql")),
    ("rails", include_str!("migrations/rails.sql")),
    ("alembic", include_str!("migrations/alembic.sql")),
];

#[tokio::test]
async fn migrations_are_applied_while_clients_write() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    run(&client, "create table load (id serial primary key, n int); insert into load (n) select 0 from generate_series(1, 20)")
        .await;
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut writers = Vec::new();
    for _ in 0..3 {
        let (client, stop, written) = (cluster.client().await, Arc::clone(&stop), Arc::clone(&written));
        writers.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let turn = written.fetch_add(1, Ordering::Relaxed);
                run(&client, &format!("update load set n = n + 1 where id = 1 + {turn} % 20")).await;
            }
        }));
    }
    for (name, script) in MIGRATIONS {
        let before = written.load(Ordering::Relaxed);
        let output = psql(cluster.port, &format!("\\set ON_ERROR_STOP on\n{script}")).await;
        assert!(output.status.success(), "{name}: {}", text(&output));
        assert!(written.load(Ordering::Relaxed) > before, "writers stood still during {name}");
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let sum = value(&client, "select sum(n) from load").await;
    assert_eq!(sum, written.load(Ordering::Relaxed).to_string(), "each write is there once");
    cluster.verify().await;
    role_path_and_settings_travel(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// Names, owners and constants depend on the role and the search path of a statement.
async fn role_path_and_settings_travel(cluster: &Cluster) {
    let client = cluster.client().await;
    run(
        &client,
        "create role one; create role two; create schema one authorization one; create schema two authorization two;
         create schema shared; grant all on schema shared to one, two;
         create table one.base (v text); create table two.base (v int);
         alter table one.base owner to one; alter table two.base owner to two;
         alter default privileges for role one in schema shared grant select on tables to two",
    )
    .await;
    run(
        &client,
        "set role one; set search_path = \"$user\", shared; create table heir () inherits (base);
         create table shared.mine (like base, at date default '03/04/2026'); create view seen as select * from base;
         set role two; create table heir () inherits (base); create view seen as select * from base;
         set datestyle = 'German'; set timezone = 'Asia/Tokyo';
         create table shared.yours (like base, at timestamptz default '04.03.2026 10:00', x text default current_user);
         insert into shared.yours default values; alter table shared.yours add who text default current_user;
         begin; set local search_path = shared; alter table yours add tz text default current_setting('search_path'); commit",
    )
    .await;
    let rows = cluster
        .everywhere(
            "select c.oid::regclass::text, c.relowner::regrole::text, c.relacl::text,
                 (select string_agg(format_type(atttypid, null), ',' order by attnum) from pg_attribute
                  where attrelid = c.oid and attnum > 0),
                 (select string_agg(pg_get_expr(adbin, adrelid), ',' order by adnum) from pg_attrdef where adrelid = c.oid)
             from pg_class c where relnamespace in ('one'::regnamespace, 'two'::regnamespace, 'shared'::regnamespace)
             and relkind in ('r', 'v') order by 1",
        )
        .await;
    let owner =
        |table: &str| rows.iter().find(|row| row[0] == table).unwrap_or_else(|| panic!("{table}: {rows:?}"));
    assert_eq!(owner("one.heir")[1..4], ["one", "", "text"]);
    assert_eq!(owner("two.heir")[1..4], ["two", "", "integer"]);
    assert_eq!(owner("two.seen")[3], "integer");
    assert_eq!(owner("shared.mine")[1], "one");
    assert!(owner("shared.mine")[2].contains("two=r/one"));
    assert!(owner("shared.mine")[4].contains("2026-03-04"));
    assert!(owner("shared.yours")[4].contains("2026-03-04 01:00:00"), "{rows:?}");
    assert_eq!(cluster.everywhere("select x, who, tz from shared.yours").await, [["two", "two", "shared"]]);
}
