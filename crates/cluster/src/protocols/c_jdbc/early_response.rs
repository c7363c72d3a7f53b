//! Early response: how many replicas must have executed an operation before the client is answered.
//!
//! Not in the paper; C-JDBC itself has the three policies. Only replicas count that take part: one that is lost is
//! taken out of the set.

use crate::ids::ReplicaId;
use crate::placement::ReplicaSet;

/// When the client is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Respond {
    /// One has executed the operation.
    First,
    /// More than half have.
    Majority,
    /// All have.
    All,
}

/// The replicas that got an operation, and those that have executed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tally {
    sent: ReplicaSet,
    executed: ReplicaSet,
    first: Option<ReplicaId>,
}

impl Tally {
    /// The operation was sent to these, and none has executed it.
    pub fn new(sent: ReplicaSet) -> Self {
        Self { sent, executed: ReplicaSet::EMPTY, first: None }
    }

    /// A replica has executed it.
    pub fn execute(&mut self, replica: ReplicaId) {
        if self.sent.contains(replica) {
            self.executed = self.executed.with(replica);
            self.first.get_or_insert(replica);
        }
    }

    /// It was sent to a replica that has returned.
    pub fn join(&mut self, replica: ReplicaId) {
        self.sent = self.sent.with(replica);
        self.executed = self.executed.without(replica);
    }

    /// A replica is lost.
    pub fn lose(&mut self, replica: ReplicaId) {
        self.sent = self.sent.without(replica);
        self.executed = self.executed.without(replica);
    }

    /// Whether the client may be answered: at least one has executed it, and as many as the policy asks for.
    pub fn may_answer(&self, respond: Respond) -> bool {
        let (sent, executed) = (self.sent.iter().count(), self.executed.iter().count());
        let needed = match respond {
            Respond::First => 1,
            Respond::Majority => sent / 2 + 1,
            Respond::All => sent,
        };
        executed >= needed.max(1)
    }

    /// Whether all have executed it, and there is at least one.
    pub fn is_over(&self) -> bool {
        self.may_answer(Respond::All)
    }

    /// Whether no replica that got it takes part any more.
    pub fn is_orphaned(&self) -> bool {
        self.sent == ReplicaSet::EMPTY
    }

    /// A replica that has executed it, the first one if it still takes part.
    pub fn source(&self) -> Option<ReplicaId> {
        self.first.filter(|first| self.executed.contains(*first)).or_else(|| self.executed.iter().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_majority_and_all_of_four() {
        let mut tally = Tally::new(ReplicaSet::first(4));
        let mut answers = Vec::new();
        for replica in [2, 0, 1, 3].map(ReplicaId) {
            tally.execute(replica);
            answers.push([Respond::First, Respond::Majority, Respond::All].map(|r| tally.may_answer(r)));
        }
        let [one, two, three, four] = answers[..] else { panic!("four replicas") };
        assert_eq!([one, two], [[true, false, false]; 2], "two of four are no majority");
        assert_eq!((three, four), ([true, true, false], [true; 3]));
        assert_eq!(tally.source(), Some(ReplicaId(2)));
    }

    #[test]
    fn the_lost_do_not_count_and_nobody_is_not_all() {
        let mut tally = Tally::new(ReplicaSet::first(2));
        tally.execute(ReplicaId(0));
        tally.lose(ReplicaId(1));
        assert!(tally.is_over());
        tally.lose(ReplicaId(0));
        assert!(tally.is_orphaned() && !tally.may_answer(Respond::First));
        tally.join(ReplicaId(1));
        assert!(!tally.is_over() && !tally.is_orphaned());
    }
}
