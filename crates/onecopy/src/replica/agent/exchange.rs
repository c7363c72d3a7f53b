//! A pipeline of steps: written and read at the same time.
//!
//! The server answers while we still write to it. A writer that reads only at the end would fill both sockets' buffers,
//! and both sides would wait for ever. Messages are made a chunk at a time, so a large batch is not held twice.
//!
//! A pipeline is one transaction up to its Sync, so it needs no BEGIN and COMMIT unless more follows in the same
//! transaction. We ask for the replies first (Flush). If all of them are as they must be, we send the Sync, which
//! commits. Otherwise a statement that cannot be parsed goes before the Sync, and the server rolls everything back.

use std::collections::{BTreeSet, VecDeque};

use cluster::ids::TableId;
use cluster::refresh::{
    Kind, RefreshError, RefreshTable, RefreshTables, RowImages, StatementKey, Step, Value, copy_footer,
    copy_header, copy_row, unnested,
};
use commitlog::LogError;
use wire::backend::{command_tag, tag};
use wire::encode::{self, Format};
use wire::frame;
use wire::frontend::Target;

use crate::backend::{BackendError, OwnConnection};
use crate::capture::quoting::literal;

/// Messages are made until this much waits to be written.
const CHUNK_BYTES: usize = 64 * 1024;

/// Where our own statements find things.
const OWN_PATH: &str = "pg_catalog, pg_temp";

/// The portal with the rows of a statement in a sandbox (`onecopy.staged`).
const ROWS_PORTAL: &[u8] = b"onecopy rows";

/// Runs a statement in a sandbox.
const WORK_SQL: &str = "SELECT onecopy_capture.work_as_owner($1, $2, $3, $4)";
const WORK_NAME: &[u8] = b"work as owner";

/// The SQLSTATE of a statement in a sandbox that affected another number of rows than it must.
pub(super) const OTHER_COUNT: &[u8] = b"OC002";

/// With more prepared statements than this, all are prepared anew. Each takes some 10 kB of the server's memory.
const PREPARED_MAX: usize = 2_000;

/// Why a pipeline failed. The server is idle again unless the connection is lost.
#[derive(Debug)]
pub(super) enum PipelineError {
    /// The connection is lost.
    Lost(BackendError),
    /// The server refused something: the body of its error.
    Server(Vec<u8>),
    /// A statement affected another number of rows than it must.
    Rows { what: String, expected: u64, found: u64 },
    /// A record does not fit the tables.
    Refresh(RefreshError),
    /// The rows of a record cannot be read from the log.
    Log(LogError),
}

impl From<std::io::Error> for PipelineError {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error.into())
    }
}

impl From<LogError> for PipelineError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<BackendError> for PipelineError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Server(body) => Self::Server(body),
            lost => Self::Lost(lost),
        }
    }
}

/// The statements that are prepared on the applier's connection.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// Begins a transaction block.
    pub(super) begin: bool,
    /// Statements that insert exactly so many identities.
    pub(super) identities: BTreeSet<usize>,
    /// Runs a statement in a sandbox.
    work: bool,
    rows: BTreeSet<StatementKey>,
}

impl Prepared {
    /// Whether there are more than a server should keep. Their number is that of tables, times sets of columns that
    /// change together, times numbers of rows.
    pub(super) fn are_many(&self) -> bool {
        self.rows.len() > PREPARED_MAX
    }
}

/// The end of the transaction of a pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The transaction block stays open. After any failure it must be rolled back.
    Open,
    /// The transaction is committed as a whole.
    Committed,
}

/// How much of a pipeline is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    /// Some steps are not written yet.
    Some,
    /// All steps are written. Their replies are still to come.
    Steps,
    /// Everything is written, including the Sync.
    Everything,
}

/// The number of rows that a command must report.
#[derive(Debug)]
struct Expected {
    statement: Option<StatementKey>,
    rows: Option<u64>,
}

/// Makes messages out of steps.
struct Feed<'a> {
    tables: &'a RefreshTables,
    prepared: &'a mut Prepared,
    steps: VecDeque<Step<'a>>,
    /// The search path of the statements that come next, if it is not ours.
    path: Option<&'a str>,
    /// A COPY that is under way: its table and the rows that are left.
    copying: Option<(StatementKey, VecDeque<&'a [u8]>)>,
    expected: VecDeque<Expected>,
    trouble: Option<PipelineError>,
    outcome: Outcome,
    said: Said,
}

