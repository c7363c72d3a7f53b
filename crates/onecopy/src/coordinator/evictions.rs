//! The backends of a server that have to give way to a refresh, shared by the replica's agent and the sessions.
//!
//! A session registers the backend on which its update transaction is open, and says when its statement can be rolled
//! back alone. The agent's watchdog reads that, cancels or terminates backends, and notes which. A session whose
//! statement fails looks here for the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use cluster::ids::{ReplicaId, SessionId};
use tokio::sync::watch;

use super::performances::Performance;

/// The number of evictions kept for sessions that have not asked about them yet.
const EVICTIONS_MAX: usize = 10_000;

/// Backends of one server, by their process numbers: those with an open update transaction, and those whose work was
/// ended for a refresh. A session looks here for the reason of an error that its client did not cause.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    evicted: Mutex<BTreeSet<i32>>,
    tenants: Mutex<BTreeMap<i32, Tenant>>,
}

/// The evictions at all servers, which the sessions of a process and the agents of its leader share.
#[derive(Debug, Default)]
pub(crate) struct EvictionsByReplica(Mutex<BTreeMap<ReplicaId, Arc<Evictions>>>);

impl EvictionsByReplica {
    /// Those at one server.
    pub(super) fn of(&self, replica: ReplicaId) -> Arc<Evictions> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(replica).or_default())
    }
}

/// Whose transaction is open on a backend.
#[derive(Clone, Debug)]
pub(crate) enum Occupant {
    /// The update transaction of a session.
    Session(SessionId),
    /// A replica performs a transaction of another home.
    Performer(Arc<Performance>),
}

/// A backend with an open transaction.
#[derive(Clone, Debug)]
struct Tenant {
    occupant: Occupant,
    present: Arc<watch::Sender<Present>>,
}

/// The statement that runs on a backend.
#[derive(Clone, Copy, Debug, Default)]
struct Present {
    /// The statement can be rolled back alone, and be run again.
    is_guarded: bool,
    /// The statement has run, or was cancelled, and may be about to be rolled back.
    is_judged: bool,
    /// Cancels of the statement that the server may not have passed on yet.
    cancels: usize,
    /// The session has state on the backend that would be lost with it.
    holds: bool,
}

/// Marks a backend as having an open update transaction, for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Tenancy {
    of: Arc<Evictions>,
    pid: i32,
    present: Arc<watch::Sender<Present>>,
}

impl Tenancy {
    /// A statement begins that can be rolled back alone, and be run again.
    pub(crate) fn guard(&self) {
        self.present.send_modify(|present| (present.is_guarded, present.is_judged) = (true, false));
    }

    /// The session may have state on the backend that would be lost with it.
    pub(crate) fn hold(&self) {
        self.present.send_modify(|present| present.holds = true);
    }

    /// The statement that has ended stays, or has been rolled back by now. Locks that are still held from now on keep
    /// blocking the refresh.
    pub(crate) fn settle_statement(&self) {
        self.present.send_modify(|present| present.is_judged = false);
    }

    /// The statement has ended, and [`Tenancy::settle_statement`] follows. When this returns, no cancel is under way to
    /// the backend; a late cancel would end the next statement. A backend that waits for a command ignores a cancel
    /// that the server has already passed on.
    pub(crate) async fn end_guard(&self) {
        let mut present = self.present.subscribe();
        self.present.send_modify(|present| (present.is_guarded, present.is_judged) = (false, true));
        // The sender is ours, so it is there.
        let _ = present.wait_for(|present| present.cancels == 0).await;
    }
}

/// A cancel is under way to a backend, for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Cancelling(Arc<watch::Sender<Present>>);

impl Drop for Cancelling {
    fn drop(&mut self) {
        self.0.send_modify(|present| present.cancels -= 1);
    }
}

impl Evictions {
    /// The watchdog ends the work of this backend for a refresh.
    pub(crate) fn note(&self, pid: i32) {
        let mut pids = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        if pids.len() >= EVICTIONS_MAX {
            pids.clear();
        }
        pids.insert(pid);
    }

    /// Whether this backend was evicted since the last call. Forgets the eviction.
    pub(crate) fn take(&self, pid: i32) -> bool {
        self.evicted.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid)
    }

    pub(crate) fn move_in(self: &Arc<Self>, pid: i32, occupant: Occupant) -> Tenancy {
        let present: Arc<watch::Sender<Present>> = Arc::default();
        let tenant = Tenant { occupant, present: Arc::clone(&present) };
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, tenant);
        Tenancy { of: Arc::clone(self), pid, present }
    }

    pub(crate) fn has_tenants(&self) -> bool {
        !self.tenants.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whose transaction is open on a backend.
    pub(crate) fn occupant(&self, pid: i32) -> Option<Occupant> {
        self.tenants
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&pid)
            .map(|tenant| tenant.occupant.clone())
    }

    /// Whether the last statement on a backend has ended and may still be rolled back.
    pub(crate) fn is_judged(&self, pid: i32) -> bool {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.get(&pid).is_some_and(|tenant| tenant.present.borrow().is_judged)
    }

    /// Whether a session has state on a backend. Then its transaction is rolled back, and the backend is not
    /// terminated.
    pub(crate) fn holds(&self, pid: i32) -> bool {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.get(&pid).is_some_and(|tenant| tenant.present.borrow().holds)
    }

    /// Announces a cancel of the statement that runs on a backend. `None` if the statement cannot be rolled back alone.
    pub(crate) fn begin_cancel(&self, pid: i32) -> Option<Cancelling> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Otherwise the cancel would hit the next statement.
    #[tokio::test]
    async fn a_statement_ends_when_no_cancel_is_under_way_to_it() {
        let evictions: Arc<Evictions> = Arc::default();
        let tenancy = evictions.move_in(7, Occupant::Session(SessionId(1)));
        assert!(evictions.begin_cancel(7).is_none(), "nothing runs that can be undone");
        tenancy.guard();
        let under_way = evictions.begin_cancel(7).expect("it can be undone");
        let mut ends = Box::pin(tenancy.end_guard());
        assert!(tokio::time::timeout(Duration::ZERO, &mut ends).await.is_err());
        assert!(evictions.begin_cancel(7).is_none(), "it has ended");
        drop(under_way);
        ends.await;
        assert!(evictions.is_judged(7), "its locks may fall by themselves");
        tenancy.settle_statement();
        assert!(!evictions.is_judged(7));
    }
}
