//! Waits inside servers: while a write runs long, its server is asked for whom it waits.
//!
//! The servers' own search for deadlocks is off, because two servers could choose different victims. The scheduler sees
//! the waits at all replicas, and the victim is aborted everywhere by one operation.
//!
//! Example: replica `a` has run `UPDATE .. WHERE k = 1` of T1 and runs the same of T2. After [`LONG`] the poll finds that
//! the backend of T2 waits for that of T1, and tells the queue of `a`, which lets statements of T1 pass T2's.
//!
//! Invariant: a wait is told only while the statement runs that had begun before the server was asked. Whether the other
//! transaction is still there, the queue checks itself. Not here: waits for connections that are not a transaction's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::protocols::c_jdbc::message::{OperationNumber, TransactionId};
use cluster::protocols::shipping::{SequenceNumber, Transaction};
use tokio::time::{Instant, sleep};

use super::node::{CJdbc, Delivery};
use super::state::Doing;
use crate::backend::{BackendError, OwnConnection};
use crate::shipping::recovery::connect;
use crate::shipping::replica_run::{ReplicaHost, ReplicaRun};

/// A write that runs longer may wait for a lock.
const LONG: Duration = Duration::from_millis(10);
/// Interval at which we check for such writes.
const LOOK: Duration = Duration::from_millis(5);

/// The backends of a replica's transactions, and the writes that run long.
struct Suspects {
    backends: BTreeMap<i32, TransactionId>,
    long: BTreeMap<i32, OperationNumber>,
}

/// A connection of our own for questions about waits.
struct Probe(OwnConnection);

/// A backend that waits, and one that it waits for.
struct Wait {
    waiter: i32,
    blocker: i32,
    /// The blocker is an autovacuum, which PostgreSQL would have sent away after `deadlock_timeout`.
    is_vacuum: bool,
}

/// Asks a replica's server as long as the replica takes part.
pub(super) async fn watch(node: Arc<CJdbc>, run: ReplicaRun) {
    let mut probe: Option<Probe> = None;
    while node.is_present(run) {
        sleep(LOOK).await;
        let Some(suspects) = node.suspects(run) else { continue };
        let asked = async {
            let opened = match probe.take() {
                Some(opened) => opened,
                None => Probe(connect(&*node, run.replica).await?),
            };
            probe.insert(opened).ask(&suspects).await
        };
        match asked.await {
            Ok(waits) => node.tell(run, &suspects, &waits),
            Err(error) => {
                // If the server is gone, the replica is given up by the connection that watches it.
                tracing::debug!(%error, "cannot ask a server for waits");
                probe = None;
            }
        }
    }
}

impl Probe {
    async fn ask(&mut self, suspects: &Suspects) -> Result<Vec<Wait>, BackendError> {
        let pids: Vec<String> = suspects.long.keys().map(i32::to_string).collect();
        let sql = format!(
            "SELECT w.pid, b.pid, b.backend_type = 'autovacuum worker' FROM pg_stat_activity w, unnest(pg_blocking_pids(w.pid)) AS by(pid) \
         JOIN pg_stat_activity b ON b.pid = by.pid WHERE w.pid IN ({}) AND w.wait_event_type = 'Lock'",
            pids.join(", ")
        );
        let rows = self.0.query(&sql).await?;
        let wait = |row: &Vec<Option<String>>| match row.as_slice() {
            [Some(waiter), Some(blocker), is_vacuum] => Some(Wait {
                waiter: waiter.parse().ok()?,
                blocker: blocker.parse().ok()?,
                is_vacuum: is_vacuum.as_deref() == Some("t"),
            }),
            _ => None,
        };
        let waits: Vec<Wait> = rows.iter().filter_map(wait).collect();
        for vacuum in waits.iter().filter(|wait| wait.is_vacuum) {
            self.0.query(&format!("SELECT pg_cancel_backend({})", vacuum.blocker)).await?;
        }
        Ok(waits)
    }
}

impl CJdbc {
    /// The backends of a replica, if a write runs long there.
    fn suspects(&self, run: ReplicaRun) -> Option<Suspects> {
        let mut state = self.lock();
        let replica = state.present(run)?;
        let mut suspects = Suspects { backends: BTreeMap::new(), long: BTreeMap::new() };
        let now = Instant::now();
        for (transaction, lane) in &replica.lanes {
            let (Transaction::Numbered(SequenceNumber(number)), Some(running)) = (transaction, &lane.running)
            else {
                continue;
            };
            suspects.backends.insert(running.pid, TransactionId(*number));
            if let Some(Doing::Write(number)) = lane.doing.front()
                && now.duration_since(lane.since) >= LONG
            {
                suspects.long.insert(running.pid, *number);
            }
        }
        (!suspects.long.is_empty()).then_some(suspects)
    }

    /// Tells the queue of a replica which of its writes wait.
    fn tell(self: &Arc<Self>, run: ReplicaRun, suspects: &Suspects, waits: &[Wait]) {
        let mut state = self.lock();
        let index = usize::from(run.replica.0);
        let Some(replica) = state.present(run) else { return };
        let runs_still = |number: OperationNumber| {
            replica.lanes.values().any(|lane| lane.doing.front() == Some(&Doing::Write(number)))
        };
        let found: Vec<(OperationNumber, TransactionId)> = waits
            .iter()
            .filter_map(|wait| {
                let number = suspects.long.get(&wait.waiter).copied()?;
                let blocker = suspects.backends.get(&wait.blocker).copied()?;
                runs_still(number).then_some((number, blocker))
            })
            .collect();
        let mut out = Vec::new();
        for (number, blocker) in found {
            replica.queue.waits(number, blocker, &mut out);
        }
        self.deliver(state, out.into_iter().map(|output| Delivery::Queue(index, output)).collect());
    }
}
