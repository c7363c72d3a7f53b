//! Applying records: transactions on the applier's connection.
//!
//! As many records as come together go into one transaction. The applier commits only after it has seen every reply: a
//! statement that affects no row is no error to the server, but is one here.
//!
//! A batch that fails is rolled back, and its records are tried one by one. So only the record that cannot be applied
//! is reported as diverged. They still share one transaction, as some of them may have to be seen together.
//!
//! Most batches are a pipeline without BEGIN and COMMIT ([`exchange`]), and insert their identities by VALUES. Compared
//! with a block and unnested arrays, that saves a tenth to a sixth of the server's processor time.
//!
//! A CHECK held when and where the row was written. If it depends on more than the row (the time, other rows, a
//! setting), it may not hold here any more. Then the applier applies the rows again without that CHECK.
//!
//! A record with statements (a schema change) is a transaction of its own. Its statements run as the role and with the
//! settings of their author. After each, the applier reads the tables again.
//!
//! A record with rows in a file is a transaction of its own, too. The applier reads and plans the rows a chunk at a
//! time. That is sound: at the end of each chunk the replica stands where home stood then.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{DatabaseId, Version};
use cluster::placement::Holdings;
use cluster::record::{Item, KEEPS_LENT, NUMBERS, Record, Statement};
use cluster::refresh::{RefreshTables, Step, plan};
use commitlog::SpillStore;
use wire::backend::Fields;
use wire::encode::{self, Format};
use wire::sqlstate;

use super::exchange;
use super::exchange::{Outcome, PipelineError, Prepared};
use super::failure::{Failure, describe, is_raised, is_too_large, settle};
use super::{Assignment, identity};
use crate::backend::{BackendError, OwnConnection};
use crate::capture;
use crate::capture::quoting::literal;
use crate::security::seal::Seal;

const BEGIN: &str = "BEGIN";
/// Up to so many identities are inserted by a statement for exactly their number, which is faster than unnesting
/// arrays.
const IDENTITIES_COUNTED_MAX: usize = 8;

/// How often a transaction is tried that fails in a function of users. [`RAISED_PAUSE`] passes before the second try;
/// it doubles for each further one.
const RAISED_TRIES_MAX: u32 = 3;
const RAISED_PAUSE: Duration = Duration::from_millis(200);

/// A row or an index entry may fit only if it is compressed by the other method.
const COMPRESS_BY_LZ4: &str = "SET default_toast_compression = lz4";
const COMPRESS_AS_EVER: &str = "RESET default_toast_compression";

/// The setting that is not taken from a statement's author. Home has checked the function's body already, and there the
/// body may name temporary tables.
const CHECKED_AT_HOME: &str = "check_function_bodies";

/// Puts suspended CHECKs back in force: before a statement, and at the end of the transaction.
const RESUME_CHECKS: &str = "SELECT onecopy_capture.resume_checks()";

/// A table or a domain, with its schema, whose CHECKs do not hold any more.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Checked {
    schema: String,
    table: Option<String>,
    domain: Option<String>,
}

impl Checked {
    /// The table or domain that a server's CHECK violation names.
    fn violated(trouble: &PipelineError) -> Option<Self> {
        let PipelineError::Server(body) = trouble else { return None };
        let fields = Fields::new(body);
        let field = |code| fields.get(code).map(|name| String::from_utf8_lossy(name).into_owned());
        let (table, domain) = (field(b't'), field(b'd'));
        let is_known = table.is_some() || domain.is_some();
        (fields.sqlstate() == sqlstate::CHECK_VIOLATION.as_bytes() && is_known)
            .then(|| Some(Self { schema: field(b's')?, table, domain }))?
    }

    fn suspend(&self) -> String {
        let name = |name: &Option<String>| name.as_deref().map_or_else(|| "NULL".to_owned(), literal);
        let (table, domain) = (name(&self.table), name(&self.domain));
        format!("SELECT onecopy_capture.suspend_checks({}, {table}, {domain});", literal(&self.schema))
    }
}

