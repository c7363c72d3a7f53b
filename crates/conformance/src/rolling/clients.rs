//! The clients of `rolling`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tokio_postgres::{Error, NoTls, SimpleQueryMessage, Statement};

use super::TABLE;

/// How long a statement may take; longer is for ever.
const STATEMENT_MAX: Duration = Duration::from_secs(30);
/// Between two transactions of a client, which thinks.
const THINKS: Duration = Duration::from_millis(5);
/// Between two looks of a holder at its temporary table.
const LOOK: Duration = Duration::from_millis(50);

/// Connects, and waits in the queue of the listener if the node is being restarted.
pub(super) async fn connect(port: u16, database: &str) -> Result<tokio_postgres::Client, String> {
    let settings = format!("host=127.0.0.1 port={port} user=postgres dbname={database}");
    let connecting = timeout(STATEMENT_MAX, tokio_postgres::connect(&settings, NoTls));
    let connected = connecting.await.map_err(|_| format!("no answer at port {port}"))?;
    let (client, connection) = connected.map_err(|error| said(&error))?;
    // How the connection ends, its statements say.
    tokio::spawn(connection);
    Ok(client)
}

/// The rows of a text.
pub(super) async fn rows(
    client: &tokio_postgres::Client,
    sql: &str,
    patience: Duration,
) -> Result<Vec<Vec<String>>, String> {
    let answer = timeout(patience, client.simple_query(sql)).await;
    let messages = answer
        .map_err(|_| format!("no answer to {sql}"))?
        .map_err(|error| format!("{sql}: {}", said(&error)))?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}

fn said(error: &Error) -> String {
    match error.as_db_error() {
        Some(told) => format!("{} {}", told.code().code(), told.message()),
        None => error.to_string(),
    }
}

/// A client that must get no error.
pub(super) struct Client {
    number: u32,
    node: usize,
    clock: Instant,
    session: tokio_postgres::Client,
    read: Statement,
    write: Statement,
}

/// What a client was told.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) number: u32,
    pub(super) node: usize,
    /// How often its row was changed.
    pub(super) value: i64,
    /// When each transaction had ended.
    pub(super) ends: Vec<Duration>,
    /// The error that has ended its work.
    pub(super) error: Option<String>,
}

impl Client {
    pub(super) async fn open(number: u32, node: usize, port: u16, clock: Instant) -> Result<Self, String> {
        let session = connect(port, "postgres").await?;
        let prepare = async |sql: String| session.prepare(&sql).await.map_err(|error| said(&error));
        let read = prepare(format!("SELECT v FROM {TABLE} WHERE k = {number}")).await?;
        let write = prepare(format!("UPDATE {TABLE} SET v = v + 1 WHERE k = {number}")).await?;
        let setting = format!("SET application_name = 'client {number}'");
        session.batch_execute(&setting).await.map_err(|error| said(&error))?;
        Ok(Self { number, node, clock, session, read, write })
    }

    /// Works until it is over, or an error comes.
    pub(super) async fn work(self, is_over: Arc<AtomicBool>) -> Told {
        let Self { number, node, .. } = self;
        let mut told = Told { number, node, value: 0, ends: Vec::new(), error: None };
        while !is_over.load(Ordering::Relaxed) {
            let transaction = timeout(STATEMENT_MAX, self.transaction(told.value)).await;
            match transaction.unwrap_or_else(|_| Err("no reply".to_owned())) {
                Ok(value) => told.value = value,
                Err(why) => {
                    told.error = Some(format!("at {:.1} s: {why}", self.clock.elapsed().as_secs_f64()));
                    break;
                }
            }
            told.ends.push(self.clock.elapsed());
            sleep(THINKS).await;
        }
        told
    }

    /// One transaction of a kind that comes in turn; the value of its row then.
    async fn transaction(&self, value: i64) -> Result<i64, String> {
        let change = format!("UPDATE {TABLE} SET v = v + 1 WHERE k = {}", self.number);
        let answer = match value % 4 {
            0 => self.session.batch_execute(&change).await,
            1 => self.session.execute(&self.write, &[]).await.map(drop),
            2 => self.session.batch_execute(&format!("BEGIN; {change}; COMMIT")).await,
            _ => self.by_steps(&change).await,
        };
        answer.map_err(|error| said(&error))?;
        let row = self.session.query_one(&self.read, &[]).await.map_err(|error| said(&error))?;
        let found: i64 = row.try_get(0).map_err(|error| said(&error))?;
        if found != value + 1 {
            return Err(format!("its row has {found}, and it was told {}", value + 1));
        }
        let own = self.session.simple_query("SHOW application_name").await.map_err(|error| said(&error))?;
        let is_own = own.iter().any(|message| {
            matches!(message, SimpleQueryMessage::Row(row)
                if row.get(0) == Some(format!("client {}", self.number).as_str()))
        });
        if is_own { Ok(found) } else { Err("its settings are lost".to_owned()) }
    }

    async fn by_steps(&self, change: &str) -> Result<(), Error> {
        self.session.batch_execute("BEGIN").await?;
        self.session.query_one(&self.read, &[]).await?;
        self.session.batch_execute(change).await?;
        self.session.batch_execute("COMMIT").await
    }
}

/// A client with a temporary table.
pub(super) struct Holder {
    node: usize,
    port: u16,
    clock: Instant,
}

/// The end of a session of a holder.
#[derive(Debug)]
pub(super) struct End {
    pub(super) node: usize,
    pub(super) at: Duration,
    pub(super) said: String,
}

impl Holder {
    pub(super) fn new(node: usize, port: u16, clock: Instant) -> Self {
        Self { node, port, clock }
    }

    /// Uses its table until it is over, and comes again when its session has ended.
    pub(super) async fn work(self, is_over: Arc<AtomicBool>) -> Vec<End> {
        let mut ends = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            if let Err(said) = self.session(&is_over).await {
                ends.push(End { node: self.node, at: self.clock.elapsed(), said });
            }
        }
        ends
    }

    async fn session(&self, is_over: &AtomicBool) -> Result<(), String> {
        let session = connect(self.port, "postgres").await?;
        let table = "CREATE TEMPORARY TABLE own AS SELECT 7 AS v";
        session.batch_execute(table).await.map_err(|error| said(&error))?;
        while !is_over.load(Ordering::Relaxed) {
            let found = rows(&session, "SELECT v FROM own", STATEMENT_MAX).await?;
            if found != [["7"]] {
                return Err(format!("its temporary table has {found:?}"));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }
}
