//! Promise: Onecopy adopts existing servers only if no data can be lost or mixed up, and otherwise gives a clear message. It
//! reloads its configuration without closing a session.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

#[path = "serve/certificates.rs"]
mod certificates;
#[path = "serve/drivers.rs"]
mod drivers;
#[path = "serve/login.rs"]
mod login;
#[path = "serve/members.rs"]
mod members;
#[path = "serve/systemd.rs"]
mod systemd;
#[path = "serve/words.rs"]
mod words;

use std::time::{Duration, Instant};

use cluster::folder;
use cluster::plain::Plain;
use cluster::served::{Setup, WITHIN};
use cluster::{connect, programs, rows, run, value};
use rustix::process::{Pid, Signal, kill_process};

const SCHEMA: &str =
    "CREATE TABLE item (id serial PRIMARY KEY, name text); INSERT INTO item (name) VALUES ('a'), ('b')";

/// Two servers with the same schema and rows.
async fn two_servers() -> (Plain, Plain) {
    let (a, b) = (Plain::start().await, Plain::start().await);
    for server in [&a, &b] {
        run(&server.client().await, SCHEMA).await;
    }
    (a, b)
}

#[tokio::test]
async fn identical_servers_are_adopted_and_recognised() {
    let (a, b) = two_servers().await;
    let setup = Setup::new(&[&a, &b], "");
    let node = setup.serve(&[]).await;
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    run(&client, "INSERT INTO item (name) VALUES ('c')").await;
    assert_eq!(value(&client, "SELECT string_agg(name, ',' ORDER BY id) FROM item").await, "a,b,c");
    assert!(run_fails(&b, "INSERT INTO item (name) VALUES ('behind')").await, "the guards are not in");
    node.stop();
    let node = setup.serve(&[]).await;
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    run(&client, "INSERT INTO item (name) VALUES ('d')").await;
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    assert!(rows(&admin, "VERIFY").await.iter().all(|row| row["result"] == "identical"));
    node.stop();
    // Another folder knows nothing of this cluster.
    let other = Setup::new(&[&a, &b], "");
    let said = other.refused().await;
    assert!(said.contains("belongs to the cluster") && said.contains("DROP EVENT TRIGGER"), "{said}");
}

