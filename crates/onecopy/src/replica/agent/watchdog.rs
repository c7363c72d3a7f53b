//! What keeps the applier from waiting for ever behind a client's lock.
//!
//! A record that is in the log must be applied; whoever holds a lock in its way has to give way. A client's read may hold
//! a schema change up for as long as the operator allows (like `max_standby_streaming_delay` of a hot standby), anything
//! else gives way: its statement is cancelled, and if it is still there later its backend is ended (an idle transaction
//! cannot be cancelled). An update transaction that is open here is not even waited for: it has been overtaken, or, if its
//! present statement can be undone alone, that is cancelled and run again behind what is applied here. One that holds
//! up whoever is in the way gives way, too, if that lasts: it may itself wait for what is being applied, which no server can
//! see, and so for ever. This also stands in for what the server does by itself after
//! `deadlock_timeout`, which the applier has set out of reach: sending autovacuum away.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::ids::SessionId;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::AgentEvent;
use crate::backend::{BackendError, Connection};

/// How long the applier may wait before a read, or whoever else is in its way, is sent away.
const PATIENCE: Duration = Duration::from_secs(1);
/// It is looked for the first time who is in the applier's way after this, or after twice as long as batches take that meet
/// nobody, where that is more: a server that has to wait for the processor should not have to say so for each. Each further
/// look is twice as far from the one before, up to [`PATIENCE`].
const FIRST_LOOK: Duration = Duration::from_millis(5);
/// The first look is no later than this. So late it is at once where no update transaction is open at the server: then only
/// strangers and schema changes can meet.
const FIRST_LOOK_MAX: Duration = Duration::from_millis(40);
/// How much a batch counts in what is usual: one in so many.
const USUAL_WEIGHT: u32 = 8;
/// Whether anybody is in the way. This is asked much more often than there is anybody, so it is prepared once.
const IS_BLOCKED: &str = "EXECUTE is_blocked";
/// How long the control connection may take to answer.
const CONTROL_DEADLINE: Duration = Duration::from_secs(10);
/// Chains of waits are followed so far.
const DEPTH_MAX: u32 = 8;
/// Evictions that are remembered until their sessions have heard of them.
const EVICTIONS_MAX: usize = 10_000;

/// Backends of one server, by their process numbers: those where an update transaction is open, and those whose work was
/// ended for a refresh. A session looks here for the reason of an error that its client did not ask for.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    evicted: Mutex<BTreeSet<i32>>,
    tenants: Mutex<BTreeMap<i32, Tenant>>,
}

/// Whose update transaction is open on a backend.
#[derive(Clone, Debug)]
struct Tenant {
    session: SessionId,
    present: Arc<watch::Sender<Present>>,
}

/// The statement that runs on a backend.
#[derive(Clone, Copy, Debug, Default)]
struct Present {
    /// It can be undone alone, and be run again.
    is_guarded: bool,
    /// It has run, or was cancelled, and may be about to be undone.
    is_judged: bool,
    /// Cancels of it that the server may not have passed on yet.
    cancels: usize,
    /// The session has something on the backend that would be lost with it.
    holds: bool,
}

/// An update transaction is open on a backend, as long as this lives.
#[derive(Debug)]
pub(crate) struct Tenancy {
    of: Arc<Evictions>,
    pid: i32,
    present: Arc<watch::Sender<Present>>,
}

impl Tenancy {
    /// A statement begins that can be undone alone, and be run again.
    pub(crate) fn guard(&self) {
        self.present.send_modify(|present| (present.is_guarded, present.is_judged) = (true, false));
    }

    /// The session may have something on the backend that would be lost with it.
    pub(crate) fn hold(&self) {
        self.present.send_modify(|present| present.holds = true);
    }

    /// The statement that has ended stays, or is undone by now: what is locked by then is in the way for good.
    pub(crate) fn judged(&self) {
        self.present.send_modify(|present| present.is_judged = false);
    }

