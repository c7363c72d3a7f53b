//! Transactions of many rows or statements, and rows whose keys Onecopy cannot predict.

use std::sync::Arc;

use crate::cluster::script::{ask, open, sqlstate, within};
use crate::cluster::{self, Cluster, run};
use crate::scenarios::TABLES;
use crate::{WAITS_FOR, admin_of, at, holder, waits};

/// Rows in a spill file conflict as others do. Onecopy cannot predict their keys, so the transaction waits for the whole table.
pub(crate) async fn large_transactions(cluster: &Cluster) {
    const FILL: &str = "insert into q select n, n from generate_series(1001, 3000) n";
    let a = holder(cluster, 2).await;
    let (b, c) = (at(cluster, 3).await, at(cluster, 1).await);
    run(&a, FILL).await;
    let admin = admin_of(cluster).await;
    let shown = cluster::rows(&admin, "SHOW TRANSACTIONS").await;
    assert!(shown.iter().any(|row| row["spilled_bytes"] != "0"), "{shown:?}");
    let waiting = waits(&b, "insert into q values (2000, 0)").await;
    run(&a, "rollback").await;
    assert_eq!(within(waiting).await, "done 1");
    let doubled = within(ask(&a, FILL.to_owned())).await;
    assert_eq!(sqlstate(&doubled), Some("23505"), "{doubled}");
    run(&b, "delete from q where k = 2000").await;
    run(&b, "begin; insert into q values (2000, 0)").await;
    let waiting = waits(&a, FILL).await;
    run(&b, "rollback").await;
    assert_eq!(within(waiting).await, "done 2000");
    run(&b, "begin; update q set v = v + 1 where k > 1000").await;
    let waiting = waits(&c, "update q set v = 0 where k = 1500").await;
    run(&b, "rollback").await;
    assert_eq!(within(waiting).await, "done 1");
    assert_eq!(
        cluster.everywhere("select count(*), sum(v) from q where k > 1000").await,
        [["2000", "3999500"]]
    );
}

/// A transaction of many statements does not fail because others write other rows of the table.
pub(crate) async fn long_transactions(cluster: &Cluster) {
    run(&cluster.client().await, TABLES.before).await;
    let (a, b) = (at(cluster, 2).await, at(cluster, 3).await);
    run(&a, "begin").await;
    for _ in 0..70 {
        run(&a, "update q set v = v + 1 where k = 2").await;
    }
    run(&b, "update q set v = v + 1 where k = 1").await;
    run(&a, "update q set v = v + 1 where k = 1; commit").await;
    let rows = |from: usize| (from..from + 60).map(|k| format!("({k}, 0)")).collect::<Vec<_>>().join(", ");
    run(&a, "begin").await;
    for n in 0..5 {
        run(&a, &format!("insert into q values {}", rows(1_000 + 60 * n))).await;
    }
    run(&b, "update q set v = v + 1 where k = 1").await;
    for n in 5..18 {
        run(&a, &format!("insert into q values {}", rows(1_000 + 60 * n))).await;
    }
    let waiting = waits(&b, "update q set v = v + 1 where k = 1").await;
    run(&a, "commit").await;
    assert_eq!(within(waiting).await, "done 1");
    let sums = "select count(*), sum(v) from q where k < 3 or k > 999";
    assert_eq!(cluster.everywhere(sums).await, [["1082", "104"]]);
}

/// Rows with keys from a sequence are new, so their statement asks for none; thousands of them count as their table. Others
/// with rows of their own there do not lose against that.
pub(crate) async fn many_new_rows(cluster: &Cluster) {
    const MANY: &str = "insert into drawn (v) select 1 from generate_series(1, 1500)";
    const ONE: &str = "insert into drawn (v) values (2)";
    run(&cluster.client().await, "create table drawn (id uuid primary key default gen_random_uuid(), v int)")
        .await;
    let (a, b, c) = (at(cluster, 2).await, at(cluster, 3).await, at(cluster, 1).await);
    for (before, last) in [(MANY, "commit"), ("select 1", MANY)] {
        run(&b, &format!("begin; {ONE}")).await;
        if last == "commit" {
            run(&a, "begin").await;
        }
        run(&a, before).await;
        let waiting = waits(&a, last).await;
        let next = waits(&c, ONE).await;
        run(&b, &format!("{ONE}; commit")).await;
        assert!(within(waiting).await.starts_with("done"), "{before}; {last}");
        assert_eq!(within(next).await, "done 1");
    }
    assert_eq!(
        cluster.everywhere("select v, count(*) from drawn group by v order by v").await,
        [["1", "3000"], ["2", "6"]]
    );
    run(&c, "drop table drawn").await;
}

/// The client sends the data of a COPY only once, so the COPY waits before it begins.
pub(crate) async fn copies_wait(cluster: &Cluster) {
    run(&cluster.client().await, TABLES.before).await;
    let (a, b) = (at(cluster, 2).await, at(cluster, 3).await);
    for (end, code) in [("rollback", None), ("commit", Some("23505"))] {
        run(&a, "delete from q where k > 5; begin; insert into q values (8, 0)").await;
        let copier = Arc::clone(&b);
        let copy = tokio::spawn(async move {
            let sink = copier.copy_in::<_, bytes::Bytes>("copy q from stdin").await?;
            tokio::pin!(sink);
            futures_util::SinkExt::send(&mut sink, bytes::Bytes::from_static(b"7\t1\n8\t1\n")).await?;
            sink.finish().await
        });
        tokio::time::sleep(WAITS_FOR).await;
        assert!(!copy.is_finished());
        run(&a, end).await;
        let copied = copy.await.unwrap();
        let error = copied.err().and_then(|error| Some(error.as_db_error()?.code().code().to_owned()));
        assert_eq!(error.as_deref(), code, "{end}");
    }
}

/// Many sessions write rows with unpredictable keys at once: some find a key taken, none gets a serialization failure.
pub(crate) async fn surprises(cluster: &Cluster) {
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 12;
    run(&cluster.client().await, TABLES.before).await;
    let work = (0..CLIENTS).map(|n| {
        let port = cluster.port;
        tokio::spawn(async move {
            let client = open(port).await;
            run(&client, &format!("set onecopy.home = 'replica-{}'", n % 3 + 1)).await;
            let (mut done, mut others) = (0, Vec::new());
            for round in 0..ROUNDS {
                let from = 10 + (n * 5 + round * 3) % 8;
                let upsert = "on conflict (k) do update set v = q.v + 1";
                let end = if round % 4 == 3 { "rollback" } else { "commit" };
                for statement in [
                    "begin".to_owned(),
                    format!(
                        "insert into q select n, 0 from generate_series({from}, {}) n {upsert}",
                        from + 2
                    ),
                    format!("update p set u = u + {} where k = 3", 1 + n),
                    format!(
                        "insert into q select k + {}, 0 from q where k > {from} and k < 99 order by k",
                        90 + n
                    ),
                    end.to_owned(),
                ] {
                    let answer = ask(&client, statement).await.unwrap();
                    match sqlstate(&answer) {
                        None => done += usize::from(answer.starts_with("done")),
                        Some("23505") => _ = ask(&client, "rollback".to_owned()).await.unwrap(),
                        Some(_) => others.push(answer),
                    }
                }
            }
            (done, others)
        })
    });
    let (mut all, mut wrong) = (0, Vec::new());
    for client in work.collect::<Vec<_>>() {
        let (done, others) = client.await.unwrap();
        all += done;
        wrong.extend(others);
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(all > CLIENTS * ROUNDS * 2, "{all}");
}
