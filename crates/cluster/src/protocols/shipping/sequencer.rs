//! The sequencer: gives each transaction of the cluster its number (sections 4.1 and 5.2).
//!
//! Example: schedulers 1 and 2 ask in turn and get 1, 2 and 3. The scheduler at which the sequencer runs fails; the others have
//! heard of 1 and 2 only. The next sequencer starts after 2, and 3 is given again: no replica can have heard of it.
//!
//! Numbers have no gaps, because proxies wait for every one of them. Not here: who fills a gap ([`super::replicated`]).

use super::message::SequenceNumber;

/// Gives out numbers.
#[derive(Debug, Default)]
pub(super) struct Sequencer {
    last: SequenceNumber,
}

impl Sequencer {
    /// "Replication of the sequence numbers on all schedulers allows for restarting the sequencer with the last sequence
    /// number" (section 5.2).
    pub(super) fn restarted(last: SequenceNumber) -> Self {
        Self { last }
    }

    /// The next number.
    pub(super) fn next_number(&mut self) -> SequenceNumber {
        self.last.0 += 1;
        self.last
    }
}
