//! Statements in one open transaction, each between savepoints, and what they leave behind.
//!
//! The transaction is never committed. Orders `SAVEPOINT`, statement, contents, `ROLLBACK TO` go out together, so that a
//! statement costs one round trip; after an error the contents cannot be asked for, and are those before.

use std::pin::pin;

use futures_util::TryStreamExt;
use sql::Catalogue;
use testbed::fault::Fault;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

use super::draft::Draft;
use crate::cache_audit;

/// A cell as its type sends it in binary form.
struct Cell(Vec<u8>);

impl<'a> FromSql<'a> for Cell {
    fn from_sql(_kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.to_owned()))
    }

    fn accepts(_kind: &Type) -> bool {
        true
    }
}

/// The reply to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The rows in a fixed order, and the number in the command tag.
    Rows(Vec<Vec<Option<Vec<u8>>>>, u64),
    /// The SQLSTATE.
    Error(String),
}

/// A row of a table as texts of its columns.
pub(crate) type Row = Vec<Option<String>>;

/// All rows of all tables of the catalogue, each after its table's number, in a fixed order.
pub(crate) type Contents = Vec<(u32, Row)>;

/// A connection with a transaction.
pub(crate) struct Session {
    client: Client,
}

fn broken(error: &Error) -> Fault {
    let said = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
    Fault::Unreadable { what: "what the server answers".to_owned(), said }
}

impl Session {
    /// Connects to a server of ours.
    pub(crate) async fn open(port: u16) -> Result<Self, Fault> {
        Self::open_database(port, "postgres").await
    }

    /// Connects to the admin database.
    pub(crate) async fn open_admin(port: u16) -> Result<Self, Fault> {
        Self::open_database(port, "onecopy").await
    }

    async fn open_database(port: u16, database: &str) -> Result<Self, Fault> {
        let target = format!("host=127.0.0.1 port={port} user=postgres dbname={database}");
        let (client, connection) = tokio_postgres::connect(&target, NoTls).await.map_err(|e| broken(&e))?;
        tokio::spawn(connection);
        let session = Self { client };
        session.order("SET client_min_messages = error; SET statement_timeout = '10s'").await?;
        Ok(session)
    }

    /// Something that must not fail.
    pub(crate) async fn order(&self, text: &str) -> Result<(), Fault> {
        self.client.batch_execute(text).await.map_err(|error| match broken(&error) {
            Fault::Unreadable { what, said } => Fault::Unreadable { what: format!("{what} to {text}"), said },
            other => other,
        })
    }

    /// Something that may fail; whether it did not.
    pub(super) async fn attempt(&self, text: &str) -> Result<bool, Fault> {
        self.order("SAVEPOINT attempt").await?;
        let done = self.client.batch_execute(text).await.is_ok();
        if !done {
            self.order("ROLLBACK TO attempt").await?;
        }
        Ok(done)
    }

    /// Runs a statement behind a savepoint and stays there. The contents are `None` after an error.
    pub(super) async fn enter(
        &self,
        name: &str,
        draft: &Draft,
        asked: &str,
    ) -> Result<(Answer, Option<Contents>), Fault> {
        let savepoint = format!("SAVEPOINT {name}");
        let (set, answer, contents) =
            tokio::join!(self.order(&savepoint), self.run(draft), self.contents(asked));
        set?;
        let answer = answer?;
        if matches!(answer, Answer::Error(_)) {
            self.order(&format!("ROLLBACK TO {name}")).await?;
            return Ok((answer, None));
        }
        Ok((answer, Some(contents?)))
    }

    /// Goes back to before a savepoint.
    pub(super) async fn leave(&self, name: &str) -> Result<(), Fault> {
        self.order(&format!("ROLLBACK TO {name}; RELEASE {name}")).await
    }

    /// Both together.
    pub(super) async fn probe(
        &self,
        draft: &Draft,
        asked: &str,
    ) -> Result<(Answer, Option<Contents>), Fault> {
        let (set, answer, contents, back) = tokio::join!(
            self.order("SAVEPOINT probe"),
            self.run(draft),
            self.contents(asked),
            self.leave("probe")
        );
        set?;
        back?;
        let answer = answer?;
        let contents = if matches!(answer, Answer::Error(_)) { None } else { Some(contents?) };
        Ok((answer, contents))
    }

    /// Runs a statement and waits for all of its answer.
    pub(crate) async fn run(&self, draft: &Draft) -> Result<Answer, Fault> {
        match self.rows(draft).await {
            Ok((mut rows, affected)) => {
                rows.sort();
                Ok(Answer::Rows(rows, affected))
            }
            Err(error) => match error.code() {
                Some(code) => Ok(Answer::Error(code.code().to_owned())),
                None => Err(broken(&error)),
            },
        }
    }

    async fn rows(&self, draft: &Draft) -> Result<(Vec<Vec<Option<Vec<u8>>>>, u64), Error> {
        let parameters = draft.parameters.iter().map(|bound| bound as &(dyn ToSql + Sync));
        let types = draft.parameters.iter().map(|bound| bound.declared.clone());
        let stream = if cache_audit::is_on() {
            // In the other form the reply to Describe is in front of the answer, so it is not kept.
            let types: Vec<Type> = types.collect();
            let statement = self.client.prepare_typed(&draft.text, &types).await?;
            self.client.query_raw(&statement, parameters).await?
        } else {
            self.client.query_typed_raw(&draft.text, parameters.zip(types)).await?
        };
        let mut stream = pin!(stream);
        let mut rows = Vec::new();
        while let Some(row) = stream.try_next().await? {
            let cells = (0..row.len())
                .map(|at| row.try_get::<_, Option<Cell>>(at).map(|cell| cell.map(|cell| cell.0)));
            rows.push(cells.collect::<Result<Vec<_>, _>>()?);
        }
        Ok((rows, stream.rows_affected().unwrap_or(0)))
    }

    /// The rows of an answer of texts.
    pub(crate) async fn texts(&self, sql: &str) -> Result<Vec<Vec<String>>, Fault> {
        let mut rows = Vec::new();
        for message in self.client.simple_query(sql).await.map_err(|error| broken(&error))? {
            if let SimpleQueryMessage::Row(row) = message {
                rows.push((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect());
            }
        }
        Ok(rows)
    }

    /// The answer to [`asking`].
    pub(crate) async fn contents(&self, asked: &str) -> Result<Contents, Fault> {
        let rows = self.client.query_typed(asked, &[]).await.map_err(|error| broken(&error))?;
        let mut contents = Vec::with_capacity(rows.len());
        for row in rows {
            let table: i32 = row.try_get(0).map_err(|error| broken(&error))?;
            let cells: Row = row.try_get(1).map_err(|error| broken(&error))?;
            contents.push((table.cast_unsigned(), cells));
        }
        contents.sort();
        Ok(contents)
    }
}

/// The query for the contents of all tables.
pub(crate) fn asking(catalogue: &Catalogue) -> String {
    let parts: Vec<String> = catalogue
        .tables()
        .map(|table| {
            let cells: Vec<String> =
                table.columns.iter().map(|column| format!("{}::text", column.name)).collect();
            format!(
                "SELECT {}, ARRAY[{}] FROM ONLY {}.{}",
                table.id.number,
                cells.join(", "),
                table.schema,
                table.name
            )
        })
        .collect();
    parts.join(" UNION ALL ")
}
