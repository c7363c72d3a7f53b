//! Micro loads: each does one thing, so that a difference between two contestants has one reason.
//!
//! A point read; a counter that all clients increment; read, compute, write back (which at READ COMMITTED would lose
//! updates, so it runs at REPEATABLE READ at least, and its sum must come out); TPC-B; rows of many pages; and a bulk
//! load. None of them thinks.

use std::rc::Rc;
use std::time::Duration;

use clap::ValueEnum;
use futures_util::future::LocalBoxFuture;
use sim::dice::Dice;
use testbed::fault::Fault;
use testbed::refusal::Refusal;
use testbed::workload;

use crate::drive::{Account, Actor, Fill, Next, Rule, Session, Texts, Workload};

/// Tables and statements.
const SCHEMA: &str = include_str!("../workloads/micro/schema.sql");
const TRANSACTIONS: &str = include_str!("../workloads/micro/transactions.sql");

/// How many rows a large row's text has characters: more than is kept in a page, so that it is stored apart.
const LARGE_BYTES: usize = 100_000;
/// How many large rows there are.
const LARGE_ROWS: i32 = 50;
/// Counters of read-modify-write.
const COUNTERS: i32 = 100;
/// Tellers and accounts of a branch; TPC-B has 100,000 accounts, which tells nothing more here.
const TELLERS: i32 = 10;
const ACCOUNTS: i32 = 10_000;
/// Rows of `point` for each of the scale.
const POINTS: i32 = 10_000;
/// Lines of a bulk load's batch.
const BATCH_LINES: i32 = 1_000;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// One row by its key.
    PointRead,
    /// All clients increment one row.
    HotCounter,
    /// Reads a counter and writes it back, one more.
    ReadModifyWrite,
    /// Three updates, a select and an insert.
    TpcB,
    /// Reads and replaces rows of 100 kB.
    LargeRows,
    /// A thousand rows in one statement.
    BulkLoad,
}

impl Shape {
    fn kind(self) -> &'static str {
        match self {
            Self::PointRead => "point-read",
            Self::HotCounter => "hot-counter",
            Self::ReadModifyWrite => "read-modify-write",
            Self::TpcB => "tpc-b",
            Self::LargeRows => "large-rows",
            Self::BulkLoad => "bulk-load",
        }
    }
}

/// One of the micro loads, on tables of that scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Micro {
    /// The load.
    pub(crate) shape: Shape,
    /// How large the tables are.
    pub(crate) scale: i32,
}

impl Workload for Micro {
    fn name(&self) -> String {
        self.shape.kind().to_owned()
    }

    fn texts(&self) -> Texts {
        Rc::new(workload::read("micro", SCHEMA, TRANSACTIONS).queries)
    }

    fn populate<'a>(&'a self, fill: &'a Fill<'a>) -> LocalBoxFuture<'a, Result<(), Fault>> {
        Box::pin(self.fill(fill))
    }

    fn actor(&self, number: usize, dice: Dice) -> Box<dyn Actor> {
        // A bulk load's batches of a second course must not meet those of the first.
        Box::new(Client { micro: *self, number: i32::try_from(number).unwrap_or(i32::MAX), dice })
    }

    fn accounts(&self) -> Vec<Account> {
        vec![
            Account { name: "increments", sql: "SELECT sum(n)::bigint FROM counter" },
            Account { name: "transfers", sql: "SELECT count(*) FROM history" },
            Account { name: "revisions", sql: "SELECT sum(revision)::bigint FROM large" },
            Account { name: "lines", sql: "SELECT count(*) FROM bulk" },
        ]
    }

    fn rules(&self) -> Vec<Rule> {
        let sum = |of: &str| format!("(SELECT coalesce(sum({of}), 0)");
        let (history, branch) = (sum("delta") + " FROM history)", sum("balance") + " FROM branch)");
        let equal =
            |other: &str| format!("SELECT 1 WHERE {history} <> {}", sum("balance") + " FROM " + other + ")");
        let rule = |name: &str, sql: String| Rule { name: name.to_owned(), sql };
        vec![
            rule("branches have what was transferred", format!("SELECT 1 WHERE {history} <> {branch}")),
            rule("tellers have what was transferred", equal("teller")),
            rule("accounts have what was transferred", equal("account")),
            rule(
                "batches are whole",
                format!("SELECT client, batch FROM bulk GROUP BY 1, 2 HAVING count(*) <> {BATCH_LINES}"),
            ),
        ]
    }
}

impl Micro {
    fn branches(self) -> i32 {
        self.scale
    }

