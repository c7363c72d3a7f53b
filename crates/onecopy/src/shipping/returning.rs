//! A replica is made to take part: fenced, rolled forward from the log, and joined to the others while they work.
//!
//! Whatever was left running at the server is ended and gone before it is asked what it has; so nothing can commit there
//! that the answer does not show. What the log has beyond that is done again in order of term and number, which is the
//! order of whatever conflicts. What is under way when the replica is asked is left out of that: it is sent, or done again,
//! when the replica joins (`cluster::protocols::shipping::Scheduler::replica_joined`).
//!
//! While it takes part, what is durable there is noted from time to time, so that the log can be trimmed behind the slowest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::ids::{Identity, ReplicaId, Version};
use cluster::protocols::shipping::{Proxy, SequenceNumber};
use cluster::record::{Header, Item, Record, Shipped};
use tokio::time::{Instant, sleep, timeout};
use wire::backend::{Fields, tag};
use wire::{encode, frame, frontend};

use super::lane::{At, insert_identity, is_the_statements};
use super::shipment::{COPY_MARK, encode_copy};
use super::{Next, Shipping};
use crate::backend::{BackendError, Connection, ServerInfo};
use crate::capture;
use crate::coordinator::{Obstacle, QuarantineDuration};
use crate::replica::agent::{identity, lets_in};
use crate::security::seal::Seal;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long the former backends may take to go.
const FENCE_DEADLINE: Duration = Duration::from_secs(30);
const FENCE_PAUSE: Duration = Duration::from_millis(10);
/// How often it is looked whether the server is there.
const LOOK: Duration = Duration::from_millis(250);
/// How often what is durable is noted.
const NOTE: Duration = Duration::from_secs(10);
/// How much of the log is read at a time.
const READ_BYTES: usize = 16 << 20;

const OPTIONS: &str = "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 \
    -c default_transaction_read_only=off -c client_min_messages=error -c search_path=pg_catalog";

/// Why a replica cannot take part now.
enum Failure {
    Backend(BackendError),
    Told(String),
    /// Somebody has to do something about it.
    QuarantineDuration(String),
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Backend(error) => error.fmt(f),
            Self::Told(text) | Self::QuarantineDuration(text) => f.write_str(text),
        }
    }
}

/// What was known when the replica was asked what it has.
struct Start {
    at: At,
    /// Every number up to this one was over.
    from: SequenceNumber,
    /// The last version that had been appended.
    upto: Version,
    /// Decided and not over.
    under_way: BTreeSet<Identity>,
}

