//! Sessions that choose no home: values are in order while there is no load, and several homes draw under load.

use super::{Book, LENT_WITHIN, answers, at, refused, try_answers};
use crate::cluster::raw::Raw;
use crate::cluster::{Cluster, Replica, rows, run, table, value};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

const SCHEMA: &str = "
    create table ordered (id serial primary key, v int);
    create table loaded (id bigserial primary key, v int);
    create table spread (id bigint generated always as identity primary key, k int);
    create table place (k int primary key, n int);
    create table fresh (id serial primary key, v int);
    create table many (id serial primary key, v int unique);
    insert into place select k, 0 from generate_series(1, 100) k";

const SESSIONS: i64 = 24;
const ROUNDS: usize = 15;

pub(super) async fn play(cluster: &Cluster) {
    let client = cluster.client().await;
    run(&client, SCHEMA).await;
    without_load_values_come_in_order(cluster).await;
    a_range_that_is_waited_for_comes_without_a_further_request(cluster).await;
    the_end_of_a_range_costs_no_transaction(cluster).await;
    a_wait_for_a_range_lasts_as_long_as_the_session_allows(cluster).await;
    a_setting_keeps_the_order(cluster).await;
    under_load_every_home_draws(cluster).await;
    the_setting_is_one(cluster).await;
}

fn away(replicas: &[Replica]) -> u64 {
    replicas.iter().filter(|replica| replica.role != "anchor").map(|replica| replica.writes).sum()
}

/// Two sessions in turn, with every way to insert, and often enough for learned statistics to count.
async fn without_load_values_come_in_order(cluster: &Cluster) {
    let clients = [cluster.client().await, cluster.client().await];
    let mut expected = 0;
    for round in 0..8 {
        for sql in [
            "insert into ordered (v) values (1) returning id",
            "begin; insert into ordered (v) values (1) returning id; commit",
            "begin; select n from place where k = 1000; insert into ordered (v) values (1) returning id; commit",
            "begin; update place set n = n + 1 where k = 7; insert into ordered (v) values (1) returning id; commit",
            "insert into ordered (v) values (1), (2) returning id",
        ] {
            for client in &clients {
                for value in answers(client, sql).await {
                    expected += 1;
                    assert_eq!(value, expected, "round {round}: {sql}");
                }
            }
        }
        for client in &clients {
            let row = client.query_one("insert into ordered (v) values ($1) returning id", &[&round]).await;
            expected += 1;
            assert_eq!(i64::from(row.unwrap().get::<_, i32>(0)), expected, "by the extended protocol");
        }
    }
}

/// A transaction at another home draws from a sequence without a lease while no other session writes.
async fn a_range_that_is_waited_for_comes_without_a_further_request(cluster: &Cluster) {
    let home = cluster.replicas().await.into_iter().find(|replica| replica.role != "anchor").unwrap().name;
    let client = at(cluster, &home).await;
    let sql = "begin; update place set n = n - 5 where k = 5; insert into fresh (v) values (1) returning id; commit";
    let before = cluster.replicas().await;
    assert_eq!(answers(&client, sql).await.len(), 1);
    assert!(away(&cluster.replicas().await) > away(&before), "it ran there");
}

