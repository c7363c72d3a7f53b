//! What keeps the applier from waiting for ever behind a client's lock.
//!
//! A record that is in the log must be applied; whoever holds a lock in its way has to give way. The first time that a
//! blocker is seen its statement is cancelled, the next time its backend is ended (an idle transaction cannot be
//! cancelled). This also stands in for what the server does by itself after `deadlock_timeout`, which the applier has
//! set out of reach: sending autovacuum away.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use crate::backend::{BackendError, Connection};

/// How long the applier may wait before somebody looks after it, and between looks.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the control connection may take to answer.
const CONTROL_DEADLINE: Duration = Duration::from_secs(10);

/// Waits for `work` of the applier, whose process is `pid`, and clears its way.
pub(super) async fn watched<T>(
    control: &mut Connection,
    pid: i32,
    replica: &str,
    work: impl Future<Output = T>,
) -> Result<T, BackendError> {
    tokio::pin!(work);
    let mut warned = BTreeSet::new();
    loop {
        tokio::select! {
            outcome = &mut work => return Ok(outcome),
            () = tokio::time::sleep(PATIENCE) => clear_way(control, pid, replica, &mut warned).await?,
        }
    }
}

async fn clear_way(
    control: &mut Connection,
    applier: i32,
    replica: &str,
    warned: &mut BTreeSet<i32>,
) -> Result<(), BackendError> {
    let question = format!("SELECT unnest(pg_blocking_pids({applier}))");
    let rows = ask(control, &question).await?;
    let blockers = rows.iter().filter_map(|row| row.first()?.as_deref()?.parse::<i32>().ok());
    for pid in blockers.filter(|&pid| pid != 0).collect::<BTreeSet<_>>() {
        let function = if warned.insert(pid) { "pg_cancel_backend" } else { "pg_terminate_backend" };
        tracing::warn!(replica, blocker = pid, action = function, "a lock is in the way of a refresh");
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
