//! The chair and the log: one linearizable store, as etcd is. Requests arrive late, or never, and answers get lost.

use cluster::ids::{Identity, Version};
use cluster::nodes::term::{Holder, Reading};

/// A request to the store.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Read,
    Claim { expected: u64, holder: Holder },
    Confirm { revision: u64 },
    Append { revision: u64, first: Version, identities: Vec<Identity> },
}

/// Its answer.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Reading(Reading),
    /// The new revision, if the claim was made.
    Claimed(Option<u64>),
    Confirmed(bool),
    Appended(Appended),
}

/// What became of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Appended {
    Done,
    /// Another one has the chair.
    Replaced,
    /// The place is taken by others.
    Taken,
    /// There was no answer.
    Unknown,
}

/// The store.
#[derive(Debug, Default)]
pub(super) struct Chair {
    pub(super) reading: Reading,
    pub(super) log: Vec<Identity>,
}

impl Chair {
    /// Carries out a request. `compares` is off under a mutant.
    pub(super) fn handle(&mut self, request: Request, compares: bool) -> Answer {
        match request {
            Request::Read => Answer::Reading(self.reading),
            Request::Claim { expected, holder } => {
                let is_made = self.reading.revision == expected;
                if is_made {
                    self.reading = Reading { revision: expected + 1, holder: Some(holder) };
                }
                Answer::Claimed(is_made.then_some(self.reading.revision))
            }
            Request::Confirm { revision } => Answer::Confirmed(self.reading.revision == revision),
            Request::Append { revision, first, identities } => {
                let at = first.0 as usize - 1;
                // Before the log is looked at: an earlier try that is there must not confirm a term that is over.
                if compares && self.reading.revision != revision {
                    return Answer::Appended(Appended::Replaced);
                }
                if self.log.get(at..at + identities.len()) == Some(&identities[..]) {
                    // An earlier try of the same append, whose answer was lost.
                    return Answer::Appended(Appended::Done);
                }
                if self.log.len() != at {
                    return Answer::Appended(Appended::Taken);
                }
                self.log.extend(identities);
                Answer::Appended(Appended::Done)
            }
        }
    }
}
