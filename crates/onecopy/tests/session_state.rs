//! Promise: a session with state on one server connection ends with 57P01 before a statement of it runs on another connection.
//! Settings and prepared statements move with the session.
//!
//! The same sessions run in both pool modes, with each way in which a server connection can be lost.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::{Duration, Instant};

use cluster::raw::Raw;
use cluster::{Cluster, Replica, run, table, value};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, NoTls};
use wire::backend::{Fields, tag};

/// Far more than it takes; a loaded machine is slow.
const WITHIN: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(10);
/// How long DRAIN waits for sessions that would end.
const DRAIN_WAIT: Duration = Duration::from_secs(2);

const SCHEMA: &str = "
create table shadow (v int); insert into shadow values (1), (2), (3);
create table plain (id serial primary key, v int);
create function remembers(name text) returns text language sql as $$ select set_config('app.name', name, false) $$;
create function looks(k int) returns bigint language sql stable as 'select count(*) from shadow where v >= k';
create function locks(k int) returns void language plpgsql as $$ begin perform pg_advisory_lock(k); end $$;
";

/// State of a session on one connection, and the statements that create it.
const STATES: [(&str, &str); 8] = [
    ("a temporary table", "create temp table shadow as select -1 as v"),
    ("an advisory lock", "select pg_advisory_lock(7)"),
    ("an advisory lock of code", "select locks(8)"),
    (
        "a cursor with hold",
        "begin; declare c cursor with hold for select v from shadow; commit; fetch 1 from c",
    ),
    ("LISTEN", "listen news"),
    ("a temporary function", "create function pg_temp.one() returns int language sql as 'select 1'"),
    ("a setting that only code has seen", "select remembers('anna')"),
    ("a seed", "select setseed(0.5)"),
];

/// A client, and how its connection ended.
struct Watched {
    client: Client,
    end: JoinHandle<Result<(), Error>>,
    what: &'static str,
}

impl Watched {
    async fn new(cluster: &Cluster, what: &'static str) -> Self {
        let settings = format!(
            "host=127.0.0.1 port={} user=postgres dbname=postgres application_name=watched connect_timeout=10",
            cluster.port
        );
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
        Self { client, end: tokio::spawn(connection), what }
    }

    /// Asserts that it ends with 57P01 although its client says nothing.
    async fn ends(self) {
        let what = self.what;
        let end = tokio::time::timeout(WITHIN, self.end).await;
        let end = end.unwrap_or_else(|_| panic!("the session with {what} lives on")).unwrap();
        let error = end.expect_err(what);
        assert_eq!(code(&error), "57P01", "{what}: {error:?}");
        let hint = error.as_db_error().and_then(|said| said.hint()).unwrap_or_default();
        assert!(!hint.is_empty(), "{what}: {error:?}");
    }
}

fn code(error: &Error) -> &str {
    error.code().map_or("closed", |code| code.code())
}

/// Sessions that hold something, one of each kind.
async fn holders(cluster: &Cluster) -> Vec<Watched> {
    let mut holders = Vec::new();
    for (what, makes) in STATES {
        let holder = Watched::new(cluster, what).await;
        run(&holder.client, makes).await;
        holders.push(holder);
    }
    holders
}

/// A session that survives the loss of its connection: all its state can be carried to another one.
struct Survivor {
    session: Watched,
    statement: tokio_postgres::Statement,
}

impl Survivor {
    async fn new(cluster: &Cluster) -> Self {
        let session = Watched::new(cluster, "nothing that cannot be carried").await;
        let client = &session.client;
        run(client, "set work_mem = '3MB'").await;
        for ordinary in [
            "select count(*) from shadow",
            "insert into plain (v) values (1)",
            "update plain set v = v + 1 where id = 1",
            "select looks(2), random(), clock_timestamp()",
            "select count(*) from pg_class",
            "select nextval('plain_id_seq')",
            "begin; create table t (k int); create temp table gone (k int) on commit drop; rollback",
            "begin; select pg_advisory_xact_lock(9); commit",
            "select pg_advisory_lock(10)",
            "select pg_advisory_unlock(10)",
            "listen old",
            "unlisten old",
            "prepare p(int) as select v from shadow where v = $1",
            "prepare gone as select 1",
            "deallocate gone",
            "execute p(1)",
        ] {
            run(client, ordinary).await;
        }
        let statement = client.prepare("select v from shadow where v = $1").await.unwrap();
        client.query_one(&statement, &[&1]).await.unwrap();
        Self { session, statement }
    }