    /// It has ended, and is judged next. No cancel is under way to the backend when this returns, or it would end the next statement: what
    /// the server has passed on by then, a backend that waits for a command ignores.
    pub(crate) async fn end_guard(&self) {
        let mut present = self.present.subscribe();
        self.present.send_modify(|present| (present.is_guarded, present.is_judged) = (false, true));
        // The sender is ours, so it is there.
        let _ = present.wait_for(|present| present.cancels == 0).await;
    }
}

/// A cancel is under way, as long as this lives.
struct Cancelling(Arc<watch::Sender<Present>>);

impl Drop for Cancelling {
    fn drop(&mut self) {
        self.0.send_modify(|present| present.cancels -= 1);
    }
}

impl Evictions {
    fn note(&self, pid: i32) {
        let mut pids = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        if pids.len() >= EVICTIONS_MAX {
            pids.clear();
        }
        pids.insert(pid);
    }

    /// Whether this backend was evicted since the last time it was asked about.
    pub(crate) fn take(&self, pid: i32) -> bool {
        self.evicted.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid)
    }

    /// A session opens an update transaction on a backend.
    pub(crate) fn move_in(self: &Arc<Self>, pid: i32, session: SessionId) -> Tenancy {
        let present: Arc<watch::Sender<Present>> = Arc::default();
        let tenant = Tenant { session, present: Arc::clone(&present) };
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, tenant);
        Tenancy { of: Arc::clone(self), pid, present }
    }

    /// Whether an update transaction is open at the server.
    fn has_tenants(&self) -> bool {
        !self.tenants.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whose update transaction is open on a backend.
    pub(crate) fn tenant(&self, pid: i32) -> Option<SessionId> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).map(|tenant| tenant.session)
    }

    /// Whether it is open whether the last statement on a backend is undone.
    fn is_judged(&self, pid: i32) -> bool {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.get(&pid).is_some_and(|tenant| tenant.present.borrow().is_judged)
    }

    /// Whether a session has something on a backend, so that its transaction is rolled back rather than the backend ended.
    fn holds(&self, pid: i32) -> bool {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.get(&pid).is_some_and(|tenant| tenant.present.borrow().holds)
    }

    /// The statement that runs on a backend is about to be cancelled, if it can be undone alone.
    fn begin_cancel(&self, pid: i32) -> Option<Cancelling> {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let present = &tenants.get(&pid)?.present;
        let begun = present.send_if_modified(|present| {
            present.cancels += usize::from(present.is_guarded);
            present.is_guarded
        });
        begun.then(|| Cancelling(Arc::clone(present)))
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        self.of.tenants.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.pid);
    }
}

/// Who may be in the applier's way, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<'a> {
    /// The applier's process.
    pub(super) applier: i32,
    /// The replica's name.
    pub(super) replica: &'a str,
    /// How long a client may hold the applier up, in milliseconds.
    pub(super) reader_patience: &'a AtomicU64,
    pub(super) evictions: &'a Evictions,
    /// Where it is said whose update transaction is in the way.
    pub(super) events: &'a mpsc::Sender<AgentEvent>,
}

/// How long batches take that meet nobody.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pace {
    usual: Duration,
}

impl Pace {
    fn took(&mut self, time: Duration) {
        self.usual = (self.usual * (USUAL_WEIGHT - 1) + time.min(FIRST_LOOK_MAX)) / USUAL_WEIGHT;
    }

    fn first_look(self, has_tenants: bool) -> Duration {
        if has_tenants { (self.usual * 2).clamp(FIRST_LOOK, FIRST_LOOK_MAX) } else { FIRST_LOOK_MAX }
    }
}

/// Who was in the way when it was looked.
#[derive(Debug, Default)]
struct Seen {
    /// Anybody ever was.
    is_met: bool,
    /// Since when.
    since: BTreeMap<i32, Instant>,
    /// When something was done about it.
    acted: BTreeMap<i32, Instant>,
}

