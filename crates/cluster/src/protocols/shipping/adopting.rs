//! A scheduler goes on with the transactions of one that has failed (section 5.3.1).
//!
//! Example: replica 1 has committed number 7, replica 2 has its writes, replica 3 has not heard of it. All three get the same message,
//! to do 7 again. Replica 1 answers that it is over, replica 2 restarts it under its locks, replica 3 begins it.
//!
//! Deviation: the paper's fail-over scheduler first asks each proxy how far it is, and then sends what is missing. Here a proxy gets
//! the decision, compares, and answers as usual, so the record goes when all have answered.

use crate::parts::lock_queues::LockSet;

use super::joining::Decided;
use super::message::{Ending, Operation, SequenceNumber, StatementId, ToProxy};
use super::scheduler::{Active, Output, Scheduler, Stage};

impl Scheduler {
    /// A transaction that is decided: its writes are logged here, too, and then done at each replica that lacks them.
    pub(super) fn adopt(
        &mut self,
        number: SequenceNumber,
        locks: LockSet,
        writes: Vec<Operation>,
        out: &mut Vec<Output>,
    ) {
        let statements: Vec<StatementId> = writes.iter().map(|write| write.statement).collect();
        self.writers.begin(&locks);
        let mut adopted = Active::new(None, locks, Stage::Adopting, self.up.len());
        adopted.writes = writes;
        self.actives.insert(number, adopted);
        out.push(Output::Log(number, statements));
    }

    /// A transaction that is not decided, or a number of which only its gap is known.
    pub(super) fn undo(&mut self, number: SequenceNumber, out: &mut Vec<Output>) {
        let adopted = Active::new(None, [].into(), Stage::Ending(Ending::Abort, None), self.up.len());
        self.actives.insert(number, adopted);
        self.replicate(number, |_| ToProxy::Undo { number }, out);
    }

    /// The writes of an adopted transaction are logged.
    pub(super) fn redo(&mut self, number: SequenceNumber, locks: &LockSet, out: &mut Vec<Output>) {
        let Some(active) = self.actives.get_mut(number) else { return };
        active.stage = Stage::Ending(Ending::Commit, None);
        let writes = active.writes.clone();
        self.replicate(
            number,
            |_| ToProxy::Redo { number, locks: locks.clone(), writes: writes.clone() },
            out,
        );
    }

    /// A transaction that commits, for the log.
    pub fn decided(&self, number: SequenceNumber) -> Option<Decided> {
        let active = self.actives.get(number)?;
        let writes = match active.stage {
            Stage::Logging(Some(operation)) => vec![operation],
            _ => active.writes.clone(),
        };
        Some((active.locks.clone(), writes))
    }
}
