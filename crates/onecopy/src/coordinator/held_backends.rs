//! The backends at which sessions of living nodes have left state, as the nodes tell a leader when they join its term.
//!
//! A new leader's agents end what the former term has left at the servers ([`crate::replica::agent`]). A session that
//! rests between two transactions has left nothing there that could commit later, but maybe a temporary table. So its
//! backend is spared, and goes on in the new term.
//!
//! ```text
//! node 2 joins: Held [(replica 0, pid 71)]        the agent of replica 0: ends all but 71, if 71 rests
//!                                                 Run { replica 0, proof with spared [71] }
//! its session: proves on 71 that the server is the same, and goes on
//! ```
//!
//! Invariant: a backend is spared only while it runs no statement and has no open transaction. What the former leader let run and
//! what arrives there later can not be committed, because no decision of that term reaches the log any more.
//!
//! Not here: backends of nodes that are lost or join late. They end, and their sessions with them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::ids::{CrewId, ReplicaId};
use tokio::sync::Notify;
use tokio::time::Instant;

/// What the nodes have told. By default no session can have left anything.
#[derive(Debug, Default)]
pub(crate) struct HeldBackends {
    /// The nodes that were linked when the term began, with this one.
    awaited: usize,
    /// How long they are waited for. Clients wait meanwhile.
    patience: Duration,
    told: Mutex<Told>,
    has_told: Notify,
}

#[derive(Debug, Default)]
struct Told {
    crews: BTreeSet<CrewId>,
    backends: BTreeSet<(ReplicaId, i32)>,
}

impl HeldBackends {
    /// Waits for so many nodes, if they tell in time.
    pub(crate) fn of(awaited: usize, patience: Duration) -> Self {
        Self { awaited, patience, told: Mutex::default(), has_told: Notify::new() }
    }

    /// The sessions of a crew have left state at these.
    pub(crate) fn tell(&self, crew: CrewId, backends: impl IntoIterator<Item = (ReplicaId, i32)>) {
        let mut told = self.told();
        told.crews.insert(crew);
        told.backends.extend(backends);
        self.has_told.notify_one();
    }

    /// Those at a replica, when all nodes have told or should have.
    pub(crate) async fn at(&self, replica: ReplicaId) -> Vec<i32> {
        let deadline = Instant::now() + self.patience;
        while self.told().crews.len() < self.awaited
            && tokio::time::timeout_at(deadline, self.has_told.notified()).await.is_ok()
        {}
        let told = self.told();
        told.backends.iter().filter(|(at, _)| *at == replica).map(|(_, pid)| *pid).collect()
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const HERE: ReplicaId = ReplicaId(0);
    const ELSEWHERE: ReplicaId = ReplicaId(1);

    #[tokio::test]
    async fn all_linked_nodes_are_waited_for() {
        let held = HeldBackends::of(2, Duration::from_mins(1));
        let (found, ()) = tokio::join!(held.at(HERE), async {
            held.tell(CrewId(1), [(HERE, 7), (ELSEWHERE, 8)]);
            tokio::task::yield_now().await;
            held.tell(CrewId(2), [(HERE, 9)]);
        });
        assert_eq!(found, [7, 9]);
    }

    #[tokio::test]
    async fn a_node_that_hangs_is_not_waited_for_longer() {
        let patience = Duration::from_millis(20);
        let held = HeldBackends::of(2, patience);
        held.tell(CrewId(1), [(HERE, 7)]);
        let begun = Instant::now();
        assert_eq!(held.at(HERE).await, [7]);
        assert!(begun.elapsed() >= patience, "the other node may still tell");
    }

    #[tokio::test]
    async fn nobody_is_waited_for_when_no_session_was_served() {
        let held = HeldBackends::default();
        let found = std::pin::pin!(held.at(HERE)).now_or_never();
        assert_eq!(found, Some(Vec::new()));
    }
}
