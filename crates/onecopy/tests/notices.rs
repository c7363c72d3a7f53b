//! Promise: a client receives a notice once, and while the statement that raised it still runs.
//!
//! The statement waits for a table that the test has locked at the servers. The test unlocks it only after it has seen the
//! notice.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::raw::Raw;
use cluster::{Cluster, rows, run, table, value};
use tokio_postgres::Client;
use wire::backend::{Fields, tag};
use wire::encode::{self, Format};

const SCHEMA: &str = "
create table blocked (k int primary key); create table t (k int primary key, v int);
insert into t select n, 0 from generate_series(1, 20) n;
create function quick() returns int language plpgsql stable as $$ begin raise notice 'early'; return 1; end $$;
create function warns() returns int language plpgsql stable as $$ begin
    raise notice 'early'; perform count(*) from blocked; raise notice 'late'; return 1; end $$;
create table deferring (k int primary key);
create function at_commit() returns trigger language plpgsql as $$ begin perform warns(); return null; end $$;
create constraint trigger c after insert on deferring deferrable initially deferred for each row execute function at_commit();
create table copied (k int primary key);
create function on_copy() returns trigger language plpgsql as $$ begin raise notice 'early'; return new; end $$;
create trigger b before insert on copied for each row execute function on_copy();
";

/// Statements that raise a notice and wait then; `%` is another number each time.
const WAIT: [&str; 6] = [
    "do $$ begin raise notice 'early'; perform count(*) from blocked; end $$",
    "select warns()",
    "select warns() from t where k < 4 order by k",
    "update t set v = v + warns() where k = 1",
    "insert into t select n, warns() from generate_series(%, %) n",
    "insert into t values (%, warns()) returning k, v",
];

/// Keeps the table from everybody at the servers themselves.
struct Lock(Vec<Client>);

impl Lock {
    async fn new(cluster: &Cluster) -> Self {
        let mut clients = Vec::new();
        for replica in cluster.caught_up().await {
            clients.push(cluster.direct(&replica).await);
        }
        Self(clients)
    }

    async fn take(&self) {
        for client in &self.0 {
            run(client, "begin; lock table blocked in access exclusive mode").await;
        }
    }

    async fn release(&self) {
        for client in &self.0 {
            run(client, "rollback").await;
        }
    }
}

/// Waits for the notice.
fn hear(raw: &mut Raw, what: &str) {
    loop {
        let (tag, body) = raw.next();
        assert!(![tag::ERROR_RESPONSE, tag::READY_FOR_QUERY].contains(&tag), "{what}: {}", text(&body));
        if tag == tag::NOTICE_RESPONSE && Fields::new(&body).message() == "early" {
            return;
        }
    }
}

