//! Promise: an application that only CALLs procedures is not bound to the anchor, and its replicas stay identical.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::collections::BTreeMap;

use cluster::{Cluster, connect, rows, run, table, value};

/// TPC-C's tables, and its transactions as five procedures.
const TPCC: &str = include_str!("../../sql/tests/corpus/tpcc_calls.sql");

const WAREHOUSES: usize = 3;
const CLIENTS: usize = 6;
const CALLS_EACH: usize = 30;

/// The reasons for which a transaction has to run at the anchor. One that may run anywhere can be placed there as well;
/// that is counted apart.
const NEEDED: [&str; 4] = ["update", "unknown", "interactive", "catalogue"];

const LOAD: &str = "
INSERT INTO warehouse SELECT w, 'w', 0.1, 0 FROM generate_series(1, 3) w;
INSERT INTO district SELECT w, d, 'd', 0.1, 0, 1 FROM generate_series(1, 3) w, generate_series(1, 10) d;
INSERT INTO customer SELECT w, d, c, 'f' || c, 'l' || c % 3, 'GC', 0.1, 0, 0, 0, 0, 'x'
    FROM generate_series(1, 3) w, generate_series(1, 10) d, generate_series(1, 6) c;
INSERT INTO item SELECT i, 'i', 1 + i, 'x' FROM generate_series(1, 30) i;
INSERT INTO stock SELECT w, i, 50, 0, 0, 0, 'x' FROM generate_series(1, 3) w, generate_series(1, 30) i;
CREATE PROCEDURE payment_by_text(w int, d int, c int) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'CALL payment($1, $2, $1, $2, $3, NULL, 1, now()::timestamp)' USING w, d, c;
END $$;
";

/// The counters of SHOW STATS.
async fn stats(cluster: &Cluster) -> BTreeMap<String, u64> {
    let admin = connect("127.0.0.1", cluster.port, "onecopy").await.unwrap();
    let all = rows(&admin, "SHOW STATS").await;
    let number = |row: &BTreeMap<String, String>| Some((row["name"].clone(), row["value"].parse().ok()?));
    all.iter().filter_map(number).collect()
}

/// How many transactions had to run at the anchor since, and how many were placed there.
async fn at_anchor(cluster: &Cluster, before: &BTreeMap<String, u64>) -> (u64, u64) {
    let now = stats(cluster).await;
    let since = |reason: &str| {
        let name = format!("anchor_because.{reason}");
        now[&name] - before[&name]
    };
    (NEEDED.into_iter().map(since).sum(), since("chosen"))
}

/// The calls of one client, at its own warehouse; some items and customers are of others.
fn calls(client: usize) -> Vec<String> {
    let call = |n: usize| {
        let (w, d, c) = (client % WAREHOUSES + 1, n % 10 + 1, n % 6 + 1);
        let other = (w + n) % WAREHOUSES + 1;
        match n % 10 {
            0..4 => format!(
                "CALL new_order({w}, {d}, {c}, '{{{}, {}}}', '{{{w}, {other}}}', '{{3, 4}}', '2026-01-01')",
                n % 15 + 1,
                n % 15 + 16
            ),
            4..6 => format!("CALL payment({w}, {d}, {other}, {d}, {c}, NULL, 2.5, '2026-01-01')"),
            6 => format!("CALL payment({w}, {d}, {w}, {d}, NULL, 'l{}', 2.5, '2026-01-01')", n % 3),
            7 => format!("CALL delivery({w}, 3, '2026-01-01')"),
            8 => format!("CALL order_status({w}, {d}, {c}, NULL, NULL, NULL)"),
            _ => format!("CALL stock_level({w}, {d}, 40, NULL)"),
        }
    };
    (0..CALLS_EACH).map(call).collect()
}