    async fn fill(&self, fill: &Fill<'_>) -> Result<(), Fault> {
        fill.say(SCHEMA).await?;
        let branches = self.branches();
        fill.copy("point", (1..=POINTS * self.scale).map(|id| format!("{id}\t0\tfiller"))).await?;
        fill.copy("counter", (1..=COUNTERS).map(|id| format!("{id}\t0"))).await?;
        fill.copy("branch", (1..=branches).map(|id| format!("{id}\t0"))).await?;
        let teller = |id: i32| format!("{id}\t{}\t0", (id - 1) / TELLERS + 1);
        fill.copy("teller", (1..=branches * TELLERS).map(teller)).await?;
        let account = |id: i32| format!("{id}\t{}\t0\tfiller", (id - 1) / ACCOUNTS + 1);
        fill.copy("account", (1..=branches * ACCOUNTS).map(account)).await?;
        let mut dice = Dice::new(fill.seed);
        fill.copy("large", (1..=LARGE_ROWS).map(|id| format!("{id}\t0\t{}", body(&mut dice)))).await?;
        fill.say("ANALYZE").await
    }
}

/// Text that does not compress to nothing.
fn body(dice: &mut Dice) -> String {
    let mut text = String::with_capacity(LARGE_BYTES);
    while text.len() < LARGE_BYTES {
        text.push_str(&format!("{:016x}", dice.number()));
    }
    text
}

/// One client of a micro load.
struct Client {
    micro: Micro,
    number: i32,
    dice: Dice,
}

impl Actor for Client {
    fn draw(&mut self) -> Next {
        Next { kind: self.micro.shape.kind(), think: Duration::ZERO }
    }

    fn act<'a>(&'a mut self, session: &'a mut Session) -> LocalBoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            match self.micro.shape {
                Shape::PointRead => {
                    let id = self.up_to(POINTS * self.micro.scale);
                    exactly_one(session.look("readPoint", &[&id]).await?.len(), "points")
                }
                Shape::HotCounter => {
                    let changed = session.change("increment", &[&1_i32], &[("increments", 1)]).await?;
                    exactly_one(changed, "counters")
                }
                Shape::ReadModifyWrite => self.read_modify_write(session).await,
                Shape::TpcB => self.transfer(session).await,
                Shape::LargeRows => self.large(session).await,
                Shape::BulkLoad => self.bulk(session).await,
            }
        })
    }
}

impl Client {
    /// From 1 to `most`.
    fn up_to(&mut self, most: i32) -> i32 {
        1 + i32::try_from(self.dice.below(u64::from(most.unsigned_abs()))).unwrap_or_default()
    }

    async fn read_modify_write(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let id = self.up_to(COUNTERS);
        session
            .update_snapshot(async |transaction| {
                let n: i64 = transaction.row("readCounter", &[&id]).await?.get(0);
                transaction.one("writeCounter", &[&id, &(n + 1)]).await?;
                transaction.enter("increments", 1);
                Ok(())
            })
            .await
    }

    async fn transfer(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let account = self.up_to(self.micro.branches() * ACCOUNTS);
        let teller = self.up_to(self.micro.branches() * TELLERS);
        let branch = (teller - 1) / TELLERS + 1;
        let delta = i64::from(self.up_to(10_001)) - 5_001;
        session
            .update(async |transaction| {
                transaction.one("addToAccount", &[&account, &delta]).await?;
                transaction.row("getBalance", &[&account]).await?;
                transaction.one("addToTeller", &[&teller, &delta]).await?;
                transaction.one("addToBranch", &[&branch, &delta]).await?;
                transaction.one("addHistory", &[&teller, &branch, &account, &delta]).await?;
                transaction.enter("transfers", 1);
                Ok(())
            })
            .await
    }

    async fn large(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let id = self.up_to(LARGE_ROWS);
        if self.dice.percent(50) {
            let body = body(&mut self.dice);
            let changed = session.change("replaceBody", &[&id, &body], &[("revisions", 1)]).await?;
            return exactly_one(changed, "large rows");
        }
        let rows = session.look("readBody", &[&id]).await?;
        let length = rows.first().map_or(0, |row| row.get::<_, &str>(1).len());
        if length == LARGE_BYTES { Ok(()) } else { Err(Refusal::Told(format!("a body of {length} bytes"))) }
    }

    async fn bulk(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let (client, batch) = (self.number, self.up_to(i32::MAX));
        session
            .update(async |transaction| {
                let lines = transaction.execute("loadLines", &[&client, &batch, &BATCH_LINES]).await?;
                transaction.enter("lines", i64::try_from(lines).unwrap_or(i64::MAX));
                Ok(())
            })
            .await
    }
}

fn exactly_one(count: impl TryInto<u64>, of: &str) -> Result<(), Refusal> {
    match count.try_into() {
        Ok(1) => Ok(()),
        Ok(count) => Err(Refusal::Told(format!("{count} {of} where there is one"))),
        Err(_) => Err(Refusal::Told(format!("more {of} than can be counted"))),
    }
}
