//! Promise: under protocol `middle-r` a session's work runs at the replica to which it is connected. It sees what that replica has, and
//! never less than before; of two transactions that conflict the first one commits; and a lost replica costs a session no more than
//! its open transaction ("Middle-R, C-JDBC and MySQL Cluster", 2.1).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cluster::http::get;
use cluster::plain::Plain;
use cluster::served::Setup;
use cluster::{Cluster, Replica, connect, folder, programs, run, value};
use rustix::net::sockopt;
use tokio::net::UdpSocket;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

const SCHEMA: &str = "
create table account (k int primary key, v bigint not null);
insert into account select g, 0 from generate_series(1, 40) as g;
";

/// So many sessions are connected to more than one replica, but once in a hundred million runs.
const SESSIONS: usize = 18;

async fn start() -> Cluster {
    let cluster = Cluster::start_as(3, &[], &["--protocol", "middle-r"]).await;
    run(&cluster.client().await, SCHEMA).await;
    cluster.caught_up().await;
    cluster
}

/// The port of the server that answers the session's reads.
async fn port_of(client: &Client) -> String {
    value(client, "select current_setting('port') from account where k = 1").await
}

/// Sessions by the ports of their replicas.
async fn sessions(cluster: &Cluster) -> BTreeMap<String, Vec<Client>> {
    let mut sessions: BTreeMap<String, Vec<Client>> = BTreeMap::new();
    for _ in 0..SESSIONS {
        let client = cluster.client().await;
        sessions.entry(port_of(&client).await).or_default().push(client);
    }
    sessions
}

async fn anchor(client: &Client) -> String {
    value(client, "select current_setting('port') from pg_class limit 1").await
}

fn at<'a>(replicas: &'a [Replica], port: &str) -> &'a Replica {
    replicas.iter().find(|replica| replica.port.to_string() == port).unwrap()
}

async fn fails_with_a_conflict(client: &Client, statement: &str) -> bool {
    let error = client.simple_query(statement).await.err();
    let code = error.as_ref().and_then(|error| error.code());
    assert!(code.is_none() || code == Some(&SqlState::T_R_SERIALIZATION_FAILURE), "{statement}: {error:?}");
    code.is_some()
}

/// 2.1.2: "Read only transactions are executed locally. [..] Write transactions are also executed at a single database (local replica)".
async fn all_of_a_session_runs_at_one_replica(sessions: &BTreeMap<String, Vec<Client>>) {
    for (port, clients) in sessions {
        for (number, client) in clients.iter().enumerate() {
            for _ in 0..3 {
                assert_eq!(port_of(client).await, *port);
            }
            let row = format!("where k = {} returning current_setting('port')", number + 2);
            assert_eq!(value(client, &format!("update account set v = 0 {row}")).await, *port);
            run(client, "begin isolation level repeatable read").await;
            assert_eq!(port_of(client).await, *port);
            assert_eq!(value(client, &format!("update account set v = 0 {row}")).await, *port);
            run(client, "commit").await;
        }
    }
}

/// A replica that is kept behind answers with what it has. A session there that commits waits for its own commit, and a new one for
/// what was durable when it came.
async fn a_read_is_local(cluster: &Cluster, sessions: &BTreeMap<String, Vec<Client>>) {
    let admin = &sessions.values().next().unwrap()[0];
    let anchor = anchor(admin).await;
    let (behind, readers) = sessions.iter().find(|(port, _)| **port != anchor).unwrap();
    let (_, writers) = sessions.iter().find(|(port, _)| *port != behind).unwrap();
    let holder = cluster.direct(at(&cluster.replicas().await, behind)).await;
    let read = "select v from account where k = 40";
    run(&holder, "begin; lock table account in share mode").await;
    run(&writers[0], "update account set v = 7 where k = 40").await;
    assert_eq!(value(&writers[0], read).await, "7", "a session sees its own commits");
    let stale = tokio::time::timeout(Duration::from_secs(10), value(&readers[0], read)).await;
    assert_eq!(stale.expect("a local read does not wait"), "0", "what its replica has");
    run(&holder, "commit").await;
    while value(&readers[0], read).await != "7" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..SESSIONS {
        run(&writers[0], "update account set v = v + 1 where k = 40").await;
        let (seen, expected) = (value(&cluster.client().await, read).await, value(&writers[0], read).await);
        assert_eq!(seen, expected, "a new session sees what was durable when it came");
    }
}

