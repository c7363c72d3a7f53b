//! Promise: types and tables have the same object id at every replica, and user-defined types do not keep reads at the anchor.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::raw::Raw;
use cluster::{Cluster, connect, run, value};
use std::collections::BTreeSet;
use tokio_postgres::types::Kind as TypeKind;
use wire::backend::tag;
use wire::encode;
use wire::frontend::Target;
use wire::oids::{self, Kind};

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

    // Hashes of enums are hashes of such ids.
    let hashes = "select hashenum(mood), hash_array(moods) from person";
    let at_anchor = cluster::table(&cluster.direct(&cluster.replicas().await[0]).await, hashes).await;

    // Work at the anchor makes the others be chosen.
    let busy = connect("127.0.0.1", cluster.port, "postgres").await.unwrap();
    run(&busy, "begin").await;
    let sleeping = "select pg_sleep(3600) from person";
    let busy = tokio::spawn(async move { run(&busy, sleeping).await });
    cluster.is_running_at_anchor(sleeping).await;

    // A prepared statement is described by any replica; the client looks its types up by the ids it hears.
    for _ in 0..SESSIONS {
        let other = connect("127.0.0.1", cluster.port, "postgres").await.unwrap();
        let described =
            other.prepare("select mood, moods, age, pair from person where mood = $1").await.unwrap();
        assert_eq!(described.params()[0].oid(), anchors);
        let columns = described.columns();
        assert_eq!(columns[0].type_().oid(), anchors);
        assert_eq!(columns[0].type_().kind(), &TypeKind::Enum(vec!["sad".into(), "happy".into()]));
        assert_eq!(columns[1].type_().name(), "_mood");
        assert_eq!(columns[3].type_().name(), "pair");
        assert!(columns.iter().all(|column| column.table_oid() == Some(table)), "{columns:?}");
        // In binary form an array of a user's type carries the type's id.
        let rows = other.query("select moods::mood[] from person", &[]).await.unwrap();
        let moods: Vec<Mood> = rows[0].get(0);
        assert_eq!(moods, [Mood("sad".into()), Mood("happy".into())]);
        assert_eq!(cluster::table(&other, hashes).await, at_anchor);
    }

    let array: u32 = value(&client, "select oid from pg_type where typname = '_mood'").await.parse().unwrap();
    let port = cluster.port;
    let ports =
        tokio::task::spawn_blocking(move || described_as_text(port, table, anchors, array)).await.unwrap();
    let anchor = cluster.replicas().await[0].port.to_string();
    assert!(!ports.contains(anchor.as_bytes()), "users' types were read at the busy anchor: {ports:?}");

    busy.abort();
    // Two schema changes at once get different numbers.
    let (one, other) = (cluster.client().await, cluster.client().await);
    run(&one, "begin; create type first_of_two as enum ('a')").await;
    let waiting = tokio::spawn(async move { run(&other, "create type second_of_two as enum ('b')").await });
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    run(&one, "commit").await;
    waiting.await.unwrap();
    run(&client, "alter type mood rename to feeling; create type mood as enum ('other')").await;
    let renamed = cluster.client().await.prepare("select mood from person").await.unwrap();
    assert_eq!(
        (renamed.columns()[0].type_().name(), renamed.columns()[0].type_().oid()),
        ("feeling", anchors)
    );
    cluster.verify().await;
    cluster.stop().await;
}

/// As text, users' types are read anywhere, casts to them included. The ports of the servers that answered.
fn described_as_text(port: u16, table: u32, mood: u32, array: u32) -> BTreeSet<Vec<u8>> {
    let sql =
        b"select current_setting('port'), mood, moods from person where mood = 'happy'::mood and age = 7";
    let columns = [(Kind::Relation, table), (Kind::Type, mood), (Kind::Relation, table), (Kind::Type, array)];
    let mut ports = BTreeSet::new();
    for _ in 0..SESSIONS {
        let mut raw = Raw::connect(port);
        let simple = raw.exchange(|out| encode::query(out, sql));
        let extended = raw.exchange(|out| {
            encode::parse(out, b"", b"select mood, moods from person where mood = $1", &[]);
            encode::describe(out, Target::Statement(b""));
            encode::bind(out, b"", b"", &[Some(b"happy")], encode::Format::Text);
            encode::describe(out, Target::Portal(b""));
            encode::execute(out, b"", 0);
            encode::sync(out);
        });
        for (tag, mut body) in simple.into_iter().chain(extended) {
            let mut heard = Vec::new();
            oids::visit(tag, &mut body, |kind, oid| {
                heard.push((kind, oid));
                oid
            })
            .unwrap();
            match tag {
                tag::ROW_DESCRIPTION => assert_eq!(heard, columns),
                tag::PARAMETER_DESCRIPTION => assert_eq!(heard, [(Kind::Type, mood)]),
                tag::DATA_ROW => {
                    let row = wire::backend::data_row(&body).unwrap();
                    if row.len() == 3 {
                        ports.insert(row[0].unwrap().to_vec());
                    }
                }
                tag::ERROR_RESPONSE => panic!("{}", String::from_utf8_lossy(&body)),
                _ => {}
            }
        }
    }
    ports
}

#[derive(Debug, PartialEq)]
struct Mood(String);

impl<'a> tokio_postgres::types::FromSql<'a> for Mood {
    fn from_sql(
        kind: &tokio_postgres::types::Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        assert!(matches!(kind.kind(), TypeKind::Enum(_)), "{kind:?}");
        Ok(Self(String::from_utf8(raw.to_vec())?))
    }

    fn accepts(_: &tokio_postgres::types::Type) -> bool {
        true
    }
}
