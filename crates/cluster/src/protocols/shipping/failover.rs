//! The messages to a proxy after the loss of all schedulers or of all replicas, from their logs (sections 5.3.1 and 5.3.3).
//!
//! Example: all schedulers fail. Their logs have the writes of 3 and 5, and no replica has heard of a number above 6. A proxy whose
//! database has committed 3 gets: abort 4, do 5 again, abort 6. A database that was put back to a checkpoint gets the same from the
//! checkpoint's number on.
//!
//! Deviation: the paper aborts a decided transaction at the replica and then sends its writes. Its locks would be free
//! for a moment, and a transaction behind it would run first with its higher number; so it is restarted in its place.

use std::collections::BTreeMap;

use crate::ids::FragmentId;
use crate::parts::lock_queues::{LockSet, Mode};

use super::joining::Decided;
use super::message::{Ending, SequenceNumber, ToProxy};
use super::proxy::Proxy;

/// How far a proxy is: from itself, or from the checkpoint of its database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProxyState {
    /// Every number up to this one is over.
    pub over: SequenceNumber,
    /// The last write that was committed on each table.
    pub committed: BTreeMap<FragmentId, SequenceNumber>,
}

impl ProxyState {
    /// That of a proxy.
    pub fn of(proxy: &Proxy) -> Self {
        Self { over: proxy.over(), committed: proxy.committed().clone() }
    }

    /// Writers of one table commit in order of their numbers, so the last one tells of all before it.
    fn has_committed(&self, number: SequenceNumber, locks: &LockSet) -> bool {
        let mut written = locks.iter().filter(|(_, mode)| *mode == Mode::Write);
        written.all(|(fragment, _)| self.committed.get(fragment) >= Some(&number))
    }
}

/// The messages that bring one proxy up to `last`, the highest number that any proxy or log has, in order of the numbers.
pub fn roll_forward(
    state: &ProxyState,
    logged: &BTreeMap<SequenceNumber, Decided>,
    last: SequenceNumber,
) -> Vec<ToProxy> {
    let numbers = (state.over.0 + 1..=last.0).map(SequenceNumber);
    numbers
        .map(|number| match logged.get(&number) {
            Some((locks, writes)) if !state.has_committed(number, locks) => {
                ToProxy::Redo { number, locks: locks.clone(), writes: writes.clone() }
            }
            // It fills the gap, and does nothing to what is over.
            _ => ToProxy::End { number, ending: Ending::Abort },
        })
        .collect()
}
