//! Filling tables: COPY in transactions of a bounded number of rows, whatever is on the other side.

use std::pin::pin;

use bytes::Bytes;
use futures_util::SinkExt as _;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;

/// How many rows are copied in one transaction.
const ROWS_MAX: usize = 20_000;
/// How many bytes are sent at a time.
const PIECE_BYTES: usize = 64 << 10;

/// How a database is filled: through whom, with what, and who hears of it.
pub(crate) struct Fill<'a> {
    /// A connection to where everything may go.
    pub(crate) client: tokio_postgres::Client,
    /// From which the rows are drawn.
    pub(crate) seed: u64,
    /// Hears what goes on.
    pub(crate) news: &'a dyn Fn(&str),
    /// Whether it is to end.
    pub(crate) interrupt: &'a Interrupt,
}

impl Fill<'_> {
    /// Runs statements that have no rows.
    pub(crate) async fn say(&self, sql: &str) -> Result<(), Fault> {
        self.client.batch_execute(sql).await.map_err(|error| refused(sql, &error))
    }

    /// Fills a table, named with its columns, with lines in COPY's text format.
    pub(crate) async fn copy(&self, table: &str, rows: impl Iterator<Item = String>) -> Result<u64, Fault> {
        (self.news)(&format!("filling {}", table.split(' ').next().unwrap_or(table)));
        let mut rows = rows.peekable();
        let mut copied = 0;
        while rows.peek().is_some() {
            self.interrupt.check()?;
            copied += self.copy_some(table, &mut rows).await?;
        }
        Ok(copied)
    }

    async fn copy_some(&self, table: &str, rows: &mut impl Iterator<Item = String>) -> Result<u64, Fault> {
        let copy = format!("COPY {table} FROM STDIN");
        let fault = |error: tokio_postgres::Error| refused(&copy, &error);
        let sink = self.client.copy_in::<_, Bytes>(&copy).await.map_err(fault)?;
        let mut sink = pin!(sink);
        let mut piece = String::with_capacity(PIECE_BYTES * 2);
        for row in rows.take(ROWS_MAX) {
            piece.push_str(&row);
            piece.push('\n');
            if piece.len() >= PIECE_BYTES {
                sink.send(Bytes::from(std::mem::take(&mut piece))).await.map_err(fault)?;
            }
        }
        sink.send(Bytes::from(piece)).await.map_err(fault)?;
        sink.finish().await.map_err(fault)
    }
}

fn refused(what: &str, error: &tokio_postgres::Error) -> Fault {
    let said = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
    let what: String = what.chars().take(80).collect();
    Fault::Database(format!("`{what}`: {said}"))
}
