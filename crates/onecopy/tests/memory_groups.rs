//! Promise: under protocol `tashkent+`, kinds of statements whose tables do not fit together into the memory of one server
//! run at different servers, and all servers stay identical.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cluster::{Cluster, run, value};
use tokio_postgres::Client;

/// Each table is larger than 2 MB.
const SCHEMA: &str = "
create table one (k int primary key, n int not null, filling text not null);
create table other (k int primary key, n int not null, filling text not null);
insert into one select k, 0, repeat('x', 1000) from generate_series(1, 2000) k;
insert into other select k, 0, repeat('x', 1000) from generate_series(1, 2000) k;
create procedure bump(key int) language plpgsql as $$
begin
    update one set n = n + 1 where k = key;
end $$;
";

/// Statements of each kind, one after another.
const STATEMENTS: i32 = 10;

/// The sizes of tables are asked for once a server is up, and replicas move once a second.
const APART_WITHIN: Duration = Duration::from_mins(1);

/// How often the kinds run apart after that.
const ROUNDS: usize = 5;

/// What one side does with a key.
type Work = fn(i32) -> String;

/// The servers where each of the two sides ran. The sides take turns: a session stays at its last server unless it has a reason
/// to leave. Each key is another one, so statements differ in a constant.
async fn servers_of_both(cluster: &Cluster, client: &Client, sides: [&[Work]; 2]) -> [BTreeSet<String>; 2] {
    let mut ran = [BTreeSet::new(), BTreeSet::new()];
    let mut before = cluster.replicas().await;
    for key in 1..=STATEMENTS {
        for (one, other) in sides[0].iter().zip(sides[1]) {
            for (statement, ran) in [one, other].into_iter().zip(&mut ran) {
                run(client, &statement(key)).await;
                let after = cluster.replicas().await;
                let pairs = before.iter().zip(&after);
                let counted = pairs
                    .filter(|(before, after)| (before.reads, before.writes) != (after.reads, after.writes));
                ran.extend(counted.map(|(_, after)| after.name.clone()));
                before = after;
            }
        }
    }
    ran
}

async fn run_apart(memory: &str, one: &[Work], other: &[Work]) {
    let mut cluster = Cluster::start_as(2, &[], &["--protocol", "tashkent+", "--memory", memory]).await;
    run(&cluster.client().await, SCHEMA).await;
    cluster.caught_up().await;
    // The sizes are asked for again, and the statements of the schema are no kinds any more.
    cluster.stop().await;
    cluster.up_again().await;
    let client = cluster.client().await;
    let (began, mut rounds) = (Instant::now(), 0);
    while rounds < ROUNDS {
        let [ones, others] = servers_of_both(&cluster, &client, [one, other]).await;
        if ones.is_disjoint(&others) {
            rounds += 1;
        } else {
            assert_eq!(rounds, 0, "they were apart: {ones:?} {others:?}");
            assert!(began.elapsed() < APART_WITHIN, "{memory}: {ones:?} {others:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    for table in ["one", "other"] {
        let sum = value(&client, &format!("select sum(n) from {table}")).await;
        assert_ne!(sum, "0", "{table}");
    }
    cluster.caught_up().await;
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn reads_and_writes_run_where_their_table_is() {
    run_apart(
        "3MB",
        &[
            |key| format!("update one set n = n + 1 where k = {key}"),
            |key| format!("select n from one where k = {key}"),
        ],
        &[
            |key| format!("update other set n = n + 1 where k = {key}"),
            |key| format!("select n from other where k = {key}"),
        ],
    )
    .await;
}

/// Each kind is larger than the memory, so it has a group of its own. If each CALL were of another kind, there would be
/// more groups than servers, and they would run anywhere.
#[tokio::test]
async fn calls_of_one_procedure_are_of_one_kind() {
    run_apart(
        "1MB",
        &[|key| format!("call bump({key})")],
        &[|key| format!("update other set n = n + 1 where k = {key}")],
    )
    .await;
}
