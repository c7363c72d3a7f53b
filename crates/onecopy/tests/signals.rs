//! Promise: `pg_backend_pid`, `pg_terminate_backend` and `pg_cancel_backend` refer to sessions of Onecopy, wherever their
//! statements run. They require PostgreSQL's rights and never hit another session.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::{Duration, Instant};

use cluster::raw::Raw;
use cluster::{Cluster, run, value};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, NoTls};
use wire::backend::{Fields, tag};

const WITHIN: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(10);

/// A client whose end is watched.
struct Victim {
    client: Client,
    end: JoinHandle<Result<(), Error>>,
    number: String,
}

impl Victim {
    async fn new(cluster: &Cluster, role: &str) -> Self {
        let settings = format!(
            "host=127.0.0.1 port={} user={role} dbname=postgres application_name=victim connect_timeout=10",
            cluster.port
        );
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
        let end = tokio::spawn(connection);
        let number = value(&client, "select pg_backend_pid()").await;
        Self { client, end, number }
    }

    async fn ends(self, what: &str) {
        let end = tokio::time::timeout(WITHIN, self.end).await;
        let error = end.unwrap_or_else(|_| panic!("it lives on: {what}")).unwrap().expect_err(what);
        assert_eq!(code(&error), "57P01", "{what}: {error:?}");
    }
}

fn code(error: &Error) -> &str {
    error.code().map_or("closed", |code| code.code())
}

async fn refused(client: &Client, sql: &str) -> String {
    code(&client.simple_query(sql).await.expect_err(sql)).to_owned()
}

/// `pg_backend_pid` returns the process id of the start-up messages at every replica.
fn own_number(cluster: &Cluster) {
    let (mut raw, told) = Raw::connect_as(cluster.port, &[("user", "postgres"), ("database", "postgres")]);
    let (_, key) = told.iter().find(|(tag, _)| *tag == tag::BACKEND_KEY_DATA).unwrap();
    let number = i32::from_be_bytes(key[..4].try_into().unwrap()).to_string();
    for sql in ["select pg_backend_pid()", "select pg_catalog.pg_backend_pid() from plain where id = 1"] {
        for _ in 0..6 {
            let told = raw.exchange(|out| wire::encode::query(out, sql.as_bytes()));
            let column = &told.iter().find(|(tag, _)| *tag == tag::ROW_DESCRIPTION).unwrap().1;
            assert!(column[2..].starts_with(b"pg_backend_pid\0"), "{column:?}");
            let row = &told.iter().find(|(tag, _)| *tag == tag::DATA_ROW).unwrap().1;
            assert_eq!(row[6..], *number.as_bytes(), "{sql}");
        }
    }
    // Unknown ones.
    for sql in ["select pg_terminate_backend(1073741823)", "select pg_cancel_backend(2147483647)"] {
        let told = raw.exchange(|out| wire::encode::query(out, sql.as_bytes()));
        let notice = told.iter().find(|(tag, _)| *tag == tag::NOTICE_RESPONSE).map(|(_, body)| body);
        let fields = Fields::new(notice.unwrap_or_else(|| panic!("no warning: {told:?}")));
        assert_eq!(fields.get(b'V'), Some(&b"WARNING"[..]), "{sql}");
        let row = &told.iter().find(|(tag, _)| *tag == tag::DATA_ROW).unwrap().1;
        assert_eq!(row[6..], *b"f", "{sql}");
    }
}

async fn terminated(cluster: &Cluster) {
    let client = cluster.client().await;
    let statement = client.prepare("select pg_terminate_backend($1)").await.unwrap();
    run(&client, "prepare ends(int) as select pg_terminate_backend($1)").await;
    for how in ["a constant", "a parameter", "a transaction", "a process", "waiting for it"] {
        let victim = Victim::new(cluster, "postgres").await;
        let number: i32 = victim.number.parse().unwrap();
        match how {
            "a parameter" => {
                assert!(client.query_one(&statement, &[&number]).await.unwrap().get::<_, bool>(0));
            }
            "a transaction" => {
                run(&client, "begin; insert into plain (v) values (0)").await;
                assert_eq!(value(&client, &format!("select pg_terminate_backend({number})")).await, "t");
                run(&client, "commit").await;
            }
            "a process" | "waiting for it" => {
                run(&victim.client, "begin; insert into plain (v) values (1)").await;
                let more = if how == "a process" { "" } else { ", 60000" };
                let idiom = format!(
                    "select bool_and(pg_terminate_backend(pid{more})) from pg_stat_activity
                     where pid <> pg_backend_pid() and application_name = 'victim' and state like 'idle in%'"
                );
                assert_eq!(value(&client, &idiom).await, "t");
            }
            _ => assert_eq!(value(&client, &format!("select pg_terminate_backend({number})")).await, "t"),
        }
        victim.ends(how).await;
    }
    for own in ["pg_backend_pid()", "pg_backend_pid(), 1000"] {
        let victim = Victim::new(cluster, "postgres").await;
        let told = refused(&victim.client, &format!("select pg_terminate_backend({own})")).await;
        assert_eq!(told, "57P01");
        drop(tokio::time::timeout(WITHIN, victim.end).await.expect("its connection ends, too"));
    }
    // All of them, as before DROP DATABASE; the cluster's own connections are left alone.
    let victims = [Victim::new(cluster, "postgres").await, Victim::new(cluster, "joe").await];
    for victim in &victims {
        run(&victim.client, "begin; insert into plain (v) values (1)").await;
    }
    run(
        &client,
        "select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid()",
    )
    .await;
    for victim in victims {
        victim.ends("all of them").await;
    }
    run(&client, "insert into plain (v) values (2)").await;
    let replicas = cluster.replicas().await;
    assert!(replicas.iter().all(|replica| replica.state == "up"), "{replicas:?}");
}

