//! Promise: with three nodes, protocols that ship statements lose nothing that was acknowledged when a node is lost, read nothing stale at
//! another node, and always tell what became of a commit (conflict-aware scheduling, section 5).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cluster::nodes::{COUNT, NAMES, SLOWER, World};
use cluster::served::WITHIN;
use cluster::{run, value};
use tokio_postgres::Client;

fn others(node: usize) -> [usize; 2] {
    [(node + 1) % 3, (node + 2) % 3]
}

/// Inserts rows at one node, reads them at another one, and goes on until it is told to end. Every third row comes in a transaction with
/// declared tables, which a lost leader may roll back. Returns how many were acknowledged.
async fn load(writer: Client, reader: Client, from: u32, ends: Arc<AtomicBool>, made: Arc<AtomicU32>) -> u32 {
    let mut acknowledged = 0;
    while !ends.load(Ordering::Relaxed) {
        let id = from + acknowledged;
        let insert = format!("INSERT INTO noted VALUES ({id}, 'x')");
        let done = if id.is_multiple_of(3) {
            let begin = "BEGIN /* onecopy: write noted */";
            let whole = async {
                writer.batch_execute(begin).await?;
                writer.batch_execute(&insert).await?;
                writer.batch_execute("COMMIT").await
            };
            whole.await
        } else {
            writer.batch_execute(&insert).await
        };
        if let Err(error) = done {
            let code = error.code().map(|code| code.code().to_owned());
            assert_eq!(code.as_deref(), Some("40001"), "a client of a living node: {error:?}");
            writer.batch_execute("ROLLBACK").await.unwrap();
            continue;
        }
        acknowledged += 1;
        made.fetch_add(1, Ordering::Relaxed);
        let sql = format!("SELECT count(*) FROM noted WHERE id = {id}");
        assert_eq!(value(&reader, &sql).await, "1", "acknowledged at one node and not seen at another one");
    }
    acknowledged
}

/// What becomes of clients of the other nodes while something happens.
async fn under_load(
    world: &mut World,
    living: [usize; 2],
    from: u32,
    strike: impl AsyncFnOnce(&mut World),
) -> u32 {
    let (ends, made) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
    let mut clients = Vec::new();
    for (number, (here, there)) in (0..).zip([(living[0], living[1]), (living[1], living[0])]) {
        let (writer, reader) = (world.client(here).await, world.client(there).await);
        let first = from + number * 100_000;
        clients.push(tokio::spawn(load(writer, reader, first, Arc::clone(&ends), Arc::clone(&made))));
    }
    let reach = async |count: u32, world: &World| {
        let deadline = Instant::now() + WITHIN;
        while made.load(Ordering::Relaxed) < count {
            assert!(Instant::now() < deadline, "nothing is acknowledged any more: {}", world.all_said());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    reach(20, world).await;
    strike(world).await;
    reach(made.load(Ordering::Relaxed) + 40, world).await;
    ends.store(true, Ordering::Relaxed);
    let mut acknowledged = 0;
    for client in clients {
        acknowledged += client.await.unwrap();
    }
    acknowledged
}

/// Everything that sessions do works at a node that follows, and a change of the schema is known at every node.
async fn a_follower_serves_like_the_leader(world: &World) {
    let [follower, other] = others(world.leader().await);
    let (client, elsewhere) = (world.client(follower).await, world.client(other).await);
    run(&client, "CREATE TABLE made (id serial PRIMARY KEY, v text)").await;
    run(&elsewhere, "INSERT INTO made (v) VALUES ('one'), ('two')").await;
    assert_eq!(value(&client, "SELECT string_agg(v, ' ' ORDER BY id) FROM made").await, "one two");
    run(&client, "ALTER TABLE made ADD COLUMN n int DEFAULT 7").await;
    assert_eq!(value(&elsewhere, "SELECT sum(n) FROM made").await, "14");
    let twice = elsewhere.batch_execute("INSERT INTO made (id) VALUES (1)").await.unwrap_err();
    assert_eq!(twice.code().unwrap().code(), "23505", "{twice:?}");
    run(&client, "BEGIN; UPDATE made SET n = 8; ROLLBACK").await;
    assert_eq!(value(&elsewhere, "SELECT sum(n) FROM made").await, "14");
    let rows = "INSERT INTO made (id, v) SELECT g, 'x' FROM generate_series(101, 1100) g";
    run(&elsewhere, rows).await;
    assert_eq!(value(&client, "SELECT count(*) FROM made").await, "1002");
    run(&client, "DROP TABLE made").await;
    let gone = elsewhere.batch_execute("SELECT 1 FROM made").await.unwrap_err();
    assert_eq!(gone.code().unwrap().code(), "42P01", "{gone:?}");
}

/// A transaction of another node has a table locked, until its node is lost.
async fn locks_end_with_their_node(world: &mut World, lost: usize) {
    let open = world.client(lost).await;
    run(&open, "BEGIN /* onecopy: write noted */; INSERT INTO noted VALUES (900001, 'open')").await;
    let [here, _] = others(lost);
    let client = world.client(here).await;
    let waiting = tokio::spawn(async move {
        run(&client, "UPDATE noted SET v = 'y' WHERE id = 900001").await;
        value(&client, COUNT).await
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished(), "the table is locked");
    drop(world.nodes[lost].take());
    let count = tokio::time::timeout(WITHIN, waiting).await;
    let count = count.unwrap_or_else(|_| panic!("it waits for ever: {}", world.all_said())).unwrap();
    let rows = value(&world.servers[0].client().await, COUNT).await;
    assert_eq!(count, rows, "what was open is rolled back");
    let open = value(&world.client(here).await, "SELECT count(*) FROM noted WHERE id = 900001").await;
    assert_eq!(open, "0");
}

#[tokio::test]
async fn the_loss_of_a_node_loses_nothing() {
    let mut world = World::of("conflict-aware", SLOWER).await;
    a_follower_serves_like_the_leader(&world).await;
    let mut acknowledged = 0;
    // A node that follows is lost, and comes back.
    let leader = world.leader().await;
    let [lost, other] = others(leader);
    acknowledged += under_load(&mut world, [leader, other], 1_000_000, async |world| {
        drop(world.nodes[lost].take());
    })
    .await;
    world.nodes[lost] = Some(world.setups[lost].serve(SLOWER).await);
    locks_end_with_their_node(&mut world, other).await;
    world.nodes[other] = Some(world.setups[other].serve(SLOWER).await);
    // The lead is handed over, and then its holder is lost.
    acknowledged += under_load(&mut world, [lost, other], 2_000_000, async |world| {
        let moved = value(&world.admin(other).await, &format!("MOVE LEADER TO {}", NAMES[lost])).await;
        assert_eq!(moved, NAMES[lost], "{}", world.all_said());
    })
    .await;
    acknowledged += under_load(&mut world, [leader, other], 3_000_000, async |world| {
        drop(world.nodes[lost].take());
    })
    .await;
    let count = value(&world.client(other).await, COUNT).await;
    assert_eq!(count, acknowledged.to_string(), "{}", world.all_said());
    world.must_reach(acknowledged).await;
    world.must_be_identical().await;
}