/// 2.1.2: "If there is a conflict, the transaction is simply aborted at the local". 2.1.3: "both snapshot isolation and
/// serializability".
async fn the_first_committer_wins(cluster: &Cluster, sessions: &BTreeMap<String, Vec<Client>>) {
    let mut at_each = sessions.values().map(|clients| &clients[0]);
    let (one, other) = (at_each.next().unwrap(), at_each.next().unwrap());
    for level in ["read committed", "repeatable read", "serializable"] {
        cluster.caught_up().await;
        for client in [one, other] {
            run(client, &format!("begin isolation level {level}")).await;
            run(client, "update account set v = v + 1 where k = 30").await;
        }
        run(one, "commit").await;
        assert!(fails_with_a_conflict(other, "commit").await, "{level}");
    }
    for (level, is_allowed) in [("repeatable read", true), ("serializable", false)] {
        cluster.caught_up().await;
        for (client, read, written) in [(one, 31, 32), (other, 32, 31)] {
            run(client, &format!("begin isolation level {level}")).await;
            value(client, &format!("select v from account where k = {read}")).await;
            run(client, &format!("update account set v = v + 1 where k = {written}")).await;
        }
        run(one, "commit").await;
        assert_eq!(fails_with_a_conflict(other, "commit").await, !is_allowed, "write skew at {level}");
    }
    assert_eq!(cluster.everywhere("select v from account where k = 30").await, [["3"]]);
}

#[tokio::test]
async fn sessions_work_at_their_replicas_and_the_first_committer_wins() {
    let mut cluster = start().await;
    let sessions = sessions(&cluster).await;
    assert!(sessions.len() >= 2, "all sessions at one of three replicas");
    all_of_a_session_runs_at_one_replica(&sessions).await;
    a_read_is_local(&cluster, &sessions).await;
    the_first_committer_wins(&cluster, &sessions).await;
    let told =
        cluster::table(&sessions.values().next().unwrap()[0], "explain (routing) select v from account")
            .await;
    assert!(told.iter().any(|line| line[0].contains("the session's own replica")), "{told:?}");
    drop(sessions);
    cluster.verify().await;
    cluster.stop().await;
}

/// Counts up a row. What was acknowledged is never missed afterwards, by this session.
async fn count_up(client: Client, row: usize, is_over: Arc<AtomicBool>, done: Arc<AtomicU64>) -> i64 {
    let mut acknowledged = 0;
    while !is_over.load(Ordering::Relaxed) {
        let seen: i64 =
            value(&client, &format!("select v from account where k = {row}")).await.parse().unwrap();
        assert!(seen >= acknowledged, "row {row}: {seen} after {acknowledged}");
        let statement = format!("update account set v = {} where k = {row}", acknowledged + 1);
        if fails_with_a_conflict(&client, &statement).await {
            continue;
        }
        acknowledged += 1;
        done.fetch_add(1, Ordering::Relaxed);
    }
    acknowledged
}

