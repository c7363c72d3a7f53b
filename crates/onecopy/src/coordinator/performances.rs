//! Executions of transactions at replicas that are not their home, as the core wants them (protocol `preventive`).
//!
//! Example: `CALL pay(3)` is open at replica 1. By [`Effect::Perform`](cluster::event::Effect::Perform) an execution at replica 2
//! enters the queue of the thread on which its session lives, since only that thread knows the text and the client's settings. A task
//! there executes it and waits for the core's [`Wish`]: COMMIT in the turn of its version, or ROLLBACK.
//!
//! Invariant: the wish leaves [`Wish::Perform`] once. So an execution that has failed cannot be told to commit any more, and one that
//! was told to commit cannot fail unnoticed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::event::{Event, Performance as Outcome};
use cluster::ids::{Identity, Incarnation, ReplicaId, SessionId, Version};
use tokio::sync::{Notify, watch};

/// Executions that can wait for one thread. Further ones fail, and the replica applies the record instead.
const QUEUE_MAX: usize = 10_000;

/// What becomes of an execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// It goes on, or has been done and waits.
    Perform,
    /// It commits as this version.
    Commit(Version),
    /// It is rolled back.
    Undo,
    /// It has failed by itself, and is rolled back.
    Failed,
}

/// Which execution it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerformOrder {
    pub(crate) replica: ReplicaId,
    /// The set of connections to use.
    pub(crate) incarnation: Incarnation,
    /// The session that knows the statements.
    pub(crate) session: SessionId,
    pub(crate) identity: Identity,
    /// Its number.
    pub(crate) attempt: u64,
}

/// One execution.
#[derive(Debug)]
pub(crate) struct Performance {
    pub(crate) order: PerformOrder,
    wish: watch::Sender<Wish>,
}

impl Performance {
    fn new(order: PerformOrder) -> Arc<Self> {
        Arc::new(Self { order, wish: watch::channel(Wish::Perform).0 })
    }

    /// What the core wants of it, and each change of that.
    pub(crate) fn wishes(&self) -> watch::Receiver<Wish> {
        self.wish.subscribe()
    }

    /// Decides what becomes of it, unless that is decided. Returns what is.
    fn decide(&self, wish: Wish) -> Wish {
        self.wish.send_if_modified(|present| {
            let is_open = *present == Wish::Perform;
            if is_open {
                *present = wish;
            }
            is_open
        });
        *self.wish.borrow()
    }

    /// The execution fails. Returns what the core has to hear of it.
    pub(crate) fn fail(&self) -> Option<Event> {
        match self.decide(Wish::Failed) {
            Wish::Failed | Wish::Perform => Some(self.reports(Outcome::Failed)),
            Wish::Commit(_) => Some(self.lost()),
            Wish::Undo => None,
        }
    }

    /// The report of the execution.
    pub(crate) fn reports(&self, performance: Outcome) -> Event {
        let PerformOrder { replica, identity, attempt, .. } = self.order;
        Event::Performed { replica, identity, attempt, performance }
    }

    /// It was told to commit, and may not have done so.
    pub(crate) fn lost(&self) -> Event {
        Event::ReplicaLost { replica: self.order.replica, incarnation: self.order.incarnation }
    }
}

/// The executions that the sessions of one thread have to begin.
#[derive(Debug, Default)]
pub(crate) struct PerformanceQueue {
    all: Mutex<VecDeque<Arc<Performance>>>,
    wake: Notify,
}

impl PerformanceQueue {
    /// Puts an execution in; `false` if too many wait.
    fn push(&self, performance: Arc<Performance>) -> bool {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = all.len() < QUEUE_MAX;
        if has_room {
            all.push_back(performance);
            drop(all);
            self.wake.notify_one();
        }
        has_room
    }

    /// Waits for an execution. Cancel-safe.
    pub(crate) async fn next(&self) -> Arc<Performance> {
        loop {
            let next = self.all.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(next) = next {
                return next;
            }
            self.wake.notified().await;
        }
    }
}

/// The executions of which the core has yet to decide what becomes of them.
#[derive(Debug, Default)]
pub(super) struct Performances {
    open: Mutex<BTreeMap<(ReplicaId, Identity), Arc<Performance>>>,
}

impl Performances {
    /// Begins an execution. An earlier one of the transaction at this replica is rolled back. Returns what the core has to hear if it
    /// cannot begin.
    pub(super) fn begin(&self, order: PerformOrder, queue: Option<Arc<PerformanceQueue>>) -> Option<Event> {
        let performance = Performance::new(order);
        let key = (order.replica, order.identity);
        if let Some(earlier) = self.open().insert(key, Arc::clone(&performance)) {
            earlier.decide(Wish::Undo);
        }
        let has_begun = queue.is_some_and(|queue| queue.push(Arc::clone(&performance)));
        if has_begun { None } else { performance.fail() }
    }

    /// An execution commits as this version. Returns what the core has to hear if there is none that can.
    pub(super) fn commit(
        &self,
        replica: ReplicaId,
        incarnation: Incarnation,
        identity: Identity,
        version: Version,
    ) -> Option<Event> {
        let performance = self.open().remove(&(replica, identity));
        let commits =
            performance.is_some_and(|one| one.decide(Wish::Commit(version)) == Wish::Commit(version));
        (!commits).then_some(Event::ReplicaLost { replica, incarnation })
    }

    /// An execution is rolled back.
    pub(super) fn undo(&self, replica: ReplicaId, identity: Identity, attempt: u64) {
        let mut open = self.open();
        if let Some(performance) = open.get(&(replica, identity))
            && performance.order.attempt == attempt
        {
            performance.decide(Wish::Undo);
            open.remove(&(replica, identity));
        }
    }

    /// An execution is over.
    pub(super) fn ended(&self, performance: &Arc<Performance>) {
        let mut open = self.open();
        let key = (performance.order.replica, performance.order.identity);
        if open.get(&key).is_some_and(|there| Arc::ptr_eq(there, performance)) {
            open.remove(&key);
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<(ReplicaId, Identity), Arc<Performance>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
