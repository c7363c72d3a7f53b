//! Promise: the admin database answers alike at every node. The leader carries out what only the leader can; sessions of all nodes are
//! shown, ended and paused from any of them; and a client learns whether a command may have been carried out when a node is lost.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::nodes::{COUNT, NAMES, SLOWER, World};
use cluster::raw::Raw;
use cluster::{connect, programs, rows, run, table, until, value};
use rustix::process::Signal;
use tokio_postgres::Client;
use wire::backend::{Fields, tag};
use wire::encode;

/// SQLSTATE, message and hint of a command that is refused.
async fn refused(admin: &Client, command: &str) -> [String; 3] {
    let error = admin.simple_query(command).await.expect_err(command);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{command}: {error:?}"));
    [error.code().code(), error.message(), error.hint().unwrap_or_default()].map(str::to_owned)
}

/// The messages of a node before ReadyForQuery: of errors SQLSTATE and message, of notices the message, of others the text.
fn said(messages: &[(u8, Vec<u8>)], kind: u8) -> Vec<String> {
    let text = |body: &[u8]| String::from_utf8_lossy(body).trim_end_matches('\0').to_owned();
    let of = |(found, body): &(u8, Vec<u8>)| {
        let fields = || Fields::new(body);
        (*found == kind).then(|| match kind {
            tag::ERROR_RESPONSE => format!("{} {}", text(fields().sqlstate()), fields().message()),
            tag::NOTICE_RESPONSE => fields().message(),
            _ => text(body),
        })
    };
    messages.iter().filter_map(of).collect()
}

/// A connection to the admin database of a node that shows all messages.
fn raw_admin(world: &World, node: usize) -> Raw {
    Raw::connect_as(world.setups[node].port, &[("user", "postgres"), ("database", "onecopy")]).0
}

fn simple(raw: &mut Raw, command: &str) -> Vec<(u8, Vec<u8>)> {
    raw.exchange(|out| encode::query(out, command.as_bytes()))
}

