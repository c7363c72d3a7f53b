//! `onecopy top`: the work of a running node, refreshed every few seconds.
//!
//! All data comes from SHOW in the admin database. Rates are the increase of counters between two snapshots. So it
//! sees what any client with the right to SHOW can see, and costs the node almost nothing.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use tokio_postgres::{Client, SimpleQueryMessage};

use super::Top;
use super::connection;
use super::error::CommandError;
use super::replica::aligned;
use crate::accept::startup::ADMIN_DATABASE;
use crate::terminal::Progress;

/// Shows at most this many tables with lock waits.
const TABLES_MAX: usize = 8;
/// Clears the screen and moves the cursor to the top.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// A row by the names of its columns.
type Row = BTreeMap<String, String>;

/// The answers at one moment.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    replicas: Vec<Row>,
    conflicts: Vec<Row>,
    transactions: Vec<Row>,
    pools: Vec<Row>,
}

/// Prints snapshots until the node ends or the user interrupts.
pub(crate) async fn command(top: &Top, progress: &Progress) -> Result<(), CommandError> {
    let (client, connection) = connection::connect(top.port, Some(ADMIN_DATABASE)).await?;
    let connection = tokio::spawn(connection);
    let every = Duration::from_secs(top.every.into());
    let (mut last, mut at) = (look(&client).await?, Instant::now());
    let mut left = top.count;
    while left != Some(0) {
        tokio::time::sleep(every).await;
        let (now, then) = (look(&client).await?, Instant::now());
        let frame = frame(&last, &now, (then - at).as_secs_f64());
        if std::io::stdout().is_terminal() {
            progress.result(format_args!("{CLEAR}{frame}"));
        } else {
            progress.result(format_args!("{frame}\n"));
        }
        (last, at) = (now, then);
        left = left.map(|left| left - 1);
    }
    drop(client);
    connection.abort();
    Ok(())
}

async fn look(client: &Client) -> Result<Snapshot, CommandError> {
    let show = async |what: &str| {
        let answer = client.simple_query(&format!("SHOW {what}")).await;
        let answer = answer.map_err(CommandError::NoAnswer)?;
        let row = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                let columns = row.columns().iter().enumerate();
                let text = |at| row.get(at).unwrap_or_default().to_owned();
                Some(columns.map(|(at, column)| (column.name().to_owned(), text(at))).collect())
            }
            _ => None,
        };
        Ok::<Vec<Row>, CommandError>(answer.iter().filter_map(row).collect())
    };
    Ok(Snapshot {
        replicas: show("REPLICAS").await?,
        conflicts: show("CONFLICTS").await?,
        transactions: show("TRANSACTIONS").await?,
        pools: show("POOLS").await?,
    })
}

fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    row.get(column).map_or("", String::as_str)
}

/// A counter; 0 if the column is missing or no number.
fn number(row: &Row, column: &str) -> u64 {
    text(row, column).parse().unwrap_or_default()
}

/// Increase of a counter per second, in the row with this key.
fn rate(before: &[Row], row: &Row, key: &str, column: &str, seconds: f64) -> f64 {
    let same = before.iter().find(|other| text(other, key) == text(row, key));
    let risen = number(row, column).saturating_sub(same.map_or(0, |other| number(other, column)));
    risen as f64 / seconds.max(f64::EPSILON)
}

fn frame(before: &Snapshot, now: &Snapshot, seconds: f64) -> String {
    let version =
        |look: &Snapshot| look.replicas.iter().map(|row| number(row, "applied")).max().unwrap_or_default();
    let sum = |column: &str| now.pools.iter().map(|row| number(row, column)).sum::<u64>();
    let pace = version(now).saturating_sub(version(before)) as f64 / seconds.max(f64::EPSILON);
    let mut lines = vec![
        format!(
            "version {} ({pace:.0}/s), {} clients active, {} waiting, {} update transactions open",
            version(now),
            sum("cl_active"),
            sum("cl_waiting"),
            now.transactions.len()
        ),
        String::new(),
    ];
    let mut table = vec![
        ["replica", "state", "role", "lag", "reads/s", "writes/s", "load", "detail"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for row in &now.replicas {
        let rate = |column| format!("{:.0}", rate(&before.replicas, row, "name", column, seconds));
        let own = |column| text(row, column).to_owned();
        let (reads, writes) = (rate("reads"), rate("writes"));
        table.push(vec![
            own("name"),
            own("state"),
            own("role"),
            own("lag_versions"),
            reads,
            writes,
            own("load"),
            own("detail"),
        ]);
    }
    lines.extend(aligned(&table));
    let mut table =
        vec![["waited for", "waits/s", "ms/s", "aborts/s", "deadlocks/s"].map(str::to_owned).to_vec()];
    for row in now.conflicts.iter().take(TABLES_MAX) {
        let rate = |column| format!("{:.1}", rate(&before.conflicts, row, "table", column, seconds));
        let rates = ["waits", "wait_ms", "aborts", "deadlocks"].map(rate);
        if rates.iter().any(|rate| rate != "0.0") {
            table.push([&[text(row, "table").to_owned()], rates.as_slice()].concat());
        }
    }
    if table.len() > 1 {
        lines.push(String::new());
        lines.extend(aligned(&table));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[(&str, &str)]) -> Row {
        columns.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_frame_has_what_rose_between_two_looks() {
        let replica = |reads, applied| {
            row(&[
                ("name", "a"),
                ("state", "up"),
                ("role", "anchor"),
                ("lag_versions", "3"),
                ("reads", reads),
                ("writes", "5"),
                ("applied", applied),
            ])
        };
        let conflict = |table, waits| row(&[("table", table), ("waits", waits), ("wait_ms", "7")]);
        let look = |reads, applied, waits| Snapshot {
            replicas: vec![replica(reads, applied)],
            conflicts: vec![conflict("shop.item", waits), conflict("quiet", "4")],
            transactions: vec![Row::new()],
            pools: vec![row(&[("cl_active", "6"), ("cl_waiting", "1")]), row(&[("cl_active", "2")])],
        };
        let shown = frame(&look("100", "40", "2"), &look("300", "60", "5"), 2.0);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "version 60 (10/s), 8 clients active, 1 waiting, 1 update transactions open");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[3]), "a up anchor 3 100 0");
        assert_eq!(words(lines[6]), "shop.item 1.5 0.0 0.0 0.0");
        assert!(!shown.contains("quiet"), "{shown}");
    }
}
