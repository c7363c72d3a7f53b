//! Fencing a server, and connecting to it.
//!
//! The agent fences in this order:
//!
//! - The agent ends every client's backend, and waits until it is gone. At the beginning of a term it spares those at which
//!   sessions of living nodes rest and have left state ([`crate::coordinator::held_backends`]).
//!
//! - The applier logs in and takes an advisory lock with a random key.
//!
//! - Only then the agent reads the applied set.
//!
//! Sessions prove on each new connection, and on one that was spared, that the applier holds that lock. So no session uses another
//! connection from before the fence, or one from after a crash of the server, however the timing falls.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::ids::{ClusterId, Identity};
use cluster::refresh::RefreshTables;
use tokio::time::Instant;

use super::applied_set::AppliedSet;
use super::{Assignment, watchdog};
use crate::backend::{BackendError, OwnConnection, ServerInfo, Unservable};
use crate::capture;
use crate::coordinator::Obstacle;

/// The name that the connections show in `pg_stat_activity`.
const APPLICATION_NAME: &str = "onecopy agent";

/// How long connecting may take. It includes reading the applied set, which can be large.
const CONNECT_MAX: Duration = Duration::from_mins(10);
/// How long former backends may take to end.
const FENCE_DEADLINE: Duration = Duration::from_secs(30);
/// The pause between two looks whether they have ended.
const FENCE_PAUSE: Duration = Duration::from_millis(10);

/// Settings of the connections, which `RESET ALL` leaves in force.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("session_replication_role", "replica"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("default_transaction_isolation", "read\\ committed"),
    ("default_transaction_read_only", "off"),
    ("row_security", "off"),
    // As in sessions: an index entry that fits there has to fit here. Every server knows this method.
    ("default_toast_compression", "pglz"),
    ("check_function_bodies", "off"),
    ("client_min_messages", "error"),
    ("bytea_output", "hex"),
    // Rows without a key are compared as text.
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "3"),
    // Some values come as text, written with these settings (`onecopy.carried`).
    ("lc_monetary", "C"),
    ("array_nulls", "on"),
    ("xmloption", "content"),
    // Rows are found by index if there is one. A plan made while a table was small must still do when it has grown, and
    // no statement is worth planning anew. Without jit: the prohibitive costs of the other plans would call for it.
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    // The backend that waits longest is the victim of a deadlock, and the applier must never be. It has its own
    // watchdog.
    ("deadlock_timeout", "1h"),
];

/// A server that can serve.
pub(super) struct Ready {
    pub(super) applier: OwnConnection,
    pub(super) control: OwnConnection,
    pub(super) pulse: OwnConnection,
    pub(super) tables: RefreshTables,
    pub(super) proof_sql: String,
    /// Backends of the former term that go on.
    pub(super) spared: Vec<i32>,
    pub(super) applied: Vec<Identity>,
}

/// Why a server cannot be used now.
#[derive(Debug)]
pub(super) enum ConnectError {
    Backend(BackendError),
    OtherCluster { found: String, expected: ClusterId },
    NoCluster { expected: ClusterId },
    Unservable(Unservable),
    BackendsStay { count: usize },
    Silent,
    Random(getrandom::Error),
}

impl ConnectError {
    /// Whether the server may become usable without an operator.
    pub(super) fn obstacle(&self) -> Obstacle {
        match self {
            Self::OtherCluster { .. } | Self::NoCluster { .. } | Self::Unservable(_) => Obstacle::Lasting,
            Self::Backend(_) | Self::BackendsStay { .. } | Self::Silent | Self::Random(_) => {
                Obstacle::Passing
            }
        }
    }
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Backend(error) => error.fmt(f),
            Self::OtherCluster { found, expected } => {
                write!(f, "the server belongs to the cluster {found}, not to {expected}")
            }
            Self::NoCluster { expected } => write!(
                f,
                "the server has nothing of the cluster {expected} in it: it is another server, or was re-created"
            ),
            Self::Unservable(what) => write!(f, "the server {what}"),
            Self::BackendsStay { count } => {
                write!(f, "{count} backends of an earlier incarnation do not end")
            }
            Self::Silent => write!(f, "the server has let us in and does not answer"),
            Self::Random(error) => write!(f, "no random numbers: {error}"),
        }
    }
}

