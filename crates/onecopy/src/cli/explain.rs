//! `onecopy explain`: the analysis of a statement, from a file with a schema or from a running cluster.
//!
//! With a file, the command needs no node. It reports every definition that it did not understand, because the answer
//! may be too narrow then. Without a file, it sends `EXPLAIN (ROUTING) statement` to the node and prints the answer.

use std::path::Path;

use sql::{Catalogue, SyntaxError};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::ErrorPosition;

use super::Explain;
use super::connection;
use super::error::{CommandError, ErrorInText};
use super::schema::read_schema;
use crate::terminal::Progress;

/// Sent before the statement.
const PREFIX: &str = "EXPLAIN (ROUTING) ";

/// Prints the analysis. An error shows its position in the statement, if it has one.
pub(crate) async fn command(explain: &Explain, progress: &Progress) -> Result<(), CommandError> {
    let lines = match &explain.schema {
        Some(file) => by_schema(&explain.sql, file, progress)?,
        None => by_cluster(&explain.sql, explain.port).await?,
    };
    for line in lines {
        progress.result(line);
    }
    Ok(())
}

fn by_schema(sql: &str, file: &Path, progress: &Progress) -> Result<Vec<String>, CommandError> {
    conclude(sql, &read_schema(file, progress)?)
}

fn conclude(sql: &str, catalogue: &Catalogue) -> Result<Vec<String>, CommandError> {
    sql::explain(sql, true, catalogue, true).map_err(|error: SyntaxError| {
        CommandError::Statement(ErrorInText::new(sql, error.to_string(), error.position(sql, true)))
    })
}

async fn by_cluster(sql: &str, port: Option<u16>) -> Result<Vec<String>, CommandError> {
    let (client, connection) = connection::connect(port, None).await.map_err(CommandError::NoSchema)?;
    let connection = tokio::spawn(connection);
    let answer = client.simple_query(&format!("{PREFIX}{sql}")).await;
    drop(client);
    connection.abort();
    let answer = answer.map_err(|error| match error.as_db_error() {
        Some(refused) => {
            let place = match refused.position() {
                Some(ErrorPosition::Original(at)) => usize::try_from(*at).ok(),
                _ => None,
            };
            // The server counts characters from 1.
            let place = place.and_then(|at| at.checked_sub(1 + PREFIX.len()));
            let place =
                place.and_then(|at| sql.char_indices().map(|(byte, _)| byte).chain([sql.len()]).nth(at));
            CommandError::Statement(ErrorInText::new(sql, refused.message(), place))
        }
        None => CommandError::Answer(error),
    })?;
    let lines = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
        _ => None,
    });
    Ok(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_shown_where_it_is() {
        let error = conclude("SELECT 1,\n  * FORM t", &Catalogue::default()).unwrap_err().to_string();
        assert_eq!(error, "syntax error at or near \"FORM\"\nLINE 2:   * FORM t\n            ^");
        assert_eq!(ErrorInText::new("abc", "x", None).to_string(), "x");
        assert_eq!(ErrorInText::new("abc", "x", Some(3)).to_string(), "x\nLINE 1: abc\n           ^");
    }
}
