//! Brings a replica back: fences it, rolls it forward from the log, and lets it join the others while they work.
//!
//! All former backends have ended before the server is asked for its transactions, so no transaction can commit later
//! unseen. Transactions that only the log has are run again, in the order of term and number, which is the order of
//! conflicting ones. Unfinished transactions are left out: when the replica joins, they are sent, or run again
//! (`cluster::protocols::shipping::Scheduler::replica_joined`).
//!
//! While the replica takes part, its durable version is recorded periodically, so that the log can be trimmed behind
//! the slowest replica.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{Identity, ReplicaId, Version};
use cluster::protocols::shipping::{Proxy, SequenceNumber};
use cluster::record::{Header, Item, Record, Shipped};
use tokio::time::{Instant, sleep, timeout};
use wire::backend::{Fields, tag};
use wire::{encode, frame, frontend};

use super::lane::insert_identity;
use super::node::{Delivery, Shipping};
use super::replica_run::{LaneHost, ReplicaRun};
use super::reply::is_deterministic;
use super::shipment::{COPY_MARK, encode_copy};
use super::state::{Eligibility, Rejoining};
use crate::backend::{BackendError, OwnConnection, ServerInfo};
use crate::capture;
use crate::coordinator::{Obstacle, QuarantineDuration};
use crate::replica::agent::applied_set::AppliedSet;
use crate::replica::agent::lets_in;
use crate::security::seal::Seal;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Former backends get this long to end.
const FENCE_DEADLINE: Duration = Duration::from_secs(30);
const FENCE_PAUSE: Duration = Duration::from_millis(10);
/// Interval at which we check for the server.
const LOOK: Duration = Duration::from_millis(250);
/// Interval at which the durable version is recorded.
const NOTE: Duration = Duration::from_secs(10);
/// Bytes of the log that are read at a time.
const READ_BYTES: usize = 16 << 20;

const OPTIONS: &str = "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 \
    -c default_transaction_read_only=off -c client_min_messages=error -c search_path=pg_catalog";

