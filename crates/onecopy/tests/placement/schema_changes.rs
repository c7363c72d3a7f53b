//! Schema changes where some replica holds only a part of the data.

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, run, table, value};
use crate::{WITHIN, admin, counts, placed, refused};

/// The holders that SHOW PLACEMENT lists for a table. It has the names of the last catalogue, so a new name takes a moment.
async fn placed_on(cluster: &Cluster, name: &str, expected: &str) {
    let deadline = Instant::now() + WITHIN;
    while holders(cluster, name).await.as_deref() != Some(expected) {
        assert!(Instant::now() < deadline, "{name}: {:?}", holders(cluster, name).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn holders(cluster: &Cluster, name: &str) -> Option<String> {
    let shown = table(&admin(cluster).await, "SHOW PLACEMENT").await;
    let row = shown.into_iter().find(|row| row[0].replace('"', "") == format!("public.{name}"));
    row.map(|mut row| row.pop().unwrap())
}

#[tokio::test]
async fn schema_changes_keep_together_what_must_be_held_together() {
    let mut cluster = placed(&[]).await;
    let client = cluster.client().await;
    run(
        &client,
        "create table part (k int primary key, l int references line); insert into part values (1, 1), (2, 2);
         begin; create table piece (k int primary key, p int references part, s int references stock); \
         insert into piece values (1, 1, 1); create table crumb (k int references piece); insert into crumb values (1); commit;
         create table free (k int primary key); insert into free values (1);
         create table copied as select k, n from stock",
    )
    .await;
    placed_on(&cluster, "part", "replica-1, replica-2, replica-3").await;
    placed_on(&cluster, "piece", "replica-1, replica-2").await;
    placed_on(&cluster, "crumb", "replica-1, replica-2").await;
    assert_eq!(holders(&cluster, "free").await, None);
    assert_eq!(counts(&cluster, "part").await, ["2", "2", "2", "0"]);
    assert_eq!(counts(&cluster, "crumb").await, ["1", "1", "0", "0"]);
    assert_eq!(counts(&cluster, "copied").await, ["100"; 4]);
    for (sql, words) in [
        (
            "alter table note add foreign key (k) references stock",
            "table public.note has a foreign key to table public.stock",
        ),
        (
            "create materialized view sold as select sum(n) from stock",
            "materialized view public.sold is filled",
        ),
    ] {
        refused(&client, sql, "0A000", words).await;
    }
    // What every holder can check is taken.
    run(
        &client,
        "alter table line add foreign key (o) references note (k); alter table stock add column price numeric default 1.5;
         update stock set price = k where k < 10; alter table stock alter column price type int using price * 2;
         create index on stock (price); truncate piece, crumb; alter table stock rename to shelf;
         create table log (k int, d int) partition by list (d); create table log_1 partition of log for values in (1)",
    )
    .await;
    placed_on(&cluster, "shelf", "replica-1, replica-2, replica-4").await;
    assert_eq!(counts(&cluster, "shelf").await, ["100", "100", "0", "100"]);
    assert_eq!(value(&client, "select sum(price) from shelf").await, "363");
    // A partitioned table is placed with its partitions.
    run(&client, "insert into log select g, 1 from generate_series(1, 50) g").await;
    run(&admin(&cluster).await, "PLACE TABLE log ON replica-2, replica-4").await;
    assert_eq!(counts(&cluster, "log").await, ["0", "50", "0", "50"]);
    run(&client, "insert into log values (51, 1); drop table shelf cascade; drop table part cascade").await;
    assert_eq!(value(&client, "select count(*) from log").await, "51");
    cluster.verify().await;
    cluster.stop().await;
}