async fn grows(done: &AtomicU64, by: u64) {
    let end = done.load(Ordering::Relaxed) + by;
    while done.load(Ordering::Relaxed) < end {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// 2.1.4: "failure at one replica does not affect others", its clients get another one, and "the writesets are recorded in a log file
/// which is used to transfer missing changes to failed replicas when they are available again", while the others go on.
#[tokio::test]
async fn a_lost_replica_costs_no_session_and_comes_back_under_load() {
    let mut cluster = start().await;
    let sessions = sessions(&cluster).await;
    let anchor = anchor(&sessions.values().next().unwrap()[0]).await;
    let lost = sessions.keys().find(|port| **port != anchor).unwrap().clone();
    let (is_over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for (number, client) in sessions.into_values().flat_map(|clients| clients.into_iter().take(3)).enumerate()
    {
        tasks.push((
            number + 1,
            tokio::spawn(count_up(client, number + 1, Arc::clone(&is_over), Arc::clone(&done))),
        ));
    }
    grows(&done, 200).await;
    cluster.kill_server(at(&cluster.replicas().await, &lost), true);
    grows(&done, 200).await;
    let is_back = |replicas: &[Replica]| {
        let replica = at(replicas, &lost);
        replica.state == "up" && replica.lag_versions < 50
    };
    while !is_back(&cluster.replicas().await) {
        grows(&done, 20).await;
    }
    grows(&done, 200).await;
    is_over.store(true, Ordering::Relaxed);
    let mut expected = Vec::new();
    for (row, task) in tasks {
        expected.push(vec![row.to_string(), task.await.unwrap().to_string()]);
    }
    cluster.caught_up().await;
    let rows = expected.len();
    let found = cluster.everywhere(&format!("select k, v from account where k <= {rows} order by k")).await;
    assert_eq!(found, expected);
    cluster.verify().await;
    cluster.stop().await;
}

/// 2.1.5: "The driver internally broadcasts a multicast message to discover Middle-R replicas. Each replica replies to this message and
/// includes information about its current load."
#[tokio::test]
async fn a_node_is_found_by_multicast_and_by_its_page() {
    let server = Plain::start().await;
    let (pages, port) = (folder::free_port(), folder::free_port());
    let group = format!("239.255.64.32:{port}");
    let setup = Setup::new(
        &[&server],
        &format!("protocol = \"middle-r\"\nhttp_listen = \"127.0.0.1:{pages}\"\ndiscovery = \"{group}\""),
    );
    let asked = async |arguments: &[&str]| {
        let output = programs::onecopy(&[&["connect"], arguments].concat()).await;
        (output.status.success(), programs::text(&output))
    };
    let by_group = ["--group", group.as_str(), "--from", "127.0.0.1", "--wait-ms", "1000"];
    let page = format!("127.0.0.1:{pages}");
    let (is_found, said) = asked(&by_group).await;
    assert!(!is_found && said.contains("no node has answered in time"), "{said}");
    let node = setup.serve(&[]).await;
    let expected = format!("host=127.0.0.1 port={}", setup.port);
    for arguments in [&by_group[..], &["--nodes", page.as_str(), "--wait-ms", "10000"]] {
        let (is_found, said) = asked(arguments).await;
        assert!(is_found && said.lines().next() == Some(&expected), "{arguments:?}: {said}");
    }
    let nobody = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    sockopt::set_ip_multicast_if(&nobody, &Ipv4Addr::LOCALHOST).unwrap();
    for nonsense in [&b"onecopy? 1 0000000000000007"[..], &[b'x'; 128], &[0; 1_400]] {
        nobody.send_to(nonsense, &group).await.unwrap();
    }
    let answer = tokio::time::timeout(Duration::from_millis(500), nobody.recv(&mut [0; 256])).await;
    assert!(answer.is_err(), "nonsense gets no answer: {answer:?}");

    let load = async || {
        let (status, page) = get(pages, "/nodes").await;
        assert_eq!(status, 200);
        let nodes: Vec<serde_json::Value> = serde_json::from_str(&page).unwrap();
        assert_eq!((nodes.len(), &nodes[0]["port"]), (1, &setup.port.into()), "{page}");
        nodes[0]["load"].as_u64().unwrap()
    };
    let before = load().await;
    let _clients = [
        connect("127.0.0.1", setup.port, "postgres").await,
        connect("127.0.0.1", setup.port, "postgres").await,
    ];
    assert!(load().await > before, "sessions are load");
    node.stop();
    let unfit = Setup::new(&[&server], "discovery = \"10.0.0.1:6431\"");
    assert!(unfit.refused().await.contains("\"10.0.0.1:6431\" is no multicast group"));
}
