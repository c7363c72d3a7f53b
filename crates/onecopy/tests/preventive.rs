//! Promise: under protocol `preventive` replicas perform transactions of other homes, never show other rows than the log says, and
//! a client notices neither that its transaction ran again nor that its home was lost.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::{Cluster, connect, rows, run, value};
use tokio_postgres::error::SqlState;

const SCHEMA: &str = "
create table account (id int primary key, balance int not null default 0);
insert into account select g from generate_series(1, 20) as g;
create table entry (id int primary key, mark uuid, amount int);
create procedure pay(a int, b int) language plpgsql as $$
begin
    update account set balance = balance - 1 where id = a;
    update account set balance = balance + 1 where id = b;
end $$;
create procedure mark(i int) language plpgsql as $$
begin
    insert into entry values (i, gen_random_uuid(), 0);
end $$;
create procedure try_twice(i int) language plpgsql as $$
begin
    begin
        insert into entry values (i, null, 1);
        insert into entry values (i, null, 2);
    exception when unique_violation then
        null;
    end;
    insert into entry values (-i, null, 3);
end $$;
create procedure hold(i int) language plpgsql as $$
begin
    update account set balance = balance + 1 where id = i;
    perform pg_sleep(1.5);
end $$;
";

const OTHER_EFFECTS: &str = "
create table numbered (id serial primary key);
create table noted (what text, i int, n bigint, primary key (what, i));
create sequence numbers;
create procedure draw(i int) language plpgsql as $$
begin
    insert into noted values ('draw', i, nextval('numbers'));
end $$;
create procedure ring(i int) language plpgsql as $$
begin
    insert into noted values ('ring', i, 0);
    perform pg_notify('bell', i::text);
end $$;
create procedure lock(i int) language plpgsql as $$
begin
    perform pg_advisory_xact_lock(i);
    insert into noted values ('lock', i, 0);
end $$;
create procedure keep(i int) language plpgsql as $$
begin
    perform set_config('app.number', i::text, false);
    insert into noted values ('keep', i, 0);
end $$;
create table heard (id int primary key);
create function ring() returns trigger language plpgsql as $$
begin
    perform pg_notify('bell', new.id::text);
    return new;
end $$;
create trigger ring after insert on heard for each row execute function ring();
";

const CLERK: &str = "
create schema other;
create table other.diary (id int primary key, day date, note text);
create role clerk login;
grant usage on schema other to clerk;
grant all on other.diary to clerk;
";

const CLIENTS: usize = 6;
const CALLS_EACH: usize = 30;

async fn start(environment: &[(&str, &str)], arguments: &[&str]) -> Cluster {
    let arguments = [&["--protocol", "preventive"], arguments].concat();
    let cluster = Cluster::start_as(3, environment, &arguments).await;
    run(&cluster.client().await, SCHEMA).await;
    cluster.caught_up().await;
    cluster
}

/// The counters of SHOW STATS.
async fn counts(cluster: &Cluster) -> BTreeMap<String, u64> {
    let admin = connect("127.0.0.1", cluster.port, "onecopy").await.unwrap();
    let stats = rows(&admin, "SHOW STATS").await;
    stats.iter().map(|row| (row["name"].clone(), row["value"].parse().unwrap())).collect()
}

/// Waits until all replicas have caught up, and returns by how much counters have grown.
async fn grown<const N: usize>(
    cluster: &Cluster,
    before: &BTreeMap<String, u64>,
    names: [&str; N],
) -> [u64; N] {
    cluster.caught_up().await;
    let after = counts(cluster).await;
    names.map(|name| after[name] - before[name])
}

const OUTCOMES: [&str; 3] = ["performed", "performed_differently", "performers_failed"];

/// What the two other replicas do with transactions of each kind. A performer may always be too slow, so what has to happen is tried
/// until it does.
async fn outcomes_are_right(cluster: &Cluster) {
    let client = cluster.client().await;
    let statements: [(&str, [bool; 3]); 4] = [
        ("update account set balance = balance + 1 where id = NUMBER % 20 + 1", [true, false, false]),
        ("call pay(NUMBER % 20 + 1, (NUMBER + 7) % 20 + 1)", [true, false, false]),
        ("call mark(NUMBER)", [false, true, false]),
        // Rows of an exception block may have been rolled back.
        ("call try_twice(NUMBER)", [false, false, true]),
    ];
    let mut number = 1_000;
    for (statement, happens) in statements {
        let before = counts(cluster).await;
        let mut outcome = [0; 3];
        while outcome.iter().zip(happens).any(|(count, happens)| happens && *count == 0) {
            number += 1;
            run(&client, &statement.replace("NUMBER", &number.to_string())).await;
            outcome = grown(cluster, &before, OUTCOMES).await;
            let is_right = outcome.iter().zip(happens).all(|(count, happens)| happens || *count == 0);
            assert!(is_right, "{statement}: {outcome:?}");
        }
    }
}