/// Keeps one replica in the cluster, for ever.
pub(super) async fn keep(shipping: Arc<Shipping>, id: ReplicaId) {
    let mut pause = PAUSE_MIN;
    let mut last = String::new();
    // Only what was there before this start may have been proven by a key that is gone.
    let mut proves_all = shipping.coordinator().local.seal.is_new;
    let seat = &shipping.coordinator().seats[id];
    loop {
        if shipping.lock().sides[usize::from(id.0)].is_diverged {
            // Until it is rebuilt.
            sleep(LOOK).await;
            continue;
        }
        let failure = match bring(&shipping, id, proves_all).await {
            Ok((at, control)) => {
                proves_all = false;
                (pause, last) = (PAUSE_MIN, String::new());
                seat.absence.end();
                let reason = watch(&shipping, at, control).await;
                shipping.give_up(at, &reason);
                seat.absence.note_unreachable(Obstacle::Passing, reason);
                continue;
            }
            Err(failure) => failure,
        };
        let lasting = matches!(failure, Failure::QuarantineDuration(_));
        let obstacle = if lasting { Obstacle::QuarantineDuration } else { Obstacle::Passing };
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
async fn bring(
    shipping: &Arc<Shipping>,
    id: ReplicaId,
    proves_all: bool,
) -> Result<(At, Connection), Failure> {
    let mut control = connect(shipping, id).await?;
    prepare(shipping, &mut control, proves_all).await?;
    let start = shipping.ask_to_return(id);
    while shipping.coordinator().log.durable() < start.upto {
        sleep(FENCE_PAUSE).await;
    }
    let has = identity::read(&mut control, &shipping.coordinator().local.seal).await?;
    let has: BTreeSet<Identity> = has.into_iter().collect();
    roll_forward(shipping, &mut control, &start, &has).await?;
    if shipping.coordinator().catalogue().generation() == 0 {
        let generation = shipping.coordinator().log.durable().0.max(1);
        let catalogue = capture::catalogue::load_plain(&mut control, generation).await?;
        shipping.coordinator().set_catalogue(catalogue);
    }
    if !shipping.join(&start, &has) {
        return Err(Failure::Told("it was given up again".into()));
    }
    Ok((start.at, control))
}

async fn connect(shipping: &Shipping, id: ReplicaId) -> Result<Connection, BackendError> {
    let via = capture::ddl_token(shipping.coordinator().cluster_id);
    let cluster = shipping.coordinator().cluster_id;
    let options =
        format!("{OPTIONS} {} -c {}={via}", capture::vouch::own_option(cluster), capture::DDL_SETTING);
    let own =
        [("application_name", "onecopy agent"), ("client_encoding", "UTF8"), ("options", options.as_str())];
    Connection::open_own(&shipping.address(id), &shipping.coordinator().served, &own).await
}

/// Ends every client's backend, and makes the server one of ours. In a server that is another's nothing is ended or changed.
async fn prepare(shipping: &Shipping, control: &mut Connection, proves_all: bool) -> Result<(), Failure> {
    const FENCE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' \
        AND datname = current_database() AND pid <> pg_backend_pid()";
    let coordinator = shipping.coordinator();
    let cluster = coordinator.cluster_id;
    let ServerInfo { cluster: found, unfit } = ServerInfo::ask(control).await?;
    match (unfit, found) {
        (Some(what), _) => return Err(Failure::QuarantineDuration(format!("the server {what}"))),
        (None, Some(found)) if found != cluster.to_string() => {
            let text = format!("the server belongs to the cluster {found}, not to {cluster}");
            return Err(Failure::QuarantineDuration(text));
        }
        (None, None) if !coordinator.is_founding.load(Ordering::Acquire) => {
            let text = format!(
                "the server has nothing of the cluster {cluster} in it: it is another server, or was re-created"
            );
            return Err(Failure::QuarantineDuration(text));
        }
        _ => {}
    }
    let captures = control.simple("SELECT 1 FROM pg_trigger WHERE tgname = '!onecopy'").await?;
    if !captures.is_empty() {
        let text = "its tables are under capture, by the protocol onecopy; statements are not shipped to such servers";
        return Err(Failure::QuarantineDuration(text.into()));
    }
    let deadline = Instant::now() + FENCE_DEADLINE;
    while !control.simple(FENCE).await?.is_empty() {
        if Instant::now() > deadline {
            return Err(Failure::Told("backends of before do not end".into()));
        }
        sleep(FENCE_PAUSE).await;
    }
    identity::install(
        control,
        &capture::install_sql(cluster),
        &shipping.coordinator().local.seal,
        proves_all,
    )
    .await?;
    control.simple(&shipping.coordinator().local.voucher.install_sql()).await?;
    Ok(())
}

/// Does again what the log has and the replica has not.
async fn roll_forward(
    shipping: &Shipping,
    control: &mut Connection,
    start: &Start,
    has: &BTreeSet<Identity>,
) -> Result<(), Failure> {
    let log = &shipping.coordinator().log;
    let mut missing: Vec<Arc<Record>> = Vec::new();
    let mut from = log.first_retained();
    let first = from;
    while from <= start.upto {
        let records =
            log.read_from(from, READ_BYTES).await.map_err(|error| Failure::Told(error.to_string()))?;
        let Some(last) = records.last() else { break };
        if from == first && is_beyond(&records[0], has) {
            // The log keeps for whoever counts what that one has last.
            let reason = "the log has no more what it lacks";
            shipping.coordinator().quarantine(start.at.replica, reason, QuarantineDuration::UntilRebuilt);
            return Err(Failure::Told(reason.into()));
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
        tracing::info!(replica = %shipping.coordinator().seats[start.at.replica].name, count, "transactions were done again");
    }
    Ok(())
}

fn is_shipped(record: &Record) -> bool {
    record.items().any(|item| matches!(item, Item::Shipped(_)))
}

/// Whether a log that was trimmed begins after what a replica has.
fn is_beyond(oldest: &Record, has: &BTreeSet<Identity>) -> bool {
    let Header { first, identity, .. } = *oldest.header();
    first > Version(1) && is_shipped(oldest) && !has.contains(&identity)
}

/// One transaction, exactly as it was: what failed then fails again, and leaves its identity only.
async fn redo(
    control: &mut Connection,
    record: &Record,
    reply_bytes_max: usize,
    seal: &Seal,
) -> Result<(), Failure> {
    control.simple("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await?;
    let mut failed = false;
    for item in record.items() {
        let Item::Shipped(shipped) = item else { continue };
        // In a failed transaction nothing works but what goes back to a savepoint.
        match run(control, &shipped, !failed).await {
            Ok(returned_bytes) => failed = returned_bytes > reply_bytes_max,
            Err(BackendError::Server(body)) if is_the_statements(Fields::new(&body).sqlstate()) => {
                failed = true;
            }
            Err(other) => return Err(other.into()),
        }
    }
    let insert = insert_identity(record.header().identity, seal);
    let reset = "SET LOCAL SESSION AUTHORIZATION DEFAULT; ";
    if failed {
        control.simple("ROLLBACK").await?;
        control.simple(&format!("BEGIN READ WRITE; {insert}; COMMIT")).await?;
    } else {
        control.simple(&format!("{reset}{insert}; COMMIT")).await?;
    }
    control.simple("RESET SESSION AUTHORIZATION; RESET ALL").await?;
    Ok(())
}

/// How much it returned in rows.
async fn run(control: &mut Connection, shipped: &Shipped, settles: bool) -> Result<usize, BackendError> {
    if settles {
        let role = shipped.role.replace('\'', "''");
        control.simple(&format!("SET LOCAL SESSION AUTHORIZATION '{role}'; {}", shipped.settings)).await?;
    }
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

/// Looks after a replica that takes part; why it does not any more.
async fn watch(shipping: &Shipping, at: At, mut control: Connection) -> String {
    let deadline = shipping.coordinator().local.timeouts.health_deadline;
    let (mut noted, mut knocked) = (Instant::now(), Instant::now());
    loop {
        sleep(LOOK).await;
        if !shipping.is_present(at) {
            return "it was given up".into();
        }
        let asked = timeout(deadline, control.simple("SELECT 1")).await;
        match asked {
            Err(_) => return "the server does not answer".into(),
            Ok(Err(error)) => return error.to_string(),
            Ok(Ok(_)) => {}
        }
        if knocked.elapsed() >= deadline / 2 {
            knocked = Instant::now();
            let address = shipping.address(at.replica);
            if let Err(reason) = lets_in(&control, &address, deadline, |_| std::future::ready(())).await {
                return reason;
            }
        }
        if noted.elapsed() >= NOTE {
            noted = Instant::now();
            if let Err(error) = shipping.note_durable(at, &mut control).await {
                return error.to_string();
            }
        }
    }
}

impl Shipping {
    /// From now on what is decided is kept for the replica.
    fn ask_to_return(&self, id: ReplicaId) -> Start {
        let mut inside = self.lock();
        let index = usize::from(id.0);
        let decided = inside.owners.iter().filter(|(_, owner)| owner.version.is_some());
        let tail = decided.map(|(number, owner)| (*number, (owner.locks.clone(), owner.writes.clone())));
        let tail: std::collections::BTreeMap<_, _> = tail.collect();
        let under_way = tail.keys().map(|number| self.identity(*number)).collect();
        let (from, upto) = (inside.scheduler.over(), inside.appended);
        let side = &mut inside.sides[index];
        side.tail = Some(tail);
        Start { at: At { replica: id, incarnation: side.incarnation }, from, upto, under_way }
    }

    /// The replica takes part from now on; `false` if it was given up meanwhile.
    fn join(self: &Arc<Self>, start: &Start, has: &BTreeSet<Identity>) -> bool {
        let index = usize::from(start.at.replica.0);
        let mut inside = self.lock();
        let side = &mut inside.sides[index];
        if side.incarnation != start.at.incarnation {
            return false;
        }
        side.proxy = Proxy::new(start.from);
        let tail = side.tail.take().unwrap_or_default();
        let has = |number: SequenceNumber| has.contains(&self.identity(number));
        let again: BTreeSet<SequenceNumber> =
            tail.keys().copied().filter(|number| !has(*number) && !inside.scheduler.has(*number)).collect();
        let lacking = inside.owners.iter().filter(|(number, _)| !has(**number));
        let undone = lacking.chain(inside.past.iter().filter(|(number, _)| again.contains(number)));
        let undone: BTreeSet<Version> = undone.filter_map(|(_, owner)| owner.version).collect();
        let side = &mut inside.sides[index];
        (side.again, side.undone) = (again, undone);
        let mut out = Vec::new();
        inside.scheduler.replica_joined(start.at.replica, start.from, has, &tail, &mut out);
        self.carry_out(inside, out.into_iter().map(Next::Scheduler).collect());
        tracing::info!(replica = %self.coordinator().seats[start.at.replica].name, "the replica takes part");
        self.changed();
        true
    }

    /// Makes durable at a replica what is over there, and forgets what no recovery can need.
    async fn note_durable(&self, at: At, control: &mut Connection) -> Result<(), BackendError> {
        let index = usize::from(at.replica.0);
        let over = {
            let inside = self.lock();
            if !inside.sides[index].again.is_empty() {
                return Ok(());
            }
            inside.over_at(index)
        };
        let over = over.min(self.coordinator().log.durable());
        // A commit that waits for the disk takes all before it along, if it has something of its own to write.
        let beat = "SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'onecopy', '')";
        control.simple(beat).await?;
        self.coordinator().note_durable(at.replica, over).await;
        let first = self.coordinator().log.first_retained();
        let first_number = {
            let mut inside = self.lock();
            inside.numbers = inside.numbers.split_off(&first);
            inside.numbers.values().min().copied()
        };
        // A number that is lower than all that the log has, and is there, has left the log.
        let Some(number) = first_number else { return Ok(()) };
        let (epoch, number) = (self.epoch.0.cast_signed(), number.0.cast_signed());
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
        control.simple(&forget).await?;
        Ok(())
    }
}
