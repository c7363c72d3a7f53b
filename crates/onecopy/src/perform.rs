//! Performs transactions at replicas that are not their home (preventive replication, section 4.2: each node that holds all that a
//! transaction touches executes it).
//!
//! ```text
//!   Effect::Perform         a connection of the client's role and settings: BEGIN, the statement, the identity, in one flush
//!   Performed(Done(digest)) only COMMIT is left
//!   CommitPerformed         COMMIT, in the turn of the version           -> Applied
//!   UndoPerformed           ROLLBACK, after a cancel if a statement runs
//!   any error               ROLLBACK                                     -> Performed(Failed), and the replica applies the record
//! ```
//!
//! Each execution is a task on the thread of its session. Connections come from pools of their own, of the size `pool_size`, whatever
//! the pool mode is; if none is free the execution fails.
//!
//! Invariants: an execution is done only if the rows that it has captured are all that it has changed ([`rows`]). When it has been told to
//! commit, its replica either shows the version or is given up.
//!
//! Not here: whether a transaction is performed elsewhere (`place`), and when (the core).

mod exchange;
mod performer;
mod rows;

use std::rc::Rc;
use std::sync::Arc;

use cluster::event::{Event, Performance as Outcome};

use crate::coordinator::performances::{PerformOrder, Performance, Wish};
use crate::link::Worker;
use performer::Performer;

/// Begins the executions that the sessions of this thread ask for, for as long as the thread runs.
pub(crate) async fn serve(worker: Rc<Worker>) {
    loop {
        let performance = worker.performances.next().await;
        tokio::task::spawn_local(perform(Rc::clone(&worker), performance));
    }
}

/// One execution, from its beginning to its COMMIT or ROLLBACK.
async fn perform(worker: Rc<Worker>, performance: Arc<Performance>) {
    let last = execute(&worker, &performance).await;
    worker.coordinator.close_performance(&performance);
    if let Some(event) = last {
        worker.coordinator.core.tell(event);
    }
}

/// Executes and ends a transaction. Returns what the core has to hear at the end.
async fn execute(worker: &Worker, performance: &Arc<Performance>) -> Option<Event> {
    let mut wishes = performance.wishes();
    let performable = worker.performables.of(performance.order.session, performance.order.identity);
    let Some(performable) = performable.filter(|_| *wishes.borrow() == Wish::Perform) else {
        return performance.fail();
    };
    let Some(mut performer) = Performer::connected(worker, performance, &performable).await else {
        return performance.fail();
    };
    let Some(digest) = performer.execute(&performable, &mut wishes).await else {
        performer.roll_back(worker).await;
        return performance.fail();
    };
    worker.coordinator.core.tell(performance.reports(Outcome::Done(digest)));
    match performer.decided(&mut wishes).await {
        Wish::Commit(version) => {
            if !performer.commit().await {
                return Some(performance.lost());
            }
            let PerformOrder { replica, incarnation, .. } = performance.order;
            worker.coordinator.core.tell(Event::Applied { replica, incarnation, upto: version });
            performer.give_back(worker).await;
            None
        }
        Wish::Undo => {
            performer.roll_back(worker).await;
            None
        }
        // The connection is lost, and the transaction with it.
        Wish::Perform | Wish::Failed => performance.fail(),
    }
}