/// Runs the messages that are already in the connection's output, then the steps, up to a Sync. Of those messages,
/// `before` commands complete.
pub(super) async fn run(
    connection: &mut OwnConnection,
    tables: &RefreshTables,
    prepared: &mut Prepared,
    steps: Vec<Step<'_>>,
    before: &[Option<u64>],
    outcome: Outcome,
) -> Result<(), PipelineError> {
    let expected = before.iter().map(|&rows| Expected { statement: None, rows }).collect();
    let (steps, said) = (steps.into(), Said::Some);
    let mut feed =
        Feed { tables, prepared, steps, path: None, copying: None, expected, trouble: None, outcome, said };
    let connection = connection.exchange();
    loop {
        let input = &mut connection.input;
        while let Some((tag, total)) = frame::header(input.data()).map_err(BackendError::from)?
            && input.data().len() >= total
        {
            feed.reply(tag, &input.data()[frame::HEADER_BYTES..total]);
            input.consume(total);
            if tag == tag::READY_FOR_QUERY {
                return feed.trouble.map_or(Ok(()), Err);
            }
        }
        if !connection.has_output() {
            feed.fill(&mut connection.output);
        }
        connection.advance().await?;
    }
}

impl<'a> Feed<'a> {
    /// Adds messages until a chunk is full or everything is written.
    fn fill(&mut self, out: &mut Vec<u8>) {
        while out.len() < CHUNK_BYTES && self.said == Said::Some {
            if let Err(error) = self.next(out) {
                if self.copying.is_some() {
                    encode::copy_fail(out, "refused");
                }
                self.trouble = Some(PipelineError::Refresh(error));
                self.end(out);
            }
        }
        if self.said == Said::Steps && (self.trouble.is_some() || self.expected.is_empty()) {
            self.end(out);
        }
    }

    /// Writes the end of the pipeline. After trouble the server is made to fail, too, so it keeps none of the changes.
    fn end(&mut self, out: &mut Vec<u8>) {
        if self.trouble.is_some() {
            encode::parse(out, b"", b"refused", &[]);
        }
        encode::sync(out);
        self.said = Said::Everything;
    }

    fn next(&mut self, out: &mut Vec<u8>) -> Result<(), RefreshError> {
        if self.copying.is_some() {
            return self.copy_more(out);
        }
        match self.steps.pop_front() {
            None => {
                if self.outcome == Outcome::Committed {
                    encode::flush(out);
                    self.said = Said::Steps;
                } else {
                    self.find_code_in(None, out);
                    self.end(out);
                }
                Ok(())
            }
            Some(Step::Execute { statement, rows }) => self.row_statement(statement, &rows, out),
            Some(Step::CopyIn { table, rows }) => self.copy_begin(table, rows.into(), out),
            Some(Step::Truncate { tables }) => {
                let names = tables
                    .iter()
                    .map(|&id| self.tables.table(id).map(|table| format!("ONLY {}", table.name)))
                    .collect::<Result<Vec<_>, _>>()?;
                // CASCADE includes the partitioned parents of the named tables. The same statement has emptied at home
                // all other tables that CASCADE could reach.
                self.plain(out, &format!("TRUNCATE {} CASCADE", names.join(", ")));
                Ok(())
            }
            Some(Step::Sequence(sequence)) => {
                self.plain(out, &format!("SELECT {}", crate::capture::sequences::move_call(&sequence)));
                Ok(())
            }
        }
    }

