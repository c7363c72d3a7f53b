//! Promise: with three nodes, the loss of one is no outage. Clients of the others lose nothing that was acknowledged, read nothing
//! stale, and always learn what became of a commit.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cluster::nodes::{COUNT, NAMES, SLOWER, World};
use cluster::served::{Node, WITHIN};
use cluster::{run, table, value};
use futures_util::future::join_all;
use rustix::process::Signal;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Inserts rows at one node, reads them at another one, and goes on until it is told to end. Returns how many were acknowledged.
async fn load(writer: Client, reader: Client, from: u32, ends: Arc<AtomicBool>, made: Arc<AtomicU32>) -> u32 {
    let mut acknowledged = 0;
    while !ends.load(Ordering::Relaxed) {
        let id = from + acknowledged;
        match writer.batch_execute(&format!("INSERT INTO noted VALUES ({id}, 'x')")).await {
            Ok(()) => acknowledged += 1,
            Err(error) => {
                let code = error.code().map(|code| code.code().to_owned());
                assert_eq!(code.as_deref(), Some("40001"), "a client of a living node: {error:?}");
                continue;
            }
        }
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
    let reach = async |count: u32| {
        let deadline = Instant::now() + WITHIN;
        while made.load(Ordering::Relaxed) < count {
            assert!(Instant::now() < deadline, "nothing is acknowledged any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    reach(20).await;
    strike(world).await;
    reach(made.load(Ordering::Relaxed) + 40).await;
    ends.store(true, Ordering::Relaxed);
    let mut acknowledged = 0;
    for client in clients {
        acknowledged += client.await.unwrap();
    }
    acknowledged
}

fn others(node: usize) -> [usize; 2] {
    [(node + 1) % 3, (node + 2) % 3]
}

/// Everything that sessions do works at a node that follows.
async fn a_follower_serves_like_the_leader(world: &World) {
    let leader = world.leader().await;
    let [follower, other] = others(leader);
    let (client, elsewhere) = (world.client(follower).await, world.client(other).await);
    run(&client, "CREATE TABLE made (id serial PRIMARY KEY, v text)").await;
    run(&elsewhere, "INSERT INTO made (v) VALUES ('one'), ('two')").await;
    assert_eq!(value(&client, "SELECT string_agg(v, ' ' ORDER BY id) FROM made").await, "one two");
    run(&client, "ALTER TABLE made ADD COLUMN n int DEFAULT 7").await;
    assert_eq!(value(&elsewhere, "SELECT sum(n) FROM made").await, "14");
    // A serializable transaction sees that another node's has changed what it read.
    run(&client, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(n) FROM made").await;
    run(&elsewhere, "UPDATE made SET n = 8 WHERE v = 'one'").await;
    let failed = client.batch_execute("UPDATE made SET n = 9 WHERE v = 'two'; COMMIT").await.unwrap_err();
    assert_eq!(failed.code().unwrap().code(), "40001", "{failed:?}");
    run(&client, "ROLLBACK; SELECT setval('made_id_seq', 100)").await;
    assert_eq!(value(&elsewhere, "INSERT INTO made (v) VALUES ('three') RETURNING id").await, "101");
    // Rows that are too many for a record, and what is left of those of a transaction that is rolled back.
    let many = "INSERT INTO made (v, n) SELECT repeat('x', 100), i FROM generate_series(1, 100000) i";
    run(&client, &format!("BEGIN; {many}; ROLLBACK; {many}")).await;
    assert_eq!(value(&elsewhere, "SELECT count(*) FROM made").await, "100003");
}

/// A follower places reads by itself, and each sees what was acknowledged at another node just before.
async fn a_follower_reads_without_asking(world: &World) {
    let [follower, other] = others(world.leader().await);
    let (reader, writer) = (world.client(follower).await, world.client(other).await);
    let admin = world.admin(follower).await;
    let placed = async || -> u64 {
        let stats = table(&admin, "SHOW STATS").await;
        stats.iter().find(|row| row[0] == "reads_placed").unwrap()[1].parse().unwrap()
    };
    run(&writer, "INSERT INTO noted VALUES (900003, '0')").await;
    let read = "SELECT v FROM noted WHERE id = 900003";
    let (before, deadline) = (placed().await, Instant::now() + WITHIN);
    for round in 1.. {
        run(&writer, &format!("UPDATE noted SET v = '{round}' WHERE id = 900003")).await;
        for _ in 0..20 {
            assert_eq!(value(&reader, read).await, round.to_string(), "acknowledged and not seen");
        }
        if placed().await >= before + 200 {
            break;
        }
        assert!(Instant::now() < deadline, "of {} reads few were placed here", 20 * round);
    }
    run(&writer, "DELETE FROM noted WHERE id = 900003").await;
}

/// A commit waits for the lease of a node that hangs. A replica that comes back meanwhile must not show it before everybody has to.
async fn what_waits_for_a_lease_is_not_seen(world: &World) {
    let leader = world.leader().await;
    let [hangs, _] = others(leader);
    let (writer, reader) = (world.client(leader).await, world.client(leader).await);
    run(&writer, "INSERT INTO noted VALUES (900004, 'old')").await;
    // Its temporary table keeps it at the anchor.
    run(&reader, "CREATE TEMPORARY TABLE own (v int)").await;
    let read = "SELECT v FROM noted WHERE id = 900004";
    let comes_back = world.servers[1].client().await;
    world.nodes[hangs].as_ref().unwrap().signal(Signal::STOP);
    let writing = tokio::spawn(async move {
        run(&writer, "UPDATE noted SET v = 'new' WHERE id = 900004").await;
        writer
    });
    // The lock is the one by which sessions know that the applier lives.
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(value(&comes_back, end).await, "1");
    let deadline = Instant::now() + WITHIN;
    let mut direct = world.servers[1].client().await;
    while direct.query_one(read, &[]).await.map_or(true, |row| row.get::<_, &str>(0) == "old") {
        assert!(Instant::now() < deadline, "it does not come back: {}", world.all_said());
        if direct.is_closed() {
            direct = world.servers[1].client().await;
        }
    }
    run(&reader, "BEGIN").await;
    assert_eq!(value(&reader, read).await, "new", "shown at one replica and not seen at another");
    run(&reader, "COMMIT").await;
    let writer = writing.await.unwrap();
    world.nodes[hangs].as_ref().unwrap().signal(Signal::CONT);
    run(&writer, "DELETE FROM noted WHERE id = 900004").await;
}

/// Locks of sessions of two nodes, and a refresh that meets them.
async fn sessions_of_two_nodes_wait_for_each_other(world: &World) {
    let leader = world.leader().await;
    let [one, other] = others(leader);
    let (first, second) = (world.client(one).await, world.client(other).await);
    run(&first, "INSERT INTO noted VALUES (900001, 'x'), (900002, 'x')").await;
    run(&first, "BEGIN; UPDATE noted SET v = 'first' WHERE id = 900001").await;
    run(&second, "BEGIN; UPDATE noted SET v = 'second' WHERE id = 900002").await;
    let waits = tokio::spawn(async move {
        let done = first.batch_execute("UPDATE noted SET v = 'first' WHERE id = 900002; COMMIT").await;
        (first, done)
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let done = second.batch_execute("UPDATE noted SET v = 'second' WHERE id = 900001; COMMIT").await;
    let (_first, first_done) = waits.await.unwrap();
    let codes: Vec<String> = [done, first_done]
        .into_iter()
        .filter_map(|done| Some(done.err()?.code()?.code().to_owned()))
        .collect();
    assert!(
        matches!(&codes[..], [code] if code == "40P01" || code == "40001"),
        "one of them gives way: {codes:?}"
    );
    run(&second, "ROLLBACK; DELETE FROM noted WHERE id > 900000").await;
}

/// Nothing is read, since another node could lead by now; and everything goes on by itself.
async fn etcd_is_lost_for_a_while(world: &World) {
    let leader = world.leader().await;
    let client = world.client(leader).await;
    let before = value(&client, COUNT).await;
    world.etcd.kill(0);
    let deadline = Instant::now() + WITHIN;
    let refused = loop {
        assert!(Instant::now() < deadline, "it reads without a lease");
        if let Err(refused) = client.batch_execute(COUNT).await {
            break refused;
        }
    };
    let refused = refused.as_db_error().unwrap();
    let told = (refused.code().code(), refused.message());
    assert_eq!(told, ("57P03", "no node leads at present, so nothing can be read or written"));
    world.etcd.restart(0);
    while client.batch_execute(COUNT).await.is_err() {
        assert!(Instant::now() < deadline, "it does not go on: {}", world.all_said());
    }
    assert_eq!(value(&client, COUNT).await, before);
}

/// A client sends its cancel request to an address that may lead to any node.
async fn a_cancel_request_finds_its_node(world: &World) {
    let sleeper = world.client(0).await;
    let mut token = sleeper.cancel_token();
    let asleep = tokio::spawn(async move { sleeper.batch_execute("SELECT pg_sleep(600)").await });
    let deadline = Instant::now() + WITHIN;
    let mut port = world.setups[1].port;
    while !asleep.is_finished() {
        assert!(Instant::now() < deadline, "the statement was not cancelled");
        // The token knows the address of its node only, so the request is written by hand.
        token = cancel_at(token, port).await;
        port = world.setups[2].port;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let error = asleep.await.unwrap().unwrap_err();
    assert_eq!(error.code().unwrap().code(), "57014", "{error:?}");
}

async fn cancel_at(token: tokio_postgres::CancelToken, port: u16) -> tokio_postgres::CancelToken {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    token.cancel_query_raw(stream, NoTls).await.unwrap();
    token
}

/// A session with state that its connection alone has.
struct Holder {
    client: Client,
    node: usize,
}

impl Holder {
    async fn at(world: &World, node: usize) -> Self {
        let client = world.client(node).await;
        run(&client, &format!("CREATE TEMPORARY TABLE own AS SELECT {node} AS id; LISTEN news")).await;
        run(&client, "BEGIN; DECLARE kept CURSOR WITH HOLD FOR SELECT generate_series(1, 9); COMMIT").await;
        assert_eq!(value(&client, &format!("SELECT pg_try_advisory_lock({node})")).await, "t");
        Self { client, node }
    }

    /// The session goes on, in a term that is the next one for the `turn`-th time.
    async fn goes_on(&self, world: &World, turn: u32) {
        let Self { client, node } = self;
        let own = client.simple_query("SELECT id FROM own").await;
        let own = own.unwrap_or_else(|error| panic!("at {}: {error:?}: {}", NAMES[*node], world.all_said()));
        assert_eq!(first_cell(&own), Some(node.to_string()));
        assert_eq!(value(client, "FETCH kept").await, turn.to_string());
        assert_eq!(value(client, "SELECT pg_listening_channels()").await, "news");
        let other = world.client(*node).await;
        assert_eq!(value(&other, &format!("SELECT pg_try_advisory_lock({node})")).await, "f");
        // Then the server looks up whether the connection has proved itself in this term.
        run(client, "RESET ALL").await;
        run(client, &format!("UPDATE noted SET v = 'x' FROM own WHERE own.id = {node}")).await;
    }
}

/// Clients write and read at all nodes while the lead goes from node to node. None of them gets an error.
async fn the_lead_is_handed_over_without_an_error(world: &mut World, from: u32) -> u32 {
    let leader = world.leader().await;
    let [first, second] = others(leader);
    let kept = world.client(leader).await;
    run(&kept, "SET application_name = 'kept'; PREPARE one AS SELECT 1").await;
    let holders = join_all((0..NAMES.len()).map(|node| Holder::at(world, node))).await;
    let acknowledged = quietly(world, from, async |world| {
        for (at, to) in [(second, first), (second, second), (first, leader)] {
            let moved = value(&world.admin(at).await, &format!("MOVE LEADER TO {}", NAMES[to])).await;
            assert_eq!(moved, NAMES[to], "{}", world.all_said());
            assert_eq!(world.leader().await, to);
        }
    })
    .await;
    for holder in &holders {
        holder.goes_on(world, 1).await;
    }
    assert_eq!(value(&kept, "EXECUTE one").await, "1");
    assert_eq!(value(&kept, "SHOW application_name").await, "kept");
    // An open transaction is waited for, and then nothing is moved.
    let open = world.client(first).await;
    run(&open, "BEGIN; SELECT 1").await;
    let admin = world.admin(second).await;
    let refused = admin.batch_execute("MOVE LEADER").await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "55P03", "{refused:?}");
    run(&open, "COMMIT").await;
    assert_eq!(world.leader().await, leader);
    let moved = value(&admin, &format!("MOVE LEADER TO {}", NAMES[leader])).await;
    assert_eq!(moved, NAMES[leader], "it leads already");
    let unknown = admin.batch_execute("MOVE LEADER TO nowhere").await.unwrap_err();
    assert_eq!(unknown.code().unwrap().code(), "42704", "{unknown:?}");
    acknowledged
}

/// The same as [`under_load`] at all three nodes, and no client may get an error.
async fn quietly(world: &mut World, from: u32, act: impl AsyncFnOnce(&mut World)) -> u32 {
    let ends = Arc::<AtomicBool>::default();
    let mut clients = Vec::new();
    for node in 0..NAMES.len() {
        let (writer, reader) = (world.client(node).await, world.client((node + 1) % NAMES.len()).await);
        let (ends, first) = (Arc::clone(&ends), from + u32::try_from(node).unwrap() * 100_000);
        clients.push(tokio::spawn(async move {
            let mut acknowledged = 0;
            while !ends.load(Ordering::Relaxed) {
                let id = first + acknowledged;
                run(&writer, &format!("INSERT INTO noted VALUES ({id}, 'x')")).await;
                acknowledged += 1;
                let sql = format!("SELECT count(*) FROM noted WHERE id = {id}");
                assert_eq!(
                    value(&reader, &sql).await,
                    "1",
                    "acknowledged at one node and not seen at another one"
                );
            }
            acknowledged
        }));
    }
    act(world).await;
    ends.store(true, Ordering::Relaxed);
    let mut acknowledged = 0;
    for client in clients {
        acknowledged += client.await.unwrap();
    }
    acknowledged
}

/// A session with a temporary table was in a transaction when the leader was lost. It goes on with the table if its node
/// has rolled back before the new leader looked, and ends otherwise.
async fn its_transaction_is_over(open: &Client) {
    let lost = open.simple_query("SELECT * FROM own").await.expect_err("its transaction is over");
    let rolled_back = lost.code().is_some_and(|code| code.code() == "40001");
    assert!(rolled_back || ended_as_stopped(&lost), "{lost:?}");
    let ended = match open.simple_query("ROLLBACK").await {
        Ok(_) => open.simple_query("SELECT * FROM own").await,
        Err(ended) => Err(ended),
    };
    match ended {
        Ok(own) => assert_eq!(first_cell(&own), Some("1".to_owned())),
        Err(ended) => assert!(ended_as_stopped(&ended), "{ended:?}"),
    }
}

/// Whether the session has ended with the code of a server that stops. The driver may know only that it has ended.
fn ended_as_stopped(error: &tokio_postgres::Error) -> bool {
    error.is_closed() || error.code().is_some_and(|code| code.code() == "57P01")
}

#[tokio::test]
async fn the_loss_of_a_node_is_no_outage() {
    let mut world = World::new().await;
    a_follower_serves_like_the_leader(&world).await;
    a_follower_reads_without_asking(&world).await;
    what_waits_for_a_lease_is_not_seen(&world).await;
    sessions_of_two_nodes_wait_for_each_other(&world).await;
    a_cancel_request_finds_its_node(&world).await;
    let mut count = the_lead_is_handed_over_without_an_error(&mut world, 400_000).await;
    let leader = world.leader().await;
    let holders = join_all(others(leader).map(|node| Holder::at(&world, node))).await;
    let open = world.client(others(leader)[0]).await;
    run(&open, "CREATE TEMPORARY TABLE own AS SELECT 1").await;
    run(&open, "BEGIN; SELECT * FROM own").await;
    count += under_load(&mut world, others(leader), 0, async |world| {
        // The last thing that it does.
        let client = world.client(leader).await;
        run(&client, "ALTER TABLE made ADD COLUMN late int DEFAULT 1").await;
        world.nodes[leader].take().unwrap().signal(Signal::KILL);
    })
    .await;
    world.must_reach(count).await;
    for node in others(leader) {
        let client = world.client(node).await;
        run(&client, "UPDATE made SET late = late + 1 WHERE id <= 10").await;
        assert_eq!(value(&client, "SELECT DISTINCT late FROM made WHERE id > 10").await, "1");
    }
    assert_ne!(world.leader().await, leader);
    for holder in &holders {
        holder.goes_on(&world, 1).await;
    }
    its_transaction_is_over(&open).await;
    // It comes back, and follows. Its clients see everything.
    world.nodes[leader] = Some(world.setups[leader].serve(SLOWER).await);
    assert_eq!(value(&world.client(leader).await, COUNT).await, count.to_string());
    // A planned stop of the new leader.
    let leader = world.leader().await;
    count += under_load(&mut world, others(leader), 200_000, async |world| {
        world.nodes[leader].take().unwrap().stop();
    })
    .await;
    for holder in holders.iter().filter(|holder| holder.node != leader) {
        holder.goes_on(&world, 2).await;
    }
    world.must_reach(count).await;
    world.must_be_identical().await;
    etcd_is_lost_for_a_while(&world).await;
    // Without a majority of nodes the last one goes on: etcd decides who leads.
    let leader = world.leader().await;
    world.nodes[leader].take().unwrap().signal(Signal::KILL);
    let last = world.leader().await;
    let client = world.client(last).await;
    run(&client, "INSERT INTO noted VALUES (999999, 'last')").await;
    world.must_reach(count + 1).await;
    world.nodes[last].take().unwrap().stop();
}

fn first_cell(messages: &[SimpleQueryMessage]) -> Option<String> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    })
}

#[tokio::test]
async fn a_leader_that_hangs_is_replaced_and_follows_when_it_wakes() {
    let mut world = World::new().await;
    let leader = world.leader().await;
    let (idle, open) = (world.client(leader).await, world.client(leader).await);
    let snapshot = world.client(leader).await;
    run(&snapshot, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await;
    let mut seen = None;
    run(&idle, "PREPARE one AS SELECT 1; SET application_name = 'idle'").await;
    run(&open, "BEGIN; INSERT INTO noted VALUES (900000, 'open')").await;
    let count = under_load(&mut world, others(leader), 0, async |world| {
        // The answer comes while it sleeps, and so does the next leader, which ends the connection that has the snapshot.
        let long = format!("{COUNT}, (SELECT max(n) FROM generate_series(1, 2000000) n) long");
        seen = Some(tokio::spawn(async move {
            let counts = [snapshot.simple_query(&long).await, snapshot.simple_query(COUNT).await];
            counts.map(|answer| answer.map(|messages| first_cell(&messages)))
        }));
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.nodes[leader].as_ref().unwrap().signal(Signal::STOP);
        // Longer than the others wait for a leader that they do not hear.
        tokio::time::sleep(Duration::from_secs(5)).await;
    })
    .await;
    // What was open at the node that slept is over, and it acknowledges nothing of it.
    world.nodes[leader].as_ref().unwrap().signal(Signal::CONT);
    match seen.unwrap().await.unwrap() {
        [Ok(first), Ok(second)] => assert_eq!(first, second, "the snapshot is another one"),
        [_, Err(error)] => assert!(["40001", "25P02"].contains(&error.code().unwrap().code()), "{error:?}"),
        [Err(error), Ok(_)] => panic!("it goes on after {error:?}"),
    }
    let failed = open.batch_execute("COMMIT").await.unwrap_err();
    // Until it hears of the new leader, it only knows that etcd has not answered for long.
    assert!(["40001", "57P03"].contains(&failed.code().unwrap().code()), "{failed:?}");
    assert_eq!(value(&open, COUNT).await, count.to_string(), "it reads what was acknowledged meanwhile");
    assert_eq!(value(&idle, "EXECUTE one").await, "1", "an idle session notices nothing");
    assert_eq!(value(&idle, "SHOW application_name").await, "idle");
    assert_ne!(world.leader().await, leader);
    run(&idle, "INSERT INTO noted VALUES (900001, 'awake')").await;
    world.must_reach(count + 1).await;
    world.must_be_identical().await;
    let log = table(&world.admin(world.leader().await).await, "SHOW STATS").await;
    assert!(log.iter().any(|row| row[..] == ["turns_unended", "0"]), "{log:?}");
    world.nodes.into_iter().flatten().for_each(Node::stop);
}
