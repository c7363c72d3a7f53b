//! New tables are held where the configuration of `onecopy serve` says.

use std::collections::BTreeMap;
use std::fs::{read_to_string, write};
use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::cluster::plain::Plain;
use crate::cluster::served::Setup;
use crate::cluster::{connect, programs, rows, run, table, value};
use crate::{WITHIN, refused};

const BEFORE: &str =
    "create table audit (k int primary key); insert into audit select generate_series(1, 10)";

/// Appends lines to the configuration; returns the number of the first one.
fn append(setup: &Setup, lines: &str) -> usize {
    let text = read_to_string(setup.file()).unwrap();
    write(setup.file(), format!("{text}{lines}")).unwrap();
    text.lines().count() + 1
}

async fn three_servers() -> [Plain; 3] {
    let (a, b, c) = tokio::join!(Plain::start(), Plain::start(), Plain::start());
    for server in [&a, &b, &c] {
        run(&server.client().await, BEFORE).await;
    }
    [a, b, c]
}

/// The rows of a table at each server, once all have caught up.
async fn counts(admin: &Client, servers: &[Plain; 3], of: &str) -> Vec<String> {
    assert!(rows(admin, "VERIFY").await.iter().all(|row| row["result"] == "identical"), "{of}");
    let mut counts = Vec::new();
    for server in servers {
        counts.push(value(&server.client().await, &format!("select count(*) from {of}")).await);
    }
    counts
}

