//! A replica that holds only some tables, on a real server.

use cluster::ids::{ReplicaId, TableId};
use cluster::placement::{Copies, Placement, ReplicaSet};

use super::*;
use crate::capture::shares::{Numbering, Shares};
use crate::membership::comparison::Checksums;
use crate::replica::agent::applied_set::AppliedSet;

/// The holdings of a replica that holds every table but this one.
fn all_but(table: TableId) -> Holdings {
    let mut placement = Placement::full(2);
    placement.restrict(table, Copies::Whole(ReplicaSet::first(1)));
    placement.holdings(ReplicaId(1))
}

#[tokio::test]
async fn a_batch_leaves_the_rows_of_other_tables_out_and_its_identities_in() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE held (id int PRIMARY KEY, v text)").await;
    pair.ddl("CREATE TABLE other (id int PRIMARY KEY, v text)").await;
    let first = pair.home.write("INSERT INTO other VALUES (1, 'a')").await;
    let holdings = all_but(first.tables().next().unwrap());
    let records = vec![
        first,
        pair.home.write("INSERT INTO held VALUES (1, 'a'); INSERT INTO other VALUES (2, 'b')").await,
        pair.home.write("TRUNCATE other; UPDATE held SET v = 'c'").await,
        pair.home.write("INSERT INTO other SELECT g, '' FROM generate_series(10, 40) g").await,
        // Definitions are everywhere.
        pair.home.ddl("ALTER TABLE other ADD COLUMN w int").await,
        pair.home.write("INSERT INTO other VALUES (3, 'd', 4)").await,
    ];
    let identities: Vec<Identity> = records.iter().map(|record| record.header().identity).collect();
    let applied = pair.second.apply_held(records, holdings.clone()).await;
    assert!(matches!(applied, AgentEvent::Applied { .. }), "{applied:?}");

    let mut session = pair.servers[1].connect("").await;
    let rows = session.simple("SELECT id, v FROM held").await.unwrap();
    assert_eq!(rows, [[Some("1".to_owned()), Some("c".to_owned())]]);
    assert!(session.simple("SELECT id, v, w FROM other").await.unwrap().is_empty());
    let (mut own, seal) = (pair.servers[1].own("").await, pair.servers[1].seal());
    let all = AppliedSet::at(&mut own, &seal).read().await.unwrap();
    assert!(identities.iter().all(|identity| all.contains(identity)));

    let mut whole = checksums(&pair, 0, &Holdings::everything()).await;
    let partial = checksums(&pair, 1, &holdings).await;
    let name = r#"table "public"."other""#;
    assert_eq!(partial.not_held, [name.to_owned()].into());
    assert!(whole.sums.remove(name).is_some_and(|sum| sum.starts_with("32 rows")));
    assert_eq!(whole.sums, partial.sums, "all else is equal");
}

async fn checksums(pair: &Pair, server: usize, holdings: &Holdings) -> Checksums {
    let mut connection = pair.servers[server].own("").await;
    connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.unwrap();
    let shares =
        Shares { holdings: holdings.clone(), database: DatabaseId::FIRST, numbering: Numbering::ByCapture };
    checksum::checksums(&mut connection, &shares).await.unwrap()
}

#[tokio::test]
async fn a_replica_remembers_where_it_stands_although_it_applied_nothing() {
    let mut pair = Pair::start().await;
    let stands_at = Identity { epoch: Epoch(1), n: 77, nonce: Nonce(7) };
    for _ in 0..2 {
        let maintain = Command::Maintain {
            incarnation: pair.second.incarnation,
            applied: Version(77),
            stands_at: Some(stands_at),
            forget: Vec::new(),
            marks: Vec::new(),
        };
        pair.second.commands.send(maintain).await.unwrap();
        assert!(matches!(pair.second.event().await, AgentEvent::Durable { upto: Version(77) }));
    }
    pair.servers[1].crash();
    assert!(matches!(pair.second.event().await, AgentEvent::Down { .. }));
    pair.second.up().await;
    assert_eq!(pair.second.applied, [stands_at]);
}