/// A performer has the role and the settings of the client, and the parameters of the extended protocol. With other settings it would
/// insert other days, or into no table.
async fn performers_are_like_the_client(cluster: &Cluster) {
    run(&cluster.client().await, CLERK).await;
    cluster.caught_up().await;
    let (client, connection) = tokio_postgres::connect(
        &format!("host=127.0.0.1 port={} user=clerk dbname=postgres", cluster.port),
        tokio_postgres::NoTls,
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    run(&client, "set search_path = other; set datestyle = 'DMY'").await;
    let before = counts(cluster).await;
    let insert = "insert into diary values ($1, '01/02/2026', $2)";
    let mut number = 0;
    let [performed, others @ ..] = loop {
        number += 1;
        client.execute(insert, &[&number, &"note"]).await.unwrap();
        let outcome = grown(cluster, &before, OUTCOMES).await;
        if outcome[0] >= 4 || number == 100 {
            break outcome;
        }
    };
    assert!(performed >= 4 && others == [0, 0], "{performed} performed, {others:?}");
    let seen = cluster.everywhere("select distinct day, note from other.diary").await;
    assert_eq!(seen, [["2026-02-01", "note"]]);
}

/// What does more than change rows is done at its home alone: it draws numbers, notifies, takes advisory locks, keeps settings.
async fn other_effects_happen_once(cluster: &Cluster) {
    run(&cluster.client().await, OTHER_EFFECTS).await;
    let before = counts(cluster).await;
    let statements = [
        "call draw(NUMBER)",
        "call ring(NUMBER)",
        "call lock(NUMBER)",
        "call keep(NUMBER)",
        "insert into heard values (NUMBER)",
        "insert into numbered default values",
    ];
    for number in 1..=5 {
        for statement in statements {
            // A session that has kept something stays at the anchor with all that follows.
            let client = cluster.client().await;
            // The anchor is not the only replica that may draw.
            run(&client, "set onecopy.sequences = 'lent'").await;
            run(&client, &statement.replace("NUMBER", &number.to_string())).await;
        }
    }
    assert_eq!(grown(cluster, &before, OUTCOMES).await, [0; 3]);
    assert_eq!(grown(cluster, &before, ["performers_outrun"]).await, [0]);
}

#[tokio::test]
async fn holders_commit_what_they_have_performed_if_it_is_what_the_log_says() {
    for mode in ["session", "transaction"] {
        let mut cluster = start(&[], &["--pool-mode", mode]).await;
        outcomes_are_right(&cluster).await;
        other_effects_happen_once(&cluster).await;
        performers_are_like_the_client(&cluster).await;
        cluster.verify().await;
        cluster.stop().await;
    }
}

/// Payments between few accounts. Every call succeeds at the first attempt.
async fn pay(port: u16, number: usize, is_block: bool) -> usize {
    let client = connect("127.0.0.1", port, "postgres").await.unwrap();
    let mut failed = 0;
    for n in 0..CALLS_EACH {
        let (from, to) = ((number + n) % 3 + 1, (number * 2 + n + 1) % 3 + 1);
        if is_block {
            let block = format!(
                "begin; update account set balance = balance - 1 where id = {from}; \
                 update account set balance = balance + 1 where id = {to}; commit"
            );
            while let Err(error) = client.batch_execute(&block).await {
                assert_eq!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE), "{error}");
                failed += 1;
                run(&client, "rollback").await;
            }
        } else {
            run(&client, &format!("call pay({from}, {to})")).await;
        }
    }
    failed
}

/// Messages take a while, so transactions start before older ones that conflict have come.
#[tokio::test]
async fn what_is_overtaken_runs_again_unseen() {
    let delayed = [("ONECOPY_TEST_MESSAGE_US", "3000")];
    let mut cluster = start(&delayed, &["--message-max-ms", "30"]).await;
    let before = counts(&cluster).await;
    let names = ["executions_undone", "messages_unordered", "chains_misjudged"];
    loop {
        let tasks: Vec<_> =
            (0..CLIENTS).map(|number| tokio::spawn(pay(cluster.port, number, number == 0))).collect();
        for task in tasks {
            task.await.unwrap();
        }
        let [undone, unordered, misjudged] = grown(&cluster, &before, names).await;
        assert_eq!(misjudged, 0);
        if undone > 0 && unordered > 0 {
            break;
        }
    }
    assert_eq!(cluster.everywhere("select sum(balance) from account").await, [["0"]]);
    cluster.verify().await;
    cluster.stop().await;
}

/// The server where a call runs is killed. The call runs again elsewhere, once.
#[tokio::test]
async fn a_lost_home_is_not_noticed() {
    let mut cluster = start(&[], &["--health-deadline-ms", "60000"]).await;
    let client = cluster.client().await;
    let call = tokio::spawn(async move { client.batch_execute("call hold(1)").await });
    let admin = connect("127.0.0.1", cluster.port, "onecopy").await.unwrap();
    let home = loop {
        let open = rows(&admin, "SHOW TRANSACTIONS").await;
        if let Some(call) = open.iter().find(|row| row["state"] == "open") {
            break call["home"].clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let replicas = cluster.replicas().await;
    let home = replicas.iter().find(|replica| replica.name == home).unwrap();
    // The statement is sent soon after the transaction is open.
    let direct = cluster.direct(home).await;
    let running = "select count(*) from pg_stat_activity where query = 'call hold(1)' and state = 'active'";
    while value(&direct, running).await == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    cluster.kill_server(home, true);
    call.await.unwrap().unwrap();
    cluster.caught_up().await;
    assert_eq!(cluster.everywhere("select balance from account where id = 1").await, [["1"]]);
    cluster.verify().await;
    cluster.stop().await;
}
