//! Rows from one server into another, by COPY.

use std::fmt;

use wire::backend::tag;
use wire::{encode, frame};

use crate::backend::{BackendError, Connection, OwnConnection};
use crate::capture::quoting::{literal, quoted};
use crate::coordinator::resync_progress::Transfer;

/// The number of bytes that are collected before they are sent on.
const CHUNK_BYTES: usize = 64 << 10;

/// The table where rows wait that are to be written in a sandbox.
const STAGE: &str = "onecopy_stage";

/// Suspends CHECKs until `resume_checks`, in a database without clients: the rows have passed them already.
pub(super) const SUSPEND_CHECKS: &str = "UPDATE pg_constraint SET contype = '-' WHERE contypid <> 0 AND contype = 'c'; \
    UPDATE pg_class SET relchecks = 0 WHERE relchecks > 0";

/// The tables that hold rows: names, stored columns (no computed ones), how to read these if as text, sizes, and the
/// fields of [`Sandbox`]. As in records, text is for types that do not receive all that they send.
const TABLES: &str = "SELECT n.nspname, c.relname, (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) \
    FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''), \
    CASE WHEN EXISTS (SELECT FROM onecopy_capture.carried_types(ARRAY[c.oid])) THEN (SELECT string_agg(quote_ident(a.attname) \
        || CASE WHEN onecopy_capture.is_xml(a.atttypid) THEN '::text' ELSE '' END, ', ' ORDER BY a.attnum) \
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '') END, \
    pg_table_size(c.oid), f.stage, f.statement, f.path \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    LEFT JOIN onecopy_capture.filling(ARRAY(SELECT oid FROM pg_class WHERE relkind = 'r' AND oid >= 16384)) AS f ON f.relation = c.oid \
    WHERE c.relkind = 'r' AND c.relpersistence <> 't' \
    AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'onecopy', 'onecopy_capture') ORDER BY 1, 2";

/// Tables whose files are not those of the snapshot. They were rewritten since, and look empty in it.
const REWRITTEN: &str = "SELECT c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND c.relfilenode <> 0 \
    AND n.nspname NOT IN ('pg_catalog', 'information_schema') \
    AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid) LIMIT 1";

/// A table to be copied.
#[derive(Debug)]
pub(super) struct Table {
    name: String,
    /// The columns that are copied.
    columns: String,
    /// How they are read, if as text.
    as_text: Option<String>,
    bytes: u64,
    /// The rows that are copied, if not all.
    condition: Option<String>,
    /// Set if writing its rows calls code of users.
    sandbox: Option<Sandbox>,
}

/// How a table is filled in the sandbox of its owner (`sandbox.sql`), by way of a staging table of harmless types.
#[derive(Debug)]
struct Sandbox {
    /// The columns of the staging table.
    stage: String,
    statement: String,
    /// The search path of the code.
    path: String,
}

impl Table {
    /// Schema and name, in quotes.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Only rows are copied of which this is true.
    pub(super) fn restrict(&mut self, condition: Option<String>) {
        self.condition = condition;
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Why rows were not copied.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The donor ended the copy, or was lost.
    Donor(BackendError),
    /// The target rejected the rows, or was lost.
    Target(BackendError),
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Donor(error) => write!(
                f,
                "{error}, at the replica that is copied (a TRUNCATE or schema change may have been in wait for longer than \
                 reader_patience)"
            ),
            Self::Target(error) => write!(f, "{error}, at the server that is filled"),
        }
    }
}

/// Locks all tables against being rewritten or changed. Returns `None` if one was since the snapshot.
pub(super) async fn lock(connection: &mut OwnConnection) -> Result<Option<Vec<Table>>, BackendError> {
    const SHAPE: BackendError = BackendError::Protocol("an answer about tables of an unexpected shape");
    let mut tables = Vec::new();
    for row in connection.query(TABLES).await? {
        let [Some(schema), Some(name), columns, as_text, bytes, stage, statement, path] = row.as_slice()
        else {
            return Err(SHAPE);
        };
        let sandbox = match (stage, statement, path) {
            (Some(stage), Some(statement), Some(path)) => {
                Some(Sandbox { stage: stage.clone(), statement: statement.clone(), path: path.clone() })
            }
            _ => None,
        };
        let name = format!("{}.{}", quoted(schema), quoted(name));
        let bytes = bytes.as_deref().and_then(|bytes| bytes.parse().ok()).unwrap_or_default();
        let columns = columns.clone().unwrap_or_default();
        tables.push(Table { name, columns, as_text: as_text.clone(), bytes, condition: None, sandbox });
    }
    let names: Vec<String> = tables.iter().map(|table| format!("ONLY {}", table.name)).collect();
    if !names.is_empty() {
        connection.query(&format!("LOCK TABLE {} IN ACCESS SHARE MODE", names.join(", "))).await?;
    }
    let rewritten = connection.query(REWRITTEN).await?;
    Ok(rewritten.is_empty().then_some(tables))
}

/// The approximate size of all tables.
pub(super) fn total_bytes(tables: &[Table]) -> u64 {
    tables.iter().map(|table| table.bytes).sum()
}

