//! Values are given out once while servers are killed, and while members are drained, rebuilt, dropped and added.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Book, DRAWS, LENT_WITHIN, answers, at, find, try_answers, until_lent};
use crate::cluster::{Cluster, rows, run, value};

pub(crate) async fn a_home_and_the_anchor_die(cluster: &Cluster, book: &mut Book) {
    let (sequence, sql) = DRAWS[2];
    run(&cluster.client().await, "select setval('kept', 1000000)").await;
    let clients =
        [at(cluster, "replica-1").await, at(cluster, "replica-2").await, at(cluster, "replica-3").await];
    for victim in ["replica-3", "replica-1", "replica-2"] {
        let names = cluster.caught_up().await;
        let homes = names.iter().filter(|replica| replica.role != "anchor");
        for home in homes {
            let client = at(cluster, &home.name).await;
            until_lent(cluster, &home.name, &client, sequence, sql, book).await;
        }
        cluster.kill_server(&find(cluster, victim).await, true);
        let deadline = Instant::now() + LENT_WITHIN;
        let mut drawn = 0;
        while drawn < 300 {
            assert!(Instant::now() < deadline, "{drawn} values after {victim} was killed");
            for client in &clients {
                match try_answers(client, sql).await {
                    Ok(values) => {
                        book.note(sequence, &values);
                        drawn += 1;
                    }
                    Err(error) => assert_eq!(error.code().unwrap().code(), "40001", "{error:?}"),
                }
            }
        }
    }
    let there = cluster.everywhere("select count(*) from cached where id > 1000000").await;
    assert!(there[0][0].parse::<usize>().unwrap() >= book.0[sequence].len());
}

/// Clients that draw all the time at their homes and note the values.
struct Drawers {
    is_over: Arc<AtomicBool>,
    book: Arc<Mutex<Book>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drawers {
    async fn start(cluster: &Cluster, book: Book) -> Self {
        let (is_over, book) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(book)));
        let mut tasks = Vec::new();
        for home in ["replica-1", "replica-2", "replica-3", "any"] {
            let client = cluster.client().await;
            run(&client, &format!("set onecopy.home = '{home}'")).await;
            let (is_over, book) = (Arc::clone(&is_over), Arc::clone(&book));
            tasks.push(tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let (sequence, sql) = DRAWS[2];
                    match try_answers(&client, sql).await {
                        Ok(values) => book.lock().unwrap().note(sequence, &values),
                        Err(error) => {
                            let code = error.code().unwrap().code();
                            assert!(["40001", "22023"].contains(&code), "{error:?}");
                            // A replica that is no member cannot be the home.
                            run(&client, "set onecopy.home = 'any'").await;
                        }
                    }
                }
            }));
        }
        Self { is_over, book, tasks }
    }

    fn drawn(&self) -> usize {
        self.book.lock().unwrap().0.get(DRAWS[2].0).map_or(0, BTreeSet::len)
    }

    async fn more(&self) {
        let (before, deadline) = (self.drawn(), Instant::now() + LENT_WITHIN);
        while self.drawn() < before + 100 {
            assert!(Instant::now() < deadline, "nobody draws any more");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self) -> Book {
        self.is_over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        Arc::into_inner(self.book).unwrap().into_inner().unwrap()
    }
}

/// A replica with leases is drained, rebuilt from another one with leases, dropped and added again; the anchor, too.
pub(crate) async fn members_come_and_go(cluster: &mut Cluster, book: Book) -> Book {
    let admin = cluster.try_client("onecopy").await.unwrap();
    let drawers = Drawers::start(cluster, book).await;
    drawers.more().await;
    let anchor = cluster.replicas().await.into_iter().find(|replica| replica.role == "anchor").unwrap().name;
    rows(&admin, &format!("DRAIN REPLICA {anchor}")).await;
    drawers.more().await;
    rows(&admin, &format!("UNDRAIN REPLICA {anchor}")).await;
    rows(&admin, "REBUILD REPLICA replica-2").await;
    drawers.more().await;
    let borrower =
        cluster.replicas().await.into_iter().find(|replica| replica.role != "anchor").unwrap().name;
    rows(&admin, &format!("DROP REPLICA {borrower}")).await;
    drawers.more().await;
    rows(&admin, "ADD REPLICA").await;
    drawers.more().await;
    let anchor = cluster.replicas().await.into_iter().find(|replica| replica.role == "anchor").unwrap();
    cluster.kill_server(&anchor, true);
    drawers.more().await;
    let book = drawers.end().await;
    cluster.caught_up().await;
    book
}

/// A replica becomes the anchor while one of its statements is about to use up the leased range. The client gets no error about
/// the end of the range, and no other session gets the values that it draws.
pub(crate) async fn a_range_ends_at_a_new_anchor(cluster: &Cluster, mut book: Book) {
    let admin = cluster.try_client("onecopy").await.unwrap();
    let replicas = cluster.caught_up().await;
    let anchor = replicas.iter().find(|replica| replica.role == "anchor").unwrap();
    let mut others = replicas.iter().filter(|replica| replica.role != "anchor");
    let (home, spare) = (others.next().unwrap(), others.next().unwrap());
    // So that only `home` can become the anchor.
    rows(&admin, &format!("DRAIN REPLICA {}", spare.name)).await;
    let (sequence, sql) = DRAWS[2];
    // It has drawn before it takes its time, so its server goes by the bound of then.
    let long =
        "insert into cached (v) select 0 union all select count(*)::int from generate_series(1, 12000000)
        union all select v from generate_series(1, 30000) v returning id";
    let direct = cluster.direct(home).await;
    let there =
        "select count(*) from pg_stat_activity where query like '%12000000%' and pid <> pg_backend_pid()";
    let under_way = loop {
        let client = at(cluster, &home.name).await;
        until_lent(cluster, &home.name, &client, sequence, sql, &mut book).await;
        let under_way = tokio::spawn(async move { try_answers(&client, long).await });
        while !under_way.is_finished() && value(&direct, there).await == "0" {}
        if !under_way.is_finished() {
            break under_way;
        }
        // It ran at the anchor.
        book.note(sequence, &under_way.await.unwrap().unwrap());
    };
    cluster.kill_server(anchor, true);
    match under_way.await.unwrap() {
        Ok(values) => book.note(sequence, &values),
        Err(error) => assert_eq!(error.code().unwrap().code(), "40001", "{error:?}"),
    }
    // Transactions at the lost anchor get their errors before another replica takes its place.
    let deadline = Instant::now() + LENT_WITHIN;
    while find(cluster, &home.name).await.role != "anchor" {
        assert!(Instant::now() < deadline, "nobody takes the place");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let client = cluster.client().await;
    for _ in 0..300 {
        book.note(sequence, &answers(&client, sql).await);
    }
    rows(&admin, &format!("UNDRAIN REPLICA {}", spare.name)).await;
    cluster.caught_up().await;
}