#[tokio::test]
async fn servers_whose_log_is_gone_are_not_served() {
    let server = Plain::start().await;
    let setup = Setup::new(&[&server], "");
    let node = setup.serve(&[]).await;
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    run(&client, "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    node.stop();
    std::fs::remove_dir_all(setup.folder.path().join("data/log")).unwrap();
    let said = setup.refused().await;
    assert!(said.contains("replica-1: it has transactions that the log has not: the log was lost"), "{said}");
}

async fn run_fails(server: &Plain, sql: &str) -> bool {
    server.client().await.batch_execute(sql).await.is_err()
}

#[tokio::test]
async fn a_schema_that_was_changed_behind_our_back_is_noticed_at_the_start() {
    let (a, b) = (Plain::start().await, Plain::start().await);
    let setup = Setup::new(&[&a, &b], "");
    setup.serve(&[]).await.stop();
    let behind = "SET session_replication_role = replica; ALTER EVENT TRIGGER onecopy_ddl DISABLE; \
                  CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER EVENT TRIGGER onecopy_ddl ENABLE ALWAYS";
    run(&b.client().await, behind).await;
    let node = setup.serve(&[]).await;
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    // It serves although a replica is not up yet.
    let deadline = Instant::now() + WITHIN;
    loop {
        let states: Vec<String> =
            rows(&admin, "SHOW REPLICAS").await.iter().map(|row| row["state"].clone()).collect();
        if states == ["up", "quarantined"] {
            break;
        }
        assert!(Instant::now() < deadline, "{states:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    node.stop();
}

#[tokio::test]
async fn servers_that_differ_are_left_alone() {
    let (a, b) = (Plain::start().await, Plain::start().await);
    run(&a.client().await, SCHEMA).await;
    let setup = Setup::new(&[&a, &b], "");
    let said = setup.refused().await;
    assert!(said.contains("only replica-1 has data") && said.contains("pg_dumpall"), "{said}");
    run(&b.client().await, SCHEMA).await;
    run(&b.client().await, "UPDATE item SET name = 'other' WHERE id = 2").await;
    let said = setup.refused().await;
    assert!(said.contains("replica-1 and replica-2 differ in table \"public\".\"item\""), "{said}");
    run(&b.client().await, "UPDATE item SET name = 'b' WHERE id = 2; SELECT nextval('item_id_seq')").await;
    let said = setup.refused().await;
    assert!(said.contains("differ in positions of sequences"), "{said}");
    run(&b.client().await, "SELECT setval('item_id_seq', 2); CREATE ROLE guest").await;
    let said = setup.refused().await;
    assert!(said.contains("differ in roles"), "{said}");
    for server in [&a, &b] {
        let ours = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'onecopy%'";
        assert_eq!(value(&server.client().await, ours).await, "0", "something was left behind");
    }
    run(&a.client().await, "CREATE ROLE guest").await;
    setup.serve(&[]).await.stop();
}

#[tokio::test]
async fn a_server_that_is_down_is_named() {
    let a = Plain::start().await;
    let setup = Setup::new(&[&a], "");
    let nobody = folder::free_port();
    setup.write(&[a.port, nobody], "");
    let said = setup.refused().await;
    let place = format!("replica-2 (127.0.0.1:{nobody}) cannot be reached");
    assert!(said.contains(&place) && said.contains("refused"), "{said}");
    // Once it belongs to the cluster, the others serve without it.
    let b = Plain::start().await;
    setup.write(&[a.port, b.port], "");
    setup.serve(&[]).await.stop();
    drop(b);
    let node = setup.serve(&[]).await;
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    run(&client, "CREATE TABLE t (a int)").await;
    node.stop();
}

#[tokio::test]
async fn nothing_is_lost_where_a_server_restarts_inside() {
    let servers = [Plain::start().await, Plain::start().await];
    for server in &servers {
        // For this long a crash loses commits that did not wait for the disk.
        run(&server.client().await, "ALTER SYSTEM SET wal_writer_delay = '10s'").await;
        run(&server.client().await, "SELECT pg_reload_conf()").await;
    }
    let setup = Setup::new(&[&servers[0], &servers[1]], "");
    let node = setup.serve(&[]).await;
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    assert_eq!(value(&client, "SHOW synchronous_commit").await, "off");
    run(&client, "CREATE TABLE item (id int PRIMARY KEY)").await;
    let mut written = 0;
    for server in &servers {
        for _ in 0..20 {
            run(&client, &format!("INSERT INTO item VALUES ({written})")).await;
            written += 1;
        }
        let process: i32 = value(&server.client().await, "SELECT pg_backend_pid()").await.parse().unwrap();
        kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
        let deadline = Instant::now() + WITHIN;
        while client.simple_query(&format!("INSERT INTO item VALUES ({written})")).await.is_err() {
            assert!(Instant::now() < deadline, "nothing is written any more");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        written += 1;
        assert_eq!(value(&client, "SELECT count(*) FROM item").await, written.to_string());
    }
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    let deadline = Instant::now() + WITHIN;
    while admin.simple_query("VERIFY").await.is_err() {
        assert!(Instant::now() < deadline, "{:?}", rows(&admin, "SHOW REPLICAS").await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(rows(&admin, "VERIFY").await.iter().all(|row| row["result"] == "identical"));
    node.stop();
}

#[tokio::test]
async fn every_mistake_is_told_and_nothing_is_started() {
    let setup = Setup::new(&[], "");
    let text = "lisen = 1\nstop_patience = 5\nsessions_max = 0\nlog_format = \"xml\"\ndata = \"\"\n\
         pool_mode = \"sometimes\"\npool_size = 0\npool_wait = \"2 parsecs\"\nlisten = 5432\n[[replica]]\n";
    std::fs::write(setup.file(), text).unwrap();
    for command in ["check", "serve"] {
        let output = programs::onecopy(&[command, "--config", &setup.file()]).await;
        let said = programs::text(&output);
        assert!(!output.status.success() && said.contains("10 mistakes"), "{said}");
        assert!(said.contains("onecopy.toml:2:17: stop_patience: a length of time needs a unit"), "{said}");
        assert!(said.contains("    |                 ^ write \"5s\""), "{said}");
    }
    // The files that it names are looked at, too, all of them.
    let missing = [
        "check",
        "--replica",
        "postgresql://127.0.0.1:1",
        "--tls-key-file",
        "/k",
        "--superuser-password-file",
        "/p",
    ];
    let output = programs::onecopy(&missing).await;
    let said = programs::text(&output);
    assert!(
        !output.status.success() && said.contains("go together: name both") && said.contains("/p"),
        "{said}"
    );
    let flags = ["check", "--replica", "postgresql://127.0.0.1:1", "--stop-patience", "3s"];
    let output = programs::onecopy(&flags).await;
    let said = programs::text(&output);
    assert!(output.status.success() && said.contains("stop_patience = \"3s\""), "{said}");
}

#[tokio::test]
async fn the_configuration_is_read_anew_without_dropping_clients() {
    let a = Plain::start().await;
    let setup = Setup::new(&[&a], "sessions_max = 1");
    let node = setup.serve(&[]).await;
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    // The client that saw it serve may not be gone yet.
    let deadline = Instant::now() + WITHIN;
    let first = loop {
        match connect("127.0.0.1", setup.port, "postgres").await {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
        }
    };
    run(&first, "CREATE TABLE t (a int PRIMARY KEY)").await;
    run(&first, "BEGIN; INSERT INTO t VALUES (1)").await;
    let full = connect("127.0.0.1", setup.port, "postgres").await.unwrap_err();
    assert_eq!(full.code().unwrap().code(), "53300");
    setup.write(&[a.port], "sessions_max = 2\nreader_patience = \"1s\"");
    run(&admin, "RELOAD").await;
    let second = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    let config = rows(&admin, "SHOW CONFIG").await;
    let shown = config.iter().find(|row| row["key"] == "sessions_max").unwrap();
    assert_eq!((shown["value"].as_str(), shown["default"].as_str()), ("2", "280"));
    setup.write(&[a.port], "sessions_max = none");
    let refused = admin.simple_query("RELOAD").await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert!(refused.code().code() == "F0000" && refused.message().contains("onecopy.toml:4:"), "{refused:?}");
    let third = connect("127.0.0.1", setup.port, "postgres").await.unwrap_err();
    assert_eq!(third.code().unwrap().code(), "53300", "a file with a mistake was used");
    setup.write(&[a.port], "sessions_max = 3");
    node.signal(Signal::HUP);
    let deadline = Instant::now() + WITHIN;
    while connect("127.0.0.1", setup.port, "postgres").await.is_err() {
        assert!(Instant::now() < deadline, "SIGHUP changes nothing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    run(&first, "INSERT INTO t VALUES (2)").await;
    run(&first, "COMMIT").await;
    assert_eq!(value(&second, "SELECT count(*) FROM t").await, "2");
    node.stop();
}
