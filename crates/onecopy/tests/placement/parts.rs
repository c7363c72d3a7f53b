//! Tables that are split by the value of a column: each row is where its part is held, answers come from there, and parts move while
//! clients go on.

use std::time::Duration;

use tokio_postgres::Client;

use crate::cluster::{Cluster, run, table, value};
use crate::{admin, plant, refused};

const SITES: i32 = 40;
const PARTS: &str = "PLACE PARTS 16 COPIES 1";

const SCHEMA: &str = "
create table site (s int primary key, n int not null default 0);
create table unit (s int references site on delete cascade, u text, n int not null default 0, primary key (s, u));
create table kind (k int primary key, n int not null default 0);
insert into site select g from generate_series(1, 40) g;
insert into unit select s, 'u' || u from generate_series(1, 40) s, generate_series(1, 5) u;
insert into kind select g from generate_series(1, 10) g";

/// Replica-1 holds everything. Each part of `site` and `unit` is at one of the others, too.
async fn split() -> Cluster {
    let cluster = Cluster::start(4).await;
    run(&cluster.client().await, SCHEMA).await;
    cluster.caught_up().await;
    let admin = admin(&cluster).await;
    run(&admin, PARTS).await;
    run(&admin, "PLACE TABLE site BY s").await;
    cluster
}

/// The rows of a table at each replica's own server.
async fn counts(cluster: &Cluster, of: &str) -> Vec<u32> {
    let mut counts = Vec::new();
    for replica in cluster.caught_up().await {
        let count = value(&cluster.direct(&replica).await, &format!("select count(*) from {of}")).await;
        counts.push(count.parse().unwrap());
    }
    counts
}

/// Every row is at replica-1, and once elsewhere, where its part is.
async fn check_spread(cluster: &Cluster) {
    for of in ["site", "unit"] {
        let counts = counts(cluster, of).await;
        assert_eq!(counts[0], counts[1..].iter().sum::<u32>(), "{of}: {counts:?}");
        assert!(counts[1..].iter().all(|count| *count > 0 && *count < counts[0]), "{of}: {counts:?}");
    }
    cluster.verify().await;
}

#[tokio::test]
async fn rows_are_where_their_part_is_and_answers_come_from_there() {
    let mut cluster = split().await;
    check_spread(&cluster).await;
    let shown = table(&admin(&cluster).await, "SHOW PLACEMENT").await;
    assert!(shown.iter().any(|row| row[0].starts_with("\"public\".\"unit\" by \"s\", parts ")), "{shown:?}");
    assert_eq!(shown[shown.len() - 2], ["(every table)", "replica-1"]);
    let client = cluster.client().await;
    let told =
        table(&client, "explain (routing) update unit set n = 1 where s = 3 and u = 'u1'").await.concat();
    assert!(told.iter().any(|line| line.starts_with("parts ")), "{told:?}");
    assert!(told.iter().any(|line| line.starts_with("held by     replica-1, replica-")), "{told:?}");
    assert!(told.iter().any(|line| line.starts_with("travels to  2 of 4 ")), "{told:?}");
    for site in 1..=SITES {
        run(&client, &format!("update unit set n = n + 1 where s = {site} and u = 'u2'")).await;
        run(&client, &format!("begin; update site set n = n + 1 where s = {site}; delete from unit where s = {site} and u = 'u5'; commit")).await;
        let asked = format!(
            "select sum(unit.n) || ' ' || count(*) || ' ' || max(site.n) from unit join site using (s) where s = {site}"
        );
        assert_eq!(value(&client, &asked).await, "1 4 1");
    }
    // What concerns several parts, or any.
    assert_eq!(value(&client, "select sum(n) || ' ' || count(*) from unit").await, "40 160");
    assert_eq!(value(&client, "select count(*) from unit where s in (1, 2, 3)").await, "12");
    run(&client, "update unit set n = n + 1 where u = 'u1'; insert into site values (41), (42); insert into unit values (41, 'a'), (42, 'b'), (1, 'c')").await;
    run(&client, "delete from site where s = 40").await;
    assert_eq!(value(&client, "select count(*) from unit where s = 40").await, "0", "the cascade");
    // Rows that move to other parts.
    run(
        &client,
        "update unit set s = s + 1, u = 'm' where u = 'u3' and s < 39; update unit set s = 1 where s = 42",
    )
    .await;
    assert_eq!(value(&client, "select count(*) || ' ' || sum(s) from unit where u = 'm'").await, "38 779");
    let error = client.simple_query("insert into unit values (77, 'x')").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "23503");
    check_spread(&cluster).await;
    let worked = cluster.replicas().await;
    assert!(worked.iter().all(|replica| replica.writes > 0), "each replica was a home: {worked:#?}");
    run(&client, "truncate unit").await;
    assert_eq!(counts(&cluster, "unit").await, [0; 4]);
    cluster.stop().await;
}