/// More is drawn in later statements of an open transaction than its home is lent.
async fn the_end_of_a_range_costs_no_transaction(cluster: &Cluster) {
    let home = cluster.replicas().await.into_iter().find(|replica| replica.role != "anchor").unwrap().name;
    let mut client = at(cluster, &home).await;
    let before = cluster.replicas().await;
    let sql = "begin; update place set n = n - 6 where k = 6;
        insert into many (v) select v from generate_series(1, 400) v returning id;
        savepoint a; insert into many (v) select v from generate_series(401, 2000) v;
        insert into many (v) values (2001) returning id; rollback to a;
        insert into many (v) select v from generate_series(301, 1500) v on conflict (v) do nothing returning id;
        release a; insert into many (v) select v from generate_series(1501, 31500) v; commit";
    let drawn = answers(&client, sql).await;
    let mut book = Book::default();
    book.note("many", &drawn);
    assert_eq!(drawn.len(), 400 + 1 + 1100);
    let there = table(&client, "select count(*), min(v), max(v), count(distinct id) from many").await;
    assert_eq!(there, [["31500", "1", "31500", "31500"]]);
    // By the extended protocol, and a statement that fails for another reason.
    let transaction = client.transaction().await.unwrap();
    transaction.execute("update place set n = n - 6 where k = 6", &[]).await.unwrap();
    let rows = transaction
        .query(
            "insert into many (v) select v from generate_series($1::int, 60000) v returning id",
            &[&31_501],
        )
        .await
        .unwrap();
    assert_eq!(rows.len(), 28_500);
    transaction.execute("insert into many (v) values ($1)", &[&7]).await.expect_err("it is there");
    drop(transaction);
    assert_eq!(value(&client, "select count(*) from many").await, "31500");
    assert!(away(&cluster.replicas().await) > away(&before), "they ran there");
    drop(client);
    // In one pipeline with the end of the transaction, and with statements between them that the session itself answers.
    let (adds, draws) = (
        "update place set n = n - 6 where k = 6",
        "insert into many (v) select v from generate_series(70001, 100000) v",
    );
    let mut raw = Raw::connect(cluster.port);
    assert_eq!(raw.pipeline(&[&format!("set onecopy.home = '{home}'")]), ["SET"]);
    let before = cluster.replicas().await;
    let told = raw.pipeline(&["begin", adds, draws, "savepoint a", adds, "rollback to a", "commit"]);
    assert_eq!(told, ["BEGIN", "UPDATE 1", "INSERT 0 30000", "SAVEPOINT", "UPDATE 1", "ROLLBACK", "COMMIT"]);
    assert!(away(&cluster.replicas().await) > away(&before), "it ran there");
    // An error ends the pipeline, and nothing else.
    assert_eq!(
        raw.pipeline(&["begin", adds, "insert into many (v) values (70001)", "commit"]),
        ["BEGIN", "UPDATE 1", "23505"]
    );
    assert_eq!(raw.pipeline(&["rollback"]), ["ROLLBACK"]);
}

/// A late lease makes no transaction fail, either, and a session with a shorter time-out, or a cancelled one, stops waiting.
async fn a_wait_for_a_range_lasts_as_long_as_the_session_allows(cluster: &Cluster) {
    const DRAWS: &str = "insert into late (v) values (1) returning id";
    /// Longer than lending takes on any machine that works.
    const LATE: Duration = Duration::from_secs(6);
    run(&cluster.client().await, "create table late (id serial primary key, v int)").await;
    let (anchor, others): (Vec<_>, Vec<_>) =
        cluster.caught_up().await.into_iter().partition(|replica| replica.role == "anchor");
    let client = at(cluster, &others[0].name).await;
    let begin = "begin; update place set n = n - 7 where k = 7";
    // Leased ranges are drawn at the anchor.
    let holder = cluster.direct(&anchor[0]).await;
    run(&holder, "set session_replication_role = replica; begin").await;
    run(&holder, "lock table onecopy_capture.sequences in access exclusive mode").await;
    run(&client, &format!("{begin}; set local statement_timeout = '300ms'")).await;
    assert_eq!(refused(&client, DRAWS).await, "57014");
    run(&client, &format!("rollback; {begin}")).await;
    let stop = client.cancel_token();
    let (told, ()) = tokio::join!(refused(&client, DRAWS), async {
        until_waiting(cluster).await;
        stop.cancel_query(NoTls).await.unwrap();
    });
    assert_eq!(told, "57014");
    run(&client, &format!("rollback; {begin}")).await;
    let (drawn, ()) = tokio::join!(answers(&client, DRAWS), async {
        until_waiting(cluster).await;
        tokio::time::sleep(LATE).await;
        run(&holder, "commit").await;
    });
    assert_eq!(drawn.len(), 1);
    run(&client, "commit").await;
}

