//! Whether reads are stale, looked at while the load runs.
//!
//! One session increments a number, a few times a second. Sessions wherever reads may go read it when staleness is likeliest:
//! now and then while an increment is on its way, at once when one of them has seen it, as other copies may not show it yet,
//! and at once when it has been acknowledged. Each must see what was acknowledged before the read was sent, and what any
//! read that had ended by then has seen. One that sees less is stale. What an error interrupts is not judged. There is a
//! reader for each server of the contestant, so that all of them pay alike, and little: some ten reads a second each.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::join_all;
use testbed::fault::Fault;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Config};

use crate::drive::Endpoints;
use crate::load::open;

/// Between an acknowledgement and the next increment.
const PAUSE: Duration = Duration::from_millis(250);
/// Between the first two reads of a reader while an increment is on its way and nothing is seen of it; twice that before the
/// next one, and so on.
const READ_PAUSE: Duration = Duration::from_millis(5);

/// The table that is looked at.
const TABLE: &str = "CREATE TABLE bench_probe (id int PRIMARY KEY, n bigint NOT NULL)";
/// Its row, in a transaction of its own: where statements are shipped a new table is known after its transaction.
const ROW: &str = "INSERT INTO bench_probe VALUES (1, 0)";
const INCREMENT: &str = "UPDATE bench_probe SET n = n + 1 WHERE id = 1 RETURNING n";
const READ: &str = "SELECT n FROM bench_probe WHERE id = 1";

/// Makes the table.
pub(crate) async fn prepare(to: &Config) -> Result<(), Fault> {
    let client = open(to).await?;
    let said = |error| Fault::Database(format!("the probe's table: {error}"));
    client.batch_execute(TABLE).await.map_err(said)?;
    client.batch_execute(ROW).await.map_err(said)
}

/// Sessions that look.
pub(crate) struct Probe {
    writer: Client,
    readers: Vec<Client>,
    /// The highest number that any session was told.
    known: Cell<i64>,
    reads: Cell<u64>,
    stale: Cell<u64>,
    /// Whether an increment is on its way; readers are notified of that, and when one of them sees the new number.
    is_sent: watch::Sender<bool>,
}

impl Probe {
    /// Connects, with at least so many readers, and one for each place where reads may go.
    pub(crate) async fn open(endpoints: &Endpoints, readers: u16) -> Result<Self, Fault> {
        let places: Vec<&Config> = if endpoints.readers.is_empty() {
            endpoints.mains().collect()
        } else {
            endpoints.readers.iter().collect()
        };
        let count = places.len().max(readers.into());
        let mut readers = Vec::new();
        for place in places.into_iter().cycle().take(count) {
            readers.push(open(place).await?);
        }
        let writer = open(&endpoints.main).await?;
        let (known, reads, stale) = (Cell::new(0), Cell::new(0), Cell::new(0));
        Ok(Self { writer, readers, known, reads, stale, is_sent: watch::Sender::new(false) })
    }

    /// Looks for ever.
    pub(crate) async fn look(&self) -> Infallible {
        let readers = join_all(self.readers.iter().map(|reader| self.read(reader)));
        tokio::join!(self.write(), readers).0
    }

    async fn write(&self) -> Infallible {
        loop {
            self.is_sent.send_replace(true);
            if let Ok(row) = self.writer.query_one(INCREMENT, &[]).await {
                self.learn(row.get(0));
            }
            self.is_sent.send_replace(false);
            sleep(PAUSE).await;
        }
    }

    async fn read(&self, reader: &Client) -> Infallible {
        let mut is_sent = self.is_sent.subscribe();
        let mut pause = READ_PAUSE;
        loop {
            // That there is news no more cannot be: the other half is ours.
            if !*is_sent.borrow() {
                let _ = is_sent.changed().await;
                pause = READ_PAUSE;
            } else if timeout(pause, is_sent.changed()).await.is_err() {
                pause *= 2;
            }
            self.read_once(reader).await;
        }
    }

    async fn read_once(&self, reader: &Client) {
        let least = self.known.get();
        if let Ok(row) = reader.query_one(READ, &[]).await {
            self.judge(least, row.get(0));
        }
    }

    fn learn(&self, n: i64) {
        if n > self.known.get() {
            self.known.set(n);
            self.is_sent.send_modify(|_| ());
        }
    }

    fn judge(&self, least: i64, n: i64) {
        self.reads.set(self.reads.get() + 1);
        if n < least {
            self.stale.set(self.stale.get() + 1);
        }
        self.learn(n);
    }

    /// How many reads there were, and how many of them were stale.
    pub(crate) fn seen(&self) -> (u64, u64) {
        (self.reads.get(), self.stale.get())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::drive::tests::Server;
    use crate::load::runtime;

    /// The database beside it, whose number is what the true one was a moment ago, for ever.
    async fn follow(main: &Client, late: &Client, lag: Duration) -> Infallible {
        loop {
            let n: i64 = main.query_one(READ, &[]).await.unwrap().get(0);
            sleep(lag).await;
            late.execute("UPDATE bench_probe SET n = $1 WHERE id = 1", &[&n]).await.unwrap();
        }
    }

    /// Looks until some reads were stale and others not.
    async fn until_seen(probe: &Probe, looks: impl Future<Output = Infallible>) {
        let begun = Instant::now();
        let seen = async {
            while probe.seen().1 == 0 || probe.seen().0 == probe.seen().1 {
                assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", probe.seen());
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            never = looks => match never {},
            () = seen => {}
        }
    }

    #[test]
    fn stale_reads_are_found_and_little_is_asked() {
        let server = Server::start();
        let second = Duration::from_secs(1);
        runtime().unwrap().block_on(async {
            let endpoints = server.endpoints();
            prepare(&endpoints.main).await.unwrap();
            let honest = Probe::open(&endpoints, 2).await.unwrap();
            let begun = Instant::now();
            // On a slow machine an increment takes its time.
            while honest.known.get() < 2 && begun.elapsed() < 30 * second {
                let _ = timeout(second, honest.look()).await;
            }
            let (reads, stale) = honest.seen();
            let known = u64::try_from(honest.known.get()).unwrap();
            let most = begun.elapsed().as_secs() * 4;
            assert!((2..=most).contains(&known) && stale == 0, "{known} in {:?}, {stale}", begun.elapsed());
            // Both of them at least once while an increment was on its way, and when it had been acknowledged.
            assert!((3 * known..=20 * most).contains(&reads), "{known} {reads}");

            // A reader that sees an old copy: the database beside it, which no client writes.
            let client = open(&endpoints.main).await.unwrap();
            client.batch_execute("CREATE DATABASE old TEMPLATE template0").await.unwrap();
            let mut old = endpoints.main.clone();
            old.dbname("old");
            prepare(&old).await.unwrap();
            let readers = vec![endpoints.main.clone(), old.clone()];
            let split = Endpoints { readers, ..endpoints.clone() };
            let probe = Probe::open(&split, 1).await.unwrap();
            until_seen(&probe, probe.look()).await;

            // And one that is behind for a moment only.
            let (late, probe) = (open(&old).await.unwrap(), Probe::open(&split, 2).await.unwrap());
            let looks = async {
                tokio::select! {
                    never = follow(&client, &late, Duration::from_millis(40)) => never,
                    never = probe.look() => never,
                }
            };
            until_seen(&probe, looks).await;
        });
    }
}