#[tokio::test]
async fn calls_run_at_every_replica() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    run(&client, TPCC).await;
    run(&client, LOAD).await;
    cluster.caught_up().await;

    // What a procedure makes up at run time cannot be bounded: this is what every CALL was like.
    let before = stats(&cluster).await;
    for n in 1..=10 {
        run(&client, &format!("CALL payment_by_text(1, {n}, 1)")).await;
    }
    assert_eq!(at_anchor(&cluster, &before).await, (10, 0), "all that cannot be bounded");

    let before = stats(&cluster).await;
    let mut tasks = Vec::new();
    for number in 0..CLIENTS {
        let client = cluster.client().await;
        tasks.push(tokio::spawn(async move {
            for call in calls(number) {
                run(&client, &call).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let (needed, chosen) = at_anchor(&cluster, &before).await;
    let all = u64::try_from(CLIENTS * CALLS_EACH).unwrap();
    assert_eq!(needed, 0, "of {all} calls, {chosen} of them placed at the anchor");
    let replicas = cluster.caught_up().await;
    let elsewhere: u64 = replicas.iter().filter(|one| one.role != "anchor").map(|one| one.writes).sum();
    assert!(elsewhere > 0, "{replicas:?}");
    is_consistent(&cluster).await;
    in_transactions_too(&cluster).await;
    is_explained(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// TPC-C's conditions 1, 2, 8 and 9 (clause 3.3.2).
async fn is_consistent(cluster: &Cluster) {
    let client = cluster.client().await;
    for wrong in [
        "SELECT w_id FROM warehouse WHERE w_ytd <> (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)",
        "SELECT d_id FROM district WHERE d_next_o_id - 1 <>
            (SELECT coalesce(max(o_id), 0) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)",
        "SELECT d_id FROM district WHERE d_ytd <>
            (SELECT coalesce(sum(h_amount), 0) FROM history WHERE h_w_id = d_w_id AND h_d_id = d_id)",
        "SELECT o_id FROM orders WHERE o_ol_cnt <> (SELECT count(*) FROM order_line
            WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id)",
    ] {
        assert_eq!(table(&client, wrong).await, Vec::<Vec<String>>::new(), "{wrong}");
    }
    let orders = value(&client, "SELECT count(*) FROM orders").await;
    assert_eq!(orders, (CLIENTS * CALLS_EACH * 4 / 10).to_string());
}

/// A CALL in a transaction block, by the extended protocol, with other statements around it, and rolled back.
async fn in_transactions_too(cluster: &Cluster) {
    let mut client = cluster.client().await;
    let ytd = "SELECT w_ytd::text FROM warehouse WHERE w_id = 2";
    let before = value(&client, ytd).await;
    for n in 0..3 {
        let transaction = client.transaction().await.unwrap();
        transaction
            .execute("UPDATE stock SET s_ytd = s_ytd + 1 WHERE s_w_id = 2 AND s_i_id = $1", &[&n])
            .await
            .unwrap();
        let arguments: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&2_i32, &(n + 1), &3_i32];
        let call = "CALL payment($1, $2, 2, 1, $3, NULL, 10, '2026-01-01')";
        transaction.execute(call, &arguments).await.unwrap();
        if n == 0 {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
    }
    let sum = value(&client, &format!("SELECT {before} + 10.00")).await;
    assert_eq!(value(&client, ytd).await, sum);
    run(&client, "DO $$ BEGIN CALL payment(2, 5, 2, 5, 1, NULL, 1, '2026-01-01'); END $$").await;
    assert_eq!(value(&client, ytd).await, value(&client, &format!("SELECT {before} + 11.00")).await);
    let refused = client.simple_query("DO $$ BEGIN COMMIT; END $$").await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "2D000");
}

async fn is_explained(cluster: &Cluster) {
    let client = cluster.client().await;
    let call = "CALL payment(3, 7, 3, 7, 5, NULL, 1.0, '2026-01-01')";
    let told = table(&client, &format!("EXPLAIN (ROUTING) {call}")).await.concat();
    for line in [
        "writes      district (d_ytd): d_w_id = 3 and d_id = 7",
        "runs        at any replica: where what it conflicts with runs, or ran last, else by load",
    ] {
        assert!(told.iter().any(|told| told == line), "{told:#?}");
    }
    let told = table(&client, "EXPLAIN (ROUTING) CALL payment_by_text(1, 1, 1)").await.concat();
    assert!(told.iter().any(|line| line == "runs        at the anchor: it may do anything"), "{told:#?}");
}
