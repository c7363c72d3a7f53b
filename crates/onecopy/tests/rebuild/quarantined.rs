//! Replicas in quarantine: their rows were changed behind Onecopy's back, or they could not apply a record.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::{Cluster, programs, rows, run, value};
use crate::{JOINS_WITHIN, begin};

/// Writes directly at a server; a superuser can get past the guard.
async fn behind_our_back(server: &tokio_postgres::Client, sql: &str) {
    let token = value(
        server,
        "select substring(pg_get_triggerdef(oid) from '''([0-9a-f]{32})''') from pg_trigger \
                               where tgname = '!onecopy_replica' limit 1",
    )
    .await;
    let sql = format!("set onecopy.via = '{token}'; set session_replication_role = replica; {sql}");
    server.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn what_a_replica_cannot_apply_is_not_tried_again_until_it_was_rebuilt() {
    let mut cluster = begin(2).await;
    let port = cluster.port.to_string();
    let client = cluster.client().await;
    let replicas = cluster.caught_up().await;
    behind_our_back(&cluster.direct(&replicas[1]).await, "delete from filler where id = 7").await;
    run(&client, "set onecopy.home = anchor; update filler set text = 'new' where id = 7").await;
    while cluster.replicas().await[1].state != "quarantined" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Long enough for ten attempts.
    for n in 0..20 {
        run(&client, &format!("insert into noted (writer) values ({n})")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let printed = cluster.printed();
    assert_eq!(printed.matches("a record cannot be applied").count(), 1, "{printed}");

    let rebuilt = programs::onecopy(&["replica", "rebuild", "replica-2", "--port", &port]).await;
    assert!(rebuilt.status.success(), "{}", programs::text(&rebuilt));
    cluster.caught_up().await;
    let checked = programs::onecopy(&["replica", "check", "--port", &port]).await;
    assert!(checked.status.success(), "{}", programs::text(&checked));
    cluster.stop().await;
}

#[tokio::test]
async fn a_replica_that_was_changed_behind_our_back_serves_nothing_until_it_is_rebuilt() {
    let mut cluster = begin(3).await;
    let port = cluster.port.to_string();
    let client = cluster.client().await;
    let replicas = cluster.caught_up().await;
    let checked = programs::onecopy(&["replica", "check", "--port", &port]).await;
    assert!(checked.status.success(), "{}", programs::text(&checked));

    behind_our_back(&cluster.direct(&replicas[1]).await, "update filler set text = 'wrong' where id = 7")
        .await;
    let checked = programs::onecopy(&["replica", "check", "--port", &port]).await;
    let said = programs::text(&checked);
    assert!(!checked.status.success(), "{said}");
    for words in
        ["replica-2", "QUARANTINED", "table \"public\".\"filler\"", "REBUILD REPLICA replica-2 repairs it"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    for _ in 0..30 {
        assert_eq!(value(&client, "select text <> 'wrong' from filler where id = 7").await, "t");
    }
    // It stays so over a restart, and says so.
    cluster.stop().await;
    cluster.up_again().await;
    let shown = cluster.replicas().await;
    assert_eq!(shown[1].state, "quarantined");
    let client = cluster.client().await;
    for _ in 0..30 {
        assert_eq!(value(&client, "select text <> 'wrong' from filler where id = 7").await, "t");
    }
    let admin = cluster.try_client("onecopy").await.unwrap();
    let detail = &rows(&admin, "SHOW REPLICAS").await[1]["detail"];
    assert!(detail.contains("differs") && detail.contains("REBUILD REPLICA replica-2"), "{detail}");

    let rebuilt = programs::onecopy(&["replica", "rebuild", "replica-2", "--port", &port]).await;
    assert!(rebuilt.status.success(), "{}", programs::text(&rebuilt));
    cluster.caught_up().await;
    let checked = programs::onecopy(&["replica", "check", "--port", &port]).await;
    assert!(checked.status.success(), "{}", programs::text(&checked));
    let listed = programs::onecopy(&["replica", "list", "--port", &port]).await;
    assert_eq!(programs::text(&listed).matches(" up ").count(), 3, "{}", programs::text(&listed));
    cluster.stop().await;
}

/// Inserts a row that the server of replica-2 refuses, though its rows are as they should be; it is in quarantine then.
async fn insert_what_the_second_refuses(cluster: &Cluster, client: &tokio_postgres::Client, row: u32) {
    let second = &cluster.caught_up().await[1];
    let direct = cluster.direct(second).await;
    let others = "select pg_terminate_backend(pid) from pg_stat_activity \
                  where backend_type = 'client backend' and pid <> pg_backend_pid()";
    run(&direct, &format!("alter database postgres set app.refuses = 'yes'; {others}")).await;
    drop(direct);
    cluster.caught_up().await;
    run(client, &format!("insert into picky values ({row}, {row})")).await;
    let deadline = Instant::now() + JOINS_WITHIN;
    while cluster.replicas().await[1].state != "quarantined" {
        assert!(Instant::now() < deadline, "{}", cluster.printed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The cause is gone, which nothing notices by itself.
    run(&cluster.direct(&cluster.replicas().await[1]).await, "alter database postgres reset app.refuses")
        .await;
}

#[tokio::test]
async fn a_replica_that_could_not_apply_a_record_serves_when_no_other_can() {
    let mut cluster = Cluster::start_as(2, &[], &["--health-deadline-ms", "1500"]).await;
    let client = cluster.client().await;
    run(
        &client,
        "create function fits(int) returns int immutable language plpgsql as $$ begin
             if current_setting('app.refuses', true) = 'yes' then raise exception 'not here' using errcode = '22000'; end if;
             return $1;
         end $$",
    )
    .await;
    run(&client, "create table picky (k int primary key, v int)").await;
    run(&client, "create index on picky (fits(v))").await;

    // While the node runs, the only replica that is up is lost.
    insert_what_the_second_refuses(&cluster, &client, 1).await;
    let first = cluster.replicas().await.swap_remove(0);
    cluster.signal_server(&first, Signal::STOP);
    let deadline = Instant::now() + JOINS_WITHIN;
    while cluster.replicas().await[0].state != "down" {
        assert!(Instant::now() < deadline, "{}", cluster.printed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let port = cluster.port.to_string();
    let rebuilt = programs::onecopy(&["replica", "rebuild", "replica-2", "--port", &port]).await;
    let is_up = cluster.replicas().await[1].state == "up";
    let there = value(&cluster.client().await, "select count(*) from picky where v = 1").await;
    cluster.signal_server(&first, Signal::CONT);
    assert!(rebuilt.status.success() && is_up, "{}", programs::text(&rebuilt));
    assert_eq!(there, "1");
    cluster.caught_up().await;

    // While it is stopped, the data of that replica, which is the anchor again, is lost for good.
    let admin = cluster.try_client("onecopy").await.unwrap();
    run(&admin, "DRAIN REPLICA replica-2").await;
    run(&admin, "UNDRAIN REPLICA replica-2").await;
    let client = cluster.client().await;
    insert_what_the_second_refuses(&cluster, &client, 2).await;
    cluster.stop().await;
    std::fs::remove_dir_all(cluster.data().join("replica-1")).unwrap();
    cluster.up_again().await;
    let client = cluster.client().await;
    assert_eq!(value(&client, "select count(*) from picky").await, "2");
    let deadline = Instant::now() + JOINS_WITHIN;
    while cluster.replicas().await[0].state != "up" {
        assert!(Instant::now() < deadline, "{}", cluster.printed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.verify().await;
    cluster.stop().await;
}