/// The applier's connection and its state.
pub(super) struct Applier {
    connection: OwnConnection,
    database: DatabaseId,
    tables: RefreshTables,
    /// The tables whose rows are applied. The identity of every record is inserted, whatever tables it writes.
    holdings: Holdings,
    /// `tables` may be out of date. They are read again when the next row needs them.
    is_outdated: bool,
    prepared: Prepared,
    spills: Arc<dyn SpillStore>,
    seal: Arc<Seal>,
    /// `tables` are as of this version.
    known_to: Version,
    /// The CHECKs that are suspended in the next transaction.
    unchecked: BTreeSet<Checked>,
}

impl Applier {
    pub(super) fn new(connection: OwnConnection, tables: RefreshTables, assignment: &Assignment) -> Self {
        let (spills, seal) = (Arc::clone(&assignment.spills), Arc::clone(&assignment.seal));
        let (known_to, unchecked) = (Version::ZERO, BTreeSet::new());
        let (prepared, is_outdated) = (Prepared::default(), false);
        let database = assignment.served.id;
        let holdings = Holdings::everything();
        Self {
            connection,
            database,
            tables,
            holdings,
            is_outdated,
            prepared,
            spills,
            seal,
            known_to,
            unchecked,
        }
    }

    /// The process id of its backend.
    pub(super) fn pid(&self) -> i32 {
        self.connection.process().pid
    }

    /// Waits until the idle connection ends.
    pub(super) async fn lost(&mut self) -> BackendError {
        self.connection.lost().await
    }

    /// Applies all records, in order. Transactions that this server's own clients committed do not pass through here.
    /// If a schema change may be among those, the tables are read again.
    pub(super) async fn apply_after(
        &mut self,
        last_ddl: Version,
        holdings: Holdings,
        records: &[Arc<Record>],
    ) -> Result<(), Failure> {
        self.holdings = holdings;
        if last_ddl > self.known_to || self.prepared.are_many() {
            self.forget_tables().await?;
        }
        self.apply(records).await?;
        self.known_to = records.last().map_or(self.known_to, |record| record.header().last);
        Ok(())
    }

    /// Applies all records, in order.
    async fn apply(&mut self, records: &[Arc<Record>]) -> Result<(), Failure> {
        let alone = |record: &Arc<Record>| is_alone(record);
        for group in records.chunk_by(|a, b| !alone(a) && !alone(b)) {
            let Err(trouble) = self.attempt(group, None).await? else { continue };
            match group {
                [record] => settle(record, trouble)?,
                several => {
                    tracing::warn!(reason = %describe(&trouble), "a batch failed: its records are tried one by one");
                    self.one_by_one(several).await?;
                }
            }
        }
        Ok(())
    }

    /// Applies the records in one transaction, each planned by itself. Records that are there already are left out.
    async fn one_by_one(&mut self, records: &[Arc<Record>]) -> Result<(), Failure> {
        let mut lacking = records.to_vec();
        while !lacking.is_empty() {
            let mut at = 0;
            let Err(trouble) = self.attempt(&lacking, Some(&mut at)).await? else { break };
            settle(&lacking[at], trouble)?;
            lacking.remove(at);
        }
        Ok(())
    }

