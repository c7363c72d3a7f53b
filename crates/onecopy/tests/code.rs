//! Promise: Onecopy understands the code of views, functions and triggers. Reads through them use every replica, and their
//! writes reach every replica.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::collections::BTreeSet;

use cluster::{Cluster, connect, run, value};

const SCHEMA: &[&str] = &[
    "create table parent (id int primary key, children int not null default 0)",
    "create table child (id serial primary key, p int references parent on delete cascade, n int)",
    "create table log (id bigserial primary key, what text)",
    "create function counted() returns trigger language plpgsql as $$ begin \
         update parent set children = children + 1 where id = new.p; \
         begin insert into log (what) values (tg_op); exception when others then null; end; return null; end $$",
    "create trigger counted after insert on child for each row execute function counted()",
    "create view seen as select p.id, p.children, current_setting('port') as port from parent p",
    "create function sum_of(wanted int, out port text, out total bigint) stable language plpgsql as $$ begin \
         select current_setting('port'), sum(n) into port, total from child where p = wanted; end $$",
];

const SESSIONS: usize = 12;

#[tokio::test]
async fn code_that_is_understood_keeps_nothing_at_the_anchor() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    for sql in SCHEMA {
        run(&client, sql).await;
    }
    run(&client, "insert into parent select generate_series(1, 20)").await;
    run(&client, "insert into child (p, n) select 1 + g % 20, g from generate_series(0, 199) g").await;
    let anchor =
        value(&client, "insert into log (what) values ('x') returning current_setting('port')").await;
    cluster.caught_up().await;

    // Work at the anchor makes the others be chosen.
    let busy = connect("127.0.0.1", cluster.port, "postgres").await.unwrap();
    run(&busy, "begin").await;
    let sleeping = "select pg_sleep(3600) from log";
    let busy = tokio::spawn(async move { run(&busy, sleeping).await });
    cluster.is_running_at_anchor(sleeping).await;
    let (mut viewed, mut called) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..SESSIONS {
        let other = connect("127.0.0.1", cluster.port, "postgres").await.unwrap();
        viewed.insert(value(&other, "select port from seen where id = 3 and children = 10").await);
        called.insert(value(&other, "select port from sum_of(3) where total = 920").await);
    }
    for served in [viewed, called] {
        assert!(!served.is_empty() && !served.contains(&anchor), "{served:?}, although {anchor} is busy");
    }
    busy.abort();

    // Children and parents come and go side by side, with triggers and cascades.
    let mut tasks = Vec::new();
    for session in 0..4_i32 {
        let port = cluster.port;
        tasks.push(tokio::spawn(async move {
            let client = connect("127.0.0.1", port, "postgres").await.unwrap();
            for round in 0..25 {
                let p = (session * 7 + round * 3) % 20 + 1;
                let sql = match round % 5 {
                    4 => format!("delete from parent where id = {p}"),
                    3 => format!("insert into parent values ({p}) on conflict do nothing"),
                    _ => format!("insert into child (p, n) select id, {round} from parent where id = {p}"),
                };
                match client.batch_execute(&sql).await {
                    Ok(()) => {}
                    // A parent that goes away while a child comes, or two parents at once: as on one server.
                    Err(error) => {
                        let code = error.code().unwrap().code();
                        assert!(matches!(code, "23503" | "40P01" | "40001"), "{sql}: {error}");
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let orphans = "select count(*) from child c where not exists (select from parent where id = c.p)";
    assert_eq!(value(&client, orphans).await, "0");
    let logged = "select (select count(*) from log) >= (select count(*) from child)";
    assert_eq!(value(&client, logged).await, "t");
    cluster.caught_up().await;
    cluster.verify().await;
    cluster.stop().await;
}