    async fn goes_on(&self) {
        let client = &self.session.client;
        let deadline = Instant::now() + WITHIN;
        while let Err(error) = client.simple_query("insert into plain (v) values (2)").await {
            assert_eq!(code(&error), "40001", "{error:?}");
            assert!(Instant::now() < deadline, "{error:?}");
        }
        assert_eq!(value(client, "show work_mem").await, "3MB");
        assert_eq!(client.query_one(&self.statement, &[&2]).await.unwrap().get::<_, i32>(0), 2);
        let names = "select string_agg(name, ' ' order by name) from pg_prepared_statements where from_sql";
        assert_eq!(value(client, names).await, "p");
        assert_eq!(value(client, "execute p(3)").await, "3");
    }
}

async fn anchor(cluster: &Cluster) -> Replica {
    cluster.replicas().await.into_iter().find(|replica| replica.role == "anchor").unwrap()
}

/// Waits until Onecopy knows the state of the sessions, which it finds out after their answers.
async fn settled(cluster: &Cluster) {
    let admin = cluster.try_client("onecopy").await.unwrap();
    let deadline = Instant::now() + WITHIN;
    loop {
        let clients = cluster::rows(&admin, "show clients").await;
        let watched: Vec<_> = clients.iter().filter(|row| row["application_name"] == "watched").collect();
        // That of the survivor is carried.
        let holds = |pinned: &str| !matches!(pinned, "" | "prepare");
        if watched.iter().filter(|row| holds(&row["pinned"])).count() == STATES.len() {
            return;
        }
        assert!(Instant::now() < deadline, "{watched:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Ends backends at a server itself.
async fn terminate(cluster: &Cluster, which: &str) {
    let direct = cluster.direct(&anchor(cluster).await).await;
    let ends = format!("select pg_terminate_backend(pid) from pg_stat_activity where {which}");
    assert!(!table(&direct, &ends).await.is_empty(), "there is none: {which}");
}

async fn admin(cluster: &Cluster, command: &str) {
    run(&cluster.try_client("onecopy").await.unwrap(), command).await;
}

/// Sessions that do nothing while their connection is ended.
async fn idle(cluster: &Cluster, lose: impl AsyncFn(&Cluster)) {
    let holders = holders(cluster).await;
    let survivor = Survivor::new(cluster).await;
    settled(cluster).await;
    lose(cluster).await;
    for holder in holders {
        holder.ends().await;
    }
    survivor.goes_on().await;
    let next = cluster.client().await;
    assert_eq!(value(&next, "select pg_try_advisory_lock(7) and pg_try_advisory_lock(8)").await, "t");
}

/// A statement for a temporary table changes that table or none, whatever the session does when its connection is lost.
async fn nothing_runs_elsewhere(cluster: &Cluster) {
    const MAKES: &str = "create temp table shadow as select -1 as v";
    const SLOW: &str = "delete from shadow where pg_sleep(600) is not null";
    for (before, meant) in
        [("select 1", SLOW), ("begin", SLOW), ("begin; insert into plain (v) values (0)", SLOW)]
    {
        let victim = Watched::new(cluster, "a statement that runs").await;
        run(&victim.client, MAKES).await;
        run(&victim.client, before).await;
        let Watched { client, end, .. } = victim;
        let told = tokio::spawn(async move { client.simple_query(meant).await.map(|_| ()) });
        cluster.is_running_at_anchor(meant).await;
        terminate(cluster, "query like 'delete from shadow%'").await;
        let told =
            tokio::time::timeout(WITHIN, told).await.expect("it runs somewhere else").unwrap().unwrap_err();
        assert_eq!(code(&told), "57P01", "{before}; {told:?}");
        drop(tokio::time::timeout(WITHIN, end).await.expect("the session has ended"));
    }
    // The next statement comes at the moment of the loss, which may not be noticed yet.
    for meant in ["delete from shadow", "select count(*) from shadow", "begin; delete from shadow; commit"] {
        let victim = Watched::new(cluster, "a statement that comes").await;
        run(&victim.client, MAKES).await;
        terminate(cluster, "application_name = 'watched'").await;
        let told = victim.client.simple_query(meant).await.unwrap_err();
        assert!(matches!(code(&told), "57P01" | "closed"), "{meant}: {told:?}");
    }
    // The server ends the connection by itself.
    let victim = Watched::new(cluster, "idle_session_timeout").await;
    run(&victim.client, &format!("{MAKES}; set idle_session_timeout = '100ms'")).await;
    victim.ends().await;
    // In a transaction that waits for its client.
    let victim = Watched::new(cluster, "an open transaction").await;
    run(&victim.client, &format!("{MAKES}; begin; delete from shadow")).await;
    terminate(cluster, "application_name = 'watched'").await;
    victim.ends().await;
    assert_eq!(cluster.everywhere("select count(*) from shadow").await, [["3"]]);
}

/// A transaction that loses against another one costs the session nothing else.
async fn losing_costs_the_transaction_alone(cluster: &Cluster) {
    run(&cluster.client().await, "insert into plain values (101, 0), (102, 0)").await;
    let (holder, other) = (Watched::new(cluster, "a lost transaction").await, cluster.client().await);
    let holder = &holder.client;
    run(holder, "create temp table shadow as select -1 as v; set onecopy.home = 'anchor'").await;
    let replicas = cluster.replicas().await;
    let elsewhere = replicas.iter().find(|replica| replica.role != "anchor").unwrap();
    run(&other, &format!("set onecopy.home = '{}'", elsewhere.name)).await;
    // At COMMIT.
    run(holder, "begin isolation level serializable; select sum(v) from plain; update shadow set v = v")
        .await;
    run(holder, "insert into plain (v) values (1)").await;
    run(&other, "update plain set v = v + 1 where id = 101").await;
    let lost = holder.batch_execute("commit").await.unwrap_err();
    assert_eq!(code(&lost), "40001", "{lost:?}");
    assert_eq!(value(holder, "select v from shadow").await, "-1");
    // In a ring between two homes; whose transaction ends is not for us to say.
    let mut lost = 0;
    for _ in 0..4 {
        run(holder, "begin; update plain set v = v + 1 where id = 101").await;
        run(&other, "begin; update plain set v = v + 1 where id = 102").await;
        let (mine, theirs) = tokio::join!(
            holder.simple_query("update plain set v = v + 1 where id = 102"),
            other.simple_query("update plain set v = v + 1 where id = 101")
        );
        for error in [mine.err(), theirs.err()].into_iter().flatten() {
            assert_eq!(code(&error), "40P01", "{error:?}");
            lost += 1;
        }
        run(holder, "rollback").await;
        run(&other, "rollback").await;
        assert_eq!(value(holder, "select v from shadow").await, "-1");
    }
    assert!(lost >= 4, "there was a ring each time: {lost}");
}

/// A statement of PREPARE that cannot be prepared on the next connection costs its EXECUTE alone.
async fn prepared_of_a_table_that_is_gone(cluster: &Cluster) {
    let session = Watched::new(cluster, "PREPARE of a table that is dropped").await;
    let client = &session.client;
    run(client, "create table brief (v int); prepare b as select count(*) from brief; prepare k as select 7")
        .await;
    run(&cluster.client().await, "drop table brief").await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    let deadline = Instant::now() + WITHIN;
    while !cluster::rows(&admin, "show clients").await.iter().any(|row| row["pinned"] == "prepare") {
        assert!(
            Instant::now() < deadline,
            "it is not known what is prepared: {:?}",
            cluster::rows(&admin, "show clients").await
        );
        tokio::time::sleep(LOOK).await;
    }
    terminate(cluster, "application_name = 'watched'").await;
    assert_eq!(value(client, "execute k").await, "7");
    assert_eq!(code(&client.simple_query("execute b").await.unwrap_err()), "42P01");
    run(client, "create table brief (v int)").await;
    assert_eq!(value(client, "execute b").await, "0");
    run(client, "drop table brief; deallocate b").await;
    assert_eq!(code(&client.simple_query("execute b").await.unwrap_err()), "26000");
}

/// A listener, and the process that serves it at the anchor.
async fn listener(cluster: &Cluster) -> (Raw, Pid) {
    let parameters = [("user", "postgres"), ("database", "postgres"), ("application_name", "listener")];
    let (mut raw, _) = Raw::connect_as(cluster.port, &parameters);
    raw.exchange(|out| wire::encode::query(out, b"listen news"));
    let direct = cluster.direct(&anchor(cluster).await).await;
    let process =
        value(&direct, "select pid from pg_stat_activity where application_name = 'listener'").await;
    (raw, Pid::from_raw(process.parse().unwrap()).unwrap())
}

/// The notifications of a listener until its session ends, and the error with which it ends.
fn last_news(mut raw: Raw) -> (Vec<String>, String) {
    let mut news = Vec::new();
    loop {
        let (tag, body) = raw.next();
        match tag {
            tag::NOTIFICATION_RESPONSE => {
                let mut words = body[4..].split(|byte| *byte == 0).skip(1);
                news.push(String::from_utf8(words.next().unwrap().to_vec()).unwrap());
            }
            tag::ERROR_RESPONSE => {
                return (news, String::from_utf8_lossy(Fields::new(&body).sqlstate()).into_owned());
            }
            _ => {}
        }
    }
}

/// DRAIN waits for sessions to give up their state, and ends those that do not.
async fn drained(cluster: &Cluster) {
    let old = anchor(cluster).await;
    let (listener, process) = listener(cluster).await;
    let patient = Watched::new(cluster, "a lock that is given up").await;
    run(&patient.client, "select pg_advisory_lock(70)").await;
    let replica_driver = Watched::new(cluster, "a lock that is kept").await;
    run(&replica_driver.client, "select pg_advisory_lock(71)").await;
    let drain = format!("drain replica {}", old.name);
    let draining = async {
        let begun = Instant::now();
        admin(cluster, &drain).await;
        begun.elapsed()
    };
    let notifier = cluster.client().await;
    // Its server is late to tell the listener of them.
    kill_process(process, Signal::STOP).unwrap();
    let notified: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    for n in &notified {
        run(&notifier, &format!("notify news, '{n}'")).await;
    }
    let (took, ()) = tokio::join!(draining, async {
        assert_eq!(value(&patient.client, "select pg_advisory_unlock(70)").await, "t");
        // By then the listener is to end, too.
        replica_driver.ends().await;
        kill_process(process, Signal::CONT).unwrap();
    });
    assert!(took >= DRAIN_WAIT, "it has not waited for the listener: {took:?}");
    assert_eq!(last_news(listener), (notified, "57P01".to_owned()));
    assert_ne!(anchor(cluster).await.name, old.name);
    run(&patient.client, "insert into plain (v) values (3)").await;
    admin(cluster, &format!("undrain replica {}", old.name)).await;
    cluster.caught_up().await;
    // Without any there is nothing to wait for.
    let old = anchor(cluster).await;
    let begun = Instant::now();
    admin(cluster, &format!("drain replica {}", old.name)).await;
    cluster::folder::say(&format!("a drain without holders took {:?}", begun.elapsed()));
    run(&patient.client, "insert into plain (v) values (3)").await;
    admin(cluster, &format!("undrain replica {}", old.name)).await;
    cluster.caught_up().await;
}

async fn all(pool_mode: &str) {
    let wait_ms = DRAIN_WAIT.as_millis().to_string();
    let arguments =
        ["--takeover-after-ms", "1", "--pool-mode", pool_mode, "--drain-patience-ms", wait_ms.as_str()];
    let mut cluster = Cluster::start_as(3, &[], &arguments).await;
    run(&cluster.client().await, SCHEMA).await;
    nothing_runs_elsewhere(&cluster).await;
    losing_costs_the_transaction_alone(&cluster).await;
    idle(&cluster, async |cluster: &Cluster| terminate(cluster, "application_name = 'watched'").await).await;
    prepared_of_a_table_that_is_gone(&cluster).await;
    drained(&cluster).await;
    let at_anchor = async |cluster: &Cluster, what: &str| {
        let old = anchor(cluster).await;
        admin(cluster, &format!("{what} replica {}", old.name)).await;
        old
    };
    idle(&cluster, async |cluster: &Cluster| {
        let old = at_anchor(cluster, "drain").await;
        admin(cluster, &format!("undrain replica {}", old.name)).await;
    })
    .await;
    cluster.caught_up().await;
    idle(&cluster, async |cluster: &Cluster| cluster.kill_server(&anchor(cluster).await, true)).await;
    cluster.caught_up().await;
    idle(&cluster, async |cluster: &Cluster| drop(at_anchor(cluster, "rebuild").await)).await;
    cluster.caught_up().await;
    idle(&cluster, async |cluster: &Cluster| drop(at_anchor(cluster, "drop").await)).await;
    cluster.has_replicas(2);
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn what_lives_on_one_connection_ends_with_it() {
    all("session").await;
}

#[tokio::test]
async fn what_lives_on_one_connection_ends_with_it_where_connections_are_shared() {
    all("transaction").await;
}