/// Makes [`watched`] possible on a new control connection.
pub(super) async fn prepare(control: &mut Connection, applier: i32) -> Result<(), BackendError> {
    let question = format!("PREPARE is_blocked AS SELECT FROM unnest(pg_blocking_pids({applier})) LIMIT 1");
    control.simple(&question).await?;
    Ok(())
}

/// Waits for `work` of the applier, and clears its way.
pub(super) async fn watched<T>(
    control: &mut Connection,
    way: Way<'_>,
    pace: &mut Pace,
    work: impl Future<Output = T>,
) -> Result<T, BackendError> {
    tokio::pin!(work);
    let begun = Instant::now();
    let (mut seen, mut pause) = (Seen::default(), pace.first_look(way.evictions.has_tenants()));
    let outcome = loop {
        tokio::select! {
            outcome = &mut work => break outcome,
            () = tokio::time::sleep(pause) => clear_way(control, way, &mut seen).await?,
        }
        pause = PATIENCE.min(pause * 2);
    };
    if !seen.is_met {
        pace.took(begun.elapsed());
    }
    Ok(outcome)
}

async fn clear_way(control: &mut Connection, way: Way<'_>, seen: &mut Seen) -> Result<(), BackendError> {
    if ask(control, IS_BLOCKED).await?.is_empty() {
        seen.since.clear();
        return Ok(());
    }
    seen.is_met = true;
    let blockers = blockers(control, way.applier).await?;
    seen.since.retain(|pid, _| blockers.contains_key(pid));
    for (pid, Blocker { is_client, is_direct }) in blockers {
        let since = *seen.since.entry(pid).or_insert_with(Instant::now);
        if let Some(session) = way.evictions.tenant(pid) {
            // One that is not in the way itself may well end soon, unless it waits for this very refresh.
            let is_soon = is_direct && since.elapsed() < PATIENCE;
            if is_soon && way.evictions.is_judged(pid) {
                continue;
            }
            if let Some(_under_way) = is_soon.then(|| way.evictions.begin_cancel(pid)).flatten() {
                way.evictions.note(pid);
                ask(control, &format!("SELECT pg_cancel_backend({pid})")).await?;
            } else if is_direct || since.elapsed() >= PATIENCE {
                // A session that would lose more than the transaction rolls back as soon as it hears of it, unless it waits
                // for its client.
                match seen.acted.get(&pid).filter(|_| way.evictions.holds(pid)) {
                    Some(acted) if acted.elapsed() < PATIENCE => continue,
                    None if way.evictions.holds(pid) => {
                        seen.acted.insert(pid, Instant::now());
                        overtake(control, way, pid, session, "pg_cancel_backend").await?;
                    }
                    _ => overtake(control, way, pid, session, "pg_terminate_backend").await?,
                }
            }
            continue;
        }
        if !is_direct {
            continue;
        }
        let reader_patience = Duration::from_millis(way.reader_patience.load(Ordering::Relaxed));
        let patience = if is_client { reader_patience.max(PATIENCE) } else { PATIENCE };
        let acted = seen.acted.get(&pid).copied();
        if since.elapsed() < patience || acted.is_some_and(|acted| acted.elapsed() < PATIENCE) {
            continue;
        }
        let function = if acted.is_none() { "pg_cancel_backend" } else { "pg_terminate_backend" };
        seen.acted.insert(pid, Instant::now());
        tracing::warn!(
            replica = way.replica,
            blocker = pid,
            action = function,
            "a lock is in the way of a refresh"
        );
        if is_client {
            way.evictions.note(pid);
        }
        ask(control, &format!("SELECT {function}({pid})")).await?;
    }
    Ok(())
}

/// Somebody for whom the applier waits.
#[derive(Clone, Copy, Debug)]
struct Blocker {
    is_client: bool,
    /// Not only by way of somebody else.
    is_direct: bool,
}

