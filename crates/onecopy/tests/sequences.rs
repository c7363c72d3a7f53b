//! Promise: no sequence value of an acknowledged transaction is given out again, whatever is killed. Every replica's sequence
//! stands at or beyond it. Otherwise sequences behave as on one server.
//!
//! The home does not flush its own log for ten seconds, so a kill of all its processes loses every move of a sequence since
//! the start. Clients note the values that they received; a value that is noted twice fails the test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::random::Random;
use cluster::{Cluster, connect, run, table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};

const CLIENTS: usize = 8;
const ROUNDS: u64 = 6;
const DEADLINE: Duration = Duration::from_mins(1);

const SCHEMA: &str = "
    create sequence plain; create sequence cached cache 20; create sequence down increment -2;
    create table ser (id serial primary key, v int);
    create table ident (id bigint generated always as identity primary key, v int);
    create table firing (v int, drawn bigint);
    create sequence hidden; create sequence undone;
    create function draw() returns bigint language sql as 'select nextval(''hidden'')';
    create function draw_undone() returns bigint language plpgsql as
        $$ declare v bigint; begin v := nextval('undone'); raise 'no'; exception when raise_exception then return v; end $$;
    create function fill() returns trigger language plpgsql as $$ begin new.drawn := nextval('hidden'); return new; end $$;
    create trigger fill before insert on firing for each row execute function fill();";

/// The work of clients: a sequence, and statements whose last row has a value of it.
const DRAWS: [(&str, &str); 10] = [
    ("plain", "select nextval('plain')"),
    ("plain", "begin; select nextval('plain'); commit"),
    ("plain", "begin; savepoint a; select nextval('plain'); rollback to a; commit"),
    ("cached", "select nextval('cached')"),
    ("down", "select nextval('down')"),
    ("hidden", "select draw()"),
    ("hidden", "insert into firing values (1) returning drawn"),
    ("undone", "select draw_undone()"),
    ("ser_id_seq", "insert into ser (v) values (1) returning id"),
    ("ident_id_seq", "begin; insert into ident (v) values (1), (2) returning id; commit"),
];

/// The acknowledged values.
#[derive(Default)]
struct Book {
    noted: Mutex<BTreeMap<&'static str, BTreeSet<i64>>>,
    over: AtomicBool,
}

impl Book {
    fn note(&self, sequence: &'static str, values: &[i64]) {
        let mut noted = self.noted.lock().unwrap();
        for value in values {
            let is_new = noted.entry(sequence).or_default().insert(*value);
            assert!(is_new, "{sequence} gave {value} out twice");
        }
    }

    fn count(&self) -> usize {
        self.noted.lock().unwrap().values().map(BTreeSet::len).sum()
    }
}

/// Keeps the servers from writing their logs by themselves, so that a kill loses all that was not synchronised.
async fn write_late(cluster: &Cluster) {
    for replica in cluster.replicas().await {
        let direct = cluster.direct(&replica).await;
        direct.batch_execute("alter system set wal_writer_delay = '10s'").await.unwrap();
        direct.batch_execute("alter system set wal_writer_flush_after = 0").await.unwrap();
        direct.batch_execute("select pg_reload_conf()").await.unwrap();
    }
}