async fn until_waiting(cluster: &Cluster) {
    let admin = cluster.try_client("onecopy").await.unwrap();
    let deadline = Instant::now() + LENT_WITHIN;
    while !rows(&admin, "show clients").await.iter().any(|row| row["state"] == "waiting") {
        assert!(Instant::now() < deadline, "nobody waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn insert_together(cluster: &Cluster, setting: &str, sql: fn(i64) -> String, book: &mut Book) {
    let mut tasks = Vec::new();
    for session in 1..=SESSIONS {
        let client = cluster.client().await;
        run(&client, setting).await;
        tasks.push(tokio::spawn(async move {
            let mut drawn = Vec::new();
            for _ in 0..ROUNDS {
                drawn.extend(try_answers(&client, &sql(session)).await?);
            }
            Ok::<_, tokio_postgres::Error>(drawn)
        }));
    }
    for task in tasks {
        book.note("drawn", &task.await.unwrap().expect("nobody hears of an error"));
    }
}

/// Something that keeps a server busy for a moment.
const BUSY: &str = "(select count(*) from generate_series(1, 30000))";

async fn a_setting_keeps_the_order(cluster: &Cluster) {
    let before = cluster.replicas().await;
    let sql = |_| format!("insert into loaded (v) values ({BUSY}) returning id");
    let mut book = Book::default();
    insert_together(cluster, "set onecopy.sequences = anchor", sql, &mut book).await;
    assert_eq!(book.0["drawn"].last(), Some(&(SESSIONS * i64::try_from(ROUNDS).unwrap())), "without a gap");
    assert_eq!(away(&cluster.replicas().await), away(&before), "all at the anchor");
}

async fn under_load_every_home_draws(cluster: &Cluster) {
    let before = cluster.replicas().await;
    let sql = |session: i64| match session % 3 {
        0 => format!("insert into spread (k) values ({BUSY}) returning id"),
        1 => format!(
            "begin; insert into spread (k) values ({BUSY}) returning id; insert into spread (k) values (2) returning id; commit"
        ),
        _ => format!(
            "begin; update place set n = n + 1 where k = {session}; insert into spread (k) values ({BUSY}) returning id; commit"
        ),
    };
    let mut book = Book::default();
    let deadline = Instant::now() + LENT_WITHIN;
    // A home that is lent its first range late has little of the first load.
    loop {
        insert_together(cluster, "reset onecopy.sequences", sql, &mut book).await;
        let after = cluster.replicas().await;
        let writes: Vec<u64> = before.iter().zip(after).map(|(was, is)| is.writes - was.writes).collect();
        if writes.iter().all(|writes| *writes > 20) {
            break;
        }
        assert!(Instant::now() < deadline, "{writes:?} of {}", book.0["drawn"].len());
    }
    let there = value(&cluster.client().await, "select count(*) from spread").await;
    assert_eq!(there.parse::<usize>().unwrap(), book.0["drawn"].len());
    cluster.caught_up().await;
    // The load is over: the values of the anchor are beyond all others, and in order again.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let clients = [cluster.client().await, cluster.client().await];
    let mut last = *book.0["drawn"].last().unwrap();
    for client in clients.iter().cycle().take(6) {
        let value = answers(client, "insert into spread (k) values (1) returning id").await[0];
        assert!(value > last, "{value} after {last}");
        last = value;
    }
}

async fn the_setting_is_one(cluster: &Cluster) {
    let client = cluster.client().await;
    let shown = async || value(&client, "show onecopy.sequences").await;
    assert_eq!(shown().await, "lent");
    run(&client, "set onecopy.sequences = 'anchor'").await;
    assert_eq!(shown().await, "anchor");
    let explained = table(&client, "explain (routing) insert into spread (k) values (1)").await;
    assert!(
        explained.concat().iter().any(|line| line.contains("at the anchor: it draws from a sequence")),
        "{explained:?}"
    );
    for reset in ["reset onecopy.sequences", "set onecopy.sequences to default", "discard all", "reset all"] {
        run(&client, "set onecopy.sequences = anchor").await;
        run(&client, reset).await;
        assert_eq!(shown().await, "lent", "{reset}");
    }
    let explained = table(&client, "explain (routing) insert into spread (k) values (1)").await;
    assert!(explained.concat().iter().any(|line| line.contains("as long as that has room")), "{explained:?}");
    assert_eq!(refused(&client, "set onecopy.sequences = here").await, "22023");
    assert_eq!(refused(&client, "begin; set local onecopy.sequences = anchor").await, "0A000");
}