/// Commands for the leader, said at another node.
async fn a_follower_answers_for_the_leader(world: &World) {
    let leader = world.leader().await;
    let follower = (leader + 1) % 3;
    let (there, here) = (world.admin(leader).await, world.admin(follower).await);
    for command in ["SHOW REPLICAS", "SHOW PLACEMENT", "SHOW CHAINS", "SHOW ELASTIC"] {
        let (theirs, ours) = (rows(&there, command).await, rows(&here, command).await);
        let names = |rows: &[std::collections::BTreeMap<String, String>]| {
            rows.iter().map(|row| row.keys().cloned().collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        assert_eq!((names(&theirs), theirs.len()), (names(&ours), ours.len()), "{command}");
        assert_eq!(
            here.query(command, &[]).await.unwrap().len(),
            ours.len(),
            "{command}, by the extended protocol"
        );
    }
    // The parts of this answer are single rows, by the environment of this test.
    let verified = rows(&here, "VERIFY").await;
    assert!(verified.len() > 20 && verified.iter().all(|row| row["result"] == "identical"), "{verified:?}");
    let (theirs, ours) = (table(&there, "SHOW LOG").await, table(&here, "SHOW LOG").await);
    assert_eq!(theirs[0][..2], ours[0][..2]);
    let unknown = refused(&here, "DROP REPLICA nowhere").await;
    assert_eq!(unknown, refused(&there, "DROP REPLICA nowhere").await);
    assert_eq!(unknown[0], "42704");
    assert_eq!(unknown[2], "SHOW REPLICAS lists their names.");
    let mut raw = raw_admin(world, follower);
    let told = simple(&mut raw, "UNDRAIN REPLICA nowhere; ");
    assert_eq!(said(&told, tag::ERROR_RESPONSE), ["42704 there is no replica \"nowhere\""]);
    let told = simple(&mut raw, "SHOW CONFLICTS");
    let kinds: Vec<u8> = told.iter().map(|(kind, _)| *kind).filter(|kind| *kind != tag::DATA_ROW).collect();
    assert_eq!(kinds, [tag::ROW_DESCRIPTION, tag::COMMAND_COMPLETE]);
    assert_eq!(said(&told, tag::COMMAND_COMPLETE), ["SHOW"]);
}

/// What all nodes know together.
async fn every_node_shows_the_sessions_of_all(world: &World) {
    let leader = world.leader().await;
    let [one, other] = [(leader + 1) % 3, (leader + 2) % 3];
    let replicas = rows(&world.admin(leader).await, "SHOW REPLICAS").await;
    let home = |replica: usize| format!("SET onecopy.home = '{}'", replicas[replica]["name"]);
    let holder = world.client(one).await;
    run(&holder, &format!("INSERT INTO noted VALUES (1, 'x'); {}", home(0))).await;
    run(&holder, "BEGIN; UPDATE noted SET v = 'held' WHERE id = 1").await;
    let waiter = world.client(other).await;
    // At the same server it would wait there.
    run(&waiter, &home(1)).await;
    let waits = tokio::spawn(async move {
        let done = waiter.batch_execute("UPDATE noted SET v = 'waited' WHERE id = 1").await;
        (waiter, done)
    });
    for node in 0..NAMES.len() {
        let admin = world.admin(node).await;
        let clients = rows(&admin, "SHOW CLIENTS").await;
        let nodes: Vec<&str> = clients.iter().map(|row| row["node"].as_str()).collect();
        assert!([one, other].iter().all(|node| nodes.contains(&NAMES[*node])), "{clients:?}");
        until("the second transaction waits for the first", async || {
            let open = rows(&admin, "SHOW TRANSACTIONS").await;
            let holding = open.iter().find(|row| row["node"] == NAMES[one] && row["state"] == "open");
            let Some(holding) = holding else { return false };
            open.iter().any(|row| {
                row["node"] == NAMES[other]
                    && row["state"] == "waiting"
                    && row["waits_for"] == holding["session"]
            })
        })
        .await;
    }
    // KILL finds the node of a session, by the number in any of these tables.
    let admin = world.admin(other).await;
    let open = rows(&admin, "SHOW TRANSACTIONS").await;
    let session = open.iter().find(|row| row["state"] == "open").unwrap()["session"].clone();
    assert_eq!(refused(&admin, &format!("KILL {}", session.parse::<u64>().unwrap() + 77)).await[0], "42704");
    assert_eq!(refused(&admin, "KILL 1056964609").await[0], "42704", "there is no such node");
    run(&admin, &format!("KILL {session}")).await;
    let (waiter, done) = waits.await.unwrap();
    done.unwrap();
    assert_eq!(value(&waiter, "SELECT v FROM noted WHERE id = 1").await, "waited");
    assert!(holder.batch_execute("COMMIT").await.is_err(), "the session goes on");
    let clients = rows(&admin, "SHOW CLIENTS").await;
    let number = clients.iter().find(|row| row["node"] == NAMES[other]).unwrap()["id"].clone();
    // By the process number that its client got, from a third node.
    let process = number.parse::<u64>().unwrap() | 1 << 30;
    run(&world.admin(leader).await, &format!("KILL {process}")).await;
    until("the session ends", async || waiter.batch_execute("SELECT 1").await.is_err()).await;
    run(&world.client(one).await, "DELETE FROM noted").await;
}

async fn show_nodes_tells_what_each_node_knows(world: &World) {
    let leader = world.leader().await;
    let follower = (leader + 1) % 3;
    let client = world.client((leader + 2) % 3).await;
    run(&client, "SELECT 1").await;
    let nodes = rows(&world.admin(follower).await, "SHOW NODES").await;
    assert_eq!(nodes.len(), 3);
    for (node, row) in nodes.iter().enumerate() {
        assert_eq!(row["epoch"], nodes[leader]["epoch"], "{nodes:?}");
        assert_eq!(row["release"], env!("CARGO_PKG_VERSION"));
        assert!(row["lease_ms"].parse::<u32>().is_ok(), "the term lease, or a version lease: {nodes:?}");
        assert_eq!(row["own"], if node == follower { "yes" } else { "no" });
    }
    assert!(nodes[(leader + 2) % 3]["sessions"].parse::<u32>().unwrap() >= 1, "{nodes:?}");
    let port = world.setups[follower].port.to_string();
    let listed = programs::text(&programs::onecopy(&["node", "list", "--port", &port]).await);
    assert!(listed.starts_with("name  address"), "{listed}");
    let line = listed.lines().nth(leader + 1).unwrap();
    assert!(line.starts_with(NAMES[leader]) && line.contains("leader"), "{listed}");
}

/// PAUSE waits for the transactions of all nodes, and holds what begins anywhere.
async fn pause_is_about_all_nodes(world: &World) {
    let busy = world.client(0).await;
    run(&busy, "BEGIN; INSERT INTO noted VALUES (10, 'open')").await;
    let admin = world.admin(1).await;
    let pausing = tokio::spawn(async move { admin.simple_query("PAUSE").await.map(|_| ()) });
    until("PAUSE has reached the other node", async || {
        rows(&world.admin(2).await, "SHOW DATABASES").await[0]["paused"] == "1"
    })
    .await;
    let idle = world.client(2).await;
    let held = tokio::spawn(async move { value(&idle, COUNT).await });
    until("the statement is held", async || {
        rows(&world.admin(0).await, "SHOW CLIENTS").await.iter().any(|row| row["state"] == "paused")
    })
    .await;
    assert!(!pausing.is_finished() && !held.is_finished());
    run(&busy, "COMMIT").await;
    pausing.await.unwrap().unwrap();
    assert!(!held.is_finished());
    let again = refused(&world.admin(0).await, "PAUSE").await;
    assert_eq!(again[0], "55000");
    run(&world.admin(0).await, "RESUME").await;
    assert_eq!(held.await.unwrap(), "1");
    assert_eq!(refused(&world.admin(2).await, "RESUME").await[..2], ["55000", "nothing is paused"]);
    // One node by itself. PAUSE does not take it for its own, and lets the others go on.
    run(&world.admin(2).await, "PAUSE NODE").await;
    run(&world.client(0).await, "SELECT 1").await;
    let failed = refused(&world.admin(0).await, "PAUSE").await;
    assert_eq!(failed[..2], ["55000", "node c: everything is paused already"]);
    run(&world.client(0).await, "SELECT 1").await;
    run(&world.client(1).await, "SELECT 1").await;
    run(&world.admin(0).await, "RESUME").await;
    run(&world.client(2).await, "DELETE FROM noted").await;
}

/// DRAIN NODE is said at another node and is about the leader. The lead moves, transactions end by themselves, and no client gets in
/// before UNDRAIN NODE.
async fn a_drained_node_lets_nobody_in(world: &World) {
    let drained = world.leader().await;
    let elsewhere = (drained + 1) % 3;
    let name = NAMES[drained];
    let (idle, busy) = (world.client(drained).await, world.client(drained).await);
    run(&idle, "SELECT 1").await;
    let admin = world.admin(elsewhere).await;
    let draining =
        tokio::spawn(async move { admin.simple_query(&format!("DRAIN NODE {name}")).await.map(|_| ()) });
    until("the lead is handed over", async || world.leader().await != drained).await;
    // A session of the node can begin something until the node has told it to end.
    until("the idle session ends", async || idle.batch_execute("SELECT 1").await.is_err()).await;
    draining.await.unwrap().unwrap();
    assert!(busy.batch_execute("SELECT 1").await.is_err());
    let refused_client = connect("127.0.0.1", world.setups[drained].port, "postgres").await;
    let refused_client = refused_client.err().unwrap();
    assert_eq!(refused_client.as_db_error().unwrap().code().code(), "57P03", "{refused_client:?}");
    let nodes = rows(&world.admin(elsewhere).await, "SHOW NODES").await;
    let shown: Vec<&str> = nodes.iter().map(|row| row["drained"].as_str()).collect();
    assert_eq!(shown.iter().position(|drained| *drained == "yes"), Some(drained), "{nodes:?}");
    let moved = refused(&world.admin(elsewhere).await, &format!("MOVE LEADER TO {name}")).await;
    assert_eq!(moved[0], "55000", "{moved:?}");
    run(&world.admin(drained).await, "UNDRAIN NODE").await;
    // A transaction that is open is waited for.
    let busy = world.client(drained).await;
    run(&busy, "BEGIN; INSERT INTO noted VALUES (40, 'open')").await;
    let port = world.setups[elsewhere].port.to_string();
    let draining =
        tokio::spawn(async move { programs::onecopy(&["node", "drain", name, "--port", &port]).await });
    until("it is drained", async || {
        rows(&world.admin(elsewhere).await, "SHOW NODES").await[drained]["drained"] == "yes"
    })
    .await;
    assert!(!draining.is_finished());
    run(&busy, "COMMIT").await;
    let said = draining.await.unwrap();
    assert!(said.status.success(), "{}", programs::text(&said));
    run(&world.admin(elsewhere).await, &format!("UNDRAIN NODE {name}")).await;
    run(&world.client(drained).await, "DELETE FROM noted").await;
}

/// A client that goes away while the leader does something for it.
async fn a_command_goes_on_without_its_client(world: &World) {
    let follower = (world.leader().await + 1) % 3;
    let name = rows(&world.admin(follower).await, "SHOW REPLICAS").await;
    let name = name.iter().find(|row| row["role"] == "replica").unwrap()["name"].clone();
    let busy = world.client(follower).await;
    run(&busy, &format!("SET onecopy.home = '{name}'; BEGIN; INSERT INTO noted VALUES (20, 'open')")).await;
    let leaving = world.admin(follower).await;
    let command = format!("DRAIN REPLICA {name}");
    let asked = tokio::spawn(async move { leaving.simple_query(&command).await.map(|_| ()) });
    let state = async || {
        let replicas = rows(&world.admin(follower).await, "SHOW REPLICAS").await;
        replicas.iter().find(|row| row["name"] == name).unwrap()["state"].clone()
    };
    until("it is drained", async || state().await == "draining").await;
    asked.abort();
    run(&busy, "COMMIT").await;
    until("nothing is open there", async || state().await == "drained").await;
    // Progress of the leader reaches the client while it waits.
    run(&world.admin(follower).await, &format!("UNDRAIN REPLICA {name}")).await;
    run(&busy, "BEGIN; INSERT INTO noted VALUES (21, 'open')").await;
    let mut raw = raw_admin(world, follower);
    raw.send(|out| encode::query(out, format!("DRAIN REPLICA {name}").as_bytes()));
    let (kind, body) = tokio::task::spawn_blocking(move || {
        let notice = raw.next();
        drop(raw);
        notice
    })
    .await
    .unwrap();
    assert_eq!(kind, tag::NOTICE_RESPONSE);
    assert_eq!(Fields::new(&body).message(), "1 sessions are in the middle of something there");
    run(&busy, "COMMIT; RESET onecopy.home; DELETE FROM noted").await;
    run(&world.admin(follower).await, &format!("UNDRAIN REPLICA {name}")).await;
}

/// A node that is lost while it carries a command out, and what its loss means for commands about all nodes.
async fn the_loss_of_a_node_is_told(world: &mut World) {
    let leader = world.leader().await;
    let [one, other] = [(leader + 1) % 3, (leader + 2) % 3];
    let replicas = rows(&world.admin(one).await, "SHOW REPLICAS").await;
    let name = replicas.iter().find(|row| row["role"] == "replica").unwrap()["name"].clone();
    let busy = world.client(other).await;
    run(&busy, &format!("SET onecopy.home = '{name}'; BEGIN; INSERT INTO noted VALUES (30, 'open')")).await;
    let admin = world.admin(one).await;
    let command = format!("DRAIN REPLICA {name}");
    let asked = tokio::spawn(async move { refused(&admin, &command).await });
    until("it is drained", async || {
        let replicas = rows(&world.admin(one).await, "SHOW REPLICAS").await;
        replicas.iter().any(|row| row["name"] == name && row["state"] == "draining")
    })
    .await;
    world.nodes[leader].take().unwrap().signal(Signal::KILL);
    let [code, message, hint] = asked.await.unwrap();
    assert_eq!(code, "57P03");
    let lost = format!(
        "node {} was lost, or leads no more; the command may have been carried out there",
        NAMES[leader]
    );
    assert_eq!(message, lost);
    assert!(hint.contains("SHOW NODES"), "{hint}");
    assert_ne!(world.leader().await, leader);
    let admin = world.admin(one).await;
    let not_all = refused(&admin, "PAUSE").await;
    let expected = format!("nothing is paused, because there is no link to node {}", NAMES[leader]);
    assert_eq!(not_all[..2], ["55000".to_owned(), expected]);
    run(&world.client(other).await, "SELECT 1").await;
    let told = simple(&mut raw_admin(world, other), "SHOW CLIENTS");
    let warned = format!("node {0} is left out: there is no link to node {0}", NAMES[leader]);
    assert_eq!(said(&told, tag::NOTICE_RESPONSE), [warned]);
    let nodes = rows(&admin, "SHOW NODES").await;
    assert_eq!([&nodes[leader]["role"], &nodes[leader]["epoch"]], ["unlinked", ""], "{nodes:?}");
}

#[tokio::test]
async fn the_admin_database_answers_alike_at_every_node() {
    // Each row of an answer is a part of its own.
    let environment: Vec<(&str, &str)> =
        SLOWER.iter().copied().chain([("ONECOPY_TEST_PART_BYTES", "1")]).collect();
    let mut world = World::with(&environment).await;
    let tables =
        (0..24).map(|n| format!("CREATE TABLE t{n} (a int PRIMARY KEY)")).collect::<Vec<_>>().join("; ");
    run(&world.client(0).await, &tables).await;
    a_follower_answers_for_the_leader(&world).await;
    every_node_shows_the_sessions_of_all(&world).await;
    show_nodes_tells_what_each_node_knows(&world).await;
    pause_is_about_all_nodes(&world).await;
    a_command_goes_on_without_its_client(&world).await;
    a_drained_node_lets_nobody_in(&world).await;
    the_loss_of_a_node_is_told(&mut world).await;
}
