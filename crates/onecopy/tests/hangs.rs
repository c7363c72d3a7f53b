//! Promise: a wait ends unless it would not end on one PostgreSQL, either. Onecopy finds deadlocks over all replicas, and an
//! open transaction delays only transactions that conflict with it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::sync::Arc;
use std::time::Duration;

use cluster::script::{Answer, ask, open, sqlstate, within};
use cluster::{Cluster, run};
use tokio_postgres::Client;

/// The deadline of an expected event.
const WITHIN: Duration = Duration::from_mins(1);
/// How long a statement may take that has to wait for none.
const PASSES_WITHIN: Duration = Duration::from_secs(30);

const SCHEMA: &str =
    "create table q (k int primary key, v int); insert into q select k, 0 from generate_series(1, 10) k;
     create table other (k int primary key, v int); insert into other values (1, 0);
     create table third (k int primary key)";

#[tokio::test]
async fn no_wait_is_without_end() {
    let mut cluster = Cluster::start(3).await;
    run(&cluster.client().await, SCHEMA).await;
    cluster.caught_up().await;
    in_time("a ring through an advisory lock", rings_through_advisory_locks(&cluster)).await;
    in_time("who waits for an advisory lock", advisory_lock_waits_delay_no_other_session(&cluster)).await;
    in_time("a ring through a look at the catalogues", rings_through_the_catalogues(&cluster)).await;
    in_time("schema changes that are open", open_schema_changes_hold_up_none(&cluster)).await;
    for level in ["read committed", "repeatable read", "serializable"] {
        for home in 1..=2 {
            let what = format!("a schema change beside a transaction at replica-{home} that is {level}");
            in_time(&what, schema_changes_pass(&cluster, home, level)).await;
        }
    }
    in_time("a schema change that concerns a transaction", schema_changes_wait(&cluster)).await;
    in_time("a schema change of other things meanwhile", schema_changes_cost_others_nothing(&cluster)).await;
    in_time("schema changes of names that others use", names_keep_their_meaning(&cluster)).await;
    in_time("many that make and drop tables", tables_come_and_go(&cluster)).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// A test that waits for ever fails.
async fn in_time(what: &str, scenario: impl Future<Output = ()>) {
    assert!(tokio::time::timeout(WITHIN, scenario).await.is_ok(), "it hangs: {what}");
}

/// A client whose update transactions have their home at this replica.
async fn at(cluster: &Cluster, replica: usize) -> Arc<Client> {
    let client = open(cluster.port).await;
    run(&client, &format!("set onecopy.home = 'replica-{replica}'")).await;
    client
}

/// A statement that waits at the anchor's server.
async fn waits_at_anchor(cluster: &Cluster, client: &Arc<Client>, statement: &str) -> Answer {
    let answer = ask(client, statement.to_owned());
    cluster.is_running_at_anchor(statement).await;
    answer
}

/// One of both has to give way, and the other one goes on.
async fn one_gives_way(answers: [Answer; 2], clients: [&Arc<Client>; 2]) {
    let gives_way = |answer: Answer, client: Arc<Client>| async move {
        let answer = within(answer).await;
        let gives_way = sqlstate(&answer) == Some("40P01");
        assert!(gives_way || sqlstate(&answer).is_none(), "{answer}");
        run(&client, "rollback; select pg_advisory_unlock_all()").await;
        gives_way
    };
    let [first, second] = answers;
    let both =
        tokio::join!(gives_way(first, Arc::clone(clients[0])), gives_way(second, Arc::clone(clients[1])));
    assert_ne!(both.0, both.1, "one has to give way");
}

/// The lock is the session's, at the anchor, and its transaction is at home elsewhere: so the server that tells of the wait
/// knows nothing of the transaction that is waited for.
async fn rings_through_advisory_locks(cluster: &Cluster) {
    let (a, b, c) = (at(cluster, 2).await, at(cluster, 1).await, open(cluster.port).await);
    run(&a, "select pg_advisory_lock(42)").await;
    run(&b, "begin; update q set v = v + 1 where k = 1").await;
    let locked = waits_at_anchor(cluster, &b, "select pg_advisory_lock(42)").await;
    run(&a, "begin; update q set v = v + 1 where k = 2").await;
    let updated = ask(&a, "update q set v = v + 1 where k = 1".to_owned());
    one_gives_way([locked, updated], [&b, &a]).await;
    run(&c, "create table afterwards (k int); drop table afterwards").await;
}

/// A session that waits for such a lock does not claim rows.
async fn advisory_lock_waits_delay_no_other_session(cluster: &Cluster) {
    let (holder, waiter, other) = (at(cluster, 2).await, at(cluster, 1).await, at(cluster, 3).await);
    run(&holder, "select pg_advisory_lock(43)").await;
    run(&waiter, "begin; update q set v = v + 1 where k = 3").await;
    let waiting = waits_at_anchor(cluster, &waiter, "select pg_advisory_xact_lock(43)").await;
    run(&other, "update q set v = v + 1 where k = 4; insert into other values (43, 0)").await;
    run(&holder, "update q set v = v + 1 where k = 5; select pg_advisory_unlock(43)").await;
    assert_eq!(sqlstate(&within(waiting).await), None);
    run(&waiter, "commit").await;
}

/// A query of the catalogues runs at the anchor, beside the transaction of its session, which is open elsewhere.
async fn rings_through_the_catalogues(cluster: &Cluster) {
    let (a, b) = (at(cluster, 2).await, at(cluster, 1).await);
    run(&a, "begin; update q set v = v + 1 where k = 6").await;
    run(&b, "begin; lock table other").await;
    let looks = waits_at_anchor(cluster, &a, "select pg_relation_size('other') >= 0").await;
    let updated = ask(&b, "update q set v = v + 1 where k = 6".to_owned());
    one_gives_way([looks, updated], [&a, &b]).await;
}

/// Creates every kind of object that Onecopy numbers, in one transaction.
fn making(n: usize) -> String {
    format!(
        "begin; create type mood_{n} as enum ('sad');
         create table made_{n} (id serial primary key, v text unique, at mood_{n});
         insert into made_{n} (v) values ('of {n}')"
    )
}

/// Open transactions that have made distinct objects do not wait for each other, however they end. Every replica has the same
/// numbers for the objects although they commit in another order than they were made.
async fn open_schema_changes_hold_up_none(cluster: &Cluster) {
    let mut makers = Vec::new();
    for n in 0..4 {
        let maker = open(cluster.port).await;
        run(&maker, &making(n)).await;
        makers.push(maker);
    }
    // One of them waits for a row of another one. That is no ring, as neither has anything else that the other one wants.
    run(&makers[3], "update q set v = v + 1 where k = 7").await;
    let waits = ask(&makers[0], "update q set v = v + 1 where k = 7".to_owned());
    run(&makers[3], "create table late (k int)").await;
    run(&makers[2], "rollback").await;
    for n in [3, 1] {
        run(&makers[n], "commit").await;
    }
    assert_eq!(sqlstate(&within(waits).await), None);
    run(&makers[0], "commit").await;
    for (home, n) in [(1, 0), (2, 1), (3, 3)] {
        let client = at(cluster, home).await;
        run(&client, &format!("insert into made_{n} (v, at) values ('more of {n}', 'sad')")).await;
        let found = cluster.everywhere(&format!("select v from made_{n} order by id")).await;
        assert_eq!(found, [[format!("of {n}")], [format!("more of {n}")]]);
    }
    let numbered =
        "select number, is_type, coalesce(t.typname, c.relname) from (select id as number, is_type, object
            from onecopy_capture.names) names left join pg_type t on is_type and t.oid = object
            left join pg_class c on not is_type and c.oid = object order by 1";
    assert!(cluster.everywhere(numbered).await.len() > 10);
    cluster.everywhere("select id, relation::regclass from onecopy_capture.sequences order by 1").await;
    run(&makers[0], "drop table made_0, made_1, made_3, late; drop type mood_0, mood_1, mood_3").await;
}

