//! Fills an empty server that Onecopy does not run with the data of a replica, while clients go on.
//!
//! Servers of our own are copied file by file ([`super::base_backup`]). The folders of other servers are out of reach,
//! so this copy goes over connections. A snapshot of the donor shows a prefix of the versions, except for some of the
//! last commit group. `onecopy.applied`, read in the same snapshot, says which ones. So writes never stand still. In
//! that snapshot roles are read, `pg_dump` writes the schema down, and the rows are copied table by table.
//!
//! The definitions that PostgreSQL prints look past a snapshot, and a rewritten table is empty in an older snapshot. So
//! all tables are locked against both (ACCESS SHARE, as `pg_dump` does). If a schema change came before the locks, the
//! copy begins anew. Tables, types and sequences keep the numbers that we gave them. They are matched by name, since
//! object ids differ.
//!
//! The server's database is first created anew, with the locale and the properties of the donor's. A schema marks it
//! until it is complete. A server with the mark counts as empty.
//!
//! Invariant: the id of the cluster gets into the server last, together with the end of the mark. So a half-full server
//! never passes for a member.
//!
//! Not here: comparing the result with the others row by row. [`super::members`] has that done before the replica
//! serves.

mod dump;
mod error;
mod roles;
mod rows;
mod state;
mod target;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use cluster::ids::ReplicaId;
use cluster::placement::Share;
use cluster::protocols::ReplicaStatus;

use super::checksum::schema_checksums;
use crate::backend::{BackendError, OwnConnection};
use crate::capture;
use crate::capture::shares::{NUMBERED_TABLES, Shares};
use crate::config::Replica;
use crate::coordinator::Leader;
use crate::coordinator::resync_progress::Transfer;

pub(crate) use error::InitialCopyError;
use error::TargetStep;
pub(crate) use target::{ServerCondition, standing};

/// How often the copy begins anew because the schema has changed.
const ATTEMPTS: u32 = 5;
/// The pause before that.
const PAUSE: Duration = Duration::from_secs(1);
/// Begins a transaction. Its snapshot is taken at the first query.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";

/// Whether the donor has the schema `public`, which every new database has.
const HAS_PUBLIC: &str = "SELECT 1 FROM pg_namespace WHERE nspname = 'public'";

/// How long a client may hold up our locks.
const LOCK_PATIENCE: &str = "SET lock_timeout = '10s'";

/// The donor's schema and tables, in one snapshot.
struct Source {
    connection: OwnConnection,
    tables: Vec<rows::Table>,
    schema: dump::Schema,
}

/// Checks, before any change, all that can be checked.
pub(crate) async fn prepare(leader: &Leader) -> Result<(), InitialCopyError> {
    dump::Program::find(&leader.database.served, &leader.seats[leader.view.anchor()].address)
        .await
        .map(|_| ())
}

/// Fills a server with the whole schema, and with the rows of the tables that it is to hold. The server is not a member
/// yet, and its database has no other users. If the server `is_former`, its present contents may be dropped.
pub(crate) async fn run(
    leader: &Leader,
    donor: ReplicaId,
    target: &Replica,
    shares: &Shares,
    is_former: bool,
    transfer: &Transfer,
) -> Result<(), InitialCopyError> {
    let program = dump::Program::find(&leader.database.served, &leader.seats[donor].address).await?;
    let name = &leader.seats[donor].name;
    let at_donor = |source: BackendError| InitialCopyError::Donor { name: Some(name.clone()), source };
    let address = || target.address.to_string();
    let there = |source: BackendError| InitialCopyError::Target {
        address: address(),
        step: TargetStep::Fill,
        source,
    };
    let mut source = open(leader, donor, &program).await?;
    let numbered = source.connection.query(NUMBERED_TABLES).await.map_err(at_donor)?;
    for shared in shares.of(&numbered).map_err(at_donor)? {
        match shared.share {
            Share::All => {}
            Share::Nothing => source.tables.retain(|table| table.name() != shared.name),
            Share::Parts(_) => {
                let meant = source.tables.iter_mut().find(|table| table.name() == shared.name);
                if let Some(table) = meant {
                    table.restrict(shared.held());
                }
            }
        }
    }
    transfer.expect(rows::total_bytes(&source.tables));
    let source_roles = roles::read(&mut source.connection).await.map_err(at_donor)?;
    let mut outside = target::connect_beside(&leader.database.served, target).await?;
    roles::write(&mut outside, &source_roles, is_former).await.map_err(|error| match error {
        roles::WriteError::Server(error) => there(error),
        roles::WriteError::Strangers(roles) => InitialCopyError::Strangers { address: address(), roles },
    })?;
    let properties = roles::database(&mut source.connection).await.map_err(at_donor)?;
    target::make_anew(&mut outside, &leader.database.served, &properties, is_former).await.map_err(there)?;
    let mut connection = target::connect(&target.address, leader).await.map_err(there)?;
    target::mark(&mut connection, leader).await.map_err(there)?;
    // A new database has the schema `public`, and no dump drops it.
    if source.connection.query(HAS_PUBLIC).await.map_err(at_donor)?.is_empty() {
        connection.query("DROP SCHEMA public").await.map_err(there)?;
    }
    connection.query(&source.schema.before_rows).await.map_err(there)?;
    connection.query(rows::SUSPEND_CHECKS).await.map_err(there)?;
    for table in &source.tables {
        rows::copy(&mut source.connection, &mut connection, table, transfer)
            .await
            .map_err(|source| InitialCopyError::Table { table: table.to_string(), source })?;
    }
    connection.query("SELECT onecopy_capture.resume_checks()").await.map_err(there)?;
    target::drop_guards(&mut connection).await.map_err(there)?;
    connection.query(&source.schema.after_rows).await.map_err(there)?;
    state::copy(&mut source.connection, &mut connection).await?;
    connection.query("RESET ALL; BEGIN").await.map_err(there)?;
    let sums = schema_checksums(&mut connection).await.map_err(there)?;
    connection.query("COMMIT").await.map_err(there)?;
    let kinds: Vec<String> = (source.schema.sums.iter())
        .filter(|(kind, sum)| sums.get(*kind) != Some(*sum))
        .map(|(kind, _)| kind.clone())
        .collect();
    if !kinds.is_empty() {
        return Err(InitialCopyError::SchemaDiffers { address: address(), donor: name.clone(), kinds });
    }
    connection.query("ANALYZE").await.map_err(there)?;
    target::complete(&mut connection, leader).await.map_err(there)
}

