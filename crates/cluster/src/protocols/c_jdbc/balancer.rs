//! The load balancer: the replica where a read is executed.
//!
//! C-JDBC, section 2.2.5: "limited to decide on which replica a read operation is executed, since all write operations are
//! executed at all replicas". The paper names no rule; the three here are those of C-JDBC itself.

use std::collections::BTreeMap;

use crate::ids::ReplicaId;
use crate::placement::ReplicaSet;

/// How the balancer chooses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Balance {
    /// One after the other.
    RoundRobin,
    /// In turn, each as often as its weight says; a replica that is not listed has weight 1, one with weight 0 gets a read only if
    /// no other can.
    Weighted(BTreeMap<ReplicaId, u32>),
    /// The one with the fewest requests that it has not answered; equals take turns.
    LeastPending,
}

/// The balancer with what it has to remember.
#[derive(Clone, Debug)]
pub struct Balancer {
    balance: Balance,
    last: Option<ReplicaId>,
    /// What each replica is ahead of its share, in reads times the sum of weights.
    credit: BTreeMap<ReplicaId, i64>,
}

impl Balancer {
    /// A balancer that has chosen nothing yet.
    pub fn new(balance: Balance) -> Self {
        Self { balance, last: None, credit: BTreeMap::new() }
    }

    /// One of these replicas, given how many requests each has not answered.
    pub fn choose(&mut self, among: ReplicaSet, pending: impl Fn(ReplicaId) -> usize) -> Option<ReplicaId> {
        let chosen = match &self.balance {
            Balance::RoundRobin => self.next_of(among, |_| 0)?,
            Balance::LeastPending => self.next_of(among, pending)?,
            Balance::Weighted(weights) => {
                let weights: Vec<(ReplicaId, i64)> = among
                    .iter()
                    .map(|replica| (replica, i64::from(weights.get(&replica).copied().unwrap_or(1))))
                    .collect();
                self.by_credit(&weights)?
            }
        };
        self.last = Some(chosen);
        Some(chosen)
    }

    /// The next replica after the last choice, of those with the least of something.
    fn next_of(&self, among: ReplicaSet, of: impl Fn(ReplicaId) -> usize) -> Option<ReplicaId> {
        among.iter().min_by_key(|replica| (of(*replica), Some(*replica) <= self.last, *replica))
    }

    /// Smooth weighted round robin: each gains its weight, and the richest pays for the read.
    fn by_credit(&mut self, weights: &[(ReplicaId, i64)]) -> Option<ReplicaId> {
        let total: i64 = weights.iter().map(|(_, weight)| weight).sum();
        for (replica, weight) in weights {
            *self.credit.entry(*replica).or_default() += weight;
        }
        let rank = |(replica, weight): &&(ReplicaId, i64)| {
            (*weight > 0, self.credit.get(replica).copied(), std::cmp::Reverse(*replica))
        };
        let chosen = weights.iter().max_by_key(rank)?.0;
        *self.credit.entry(chosen).or_default() -= total;
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chosen(balance: Balance, count: usize, among: ReplicaSet, pending: &[usize]) -> Vec<u16> {
        let mut balancer = Balancer::new(balance);
        let mut one = || balancer.choose(among, |replica| pending[usize::from(replica.0)]).unwrap().0;
        (0..count).map(|_| one()).collect()
    }

    #[test]
    fn round_robin_takes_turns_and_leaves_out_what_cannot() {
        assert_eq!(chosen(Balance::RoundRobin, 4, ReplicaSet::first(3), &[9, 0, 0]), [0, 1, 2, 0]);
        let two = ReplicaSet::first(3).without(ReplicaId(1));
        assert_eq!(chosen(Balance::RoundRobin, 3, two, &[0; 3]), [0, 2, 0]);
        assert_eq!(Balancer::new(Balance::RoundRobin).choose(ReplicaSet::EMPTY, |_| 0), None);
    }

    #[test]
    fn weights_are_shares_and_weight_0_is_the_last_resort() {
        let weights = BTreeMap::from([(ReplicaId(0), 3), (ReplicaId(2), 0)]);
        let balance = Balance::Weighted(weights);
        assert_eq!(chosen(balance.clone(), 8, ReplicaSet::first(3), &[0; 3]), [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(chosen(balance, 1, ReplicaSet::EMPTY.with(ReplicaId(2)), &[0; 3]), [2]);
    }

    #[test]
    fn least_pending_is_least_and_equals_take_turns() {
        assert_eq!(chosen(Balance::LeastPending, 3, ReplicaSet::first(3), &[1, 2, 1]), [0, 2, 0]);
    }

    proptest! {
        /// Over any number of whole rounds each replica gets exactly its weight.
        #[test]
        fn weighted_gives_each_its_share(weights in proptest::collection::vec(1_u32..6, 1..5), rounds in 1_usize..4) {
            let all = ReplicaSet::first(u16::try_from(weights.len()).unwrap());
            let map: BTreeMap<ReplicaId, u32> = (0..).map(ReplicaId).zip(weights.iter().copied()).collect();
            let total: u32 = weights.iter().sum();
            let chosen = chosen(Balance::Weighted(map), rounds * total as usize, all, &[0; 5]);
            for (replica, weight) in weights.iter().enumerate() {
                let count = chosen.iter().filter(|one| usize::from(**one) == replica).count();
                prop_assert_eq!(count, rounds * *weight as usize);
            }
        }
    }
}