    /// Tries one transaction, and retries it without the CHECKs that stop it. It is also retried a few times after an
    /// error of users' code, and once with lz4 if a row is too large. A failed try is rolled back.
    async fn attempt(
        &mut self,
        records: &[Arc<Record>],
        mut one_by_one: Option<&mut usize>,
    ) -> Result<Result<(), PipelineError>, Failure> {
        let (mut tries, mut compresses_by_lz4) = (1, false);
        let attempted = loop {
            let outcome = match one_by_one.as_deref_mut() {
                Some(at) => self.singly(records, at).await,
                None => self.transaction(records).await,
            };
            let Err(trouble) = outcome else { break Ok(()) };
            self.undo().await?;
            match Checked::violated(&trouble) {
                Some(checked) if self.unchecked.insert(checked.clone()) => {
                    tracing::debug!(?checked, "rows are applied that a CHECK would not let pass any more");
                }
                _ if tries < RAISED_TRIES_MAX && is_raised(&trouble) => {
                    tokio::time::sleep(RAISED_PAUSE * (1 << (tries - 1))).await;
                    tries += 1;
                }
                // Code may have set lz4 at home. A server may lack the method.
                _ if !compresses_by_lz4
                    && is_too_large(&trouble)
                    && self.connection.query(COMPRESS_BY_LZ4).await.is_ok() =>
                {
                    compresses_by_lz4 = true;
                }
                _ => break Err(trouble),
            }
        };
        self.unchecked.clear();
        if compresses_by_lz4 {
            let reset = self.connection.query(COMPRESS_AS_EVER).await;
            reset.map_err(|error| Failure::Lost(error.to_string()))?;
        }
        Ok(attempted)
    }

    async fn transaction(&mut self, records: &[Arc<Record>]) -> Result<(), PipelineError> {
        match records {
            [record] if is_alone(record) => self.piece_by_piece(record).await?,
            _ if self.unchecked.is_empty() => return self.at_once(records).await,
            _ => self.rows_unchecked(records).await?,
        }
        if !self.unchecked.is_empty() {
            self.connection.query(RESUME_CHECKS).await?;
        }
        self.connection.query("COMMIT").await?;
        Ok(())
    }

    /// As [`Self::transaction`], one record after the other. `at` becomes the index of the record under way.
    async fn singly(&mut self, records: &[Arc<Record>], at: &mut usize) -> Result<(), PipelineError> {
        for (index, record) in records.iter().map(std::slice::from_ref).enumerate() {
            *at = index;
            let steps = self.plan(record).await?;
            if index == 0 {
                self.begin(record).await?;
                self.exchange(steps).await?;
            } else {
                let inserted = self.put_identities(record);
                let Self { connection, tables, prepared, .. } = self;
                let before = [Some(inserted)];
                exchange::run(connection, tables, prepared, steps, &before, Outcome::Open).await?;
            }
        }
        if !self.unchecked.is_empty() {
            self.connection.query(RESUME_CHECKS).await?;
        }
        self.connection.query("COMMIT").await?;
        Ok(())
    }

    /// Suspends, in the open transaction, the CHECKs that have stopped these records before.
    async fn suspend_checks(&mut self) -> Result<(), PipelineError> {
        for checked in &self.unchecked {
            self.connection.query(&checked.suspend()).await?;
        }
        Ok(())
    }

    /// Runs a transaction as one pipeline.
    async fn at_once(&mut self, records: &[Arc<Record>]) -> Result<(), PipelineError> {
        let steps = self.plan(records).await?;
        let inserted = self.put_identities(records);
        let Self { connection, tables, prepared, .. } = self;
        exchange::run(connection, tables, prepared, steps, &[Some(inserted)], Outcome::Committed).await
    }

    /// Applies rows in a transaction block in which some CHECKs are suspended.
    async fn rows_unchecked(&mut self, records: &[Arc<Record>]) -> Result<(), PipelineError> {
        let steps = self.plan(records).await?;
        self.begin(records).await?;
        self.exchange(steps).await
    }

