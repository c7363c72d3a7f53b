//! `onecopy explain`: what is concluded about a statement, from a file with a schema or from a running cluster.
//!
//! With a file nothing is started and nothing is asked: the schema is read as the parser reads it, and what of it was
//! not understood is told, since it may make the answer too narrow. Without one, the node is sent
//! `EXPLAIN (ROUTING) statement` and its answer is shown.

use std::path::Path;

use sql::{Catalogue, Schema, SyntaxError};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::ErrorPosition;

use super::Explain;
use super::connection;
use crate::terminal::Progress;

/// What the node is sent before the statement.
const PREFIX: &str = "EXPLAIN (ROUTING) ";

/// Prints the lines; the error has the place of the mistake, if there is one in the statement.
pub(crate) async fn command(explain: &Explain, progress: &Progress) -> Result<(), String> {
    let lines = match &explain.schema {
        Some(file) => by_schema(&explain.sql, file, progress)?,
        None => by_cluster(&explain.sql, explain.port).await?,
    };
    for line in lines {
        progress.result(line);
    }
    Ok(())
}

fn by_schema(sql: &str, file: &Path, progress: &Progress) -> Result<Vec<String>, String> {
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let schema = Schema::from_ddl(&text).map_err(|error| {
        let mistake = mistake(&text, &error.to_string(), error.position(&text, true));
        format!("{}: {mistake}", file.display())
    })?;
    for left_out in &schema.left_out {
        progress.say(format_args!(
            "{}:{}: not understood, {}: {}",
            file.display(),
            left_out.line,
            left_out.why,
            left_out.statement
        ));
    }
    conclude(sql, &schema.catalogue())
}

fn conclude(sql: &str, catalogue: &Catalogue) -> Result<Vec<String>, String> {
    let told = |error: SyntaxError| mistake(sql, &error.to_string(), error.position(sql, true));
    sql::explain(sql, true, catalogue, true).map_err(told)
}

async fn by_cluster(sql: &str, port: Option<u16>) -> Result<Vec<String>, String> {
    let (client, connection) = connection::connect(port, None)
        .await
        .map_err(|error| format!("{error}\nName a file of CREATE statements with --schema."))?;
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
            mistake(sql, refused.message(), place)
        }
        None => error.to_string(),
    })?;
    let lines = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
        _ => None,
    });
    Ok(lines.collect())
}

/// An error with the line it is in and a mark under its place, as psql shows it.
fn mistake(text: &str, message: &str, at: Option<usize>) -> String {
    let Some(at) = at.filter(|&at| text.is_char_boundary(at)) else { return message.to_owned() };
    let number = 1 + text[..at].matches('\n').count();
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    let label = format!("LINE {number}: ");
    let column = label.len() + text[start..at].chars().count();
    format!("{message}\n{label}{}\n{}^", &text[start..end], " ".repeat(column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_shown_where_it_is() {
        let error = conclude("SELECT 1,\n  * FORM t", &Catalogue::default()).unwrap_err();
        assert_eq!(error, "syntax error at or near \"FORM\"\nLINE 2:   * FORM t\n            ^");
        assert_eq!(mistake("abc", "x", None), "x");
        assert_eq!(mistake("abc", "x", Some(3)), "x\nLINE 1: abc\n           ^");
    }
}
