//! What brings a replica back into a cluster that ships statements: fences it, runs what the log has and it lacks, and
//! watches it while it takes part.
//!
//! All former backends have ended before the server is asked for its transactions, so no transaction can commit later
//! unseen. A transaction from the log is run statement by statement, as its role and under its settings. A statement
//! that failed fails again.
//!
//! While the replica takes part, its durable version is recorded periodically, so that the log can be trimmed behind
//! the slowest replica. Not here: how a scheduler lets a replica join ([`Rejoins`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{Epoch, Identity, ReplicaId, Version};
use cluster::record::{Header, Item, Record, Shipped};
use tokio::time::{Instant, sleep, timeout};

use super::replayed::Replayed;
use super::replica_run::{LeadingHost, ReplicaRun};
use crate::backend::{BackendError, Connection, OwnConnection, ServerInfo};
use crate::capture;
use crate::coordinator::{Obstacle, QuarantineDuration};
use crate::replica::agent::applied_set::AppliedSet;
use crate::replica::agent::lets_in;
use crate::security::seal::Seal;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Former backends get this long to end.
pub(super) const FENCE_DEADLINE: Duration = Duration::from_secs(30);
pub(crate) const FENCE_PAUSE: Duration = Duration::from_millis(10);
/// Interval at which we check for the server.
const LOOK: Duration = Duration::from_millis(250);
/// Interval at which the durable version is recorded.
const NOTE: Duration = Duration::from_secs(10);
/// Bytes of the log that are read at a time.
const READ_BYTES: usize = 16 << 20;

const OPTIONS: &str = "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 \
    -c default_transaction_read_only=off -c client_min_messages=error -c search_path=pg_catalog";

/// The reason why a replica cannot take part now.
pub(crate) enum RejoinError {
    /// An exchange with its server failed.
    Backend(BackendError),
    /// A condition that may pass by itself.
    Passing(String),
    /// An operator has to act first.
    Lasting(String),
}

impl From<BackendError> for RejoinError {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

impl std::fmt::Display for RejoinError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Backend(error) => error.fmt(f),
            Self::Passing(text) | Self::Lasting(text) => f.write_str(text),
        }
    }
}

/// The records that a replica may lack.
pub(crate) struct LackedRecords {
    pub(crate) replica: ReplicaId,
    /// The last one.
    pub(crate) upto: Version,
    /// Those of decided but unfinished transactions, which it gets otherwise.
    pub(crate) under_way: BTreeSet<Identity>,
    pub(crate) order: ReplayOrder,
}

/// The order in which a replica runs the transactions that it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayOrder {
    /// By their numbers, in which their locks were granted.
    ByNumber,
    /// As the log has them: each was decided while it held its locks.
    AsLogged,
    /// None is right: a replica that lacks any has to be rebuilt.
    None,
}

/// A node whose replicas can be lost and return.
pub(crate) trait Rejoins: LeadingHost + 'static {
    /// Whether a replica has to be rebuilt first.
    fn is_quarantined(&self, replica: ReplicaId) -> bool;

    /// Fences a replica, rolls it forward, and lets it join.
    fn rejoin(
        self: &Arc<Self>,
        replica: ReplicaId,
        proves_all: bool,
    ) -> impl Future<Output = Result<(ReplicaRun, OwnConnection), RejoinError>> + Send;

    /// All versions up to this one are over at a replica; `None` while it still runs transactions from before its return.
    fn over_at(&self, replica: ReplicaId) -> Option<Version>;

    /// Whether replicas note how far they are, because not every record is for each of them.
    const KEEPS_MARKS: bool = false;

    /// The least number of a transaction of this term whose record is not older than `first`. Older ones are forgotten.
    fn least_number(&self, first: Version) -> Option<u64>;

    /// The term of this node.
    fn epoch(&self) -> Epoch;
}