/// The rest of the reply; how often the notice comes once more in it.
fn hear_rest(raw: &mut Raw, what: &str) -> usize {
    let rest = raw.exchange(|_| {});
    let error = rest.iter().find(|(tag, _)| *tag == tag::ERROR_RESPONSE);
    assert!(error.is_none(), "{what}: {}", text(&error.unwrap().1));
    let is_notice =
        |(tag, body): &&(u8, Vec<u8>)| *tag == tag::NOTICE_RESPONSE && Fields::new(body).message() == "early";
    rest.iter().filter(is_notice).count()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ask(out: &mut Vec<u8>, sql: &str, is_extended: bool) {
    if !is_extended {
        return encode::query(out, sql.as_bytes());
    }
    encode::parse(out, b"", sql.as_bytes(), &[]);
    encode::bind(out, b"", b"", &[], Format::Text);
    encode::execute(out, b"", 0);
    encode::sync(out);
}

fn simple(raw: &mut Raw, sql: &str) {
    let told = raw.exchange(|out| encode::query(out, sql.as_bytes()));
    let error = told.iter().find(|(tag, _)| *tag == tag::ERROR_RESPONSE);
    assert!(error.is_none(), "{sql}: {}", text(&error.unwrap().1));
}

#[tokio::test]
async fn a_notice_comes_while_its_statement_runs() {
    for (mode, home) in [("session", "auto"), ("transaction", "replica-2")] {
        let mut cluster = Cluster::start_as(2, &[], &["--pool-mode", mode]).await;
        run(&cluster.client().await, SCHEMA).await;
        let lock = Lock::new(&cluster).await;
        let mut raw = Raw::connect(cluster.port);
        simple(&mut raw, &format!("set onecopy.home = '{home}'"));
        let mut number = 100;
        // DO runs at the anchor alone.
        for statement in WAIT.into_iter().filter(|sql| home == "auto" || !sql.starts_with("do ")) {
            for (is_extended, is_open) in [(false, false), (true, false), (false, true), (true, true)] {
                number += 1;
                let sql = statement.replace('%', &number.to_string());
                let what = format!("{mode}, {home}, extended {is_extended}, open {is_open}: {sql}");
                if is_open {
                    simple(&mut raw, "begin; update t set v = v + 1 where k = 2");
                }
                lock.take().await;
                raw.send(|out| ask(out, &sql, is_extended));
                hear(&mut raw, &what);
                lock.release().await;
                let more = if sql.contains("k < 4") { 2 } else { 0 };
                assert_eq!(hear_rest(&mut raw, &what), more, "{what}");
                if is_open {
                    simple(&mut raw, "commit");
                }
            }
        }
        before_another_statement(&cluster, &lock).await;
        at_the_end_of_a_transaction(&cluster, &lock).await;
        between_data_of_a_copy(&cluster);
        once_though_the_statement_runs_again(&cluster, &lock).await;
        cluster.verify().await;
        cluster.stop().await;
    }
}

/// The statement that raised it has ended, and the next one waits: at a server, or for another home.
async fn before_another_statement(cluster: &Cluster, lock: &Lock) {
    let mut raw = Raw::connect(cluster.port);
    simple(&mut raw, "set onecopy.home = 'replica-2'");
    let what = "the second one waits";
    lock.take().await;
    raw.send(|out| ask(out, "select quick(); select count(*) from blocked", false));
    hear(&mut raw, what);
    lock.release().await;
    hear_rest(&mut raw, what);

    let mut holder = Raw::connect(cluster.port);
    simple(&mut holder, "set onecopy.home = 'replica-1'");
    for is_extended in [false, true] {
        simple(&mut holder, "begin; update t set v = v + 1 where k = 3");
        let (first, second) = ("select quick()", "update t set v = v + 1 where k = 3");
        raw.send(|out| {
            if is_extended {
                ask(out, "begin", true);
                ask(out, first, true);
                ask(out, second, true);
            } else {
                ask(out, &format!("begin; {first}; {second}"), false);
            }
        });
        if is_extended {
            raw.skip_to_ready();
        }
        hear(&mut raw, "the second one waits for another home");
        simple(&mut holder, "commit");
        while raw.next().0 != tag::READY_FOR_QUERY {}
        if is_extended {
            raw.skip_to_ready();
        }
        simple(&mut raw, "commit");
    }
}

async fn at_the_end_of_a_transaction(cluster: &Cluster, lock: &Lock) {
    let mut raw = Raw::connect(cluster.port);
    for (number, sql) in
        ["insert into deferring values (%)", "begin; insert into deferring values (%); commit"]
            .into_iter()
            .enumerate()
    {
        lock.take().await;
        raw.send(|out| ask(out, &sql.replace('%', &number.to_string()), false));
        hear(&mut raw, sql);
        lock.release().await;
        assert_eq!(hear_rest(&mut raw, sql), 0, "{sql}");
    }
}

fn between_data_of_a_copy(cluster: &Cluster) {
    let mut raw = Raw::connect(cluster.port);
    raw.send(|out| encode::query(out, b"copy copied from stdin"));
    assert_eq!(raw.next().0, tag::COPY_IN_RESPONSE);
    // A server reads a good part before it looks at rows.
    let rows = (0..20_000).fold(String::new(), |rows, k| rows + &k.to_string() + "\n");
    raw.send(|out| encode::copy_data(out, rows.as_bytes()));
    hear(&mut raw, "the client has more data");
    let mut sender = raw.sender();
    sender.send(encode::copy_done);
    assert!(hear_rest(&mut raw, "copy") > 10_000);
}

/// The server's process is ended, so the statement runs again.
async fn once_though_the_statement_runs_again(cluster: &Cluster, lock: &Lock) {
    const END: &str = "select pg_terminate_backend(pid) from pg_stat_activity \
        where query like '%warns()%' and state = 'active' and pid <> pg_backend_pid()";
    let admin = cluster.try_client("onecopy").await.unwrap();
    let mut raw = Raw::connect(cluster.port);
    for is_extended in [false, true] {
        for sql in ["select warns()", "update t set v = v + warns() where k = 5"] {
            let before = retried(&admin).await;
            lock.take().await;
            raw.send(|out| ask(out, sql, is_extended));
            hear(&mut raw, sql);
            let mut ended = 0;
            for client in &lock.0 {
                ended += table(client, END).await.len();
            }
            assert_eq!(ended, 1, "{sql}");
            lock.release().await;
            assert_eq!(hear_rest(&mut raw, sql), 0, "the second run raises it again: {sql}");
            assert!(retried(&admin).await > before, "it ran once: {sql}");
        }
    }
    let client = cluster.client().await;
    assert_eq!(value(&client, "select v from t where k = 5").await, "2");
}

async fn retried(admin: &Client) -> u64 {
    let stats = rows(admin, "SHOW STATS").await;
    stats.iter().find(|row| row["name"] == "retried_unseen").unwrap()["value"].parse().unwrap()
}
