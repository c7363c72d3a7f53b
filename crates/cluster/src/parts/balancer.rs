//! The replica with the least expected wait.
//!
//! Conflict-aware scheduling's SELF (section 4.1): the sum of the estimated times of what is outstanding at a replica.
//! Refreshes that a statement has to wait for are part of its wait, so a replica that is behind is chosen when that is
//! still quicker than queueing at one that is not. Equals take turns. One that is suspected is chosen only when there
//! is no other.

use crate::ids::Version;
use crate::parts::replica::{Replica, State};
use crate::placement::ReplicaSet;

/// Chooses; remembers only whose turn it is among equals.
#[derive(Debug, Default)]
pub struct Balancer {
    last: usize,
}

impl Balancer {
    /// The index of the best of the `eligible` replicas that are up; `None` when none is.
    pub fn choose(&mut self, replicas: &[Replica], eligible: ReplicaSet, need: Version) -> Option<usize> {
        let count = replicas.len();
        let best = (1..=count)
            .map(|step| (self.last + step) % count)
            .filter(|&i| replicas[i].state == State::Up && eligible.contains(replicas[i].id))
            .min_by_key(|&i| (replicas[i].is_suspect, replicas[i].expected_wait_us(need)))?;
        self.last = best;
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Incarnation, ReplicaId};

    fn replicas() -> Vec<Replica> {
        (0..3)
            .map(|i| {
                let mut replica = Replica::new(ReplicaId(i));
                replica.up(Incarnation(1), Version(5));
                replica
            })
            .collect()
    }

    #[test]
    fn equals_take_turns() {
        let (replicas, mut balancer) = (replicas(), Balancer::default());
        let all = ReplicaSet::first(3);
        let chosen: Vec<_> = (0..4).map(|_| balancer.choose(&replicas, all, Version(5)).unwrap()).collect();
        assert_eq!(chosen, [1, 2, 0, 1]);
    }

    #[test]
    fn load_and_lag_count() {
        let (mut replicas, mut balancer) = (replicas(), Balancer::default());
        let all = ReplicaSet::first(3);
        replicas[1].outstanding_us = 1_000;
        replicas[2].outstanding_us = 10;
        replicas[0].applied = Version(1);
        assert_eq!(balancer.choose(&replicas, all, Version(5)), Some(2));
        replicas[2].outstanding_us = 50_000;
        assert_eq!(balancer.choose(&replicas, all, Version(5)), Some(0), "being behind is a wait, not a bar");
        replicas[0].is_suspect = true;
        assert_eq!(
            balancer.choose(&replicas, all, Version(5)),
            Some(1),
            "however long the wait is elsewhere"
        );
        replicas[0].down(State::Down);
        replicas[1].down(State::Quarantined);
        assert_eq!(balancer.choose(&replicas, all, Version(5)), Some(2));
        assert_eq!(balancer.choose(&replicas, ReplicaSet::EMPTY.with(ReplicaId(1)), Version(5)), None);
    }
}
