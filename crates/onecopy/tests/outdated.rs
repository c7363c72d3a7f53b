//! Promise: a statement that runs right after a schema change is replicated completely, though Onecopy analysed it with an
//! older catalogue. A deferred check sees the changes that other homes have acknowledged before.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::{Cluster, run, value};
use tokio_postgres::error::SqlState;

#[tokio::test]
async fn nothing_is_missed_while_the_catalogue_is_read() {
    let mut cluster = Cluster::start_with(2, &[("ONECOPY_TEST_SLOW_REFRESH_MS", "700")]).await;
    let client = cluster.client().await;
    run(
        &client,
        "create table t (k int primary key); create table l (k int);
         create function f() returns trigger language plpgsql as $$ begin insert into public.l values (new.k); return null; end $$",
    )
    .await;
    // Reads wait for the catalogue, so here it is known.
    assert_eq!(value(&client, "select count(*) from l").await, "0");
    // Sessions of which nothing is suspected.
    let (one, other) = (cluster.client().await, cluster.client().await);
    run(&one, "insert into t values (-1)").await;
    run(&other, "insert into t values (-2)").await;
    // Its trigger writes inside COMMIT, unless it is told to do so before.
    run(
        &client,
        "create constraint trigger f after insert on t deferrable initially deferred for each row execute function f()",
    )
    .await;
    run(&one, "insert into t values (1)").await;
    for statement in ["begin", "insert into t values (2)", "commit"] {
        run(&other, statement).await;
    }
    assert_eq!(cluster.everywhere("select k from l order by k").await, [["1"], ["2"]]);
    deferred_checks_are_fresh(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// A transaction releases a unique value and commits. Another one has taken the value at another home meanwhile, with a check
/// at COMMIT: it does not get an error about a duplicate. It fails with 40001 instead, see docs/explanation/isolation.md.
async fn deferred_checks_are_fresh(cluster: &Cluster) {
    let (a, b) = (cluster.client().await, cluster.client().await);
    run(&a, "set onecopy.home = 'replica-2'").await;
    run(&b, "set onecopy.home = 'replica-1'").await;
    run(
        &b,
        "create table d (k int primary key, u int unique deferrable initially deferred); insert into d values (1, 1)",
    )
    .await;
    run(&a, "begin; insert into d values (8, 1)").await;
    run(&b, "update d set u = 2 where k = 1").await;
    if let Err(error) = a.batch_execute("commit").await {
        assert_eq!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE), "{error:?}");
    }
}