async fn cancelled(cluster: &Cluster) {
    const SLOW: &str = "select pg_sleep(600), 'slow'";
    let client = cluster.client().await;
    let statement = client.prepare("select pg_cancel_backend($1)").await.unwrap();
    for by_process in [false, true] {
        let victim = Victim::new(cluster, "postgres").await;
        let number: i32 = victim.number.parse().unwrap();
        run(&victim.client, "begin; lock table plain").await;
        let Victim { client: victim, .. } = victim;
        let told = tokio::spawn(async move { (victim.simple_query(SLOW).await.map(|_| ()), victim) });
        let deadline = Instant::now() + WITHIN;
        while !told.is_finished() {
            // It may not run yet.
            if by_process {
                let running = "select pg_cancel_backend(pid) from pg_stat_activity
                     where pid <> pg_backend_pid() and query like 'select pg_sleep(600)%'";
                run(&client, running).await;
            } else {
                assert!(client.query_one(&statement, &[&number]).await.unwrap().get::<_, bool>(0));
            }
            assert!(Instant::now() < deadline, "it runs on");
            tokio::time::sleep(LOOK).await;
        }
        let (told, victim) = told.await.unwrap();
        assert_eq!(code(&told.unwrap_err()), "57014");
        run(&victim, "rollback").await;
        assert_eq!(value(&victim, "select 1").await, "1");
    }
    let own = [
        "select pg_cancel_backend(pg_backend_pid())",
        "select pg_cancel_backend(pid) from pg_stat_activity where pid = pg_backend_pid()",
    ];
    for sql in own {
        assert_eq!(refused(&client, sql).await, "57014", "{sql}");
    }
    assert_eq!(value(&client, "select 1").await, "1");
}

async fn rights(cluster: &Cluster) {
    let root = Victim::new(cluster, "postgres").await;
    run(&root.client, "begin; insert into plain (v) values (1)").await;
    let process = "(select pid from pg_stat_activity where application_name = 'victim' and usename = 'postgres' limit 1)";
    for role in ["joe", "guard"] {
        let by = Victim::new(cluster, role).await;
        for function in ["pg_terminate_backend", "pg_cancel_backend"] {
            for target in [root.number.as_str(), process] {
                assert_eq!(
                    refused(&by.client, &format!("select {function}({target})")).await,
                    "42501",
                    "{role}"
                );
            }
        }
        let mine = Victim::new(cluster, "joe").await;
        run(&by.client, &format!("select pg_terminate_backend({})", mine.number)).await;
        mine.ends("of a role that may").await;
    }
    let (joe, other) = (Victim::new(cluster, "joe").await, Victim::new(cluster, "other").await);
    assert_eq!(
        refused(&other.client, &format!("select pg_terminate_backend({})", joe.number)).await,
        "42501"
    );
    // A client cannot end a session with a forged message, or with a false claim to own the session.
    let number = &root.number;
    for forged in [
        format!("do $$ begin raise info 'terminate|{number}|postgres' using errcode = 'OC002'; end $$"),
        format!("do $$ begin raise info 'terminate|{number}|other' using errcode = 'OC002'; end $$"),
        format!(
            "do $$ begin perform set_config('onecopy.sessions', '{{\"{number}\": \"other\"}}', false);
             perform onecopy.signal_session({number}, 'terminate'); end $$"
        ),
    ] {
        let _ = other.client.simple_query(&forged).await;
    }
    run(&root.client, "commit").await;
    run(&joe.client, "select 1").await;
}

async fn all(pool_mode: &str) {
    let mut cluster = Cluster::start_as(2, &[], &["--pool-mode", pool_mode]).await;
    run(
        &cluster.client().await,
        "create table plain (id serial primary key, v int); insert into plain (v) values (0);
         create role joe login; create role other login; create role guard login; grant pg_signal_backend to guard;
         grant all on plain, plain_id_seq to joe",
    )
    .await;
    // A regression: roles and databases with different numbers of settings could not log in.
    for alter in
        ["database postgres set app.a = 1", "database postgres set app.b = 1", "role joe set app.c = 1"]
    {
        run(&cluster.client().await, &format!("alter {alter}")).await;
    }
    own_number(&cluster);
    terminated(&cluster).await;
    cancelled(&cluster).await;
    rights(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn processes_are_sessions() {
    all("session").await;
}

#[tokio::test]
async fn processes_are_sessions_where_connections_are_shared() {
    all("transaction").await;
}