/// Adds to rows of a few sites until the time is over. Returns how often.
async fn add(client: Client, first: i32, during: Duration) -> u64 {
    let (begun, mut added, mut site) = (std::time::Instant::now(), 0, first);
    while begun.elapsed() < during {
        site = 1 + (site + 6) % SITES;
        let before = value(&client, &format!("select sum(n) from unit where s = {site}")).await;
        let sql = format!(
            "begin; update unit set n = n + 1 where s = {site} and u = 'u1'; update site set n = n + 1 where s = {site}; commit"
        );
        match client.batch_execute(&sql).await {
            Ok(()) => added += 1,
            Err(error) => {
                let code = error.code().map(|code| code.code().to_owned()).unwrap_or_default();
                assert!(matches!(code.as_str(), "40001" | "40P01"), "{error}");
                let _ = client.batch_execute("rollback").await;
            }
        }
        let after = value(&client, &format!("select sum(n) from unit where s = {site}")).await;
        assert!(
            after.parse::<u64>().unwrap() >= before.parse::<u64>().unwrap(),
            "site {site}: {before}, {after}"
        );
    }
    added
}

#[tokio::test]
async fn parts_move_and_servers_are_lost_while_clients_go_on() {
    let mut cluster = split().await;
    let mut tasks = Vec::new();
    for first in 0..4 {
        tasks.push(tokio::spawn(add(cluster.client().await, first, Duration::from_secs(12))));
    }
    let admin_client = admin(&cluster).await;
    run(&admin_client, "PLACE PARTS 16 COPIES 2").await;
    let servers = cluster.replicas().await;
    for server in &servers[1..3] {
        cluster.crash_server(server).await;
        cluster.caught_up().await;
    }
    run(&admin_client, "PLACE PARTS 16 COPIES 1 ON replica-3, replica-4").await;
    run(&admin_client, "PLACE TABLE site, unit EVERYWHERE").await;
    assert_eq!(table(&admin_client, "SHOW PLACEMENT").await.len(), 2, "nothing is split any more");
    run(&admin_client, PARTS).await;
    run(&admin_client, "PLACE TABLE site BY s").await;
    let mut added = 0;
    for task in tasks {
        added += task.await.unwrap();
    }
    let client = cluster.client().await;
    for of in ["site", "unit"] {
        assert_eq!(value(&client, &format!("select sum(n) from {of}")).await, added.to_string(), "{of}");
    }
    check_spread(&cluster).await;
    let shown = table(&admin(&cluster).await, "SHOW PLACEMENT").await;
    cluster.kill_everything().await;
    cluster.up_again().await;
    assert_eq!(table(&admin(&cluster).await, "SHOW PLACEMENT").await, shown);
    run(&cluster.client().await, "update unit set n = n + 1 where s = 7 and u = 'u1'").await;
    run(&admin(&cluster).await, "REBUILD REPLICA replica-2").await;
    check_spread(&cluster).await;
    cluster.stop().await;
}