/// Keeps one replica in the cluster while the node runs.
pub(crate) async fn maintain<H: Rejoins>(host: Arc<H>, id: ReplicaId) {
    let mut pause = PAUSE_MIN;
    let mut last = String::new();
    // Only rows from before this start may have been proven by a lost key.
    let mut proves_all = host.leader().local.seal.is_new;
    let seat = &host.leader().seats[id];
    loop {
        if host.is_quarantined(id) {
            // A rebuild lets it come back.
            sleep(LOOK).await;
            continue;
        }
        let failure = match host.rejoin(id, proves_all).await {
            Ok((run, control)) => {
                proves_all = false;
                (pause, last) = (PAUSE_MIN, String::new());
                seat.absence.end();
                let reason = watch(&*host, run, control).await;
                Arc::clone(&host).give_up(run, &reason);
                seat.absence.note_unreachable(Obstacle::Passing, reason);
                continue;
            }
            Err(failure) => failure,
        };
        let lasting = matches!(failure, RejoinError::Lasting(_));
        let obstacle = if lasting { Obstacle::Lasting } else { Obstacle::Passing };
        let failure = failure.to_string();
        if failure != last {
            tracing::warn!(replica = %seat.name, reason = %failure, "the replica does not take part");
            last.clone_from(&failure);
        }
        seat.absence.note_unreachable(obstacle, failure);
        sleep(pause).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

pub(crate) async fn connect(
    host: &(impl LeadingHost + ?Sized),
    id: ReplicaId,
) -> Result<OwnConnection, BackendError> {
    let via = capture::ddl_token(host.leader().term.cluster_id);
    let cluster = host.leader().term.cluster_id;
    let options =
        format!("{OPTIONS} {} -c {}={via}", capture::vouch::own_option(cluster), capture::DDL_SETTING);
    let own =
        [("application_name", "onecopy agent"), ("client_encoding", "UTF8"), ("options", options.as_str())];
    OwnConnection::open(&host.address(id), &host.leader().database.served, &own).await
}

/// Ends every client's backend, and makes the server one of ours. In a server that is another's nothing is ended or changed.
pub(crate) async fn prepare(
    host: &impl LeadingHost,
    control: &mut OwnConnection,
    proves_all: bool,
) -> Result<(), RejoinError> {
    const FENCE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' \
        AND datname = current_database() AND pid <> pg_backend_pid()";
    let leader = host.leader();
    let cluster = leader.term.cluster_id;
    let ServerInfo { cluster: found, unservable } = ServerInfo::ask(control).await?;
    match (unservable, found) {
        (Some(what), _) => return Err(RejoinError::Lasting(format!("the server {what}"))),
        (None, Some(found)) if found != cluster.to_string() => {
            let text = format!("the server belongs to the cluster {found}, not to {cluster}");
            return Err(RejoinError::Lasting(text));
        }
        (None, None) if !leader.term.is_founding() => {
            let text = format!(
                "the server has nothing of the cluster {cluster} in it: it is another server, or was re-created"
            );
            return Err(RejoinError::Lasting(text));
        }
        _ => {}
    }
    let captures = control.query("SELECT 1 FROM pg_trigger WHERE tgname = '!onecopy'").await?;
    if !captures.is_empty() {
        let text = "its tables are under capture, by the protocol onecopy; statements are not shipped to such servers";
        return Err(RejoinError::Lasting(text.into()));
    }
    let deadline = Instant::now() + FENCE_DEADLINE;
    while !control.query(FENCE).await?.is_empty() {
        if Instant::now() > deadline {
            return Err(RejoinError::Passing("backends of an earlier run do not end".into()));
        }
        sleep(FENCE_PAUSE).await;
    }
    let applied_set = AppliedSet::at(control, &host.leader().local.seal);
    applied_set.install(&capture::install_sql(cluster), proves_all).await?;
    control.query(&host.leader().voucher.install_sql()).await?;
    Ok(())
}

/// Runs the transactions that the log has and the replica lacks. The first replica that comes back tells the catalogue.
pub(crate) async fn roll_forward(
    host: &impl LeadingHost,
    control: &mut OwnConnection,
    lacked: &LackedRecords,
    has: &BTreeSet<Identity>,
) -> Result<(), RejoinError> {
    let mark = Mark::at(control.exchange()).read().await?;
    let mut missing = missing(host, lacked, has, mark).await?;
    let count = missing.len();
    match lacked.order {
        ReplayOrder::ByNumber => missing.sort_by_key(|record| record.header().identity),
        ReplayOrder::None if count > 0 => {
            let text = format!(
                "it lacks {count} transactions, which cannot be run again here: REBUILD REPLICA gives it another one's data"
            );
            return Err(RejoinError::Lasting(text));
        }
        ReplayOrder::AsLogged | ReplayOrder::None => {}
    }
    for record in missing {
        redo(control, &record, lacked.replica, host.reply_bytes_max(), &host.leader().local.seal).await?;
    }
    if count > 0 {
        tracing::info!(replica = %host.leader().seats[lacked.replica].name, count, "ran transactions again from the log");
    }
    let leader = host.leader();
    if leader.database.catalogue().generation() == 0 {
        let generation = leader.log.durable().0.max(1);
        let database = leader.database.served.id;
        leader.set_catalogue(capture::catalogue::load_plain(control, database, generation).await?);
    }
    Ok(())
}

/// The transactions that the log has and the replica lacks, in the order of the log.
async fn missing(
    host: &impl LeadingHost,
    lacked: &LackedRecords,
    has: &BTreeSet<Identity>,
    mark: Option<Version>,
) -> Result<Vec<Arc<Record>>, RejoinError> {
    let log = &host.leader().log;
    let mut missing: Vec<Arc<Record>> = Vec::new();
    let mut from = log.first_retained();
    let first = from;
    while from <= lacked.upto {
        let records =
            log.read_from(from, READ_BYTES).await.map_err(|error| RejoinError::Passing(error.to_string()))?;
        let Some(last) = records.last() else { break };
        if from == first && is_beyond(&records[0], has, mark) {
            // The log is trimmed behind the last record that each member has.
            let reason = "the log no longer has the records that it lacks";
            host.leader().quarantine(lacked.replica, reason, QuarantineDuration::UntilRebuilt);
            return Err(RejoinError::Passing(reason.into()));
        }
        from = last.header().last.next();
        missing.extend(records.into_iter().filter(|record| {
            let Header { identity, last, .. } = *record.header();
            last <= lacked.upto
                && is_shipped_to(record, lacked.replica)
                && !has.contains(&identity)
                && !lacked.under_way.contains(&identity)
        }));
    }
    Ok(missing)
}

fn is_shipped(record: &Record) -> bool {
    record.items().any(|item| matches!(item, Item::Shipped(_)))
}

/// Whether a replica runs anything of a record.
fn is_shipped_to(record: &Record, replica: ReplicaId) -> bool {
    record.items().any(|item| matches!(item, Item::Shipped(shipped) if runs_at(&shipped, replica)))
}

fn runs_at(shipped: &Shipped, replica: ReplicaId) -> bool {
    shipped.holders.is_none_or(|holders| holders.contains(replica))
}

/// Whether a trimmed log begins after the replica's last transaction.
fn is_beyond(oldest: &Record, has: &BTreeSet<Identity>, mark: Option<Version>) -> bool {
    let Header { first, identity, .. } = *oldest.header();
    // A record that is not for the replica leaves nothing there, but its mark may be as late.
    let is_marked = mark.is_some_and(|mark| mark.next() >= first);
    first > Version(1) && is_shipped(oldest) && !has.contains(&identity) && !is_marked
}

/// Runs one transaction exactly as before. A failure happens again, and leaves only the identity.
async fn redo(
    control: &mut OwnConnection,
    record: &Record,
    replica: ReplicaId,
    reply_bytes_max: usize,
    seal: &Seal,
) -> Result<(), RejoinError> {
    let mut replayed = Replayed::of(control, reply_bytes_max, false);
    replayed.begin().await?;
    for item in record.items() {
        if let Item::Shipped(shipped) = item
            && runs_at(&shipped, replica)
        {
            replayed.run(&shipped).await?;
        }
    }
    Ok(replayed.commit(record.header().identity, seal).await?)
}

/// Watches a replica that takes part: the reason why it no longer does.
async fn watch<H: Rejoins>(host: &H, run: ReplicaRun, mut control: OwnConnection) -> String {
    let deadline = host.leader().local.timeouts.health_deadline;
    let (mut noted, mut knocked) = (Instant::now(), Instant::now());
    loop {
        sleep(LOOK).await;
        if !host.is_present(run) {
            return "it was given up".into();
        }
        let asked = timeout(deadline, control.query("SELECT 1")).await;
        match asked {
            Err(_) => return "the server does not answer".into(),
            Ok(Err(error)) => return error.to_string(),
            Ok(Ok(_)) => {}
        }
        if knocked.elapsed() >= deadline / 2 {
            knocked = Instant::now();
            let address = host.address(run.replica);
            if let Err(reason) = lets_in(&control, &address, deadline, |_| std::future::ready(())).await {
                return reason.to_string();
            }
        }
        if noted.elapsed() >= NOTE {
            noted = Instant::now();
            if let Err(error) = note_durable(host, run, &mut control).await {
                return error.to_string();
            }
        }
    }
}

/// The version up to which everything is over at a replica, in a table of its server's.
pub(crate) struct Mark<'a> {
    control: &'a mut Connection,
}

impl<'a> Mark<'a> {
    /// The mark of the replica at the other end.
    pub(crate) fn at(control: &'a mut Connection) -> Self {
        Self { control }
    }

    /// Notes it, on the server's disk.
    pub(crate) async fn note(&mut self, over: Version) -> Result<(), BackendError> {
        let sql = format!(
            "SET synchronous_commit = on; CREATE TABLE IF NOT EXISTS onecopy.over (version bigint NOT NULL); \
             BEGIN; DELETE FROM onecopy.over; INSERT INTO onecopy.over VALUES ({}); COMMIT",
            over.0.cast_signed()
        );
        self.control.simple(&sql).await.map(drop)
    }

    /// Reads it, if it was noted.
    async fn read(&mut self) -> Result<Option<Version>, BackendError> {
        const IS_THERE: &str = "SELECT 1 WHERE pg_catalog.to_regclass('onecopy.over') IS NOT NULL";
        if self.control.simple(IS_THERE).await?.is_empty() {
            return Ok(None);
        }
        let noted = self.control.simple("SELECT version FROM onecopy.over").await?;
        let version = noted.into_iter().flatten().flatten().next();
        Ok(version.and_then(|version| version.parse().ok()).map(Version))
    }
}

/// Makes durable at a replica what is over there, and forgets what no recovery can need.
async fn note_durable<H: Rejoins>(
    host: &H,
    run: ReplicaRun,
    control: &mut OwnConnection,
) -> Result<(), BackendError> {
    let Some(over) = host.over_at(run.replica) else { return Ok(()) };
    let over = over.min(host.leader().log.durable());
    // A commit that waits for the disk also makes earlier commits durable, if it writes anything ithost.
    let beat = "SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'onecopy', '')";
    control.query(beat).await?;
    if H::KEEPS_MARKS {
        Mark::at(control.exchange()).note(over).await?;
    }
    host.leader().note_durable(run.replica, over).await;
    let first = host.leader().log.first_retained();
    // Identities at the replica below the first number in the log have left the log.
    let Some(number) = host.least_number(first) else { return Ok(()) };
    let (epoch, number) = (host.epoch().0.cast_signed(), number.cast_signed());
    let oldest =
        host.leader().log.read_from(first, 1).await.ok().and_then(|records| records.first().cloned());
    let oldest = oldest.map_or(0, |record| record.header().identity.epoch.0.cast_signed());
    let forget =
        format!("DELETE FROM onecopy.applied WHERE epoch < {oldest} OR (epoch = {epoch} AND n < {number})");
    control.query(&forget).await?;
    Ok(())
}