/// The reason why a replica cannot take part now.
enum RejoinError {
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

/// The position in the log and the numbering when the replica was asked for its transactions.
struct RejoinPoint {
    run: ReplicaRun,
    /// All transactions up to this number were over.
    from: SequenceNumber,
    /// The last appended version.
    upto: Version,
    /// Decided but unfinished transactions.
    under_way: BTreeSet<Identity>,
}

/// Keeps one replica in the cluster while the node runs.
pub(super) async fn maintain(shipping: Arc<Shipping>, id: ReplicaId) {
    let mut pause = PAUSE_MIN;
    let mut last = String::new();
    // Only rows from before this start may have been proven by a lost key.
    let mut proves_all = shipping.coordinator().local.seal.is_new;
    let seat = &shipping.coordinator().seats[id];
    loop {
        if shipping.lock().replicas[usize::from(id.0)].eligibility == Eligibility::Quarantined {
            // A rebuild lets it come back.
            sleep(LOOK).await;
            continue;
        }
        let failure = match rejoin(&shipping, id, proves_all).await {
            Ok((run, control)) => {
                proves_all = false;
                (pause, last) = (PAUSE_MIN, String::new());
                seat.absence.end();
                let reason = watch(&shipping, run, control).await;
                Arc::clone(&shipping).give_up(run, &reason);
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

/// Fences the replica, rolls it forward, and lets it join.
async fn rejoin(
    shipping: &Arc<Shipping>,
    id: ReplicaId,
    proves_all: bool,
) -> Result<(ReplicaRun, OwnConnection), RejoinError> {
    let mut control = connect(shipping, id).await?;
    prepare(shipping, &mut control, proves_all).await?;
    let start = shipping.ask_to_return(id);
    while shipping.coordinator().log.durable() < start.upto {
        sleep(FENCE_PAUSE).await;
    }
    let has = AppliedSet::at(&mut control, &shipping.coordinator().local.seal).read().await?;
    let has: BTreeSet<Identity> = has.into_iter().collect();
    roll_forward(shipping, &mut control, &start, &has).await?;
    if shipping.coordinator().database.catalogue().generation() == 0 {
        let generation = shipping.coordinator().log.durable().0.max(1);
        let database = shipping.coordinator().database.served.id;
        let catalogue = capture::catalogue::load_plain(&mut control, database, generation).await?;
        shipping.coordinator().set_catalogue(catalogue);
    }
    if !shipping.join(&start, &has) {
        return Err(RejoinError::Passing("it was given up again".into()));
    }
    Ok((start.run, control))
}

async fn connect(shipping: &Shipping, id: ReplicaId) -> Result<OwnConnection, BackendError> {
    let via = capture::ddl_token(shipping.coordinator().term.cluster_id);
    let cluster = shipping.coordinator().term.cluster_id;
    let options =
        format!("{OPTIONS} {} -c {}={via}", capture::vouch::own_option(cluster), capture::DDL_SETTING);
    let own =
        [("application_name", "onecopy agent"), ("client_encoding", "UTF8"), ("options", options.as_str())];
    OwnConnection::open(&shipping.address(id), &shipping.coordinator().database.served, &own).await
}

/// Ends every client's backend, and makes the server one of ours. In a server that is another's nothing is ended or changed.
async fn prepare(
    shipping: &Shipping,
    control: &mut OwnConnection,
    proves_all: bool,
) -> Result<(), RejoinError> {
    const FENCE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' \
        AND datname = current_database() AND pid <> pg_backend_pid()";
    let coordinator = shipping.coordinator();
    let cluster = coordinator.term.cluster_id;
    let ServerInfo { cluster: found, unservable } = ServerInfo::ask(control).await?;
    match (unservable, found) {
        (Some(what), _) => return Err(RejoinError::Lasting(format!("the server {what}"))),
        (None, Some(found)) if found != cluster.to_string() => {
            let text = format!("the server belongs to the cluster {found}, not to {cluster}");
            return Err(RejoinError::Lasting(text));
        }
        (None, None) if !coordinator.term.is_founding() => {
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
    let applied_set = AppliedSet::at(control, &shipping.coordinator().local.seal);
    applied_set.install(&capture::install_sql(cluster), proves_all).await?;
    control.query(&shipping.coordinator().local.voucher.install_sql()).await?;
    Ok(())
}

/// Runs the transactions that the log has and the replica lacks.
async fn roll_forward(
    shipping: &Shipping,
    control: &mut OwnConnection,
    start: &RejoinPoint,
    has: &BTreeSet<Identity>,
) -> Result<(), RejoinError> {
    let log = &shipping.coordinator().log;
    let mut missing: Vec<Arc<Record>> = Vec::new();
    let mut from = log.first_retained();
    let first = from;
    while from <= start.upto {
        let records =
            log.read_from(from, READ_BYTES).await.map_err(|error| RejoinError::Passing(error.to_string()))?;
        let Some(last) = records.last() else { break };
        if from == first && is_beyond(&records[0], has) {
            // The log is trimmed behind the last record that each member has.
            let reason = "the log no longer has the records that it lacks";
            shipping.coordinator().quarantine(start.run.replica, reason, QuarantineDuration::UntilRebuilt);
            return Err(RejoinError::Passing(reason.into()));
        }
        from = last.header().last.next();
        missing.extend(records.into_iter().filter(|record| {
            let Header { identity, last, .. } = *record.header();
            last <= start.upto
                && is_shipped(record)
                && !has.contains(&identity)
                && !start.under_way.contains(&identity)
        }));
    }
    missing.sort_by_key(|record| record.header().identity);
    let count = missing.len();
    for record in missing {
        redo(control, &record, shipping.limits.reply_bytes, &shipping.coordinator().local.seal).await?;
    }
    if count > 0 {
        tracing::info!(replica = %shipping.coordinator().seats[start.run.replica].name, count, "ran transactions again from the log");
    }
    Ok(())
}

fn is_shipped(record: &Record) -> bool {
    record.items().any(|item| matches!(item, Item::Shipped(_)))
}

/// Whether a trimmed log begins after the replica's last transaction.
fn is_beyond(oldest: &Record, has: &BTreeSet<Identity>) -> bool {
    let Header { first, identity, .. } = *oldest.header();
    first > Version(1) && is_shipped(oldest) && !has.contains(&identity)
}

/// Runs one transaction exactly as before. A failure happens again, and leaves only the identity.
async fn redo(
    control: &mut OwnConnection,
    record: &Record,
    reply_bytes_max: usize,
    seal: &Seal,
) -> Result<(), RejoinError> {
    control.query("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await?;
    let mut failed = false;
    for item in record.items() {
        let Item::Shipped(shipped) = item else { continue };
        // A failed transaction accepts only ROLLBACK TO SAVEPOINT.
        match run(control, &shipped, !failed).await {
            Ok(returned_bytes) => failed = returned_bytes > reply_bytes_max,
            Err(BackendError::Server(body)) if is_deterministic(Fields::new(&body).sqlstate()) => {
                failed = true;
            }
            Err(other) => return Err(other.into()),
        }
    }
    let insert = insert_identity(record.header().identity, seal);
    let reset = "SET LOCAL SESSION AUTHORIZATION DEFAULT; ";
    if failed {
        control.query("ROLLBACK").await?;
        control.query(&format!("BEGIN READ WRITE; {insert}; COMMIT")).await?;
    } else {
        control.query(&format!("{reset}{insert}; COMMIT")).await?;
    }
    control.query("RESET SESSION AUTHORIZATION; RESET ALL").await?;
    Ok(())
}

/// How much it returned in rows.
async fn run(control: &mut OwnConnection, shipped: &Shipped, settles: bool) -> Result<usize, BackendError> {
    if settles {
        let role = shipped.role.replace('\'', "''");
        control.query(&format!("SET LOCAL SESSION AUTHORIZATION '{role}'; {}", shipped.settings)).await?;
    }
    let control = control.exchange();
    if shipped.is_extended {
        let out = &mut control.output;
        encode::parse_raw(out, b"", &shipped.text, &shipped.types);
        encode::message(out, frontend::tag::BIND, |body| {
            body.extend_from_slice(&[0, 0]);
            body.extend_from_slice(&shipped.values);
        });
        encode::execute(out, b"", 0);
        encode::sync(out);
    } else if shipped.types == COPY_MARK {
        encode_copy(&mut control.output, &shipped.text, &shipped.values);
    } else {
        encode::query(&mut control.output, &shipped.text);
    }
    control.flush().await?;
    let (mut rows_bytes, mut error) = (0, None);
    loop {
        let (kind, total) = control.message().await?;
        match kind {
            tag::DATA_ROW => rows_bytes += total,
            tag::ERROR_RESPONSE if error.is_none() => {
                error = Some(BackendError::Server(control.input.data()[frame::HEADER_BYTES..total].to_vec()));
            }
            _ => {}
        }
        control.input.consume(total);
        if kind == tag::READY_FOR_QUERY {
            return error.map_or(Ok(rows_bytes), Err);
        }
    }
}

/// Watches a replica that takes part: the reason why it no longer does.
async fn watch(shipping: &Shipping, run: ReplicaRun, mut control: OwnConnection) -> String {
    let deadline = shipping.coordinator().local.timeouts.health_deadline;
    let (mut noted, mut knocked) = (Instant::now(), Instant::now());
    loop {
        sleep(LOOK).await;
        if !shipping.is_present(run) {
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
            let address = shipping.address(run.replica);
            if let Err(reason) = lets_in(&control, &address, deadline, |_| std::future::ready(())).await {
                return reason.to_string();
            }
        }
        if noted.elapsed() >= NOTE {
            noted = Instant::now();
            if let Err(error) = shipping.note_durable(run, &mut control).await {
                return error.to_string();
            }
        }
    }
}

impl Shipping {
    /// Starts to collect decisions for the replica.
    fn ask_to_return(&self, id: ReplicaId) -> RejoinPoint {
        let mut state = self.lock();
        let index = usize::from(id.0);
        let decided = state.active.iter().filter(|(_, transaction)| transaction.version.is_some());
        let decided = decided
            .map(|(number, transaction)| (*number, (transaction.locks.clone(), transaction.writes.clone())));
        let decided: BTreeMap<_, _> = decided.collect();
        let under_way = decided.keys().map(|number| self.identity(*number)).collect();
        let (from, upto) = (state.scheduler.over(), state.appended);
        state.replicas[index].rejoining.decided = Some(decided);
        RejoinPoint { run: state.run(index), from, upto, under_way }
    }

    /// Lets the replica take part; `false` if it was given up meanwhile.
    fn join(self: &Arc<Self>, start: &RejoinPoint, has: &BTreeSet<Identity>) -> bool {
        let index = usize::from(start.run.replica.0);
        let mut state = self.lock();
        let replica = &mut state.replicas[index];
        if replica.incarnation != start.run.incarnation {
            return false;
        }
        replica.proxy = Proxy::new(start.from);
        let decided = replica.rejoining.decided.take().unwrap_or_default();
        let has = |number: SequenceNumber| has.contains(&self.identity(number));
        let again: BTreeSet<SequenceNumber> =
            decided.keys().copied().filter(|number| !has(*number) && !state.scheduler.has(*number)).collect();
        let lacking = state.active.iter().filter(|(number, _)| !has(**number));
        let undone = lacking.chain(state.past.iter().filter(|(number, _)| again.contains(number)));
        let undone: BTreeSet<Version> = undone.filter_map(|(_, transaction)| transaction.version).collect();
        let replica = &mut state.replicas[index];
        (replica.rejoining, replica.undone) = (Rejoining { decided: None, again }, undone);
        let mut out = Vec::new();
        state.scheduler.replica_joined(start.run.replica, start.from, has, &decided, &mut out);
        self.deliver(state, out.into_iter().map(Delivery::Scheduler).collect());
        tracing::info!(replica = %self.coordinator().seats[start.run.replica].name, "the replica takes part");
        self.changed();
        true
    }

    /// Makes durable at a replica what is over there, and forgets what no recovery can need.
    async fn note_durable(&self, run: ReplicaRun, control: &mut OwnConnection) -> Result<(), BackendError> {
        let index = usize::from(run.replica.0);
        let over = {
            let state = self.lock();
            if !state.replicas[index].rejoining.again.is_empty() {
                return Ok(());
            }
            state.over_at(index)
        };
        let over = over.min(self.coordinator().log.durable());
        // A commit that waits for the disk also makes earlier commits durable, if it writes anything itself.
        let beat = "SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'onecopy', '')";
        control.query(beat).await?;
        self.coordinator().note_durable(run.replica, over).await;
        let first = self.coordinator().log.first_retained();
        let first_number = {
            let mut state = self.lock();
            state.numbers = state.numbers.split_off(&first);
            state.numbers.values().min().copied()
        };
        // Identities at the replica below the first number in the log have left the log.
        let Some(number) = first_number else { return Ok(()) };
        let (epoch, number) = (self.epoch().0.cast_signed(), number.0.cast_signed());
        let oldest = self
            .coordinator()
            .log
            .read_from(first, 1)
            .await
            .ok()
            .and_then(|records| records.first().cloned());
        let oldest = oldest.map_or(0, |record| record.header().identity.epoch.0.cast_signed());
        let forget = format!(
            "DELETE FROM onecopy.applied WHERE epoch < {oldest} OR (epoch = {epoch} AND n < {number})"
        );
        control.query(&forget).await?;
        Ok(())
    }
}
