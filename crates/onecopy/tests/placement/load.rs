//! Clients that read and write tables which not all replicas hold, and notice each answer that an empty copy would give.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::cluster::{Cluster, connect, value};

pub(crate) const SCHEMA: &str = "
create table orders (k int primary key, n int not null default 0);
create table line (k int primary key, o int not null references orders on delete cascade);
create table stock (k int primary key, n int not null default 0);
create table note (k int primary key, n int not null default 0);
insert into orders select g from generate_series(1, 100) g;
insert into line select g, 1 + g % 100 from generate_series(1, 300) g;
insert into stock select g from generate_series(1, 100) g;
insert into note select g from generate_series(1, 100) g";

/// So many kinds of work are done in turn.
const KINDS: u64 = 10;
/// A client tries work again as long as it is rolled back (40001).
const TRIES: u32 = 200;

/// What clients have done.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Added to rows of each table.
    orders: u64,
    stock: u64,
    note: u64,
    /// Answers that are not right, and errors that no client should see.
    pub(crate) wrong: Vec<String>,
}

impl Done {
    pub(crate) fn add(&mut self, more: Self) {
        self.orders += more.orders;
        self.stock += more.stock;
        self.note += more.note;
        self.wrong.extend(more.wrong);
    }
}

/// Asserts that everything is there that was acknowledged, once.
pub(crate) async fn check(client: &Client, done: &Done) {
    for (table, sum) in [("orders", done.orders), ("stock", done.stock), ("note", done.note)] {
        assert_eq!(value(client, &format!("select sum(n) from {table}")).await, sum.to_string(), "{table}");
    }
}

/// Clients at work.
pub(crate) struct Load {
    clients: Vec<JoinHandle<Done>>,
    is_over: Arc<AtomicBool>,
    works: Arc<AtomicU64>,
}

impl Load {
    /// Clients that work until [`Self::end`].
    pub(crate) fn begin(cluster: &Cluster, clients: u64) -> Self {
        Self::of(cluster, clients, u64::MAX)
    }

    /// So many clients do each kind of work so many times.
    pub(crate) async fn rounds(cluster: &Cluster, clients: u64, rounds: u64) -> Done {
        Self::of(cluster, clients, rounds * KINDS).all().await
    }