    async fn plan<'a>(&mut self, records: &'a [Arc<Record>]) -> Result<Vec<Step<'a>>, PipelineError> {
        self.know_tables().await?;
        plan(&self.tables, &self.holdings, records.iter().map(|record| record.items()))
            .map_err(PipelineError::Refresh)
    }

    /// Reads the tables if they are out of date, and not before. Schema changes often come many at a time, and reading
    /// the catalogue of hundreds of tables takes longer than each change.
    async fn know_tables(&mut self) -> Result<(), PipelineError> {
        if self.is_outdated {
            self.tables =
                capture::catalogue::load_refresh_tables(&mut self.connection, self.database).await?;
            self.is_outdated = false;
        }
        Ok(())
    }

    /// Opens a transaction block for these records.
    async fn begin(&mut self, records: &[Arc<Record>]) -> Result<(), PipelineError> {
        let out = &mut self.connection.exchange().output;
        if !self.prepared.begin {
            encode::parse(out, b"begin", BEGIN.as_bytes(), &[]);
            self.prepared.begin = true;
        }
        encode::bind(out, b"", b"begin", &[], Format::Text);
        encode::execute(out, b"", 0);
        let before = [None, Some(self.put_identities(records))];
        let Self { connection, tables, prepared, .. } = self;
        exchange::run(connection, tables, prepared, Vec::new(), &before, Outcome::Open).await?;
        self.suspend_checks().await
    }

    /// Writes the insert of the identities into the output. Returns the number of rows that the command reports.
    fn put_identities(&mut self, records: &[Arc<Record>]) -> u64 {
        let (out, count, seal) = (&mut self.connection.exchange().output, records.len(), &self.seal);
        let identities = || records.iter().map(|record| record.header().identity);
        let counted = Some(count).filter(|count| *count <= IDENTITIES_COUNTED_MAX);
        let name = counted.map_or_else(|| "identities".to_owned(), |count| format!("identities {count}"));
        if self.prepared.identities.insert(counted.unwrap_or_default()) {
            let sql = counted.map_or_else(|| identity::INSERT_MANY_SQL.to_owned(), identity::insert_sql);
            encode::parse(out, name.as_bytes(), sql.as_bytes(), &[]);
        }
        if counted.is_some() {
            let values: Vec<_> =
                identities().map(|identity| identity::binary_values(identity, seal)).collect();
            let values: Vec<_> = values.iter().flatten().map(|value| Some(value.as_slice())).collect();
            encode::bind(out, b"", name.as_bytes(), &values, Format::Binary);
        } else {
            let literals = identity::array_literals_with_proofs(identities(), seal);
            let values = literals.each_ref().map(|literal| Some(literal.as_bytes()));
            encode::bind(out, b"", name.as_bytes(), &values, Format::Text);
        }
        encode::execute(out, b"", 0);
        count as u64
    }

    async fn piece_by_piece(&mut self, record: &Arc<Record>) -> Result<(), PipelineError> {
        self.begin(std::slice::from_ref(record)).await?;
        if record.is_spilled() {
            self.spilled(record).await?;
        }
        self.mixed(record.items().filter(|item| !matches!(item, Item::Spilled(_)))).await
    }

    /// Applies the chunks of a record's spilled rows, one after the other.
    async fn spilled(&mut self, record: &Arc<Record>) -> Result<(), PipelineError> {
        let mut reader = self.spills.open(Arc::clone(record)).await?;
        while let Some(chunk) = reader.next_chunk().await? {
            self.mixed(chunk.items()).await?;
        }
        Ok(())
    }

    async fn mixed<'a>(&mut self, items: impl Iterator<Item = Item<'a>>) -> Result<(), PipelineError> {
        let mut rows = Vec::new();
        for item in items {
            if let Item::Statement(statement) = item {
                self.items(std::mem::take(&mut rows)).await?;
                if !statement.keeps_lent() {
                    // A statement that concerns sequences must find them as they are elsewhere.
                    self.connection.query("SELECT onecopy_capture.unlend()").await?;
                }
                if !self.unchecked.is_empty() {
                    self.connection.query(RESUME_CHECKS).await?;
                }
                self.statement(&statement).await?;
                self.suspend_checks().await?;
            } else {
                rows.push(item);
            }
        }
        self.items(rows).await
    }

    async fn items(&mut self, items: Vec<Item<'_>>) -> Result<(), PipelineError> {
        if items.is_empty() {
            return Ok(());
        }
        self.know_tables().await?;
        let steps = plan(&self.tables, &self.holdings, [items]).map_err(PipelineError::Refresh)?;
        self.exchange(steps).await
    }

    /// Runs steps in the open transaction block.
    async fn exchange(&mut self, steps: Vec<Step<'_>>) -> Result<(), PipelineError> {
        let Self { connection, tables, prepared, .. } = self;
        exchange::run(connection, tables, prepared, steps, &[], Outcome::Open).await
    }

    async fn statement(&mut self, statement: &Statement) -> Result<(), PipelineError> {
        let connection = &mut self.connection;
        let lend = format!("SELECT 1 WHERE onecopy_capture.lend_run({})", literal(&statement.role));
        let is_lent = !connection.query(&lend).await?.is_empty();
        if is_lent {
            let count = statement.text.chars().count();
            connection.query(&format!("SET {} = '{count}'", capture::APPLIER_SETTING)).await?;
        }
        connection.query(&preamble(statement)).await?;
        if is_lent {
            let text = statement.text.replace('\\', "\\\\").replace('\'', "''");
            connection.query(&format!("SELECT onecopy.run(E'{text}')")).await?;
        } else {
            connection.query(&statement.text).await?;
        }
        // The statement's code may have left a cursor WITH HOLD, which would run at COMMIT. It may also have left a
        // prepared statement, which would run in place of ours.
        connection.query("CLOSE ALL; RESET SESSION AUTHORIZATION; RESET ALL; DEALLOCATE ALL").await?;
        if is_lent {
            connection.query("SELECT onecopy_capture.take_run_back()").await?;
        }
        self.prepared = Prepared::default();
        let numbers = literal(statement.numbers().unwrap_or_default());
        let set = format!("SELECT set_config('{}', {numbers}, true)", capture::NUMBERS_SETTING);
        connection.query(&set).await?;
        connection.query(capture::INSTALL_TABLES_SQL).await?;
        self.is_outdated = true;
        Ok(())
    }

    /// Rolls the failed transaction back, and clears everything that it may have left in the session.
    async fn undo(&mut self) -> Result<(), Failure> {
        let undone = self.connection.query("ROLLBACK").await;
        undone.map_err(|error| Failure::Lost(error.to_string()))?;
        self.forget_tables().await
    }

    /// Has the tables read again when they are needed, and the statements that depend on them prepared anew.
    async fn forget_tables(&mut self) -> Result<(), Failure> {
        let cleared = async {
            self.connection.query("RESET SESSION AUTHORIZATION; RESET ALL; DEALLOCATE ALL").await?;
            self.prepared = Prepared::default();
            self.is_outdated = true;
            Ok::<_, BackendError>(())
        };
        cleared.await.map_err(|error| Failure::Lost(error.to_string()))
    }
}

/// Whether a record is a transaction of its own.
fn is_alone(record: &Record) -> bool {
    let mut items = record.items();
    record.is_spilled()
        || (record.writes_everything() && items.any(|item| matches!(item, Item::Statement(_))))
}

/// The SQL that puts the author's role and settings in force. The settings come first: the role may not be allowed to
/// set them.
fn preamble(statement: &Statement) -> String {
    let mut sql = String::from("SELECT set_config('row_security', 'on', false)");
    let path = ("search_path".to_owned(), statement.search_path.clone());
    for (name, value) in statement.settings.iter().chain([&path]) {
        if matches!(name.as_str(), CHECKED_AT_HOME | KEEPS_LENT | NUMBERS) {
            continue;
        }
        sql.push_str(&format!(", set_config({}, {}, false)", literal(name), literal(value)));
    }
    if !statement.role.is_empty() {
        let role = capture::quoting::quoted(&statement.role);
        sql.push_str(&format!("; SET SESSION AUTHORIZATION {role}"));
    }
    sql
}
