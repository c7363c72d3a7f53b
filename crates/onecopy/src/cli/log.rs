//! `onecopy log dump` shows the log, and `onecopy log verify` checks it for damage.
//!
//! The commands read the files directly, even while a node writes them. They change nothing and need no node. Tables
//! appear as their numbers in the records. With `--port` a running node gives their names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cluster::ids::{DatabaseId, TableId, Version};
use cluster::record::{Record, Statement};
use commitlog::{Contents, Found, Inspected, RowCounts, inspect};
use pgserver::LOG_FOLDER;
use tokio_postgres::SimpleQueryMessage;

use super::connection;
use super::error::CommandError;
use super::{LogCommand, LogDump};
use crate::terminal::Progress;

/// The names of tables by their numbers. The number is the first argument of Onecopy's trigger.
const TABLES_SQL: &str = "SELECT split_part(encode(g.tgargs, 'escape'), '\\000', 1), g.tgrelid::regclass \
    FROM pg_catalog.pg_trigger g WHERE g.tgname = '!onecopy'";

type Names = BTreeMap<TableId, String>;

/// Carries out `onecopy log`.
pub(crate) async fn command(command: LogCommand, progress: &Progress) -> Result<(), CommandError> {
    match command {
        LogCommand::Verify(verify) => {
            let dir = log_folder(verify.data)?;
            verify_log(&dir, progress)
        }
        LogCommand::Dump(dump) => {
            let names = match dump.port {
                Some(port) => table_names(port).await?,
                None => Names::new(),
            };
            let dir = log_folder(dump.data.clone())?;
            dump_log(&dir, &dump, &names, progress)
        }
    }
}

/// The folder with the segments. The path may name the data folder or the log's folder.
fn log_folder(data: Option<PathBuf>) -> Result<PathBuf, CommandError> {
    let data = match data {
        Some(data) => data,
        None => pgserver::default_data_folder().map_err(CommandError::Folder)?,
    };
    let inside = data.join(LOG_FOLDER);
    if inside.is_dir() {
        return Ok(inside);
    }
    let has_segments = std::fs::read_dir(&data).is_ok_and(|mut listed| {
        listed.any(|entry| entry.is_ok_and(|entry| entry.path().extension().is_some_and(|e| e == "log")))
    });
    if has_segments {
        return Ok(data);
    }
    Err(CommandError::NoLog { folder: data })
}

fn verify_log(dir: &Path, progress: &Progress) -> Result<(), CommandError> {
    let (mut segments, mut records, mut last) = (0_u64, 0_u64, Version::ZERO);
    let mut damages = Vec::new();
    let inspected = inspect(dir, &mut |found| match found {
        Found::Record { .. } => records += 1,
        Found::Damage(damage) => damages.push(damage.to_string()),
        Found::Segment { .. } => {
            segments += 1;
            let line = segment_line(&found);
            if let Found::Segment { last: upto, .. } = found {
                last = last.max(upto);
            }
            progress.result(line);
        }
    });
    say_in_use(inspected?, progress);
    if !damages.is_empty() {
        return Err(CommandError::Damaged(damages));
    }
    progress.result(format_args!(
        "the log in {} is undamaged: {segments} segments, {records} records, up to version {last}",
        dir.display()
    ));
    Ok(())
}

fn dump_log(dir: &Path, dump: &LogDump, names: &Names, progress: &Progress) -> Result<(), CommandError> {
    let wanted = |record: &Record| {
        let header = record.header();
        header.last.0 >= dump.from && header.first.0 <= dump.upto.unwrap_or(u64::MAX)
    };
    let mut damages = 0_u64;
    let inspected = inspect(dir, &mut |found| match found {
        Found::Record { file, offset, record, contents } if wanted(record) => {
            for line in record_lines(file, offset, record, contents, names) {
                progress.result(line);
            }
        }
        Found::Damage(damage) => {
            damages += 1;
            progress.result(format_args!("DAMAGE: {damage}"));
        }
        Found::Record { .. } | Found::Segment { .. } => {}
    });
    say_in_use(inspected?, progress);
    match damages {
        0 => Ok(()),
        places => Err(CommandError::DamageShown { places }),
    }
}

fn say_in_use(inspected: Inspected, progress: &Progress) {
    if inspected.is_in_use {
        progress.say("a node has this log open and may write to its end meanwhile");
    }
}

fn segment_line(found: &Found<'_>) -> String {
    let Found::Segment { file, first, last, bytes, is_torn } = found else { return String::new() };
    let versions =
        if last < first { "no versions".to_owned() } else { format!("versions {first} to {last}") };
    let torn = if *is_torn { ", then a half-written record" } else { "" };
    format!("{}: {versions}, {bytes} bytes{torn}", file.display())
}

/// One line for the record, and one for each element.
fn record_lines(
    file: &Path,
    offset: u64,
    record: &Record,
    contents: &Contents,
    names: &Names,
) -> Vec<String> {
    let header = record.header();
    let file = file.file_name().unwrap_or_default().to_string_lossy();
    let versions = if header.first == header.last {
        format!("version {}", header.last)
    } else {
        format!("versions {} to {}", header.first, header.last)
    };
    let mut lines = vec![format!(
        "{versions}, transaction {}.{}, {} bytes at {offset} in {file}{}",
        header.identity.epoch.0,
        header.identity.n,
        record.bytes().len(),
        contents.spilled_bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes of rows beside it")),
    )];
    if contents.is_fence {
        lines.push(format!("  epoch {} begins", header.identity.epoch.0));
    }
    lines.extend(contents.rows.iter().map(|(table, counts)| rows_line(*table, *counts, names)));
    lines.extend(contents.statements.iter().map(statement_line));
    for mark in &contents.sequences {
        lines.push(format!(
            "  sequence {}: replica number {} may go to {}{}, generation {}",
            mark.id.number,
            mark.holder.0,
            mark.value,
            if mark.called { "" } else { " exclusively" },
            mark.generation
        ));
    }
    lines
}

fn rows_line(table: TableId, counts: RowCounts, names: &Names) -> String {
    let name =
        names.get(&table).map_or_else(|| format!("table {}", table.number), |name| format!("table {name}"));
    let parts = [
        (counts.truncated, "times emptied"),
        (counts.inserted, "inserted"),
        (counts.updated, "updated"),
        (counts.deleted, "deleted"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    format!("  {name}: {}", parts.join(", "))
}

fn statement_line(statement: &Statement) -> String {
    let role = if statement.role.is_empty() { "postgres" } else { &statement.role };
    // One line, so that the output can be searched line by line.
    let text: Vec<&str> = statement.text.split_whitespace().collect();
    format!("  statement as {role}: {}", text.join(" "))
}

async fn table_names(port: u16) -> Result<Names, CommandError> {
    let (client, connection) = connection::connect(Some(port), None).await?;
    let connection = tokio::spawn(connection);
    let answer = client.simple_query(TABLES_SQL).await;
    drop(client);
    connection.abort();
    let mut names = Names::new();
    for message in answer.map_err(CommandError::Answer)? {
        let SimpleQueryMessage::Row(row) = message else { continue };
        let number = row.get(0).and_then(|text| text.parse().ok());
        if let (Some(number), Some(name)) = (number, row.get(1)) {
            names.insert(DatabaseId::FIRST.table(number), name.to_owned());
        }
    }
    Ok(names)
}