/// Copies one table, or some rows of it. Rows that an extension has put there are replaced.
pub(super) async fn copy(
    donor: &mut OwnConnection,
    target: &mut OwnConnection,
    table: &Table,
    transfer: &Transfer,
) -> Result<(), CopyError> {
    let Table { name, columns, as_text, condition, sandbox, .. } = table;
    let only = condition.as_ref().map_or_else(String::new, |condition| format!(" WHERE {condition}"));
    target.query(&format!("BEGIN; DELETE FROM ONLY {name}{only}")).await.map_err(CopyError::Target)?;
    // A column list may not be empty. A table without columns to copy gets no list, and sends rows without columns.
    let list = if columns.is_empty() { String::new() } else { format!(" ({columns})") };
    let into = match sandbox {
        Some(sandbox) => {
            let sql = format!("CREATE TEMP TABLE {STAGE} ({}) ON COMMIT DROP", sandbox.stage);
            target.query(&sql).await.map_err(CopyError::Target)?;
            format!("pg_temp.{STAGE}")
        }
        None => format!("{name}{list}"),
    };
    let (from, into) = match (as_text, condition) {
        (Some(read), _) => (
            format!("COPY (SELECT {read} FROM ONLY {name}{only}) TO STDOUT"),
            format!("COPY {into} FROM STDIN"),
        ),
        (None, Some(_)) => (
            format!("COPY (SELECT {columns} FROM ONLY {name}{only}) TO STDOUT (FORMAT binary)"),
            format!("COPY {into} FROM STDIN (FORMAT binary)"),
        ),
        (None, None) => (
            format!("COPY {name}{list} TO STDOUT (FORMAT binary)"),
            format!("COPY {into} FROM STDIN (FORMAT binary)"),
        ),
    };
    pipe(donor, &from, target, &into, transfer).await?;
    if let Some(sandbox) = sandbox {
        unstage(target, name, sandbox).await.map_err(CopyError::Target)?;
    }
    target.query("COMMIT").await.map_err(CopyError::Target)?;
    Ok(())
}

/// Turns the staged rows into rows of the table, as its owner.
async fn unstage(target: &mut OwnConnection, name: &str, sandbox: &Sandbox) -> Result<(), BackendError> {
    let [table, path, statement] = [name, &sandbox.path, &sandbox.statement].map(literal);
    target
        .query(&format!(
            "SELECT onecopy_capture.sandbox_of(relowner) FROM pg_class WHERE oid = {table}::regclass; \
             DECLARE \"onecopy rows\" NO SCROLL CURSOR FOR SELECT * FROM pg_temp.{STAGE}; \
             SELECT onecopy_capture.work_as_owner({table}, {path}, {statement}, (SELECT count(*) FROM pg_temp.{STAGE})); \
             CLOSE \"onecopy rows\""
        ))
        .await?;
    Ok(())
}

/// Pipes the rows of one COPY into another.
pub(super) async fn pipe(
    donor: &mut OwnConnection,
    from: &str,
    target: &mut OwnConnection,
    into: &str,
    transfer: &Transfer,
) -> Result<(), CopyError> {
    let (donor, target) = (donor.exchange(), target.exchange());
    encode::query(&mut target.output, into.as_bytes());
    target.flush().await.map_err(|error| CopyError::Target(error.into()))?;
    loop {
        let (kind, total) = target.message().await.map_err(CopyError::Target)?;
        if kind == tag::ERROR_RESPONSE {
            let refused = target.drain().await.err();
            let refused = refused.unwrap_or(BackendError::Protocol("an error that is none"));
            return Err(CopyError::Target(refused));
        }
        target.input.consume(total);
        if kind == tag::COPY_IN_RESPONSE {
            break;
        }
    }
    encode::query(&mut donor.output, from.as_bytes());
    donor.flush().await.map_err(|error| CopyError::Donor(error.into()))?;
    let sent = send_on(donor, target, transfer).await;
    match &sent {
        Err(CopyError::Donor(_)) => encode::copy_fail(&mut target.output, "the donor has ended it"),
        _ => encode::copy_done(&mut target.output),
    }
    target.flush().await.map_err(|error| CopyError::Target(error.into()))?;
    let taken = target.drain().await;
    sent?;
    taken.map(|_| ()).map_err(CopyError::Target)
}

/// Sends messages with rows on as they are, up to the end of the donor's answer.
async fn send_on(
    donor: &mut Connection,
    target: &mut Connection,
    transfer: &Transfer,
) -> Result<(), CopyError> {
    let mut refused = None;
    loop {
        let (kind, total) = donor.message().await.map_err(CopyError::Donor)?;
        match kind {
            tag::COPY_DATA => {
                target.output.extend_from_slice(&donor.input.data()[..total]);
                transfer.add((total - frame::HEADER_BYTES) as u64);
            }
            tag::ERROR_RESPONSE if refused.is_none() => {
                let body = donor.input.data()[frame::HEADER_BYTES..total].to_vec();
                refused = Some(BackendError::Server(body));
            }
            _ => {}
        }
        donor.input.consume(total);
        if target.output.len() > CHUNK_BYTES {
            target.flush().await.map_err(|error| CopyError::Target(error.into()))?;
        }
        if kind == tag::READY_FOR_QUERY {
            return refused.map_or(Ok(()), |error| Err(CopyError::Donor(error)));
        }
    }
}