/// Lets a replica serve again, and waits until it does.
async fn undrain(admin: &Client, name: &str) {
    run(admin, &format!("UNDRAIN REPLICA {name}")).await;
    let deadline = Instant::now() + WITHIN;
    let is_up = |row: &BTreeMap<String, String>| row["name"] == name && row["state"] == "up";
    while !rows(admin, "SHOW REPLICAS").await.iter().any(is_up) {
        assert!(Instant::now() < deadline, "{name} stays drained");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_new_table_is_held_where_the_configuration_says() {
    let servers = three_servers().await;
    let setup = Setup::new(&servers.each_ref(), "");
    append(
        &setup,
        "[placement]\n\"public.audit\" = [\"replica-1\", \"replica-3\"]\n\"log_*\" = [\"replica-1\", \"replica-2\"]\n",
    );
    let said = || read_to_string(setup.folder.path().join("said")).unwrap();
    let node = setup.serve(&[]).await;
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    // A table that was there before is held as before, with a warning.
    let command = "PLACE TABLE public.audit ON replica-1, replica-3";
    assert_eq!(said().matches(command).count(), 1, "{}", said());
    assert_eq!(counts(&admin, &servers, "audit").await, ["10"; 3]);
    // Another anchor could not hold such a table.
    for name in ["replica-1", "replica-2"] {
        run(&admin, &format!("DRAIN REPLICA {name}")).await;
    }
    refused(&client, "create table log_0 (k int primary key)", "55000", "replica-3 is the anchor").await;
    run(&client, "create table free (k int primary key); insert into free values (1)").await;
    undrain(&admin, "replica-1").await;
    run(&admin, "DRAIN REPLICA replica-3").await;
    undrain(&admin, "replica-2").await;
    undrain(&admin, "replica-3").await;
    for script in [
        "create table log_1 (k int primary key); insert into log_1 select generate_series(1, 20)",
        "begin; create table entry (k int primary key, l int references log_1); insert into entry values (1, 1); commit",
        "create table log_all (k int, d int) partition by list (d); create table y1 partition of log_all for values in (1)",
        "insert into log_all values (1, 1), (2, 1)",
        "create table \"Log_x\" (k int); insert into \"Log_x\" values (1)",
        "create schema audit; create table audit.line (k int); insert into audit.line values (1)",
        "create table audit.log_2 as select 1 as k",
    ] {
        run(&client, script).await;
    }
    for (of, expected) in [
        ("log_1", ["20", "20", "0"]),
        ("entry", ["1", "1", "0"]),
        ("y1", ["2", "2", "0"]),
        ("audit.log_2", ["1", "1", "0"]),
        ("\"Log_x\"", ["1"; 3]),
        ("audit.line", ["1"; 3]),
        ("free", ["1"; 3]),
    ] {
        assert_eq!(counts(&admin, &servers, of).await, expected, "{of}");
    }
    assert_eq!(value(&client, "select count(*) from log_1 join entry on l = log_1.k").await, "1");
    run(&admin, command).await;
    assert_eq!(counts(&admin, &servers, "audit").await, ["10", "0", "10"]);
    let shown = table(&admin, "SHOW PLACEMENT").await;
    node.stop();
    let node = setup.serve(&[]).await;
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    assert_eq!(table(&admin, "SHOW PLACEMENT").await, shown);
    assert_eq!(said().matches("PLACE TABLE").count(), 1, "{}", said());
    node.stop();
}

#[tokio::test]
async fn tables_that_are_held_together_are_named_in_one_command() {
    let servers = three_servers().await;
    let more = "create table line (k int primary key, a int references audit); \
        create table \"Shelf\" (k int, d int) partition by list (d); \
        create table shelf_1 partition of \"Shelf\" for values in (1)";
    for server in &servers {
        run(&server.client().await, more).await;
    }
    let setup = Setup::new(&servers.each_ref(), "");
    append(&setup, "[placement]\npublic.audit = [\"replica-1\"]\nShelf = [\"replica-1\"]\n");
    let node = setup.serve(&[]).await;
    let said = read_to_string(setup.folder.path().join("said")).unwrap();
    let start = said.find("PLACE TABLE").unwrap_or_else(|| panic!("{said}"));
    let command = said[start..].lines().next().unwrap().replace('\\', "");
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    let end = command.find("ON replica-1").unwrap_or_else(|| panic!("{command}")) + "ON replica-1".len();
    for name in ["public.audit", "public.line", "public.\"Shelf\""] {
        assert!(command[..end].contains(name), "{command}");
    }
    assert!(!command[..end].contains("shelf_1"), "{command}");
    run(&admin, &command[..end]).await;
    assert_eq!(counts(&admin, &servers, "audit").await, ["10", "0", "0"]);
    node.stop();
}

#[tokio::test]
async fn a_configuration_that_places_tables_wrongly_is_refused_with_its_line() {
    for (rules, wrong, words) in [
        ("t = [\"replica-9\"]", 1, ["there is no replica \"replica-9\"", "one of replica-1, replica-2"]),
        ("t = \"replica-1\"\nu = []", 2, ["no replica would hold u", "leave the line out"]),
        (
            "t = [\"replica-1\"]\nu = [\"replica-1\", \"replica-2\"]\n\"v*\" = [\"replica-2\"]",
            3,
            ["no replica would hold every table", "name one replica in every list"],
        ),
        ("\"*log\" = [\"replica-1\"]", 1, ["neither a name nor the beginning", "such as \"log_*\""]),
        ("t = { public = 1 }", 1, ["there is no replica \"1\"", "it is one of"]),
    ] {
        let setup = Setup { folder: crate::cluster::folder::Folder::new("serve"), port: 1 };
        setup.write(&[1, 2], "");
        let line = append(&setup, &format!("[placement]\n{rules}\n")) + wrong;
        let output = programs::onecopy(&["check", "--config", &setup.file()]).await;
        let said = programs::text(&output);
        assert!(!output.status.success(), "{rules}: {said}");
        assert!(said.contains(&format!("onecopy.toml:{line}:")) && said.contains("1 mistake"), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    let setup = Setup { folder: crate::cluster::folder::Folder::new("serve"), port: 1 };
    setup.write(&[1, 2], "protocol = \"eager\"");
    let line = append(&setup, "[placement]\nt = [\"replica-1\"]\n") + 1;
    let said = setup.refused().await;
    assert!(said.contains(&format!("onecopy.toml:{line}: [placement] needs a protocol")), "{said}");
}
