//! Whether reads are stale, looked at while the load runs.
//!
//! One session increments a number. Sessions wherever reads may go read it: each must see what was acknowledged before
//! the read was sent, and what any read that had ended by then has seen. One that sees less is stale. What an error
//! interrupts is not judged; a read is cheap, so that the probe does not matter to what is measured.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;
use tokio_postgres::{Client, Config};

use crate::drive::Doors;
use crate::fault::Fault;
use crate::load::open;

/// Between two increments, and between two reads of a session.
const PAUSE: Duration = Duration::from_millis(40);
const READ_PAUSE: Duration = Duration::from_millis(25);
/// How many sessions read through one door.
const READERS: usize = 2;

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
    /// The most that anybody was told.
    known: Cell<i64>,
    reads: Cell<u64>,
    stale: Cell<u64>,
}

impl Probe {
    /// Connects.
    pub(crate) async fn open(doors: &Doors) -> Result<Self, Fault> {
        let places =
            if doors.readers.is_empty() { vec![&doors.main] } else { doors.readers.iter().collect() };
        let mut readers = Vec::new();
        for place in places {
            for _ in 0..READERS {
                readers.push(open(place).await?);
            }
        }
        let writer = open(&doors.main).await?;
        Ok(Self { writer, readers, known: Cell::new(0), reads: Cell::new(0), stale: Cell::new(0) })
    }

    /// Looks for ever.
    pub(crate) async fn look(&self) -> Infallible {
        let readers = join_all(self.readers.iter().map(|reader| self.read(reader)));
        tokio::join!(self.write(), readers).0
    }

    async fn write(&self) -> Infallible {
        loop {
            if let Ok(row) = self.writer.query_one(INCREMENT, &[]).await {
                self.learn(row.get(0));
            }
            sleep(PAUSE).await;
        }
    }

    async fn read(&self, reader: &Client) -> Infallible {
        loop {
            let least = self.known.get();
            if let Ok(row) = reader.query_one(READ, &[]).await {
                self.judge(least, row.get(0));
            }
            sleep(READ_PAUSE).await;
        }
    }

    fn learn(&self, n: i64) {
        self.known.set(self.known.get().max(n));
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
    use super::*;
    use crate::drive::tests::Server;
    use crate::load::runtime;

    #[test]
    fn stale_reads_are_found() {
        let server = Server::start();
        runtime().unwrap().block_on(async {
            let doors = server.doors();
            prepare(&doors.main).await.unwrap();
            let honest = Probe::open(&doors).await.unwrap();
            let _ = tokio::time::timeout(Duration::from_secs(1), honest.look()).await;
            let (reads, stale) = honest.seen();
            assert!(reads > 5 && stale == 0, "{reads} {stale}");

            // A reader that sees an old copy: the database beside it, which nobody writes.
            let client = open(&doors.main).await.unwrap();
            client.batch_execute("CREATE DATABASE old TEMPLATE template0").await.unwrap();
            let mut old = doors.main.clone();
            old.dbname("old");
            prepare(&old).await.unwrap();
            let split =
                Doors { main: doors.main.clone(), readers: vec![doors.main.clone(), old], declares: false };
            let probe = Probe::open(&split).await.unwrap();
            let _ = tokio::time::timeout(Duration::from_secs(1), probe.look()).await;
            let (reads, stale) = probe.seen();
            assert!(stale > 0 && stale < reads, "{reads} {stale}");
        });
    }
}
