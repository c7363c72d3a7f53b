//! The watchdog: the applier never waits for ever behind a client's lock.
//!
//! A record that is in the log must be applied; whoever holds a lock in its way has to give way. A client's read may hold
//! a schema change up for as long as the operator allows (like `max_standby_streaming_delay` of a hot standby), anything
//! else gives way: its statement is cancelled, and if it is still there later its backend is ended (an idle transaction
//! cannot be cancelled). An update transaction that is open here is not even waited for: it has been overtaken, or, if its
//! present statement can be undone alone, that is cancelled and run again behind what is applied here. One that holds
//! up whoever is in the way gives way, too, if that lasts: it may itself wait for what is being applied, which no server can
//! see, and so for ever. This also stands in for what the server does by itself after
//! `deadlock_timeout`, which the applier has set out of reach: sending autovacuum away.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cluster::ids::SessionId;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::AgentEvent;
use crate::backend::{BackendError, OwnConnection, Rows};
use crate::coordinator::evictions::Evictions;

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
/// The applier that is watched, and how long a client may hold it up.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchContext<'a> {
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

/// The usual duration of batches that no client holds up.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct BatchDuration {
    usual: Duration,
}

impl BatchDuration {
    fn took(&mut self, time: Duration) {
        self.usual = (self.usual * (USUAL_WEIGHT - 1) + time.min(FIRST_LOOK_MAX)) / USUAL_WEIGHT;
    }

    fn first_look(self, has_tenants: bool) -> Duration {
        if has_tenants { (self.usual * 2).clamp(FIRST_LOOK, FIRST_LOOK_MAX) } else { FIRST_LOOK_MAX }
    }
}

/// The blockers of the applier at the last look.
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
pub(super) async fn prepare(control: &mut OwnConnection, applier: i32) -> Result<(), BackendError> {
    let question = format!("PREPARE is_blocked AS SELECT FROM unnest(pg_blocking_pids({applier})) LIMIT 1");
    control.query(&question).await?;
    Ok(())
}

/// Waits for `work` of the applier, and clears its way.
pub(super) async fn watched<T>(
    control: &mut OwnConnection,
    way: WatchContext<'_>,
    pace: &mut BatchDuration,
    work: impl Future<Output = T>,
) -> Result<T, BackendError> {
    tokio::pin!(work);
    let begun = Instant::now();
    let mut pause = pace.first_look(way.evictions.has_tenants());
    let mut watchdog = Watchdog { control, way, seen: Seen::default() };
    let outcome = loop {
        tokio::select! {
            outcome = &mut work => break outcome,
            () = tokio::time::sleep(pause) => watchdog.clear_way().await?,
        }
        pause = PATIENCE.min(pause * 2);
    };
    if !watchdog.seen.is_met {
        pace.took(begun.elapsed());
    }
    Ok(outcome)
}

/// A backend for which the applier waits.
#[derive(Clone, Copy, Debug)]
struct Blocker {
    is_client: bool,
    /// The applier waits for it directly, not by way of another backend.
    is_direct: bool,
}

/// Clears the way of the applier by its control connection.
struct Watchdog<'a> {
    control: &'a mut OwnConnection,
    way: WatchContext<'a>,
    seen: Seen,
}