/// For whom the applier waits, and for whom those wait.
async fn blockers(control: &mut Connection, applier: i32) -> Result<BTreeMap<i32, Blocker>, BackendError> {
    let question = format!(
        "WITH RECURSIVE way(pid, depth) AS ( \
             SELECT pid, 1 FROM unnest(pg_blocking_pids({applier})) AS b(pid) \
             UNION SELECT b.pid, depth + 1 FROM way, unnest(pg_blocking_pids(way.pid)) AS b(pid) \
             WHERE depth < {DEPTH_MAX}) \
         SELECT pid, a.backend_type IS NOT DISTINCT FROM 'client backend', min(depth) = 1 \
         FROM way LEFT JOIN pg_stat_activity a USING (pid) WHERE pid NOT IN (0, {applier}) GROUP BY 1, 2"
    );
    let rows = ask(control, &question).await?;
    let is_true = |cell: Option<&Option<String>>| cell.is_some_and(|cell| cell.as_deref() == Some("t"));
    let blocker = |row: &Vec<Option<String>>| {
        let pid = row.first()?.as_deref()?.parse().ok()?;
        Some((pid, Blocker { is_client: is_true(row.get(1)), is_direct: is_true(row.get(2)) }))
    };
    Ok(rows.iter().filter_map(blocker).collect())
}

/// An update transaction gives way at once: what is refreshed was first. Its session hears of it before its backend ends.
async fn overtake(
    control: &mut Connection,
    way: Way<'_>,
    pid: i32,
    session: SessionId,
    function: &str,
) -> Result<(), BackendError> {
    tracing::debug!(replica = way.replica, blocker = pid, %session, "a refresh overtakes a transaction");
    // When nobody listens any more the connections are about to end, too.
    let _ = way.events.send(AgentEvent::InTheWay { session }).await;
    way.evictions.note(pid);
    ask(control, &format!("SELECT {function}({pid})")).await?;
    Ok(())
}

async fn ask(control: &mut Connection, sql: &str) -> Result<crate::backend::Rows, BackendError> {
    match tokio::time::timeout(CONTROL_DEADLINE, control.simple(sql)).await {
        Ok(rows) => rows,
        Err(_) => Err(BackendError::Protocol("the control connection does not answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that is slow because it waits for the processor is not asked each time whether somebody is in the way.
    #[test]
    fn the_first_look_comes_after_what_is_usual() {
        let mut pace = Pace::default();
        assert_eq!(pace.first_look(true), FIRST_LOOK);
        (0..100).for_each(|_| pace.took(Duration::from_millis(10)));
        assert!((18..=20).contains(&pace.first_look(true).as_millis()), "{pace:?}");
        (0..100).for_each(|_| pace.took(Duration::from_secs(10)));
        assert_eq!(pace.first_look(true), FIRST_LOOK_MAX);
        (0..100).for_each(|_| pace.took(Duration::from_millis(1)));
        assert_eq!(pace.first_look(true), FIRST_LOOK);
    }

    /// Or it would be the next statement that is cancelled.
    #[tokio::test]
    async fn a_statement_ends_when_no_cancel_is_under_way_to_it() {
        let evictions: Arc<Evictions> = Arc::default();
        let tenancy = evictions.move_in(7, SessionId(1));
        assert!(evictions.begin_cancel(7).is_none(), "nothing runs that can be undone");
        tenancy.guard();
        let under_way = evictions.begin_cancel(7).expect("it can be undone");
        let mut ends = Box::pin(tenancy.end_guard());
        assert!(tokio::time::timeout(Duration::ZERO, &mut ends).await.is_err());
        assert!(evictions.begin_cancel(7).is_none(), "it has ended");
        drop(under_way);
        ends.await;
        assert!(evictions.is_judged(7), "its locks may fall by themselves");
        tenancy.judged();
        assert!(!evictions.is_judged(7));
    }
}