/// Schema changes that do not concern the table of an open transaction.
const BESIDE: [&str; 16] = [
    "create table made (id serial primary key, v int unique)",
    "insert into made (v) values (1), (2)",
    "create index made_index on made (v)",
    "alter table made add column w int default 7",
    "create view shown as select * from made",
    "create function one() returns int language sql as 'select 1'",
    "create type mood as enum ('sad', 'happy')",
    "begin; create table child (k int references made (id)); alter table child add v text;
     create index on child (v); commit",
    "create table filled as select v from made",
    "create temp table mine as select 1 as k; drop table mine",
    "grant select on made to public; comment on table made is 'made'",
    "drop index made_index",
    "alter table child drop column v",
    "alter table filled rename to renamed",
    "drop table child; drop table renamed",
    "create table plain (k int); drop table plain",
];

/// An open transaction that writes delays only schema changes of objects that it uses; others do not make it fail.
async fn schema_changes_pass(cluster: &Cluster, home: usize, level: &str) {
    let (writer, changer) = (at(cluster, home).await, open(cluster.port).await);
    run(&changer, "update q set v = 0").await;
    run(&writer, &format!("begin isolation level {level}; select v from q where k = 1")).await;
    run(&writer, "update q set v = v + 1 where k = 2").await;
    for change in BESIDE {
        let passes = tokio::time::timeout(PASSES_WITHIN, run(&changer, change)).await;
        assert!(passes.is_ok(), "it waits for a transaction at replica-{home} that is {level}: {change}");
    }
    run(&writer, "select v from q where k = 3; update q set v = v + 1 where k = 4; commit").await;
    assert_eq!(cluster.everywhere("select sum(v) from q").await, [["2"]], "{home} {level}");
    run(&changer, "drop view shown; drop function one(); drop type mood; drop table made").await;
}

