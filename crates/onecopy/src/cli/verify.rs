//! `onecopy verify`: has a running node compare its replicas, and prints the result.

use tokio_postgres::SimpleQueryMessage;

use super::connection;
use super::error::CommandError;
use crate::accept::startup::ADMIN_DATABASE;
use crate::terminal::Progress;

/// Prints one line for each table, and fails if any differs.
pub(crate) async fn command(port: Option<u16>, progress: &Progress) -> Result<(), CommandError> {
    let (client, connection) = connection::connect(port, Some(ADMIN_DATABASE)).await?;
    let connection = tokio::spawn(connection);
    let answer = client.simple_query("VERIFY").await.map_err(CommandError::of_answer);
    drop(client);
    connection.abort();
    let mut different = 0;
    let mut tables = 0;
    for message in answer? {
        if let SimpleQueryMessage::Row(row) = message {
            let column = |at| row.get(at).unwrap_or_default();
            let (table, version, result) = (column(0), column(1), column(2));
            tables += 1;
            different += usize::from(result != "identical");
            progress.result(format_args!("{table} at version {version}: {result}"));
        }
    }
    if different > 0 {
        return Err(CommandError::TablesDiffer { different, of: tables });
    }
    progress.result(format_args!("{tables} tables are identical on all replicas"));
    Ok(())
}
