//! Writes, schema changes and a change of the anchor.

use tokio_postgres::SimpleQueryMessage;

use crate::cached::Cached;
use crate::cluster::raw::Raw;
use crate::cluster::{run, value};

/// Reads each after a write of another session: fewer than after which answers are seldom kept.
const ROUNDS: u64 = 20;

#[tokio::test]
async fn a_read_after_a_write_sees_it() {
    let mut cached = crate::started().await;
    let (client, other) = (cached.client().await, cached.client().await);
    run(&client, "create table t (k int primary key, v bigint, w bigint)").await;
    run(&client, "insert into t select n, 0, 0 from generate_series(1, 9) n").await;
    let query = "select v from t where k = 7";
    cached.is_kept(&client, query, "0").await;
    cached.is_given(&other, query, "0").await;
    run(&other, "update t set v = 5 where k = 8").await;
    cached.is_given(&client, query, "0").await;
    run(&other, "update t set w = 5 where k = 7").await;
    cached.is_given(&client, query, "0").await;
    for round in 1..=ROUNDS {
        run(&other, "update t set v = v + 1 where k = 7").await;
        cached.is_read(&client, query, &round.to_string()).await;
    }
    cached.is_given(&client, query, &ROUNDS.to_string()).await;

    run(&other, "begin; update t set v = -1 where k = 7").await;
    let of_own = value(&other, query).await;
    assert_eq!(of_own, "-1", "a transaction sees what it has written");
    cached.is_given(&client, query, &ROUNDS.to_string()).await;
    run(&other, "rollback").await;
    cached.is_given(&other, query, &ROUNDS.to_string()).await;
    run(&other, "begin; update t set v = -1 where k = 7; commit").await;
    cached.is_read(&client, query, "-1").await;

    let all = "select count(*) from t";
    cached.is_kept(&client, all, "9").await;
    run(&other, "insert into t values (10, 0, 0)").await;
    cached.is_kept(&client, all, "10").await;
    run(&other, "truncate t").await;
    cached.is_read(&client, all, "0").await;
    reads_while_others_write(&cached).await;
    schema_changes(&cached).await;
    anchor_changes(&mut cached).await;
    cached.cluster.stop().await;
}

/// A reader never sees a counter go back, nor behind what its writer was told, while answers are kept and given.
async fn reads_while_others_write(cached: &Cached) {
    let writer = cached.client().await;
    run(&writer, "create table counters (k int primary key, v bigint); insert into counters values (1, 0)")
        .await;
    let told = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let mut readers = Vec::new();
    for _ in 0..3 {
        let (reader, told) = (cached.client().await, std::sync::Arc::clone(&told));
        readers.push(tokio::spawn(async move {
            loop {
                let before = told.load(std::sync::atomic::Ordering::SeqCst);
                let seen: u64 = value(&reader, "select v from counters where k = 1").await.parse().unwrap();
                assert!(seen >= before, "read {seen} after {before} was acknowledged");
                if before == 300 {
                    return;
                }
            }
        }));
    }
    for count in 1..=300 {
        run(&writer, "update counters set v = v + 1 where k = 1").await;
        told.store(count, std::sync::atomic::Ordering::SeqCst);
    }
    for reader in readers {
        reader.await.unwrap();
    }
    assert!(cached.count("hits").await > 0);
}

async fn schema_changes(cached: &Cached) {
    let (client, other) = (cached.client().await, cached.client().await);
    run(&client, "create table s (k int primary key, v int); insert into s values (1, 10)").await;
    run(&client, "create view seen as select v from s").await;
    let whole = "select * from s";
    cached.is_kept(&client, whole, "1").await;
    cached.is_kept(&client, "select v from seen", "10").await;
    run(&other, "alter table s add column w int default 3").await;
    let columns = |messages: Vec<SimpleQueryMessage>| match &messages[0] {
        SimpleQueryMessage::RowDescription(columns) => columns.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(columns(client.simple_query(whole).await.unwrap()), 3);
    run(&other, "create or replace view seen as select v + 1 as v from s").await;
    cached.is_kept(&client, "select v from seen", "11").await;
    run(&other, "drop table s cascade").await;
    let error = client.simple_query(whole).await.unwrap_err();
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42P01"), "{error:?}");
}

/// Columns are described with the table's id at the present anchor.
async fn anchor_changes(cached: &mut Cached) {
    let client = cached.client().await;
    // A rolled-back statement makes the ids of the servers differ.
    run(&client, "begin; create table gone (v int); rollback").await;
    run(&client, "create table a (k int primary key, v int); insert into a values (1, 10)").await;
    let query = "select v from a where k = 1";
    cached.is_kept(&client, query, "10").await;
    let replicas = cached.cluster.caught_up().await;
    let anchor = replicas.iter().find(|replica| replica.role == "anchor").unwrap();
    // A killed one may be back before another one has taken over.
    run(&cached.admin, &format!("DRAIN REPLICA {}", anchor.name)).await;
    while value(&cached.admin, "SHOW REPLICAS").await.is_empty()
        || cached.cluster.replicas().await.iter().any(|r| r.name == anchor.name && r.role == "anchor")
    {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let client = cached.client().await;
    let oid: u32 = value(&client, "select 'a'::regclass::oid").await.parse().unwrap();
    let mut raw = Raw::connect(cached.cluster.port);
    for _ in 0..2 {
        let told = raw.exchange(|out| wire::encode::query(out, query.as_bytes()));
        let (tag, description) = &told[0];
        assert_eq!(*tag, b'T');
        // The number of columns, then the name of the first, then its table.
        assert_eq!(description[2..4], *b"v\0");
        assert_eq!(description[4..8], oid.to_be_bytes(), "the table's id is that of the anchor");
    }
    run(&client, "update a set v = 11 where k = 1").await;
    cached.is_kept(&client, query, "11").await;
    run(&cached.admin, &format!("UNDRAIN REPLICA {}", anchor.name)).await;
    cached.cluster.caught_up().await;
}
