//! Transactions that lose: deadlocks over two homes, and what their errors say.

use std::sync::Arc;

use tokio_postgres::Client;

use crate::cluster::script::{Answer, ask, sqlstate, within};
use crate::cluster::{Cluster, run, table};
use crate::scenarios::TABLES;
use crate::{at, waits};

/// Rings of waits through two homes, and through a home and its server's own locks: one gives way, at once.
pub(crate) async fn deadlocks(cluster: &Cluster) {
    let add = |k: usize| format!("update q set v = v + 1 where k = {k}");
    for homes in [[2, 3, 2], [2, 2, 3], [1, 3, 2]] {
        run(&cluster.client().await, TABLES.before).await;
        let clients = [at(cluster, homes[0]).await, at(cluster, homes[1]).await, at(cluster, homes[2]).await];
        for (n, client) in clients.iter().enumerate() {
            run(client, &format!("begin; {}", add(n + 1))).await;
        }
        let finish = |(n, client): (usize, &Arc<Client>)| {
            let (client, answer) = (Arc::clone(client), ask(client, add((n + 1) % 3 + 1)));
            // The commit releases the transaction that waits for this one.
            tokio::spawn(async move {
                let answer = answer.await.unwrap();
                run(&client, "commit").await;
                answer
            })
        };
        let answers: Vec<Answer> = clients.iter().enumerate().map(finish).collect();
        let mut lost = 0;
        for answer in answers {
            let answer = within(answer).await;
            lost += usize::from(sqlstate(&answer) == Some("40P01"));
            assert!(answer == "done 1" || sqlstate(&answer) == Some("40P01"), "{homes:?}: {answer}");
        }
        assert_eq!(lost, 1, "{homes:?}");
        let rows = table(&clients[0], "select sum(v) from q").await;
        assert_eq!(rows, [["154"]], "{homes:?}: two of three, twice");
    }
}

/// The SQLSTATE and detail of a statement, or COMMIT, that fails.
async fn loses(client: &Client, statement: &str) -> (String, String) {
    let error = client.batch_execute(statement).await.expect_err(statement);
    let error = error.as_db_error().expect("the server has said so");
    run(client, "rollback").await;
    (error.code().code().to_owned(), error.detail().unwrap_or_default().to_owned())
}

/// An error names the key and the session that holds it or won it. If the client has not named the key in its statement, the
/// error names the table.
pub(crate) async fn errors_name_the_key_and_the_rival(cluster: &Cluster) {
    run(&cluster.client().await, TABLES.before).await;
    let (a, b) = (at(cluster, 2).await, at(cluster, 3).await);
    // At SERIALIZABLE, certification: b read what a has written, by a condition that names no key.
    run(&b, "begin isolation level serializable; select v from q where v < 1000").await;
    run(&b, "update q set v = v where k = 3").await;
    run(&a, "update q set v = v + 1 where k = 1").await;
    let (code, detail) = loses(&b, "commit").await;
    assert_eq!(code, "40001", "{detail}");
    assert!(detail.starts_with("Table \"q\" was taken first by "), "{detail}");
    assert!(detail.contains(", with version "), "{detail}");
    // In a kept snapshot the home itself refuses.
    run(&b, "begin isolation level repeatable read; select v from q where k = 3").await;
    run(&a, "update q set v = v + 1 where k = 1").await;
    let (code, detail) = loses(&b, "update q set v = v + 1 where k = 1").await;
    assert_eq!(code, "40001", "{detail}");
    assert!(detail.starts_with("Key (k)=(1) of table \"q\" was taken first by "), "{detail}");
    // Statements that refuse to wait, or wait briefly.
    run(&a, "begin; update q set v = v + 1 where k = 2").await;
    for statement in [
        "begin; select v from q where k = 2 for update nowait",
        "begin; set local lock_timeout = '50ms'; update q set v = 1 where k = 2",
    ] {
        let (code, detail) = loses(&b, statement).await;
        assert_eq!(code, "55P03", "{detail}");
        assert!(detail.starts_with("Key (k)=(2) of table \"q\" is held by session "), "{detail}");
    }
    // A ring.
    run(&b, "begin; update q set v = v + 1 where k = 1").await;
    let waiting = waits(&a, "update q set v = v + 1 where k = 1").await;
    let (code, detail) = loses(&b, "update q set v = v + 1 where k = 2").await;
    assert_eq!(code, "40P01", "{detail}");
    assert!(
        detail.starts_with("This transaction waited for key (k)=(2) of table \"q\", and session "),
        "{detail}"
    );
    assert_eq!(within(waiting).await, "done 1");
    run(&a, "rollback").await;
}

/// A session directly at a server holds a row that a refresh needs, and waits for a row of a transaction through Onecopy, which
/// waits for the refresh.
pub(crate) async fn a_ring_through_a_refresh(cluster: &Cluster) {
    run(&cluster.client().await, TABLES.before).await;
    let replica = cluster.caught_up().await.into_iter().find(|replica| replica.name == "replica-2").unwrap();
    let stranger = Arc::new(cluster.direct(&replica).await);
    let (a, b) = (at(cluster, 2).await, at(cluster, 3).await);
    run(&a, "begin; update q set v = v + 1 where k = 2").await;
    run(&stranger, "begin; select from q where k = 1 for update").await;
    let foreign = waits(&stranger, "select from q where k = 2 for update").await;
    run(&b, "update q set v = v + 10 where k = 1").await;
    let own = within(ask(&a, "update q set v = v + 1 where k = 1".to_owned())).await;
    assert_eq!(sqlstate(&own), Some("40001"), "{own}");
    within(foreign).await;
    run(&stranger, "rollback").await;
    run(&a, "rollback").await;
    assert_eq!(cluster.everywhere("select v from q where k < 3 order by k").await, [["20"], ["20"]]);
}