/// Kills the home with all that it has not written, and waits until it serves again.
async fn crash_home(cluster: &Cluster) {
    let mut replicas = cluster.caught_up().await;
    let home = replicas.remove(replicas.iter().position(|replica| replica.role == "anchor").unwrap());
    cluster.kill_server(&home, true);
    let deadline = Instant::now() + DEADLINE;
    loop {
        let attempt =
            async { cluster.try_client("postgres").await?.batch_execute("select txid_current()").await };
        if attempt.await.is_ok() {
            return;
        }
        assert!(Instant::now() < deadline, "the home does not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn answers(client: &Client, sql: &str) -> Result<Vec<i64>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0).and_then(|text| text.parse().ok()),
        _ => None,
    };
    Ok(messages.iter().filter_map(row).collect())
}

async fn draw_on(port: u16, mut client: Client, first: usize, book: Arc<Book>) {
    let mut next = first;
    while !book.over.load(Ordering::Relaxed) {
        next += 1;
        let (sequence, sql) = DRAWS[next % DRAWS.len()];
        if let Ok(values) = answers(&client, sql).await {
            book.note(sequence, &values);
        } else {
            drop(client.batch_execute("rollback").await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while client.is_closed() && !book.over.load(Ordering::Relaxed) {
            match connect("127.0.0.1", port, "postgres").await {
                Ok(new) => client = new,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

async fn start_load(cluster: &Cluster, book: &Arc<Book>) -> Vec<JoinHandle<()>> {
    book.over.store(false, Ordering::Relaxed);
    let mut load = Vec::new();
    for first in 0..CLIENTS {
        load.push(tokio::spawn(draw_on(cluster.port, cluster.client().await, first, Arc::clone(book))));
    }
    load
}

/// No replica's sequence can give an acknowledged value again: it stands at or beyond all of them, or at the end of a leased
/// range.
async fn check_replicas(cluster: &Cluster, book: &Book) {
    let replicas = cluster.caught_up().await;
    let noted = book.noted.lock().unwrap().clone();
    for replica in &replicas {
        let direct = cluster.direct(replica).await;
        for (sequence, values) in &noted {
            let query = format!(
                "select last_value, seqmin, seqmax from {sequence}, pg_sequence where seqrelid = '{sequence}'::regclass"
            );
            let row = table(&direct, &query).await.remove(0);
            let [last, least, greatest] = [0, 1, 2].map(|at: usize| row[at].parse::<i64>().unwrap());
            let still = if *sequence == "down" { least..=last - 1 } else { last + 1..=greatest };
            let again = values.iter().find(|value| still.contains(value));
            assert_eq!(again, None, "{sequence} stands at {last} on {}", replica.name);
        }
    }
}

#[tokio::test]
async fn nothing_is_given_out_twice() {
    let mut random = Random::new();
    let mut cluster = Cluster::start(3).await;
    run(&cluster.client().await, SCHEMA).await;
    write_late(&cluster).await;
    let book = Arc::new(Book::default());
    for round in 0..ROUNDS {
        let load = start_load(&cluster, &book).await;
        let before = book.count();
        let deadline = Instant::now() + DEADLINE;
        while book.count() == before {
            assert!(Instant::now() < deadline, "nothing is drawn");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(200 + random.below(800))).await;
        match round % 3 {
            0 => crash_home(&cluster).await,
            1 => cluster.kill_everything().await,
            _ => cluster.kill_onecopy().await,
        }
        book.over.store(true, Ordering::Relaxed);
        for client in load {
            client.await.unwrap();
        }
        if round % 3 != 0 {
            cluster.up_again().await;
        }
        // Each sequence once more: it goes on behind all that was given out.
        let client = cluster.client().await;
        for (sequence, sql) in DRAWS {
            book.note(sequence, &answers(&client, sql).await.unwrap());
        }
        check_replicas(&cluster, &book).await;
    }
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn what_was_set_stays_set() {
    // The home is waited for, however long it takes.
    let mut cluster = Cluster::start_as(3, &[], &["--takeover-after-ms", "86400000"]).await;
    let client = cluster.client().await;
    run(&client, SCHEMA).await;
    write_late(&cluster).await;
    // Far enough that the marks are ahead.
    run(&client, "select nextval('plain') from generate_series(1, 5000); insert into ser (v) select 1 from generate_series(1, 3000);
         select draw() from generate_series(1, 50)")
        .await;
    for (setting, drawing, expected) in [
        ("select setval('plain', 40)", "select nextval('plain')", 41),
        ("select setval('plain', 40, false)", "select nextval('plain')", 40),
        ("select setval('plain', 9000)", "select nextval('plain')", 9001),
        ("alter sequence plain restart", "select nextval('plain')", 1),
        ("alter sequence plain restart with 77", "select nextval('plain')", 77),
        ("begin; truncate ser restart identity; commit", "insert into ser (v) values (1) returning id", 1),
        ("alter table ident alter id restart with 500", "insert into ident (v) values (1) returning id", 500),
        ("do $$ begin perform setval('hidden', 3, false); end $$", "select draw()", 3),
    ] {
        run(&cluster.client().await, setting).await;
        crash_home(&cluster).await;
        let client = cluster.client().await;
        assert_eq!(answers(&client, drawing).await.unwrap(), [expected], "after {setting}");
        // The others have it, too.
        crash_home(&cluster).await;
        let next = answers(&cluster.client().await, drawing).await.unwrap()[0];
        assert!(next > expected, "{setting}: {next} again");
    }
    // A draw for which the server writes nothing, not even into its own log, just behind the mark.
    run(&cluster.client().await, "create sequence alone").await;
    for (count, last) in [(1, 1), (1_000, 1_001), (1, 1_002)] {
        let drawing = format!("select nextval('alone') from generate_series(1, {count})");
        assert_eq!(answers(&cluster.client().await, &drawing).await.unwrap().last(), Some(&last));
    }
    crash_home(&cluster).await;
    let next = answers(&cluster.client().await, "select nextval('alone')").await.unwrap()[0];
    assert!(next > 1_002, "{next} was drawn before");
    // An order to stop loses nothing, so nothing is skipped.
    let before = answers(&cluster.client().await, "select nextval('plain')").await.unwrap()[0];
    cluster.stop().await;
    cluster.up_again().await;
    let client = cluster.client().await;
    assert_eq!(answers(&client, "select nextval('plain')").await.unwrap(), [before + 1]);
    cluster.kill_onecopy().await;
    cluster.up_again().await;
    let client = cluster.client().await;
    assert_eq!(answers(&client, "select nextval('plain')").await.unwrap(), [before + 2]);
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn sequences_are_as_on_one_server() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    run(&client, SCHEMA).await;
    assert_eq!(refused(&client, "select currval('plain')").await, "55000");
    for (sql, expected) in [
        ("select nextval('plain')", &[1][..]),
        ("select currval('plain')", &[1]),
        ("insert into ser (v) values (5) returning id", &[1]),
        ("select lastval()", &[1]),
        ("select nextval('down')", &[-1]),
        ("select nextval('down')", &[-3]),
        ("select lastval()", &[-3]),
        ("select setval('plain', 10), 1", &[10]),
        ("select currval('plain')", &[10]),
        ("insert into ser values (default, 1), (default, 2) returning id", &[2, 3]),
        ("insert into ident overriding system value values (90, 1) returning id", &[90]),
        ("insert into ident (v) values (1) returning id", &[1]),
        ("select last_value from plain", &[10]),
        ("select last_value from pg_sequences where sequencename = 'plain'", &[10]),
    ] {
        assert_eq!(answers(&client, sql).await.unwrap(), expected, "{sql}");
    }
    run(&client, "discard sequences").await;
    assert_eq!(refused(&client, "select lastval()").await, "55000");
    bounds_and_caches(&cluster, &client).await;
    new_bounds(&client).await;
    names_and_records(&cluster, &client).await;
    cluster.verify().await;
    cluster.stop().await;
}

async fn refused(client: &Client, sql: &str) -> String {
    let error = answers(client, sql).await.expect_err("it is refused");
    error.code().expect("an error of the server").code().to_owned()
}

async fn bounds_and_caches(cluster: &Cluster, client: &Client) {
    run(
        client,
        "create sequence small as smallint maxvalue 3; create sequence wheel minvalue 5 maxvalue 7 cycle;
         create sequence ten cache 10; create sequence low as int increment -1 minvalue -2",
    )
    .await;
    assert_eq!(
        answers(client, "select nextval('small') from generate_series(1, 3)").await.unwrap(),
        [1, 2, 3]
    );
    assert_eq!(refused(client, "select nextval('small')").await, "2200H");
    assert_eq!(refused(client, "select setval('small', 4)").await, "22003");
    for expected in [5, 6, 7, 5, 6, 7, 5] {
        assert_eq!(answers(client, "select nextval('wheel')").await.unwrap(), [expected]);
    }
    let other = cluster.client().await;
    for expected in 1..=12 {
        assert_eq!(
            answers(client, "select nextval('ten')").await.unwrap(),
            [if expected > 10 { expected + 10 } else { expected }]
        );
        if expected == 1 {
            assert_eq!(answers(&other, "select nextval('ten')").await.unwrap(), [11]);
        }
    }
    assert_eq!(answers(client, "select nextval('low') from generate_series(1, 2)").await.unwrap(), [-1, -2]);
    assert_eq!(refused(client, "select nextval('low')").await, "2200H");
}

/// At other replicas sequences stand far ahead of the values drawn, and beyond the new bounds.
async fn new_bounds(client: &Client) {
    run(
        client,
        "create sequence wide; create sequence deep increment -1;
         create table narrow (id int generated always as identity, v int)",
    )
    .await;
    let draw =
        "select nextval(s) from generate_series(1, 15), unnest('{wide,deep,narrow_id_seq}'::regclass[]) s";
    run(client, draw).await;
    run(
        client,
        "alter sequence wide maxvalue 20; alter sequence deep minvalue -17;
         alter table narrow alter column id set maxvalue 16",
    )
    .await;
    assert_eq!(answers(client, "select nextval('wide')").await.unwrap(), [16]);
    run(client, "begin; alter sequence wide maxvalue 17; alter sequence wide maxvalue 900; commit").await;
    run(client, "select nextval('wide') from generate_series(1, 300)").await;
    run(client, "alter sequence wide minvalue 310 start 320 maxvalue 400 restart").await;
    run(client, "alter sequence wide minvalue 1000 start 1000 maxvalue 2000 restart with 1500").await;
    assert_eq!(answers(client, "select nextval('wide')").await.unwrap(), [1500]);
    assert_eq!(answers(client, "insert into narrow (v) values (1) returning id").await.unwrap(), [16]);
    assert_eq!(refused(client, "insert into narrow (v) values (1) returning id").await, "2200H");
}

async fn names_and_records(cluster: &Cluster, client: &Client) {
    // Names may change and come again.
    run(
        client,
        "alter sequence plain rename to former; create sequence plain start 1000; drop sequence former",
    )
    .await;
    assert_eq!(answers(client, "select nextval('plain')").await.unwrap(), [1000]);
    let described =
        table(client, "select seqstart, seqincrement from pg_sequence where seqrelid = 'down'::regclass")
            .await;
    assert_eq!(described, [["-1", "-2"]]);

    // Most draws leave nothing in the log.
    let applied = |replicas: Vec<cluster::Replica>| replicas[0].applied;
    let before = applied(cluster.caught_up().await);
    let inserts = 200;
    for _ in 0..inserts {
        run(client, "select nextval('plain')").await;
    }
    let records = applied(cluster.caught_up().await) - before;
    assert!((1..=inserts / 10).contains(&records), "{records} records for {inserts} draws");
}
