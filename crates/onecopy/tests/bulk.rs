//! Promise: a transaction too large for memory commits on every replica or on none, whatever is killed, and leaves nothing
//! behind.
//!
//! In this test every transaction above a few thousand bytes is too large.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use bytes::Bytes;
use cluster::{Cluster, rows, run, table, until, value};
use futures_util::SinkExt;
use rustix::process::Signal;
use std::pin::pin;
use tokio_postgres::{Client, CopyInSink};

const SPILL: (&str, &str) = ("ONECOPY_TEST_SPILL_BYTES", "20000");
const ROWS: u32 = 100_000;

/// The files with rows of transactions.
fn files(cluster: &Cluster) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(cluster.data().join("log")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "rows")).collect()
}

fn lines(from: u32, to: u32) -> Bytes {
    use std::fmt::Write as _;
    let mut text = String::new();
    for n in from..to {
        writeln!(text, "{n}\t0\trow number {n}").unwrap();
    }
    text.into()
}

async fn code(client: &Client, sql: &str) -> String {
    let error = client.batch_execute(sql).await.expect_err(sql);
    error.code().unwrap_or_else(|| panic!("{sql}: {error:?}")).code().to_owned()
}

const SUMS: &str = "select count(*), sum(id), sum(v), sum(hashtext(t)) from big";

#[tokio::test]
async fn large_transactions_arrive_whole() {
    let mut cluster = Cluster::start_as(3, &[SPILL], &["--transaction-max-mb", "32"]).await;
    let client = cluster.client().await;
    run(&client, "create table big (id int primary key, v int, t text); create table small (id int)").await;
    copies_updates_and_deletes(&cluster, &client).await;
    undone_parts_do_not_arrive(&cluster, &client).await;
    what_fails_leaves_nothing(&cluster, &client).await;
    order_is_kept_or_refused(&cluster, &client).await;
    cluster.verify().await;
    cluster.stop().await;
    cluster.up_again().await;
    cluster.verify().await;
    cluster.stop().await;
}

async fn copies_updates_and_deletes(cluster: &Cluster, client: &Client) {
    run(client, "begin").await;
    let sink: CopyInSink<Bytes> = client.copy_in("copy big from stdin").await.unwrap();
    let mut sink = pin!(sink);
    for part in 0..10 {
        sink.send(lines(part * ROWS / 10, (part + 1) * ROWS / 10)).await.unwrap();
    }
    assert_eq!(sink.finish().await.unwrap(), u64::from(ROWS));
    let admin = cluster.try_client("onecopy").await.unwrap();
    // Its last chunk may still be on the way to the disk.
    let now = async || rows(&admin, "SHOW TRANSACTIONS").await.remove(0);
    until("its rows are written", async || now().await["state"] != "spilling").await;
    let shown = now().await;
    let number = |name: &str| shown[name].parse::<u64>().unwrap();
    assert_eq!((shown["home"].as_str(), shown["state"].as_str()), ("replica-1", "open"));
    assert_eq!(number("rows"), u64::from(ROWS));
    assert!(number("spilled_bytes") > 4_000_000 && number("captured_bytes") >= number("spilled_bytes"));
    run(client, "commit").await;
    assert_eq!(cluster.everywhere(SUMS).await[0][0], ROWS.to_string());
    assert_eq!(table(&admin, "SHOW TRANSACTIONS").await.len(), 0);
    run(client, "update big set v = v + id, t = t || '!' where id % 2 = 0").await;
    run(client, "delete from big where id % 10 = 3").await;
    // Keys move, in an order that never meets another.
    run(client, "update big set id = id + 1000000 where id < 20000").await;
    run(client, "begin; insert into small values (1)").await;
    run(client, "insert into big select g, 1, 'later' from generate_series(2000000, 2020000) g").await;
    run(client, "insert into small values (2); truncate small; insert into small values (3); commit").await;
    assert_eq!(cluster.everywhere("select id from small").await, [["3"]]);
    assert_eq!(cluster.everywhere(SUMS).await[0][0], (ROWS - ROWS / 10 + 20_001).to_string());
    // Schema and rows in one.
    run(client, "begin; create table made (id int, t text)").await;
    run(client, "insert into made select g, 'x' from generate_series(1, 5000) g; alter table made add primary key (id)")
        .await;
    run(client, "update made set t = 'y' where id > 2; alter table made add c int default 7; commit").await;
    let made = "select count(*), min(t), max(t), sum(c) from made";
    assert_eq!(cluster.everywhere(made).await, [["5000", "x", "y", "35000"]]);
}

