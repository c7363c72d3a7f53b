//! Promise: with the log on etcd, nothing acknowledged is lost with a member of etcd, with all of them for a while, or with Onecopy's
//! machine; and a node that another one has replaced acknowledges nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::path::Path;
use std::time::{Duration, Instant};

use cluster::plain::Plain;
use cluster::served::{Node, Setup, WITHIN};
use cluster::{connect, programs, run, table, value};
use commitlog::{Gateway, Operation, Store, TlsFiles, Txn};
use etcdserver::Etcd;
use rustix::process::Signal;
use tokio_postgres::Client;

const COUNT: &str = "SELECT count(*) FROM noted";

/// Two servers behind nodes whose log is on this etcd.
struct World {
    etcd: Etcd,
    servers: Vec<Plain>,
    first: Setup,
}

impl World {
    async fn new() -> Self {
        let etcd = Etcd::start(3);
        let anchor = Plain::start().await;
        run(&anchor.client().await, "CREATE TABLE noted (id int PRIMARY KEY, v text)").await;
        let other = anchor.copy().await;
        let servers = vec![anchor, other];
        let first = Setup::new(&servers.iter().collect::<Vec<_>>(), &settings(&etcd, "a"));
        Self { etcd, servers, first }
    }

    /// Another machine, which has nothing but its configuration.
    fn another_machine(&self, node: &str) -> Setup {
        Setup::new(&self.servers.iter().collect::<Vec<_>>(), &settings(&self.etcd, node))
    }

    /// What each server has.
    async fn everywhere(&self, sql: &str) -> Vec<String> {
        let mut found = Vec::new();
        for server in &self.servers {
            found.push(value(&server.client().await, sql).await);
        }
        found
    }
}

fn settings(etcd: &Etcd, node: &str) -> String {
    format!(
        "log = \"etcd\"\netcd = {:?}\nnode = \"{node}\"\nlog_patience = \"500ms\"\nlog_format = \"text\"\n",
        etcd.urls()
    )
}

async fn client(setup: &Setup) -> Client {
    connect("127.0.0.1", setup.port, "postgres").await.unwrap()
}

/// Inserts one row and says whether it was acknowledged.
async fn note(client: &Client, id: u32) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&format!("INSERT INTO noted VALUES ({id}, 'x')")).await
}

fn said(setup: &Setup) -> String {
    std::fs::read_to_string(setup.folder.path().join("said")).unwrap()
}