/// Opens the donor's snapshot, locks all tables and writes the schema down.
async fn open(
    leader: &Leader,
    donor: ReplicaId,
    program: &dump::Program,
) -> Result<Source, InitialCopyError> {
    let mut last = InitialCopyError::SchemaChanges;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let opened = read(leader, donor, program).await;
        match opened {
            Ok(source) => return Ok(source),
            Err(reason) => {
                tracing::info!(%reason, "filling a server begins anew");
                last = reason;
            }
        }
    }
    Err(last)
}

/// A connection to the donor with a snapshot of this moment.
pub(crate) async fn open_snapshot(leader: &Leader, donor: ReplicaId) -> Result<OwnConnection, BackendError> {
    let own = [("application_name", "onecopy filling"), ("client_encoding", "UTF8")];
    let address = &leader.seats[donor].address;
    let mut connection = OwnConnection::open(address, &leader.database.served, &own).await?;
    connection.query(SNAPSHOT).await?;
    connection.query(capture::HIDE_CODE).await?;
    connection.query(LOCK_PATIENCE).await?;
    Ok(connection)
}

/// Why tables were not copied to a replica.
#[derive(Debug)]
pub(crate) enum TablesError {
    /// Some table was rewritten or redefined since the snapshot.
    Rewritten,
    /// The donor does not answer as it should.
    Donor(BackendError),
    /// The replica does not answer as it should.
    Target(BackendError),
    /// The rows of a table were not copied.
    Rows { table: String, source: rows::CopyError },
}

impl fmt::Display for TablesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rewritten => f.write_str("a table was rewritten or redefined"),
            Self::Donor(error) => write!(f, "{error}, at the replica that is copied"),
            Self::Target(error) => write!(f, "{error}, at the replica that is filled"),
            Self::Rows { table, source } => write!(f, "table {table}: {source}"),
        }
    }
}

/// Copies these tables, by their quoted names, from a donor's snapshot into a replica that no session and no agent uses; of one with a
/// condition, the rows of which that is true. Such rows of before are replaced there. Returns the connection to the replica, which
/// captures nothing.
pub(crate) async fn copy_tables(
    leader: &Leader,
    mut donor: OwnConnection,
    replica: ReplicaId,
    wanted: &BTreeMap<String, Option<String>>,
    transfer: &Transfer,
) -> Result<OwnConnection, TablesError> {
    let tables = rows::lock(&mut donor).await.map_err(TablesError::Donor)?;
    let mut tables = tables.ok_or(TablesError::Rewritten)?;
    tables.retain(|table| wanted.contains_key(table.name()));
    if tables.len() < wanted.len() {
        return Err(TablesError::Rewritten);
    }
    for table in &mut tables {
        table.restrict(wanted[table.name()].clone());
    }
    transfer.expect(rows::total_bytes(&tables));
    let seat = &leader.seats[replica];
    let mut target = target::connect(&seat.address, leader).await.map_err(TablesError::Target)?;
    for table in &tables {
        let copied = rows::copy(&mut donor, &mut target, table, transfer).await;
        copied.map_err(|source| TablesError::Rows { table: table.to_string(), source })?;
    }
    let names: Vec<&str> = tables.iter().map(rows::Table::name).collect();
    target.query(&format!("ANALYZE {}", names.join(", "))).await.map_err(TablesError::Target)?;
    Ok(target)
}

async fn read(
    leader: &Leader,
    donor: ReplicaId,
    program: &dump::Program,
) -> Result<Source, InitialCopyError> {
    let seat = &leader.seats[donor];
    let lost = |source: BackendError| InitialCopyError::Donor { name: Some(seat.name.clone()), source };
    let last_ddl = leader.view.last_ddl();
    let has_it = |status: &ReplicaStatus| status.replica == donor && status.applied >= last_ddl;
    if !leader.replicas().iter().any(has_it) {
        return Err(InitialCopyError::SchemaChanges);
    }
    let mut connection = open_snapshot(leader, donor).await.map_err(lost)?;
    connection.query(dump::PIN).await.map_err(lost)?;
    let tables = rows::lock(&mut connection).await.map_err(lost)?.ok_or(InitialCopyError::SchemaChanges)?;
    let snapshot = connection.query("SELECT pg_export_snapshot()").await.map_err(lost)?;
    let snapshot = snapshot.into_iter().flatten().flatten().next().unwrap_or_default();
    let schema = program.schema(&snapshot, &mut connection).await?;
    if leader.view.last_ddl() != last_ddl {
        return Err(InitialCopyError::SchemaChanges);
    }
    Ok(Source { connection, tables, schema })
}