    fn of(cluster: &Cluster, clients: u64, works: u64) -> Self {
        let (is_over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let port = cluster.port;
        let clients = (0..clients)
            .map(|number| {
                let (is_over, done) = (Arc::clone(&is_over), Arc::clone(&done));
                tokio::spawn(async move { client(port, number, works, &is_over, &done).await })
            })
            .collect();
        Self { clients, is_over, works: done }
    }

    /// Waits until every kind of work was done some more times; returns how much was done.
    pub(crate) async fn progress(&self, within: Duration) -> u64 {
        let (wanted, deadline) = (self.works.load(Ordering::Relaxed) + 4 * KINDS, Instant::now() + within);
        while self.works.load(Ordering::Relaxed) < wanted {
            assert!(Instant::now() < deadline, "clients do not come on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.works.load(Ordering::Relaxed)
    }

    pub(crate) async fn end(self) -> Done {
        self.is_over.store(true, Ordering::Relaxed);
        self.all().await
    }

    async fn all(self) -> Done {
        let mut done = Done::default();
        for client in self.clients {
            done.add(client.await.unwrap());
        }
        done
    }
}

/// A server that is killed while a client logs in can end that.
async fn connected(port: u16) -> Client {
    for _ in 0..TRIES {
        match connect("127.0.0.1", port, "postgres").await {
            Ok(client) => return client,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("no client can log in")
}

async fn client(port: u16, number: u64, works: u64, is_over: &AtomicBool, count: &AtomicU64) -> Done {
    let client = connected(port).await;
    // Half of the clients let blocks begin anywhere at once, the others as they were seen to go on.
    if number.is_multiple_of(2) {
        client.batch_execute("set onecopy.home = 'any'").await.unwrap();
    }
    let (mut done, mut at) = (Done::default(), 0);
    while at < works && !is_over.load(Ordering::Relaxed) {
        let key = 1 + (number * 37 + at * 11) % 100;
        let mut tries = 0;
        while let Err(error) = work(&client, number, at % KINDS, key, &mut done).await {
            let code = error.code().map(|code| code.code().to_owned());
            tries += 1;
            if code.as_deref() != Some("40001") || tries > TRIES {
                done.wrong.push(format!("work {}: {error:?}", at % KINDS));
                return done;
            }
            client.batch_execute("rollback").await.unwrap();
        }
        count.fetch_add(1, Ordering::Relaxed);
        at += 1;
    }
    done
}

/// Does one kind of work. What it adds counts when it is acknowledged.
async fn work(
    client: &Client,
    number: u64,
    kind: u64,
    key: u64,
    done: &mut Done,
) -> Result<(), tokio_postgres::Error> {
    let (own, mut seen) = (1_000 + number, Vec::new());
    let (script, expected): (String, &[&str]) = match kind {
        0 => (format!("update stock set n = n + 1 where k = {key}"), &["*1"]),
        1 => (format!("select k > 0 from orders where k = {key}"), &["t", "*1"]),
        2 => ("select count(*) from line".to_owned(), &["300", "*1"]),
        3 => (
            format!(
                "begin; select k > 0 from orders where k = {key}; select k > 0 from stock where k = {key}; \
                 update note set n = n + 1 where k = {key}; commit"
            ),
            &["*0", "t", "*1", "t", "*1", "*1", "*0"],
        ),
        4 => (
            "begin read only; select count(*) from line; select count(*) from stock; commit".to_owned(),
            &["*0", "300", "*1", "100", "*1", "*0"],
        ),
        // The cascade must find the line.
        5 => (
            format!(
                "begin; insert into orders values ({own}); insert into line values ({own}, {own}); \
                 delete from orders where k = {own}; select count(*) from line where k = {own}; commit"
            ),
            &["*0", "*1", "*1", "*1", "0", "*1", "*0"],
        ),
        6 => (
            format!(
                "begin isolation level repeatable read; select count(*) from line; select count(*) from stock; \
                 update stock set n = n + 1 where k = {key}; commit"
            ),
            &["*0", "300", "*1", "100", "*1", "*1", "*0"],
        ),
        7 => ("select count(*) from line join stock on stock.k = line.o".to_owned(), &["300", "*1"]),
        8 => {
            let row = client.query_one("select count(*) from stock where k = $1", &[&(key as i32)]).await?;
            seen.push(row.get::<_, i64>(0).to_string());
            (String::new(), &["1"])
        }
        _ => (
            format!(
                "begin; update note set n = n + 1 where k = {key}; update orders set n = n + 1 where k = {key}; \
                 update stock set n = n + 1 where k = {key}; commit"
            ),
            &["*0", "*1", "*1", "*1", "*0"],
        ),
    };
    if !script.is_empty() {
        // One statement at a time, as an application sends them.
        for statement in script.split("; ") {
            for message in client.simple_query(statement).await? {
                match message {
                    SimpleQueryMessage::Row(row) => seen.push(row.get(0).unwrap_or_default().to_owned()),
                    SimpleQueryMessage::CommandComplete(rows) => seen.push(format!("*{rows}")),
                    _ => {}
                }
            }
        }
    }
    if seen != expected {
        done.wrong.push(format!("work {kind} with key {key}: {seen:?}, not {expected:?}"));
    }
    match kind {
        0 | 6 => done.stock += 1,
        3 => done.note += 1,
        9 => (done.note, done.orders, done.stock) = (done.note + 1, done.orders + 1, done.stock + 1),
        _ => {}
    }
    Ok(())
}