async fn undone_parts_do_not_arrive(cluster: &Cluster, client: &Client) {
    run(client, "create table part (id int primary key, t text)").await;
    let insert =
        |from: u32, to: u32| format!("insert into part select g, 'p' from generate_series({from}, {to}) g");
    run(client, &format!("begin; {}; savepoint a", insert(1, 3000))).await;
    run(client, &format!("{}; savepoint b; {}", insert(3001, 6000), insert(6001, 9000))).await;
    run(client, &format!("rollback to b; {}", insert(9001, 12000))).await;
    run(client, &format!("rollback to a; {}; commit", insert(12001, 15000))).await;
    let seen = "select count(*), min(id), max(id), sum(id) from part";
    assert_eq!(cluster.everywhere(seen).await, [["6000", "1", "15000", "45003000"]]);
    // The same by exception blocks.
    let block = |from: u32, fails: bool| {
        let fail = if fails { "raise exception 'no';" } else { "" };
        format!("begin {}; {fail} exception when others then null; end;", insert(from, from + 2999))
    };
    let code =
        [block(20_001, false), block(30_001, true), block(40_001, false), block(50_001, true)].concat();
    run(client, &format!("do $$ begin {code} {}; end $$", insert(60_001, 60_003))).await;
    let blocks = "select count(*), min(id), max(id) from part where id > 20000";
    assert_eq!(cluster.everywhere(blocks).await, [["6003", "20001", "60003"]]);
    // All of it is undone: nothing is left to be logged.
    run(client, &format!("begin; savepoint a; {}; rollback to a; commit", insert(70_001, 80_000))).await;
    assert_eq!(cluster.everywhere("select count(*) from part where id > 70000").await, [["0"]]);
}

async fn what_fails_leaves_nothing(cluster: &Cluster, client: &Client) {
    let before = cluster.everywhere(SUMS).await;
    until("files of what is applied are few", async || files(cluster).len() < 40).await;
    let known = files(cluster);
    let strangers = || files(cluster).into_iter().filter(|file| !known.contains(file)).count();
    run(client, "begin; update big set v = 0").await;
    assert_eq!(strangers(), 1);
    run(client, "rollback").await;
    until("the file of a transaction that was rolled back goes", async || strangers() == 0).await;

    let huge = "insert into big select g, 0, repeat('x', 400) from generate_series(10000000, 10100000) g";
    assert_eq!(code(client, huge).await, "53400");
    until("the file of a refused transaction goes", async || strangers() == 0).await;
    run(client, "begin").await;
    assert_eq!(code(client, huge).await, "53400");
    assert_eq!(code(client, "select 1").await, "25P02");
    run(client, "rollback").await;
    let sink: CopyInSink<Bytes> = client.copy_in("copy big from stdin").await.unwrap();
    let mut sink = pin!(sink);
    for part in 100..160 {
        sink.send(lines(part * 10_000, (part + 1) * 10_000)).await.unwrap();
    }
    let error = sink.finish().await.unwrap_err();
    assert_eq!(
        error.code().map(tokio_postgres::error::SqlState::code),
        Some("23505"),
        "its first rows are there already"
    );
    let sink: CopyInSink<Bytes> = client.copy_in("copy big from stdin").await.unwrap();
    let mut sink = pin!(sink);
    for part in 300..400 {
        sink.send(lines(part * 10_000, (part + 1) * 10_000)).await.unwrap();
    }
    let error = sink.finish().await.unwrap_err();
    let message = error.as_db_error().map(|error| format!("{} {:?}", error.code().code(), error.hint()));
    assert!(
        message.as_deref().is_some_and(|m| m.contains("53400") && m.contains("--transaction-max-mb")),
        "{error:?}"
    );
    assert_eq!(value(client, "select 1").await, "1", "the session goes on");

    // The client goes away in the middle.
    let leaving = cluster.client().await;
    run(&leaving, "begin; insert into big select g, 0, 'left' from generate_series(5000000, 5020000) g")
        .await;
    assert_eq!(strangers(), 1);
    {
        let sink: CopyInSink<Bytes> = leaving.copy_in("copy big from stdin").await.unwrap();
        let mut sink = pin!(sink);
        sink.send(lines(5_100_000, 5_120_000)).await.unwrap();
        drop(leaving);
    }
    until("the file of a client that left goes", async || strangers() == 0).await;
    assert_eq!(cluster.everywhere(SUMS).await, before);
}

