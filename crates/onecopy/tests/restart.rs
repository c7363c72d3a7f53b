//! Promise: a node that is restarted passes its clients to the process that takes its place. They notice a pause; what cannot be
//! passed on ends with 57P01; and nothing happens if the program would not start.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::nodes::{NAMES, World};
use cluster::plain::Plain;
use cluster::served::{Node, Setup};
use cluster::{connect, folder, programs, rows, run, table, until, value};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio_postgres::{Client, NoTls};

/// When the process of a node began, to the second.
async fn since(setup: &Setup) -> String {
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    let nodes = rows(&admin, "SHOW NODES").await;
    nodes.iter().find(|row| row["own"] == "yes").unwrap()["since"].clone()
}

/// Restarts a node by this command or signal, and waits until the next process serves.
async fn restart(setup: &Setup, ask: impl AsyncFnOnce()) {
    let before = since(setup).await;
    // The next process must not begin in the same second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    ask().await;
    until("it is not replaced", async || since(setup).await != before).await;
}

/// A session with settings and statements of every kind.
struct Furnished {
    client: Client,
    prepared: tokio_postgres::Statement,
}

impl Furnished {
    async fn at(port: u16) -> Self {
        let client = connect("127.0.0.1", port, "postgres").await.unwrap();
        run(&client, "SET application_name = 'kept'; SET work_mem = '7MB'; SET onecopy.home = 'any'").await;
        run(&client, "SET default_transaction_isolation = 'serializable'; PREPARE two AS SELECT 2").await;
        let prepared = client.prepare("SELECT $1::int + 1").await.unwrap();
        Self { client, prepared }
    }

    async fn must_have_all(&self) {
        let Self { client, prepared } = self;
        for (name, expected) in [
            ("application_name", "kept"),
            ("work_mem", "7MB"),
            ("onecopy.home", "any"),
            ("default_transaction_isolation", "serializable"),
            ("transaction_isolation", "serializable"),
        ] {
            assert_eq!(value(client, &format!("SHOW {name}")).await, expected, "{name}");
        }
        assert_eq!(value(client, "EXECUTE two").await, "2");
        let row = client.query_one(prepared, &[&41]).await.unwrap();
        assert_eq!(row.get::<_, i32>(0), 42);
        run(client, "RESET ALL").await;
        assert_eq!(value(client, "SHOW work_mem").await, "4MB", "it knows what to go back to");
        run(client, "SET application_name = 'kept'; SET work_mem = '7MB'; SET onecopy.home = 'any'").await;
        run(client, "SET default_transaction_isolation = 'serializable'").await;
    }
}

/// A cancel request with the key of before the restart ends the statement.
async fn the_cancel_key_is_the_same(client: Client) {
    let token = client.cancel_token();
    let asleep = tokio::spawn(async move { client.batch_execute("SELECT pg_sleep(600)").await });
    until("the statement was not cancelled", async || {
        token.cancel_query(NoTls).await.unwrap();
        asleep.is_finished()
    })
    .await;
    let error = asleep.await.unwrap().unwrap_err();
    assert_eq!(error.code().unwrap().code(), "57014", "{error:?}");
}

/// A client that writes and reads until it is told to end, and gets no error. Returns how many rows it has made.
async fn quietly(client: Client, from: u32, ends: Arc<AtomicBool>) -> u32 {
    let mut made = 0;
    while !ends.load(Ordering::Relaxed) {
        let id = from + made;
        run(&client, &format!("BEGIN; INSERT INTO noted VALUES ({id}, 'x'); COMMIT")).await;
        made += 1;
        let sql = format!("SELECT count(*) FROM noted WHERE id = {id}");
        assert_eq!(value(&client, &sql).await, "1", "acknowledged and not seen");
    }
    made
}

