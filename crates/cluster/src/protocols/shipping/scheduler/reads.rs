//! Where the reads of the five schedulers go (sections 3.5, 4.8 and 6).
//!
//! Example: a transaction has its locks at replicas 1 and 3, and replica 3 has less to do. A conflict-aware scheduler sends the read to
//! replica 3, one that goes by load alone perhaps to replica 2, where the read waits.

use super::super::Place;
use super::super::message::{Answer, Operation, SequenceNumber, ToProxy};
use super::{Output, Scheduler};
use crate::ids::{ReplicaId, SessionId};
use crate::parts::lock_queues::LockSet;

impl Scheduler {
    /// Sends a read to the replica that the choices say.
    pub(super) fn send_read(&mut self, session: SessionId, message: ToProxy, out: &mut Vec<Output>) {
        let (index, cost_us) = match &message {
            ToProxy::Execute { number, operation } => (self.place_read(*number), operation.cost_us),
            ToProxy::SingleRead { locks, operation, .. } => {
                (self.place_single(session, locks), operation.cost_us)
            }
            _ => unreachable!("only reads are sent to one replica"),
        };
        let Some(index) = index else {
            self.sessions.entry(session).or_default().read = None;
            out.push(Output::Answer(session, Answer::Lost));
            return;
        };
        self.loads.add(index, cost_us);
        self.sessions.entry(session).or_default().read = Some((index, message.clone()));
        out.push(Output::ToProxy(ReplicaId(index as u16), message));
    }

    /// The replica for a read inside a transaction of several operations (sections 3.5 and 6).
    fn place_read(&mut self, number: SequenceNumber) -> Option<usize> {
        let active = self.actives.get(number)?;
        match self.choices.place {
            Place::FixedByLoad | Place::FixedByConflict => {
                active.chosen.or_else(|| self.loads.least(|index| self.up[index]))
            }
            Place::VariableByLoad => self.loads.least(|index| self.up[index]),
            // If the only one that had all was lost, another one will have it.
            Place::VariableByConflict => {
                let best = self.loads.least(|index| self.up[index] && active.done[index] == active.sent);
                best.or_else(|| self.loads.least(|index| self.up[index]))
            }
        }
    }

    pub(super) fn single_read(
        &mut self,
        session: SessionId,
        locks: LockSet,
        operation: Operation,
        out: &mut Vec<Output>,
    ) {
        let message = ToProxy::SingleRead { session, after: self.last(), locks, operation };
        self.send_read(session, message, out);
    }

    /// Sections 4.8 and 6: by conflict first, or by load alone.
    fn place_single(&mut self, session: SessionId, locks: &LockSet) -> Option<usize> {
        if !self.choices.place.avoids_conflicts() {
            return self.loads.least(|index| self.up[index]);
        }
        let updates = self.sessions.get(&session).map_or(&[][..], |state| &state.updates);
        // A transaction that has ended at a replica has done the operations that were sent, its end the last.
        let has_ended = |number: &SequenceNumber, index: usize| {
            self.actives.get(*number).is_none_or(|a| a.stage.is_ending() && a.done[index] == a.sent)
        };
        let has_own = |index: usize| self.up[index] && updates.iter().all(|n| has_ended(n, index));
        let best = self.loads.least(|index| has_own(index) && self.writers.is_free(index, locks));
        best.or_else(|| self.loads.least(has_own)).or_else(|| self.loads.least(|index| self.up[index]))
    }
}
