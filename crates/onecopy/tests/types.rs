//! Promise: types and tables have one object id, whichever replica answers; users' types do not keep reads at the anchor.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::{Cluster, connect, run, value};
use std::collections::BTreeSet;
use tokio_postgres::types::Kind;

const SESSIONS: usize = 12;

#[tokio::test]
async fn object_ids_are_the_same_whichever_replica_answers() {
    let mut cluster = Cluster::start(3).await;
    // Each server has used up another number of ids, so none of them will agree.
    for (shift, replica) in cluster.replicas().await.iter().enumerate() {
        let direct = cluster.direct(replica).await;
        run(&direct, "set default_transaction_read_only = off").await;
        for _ in 0..shift {
            run(&direct, "begin; create temp table shift (a int, b int[]); rollback").await;
        }
    }
    let client = cluster.client().await;
    run(
        &client,
        "create type mood as enum ('sad', 'happy'); create domain age as int check (value >= 0);
         create type pair as (left_part int, mood mood);
         create table person (id int primary key, mood mood, moods mood[], age age, pair pair);
         insert into person values (1, 'happy', '{sad,happy}', 7, '(1,sad)')",
    )
    .await;
    let mut own = BTreeSet::new();
    for replica in cluster.caught_up().await {
        let direct = cluster.direct(&replica).await;
        own.insert(value(&direct, "select oid from pg_type where typname = 'mood'").await);
    }
    assert_eq!(own.len(), 3, "the test needs servers that differ: {own:?}");
    let anchors: u32 =
        value(&client, "select oid from pg_type where typname = 'mood'").await.parse().unwrap();
    let table: u32 = value(&client, "select 'person'::regclass::oid").await.parse().unwrap();

    // A prepared statement is described by any replica; the client looks its types up by the ids it hears.
    for _ in 0..SESSIONS {
        let other = connect("127.0.0.1", cluster.port, "postgres").await.unwrap();
        let described =
            other.prepare("select mood, moods, age, pair from person where mood = $1").await.unwrap();
        assert_eq!(described.params()[0].oid(), anchors);
        let columns = described.columns();
        assert_eq!(columns[0].type_().oid(), anchors);
        assert_eq!(columns[0].type_().kind(), &Kind::Enum(vec!["sad".into(), "happy".into()]));
        assert_eq!(columns[1].type_().name(), "_mood");
        assert_eq!(columns[3].type_().name(), "pair");
        assert!(columns.iter().all(|column| column.table_oid() == Some(table)), "{columns:?}");
        // In binary form an array of a user's type carries the type's id.
        let rows = other.query("select moods::mood[] from person", &[]).await.unwrap();
        let moods: Vec<Mood> = rows[0].get(0);
        assert_eq!(moods, [Mood("sad".into()), Mood("happy".into())]);
    }

    // As text they can be read anywhere, casts included.
    let mut readers = Vec::new();
    for _ in 0..SESSIONS {
        let other = connect("127.0.0.1", cluster.port, "postgres").await.unwrap();
        readers.push(tokio::spawn(async move {
            let mut ports = BTreeSet::new();
            for _ in 0..SESSIONS {
                let query =
                    "select current_setting('port') from person where mood = 'happy'::mood and age = 7";
                ports.insert(value(&other, query).await);
            }
            ports
        }));
    }
    let mut ports = BTreeSet::new();
    for reader in readers {
        ports.extend(reader.await.unwrap());
    }
    assert!(ports.len() > 1, "only {ports:?} served a table with users' types");

    run(&client, "alter type mood rename to feeling; create type mood as enum ('other')").await;
    let renamed = cluster.client().await.prepare("select mood from person").await.unwrap();
    assert_eq!(
        (renamed.columns()[0].type_().name(), renamed.columns()[0].type_().oid()),
        ("feeling", anchors)
    );
    cluster.verify().await;
    cluster.stop().await;
}

#[derive(Debug, PartialEq)]
struct Mood(String);

impl<'a> tokio_postgres::types::FromSql<'a> for Mood {
    fn from_sql(
        kind: &tokio_postgres::types::Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        assert!(matches!(kind.kind(), Kind::Enum(_)), "{kind:?}");
        Ok(Self(String::from_utf8(raw.to_vec())?))
    }

    fn accepts(_: &tokio_postgres::types::Type) -> bool {
        true
    }
}
