//! Promise: the schedulers that ship statements give one copy of the database, too. They refuse statements that cannot be
//! shipped, acknowledged commits survive the loss of servers and of the node, and all replicas stay identical.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::{Duration, Instant};

use cluster::plain::Plain;
use cluster::served::Setup;
use cluster::{Cluster, folder, http, programs, rows, run, table, value};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// The server's verifier of the password `secret`.
const SECRET: &str = "SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$bpSY5Ze9NUH+I35LC3gVq+DpBfK46iXBxvhAKqVu9pE=:VpYlBuxyzeCI1KnctrefdljpB1mk3Gp7sBI/t11+NkQ=";

/// The SQLSTATE with which a statement is refused, and its hint.
async fn refused(client: &Client, sql: &str) -> String {
    let error = client.simple_query(sql).await.expect_err(sql);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}"));
    assert!(error.code().code() != "0A000" || error.hint().is_some(), "{sql}: {error} has no hint");
    error.code().code().to_owned()
}

#[tokio::test]
async fn statements_are_shipped_and_replicas_stay_the_same() {
    // The limits: a megabyte of statements for replicas that are behind, and two megabytes of a statement's result.
    let environment = [("ONECOPY_TEST_SHIPPING_BYTES", "1000000,2000000")];
    let mut cluster = Cluster::start_as(3, &environment, &["--protocol", "conflict-aware"]).await;
    let client = cluster.client().await;
    run(
        &client,
        "CREATE TABLE item (id serial PRIMARY KEY, name text, at timestamptz DEFAULT now(), r float8)",
    )
    .await;
    run(&client, "CREATE TABLE sale (item int REFERENCES item, n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        .await;
    statements(&client).await;
    refusals(&client).await;
    parameters(&client).await;
    declared(&client).await;
    undeclared(&cluster).await;
    limits(&client).await;
    mistakes(&cluster, &client).await;
    bounds(&cluster, &client).await;
    let everything = "SELECT * FROM item ORDER BY id";
    let before = cluster.everywhere(everything).await;
    cluster.verify().await;

    // A server dies under a transaction that is open; the transaction goes on, and the replica comes back.
    run(&client, "BEGIN /* onecopy: write item */; UPDATE item SET name = name || '!' WHERE id = 1").await;
    let replicas = cluster.replicas().await;
    cluster.kill_server(&replicas[0], true);
    run(&client, "INSERT INTO item (name) VALUES ('while one is away'); COMMIT").await;
    cluster.everywhere(everything).await;

    // A replica that rolls forward later skips a failed statement, though it could succeed by then.
    assert_eq!(refused(&client, "INSERT INTO item (id, name) VALUES (1, 'twice')").await, "23505");
    run(&client, "DELETE FROM sale; DELETE FROM item WHERE id = 1").await;
    drop(client);
    let other = diverged(&cluster).await;
    cluster.kill_everything().await;
    cluster.up_again().await;
    rebuilt(&cluster, &other).await;
    let after = cluster.everywhere(everything).await;
    assert_eq!(after.len(), before.len(), "one more, one less");
    assert!(after.iter().all(|row| row[1] != "twice"));
    cluster.verify().await;
    cluster.stop().await;
    let port = cluster.port.to_string();
    let data = cluster.data();
    let words = ["up", "--data", data.to_str().unwrap(), "--port", &port];
    let said =
        programs::onecopy(&[&words[..], &["--pg-bin", programs::pg_bin().to_str().unwrap()]].concat()).await;
    assert!(programs::text(&said).contains("ships statements"), "the other kind of node takes the folder");
}

/// A benchmark switches the log off to measure its cost: it must still be one database, and write no record.
#[tokio::test]
async fn decisions_are_logged_unless_a_benchmark_switches_that_off() {
    for (rule_off, is_logged) in [("", true), ("decisions_are_logged", false)] {
        let environment = [("ONECOPY_TEST_RULE_OFF", rule_off)];
        let mut cluster = Cluster::start_as(2, &environment, &["--protocol", "conflict-aware"]).await;
        let client = cluster.client().await;
        run(&client, "CREATE TABLE item (id int PRIMARY KEY)").await;
        run(&client, "BEGIN; INSERT INTO item VALUES (1); INSERT INTO item VALUES (2); COMMIT").await;
        // Without records nothing else tells that the second replica has it, too.
        cluster.verify().await;
        assert_eq!(cluster.everywhere("SELECT * FROM item ORDER BY id").await.len(), 2);
        let stats =
            rows(&cluster::connect("127.0.0.1", cluster.port, "onecopy").await.unwrap(), "SHOW STATS").await;
        let records = stats.iter().find(|row| row["name"] == "records").unwrap();
        assert_eq!(records["value"] != "0", is_logged, "{records:?}");
        cluster.stop().await;
    }
}

#[tokio::test]
async fn servers_that_exist_are_adopted() {
    let (mut a, b) = (Plain::start().await, Plain::start().await);
    for server in [&a, &b] {
        let schema =
            "CREATE TABLE item (id serial PRIMARY KEY, name text); INSERT INTO item (name) VALUES ('a')";
        run(&server.client().await, schema).await;
        // Both keep the same proof of the password `secret`.
        run(&server.client().await, &format!("CREATE ROLE app LOGIN PASSWORD '{SECRET}'")).await;
    }
    let rules = "hba = [\"host all app all scram-sha-256\", \"host all all 127.0.0.1/32 trust\"]";
    let setup = Setup::new(&[&a, &b], &format!("protocol = \"conflict-aware\"\n{rules}"));
    for name in ["b", "c"] {
        let node = setup.serve(&[]).await;
        let client = cluster::connect("127.0.0.1", setup.port, "postgres").await.unwrap();
        run(&client, &format!("INSERT INTO item (name) VALUES ('{name}')")).await;
        let admin = cluster::connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
        let same = rows(&admin, "VERIFY").await;
        assert!(!same.is_empty() && same.iter().all(|row| row["result"] == "identical"), "{same:?}");
        assert_eq!(refused(&admin, "PAUSE").await, "0A000");
        assert_eq!(refused(&admin, "CREATE CHECKPOINT a").await, "0A000", "it did not start the servers");
        let proven = format!(
            "host=127.0.0.1 port={} user=app password=secret dbname=postgres connect_timeout=30",
            setup.port
        );
        let logging_in = tokio_postgres::connect(&proven, tokio_postgres::NoTls);
        let logged_in = tokio::time::timeout(Duration::from_secs(40), logging_in).await;
        assert!(logged_in.expect("the password is looked up").is_ok());
        node.stop();
    }
    let names = "SELECT string_agg(name, ',' ORDER BY id) FROM item";
    assert_eq!(value(&b.client().await, names).await, "a,b,c");

    // No replica is needed more than another: the node starts without the first one, and is ready.
    a.stop();
    let pages = folder::free_port();
    setup.write(
        &[a.port, b.port],
        &format!("protocol = \"conflict-aware\"\n{rules}\nhttp_listen = \"127.0.0.1:{pages}\""),
    );
    let node = setup.serve(&[]).await;
    let client = cluster::connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    assert_eq!(value(&client, names).await, "a,b,c");
    assert_eq!(http::get(pages, "/ready").await, (200, "ready\n".to_owned()));
    node.stop();
    setup.write(&[a.port, b.port], "");
    assert!(setup.refused().await.contains("ships statements"), "the other kind of node takes the folder");
}

/// Until when a server comes to run a statement, or its replica to take part.
const WITHIN: Duration = Duration::from_mins(1);

/// Waits for this state of the second replica.
async fn second_is(admin: &Client, state: &str) {
    let deadline = Instant::now() + WITHIN;
    while rows(admin, "SHOW REPLICAS").await[1]["state"] != state {
        assert!(Instant::now() < deadline, "the second replica is not {state}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What a replica lacks when it joins is over for the others, but VERIFY has to wait for it.
#[tokio::test]
async fn a_comparison_waits_for_what_a_replica_still_lacks() {
    let (a, mut b) = (Plain::start().await, Plain::start().await);
    let setup = Setup::new(&[&a, &b], "protocol = \"eager\"");
    let node = setup.serve(&[]).await;
    let client = cluster::connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    let admin = cluster::connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    run(&client, "CREATE TABLE early (i int PRIMARY KEY); CREATE TABLE late (i int PRIMARY KEY)").await;
    b.stop();
    second_is(&admin, "down").await;
    run(&client, "INSERT INTO early SELECT count(*) FROM generate_series(1, 9000000)").await;
    b.start_again().await;
    // While it runs that, another one is begun, and over.
    let beside = cluster::connect("127.0.0.1", b.port, "template1").await.unwrap();
    let runs = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onecopy agent' AND query LIKE '%INTO early%'";
    let deadline = Instant::now() + WITHIN;
    while value(&beside, runs).await == "0" {
        assert!(Instant::now() < deadline, "the replica runs nothing of what it lacks");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    run(&client, "INSERT INTO late SELECT count(*) FROM generate_series(1, 3000000)").await;
    second_is(&admin, "up").await;
    let compared = rows(&admin, "VERIFY").await;
    assert!(compared.iter().all(|row| row["result"] == "identical"), "{compared:?}");
    assert_eq!(value(&b.client().await, "SELECT count(*) FROM late").await, "1");
    node.stop();
}

async fn statements(client: &Client) {
    run(client, "INSERT INTO item (name, r) VALUES ('a', random()), (gen_random_uuid()::text, 0.5)").await;
    run(client, "UPDATE item SET at = now(), r = 0.25 WHERE id = 2").await;
    // Several statements in one string are one transaction.
    assert!(client.batch_execute("INSERT INTO item (name) VALUES ('lost'); SELECT 1/0").await.is_err());
    assert_eq!(value(client, "SELECT count(*) FROM item").await, "2");
    // An undeclared transaction locks all tables and runs.
    run(client, "BEGIN; INSERT INTO item (name) VALUES ('x'); SAVEPOINT s").await;
    assert_eq!(refused(client, "INSERT INTO item (id) VALUES (1)").await, "23505");
    assert_eq!(refused(client, "SELECT 1").await, "25P02");
    run(client, "ROLLBACK TO s; INSERT INTO sale VALUES (1, 7), (2, 8); COMMIT").await;
    run(client, "BEGIN; UPDATE item SET name = 'never'; ROLLBACK").await;
    // A transaction that fails at its end has changed no replica.
    run(client, "BEGIN; INSERT INTO sale VALUES (1, 7)").await;
    assert_eq!(refused(client, "COMMIT").await, "23505");
    assert_eq!(table(client, "SELECT item, n FROM sale ORDER BY n").await, [["1", "7"], ["2", "8"]]);
    let drawn: i64 = value(client, "SELECT nextval('item_id_seq')").await.parse().unwrap();
    run(client, "INSERT INTO item (name) VALUES ('after a draw')").await;
    assert_eq!(value(client, "SELECT max(id) FROM item").await, (drawn + 1).to_string());
    run(client, "SELECT setval('item_id_seq', 100); ANALYZE").await;
    run(client, "CREATE TABLE note (n int PRIMARY KEY, at timestamptz)").await;
    let into = "COPY note FROM STDIN";
    copy(client, into, b"1\t2020-01-01 00:00\n2\t\\N\n").await.unwrap();
    assert!(copy(client, into, b"3\tnow\n").await.is_err(), "each replica would read its own clock");
    assert!(copy(client, into, b"1\t2020-01-01 00:00\n").await.is_err(), "the key is there");
    assert_eq!(value(client, "SELECT count(*) FROM note").await, "2");
    copies(client).await;
    run(client, "SET timezone = 'Asia/Tokyo'; SET search_path = public").await;
    assert_eq!(value(client, "SHOW timezone").await, "Asia/Tokyo");
    run(client, "BEGIN READ ONLY; SELECT count(*) FROM item; SELECT count(*) FROM sale; COMMIT").await;
}

/// COPY as `pgbench -i` does it, where the transaction has locked the table, and in its forms.
async fn copies(client: &Client) {
    run(
        client,
        "CREATE TABLE \"Load\" (n int PRIMARY KEY, twice int GENERATED ALWAYS AS (2 * n) STORED, s text)",
    )
    .await;
    run(client, "BEGIN; TRUNCATE \"Load\"").await;
    copy(client, "COPY \"Load\" FROM STDIN WITH (FREEZE ON)", b"1\ta\n2\tb\n").await.unwrap();
    run(client, "COMMIT").await;
    copy(client, "COPY public.\"Load\" (n) FROM STDIN", b"3\n").await.unwrap();
    let one_row = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x04\0\0\0\x04\xff\xff";
    copy(client, "COPY \"Load\" (n) FROM STDIN WITH (FORMAT binary)", one_row).await.unwrap();
    let seen = table(client, "SELECT n, twice, coalesce(s, '-') FROM \"Load\" ORDER BY n").await;
    assert_eq!(seen, [["1", "2", "a"], ["2", "4", "b"], ["3", "6", "-"], ["4", "8", "-"]]);
    let error = copy(client, "COPY \"Load\" (m) FROM STDIN", b"1\n").await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::UNDEFINED_COLUMN), "{error}");
    // No data are asked for.
    assert_eq!(refused(client, "COPY nowhere FROM STDIN").await, "42P01");
}

async fn copy(client: &Client, sql: &str, data: &'static [u8]) -> Result<u64, tokio_postgres::Error> {
    let sink = client.copy_in(sql).await?;
    futures_util::pin_mut!(sink);
    futures_util::SinkExt::send(&mut sink, bytes::Bytes::from_static(data)).await?;
    sink.finish().await
}

async fn refusals(client: &Client) {
    for sql in [
        "INSERT INTO item (name) SELECT name FROM item LIMIT 1",
        "UPDATE item SET r = random()",
        "COPY item TO STDOUT",
        "DO $$ BEGIN END $$",
        "CREATE TEMP TABLE away (n int)",
        "CREATE TABLE made AS SELECT random() AS r",
        "SELECT currval('item_id_seq')",
        "PREPARE p AS SELECT 1",
        "LISTEN away",
        "LOCK TABLE item",
    ] {
        assert_eq!(refused(client, sql).await, "0A000", "{sql}");
    }
    for sql in ["SELEC 1", "UPDATE nowhere SET a = 1"] {
        assert!(matches!(&*refused(client, sql).await, "42601" | "42P01" | "0A000"), "{sql}");
    }
    run(client, "BEGIN; ALTER TABLE item ALTER r SET DEFAULT random()").await;
    assert_eq!(refused(client, "INSERT INTO item (name) VALUES ('by chance')").await, "0A000");
    run(client, "ROLLBACK").await;
    run(client, "BEGIN READ ONLY").await;
    assert_eq!(refused(client, "DELETE FROM sale").await, "25006");
    run(client, "ROLLBACK").await;
}

async fn parameters(client: &Client) {
    let insert = "INSERT INTO item (name, r) VALUES ($1, $2) RETURNING id, at";
    let made = client.query_one(insert, &[&"by parameter", &0.5_f64]).await.unwrap();
    let id: i32 = made.get(0);
    let found = client.query_one("SELECT name FROM item WHERE id = $1", &[&id]).await.unwrap();
    assert_eq!(found.get::<_, String>(0), "by parameter");
    let prepared = client.prepare("UPDATE item SET name = $1 WHERE id = $2").await.unwrap();
    for name in ["once", "now"] {
        assert_eq!(client.execute(&prepared, &[&name, &id]).await.unwrap(), 1);
    }
    kept(client).await;
    assert!(client.query("SELECT 1/$1::int", &[&0_i32]).await.is_err());
    assert_eq!(client.query("SELECT 1/$1::int", &[&1_i32]).await.unwrap().len(), 1);
}

/// A prepared statement is parsed once, and again when settings or the schema have changed, alike at all replicas.
async fn kept(client: &Client) {
    run(client, "CREATE TABLE moment (n int PRIMARY KEY, at timestamptz)").await;
    let insert = "INSERT INTO moment (n, at) VALUES ($1, '2020-01-01 00:00') RETURNING at::text";
    let insert = client.prepare(insert).await.unwrap();
    let all = client.prepare("SELECT * FROM moment WHERE n = $1").await.unwrap();
    let mine = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'onecopy p%'";
    run(client, "SET timezone = 'UTC'").await;
    let mut at = Vec::new();
    for n in 1..=6_i32 {
        at.push(client.query_one(&insert, &[&n]).await.unwrap().get::<_, String>(0));
        assert_eq!(client.query(&all, &[&n]).await.unwrap().len(), 1);
        match n {
            2 => run(client, "SET timezone = 'Asia/Tokyo'").await,
            4 => run(client, "BEGIN; SET LOCAL timezone = 'America/New_York'").await,
            5 => run(client, "COMMIT").await,
            _ => {}
        }
    }
    assert_eq!(at[0], "2020-01-01 00:00:00+00");
    assert_eq!(at[2], "2020-01-01 00:00:00+09");
    assert_eq!(at[4], "2020-01-01 00:00:00-05");
    assert_eq!(at[5], "2020-01-01 00:00:00+09");
    assert_ne!(value(client, mine).await, "0", "what is prepared is kept");
    // One replica after the other parses it for the first time after the change, or for the second: none fails.
    run(client, "ALTER TABLE moment RENAME at TO moment").await;
    for n in 1..=6_i32 {
        assert_eq!(client.query(&all, &[&n]).await.unwrap().len(), 1);
    }
    run(client, "DROP TABLE moment").await;
}

/// Errors and settings of one client neither quarantine a replica nor make replicas differ.
async fn mistakes(cluster: &Cluster, client: &Client) {
    // The servers take fewer parameters than there are for a fault of the protocol.
    let mut raw = cluster::raw::Raw::connect(cluster.port);
    let answered = raw.exchange(|out| {
        wire::encode::parse(out, b"", b"INSERT INTO item (name, r) VALUES ($1, $2)", &[]);
        wire::encode::bind(out, b"", b"", &[Some(b"one")], wire::encode::Format::Text);
        wire::encode::execute(out, b"", 0);
        wire::encode::sync(out);
    });
    let (_, body) = answered.iter().find(|(tag, _)| *tag == wire::backend::tag::ERROR_RESPONSE).unwrap();
    assert_eq!(wire::backend::Fields::new(body).sqlstate(), b"08P01");
    assert_eq!(refused(client, "DROP ROLE postgres").await, "55006");
    // A time-out could end a statement at some replicas only.
    run(client, "CREATE TABLE many (n int)").await;
    run(client, "BEGIN /* onecopy: write many */; SET LOCAL statement_timeout = '5ms'").await;
    run(client, "INSERT INTO many SELECT i FROM generate_series(1, 100000) i; COMMIT").await;
    assert_eq!(refused(client, "BEGIN; SET LOCAL statement_timeout = 'soon'").await, "22023");
    run(client, "ROLLBACK").await;
    // A server would end connections that are idle for too long, also just when they are used again.
    run(client, "SET idle_session_timeout = '20ms'; INSERT INTO many VALUES (0)").await;
    for n in 0..40 {
        tokio::time::sleep(Duration::from_millis(18) + Duration::from_micros(n * 100)).await;
        run(client, "INSERT INTO many VALUES (0)").await;
        assert_eq!(value(client, "SHOW idle_session_timeout").await, "20ms");
    }
    run(client, "RESET idle_session_timeout").await;
    assert!(!cluster.printed().contains("is given up"), "{}", cluster.printed());
    // Code can change settings unseen, on the connection of one replica.
    run(
        client,
        "CREATE FUNCTION turns() RETURNS text LANGUAGE plpgsql AS \
         $$ BEGIN RETURN set_config('timezone', 'Africa/Cairo', false); END $$",
    )
    .await;
    for n in 0..3 {
        run(client, "SELECT turns()").await;
        run(client, &format!("INSERT INTO note VALUES ({}, '2020-01-01 00:00')", 100 + n)).await;
        run(client, "BEGIN READ ONLY; SELECT turns(); COMMIT").await;
        run(client, &format!("INSERT INTO note VALUES ({}, '2020-01-01 00:00')", 200 + n)).await;
    }
    let instants = "SELECT count(DISTINCT at), count(*) FROM note WHERE n >= 100";
    assert_eq!(cluster.everywhere(instants).await, [["1", "6"]]);
    assert_eq!(cluster.everywhere("SELECT count(*) FROM many").await, [["100041"]]);
}

/// Memory is bounded: a replica that hangs is given up, and a result that is too large is refused.
async fn bounds(cluster: &Cluster, client: &Client) {
    run(client, "CREATE TABLE wide (n int PRIMARY KEY, t text)").await;
    let returning =
        "INSERT INTO wide SELECT i, repeat('y', 1000) FROM generate_series(11, 3010) i RETURNING n, t";
    assert_eq!(refused(client, returning).await, "54000");
    run(client, "BEGIN /* onecopy: write wide */; INSERT INTO wide VALUES (1, 'stays'); SAVEPOINT s").await;
    assert_eq!(refused(client, returning).await, "54000");
    run(client, "ROLLBACK TO s; COMMIT").await;
    assert_eq!(cluster.everywhere("SELECT n, t FROM wide").await, [["1", "stays"]]);
    // A lock on a table at one server makes the statements of the others wait there.
    let still = cluster.direct(&cluster.replicas().await[2]).await;
    run(&still, "BEGIN; LOCK TABLE wide IN EXCLUSIVE MODE").await;
    let large = "x".repeat(400_000);
    for n in 2..6 {
        run(client, &format!("INSERT INTO wide VALUES ({n}, '{large}')")).await;
    }
    assert_eq!(cluster.everywhere("SELECT count(*), sum(length(t)) FROM wide").await, [["5", "1600005"]]);
    assert!(cluster.printed().contains("too far behind"), "{}", cluster.printed());
    let insert = |n: u32| format!("INSERT INTO wide VALUES ({n}, '{large}')");
    run(client, "BEGIN /* onecopy: write wide */").await;
    run(client, &format!("{}; {}", insert(10), insert(11))).await;
    assert_eq!(refused(client, &insert(12)).await, "53400");
    run(client, "ROLLBACK").await;
    assert_eq!(value(client, "SELECT max(n) FROM wide").await, "5");
}

/// A replica that was changed behind our back is found and serves nothing more; which one.
async fn diverged(cluster: &Cluster) -> String {
    let replica = cluster.caught_up().await.remove(2);
    run(&cluster.direct(&replica).await, "UPDATE wide SET t = 'other' WHERE n = 1").await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    let checked = rows(&admin, "CHECK REPLICAS").await;
    let found = checked.iter().find(|row| row["replica"] == replica.name).unwrap();
    assert!(found["result"] == "QUARANTINED" && found["detail"].contains("wide"), "{checked:?}");
    assert_eq!(refused(&admin, &format!("DRAIN REPLICA {}", replica.name)).await, "0A000");
    replica.name
}

/// It is in quarantine over a restart, and until it has the data of another one.
async fn rebuilt(cluster: &Cluster, name: &str) {
    let state = async || cluster.replicas().await.into_iter().find(|r| r.name == name).unwrap().state;
    assert_eq!(state().await, "quarantined");
    let client = cluster.client().await;
    run(&client, "INSERT INTO wide VALUES (7, 'while it is away')").await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    assert_eq!(rows(&admin, &format!("REBUILD REPLICA {name}")).await.len(), 1);
    let found = cluster.everywhere("SELECT n, t FROM wide WHERE length(t) < 100 ORDER BY n").await;
    assert_eq!(found, [["1", "stays"], ["7", "while it is away"]]);
}

/// A limit of the client's own ends no connection by which a replica takes part.
async fn limits(client: &Client) {
    let version: u32 = value(client, "SHOW server_version_num").await.parse().unwrap();
    for (limit, since) in [("idle_in_transaction_session_timeout", 0), ("transaction_timeout", 170_000)] {
        if version < since {
            continue;
        }
        run(client, &format!("SET {limit} = '100ms'")).await;
        for (declared, work) in
            [("write", "UPDATE item SET name = name WHERE id = 1"), ("read", "SELECT FROM item")]
        {
            run(client, &format!("BEGIN /* onecopy: {declared} item */; {work}")).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            run(client, &format!("{work}; COMMIT")).await;
        }
        run(client, &format!("RESET {limit}")).await;
    }
}

/// An undeclared transaction locks all tables, and the log says so once for each session.
async fn undeclared(cluster: &Cluster) {
    let hints = || cluster.printed().matches("did not declare its tables and locks everything").count();
    let before = hints();
    let (client, other) = (cluster.client().await, cluster.client().await);
    for _ in 0..2 {
        run(&client, "BEGIN; UPDATE item SET r = r WHERE id = 1").await;
        let reads = other.simple_query("SELECT count(*) FROM sale");
        let waited = tokio::time::timeout(Duration::from_millis(200), reads).await;
        assert!(waited.is_err(), "a table was free of which the transaction has said nothing");
        run(&client, "COMMIT").await;
        assert_eq!(value(&other, "SELECT 7").await, "7");
    }
    let started = Instant::now();
    while hints() == before && started.elapsed() < Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(hints(), before + 1);
}

async fn declared(client: &Client) {
    run(client, "BEGIN /* onecopy: read item */; SELECT count(*) FROM item").await;
    assert_eq!(refused(client, "INSERT INTO sale VALUES (1, 9)").await, "55000");
    run(client, "ROLLBACK; BEGIN; SET LOCAL onecopy.access = 'read item; write sale'").await;
    run(client, "SELECT name FROM item WHERE id = 1; INSERT INTO sale VALUES (1, 9)").await;
    run(client, "SELECT * FROM sale WHERE n = 9 FOR UPDATE; COMMIT").await;
    assert_eq!(refused(client, "BEGIN /* onecopy: change item */").await, "22023");
}
