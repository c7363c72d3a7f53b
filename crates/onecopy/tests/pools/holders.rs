//! Who holds what others wait for does not wait for a connection that they have.

use std::time::Instant;

use crate::cluster::{Cluster, run, table, value};
use crate::{WAIT, pair};

/// A transaction that holds a row needs a second connection, to ask the anchor something, whose only one waits for that
/// row.
pub(crate) async fn a_second_connection(cluster: &Cluster) {
    let (holder, waiter) = pair(cluster).await;
    run(&holder, "set onecopy.home = 'replica-2'").await;
    run(&waiter, "set onecopy.home = 'replica-1'").await;
    for _ in 0..2 {
        run(&holder, "begin; update t set v = v where k = 40").await;
        run(&waiter, "begin; update t set v = v where k = 41").await;
        let asked = Instant::now();
        let ((), ()) = tokio::join!(run(&waiter, "update t set v = v where k = 40"), async {
            until_waiting(cluster).await;
            let known = value(&holder, "select count(*) from pg_class where relname = 'pg_class'").await;
            assert_eq!(known, "1");
            run(&holder, "commit").await;
        });
        assert!(asked.elapsed() < WAIT, "it took {:?}", asked.elapsed());
        run(&waiter, "commit").await;
    }
}

async fn until_waiting(cluster: &Cluster) {
    let admin = cluster.try_client("onecopy").await.unwrap();
    let deadline = Instant::now() + WAIT;
    loop {
        let clients = table(&admin, "show clients").await;
        if clients.iter().any(|row| row.iter().any(|cell| cell == "waiting")) {
            return;
        }
        assert!(Instant::now() < deadline, "nobody waits: {clients:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Many sessions, a hot row, homes at both replicas, one connection each: everybody gets on.
pub(crate) async fn a_hot_row(cluster: &Cluster) {
    const SESSIONS: i32 = 12;
    const EACH: i32 = 6;
    run(
        &cluster.client().await,
        "create table hot (k int primary key, n int); insert into hot values (0, 0)",
    )
    .await;
    let mut working = tokio::task::JoinSet::new();
    for session in 0..SESSIONS {
        let client = cluster.client().await;
        working.spawn(async move {
            let home = ["replica-1", "replica-2", "any"][usize::try_from(session % 3).unwrap()];
            run(&client, &format!("set onecopy.home = '{home}'")).await;
            for round in 0..EACH {
                let own = format!("update t set v = v where k = {}", session + 1);
                let hot = "update hot set n = n + 1 where k = 0";
                match (session + round) % 3 {
                    0 => run(&client, hot).await,
                    1 => {
                        // The hot row is asked for with a connection, or before there is one.
                        for step in ["begin", own.as_str(), hot, "commit"] {
                            run(&client, step).await;
                        }
                    }
                    _ => {
                        let asks = "select count(*) from pg_class where relname = 'hot'";
                        for step in ["begin", hot, asks, own.as_str(), "commit"] {
                            run(&client, step).await;
                        }
                    }
                }
            }
        });
    }
    while let Some(done) = working.join_next().await {
        done.unwrap();
    }
    let counted = value(&cluster.client().await, "select n from hot").await;
    assert_eq!(counted, (SESSIONS * EACH).to_string());
}