#[tokio::test]
async fn what_cannot_be_split_is_refused_and_schema_changes_keep_what_a_split_needs() {
    let mut cluster = Cluster::start(2).await;
    let (client, admin) = (cluster.client().await, admin(&cluster).await);
    run(&client, SCHEMA).await;
    run(&client, "create table price (s int, p numeric, k int unique, primary key (s, p, k))").await;
    cluster.caught_up().await;
    for (command, sqlstate, words) in [
        ("PLACE TABLE site BY s", "55000", "there are no parts yet"),
        ("PLACE PARTS 65 COPIES 1", "22023", "65 parts are not possible"),
        (
            "PLACE PARTS 8 COPIES 1 ON replica-1, replica-2",
            "55000",
            "no replica that serves would hold every table",
        ),
        ("PLACE PARTS 8", "42601", "the number of parts or of copies is missing"),
    ] {
        refused(&admin, command, sqlstate, words).await;
    }
    run(&admin, "PLACE PARTS 8 COPIES 1").await;
    for (command, sqlstate, words) in [
        (
            "PLACE TABLE price BY s",
            "0A000",
            "which is not among the columns of its unique index \"price_k_key\"",
        ),
        ("PLACE TABLE price BY p", "0A000", "has no column \"p\" by which it can be split"),
        ("PLACE TABLE site BY n", "0A000", "not among the columns of its unique index \"site_pkey\""),
    ] {
        refused(&admin, command, sqlstate, words).await;
    }
    run(&admin, "PLACE TABLE site BY s").await;
    refused(&admin, "PLACE PARTS 4 COPIES 1", "55000", "is split into 8 parts").await;
    refused(&admin, "PLACE TABLE unit BY u", "55000", "is split already").await;
    for (change, words) in [
        ("alter table unit rename s to t", "has no column \"s\""),
        ("alter table unit drop column s cascade", "has no column \"s\""),
        ("create unique index one on unit (u) where n > 1000", "unique index \"one\""),
        ("alter table unit drop constraint unit_s_fkey, alter s type numeric", "has no column \"s\""),
        (
            "begin; alter table kind add m int; update unit set n = 1 where s = 1; commit",
            "cannot change rows of",
        ),
    ] {
        let error = client.batch_execute(change).await.expect_err(change);
        let error = error.as_db_error().unwrap_or_else(|| panic!("{change}: {error:?}"));
        assert_eq!(error.code().code(), "0A000", "{change}: {error:?}");
        assert!(error.message().contains(words) && error.hint().is_some(), "{change}: {error:?}");
        client.batch_execute("rollback").await.unwrap();
    }
    // A table that refers to a split one is split like it. Columns may come and go before the one that counts.
    run(
        &client,
        "alter table unit add first int; create table log (s int references site, l int, primary key (s, l))",
    )
    .await;
    run(&client, "insert into log select s, 1 from site; update unit set first = 1 where s = 3").await;
    run(&client, "alter table unit drop n").await;
    run(&client, "update unit set first = 2 where s = 4").await;
    let counted = counts(&cluster, "log").await;
    run(&client, "create table gone (s int primary key)").await;
    cluster.caught_up().await;
    run(&admin, "PLACE TABLE gone BY s").await;
    run(&client, "drop table gone").await;
    cluster.caught_up().await;
    run(&admin, "PLACE PARTS 8 COPIES 2").await;
    assert!(counted[0] == 40 && counted[1] == 40, "two replicas and one copy: {counted:?}");
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_row_in_a_part_that_is_not_held_is_found() {
    let mut cluster = split().await;
    let replicas = cluster.caught_up().await;
    let direct = cluster.direct(&replicas[1]).await;
    let lacking =
        value(&direct, "select g from generate_series(1, 40) g where g not in (select s from site) limit 1")
            .await;
    plant(&direct, &format!("insert into site values ({lacking})")).await;
    let report = table(&admin(&cluster).await, "VERIFY").await;
    let wrong: Vec<_> = report.iter().filter(|row| row[2] != "identical").collect();
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert!(
        wrong[0][0].starts_with("part ") && wrong[0][0].ends_with("of table \"public\".\"site\""),
        "{wrong:?}"
    );
    assert!(wrong[0][2].contains("replica-2"), "{wrong:?}");
    cluster.stop().await;
}
