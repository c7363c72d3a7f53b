//! The replica with the least expected wait.
//!
//! Conflict-aware scheduling's SELF (section 4.1): the load of a replica is the sum of the estimated times of its outstanding
//! statements. Refreshes that a statement has to wait for are part of its wait, so a replica that is behind is chosen when that
//! is still quicker than queueing at another one. Equal replicas take turns. A suspected replica is chosen only when there is no
//! other.
//!
//! Deviation: a session stays at its last replica as long as that is about as good as the best. The backend of another replica
//! has to find data and code in its caches again, which costs more than a short wait.

use crate::ids::{ReplicaId, Version};
use crate::parts::replica::{Replica, State};
use crate::placement::ReplicaSet;

/// A session stays if its last replica is slower by no more than its statement takes, but at least by this, ...
const STAY_US: u64 = 100;
/// ... and at most by this: a long statement gains little from warm caches.
const STAY_MAX_US: u64 = 2_000;

/// After this many choices in which a session stayed, one goes to the best replica, so that new replicas get their share.
pub const STAYS: u32 = 32;

/// A statement to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The replicas that may serve it.
    pub eligible: ReplicaSet,
    /// The version that it needs.
    pub need: Version,
    /// Expected time at the replica.
    pub cost_us: u32,
    /// The replica where its session was last.
    pub near: Option<ReplicaId>,
}

impl Wish {
    /// How much longer the session may wait at its last replica than elsewhere.
    fn slack_us(&self) -> u64 {
        slack_us(self.cost_us)
    }
}

fn slack_us(cost_us: u32) -> u64 {
    u64::from(cost_us).clamp(STAY_US, STAY_MAX_US)
}

/// Whether a session may stay at its last replica: its expected wait there is about that at the best one.
pub fn may_stay(wait_us: u64, least_us: u64, cost_us: u32) -> bool {
    wait_us <= least_us + slack_us(cost_us)
}

/// Chooses replicas. It remembers the last one that was chosen as the best, and how many sessions have stayed since.
#[derive(Debug, Default)]
pub struct Balancer {
    last: usize,
    stays: u32,
}

impl Balancer {
    /// The index of the best of the eligible replicas that are up; `None` when none is.
    pub fn choose(&mut self, replicas: &[Replica], wish: Wish) -> Option<usize> {
        let count = replicas.len();
        let may = |i: &usize| replicas[*i].state == State::Up && wish.eligible.contains(replicas[*i].id);
        let wait_us = |i: usize| (replicas[i].is_suspect, replicas[i].expected_wait_us(wish.need));
        let best =
            (1..=count).map(|step| (self.last + step) % count).filter(may).min_by_key(|&i| wait_us(i))?;
        let (suspect, least_us) = wait_us(best);
        let near = wish.near.map(|replica| usize::from(replica.0)).filter(|i| *i < count && may(i));
        let may_stay = |i: &usize| wait_us(*i) <= (suspect, least_us + wish.slack_us());
        if let Some(near) = near.filter(may_stay)
            && self.stays < STAYS
        {
            self.stays += 1;
            return Some(near);
        }
        self.stays = 0;
        self.last = best;
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Incarnation;

    fn replicas() -> Vec<Replica> {
        (0..3)
            .map(|i| {
                let mut replica = Replica::new(ReplicaId(i));
                replica.up(Incarnation(1), Version(5));
                replica
            })
            .collect()
    }

    fn wish(replicas: u16) -> Wish {
        Wish { eligible: ReplicaSet::first(replicas), need: Version(5), cost_us: 10, near: None }
    }

    #[test]
    fn equals_take_turns() {
        let (replicas, mut balancer) = (replicas(), Balancer::default());
        let chosen: Vec<_> = (0..4).map(|_| balancer.choose(&replicas, wish(3)).unwrap()).collect();
        assert_eq!(chosen, [1, 2, 0, 1]);
    }

    #[test]
    fn a_session_stays_while_that_is_about_as_good() {
        let (mut replicas, mut balancer) = (replicas(), Balancer::default());
        let near = Wish { near: Some(ReplicaId(2)), ..wish(3) };
        let chosen: Vec<_> = (0..2 * STAYS).filter_map(|_| balancer.choose(&replicas, near)).collect();
        assert_eq!(chosen.iter().filter(|&&i| i != 2).count(), 1, "one of many goes to whose turn it is");
        assert_eq!(balancer.choose(&replicas, wish(3)), Some(2), "no replica had its turn meanwhile");
        replicas[2].outstanding_us = STAY_US;
        assert_eq!(balancer.choose(&replicas, near), Some(2));
        replicas[2].outstanding_us = STAY_US + 1;
        assert_ne!(balancer.choose(&replicas, near), Some(2));
        let long = Wish { cost_us: 1_500, ..near };
        replicas[2].outstanding_us = 1_500;
        assert_eq!(balancer.choose(&replicas, long), Some(2));
        let endless = Wish { cost_us: 3_000_000, ..near };
        replicas[2].outstanding_us = STAY_MAX_US + 1;
        assert_ne!(balancer.choose(&replicas, endless), Some(2));
        replicas[2].outstanding_us = 0;
        replicas[2].is_suspect = true;
        assert_ne!(balancer.choose(&replicas, near), Some(2), "others are not suspected");
        let gone = Wish { near: Some(ReplicaId(7)), ..near };
        assert!(balancer.choose(&replicas, gone).is_some());
    }

    #[test]
    fn load_and_lag_count() {
        let (mut replicas, mut balancer) = (replicas(), Balancer::default());
        replicas[1].outstanding_us = 1_000;
        replicas[2].outstanding_us = 10;
        replicas[0].applied = Version(1);
        assert_eq!(balancer.choose(&replicas, wish(3)), Some(2));
        replicas[2].outstanding_us = 50_000;
        assert_eq!(balancer.choose(&replicas, wish(3)), Some(0), "being behind is a wait, not a bar");
        replicas[0].is_suspect = true;
        assert_eq!(balancer.choose(&replicas, wish(3)), Some(1), "however long the wait is elsewhere");
        replicas[0].down(State::Down);
        replicas[1].down(State::Quarantined);
        assert_eq!(balancer.choose(&replicas, wish(3)), Some(2));
        assert_eq!(
            balancer.choose(&replicas, Wish { eligible: ReplicaSet::EMPTY.with(ReplicaId(1)), ..wish(3) }),
            None
        );
    }
}
