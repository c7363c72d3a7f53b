//! What keeps the applier from waiting for ever behind a client's lock.
//!
//! A record that is in the log must be applied; whoever holds a lock in its way has to give way. A client's read may hold
//! a schema change up for as long as the operator allows (like `max_standby_streaming_delay` of a hot standby), anything
//! else gives way at once: its statement is cancelled, and if it is still there at the next look its backend is ended (an
//! idle transaction cannot be cancelled). This also stands in for what the server does by itself after
//! `deadlock_timeout`, which the applier has set out of reach: sending autovacuum away.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::{BackendError, Connection};

/// How long the applier may wait before somebody looks after it, and between looks.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the control connection may take to answer.
const CONTROL_DEADLINE: Duration = Duration::from_secs(10);
/// Evictions that are remembered until their sessions have heard of them.
const EVICTIONS_MAX: usize = 10_000;

/// Backends whose work was ended for a refresh, by their process numbers. A session looks here for the reason of an error
/// that its client did not ask for.
#[derive(Debug, Default)]
pub(crate) struct Evictions(Mutex<BTreeSet<i32>>);

impl Evictions {
    fn note(&self, pid: i32) {
        let mut pids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pids.len() >= EVICTIONS_MAX {
            pids.clear();
        }
        pids.insert(pid);
    }

    /// Whether this backend was evicted since the last time it was asked about.
    pub(crate) fn take(&self, pid: i32) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid)
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
}

/// Waits for `work` of the applier, and clears its way.
pub(super) async fn watched<T>(
    control: &mut Connection,
    way: Way<'_>,
    work: impl Future<Output = T>,
) -> Result<T, BackendError> {
    tokio::pin!(work);
    let mut seen = BTreeMap::new();
    let mut warned = BTreeSet::new();
    loop {
        tokio::select! {
            outcome = &mut work => return Ok(outcome),
            () = tokio::time::sleep(PATIENCE) => clear_way(control, way, &mut seen, &mut warned).await?,
        }
    }
}

async fn clear_way(
    control: &mut Connection,
    way: Way<'_>,
    seen: &mut BTreeMap<i32, Instant>,
    warned: &mut BTreeSet<i32>,
) -> Result<(), BackendError> {
    let question = format!(
        "SELECT b.pid, a.backend_type IS NOT DISTINCT FROM 'client backend' \
         FROM unnest(pg_blocking_pids({})) AS b(pid) LEFT JOIN pg_stat_activity a USING (pid)",
        way.applier
    );
    let rows = ask(control, &question).await?;
    let blockers: BTreeMap<i32, bool> = rows
        .iter()
        .filter_map(|row| Some((row.first()?.as_deref()?.parse().ok()?, row.get(1)?.as_deref() == Some("t"))))
        .collect();
    // The wait began before it was seen first.
    let began = Instant::now().checked_sub(PATIENCE).unwrap_or_else(Instant::now);
    seen.retain(|pid, _| blockers.contains_key(pid));
    for (pid, is_client) in blockers.into_iter().filter(|(pid, _)| *pid != 0) {
        let since = *seen.entry(pid).or_insert(began);
        let patience = Duration::from_millis(way.reader_patience.load(Ordering::Relaxed));
        if is_client && since.elapsed() < patience {
            continue;
        }
        let function = if warned.insert(pid) { "pg_cancel_backend" } else { "pg_terminate_backend" };
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

async fn ask(control: &mut Connection, sql: &str) -> Result<crate::backend::Rows, BackendError> {
    match tokio::time::timeout(CONTROL_DEADLINE, control.simple(sql)).await {
        Ok(rows) => rows,
        Err(_) => Err(BackendError::Protocol("the control connection does not answer")),
    }
}
