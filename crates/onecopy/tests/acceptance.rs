//! Promise: statements by which statement-based replication diverges leave all replicas identical, and nothing hangs: values
//! of the clock, random values, values of sequences, and changes that depend on other rows.
//!
//! Eight clients work at once. Each change that a client saw acknowledged happened once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::folder::Folder;
use cluster::programs::{done_without_failure, pgbench};
use cluster::{Cluster, run, value};

const CLIENTS: &str = "8";
const SECONDS: &str = "2";

const SCHEMA: &str = "
    create table acc (id int primary key, balance bigint not null); insert into acc select g, 0 from generate_series(1, 4) g;
    create table ord (id int primary key, v bigint not null); insert into ord select g, 1 from generate_series(1, 2) g;
    create table stamp (t timestamptz, d timestamptz default now());
    create table ser (id serial primary key, v int); create sequence s; create table seq (id bigint primary key);
    create table chance (c timestamptz, r float8, u uuid); create table counted (n bigint);
    create table pair (id int primary key, v numeric not null); insert into pair values (1, 1), (2, 2);
    create table pick (id int primary key, cnt bigint not null); insert into pick select g, 0 from generate_series(1, 6) g;
    create table hot (id int primary key, n bigint not null); insert into hot values (1, 0);";

/// A script of pgbench, and a query whose answer is the number of transactions done, where there is one.
const SCRIPTS: &[(&str, &str, Option<&str>)] = &[
    (
        "simple",
        "\\set id random(1, 4)\nupdate acc set balance = balance + 1 where id = :id;",
        Some("select sum(balance) from acc"),
    ),
    (
        "prepared",
        "\\set id random(1, 2)\n\\set x random(1, 1000)\nupdate ord set v = (v * 3 + :x) % 1000003 where id = :id;",
        None,
    ),
    (
        "extended",
        "\\set x random(1, 1000)\nbegin;\nupdate ord set v = (v * 3 + :x) % 1000003 where id = 1;\n\
         update ord set v = (v * 5 + :x) % 1000003 where id = 2;\ncommit;",
        None,
    ),
    ("simple", "insert into stamp (t) values (now());", Some("select count(*) from stamp")),
    ("prepared", "insert into ser (v) values (1);", Some("select count(*) from ser")),
    ("simple", "insert into seq values (nextval('s'));", Some("select count(*) from seq")),
    (
        "prepared",
        "insert into chance values (clock_timestamp(), random(), gen_random_uuid());",
        Some("select count(*) from chance"),
    ),
    ("simple", "insert into counted select count(*) from counted;", Some("select count(*) from counted")),
    (
        "extended",
        "\\set id random(1, 2)\nupdate pair set v = (select sum(v) from pair) % 100003 where id = :id;",
        None,
    ),
    (
        "simple",
        "update pick set cnt = cnt + 1 where id = (select id from pick order by cnt, id limit 1);",
        Some("select sum(cnt) from pick"),
    ),
    ("prepared", "update hot set n = n + 1 where id = 1;", Some("select n from hot")),
];

#[tokio::test]
async fn replicas_stay_identical_where_statements_would_not() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    run(&client, SCHEMA).await;
    let folder = Folder::new("acceptance");
    for (number, (mode, script, counted)) in SCRIPTS.iter().enumerate() {
        let path = folder.path().join(format!("{number}.sql"));
        std::fs::write(&path, script).unwrap();
        let file = path.to_string_lossy();
        let arguments = ["-n", "-M", mode, "-c", CLIENTS, "-j", "1", "-T", SECONDS, "-f", &file];
        let done = done_without_failure(&pgbench(cluster.port, &arguments).await);
        assert!(done > 0, "nothing was done in {script}");
        if let Some(query) = counted {
            assert_eq!(value(&client, query).await, done.to_string(), "{script}");
        }
    }
    cluster.caught_up().await;
    cluster.verify().await;
    cluster.stop().await;
}