async fn order_is_kept_or_refused(cluster: &Cluster, client: &Client) {
    run(
        client,
        "create table chain (id int primary key, v int, hops int default 0);
         create table heard (id int, v int);
         create function hop() returns trigger language plpgsql as
         $$ begin update chain set hops = hops + 1 where id = new.id + tg_argv[0]::int and hops = 0; return null; end $$;
         create function hear() returns trigger language plpgsql as
         $$ begin insert into heard values (new.id, new.v); return null; end $$;
         insert into chain select g, 0 from generate_series(1, 3000) g;
         create trigger hear after update of v on chain for each row execute function hear()",
    )
    .await;
    // Nested rows that only come in addition are no matter.
    run(client, "update chain set v = 1").await;
    assert_eq!(cluster.everywhere("select count(*), sum(v) from heard").await, [["3000", "3000"]]);
    // Each row's trigger changes the row 2,000 further on, whose own change is reported much later.
    run(client, "create trigger hop after update of v on chain for each row execute function hop(2000)")
        .await;
    assert_eq!(code(client, "update chain set v = 2").await, "0A000");
    let state = "select count(*), sum(v), sum(hops) from chain";
    assert_eq!(cluster.everywhere(state).await, [["3000", "3000", "0"]]);
    // A row that was changed before is in order.
    run(client, "drop trigger hop on chain").await;
    run(client, "create trigger hop after update of v on chain for each row execute function hop('-2000')")
        .await;
    run(client, "update chain set v = 3").await;
    assert_eq!(cluster.everywhere(state).await, [["3000", "9000", "1000"]]);

    run(client, "create table keyless as select g as id, 0 as v, 0 as hops from generate_series(1, 3000) g")
        .await;
    run(
        client,
        "create function skip() returns trigger language plpgsql as $$ begin
             update keyless set hops = hops + 1 where id = new.id + 2000; return null; end $$;
         create trigger skip after update of v on keyless for each row execute function skip()",
    )
    .await;
    assert_eq!(code(client, "update keyless set v = 2").await, "0A000");
    assert_eq!(cluster.everywhere("select sum(v), sum(hops) from keyless").await, [["0", "0"]]);

    run(client, "create table late (id int primary key deferrable, v int)").await;
    run(client, "insert into late select g, g from generate_series(1, 3000) g").await;
    run(client, "update late set id = id + 1").await;
    run(client, "update late set v = -v, id = 3003 - id").await;
    let state = "select min(id), max(id), sum(v), sum(id * v) from late";
    let expected = cluster
        .everywhere("select 2, 3001, -sum(g), -sum((3002 - g) * g) from generate_series(1, 3000) g")
        .await;
    assert_eq!(cluster.everywhere(state).await, expected);
    run(client, "drop table late").await;
    run(client, "begin; create table late (id int primary key deferrable, v int)").await;
    run(client, "insert into late select g, g from generate_series(1, 3000) g; update late set id = id + 1")
        .await;
    run(client, "commit").await;
    assert_eq!(
        cluster.everywhere("select min(id), max(id), sum(id - v) from late").await,
        [["2", "3001", "3000"]]
    );

    run(
        client,
        "create table root (id int primary key);
         create table leaf (id int primary key, root int references root on delete cascade);
         insert into root select generate_series(1, 100);
         insert into leaf select g, g % 100 + 1 from generate_series(1, 5000) g;
         delete from root where id > 10",
    )
    .await;
    assert_eq!(cluster.everywhere("select count(*) from leaf").await, [["500"]]);
}