    fn row_statement(
        &mut self,
        statement: StatementKey,
        rows: &[RowImages<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), RefreshError> {
        let table = self.tables.table(statement.table)?;
        let sandboxed = table.sandboxed_sql(statement.kind);
        if sandboxed.is_none() {
            self.find_code_in(table.code_path.as_deref(), out);
        }
        self.prepare(statement, out)?;
        let name = name(statement);
        let together = statement.kind.is_unnesting() || statement.kind.is_few();
        let count = if together { rows.len() } else { 1 };
        for rows in rows.chunks(count.max(1)) {
            let portal = if sandboxed.is_some() { ROWS_PORTAL } else { b"" };
            if statement.kind.is_unnesting() {
                let arrays = unnested(table, statement.kind, rows)?;
                let values: Vec<_> = arrays.iter().map(|array| Some(array.as_slice())).collect();
                encode::bind(out, portal, name.as_bytes(), &values, Format::Binary);
            } else {
                let values: Result<Vec<_>, _> =
                    rows.iter().map(|row| row.values(table, statement.kind)).collect();
                bind(out, portal, &name, &values?.concat());
            }
            match &sandboxed {
                Some(sql) => self.work_as_owner(table, sql, rows.len(), out),
                None => self.execute(out, statement, rows.len() as u64),
            }
        }
        Ok(())
    }

    /// Runs a statement in the sandbox of the table's owner, on the rows of the portal.
    fn work_as_owner(&mut self, table: &RefreshTable, sql: &str, rows: usize, out: &mut Vec<u8>) {
        if !self.prepared.work {
            encode::parse(out, WORK_NAME, WORK_SQL.as_bytes(), &[]);
            self.prepared.work = true;
        }
        let (path, rows) = (table.code_path.as_deref().unwrap_or(OWN_PATH), rows.to_string());
        let values = [&table.name, path, sql, &rows].map(|value| Some(value.as_bytes()));
        encode::bind(out, b"", WORK_NAME, &values, Format::Text);
        encode::execute(out, b"", 0);
        encode::close(out, Target::Portal(ROWS_PORTAL));
        self.expected.push_back(Expected { statement: None, rows: None });
    }

    fn copy_begin(
        &mut self,
        table: TableId,
        rows: VecDeque<&'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), RefreshError> {
        let statement = StatementKey { table, kind: Kind::CopyIn };
        self.find_code_in(self.tables.table(table)?.code_path.as_deref(), out);
        let sql = self.tables.table(table)?.sql(Kind::CopyIn);
        encode::parse(out, b"", sql.text.as_bytes(), &[]);
        encode::bind(out, b"", b"", &[], Format::Text);
        self.execute(out, statement, rows.len() as u64);
        let mut header = Vec::new();
        copy_header(&mut header);
        encode::copy_data(out, &header);
        self.copying = Some((statement, rows));
        Ok(())
    }

    /// Adds a chunk of the COPY that is under way, and its end after the last row.
    fn copy_more(&mut self, out: &mut Vec<u8>) -> Result<(), RefreshError> {
        let Some((statement, rows)) = &mut self.copying else { return Ok(()) };
        let table = self.tables.table(statement.table)?;
        let mut bytes = Vec::new();
        while bytes.len() < CHUNK_BYTES
            && let Some(row) = rows.pop_front()
        {
            copy_row(table, row, &mut bytes)?;
        }
        let last = rows.is_empty();
        if last {
            copy_footer(&mut bytes);
            self.copying = None;
        }
        encode::copy_data(out, &bytes);
        if last {
            encode::copy_done(out);
        }
        Ok(())
    }

    /// Sets the search path for code of users, until the end of the transaction or the next call. The path of the
    /// writer at home is not known any more.
    fn find_code_in(&mut self, path: Option<&'a str>, out: &mut Vec<u8>) {
        if self.path != path {
            self.path = path;
            let path = literal(path.unwrap_or(OWN_PATH));
            self.plain(out, &format!("SELECT pg_catalog.set_config('search_path', {path}, true)"));
        }
    }

    fn plain(&mut self, out: &mut Vec<u8>, sql: &str) {
        encode::parse(out, b"", sql.as_bytes(), &[]);
        encode::bind(out, b"", b"", &[], Format::Text);
        encode::execute(out, b"", 0);
        self.expected.push_back(Expected { statement: None, rows: None });
    }

    fn prepare(&mut self, statement: StatementKey, out: &mut Vec<u8>) -> Result<(), RefreshError> {
        if self.prepared.rows.insert(statement) {
            let sql = self.tables.table(statement.table)?.sql(statement.kind);
            encode::parse(out, name(statement).as_bytes(), sql.text.as_bytes(), &sql.types);
        }
        Ok(())
    }

    fn execute(&mut self, out: &mut Vec<u8>, statement: StatementKey, rows: u64) {
        encode::execute(out, b"", 0);
        self.expected.push_back(Expected { statement: Some(statement), rows: Some(rows) });
    }

    fn reply(&mut self, tag: u8, body: &[u8]) {
        match tag {
            tag::COMMAND_COMPLETE => self.complete(command_tag(body)),
            // The server's error about our own deliberate failure does not matter.
            tag::ERROR_RESPONSE if self.trouble.is_none() => {
                self.trouble = Some(PipelineError::Server(body.to_vec()));
            }
            // If a failed batch has left a block open, this one would not be committed.
            tag::READY_FOR_QUERY if self.outcome == Outcome::Committed && body != b"I" => {
                self.trouble =
                    Some(PipelineError::Lost(BackendError::Protocol("a transaction has not ended")));
            }
            _ => {}
        }
    }

    fn complete(&mut self, tag: &[u8]) {
        let Some(expected) = self.expected.pop_front() else {
            let lost = BackendError::Protocol("more commands completed than were sent");
            self.trouble = Some(PipelineError::Lost(lost));
            return;
        };
        let Some(rows) = expected.rows else { return };
        let count = tag.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
        let found = std::str::from_utf8(count).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        if found != rows && self.trouble.is_none() {
            let what = match expected.statement.map(|key| (key, self.tables.table(key.table))) {
                Some((key, Ok(table))) => format!("{:?} of table {}", key.kind, table.name),
                _ => "an insert of identities".to_owned(),
            };
            self.trouble = Some(PipelineError::Rows { what, expected: rows, found });
        }
    }
}

/// Binds values of row images.
fn bind(out: &mut Vec<u8>, portal: &[u8], name: &str, values: &[Value<'_>]) {
    let values: Vec<_> = values.iter().map(|value| (value.bytes, value.format)).collect();
    encode::bind_each(out, portal, name.as_bytes(), &values);
}

/// The name of a prepared statement on the applier.
fn name(statement: StatementKey) -> String {
    format!("{:?} {}", statement.kind, statement.table.number)
}
