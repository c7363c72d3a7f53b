//! A client's connection: statements in either protocol, and a limit for each.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use testbed::refusal::Refusal;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, NoTls, Row, SimpleQueryMessage, Statement};

use super::Course;
use crate::cache_audit;

/// How long a statement may take; longer is for ever.
const STATEMENT_MAX: Duration = Duration::from_secs(30);
/// How long a server that does not take connections is asked again.
const CONNECT_TRIES: u32 = 600;
/// How long a single attempt may take.
const TRY_MAX: Duration = Duration::from_secs(5);
/// Between two of these.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// A value in a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// An `int`.
    Key(i32),
    /// A `text` without quotes in it.
    Text(String),
}

impl Value {
    fn literal(&self) -> String {
        match self {
            Self::Key(key) => key.to_string(),
            Self::Text(text) => format!("'{text}'"),
        }
    }

    fn parameter(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Key(key) => (key, Type::INT4),
            Self::Text(text) => (text, Type::TEXT),
        }
    }
}

/// A connection.
pub(super) struct Session {
    /// Of each node.
    ports: Vec<u16>,
    /// Where its client connects first.
    own: usize,
    /// Where it is connected.
    pub(super) node: usize,
    client: Client,
    /// They stay: the driver ignores errors in the reply to Close, and with one a transaction may fail.
    prepared: Mutex<BTreeMap<String, Statement>>,
}

impl Session {
    /// Connects; a server that is being started again is waited for.
    pub(super) async fn open(port: u16, database: &str) -> Result<Self, Refusal> {
        Self::open_any(vec![port], 0, database).await
    }

    /// The connection of a client: to its own node, or to another one while that does not let it in.
    pub(super) async fn of_client(number: u32, course: &Course) -> Result<Self, Refusal> {
        let own = number as usize % course.ports.len();
        Self::open_any(course.ports.clone(), own, "postgres").await
    }

    async fn open_any(ports: Vec<u16>, own: usize, database: &str) -> Result<Self, Refusal> {
        // A node alone may take its time. Of several, another one lets the client in.
        let patience = if ports.len() == 1 { STATEMENT_MAX } else { TRY_MAX };
        let mut why = String::new();
        for node in (0..CONNECT_TRIES as usize).map(|attempt| (own + attempt) % ports.len()) {
            match timeout(patience, tokio_postgres::connect(&config(ports[node], database), NoTls)).await {
                Ok(Ok((client, connection))) => {
                    // How the connection ends, its statements say.
                    tokio::spawn(connection);
                    return Ok(Self { ports, own, node, client, prepared: Mutex::default() });
                }
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => why = format!("no answer within {} s", patience.as_secs()),
            }
            sleep(CONNECT_PAUSE).await;
        }
        Err(Refusal::Stuck(format!("no connection: {why}")))
    }

    /// Connects at once or not at all.
    pub(crate) async fn try_open(port: u16, database: &str) -> Option<Self> {
        let config = config(port, database);
        let connecting = tokio_postgres::connect(&config, NoTls);
        let (client, connection) = timeout(TRY_MAX, connecting).await.ok()?.ok()?;
        tokio::spawn(connection);
        Some(Self { ports: vec![port], own: 0, node: 0, client, prepared: Mutex::default() })
    }

    /// A new connection in place of a lost one.
    pub(super) async fn reopen(&mut self) -> Result<(), Refusal> {
        *self = Self::open_any(self.ports.clone(), self.own, "postgres").await?;
        Ok(())
    }

    /// Runs a text as it is; the rows' columns.
    pub(super) async fn simple(&self, sql: &str) -> Result<Vec<Vec<String>>, Refusal> {
        let answer = timeout(STATEMENT_MAX, self.client.simple_query(sql)).await;
        let messages = answer.map_err(|_| stuck(sql))?.map_err(|error| Refusal::of(&error))?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// Runs a statement with values; all its columns are `text`.
    pub(super) async fn ask(
        &self,
        sql: &str,
        values: &[Value],
        is_extended: bool,
    ) -> Result<Vec<Vec<String>>, Refusal> {
        if !is_extended {
            let filled = values.iter().enumerate().fold(sql.to_owned(), |text, (place, value)| {
                text.replace(&format!("${}", place + 1), &value.literal())
            });
            return self.simple(&filled).await;
        }
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> = values.iter().map(Value::parameter).collect();
        let answer = timeout(STATEMENT_MAX, self.query(sql, &parameters)).await;
        let rows = answer.map_err(|_| stuck(sql))?.map_err(|error| Refusal::of(&error))?;
        let columns =
            |row: &Row| (0..row.len()).map(|at| row.try_get::<_, String>(at)).collect::<Result<Vec<_>, _>>();
        rows.iter().map(columns).collect::<Result<_, _>>().map_err(|error| Refusal::Told(error.to_string()))
    }
}

impl Session {
    async fn query(&self, sql: &str, parameters: &[(&(dyn ToSql + Sync), Type)]) -> Result<Vec<Row>, Error> {
        if !cache_audit::is_on() {
            return self.client.query_typed(sql, parameters).await;
        }
        // In the form above the reply to Describe is in front of the answer, so it is not kept.
        let (values, types): (Vec<_>, Vec<_>) = parameters.iter().cloned().unzip();
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        let statement = if let Some(statement) = prepared {
            statement
        } else {
            let new = self.client.prepare_typed(sql, &types).await?;
            let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            prepared.entry(sql.to_owned()).or_insert(new).clone()
        };
        self.client.query(&statement, &values).await
    }
}

fn config(port: u16, database: &str) -> String {
    format!("host=127.0.0.1 port={port} user=postgres dbname={database} connect_timeout=5")
}

fn stuck(sql: &str) -> Refusal {
    Refusal::Stuck(format!("no reply to `{sql}` within {} s", STATEMENT_MAX.as_secs()))
}
