//! The messages of a scheduler that takes over from a failed one (section 5.3.1), and those to a proxy that has missed some
//! (section 5.3.2).
//!
//! A transaction of the failed scheduler with a commit record is decided: where it has not been committed its writes
//! are done again. Every other one is aborted, which also fills the gap that its number would leave.
//!
//! Deviation: the paper aborts a decided transaction at the replica and then sends its writes. Its locks would be free
//! for a moment, and a transaction behind it would run first with its higher number; so it is restarted in its place.

use std::collections::BTreeMap;

use crate::ids::FragmentId;
use crate::parts::lock_queues::{LockSet, Mode};

use super::message::{Ending, Operation, SequenceNumber, ToProxy};

/// A transaction of the failed scheduler, as the other schedulers know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Known {
    /// That it began (`replicate_start_transaction`, section 5.2).
    Begun(SequenceNumber),
    /// That it commits, and all its writes (`replicate_end_transaction`, section 5.3).
    Decided(SequenceNumber, LockSet, Vec<Operation>),
}

/// The answer of a proxy to a fail-over scheduler, when all queued operations at its database are done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyState {
    /// The highest number of any lock request that it received.
    pub highest: SequenceNumber,
    /// The last write that was committed on each table.
    pub committed: BTreeMap<FragmentId, SequenceNumber>,
}

impl ProxyState {
    /// Writers of one table commit in order of their numbers, so the last one tells of all before it.
    fn has_committed(&self, number: SequenceNumber, locks: &LockSet) -> bool {
        let written = locks.iter().filter(|(_, mode)| *mode == Mode::Write);
        number <= self.highest
            && written.map(|(fragment, _)| self.committed.get(fragment)).all(|last| last >= Some(&number))
    }
}

/// The messages that bring one proxy to where the failed scheduler would have brought it, in order of the numbers.
pub fn roll_forward(state: &ProxyState, known: &[Known]) -> Vec<ToProxy> {
    let mut messages: Vec<(SequenceNumber, ToProxy)> = known
        .iter()
        .filter_map(|known| match known {
            Known::Begun(number) => Some((*number, ToProxy::End { number: *number, ending: Ending::Abort })),
            Known::Decided(number, locks, _) if state.has_committed(*number, locks) => None,
            Known::Decided(number, locks, writes) => {
                let (locks, writes) = (locks.clone(), writes.clone());
                Some((*number, ToProxy::Redo { number: *number, locks, writes }))
            }
        })
        .collect();
    messages.sort_by_key(|(number, _)| *number);
    messages.into_iter().map(|(_, message)| message).collect()
}