impl From<BackendError> for ConnectError {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

/// Fences the server and connects to it. If the machine is lost meanwhile, this fails after a time: the machine may
/// come back. `is_first` says that this process has not connected to the server yet.
pub(super) async fn connect(assignment: &Assignment, is_first: bool) -> Result<Ready, ConnectError> {
    tokio::time::timeout(CONNECT_MAX, prepare(assignment, is_first))
        .await
        .unwrap_or(Err(ConnectError::Silent))
}

async fn prepare(assignment: &Assignment, is_first: bool) -> Result<Ready, ConnectError> {
    let mut control = open(assignment, &[("synchronous_commit", "on")]).await?;
    // Recognise the server first: in a server that is not ours, no backend may be ended and no data changed.
    recognise(&mut control, assignment).await?;
    let held = match &assignment.held {
        Some(held) => held.all.at(held.replica).await,
        None => Vec::new(),
    };
    fence_but(&mut control, None, &held).await?;
    install(&mut control, assignment, is_first).await?;
    let mut applier = open_applier(&mut control, assignment).await?;
    let proof_sql = take_lock(&mut applier).await?;
    // A client may have come in between.
    let spared = fence_but(&mut control, Some(applier.process().pid), &held).await?;
    control.query(&assignment.voucher.install_sql()).await?;
    watchdog::prepare(&mut control, applier.process().pid).await?;
    let pulse = open(assignment, &[("synchronous_commit", "off")]).await?;
    let applied = AppliedSet::at(&mut control, &assignment.seal).read_and_clean().await?;
    let tables = capture::catalogue::load_refresh_tables(&mut applier, assignment.served.id).await?;
    Ok(Ready { applier, control, pulse, tables, proof_sql, spared, applied })
}

async fn open_applier(
    control: &mut OwnConnection,
    assignment: &Assignment,
) -> Result<OwnConnection, BackendError> {
    let rows = control.query("SELECT onecopy_capture.deepest_stack()").await?;
    let stack_kb = rows.into_iter().next().and_then(|mut row| row.pop().flatten()).unwrap_or_default();
    let mark = (capture::APPLIER_SETTING, capture::APPLIER_AT_REST);
    open(assignment, &[("synchronous_commit", "off"), ("max_stack_depth", &stack_kb), mark]).await
}

async fn open(assignment: &Assignment, more: &[(&str, &str)]) -> Result<OwnConnection, BackendError> {
    let mut options = format!("-c {}={}", capture::VIA_SETTING, capture::apply_token(assignment.cluster));
    for (name, value) in SETTINGS.iter().chain(more) {
        options.push_str(&format!(" -c {name}={value}"));
    }
    let own = [("application_name", APPLICATION_NAME), ("client_encoding", "UTF8"), ("options", &options)];
    OwnConnection::open(&assignment.address, &assignment.served, &own).await
}

/// Returns an error unless the server belongs to the cluster, or may be made to.
async fn recognise(control: &mut OwnConnection, assignment: &Assignment) -> Result<(), ConnectError> {
    let expected = assignment.cluster;
    let ServerInfo { cluster, unservable } = ServerInfo::ask(control).await?;
    match (unservable, cluster) {
        (Some(what), _) => Err(ConnectError::Unservable(what)),
        (None, Some(found)) if found == expected.to_string() => Ok(()),
        (None, Some(found)) => Err(ConnectError::OtherCluster { found, expected }),
        (None, None) if assignment.is_founding.load(Ordering::Acquire) => Ok(()),
        (None, None) => Err(ConnectError::NoCluster { expected }),
    }
}

/// Ends every client's backend except this one, the applier's, and those of `held` that rest outside a transaction; waits until they
/// are gone. Returns those that were spared.
async fn fence_but(
    control: &mut OwnConnection,
    applier: Option<i32>,
    held: &[i32],
) -> Result<Vec<i32>, ConnectError> {
    let held = held.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let clients = format!(
        "FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = current_database() \
         AND pid NOT IN (pg_backend_pid(), {}) AND (pid = ANY ('{{{held}}}') AND state = 'idle')",
        applier.unwrap_or_default()
    );
    let (end, spare) =
        (format!("SELECT pg_terminate_backend(pid) {clients} IS NOT TRUE"), format!("SELECT pid {clients}"));
    let deadline = Instant::now() + FENCE_DEADLINE;
    loop {
        let count = control.query(&end).await?.len();
        if count == 0 {
            break;
        }
        if Instant::now() > deadline {
            return Err(ConnectError::BackendsStay { count });
        }
        tokio::time::sleep(FENCE_PAUSE).await;
    }
    let spared = control.query(&spare).await?;
    Ok(spared.into_iter().flatten().flatten().filter_map(|pid| pid.parse().ok()).collect())
}

/// Installs our objects in a server of no cluster. In a server of ours, brings the installed objects up to date.
async fn install(
    control: &mut OwnConnection,
    assignment: &Assignment,
    is_first: bool,
) -> Result<(), ConnectError> {
    let (install_sql, seal) = (capture::install_sql(assignment.cluster), &assignment.seal);
    AppliedSet::at(control, seal).install(&install_sql, is_first && seal.is_new).await?;
    control.query(capture::UPDATE_TABLES_SQL).await?;
    Ok(())
}

/// Takes the lock that stands for this incarnation. Returns the query that proves it is held.
async fn take_lock(applier: &mut OwnConnection) -> Result<String, ConnectError> {
    let key = getrandom::u64().map_err(ConnectError::Random)?;
    applier.query(&format!("SELECT pg_advisory_lock({})", key.cast_signed())).await?;
    let (high, low) = (key >> 32, key & 0xffff_ffff);
    Ok(format!(
        "SELECT 1 FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND granted \
         AND classid OPERATOR(pg_catalog.=) '{high}' AND objid OPERATOR(pg_catalog.=) '{low}' \
         AND objsubid OPERATOR(pg_catalog.=) 1::smallint AND pid OPERATOR(pg_catalog.=) {}",
        applier.process().pid
    ))
}