/// A session that has what cannot be passed on, and the word for it.
async fn must_end(client: &Client, word: &str) {
    let mut ended = None;
    until("the session goes on", async || {
        ended = client.simple_query("SELECT 1").await.err();
        ended.is_some()
    })
    .await;
    let error = ended.unwrap();
    // The driver may read the end of the connection before the statement is sent.
    if let Some(error) = error.as_db_error() {
        assert_eq!(error.code().code(), "57P01", "{error:?}");
        assert!(error.message().contains(word), "{error:?}");
    } else {
        assert!(error.is_closed(), "{error:?}");
    }
}

#[tokio::test]
async fn clients_of_all_nodes_go_on_while_each_node_is_restarted() {
    let world = World::new().await;
    let ends = Arc::<AtomicBool>::default();
    let mut clients = Vec::new();
    for number in 0..6 {
        let client = world.client(number % NAMES.len()).await;
        let from = u32::try_from(number).unwrap() * 100_000;
        clients.push(tokio::spawn(quietly(client, from, Arc::clone(&ends))));
    }
    let leader = world.leader().await;
    let mut furnished = Vec::new();
    for setup in &world.setups {
        furnished.push(Furnished::at(setup.port).await);
    }
    for node in [(leader + 1) % 3, leader, (leader + 2) % 3] {
        let setup = &world.setups[node];
        let holder = world.client(node).await;
        run(&holder, "CREATE TEMPORARY TABLE own (v int)").await;
        let open = world.client(node).await;
        run(&open, "BEGIN; SELECT 1").await;
        // Its transaction is waited for.
        let committing = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            run(&open, "SELECT 1; COMMIT").await;
            open
        });
        restart(setup, async || {
            if node == leader {
                let elsewhere = world.admin((leader + 2) % 3).await;
                run(&elsewhere, &format!("RESTART NODE {}", NAMES[node])).await;
            } else {
                world.nodes[node].as_ref().unwrap().signal(Signal::USR2);
            }
        })
        .await;
        must_end(&holder, "temporary").await;
        assert_eq!(value(&committing.await.unwrap(), "SELECT 3").await, "3");
        furnished[node].must_have_all().await;
        assert_ne!(world.leader().await, if node == leader { node } else { usize::MAX });
    }
    ends.store(true, Ordering::Relaxed);
    let mut made = 0;
    for client in clients {
        made += client.await.unwrap();
    }
    world.must_reach(made).await;
    world.must_be_identical().await;
    for furnished in furnished {
        furnished.must_have_all().await;
        the_cancel_key_is_the_same(furnished.client).await;
    }
    let unknown = world.admin(0).await.batch_execute("RESTART NODE nowhere").await.unwrap_err();
    assert_eq!(unknown.code().unwrap().code(), "42704", "{unknown:?}");
    world.nodes.into_iter().flatten().for_each(Node::stop);
}

/// A client over TLS, whose keys cannot be passed on. Returns what it was told when it came back after the restart.
async fn encrypted(port: u16, admin: &Client, act: impl AsyncFnOnce()) -> String {
    let target = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=require");
    let mut command = programs::command(programs::program("psql").to_str().unwrap(), &["-X", &target]);
    let mut psql =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut typed = psql.stdin.take().unwrap();
    typed.write_all(b"SELECT 1;\n").await.unwrap();
    until("psql has not come", async || {
        table(admin, "SHOW CLIENTS").await.iter().any(|row| row.iter().any(|cell| cell == "psql"))
    })
    .await;
    act().await;
    typed.write_all(b"SELECT 2;\n").await.unwrap();
    drop(typed);
    programs::text(&programs::finish("psql", psql.wait_with_output()).await)
}

