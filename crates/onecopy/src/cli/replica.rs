//! `onecopy replica`: commands for the replicas of a running node.
//!
//! It sends a command of the admin database and prints the answer as a table. Notices (the progress of a rebuild)
//! appear at once.

use std::future::poll_fn;
use std::pin::pin;

use tokio_postgres::{AsyncMessage, SimpleQueryMessage};

use super::connection;
use super::error::CommandError;
use super::{Replica, ReplicaAction};
use crate::accept::startup::ADMIN_DATABASE;
use crate::membership::check;
use crate::terminal::Progress;

/// The column of a check that has the result for a replica.
const CHECK_RESULT: usize = 2;
/// The result of a healthy replica.
const HEALTHY: &str = "identical";

/// Carries out `onecopy replica`.
pub(crate) async fn command(replica: &Replica, progress: &Progress) -> Result<(), CommandError> {
    let sql = match &replica.action {
        ReplicaAction::List => "SHOW REPLICAS".to_owned(),
        ReplicaAction::Check => "CHECK REPLICAS".to_owned(),
        ReplicaAction::Rebuild { name } => format!("REBUILD REPLICA {name}"),
        ReplicaAction::Add { url: None } => "ADD REPLICA".to_owned(),
        ReplicaAction::Add { url: Some(url) } => format!("ADD REPLICA '{url}'"),
        ReplicaAction::Drop { name } => format!("DROP REPLICA {name}"),
        ReplicaAction::Drain { name } => format!("DRAIN REPLICA {name}"),
        ReplicaAction::Undrain { name } => format!("UNDRAIN REPLICA {name}"),
        ReplicaAction::Park { name } => format!("PARK REPLICA {name}"),
        ReplicaAction::Wake { name } => format!("WAKE REPLICA {name}"),
    };
    let rows = ask(replica.port, &sql, progress).await?;
    for line in aligned(&rows) {
        progress.result(line);
    }
    if !matches!(replica.action, ReplicaAction::Check) {
        return Ok(());
    }
    let is_unlike = |row: &&Vec<String>| {
        row.get(CHECK_RESULT).is_none_or(|result| result != HEALTHY && result != check::PARKED)
    };
    match rows.iter().skip(1).filter(is_unlike).count() {
        0 => Ok(()),
        count => Err(CommandError::ReplicasDiffer { count }),
    }
}

/// The column names and rows of the answer. Prints notices at once.
pub(super) async fn ask(
    port: Option<u16>,
    sql: &str,
    progress: &Progress,
) -> Result<Vec<Vec<String>>, CommandError> {
    let (client, mut connection) = connection::connect(port, Some(ADMIN_DATABASE)).await?;
    let mut answer = pin!(client.simple_query(sql));
    let answer = loop {
        tokio::select! {
            answer = &mut answer => break answer,
            message = poll_fn(|context| connection.poll_message(context)) => match message {
                Some(Ok(AsyncMessage::Notice(notice))) => progress.say(notice.message()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(CommandError::Lost(error)),
                None => return Err(CommandError::Closed),
            },
        }
    };
    let answer = answer.map_err(CommandError::of_answer)?;
    let mut rows = Vec::new();
    for message in answer {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                rows.push(columns.iter().map(|column| column.name().to_owned()).collect());
            }
            SimpleQueryMessage::Row(row) => {
                let values = (0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned());
                rows.push(values.collect());
            }
            _ => {}
        }
    }
    Ok(rows)
}

/// Formats rows as lines with aligned columns.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|v| v.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded: Vec<String> =
            row.iter().zip(&widths).map(|(value, width)| format!("{value:width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [["name", "state", ""], ["replica-1", "up", "x"]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|v| (*v).to_owned()).collect()).collect();
        assert_eq!(aligned(&rows), ["name       state", "replica-1  up     x"]);
    }
}
