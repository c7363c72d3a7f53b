//! The watchdog: the applier never waits for ever behind a client's lock.
//!
//! A record in the log must be applied, so a backend that holds a lock in its way has to give way:
//!
//! - A client's read may hold up a schema change for as long as the operator allows, like `max_standby_streaming_delay`
//!   of a hot standby.
//!
//! - Any other backend may hold up the applier for [`PATIENCE`]. Then the watchdog cancels its statement. If the
//!   backend still blocks later, the watchdog ends it: an idle transaction cannot be cancelled.
//!
//! - An update transaction that is open here gives way at once. If its present statement can be undone alone, the
//!   watchdog cancels that, and the session runs it again behind the applied records. Otherwise the transaction is
//!   overtaken.
//!
//! - So does a transaction that the replica performs for another home: the core has it rolled back.
//!
//! - An update transaction that blocks only such a backend gives way when that lasts. It may itself wait for the
//!   records that are being applied. No server can see that wait, and it would never end.
//!
//! PostgreSQL sends autovacuum away after `deadlock_timeout`. The applier has set that out of reach, so the watchdog
//! does it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cluster::ids::SessionId;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::AgentEvent;
use super::giving_way::{Blocker, GiveWay, GivingWay, PATIENCE};
use crate::backend::{BackendError, OwnConnection, Rows};
use crate::coordinator::evictions::{Evictions, Occupant};

/// How long word of an eviction may take to the node of the session, which otherwise takes the error for its client's.
const NEWS_TRAVEL: Duration = Duration::from_millis(20);
/// The watchdog first looks for blockers after this time, or after twice the usual time of an unblocked batch if that
/// is longer. So a server that waits for the processor is not asked about each batch. Each further pause is twice the
/// one before, up to [`PATIENCE`].
const FIRST_LOOK: Duration = Duration::from_millis(5);
/// The first look comes no later than this. It comes exactly then if no update transaction is open at the server: then
/// only other backends and schema changes can conflict.
const FIRST_LOOK_MAX: Duration = Duration::from_millis(40);
/// The weight of a batch in the usual duration: one in so many.
const USUAL_WEIGHT: u32 = 8;
/// Asks whether a backend blocks the applier. It is prepared once, because it is asked often and seldom finds one.
const IS_BLOCKED: &str = "EXECUTE is_blocked";
/// How long the control connection may take to answer.
const CONTROL_DEADLINE: Duration = Duration::from_secs(10);
/// Chains of waits are followed to this depth.
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
    /// Reports the session whose update transaction is in the way.
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
    /// Whether a backend ever blocked this work.
    is_met: bool,
    /// Since when each backend blocks.
    since: BTreeMap<i32, Instant>,
    /// When the watchdog last acted on each backend of a stranger.
    acted: BTreeMap<i32, Instant>,
    giving_way: GivingWay,
}

/// Makes [`watched`] possible on a new control connection.
pub(super) async fn prepare(control: &mut OwnConnection, applier: i32) -> Result<(), BackendError> {
    let question = format!("PREPARE is_blocked AS SELECT FROM unnest(pg_blocking_pids({applier})) LIMIT 1");
    control.query(&question).await?;
    Ok(())
}

/// Waits for `work` of the applier, and removes its blockers meanwhile.
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
struct Found {
    is_client: bool,
    /// The applier waits for it directly, not through another backend.
    is_direct: bool,
}

/// Removes the applier's blockers, through the control connection.
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
        for (pid, Found { is_client, is_direct }) in blockers {
            let since = *self.seen.since.entry(pid).or_insert_with(Instant::now);
            let occupant = self.way.evictions.occupant(pid);
            if let Some(Occupant::Performer(performance)) = occupant {
                // The core has it rolled back. If the owner has gone, the connections are about to end, too.
                let _ = self.way.events.send(AgentEvent::PerformerBlocks { performance }).await;
                if since.elapsed() >= PATIENCE {
                    self.ask(&format!("SELECT pg_terminate_backend({pid})")).await?;
                }
                continue;
            }
            let is_late = since.elapsed() >= PATIENCE;
            if let Some(Occupant::Session(session)) = occupant {
                match self.seen.giving_way.decide(self.way.evictions, Blocker { pid, is_direct, is_late }) {
                    GiveWay::NotYet => {}
                    GiveWay::Statement(_under_way) => {
                        self.way.evictions.note(pid);
                        self.ask(&format!("SELECT pg_cancel_backend({pid})")).await?;
                    }
                    GiveWay::Transaction(function) => self.overtake(pid, session, function).await?,
                }
                continue;
            }
            if is_client {
                // A session of another node may be there, which only that node knows.
                let _ = self.way.events.send(AgentEvent::UnknownBlocks { pid, is_direct, is_late }).await;
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
                let _ = self.way.events.send(AgentEvent::Evicts { pid }).await;
                tokio::time::sleep(NEWS_TRAVEL).await;
            }
            self.ask(&format!("SELECT {function}({pid})")).await?;
        }
        Ok(())
    }

    /// The backends that the applier waits for, directly or through others.
    async fn blockers(&mut self) -> Result<BTreeMap<i32, Found>, BackendError> {
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
        let found = |row: &Vec<Option<String>>| {
            let pid = row.first()?.as_deref()?.parse().ok()?;
            Some((pid, Found { is_client: is_true(row.get(1)), is_direct: is_true(row.get(2)) }))
        };
        Ok(rows.iter().filter_map(found).collect())
    }

    /// Makes an update transaction give way: the refreshed record was first. The session is told before its backend
    /// ends.
    async fn overtake(&mut self, pid: i32, session: SessionId, function: &str) -> Result<(), BackendError> {
        tracing::debug!(replica = self.way.replica, blocker = pid, %session, "a refresh overtakes a transaction");
        // If the owner has gone, the connections are about to end, too.
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