#[tokio::test]
async fn a_node_that_is_alone_restarts_only_if_it_would_start() {
    let server = Plain::start().await;
    run(&server.client().await, "CREATE TABLE noted (id int PRIMARY KEY, v text)").await;
    let setup = Setup::new(&[&server], "");
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let path = setup.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let (seen, key) =
        (file("node.crt", certificate.cert.pem()), file("node.key", certificate.signing_key.serialize_pem()));
    let settings = format!(
        "log_format = \"text\"\nadmin_users = \"postgres\"\nstop_patience = \"0s\"\ntls_certificate_file = {seen:?}\ntls_key_file = {key:?}\n"
    );
    setup.write(&[server.port], &settings);
    let node = setup.serve(&[]).await;
    let began = since(&setup).await;
    let furnished = Furnished::at(setup.port).await;
    let drawer = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    run(&drawer, "CREATE TABLE drawn (id serial PRIMARY KEY); INSERT INTO drawn DEFAULT VALUES").await;
    let ends = Arc::<AtomicBool>::default();
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    let quiet = tokio::spawn(quietly(client, 0, Arc::clone(&ends)));
    // Nothing that this program can read.
    setup.write(&[server.port], &format!("{settings}nonsense = 1\n"));
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    let refused = admin.batch_execute("RESTART NODE").await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "55000", "{refused:?}");
    assert!(refused.detail().unwrap().contains("nonsense"), "{refused:?}");
    assert_eq!(since(&setup).await, began);
    setup.write(&[server.port], &settings);
    run(&admin, "PAUSE").await;
    let refused = admin.batch_execute("RESTART NODE").await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "55000", "{refused:?}");
    run(&admin, "RESUME").await;
    let ended = encrypted(setup.port, &admin, async || {
        restart(&setup, async || run(&admin, "RESTART NODE").await).await;
        furnished.must_have_all().await;
    })
    .await;
    assert!(ended.contains("FATAL") && ended.contains("(the keys of TLS)"), "{ended}");
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    restart(&setup, async || run(&admin, "RESTART NODE").await).await;
    furnished.must_have_all().await;
    // No connection of this process knows what was drawn on one of the last process.
    let unknown = drawer.batch_execute("SELECT currval('drawn_id_seq')").await.unwrap_err();
    assert_eq!(unknown.code().unwrap().code(), "55000", "{unknown:?}");
    ends.store(true, Ordering::Relaxed);
    let made = quiet.await.unwrap();
    assert_eq!(value(&server.client().await, "SELECT count(*) FROM noted").await, made.to_string());
    the_cancel_key_is_the_same(furnished.client).await;
    a_program_that_fails_later_tells_the_clients(&setup, &server, &settings, node).await;
}

/// `check` does not claim addresses, so it does not know that one is taken.
async fn a_program_that_fails_later_tells_the_clients(
    setup: &Setup,
    server: &Plain,
    settings: &str,
    mut node: Node,
) {
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    run(&client, "SELECT 1").await;
    let port = folder::free_port();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    setup.write(&[server.port], &format!("{settings}http_listen = \"127.0.0.1:{port}\"\n"));
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    run(&admin, "RESTART NODE").await;
    must_end(&client, "cannot go on with the session").await;
    assert!(!node.ended().success());
}

#[tokio::test]
async fn a_stop_during_a_restart_is_a_stop() {
    let server = Plain::start().await;
    let setup = Setup::new(&[&server], "log_format = \"text\"\nadmin_users = \"postgres\"\n");
    let node = setup.serve(&[]).await;
    let (idle, open) = (
        connect("127.0.0.1", setup.port, "postgres").await.unwrap(),
        connect("127.0.0.1", setup.port, "postgres").await.unwrap(),
    );
    run(&idle, "SELECT 1").await;
    run(&open, "BEGIN; SELECT 1").await;
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    run(&admin, "RESTART NODE").await;
    until("the idle session rests", async || table(&admin, "SHOW CLIENTS").await.len() < 2).await;
    node.stop();
    must_end(&idle, "cannot go on with the session").await;
    must_end(&open, "stopping").await;
    assert!(connect("127.0.0.1", setup.port, "postgres").await.is_err(), "the node runs again");
}