/// Waits until both servers have the same number of rows.
async fn must_reach(world: &World, count: u32) {
    let deadline = Instant::now() + WITHIN;
    let expected = vec![count.to_string(); 2];
    while world.everywhere(COUNT).await != expected {
        assert!(Instant::now() < deadline, "{:?}", world.everywhere(COUNT).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn log_folder(setup: &Setup) -> std::path::PathBuf {
    setup.folder.path().join("data/log")
}

async fn a_member_is_killed(world: &World) -> u32 {
    let client = client(&world.first).await;
    let mut id = 0;
    for member in 0..3 {
        for _ in 0..5 {
            id += 1;
            note(&client, id).await.unwrap();
        }
        // One of them leads.
        world.etcd.kill(member);
        id += 1;
        note(&client, id).await.unwrap();
        world.etcd.restart(member);
    }
    assert_eq!(value(&client, COUNT).await, id.to_string());
    id
}

/// Nothing is read either: another node could have taken over, and have answered clients.
async fn etcd_is_away(world: &World, mut id: u32) -> u32 {
    let (waiting, late, reader) =
        (client(&world.first).await, client(&world.first).await, client(&world.first).await);
    id += 1;
    run(&waiting, "begin").await;
    note(&waiting, id).await.unwrap();
    run(&late, "begin").await;
    note(&late, id + 1).await.unwrap();
    for _ in 0..10 {
        // The next one may run where the last one ran, without a question.
        run(&reader, COUNT).await;
    }
    (0..3).for_each(|member| world.etcd.kill(member));
    let under_way = tokio::spawn(async move { waiting.batch_execute("commit").await });
    // The term lease is over by then.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told = |error: &tokio_postgres::Error| {
        let error = error.as_db_error().unwrap();
        (error.code().code().to_owned(), error.message().to_owned())
    };
    let unread = reader.batch_execute(COUNT).await.unwrap_err();
    let unread = told(&unread);
    assert!(unread.0 == "57P03" && unread.1.contains("another node may lead by now"), "{unread:?}");
    let refused = told(&late.batch_execute("commit").await.unwrap_err());
    assert_eq!(refused, ("57P03".to_owned(), "etcd does not answer, so nothing can be committed".to_owned()));
    assert!(!under_way.is_finished(), "a commit under way waits");
    world.etcd.restart_all();
    under_way.await.unwrap().unwrap();
    id += 1;
    let deadline = Instant::now() + WITHIN;
    while note(&reader, id).await.is_err() {
        assert!(Instant::now() < deadline, "commits are refused still");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(said(&world.first).contains("etcd answers again"), "{}", said(&world.first));
    // What was refused while it waited for the lease is over for the core, too.
    let admin = connect("127.0.0.1", world.first.port, "onecopy").await.unwrap();
    let stats = table(&admin, "SHOW STATS").await;
    assert!(stats.iter().any(|row| row[..] == ["turns_unended", "0"]), "{stats:?}");
    id
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_with_etcd_or_with_the_machine() {
    let world = World::new().await;
    let node = world.first.serve(&[]).await;
    let mut id = a_member_is_killed(&world).await;
    id = etcd_is_away(&world, id).await;
    // The machine goes, under load.
    let client_of_first = client(&world.first).await;
    let writing = tokio::spawn(async move {
        let mut acknowledged = id;
        while note(&client_of_first, acknowledged + 1).await.is_ok() {
            acknowledged += 1;
        }
        acknowledged
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    node.signal(Signal::KILL);
    let acknowledged = writing.await.unwrap();
    drop(node);
    let second = world.another_machine("b");
    let node = second.serve(&[]).await;
    let reader = client(&second).await;
    let have: u32 = value(&reader, COUNT).await.parse().unwrap();
    assert!((acknowledged..=acknowledged + 1).contains(&have), "{have} of {acknowledged}");
    note(&reader, 1_000_000).await.unwrap();
    must_reach(&world, have + 1).await;
    assert!(said(&second).contains("takes over the log"), "{}", said(&second));
    node.stop();
    // The first machine comes back with its copy, which is completed.
    let node = world.first.serve(&[]).await;
    assert_eq!(value(&client(&world.first).await, COUNT).await, (have + 1).to_string());
    node.stop();
}

/// The former leader may let statements run for half a second after its last proof that it leads, by a clock that may be slow.
fn outwaits_the_lease(said: &str) {
    let time_s = |what: &str| {
        let line =
            said.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}: {said}"));
        let (_, time) = line.split_once('T').unwrap();
        let (time, _) = time.split_once('Z').unwrap();
        time.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
    };
    // Midnight may lie between the two.
    let waited_s = (time_s("the replica is up") - time_s("takes over the log")).rem_euclid(86_400.0);
    assert!(waited_s > 0.5, "{waited_s} s: {said}");
}

async fn a_replaced_node_acknowledges_nothing(world: &World, mut old: Node, second: &Setup) {
    let sleeper = client(&world.first).await;
    note(&sleeper, 1).await.unwrap();
    old.signal(Signal::STOP);
    let late = tokio::spawn(async move { note(&sleeper, 2).await });
    let new = second.serve(&[("ONECOPY_LOG", "info")]).await;
    outwaits_the_lease(&said(second));
    let fresh = client(second).await;
    assert_eq!(value(&fresh, COUNT).await, "1");
    note(&fresh, 3).await.unwrap();
    old.signal(Signal::CONT);
    assert!(late.await.unwrap().is_err(), "a replaced node has acknowledged a commit");
    assert!(!old.ended().success());
    let words = said(&world.first);
    assert!(words.contains("node b has taken over the log"), "{words}");
    assert_eq!(value(&fresh, "SELECT string_agg(id::text, ' ' ORDER BY id) FROM noted").await, "1 3");
    must_reach(world, 2).await;
    new.stop();
}

#[tokio::test]
async fn a_node_that_slept_while_another_took_over_acknowledges_nothing() {
    let world = World::new().await;
    let old = world.first.serve(&[]).await;
    let second = world.another_machine("b");
    a_replaced_node_acknowledges_nothing(&world, old, &second).await;
    // Its copy of the log is a folder like any other.
    assert!(Path::new(&log_folder(&second)).is_dir());
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_the_start() {
    let etcd = Etcd::start(1);
    let urls = etcd.urls();
    let setup = Setup::new(&[], "");
    let answer = async |more: &str| {
        setup.write(&[5432], more);
        programs::text(&programs::onecopy(&["check", "--config", &setup.file()]).await)
    };
    let on_etcd = |more: &str| format!("log = \"etcd\"\netcd = {urls:?}\n{more}");
    for (more, words) in [
        ("log = \"etcd\"\nnode = \"a\"".to_owned(), "needs the members of etcd"),
        (on_etcd(""), "needs a name for this node"),
        (on_etcd("node = \"a/b\""), "is no name"),
        (on_etcd("node = \"a\"\nprotocol = \"eager\""), "needs a protocol that propagates rows"),
        (on_etcd("node = \"a\"\netcd_certificate_file = \"x\""), "go together"),
        (on_etcd("node = \"a\"\netcd_key_file = \"/etc/passwd\""), "readable by other accounts"),
        (on_etcd("node = \"a\"\netcd_ca_file = \"/nowhere\""), "cannot read /nowhere"),
        (format!("etcd = {urls:?}"), "the log is in files"),
        ("etcd = \"10.0.0.1\"".to_owned(), "is no URL"),
        (on_etcd("node = \"a\""), "etcd has one member"),
        ("log = \"etcd\"\nnode = \"a\"\netcd = \"http://127.0.0.1:1\"".to_owned(), "does not answer"),
    ] {
        let told = answer(&more).await;
        assert!(told.contains(words), "{more}: {told}");
    }
    let gateway = Gateway::new(&urls, &TlsFiles::default()).unwrap();
    let put = Operation::Put("/service/x".into(), b"x".to_vec());
    gateway.txn(&Txn { then: vec![put], ..Txn::default() }, WITHIN).unwrap();
    let told = answer(&on_etcd("node = \"a\"")).await;
    assert!(told.contains("keys of Patroni"), "{told}");
}