impl Watchdog<'_> {
    async fn clear_way(&mut self) -> Result<(), BackendError> {
        if self.ask(IS_BLOCKED).await?.is_empty() {
            self.seen.since.clear();
            return Ok(());
        }
        self.seen.is_met = true;
        let blockers = self.blockers().await?;
        self.seen.since.retain(|pid, _| blockers.contains_key(pid));
        for (pid, Blocker { is_client, is_direct }) in blockers {
            let since = *self.seen.since.entry(pid).or_insert_with(Instant::now);
            if let Some(session) = self.way.evictions.tenant(pid) {
                // One that is not in the way itself may well end soon, unless it waits for this very refresh.
                let is_soon = is_direct && since.elapsed() < PATIENCE;
                if is_soon && self.way.evictions.is_judged(pid) {
                    continue;
                }
                if let Some(_under_way) = is_soon.then(|| self.way.evictions.begin_cancel(pid)).flatten() {
                    self.way.evictions.note(pid);
                    self.ask(&format!("SELECT pg_cancel_backend({pid})")).await?;
                } else if is_direct || since.elapsed() >= PATIENCE {
                    // A session that would lose more than the transaction rolls back as soon as it hears of it, unless it waits
                    // for its client.
                    match self.seen.acted.get(&pid).filter(|_| self.way.evictions.holds(pid)) {
                        Some(acted) if acted.elapsed() < PATIENCE => continue,
                        None if self.way.evictions.holds(pid) => {
                            self.seen.acted.insert(pid, Instant::now());
                            self.overtake(pid, session, "pg_cancel_backend").await?;
                        }
                        _ => self.overtake(pid, session, "pg_terminate_backend").await?,
                    }
                }
                continue;
            }
            if !is_direct {
                continue;
            }
            let reader_patience = Duration::from_millis(self.way.reader_patience.load(Ordering::Relaxed));
            let patience = if is_client { reader_patience.max(PATIENCE) } else { PATIENCE };
            let acted = self.seen.acted.get(&pid).copied();
            if since.elapsed() < patience || acted.is_some_and(|acted| acted.elapsed() < PATIENCE) {
                continue;
            }
            let function = if acted.is_none() { "pg_cancel_backend" } else { "pg_terminate_backend" };
            self.seen.acted.insert(pid, Instant::now());
            tracing::warn!(
                replica = self.way.replica,
                blocker = pid,
                action = function,
                "a lock is in the way of a refresh"
            );
            if is_client {
                self.way.evictions.note(pid);
            }
            self.ask(&format!("SELECT {function}({pid})")).await?;
        }
        Ok(())
    }

    /// For whom the applier waits, and for whom those wait.
    async fn blockers(&mut self) -> Result<BTreeMap<i32, Blocker>, BackendError> {
        let applier = self.way.applier;
        let question = format!(
            "WITH RECURSIVE way(pid, depth) AS ( \
             SELECT pid, 1 FROM unnest(pg_blocking_pids({applier})) AS b(pid) \
             UNION SELECT b.pid, depth + 1 FROM way, unnest(pg_blocking_pids(way.pid)) AS b(pid) \
             WHERE depth < {DEPTH_MAX}) \
         SELECT pid, a.backend_type IS NOT DISTINCT FROM 'client backend', min(depth) = 1 \
         FROM way LEFT JOIN pg_stat_activity a USING (pid) WHERE pid NOT IN (0, {applier}) GROUP BY 1, 2"
        );
        let rows = self.ask(&question).await?;
        let is_true = |cell: Option<&Option<String>>| cell.is_some_and(|cell| cell.as_deref() == Some("t"));
        let blocker = |row: &Vec<Option<String>>| {
            let pid = row.first()?.as_deref()?.parse().ok()?;
            Some((pid, Blocker { is_client: is_true(row.get(1)), is_direct: is_true(row.get(2)) }))
        };
        Ok(rows.iter().filter_map(blocker).collect())
    }

    /// An update transaction gives way at once: what is refreshed was first. Its session hears of it before its backend ends.
    async fn overtake(&mut self, pid: i32, session: SessionId, function: &str) -> Result<(), BackendError> {
        tracing::debug!(replica = self.way.replica, blocker = pid, %session, "a refresh overtakes a transaction");
        // Once the owner has gone, the connections are about to end, too.
        let _ = self.way.events.send(AgentEvent::BlocksApply { session }).await;
        self.way.evictions.note(pid);
        self.ask(&format!("SELECT {function}({pid})")).await?;
        Ok(())
    }

    async fn ask(&mut self, sql: &str) -> Result<Rows, BackendError> {
        match tokio::time::timeout(CONTROL_DEADLINE, self.control.query(sql)).await {
            Ok(rows) => rows,
            Err(_) => Err(BackendError::Protocol("the control connection does not answer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that is slow because it waits for the processor is not asked each time whether a backend is in the way.
    #[test]
    fn the_first_look_comes_after_what_is_usual() {
        let mut pace = BatchDuration::default();
        assert_eq!(pace.first_look(true), FIRST_LOOK);
        (0..100).for_each(|_| pace.took(Duration::from_millis(10)));
        assert!((18..=20).contains(&pace.first_look(true).as_millis()), "{pace:?}");
        (0..100).for_each(|_| pace.took(Duration::from_secs(10)));
        assert_eq!(pace.first_look(true), FIRST_LOOK_MAX);
        (0..100).for_each(|_| pace.took(Duration::from_millis(1)));
        assert_eq!(pace.first_look(true), FIRST_LOOK);
    }
}