/// A schema change waits for the users of its objects, at every home; later users of the objects wait for the change.
async fn schema_changes_wait(cluster: &Cluster) {
    let admin = cluster.try_client("onecopy").await.unwrap();
    let (writer, reader, later) = (at(cluster, 2).await, at(cluster, 3).await, at(cluster, 2).await);
    let (changer, stranger) = (open(cluster.port).await, at(cluster, 3).await);
    run(&changer, "create view through as select * from q").await;
    run(&writer, "begin; update q set v = v + 1 where k = 2").await;
    // It has only read the table, through a view, and written another one.
    run(&reader, "begin; update other set v = v + 1; select v from through where k = 1").await;
    let change = ask(&changer, "alter table q add column added int".to_owned());
    until_waiting(&admin, 1).await;
    let behind = ask(&later, "update q set v = v + 1 where k = 5".to_owned());
    until_waiting(&admin, 2).await;
    // The change keeps others from nothing, whatever their level.
    run(&stranger, "begin isolation level serializable; insert into third values (1); commit").await;
    run(&writer, "commit").await;
    assert!(!change.is_finished(), "it has not waited for the transaction that reads the table");
    run(&reader, "commit").await;
    for answer in [change, behind] {
        let answer = within(answer).await;
        assert_eq!(sqlstate(&answer), None, "{answer}");
    }
    assert_eq!(cluster.everywhere("select count(*), count(added) from q").await, [["10", "0"]]);
}

/// A transaction that was analysed before the schema changed somewhere else commits, although others have written meanwhile.
async fn schema_changes_cost_others_nothing(cluster: &Cluster) {
    let (writer, other, changer) = (at(cluster, 1).await, at(cluster, 2).await, open(cluster.port).await);
    run(&changer, "create table fourth (k int primary key)").await;
    run(&writer, "begin; insert into third values (2)").await;
    run(&changer, "create table beside (k int); alter table fourth add column v int; drop table beside")
        .await;
    run(&other, "insert into other values (60, 0)").await;
    run(&writer, "insert into third values (3); commit").await;
    run(&changer, "drop table fourth").await;
    assert_eq!(cluster.everywhere("select k from third order by k").await, [["1"], ["2"], ["3"]]);
}

/// A schema change that may change the meaning of a name waits for all open schema changes, since replicas run them in the
/// order of their commits.
async fn names_keep_their_meaning(cluster: &Cluster) {
    const RACES: [(&str, &str, &str); 4] = [
        ("create table named (k int primary key)", "create schema postgres", "select k from public.named"),
        ("create table typed (t sort)", "alter type sort rename to kind", "select t from typed"),
        (
            "create function of_row(row_type) returns int language sql as 'select 1'",
            "alter table row_type rename to renamed",
            "select of_row(r) from renamed r",
        ),
        (
            "create table shadowed (t kind)",
            "create type postgres.kind as enum ('b')",
            "select t from shadowed",
        ),
    ];
    let (maker, changer, watcher) =
        (open(cluster.port).await, open(cluster.port).await, open(cluster.port).await);
    run(&maker, "create type sort as enum ('a'); create table row_type (k int)").await;
    for (made, change, found) in RACES {
        run(&maker, &format!("begin; {made}")).await;
        let change = ask(&changer, change.to_owned());
        let mut is_waiting = false;
        while !is_waiting && !change.is_finished() {
            let waiting =
                "select 1 from pg_stat_activity where wait_event_type = 'Lock' and wait_event = 'advisory'";
            is_waiting = !cluster::rows(&watcher, waiting).await.is_empty();
        }
        run(&maker, "commit").await;
        let answer = within(change).await;
        assert_eq!(sqlstate(&answer), None, "{answer}");
        cluster.everywhere(found).await;
    }
    run(&maker, "drop table named, typed, shadowed; drop schema postgres cascade; drop type kind").await;
    run(&maker, "drop table renamed").await;
}

/// As suites of tests do that run in parallel.
async fn tables_come_and_go(cluster: &Cluster) {
    let worker = |n: usize| {
        let port = cluster.port;
        async move {
            let client = open(port).await;
            for _ in 0..2 {
                run(&client, &format!("create table w{n} (k int primary key, v text)")).await;
                run(&client, &format!("begin; insert into w{n} values (1, 'a'), (2, 'b')")).await;
                run(
                    &client,
                    &format!("create table x{n} (k int); update w{n} set v = 'c' where k = 1; commit"),
                )
                .await;
                run(&client, &format!("begin; delete from w{n} where k = 2; select * from w{n}")).await;
                run(&client, &format!("create index on x{n} (k); drop table x{n}; commit")).await;
                run(&client, &format!("drop table w{n}")).await;
            }
        }
    };
    let workers: Vec<_> = (0..6).map(|n| tokio::spawn(worker(n))).collect();
    for worker in workers {
        worker.await.unwrap();
    }
}

/// Waits until so many transactions are shown as waiting for others.
async fn until_waiting(admin: &Client, count: usize) {
    loop {
        let shown = cluster::rows(admin, "SHOW TRANSACTIONS").await;
        if shown.iter().filter(|row| row["state"] == "waiting").count() >= count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