#[tokio::test]
async fn a_large_transaction_survives_kills() {
    let mut cluster = Cluster::start_with(3, &[SPILL]).await;
    let client = cluster.client().await;
    run(&client, "create table big (id int primary key, v int, t text)").await;
    cluster.caught_up().await;

    // Killed in the middle: nothing of it stays.
    run(&client, "begin; insert into big select g, 0, 'lost' from generate_series(1, 20000) g").await;
    assert_eq!(files(&cluster).len(), 1);
    cluster.kill_onecopy().await;
    assert_eq!(files(&cluster).len(), 1, "a crash leaves it");
    cluster.up_again().await;
    assert_eq!(files(&cluster).len(), 0);
    assert_eq!(cluster.everywhere("select count(*) from big").await, [["0"]]);

    // Killed after it was acknowledged, while a replica that stands still lacks it: all of it arrives.
    let client = cluster.client().await;
    run(&client, "set onecopy.home = 'anchor'").await;
    cluster.signal_server(&cluster.caught_up().await[2], Signal::STOP);
    run(&client, "insert into big select g, 0, 'kept' from generate_series(1, 20000) g").await;
    let lags = cluster.replicas().await;
    assert!(lags[2].lag_versions > 0, "the last replica still lacks it: {lags:#?}");
    cluster.kill_everything().await;
    assert_eq!(files(&cluster).len(), 1);
    cluster.up_again().await;
    assert_eq!(cluster.everywhere("select count(*), min(t) from big").await, [["20000", "kept"]]);

    // A server that is down meanwhile gets it later.
    let client = cluster.client().await;
    let replicas = cluster.caught_up().await;
    cluster.kill_server(&replicas[1], true);
    run(&client, "set onecopy.home = 'anchor'; update big set v = 1").await;
    assert_eq!(cluster.everywhere("select count(*), sum(v) from big").await, [["20000", "20000"]]);
    // A server that dies while it applies the transaction, too: a lock delays it there for a moment.
    let (stranger, onlooker) = (cluster.direct(&replicas[2]).await, cluster.direct(&replicas[2]).await);
    run(&stranger, "begin; select from big where id = 20000 for update").await;
    run(&client, "update big set v = 2").await;
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    until("it is applied", async || {
        value(&onlooker, waits).await != "0" || cluster.replicas().await[2].lag_versions == 0
    })
    .await;
    cluster.kill_server(&replicas[2], true);
    assert_eq!(cluster.everywhere("select count(*), sum(v) from big").await, [["20000", "40000"]]);
    cluster.verify().await;
    cluster.stop().await;

    // A file that a record needs and that is gone is damage.
    let file = files(&cluster).pop().expect("the newest is kept");
    std::fs::rename(&file, file.with_extension("aside")).unwrap();
    let refused =
        cluster::programs::onecopy(&["up", "--data", cluster.data().to_str().unwrap(), "--port", "1"]).await;
    assert!(!refused.status.success());
    std::fs::rename(file.with_extension("aside"), &file).unwrap();
    cluster.up_again().await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_full_disk_fails_the_transaction_alone() {
    let mut cluster = Cluster::start_with(2, &[SPILL, ("ONECOPY_TEST_DISK_RESERVE_MB", "1000000000")]).await;
    let client = cluster.client().await;
    run(&client, "create table big (id int primary key, t text)").await;
    let large = "insert into big select g, 'x' from generate_series(1, 20000) g";
    assert_eq!(code(&client, large).await, "53100");
    run(&client, "begin; insert into big values (0, 'small')").await;
    assert_eq!(code(&client, large).await, "53100");
    run(&client, "rollback; insert into big values (1, 'small')").await;
    assert_eq!(cluster.everywhere("select * from big").await, [["1", "small"]]);
    assert_eq!(files(&cluster).len(), 0);
    cluster.stop().await;
}
