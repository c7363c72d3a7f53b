//! Counts what the servers are used for: replica-hours, commits and transactions, for SHOW COST.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::parts::replica::State;
use tokio::time::Instant;

use crate::coordinator::Coordinator;

/// The pause between two readings.
const READ_EVERY: Duration = Duration::from_secs(1);
/// The pause between two times at which the file is written.
const WRITE_EVERY: Duration = Duration::from_mins(1);

/// Counts until the task is dropped.
pub(super) async fn run(coordinator: &Coordinator) {
    let mut read = Instant::now();
    let mut written = read;
    loop {
        tokio::time::sleep(READ_EVERY).await;
        let elapsed = read.elapsed();
        read += elapsed;
        count(coordinator, elapsed);
        if written.elapsed() > WRITE_EVERY {
            written = read;
            coordinator.lead.elasticity.write();
        }
    }
}

/// Adds the time since the last reading. A server counts unless it is parked, since it is paid for even while it is down.
fn count(coordinator: &Coordinator, elapsed: Duration) {
    let replicas = coordinator.replicas();
    let runs = |replica| !coordinator.lead.parking.state(replica).is_parked();
    let servers =
        replicas.iter().filter(|status| status.state != State::Absent && runs(status.replica)).count();
    let commits = coordinator.local.stats.records.load(Ordering::Relaxed);
    let transactions = coordinator.local.sessions.totals().transactions;
    coordinator.lead.elasticity.count(servers, elapsed, commits, transactions);
}
