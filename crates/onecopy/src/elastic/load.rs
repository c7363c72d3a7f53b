//! Measures how busy the replicas are.
//!
//! The core knows at each moment which statements run at a replica, and which wait there. This looks at it every 20 ms.
//! A look finds a replica busy to the part of `elastic.statements` that runs there: with 4, three running statements are
//! 0.75, and with 1 a replica is busy whenever any statement runs. The busy share of a period is the mean of its looks.
//! Statements beyond that number, and those that wait for newer versions, are the queue.
//!
//! An open update transaction counts as a running statement as long as any statement runs at its home. Refreshes do
//! not count: every replica applies the same.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::ids::ReplicaId;
use cluster::parts::elastic::{Sample, Standing};
use cluster::parts::replica::State;
use cluster::protocols::ReplicaStatus;

use crate::coordinator::Leader;

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// A whole, in permille.
const WHOLE: u64 = 1_000;

/// The sums of the looks at one replica, in permille.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Looks {
    busy: u64,
    queued: u64,
}

impl Looks {
    fn add(&mut self, status: &ReplicaStatus, statements: u32) {
        let statements = u64::from(statements.max(1));
        let open = if status.expected_wait_us == 0 { 0 } else { status.open.max(1) as u64 };
        self.busy += open.min(statements) * WHOLE / statements;
        self.queued += (open.saturating_sub(statements) + status.waiting as u64) * WHOLE / statements;
    }
}

/// Looks at all members for this long.
pub(super) async fn sample(leader: &Leader, statements: u32, period: Duration) -> Vec<Sample> {
    let count = u64::try_from(period.as_millis() / LOOK.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut looks: BTreeMap<ReplicaId, Looks> = BTreeMap::new();
    for _ in 0..count {
        tokio::time::sleep(LOOK).await;
        for status in leader.replicas() {
            looks.entry(status.replica).or_default().add(&status, statements);
        }
    }
    let mean = |sum: u64| u32::try_from(sum / count).unwrap_or(u32::MAX);
    let sample = |status: &ReplicaStatus| {
        let Looks { busy, queued } = looks.get(&status.replica).copied().unwrap_or_default();
        let standing = standing(leader, status);
        Sample { replica: status.replica, standing, busy_permille: mean(busy), queued_permille: mean(queued) }
    };
    leader.replicas().iter().map(sample).collect()
}

/// The state of a member, as the policy sees it.
pub(crate) fn standing(leader: &Leader, status: &ReplicaStatus) -> Standing {
    if leader.parking.state(status.replica).is_parked() {
        return Standing::Parked;
    }
    match status.state {
        State::Up if status.is_drained => Standing::Away,
        State::Up if status.replica == leader.view.anchor() => Standing::Anchor,
        State::Up => Standing::Serving,
        State::Down | State::Quarantined | State::Absent => Standing::Away,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::ids::{Incarnation, Version};

    fn status(expected_wait_us: u64, open: usize, waiting: usize) -> ReplicaStatus {
        ReplicaStatus {
            replica: ReplicaId(0),
            state: State::Up,
            is_suspect: false,
            is_drained: false,
            is_forgotten: false,
            incarnation: Incarnation(1),
            applied: Version::ZERO,
            lag: 0,
            reads: 0,
            writes: 0,
            expected_wait_us,
            waiting,
            open,
        }
    }

    #[test]
    fn a_replica_is_busy_by_the_statements_that_run_there() {
        for (wait_us, open, waiting, statements, busy, queued) in [
            (0, 0, 0, 1, 0, 0),
            (10, 1, 0, 1, 1_000, 0),
            (10, 3, 0, 1, 1_000, 2_000),
            (10, 3, 0, 4, 750, 0),
            (10, 6, 2, 4, 1_000, 1_000),
            // Its client thinks inside a transaction.
            (0, 1, 0, 1, 0, 0),
            // A session waits for a connection.
            (10, 0, 0, 2, 500, 0),
        ] {
            let mut looks = Looks::default();
            looks.add(&status(wait_us, open, waiting), statements);
            assert_eq!((looks.busy, looks.queued), (busy, queued), "{wait_us} {open} {waiting} {statements}");
        }
    }
}
