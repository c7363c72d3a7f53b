//! Counts what the servers are used for: replica-hours, commits and transactions, for SHOW COST.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::parts::replica::State;
use tokio::time::Instant;

use crate::coordinator::Leader;

/// The pause between two readings.
const READ_EVERY: Duration = Duration::from_secs(1);
/// The pause between two times at which the register is written.
const WRITE_EVERY: Duration = Duration::from_mins(1);

/// Counts until the task is dropped.
pub(super) async fn run(leader: &Leader) {
    let mut read = Instant::now();
    let mut written = read;
    loop {
        tokio::time::sleep(READ_EVERY).await;
        let elapsed = read.elapsed();
        read += elapsed;
        count(leader, elapsed);
        if written.elapsed() > WRITE_EVERY {
            written = read;
            leader.elasticity.write().await;
        }
    }
}

/// Adds the time since the last reading. A server counts unless it is parked, since it is paid for even while it is down.
fn count(leader: &Leader, elapsed: Duration) {
    let replicas = leader.replicas();
    let runs = |replica| !leader.parking.state(replica).is_parked();
    let servers =
        replicas.iter().filter(|status| status.state != State::Absent && runs(status.replica)).count();
    let commits = leader.local.stats.records.load(Ordering::Relaxed);
    let transactions = leader.local.sessions.totals().transactions;
    leader.elasticity.count(servers, elapsed, commits, transactions);
}
