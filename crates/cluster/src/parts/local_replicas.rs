//! The local replica of each session: the one to which it is connected, where its transactions run.
//!
//! Middle-R, section 2.1.5: "The JDBC driver at the client side decides which replica to connect to based on this information. A
//! simple algorithm is followed: the probability to connect to some replica is inversely proportional to its load." With the loads
//! 1, 2 and 4, the probabilities are 4/7, 2/7 and 1/7.
//!
//! A replica shows ever later versions, so a session that stays at one sees no less than before. It may see less elsewhere. So each
//! session has a *floor*, a version that its local replica must have before the next statement runs there:
//!
//! - that of its last own commit, which is acknowledged before the replica shows it;
//! - everything durable, after the session was connected to another replica, or has run something elsewhere.
//!
//! Chance comes from a counter and the epoch, so the choices of a run can be repeated.
//!
//! Non-goals: what the load is, and which replicas take sessions ([`crate::protocols::rows`]).

use std::collections::BTreeMap;

use crate::ids::{CrewId, Epoch, ReplicaId, SessionId, Version};

/// The weight of a replica with the load 1. Greater loads than this are not told apart.
const WEIGHT_OF_ONE: u64 = 1 << 40;

/// A session's local replica.
#[derive(Clone, Copy, Debug)]
struct Local {
    replica: ReplicaId,
    floor: Version,
    /// The session has run something at another replica since.
    was_elsewhere: bool,
}

/// The local replicas of all sessions.
#[derive(Debug)]
pub struct LocalReplicas {
    sessions: BTreeMap<SessionId, Local>,
    connected: BTreeMap<ReplicaId, u64>,
    epoch: Epoch,
    choices: u64,
}

impl LocalReplicas {
    /// No session is connected yet.
    pub fn new(epoch: Epoch) -> Self {
        Self { sessions: BTreeMap::new(), connected: BTreeMap::new(), epoch, choices: 0 }
    }

    /// The local replica of a session.
    pub fn of(&self, session: SessionId) -> Option<ReplicaId> {
        self.sessions.get(&session).map(|local| local.replica)
    }

    /// The number of sessions that are connected to a replica.
    pub fn connected(&self, replica: ReplicaId) -> u64 {
        self.connected.get(&replica).copied().unwrap_or_default()
    }

    /// Connects a session to one of these replicas, each with its load of at least 1, and from now on it sees this version there.
    /// Returns the replica; `None` if there is none to choose.
    pub fn connect(
        &mut self,
        session: SessionId,
        loads: &[(ReplicaId, u64)],
        floor: Version,
    ) -> Option<ReplicaId> {
        self.choices += 1;
        let replica = choose(loads, mixed(self.epoch, self.choices))?;
        self.close(session);
        self.sessions.insert(session, Local { replica, floor, was_elsewhere: false });
        *self.connected.entry(replica).or_default() += 1;
        Some(replica)
    }

    /// The version that a statement of the session needs where it runs, by what the session has seen; everything durable if that is
    /// not its local replica.
    pub fn need(&mut self, session: SessionId, replica: ReplicaId, durable: Version) -> Version {
        match self.sessions.get_mut(&session) {
            Some(local) if local.replica == replica => {
                if std::mem::take(&mut local.was_elsewhere) {
                    local.floor = durable;
                }
                local.floor
            }
            Some(local) => {
                local.was_elsewhere = true;
                durable
            }
            None => durable,
        }
    }

    /// The session was told that its transaction has this version.
    pub fn acknowledged(&mut self, session: SessionId, version: Version) {
        if let Some(local) = self.sessions.get_mut(&session) {
            local.floor = local.floor.max(version);
        }
    }

    /// The session has ended.
    pub fn close(&mut self, session: SessionId) {
        if let Some(local) = self.sessions.remove(&session)
            && let Some(connected) = self.connected.get_mut(&local.replica)
        {
            *connected -= 1;
        }
    }

    /// All sessions of a node have ended.
    pub fn close_crew(&mut self, crew: CrewId) {
        let theirs = self.sessions.keys().copied().filter(|session| session.crew() == crew);
        let theirs: Vec<SessionId> = theirs.collect();
        for session in theirs {
            self.close(session);
        }
    }
}

/// A choice with probabilities inversely proportional to the loads, by a number that may be any with the same probability.
pub fn choose<T: Copy>(loads: &[(T, u64)], chance: u64) -> Option<T> {
    let weight = |load: u64| u128::from(WEIGHT_OF_ONE / load.clamp(1, WEIGHT_OF_ONE));
    let total: u128 = loads.iter().map(|(_, load)| weight(*load)).sum();
    let mut rest = (u128::from(chance) * total) >> u64::BITS;
    for (one, load) in loads {
        match rest.checked_sub(weight(*load)) {
            Some(left) => rest = left,
            None => return Some(*one),
        }
    }
    None
}

/// The output of splitmix64 for the number of a choice.
fn mixed(epoch: Epoch, number: u64) -> u64 {
    let mut mixed = u64::from(epoch.0).rotate_left(32) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHOICES: u64 = 70_000;
    const DURABLE: Version = Version(9);

    fn connected_by(loads: &[u64]) -> Vec<u64> {
        let loads: Vec<_> = (0..).map(ReplicaId).zip(loads.iter().copied()).collect();
        let mut locals = LocalReplicas::new(Epoch(3));
        for n in 0..CHOICES {
            locals.connect(SessionId(n), &loads, Version::ZERO);
        }
        loads.iter().map(|(replica, _)| locals.connected(*replica)).collect()
    }

    /// Section 2.1.5: "the probability to connect to some replica is inversely proportional to its load".
    #[test]
    fn the_probability_to_connect_is_inversely_proportional_to_the_load() {
        let shares = connected_by(&[1, 2, 4]);
        for (share, expected) in shares.iter().zip([40_000, 20_000, 10_000]) {
            assert!(share.abs_diff(expected) < 700, "{shares:?}, more than three standard deviations away");
        }
        let shares = connected_by(&[1, u64::MAX]);
        assert!(shares[1] <= 1, "a load that is hardly chosen: {shares:?}");
        assert_eq!(choose::<ReplicaId>(&[], 7), None);
        assert_eq!(choose(&[(ReplicaId(4), 0)], u64::MAX), Some(ReplicaId(4)), "no load counts as one");
    }

    #[test]
    fn a_session_sees_no_less_than_before() {
        let (session, here, there) = (SessionId(1), ReplicaId(0), ReplicaId(1));
        let mut locals = LocalReplicas::new(Epoch(1));
        assert_eq!(locals.need(session, here, DURABLE), DURABLE, "it has no local replica");
        locals.connect(session, &[(here, 1)], Version(4));
        assert_eq!(locals.need(session, here, DURABLE), Version(4));
        locals.acknowledged(session, Version(6));
        locals.acknowledged(session, Version(5));
        assert_eq!(locals.need(session, here, DURABLE), Version(6), "its own commit");
        assert_eq!(locals.need(session, there, DURABLE), DURABLE, "elsewhere it sees everything");
        assert_eq!(locals.need(session, here, Version(12)), Version(12), "what it may have seen there");
        assert_eq!(locals.need(session, here, Version(20)), Version(12));
    }

    #[test]
    fn a_session_counts_where_it_is_connected_until_it_ends() {
        let (one, other) = (ReplicaId(0), ReplicaId(1));
        let mut locals = LocalReplicas::new(Epoch(1));
        let crew = CrewId(2);
        locals.connect(SessionId(1), &[(one, 1)], Version::ZERO);
        locals.connect(SessionId::of(crew, 1), &[(one, 1)], Version::ZERO);
        assert_eq!(locals.connected(one), 2);
        locals.connect(SessionId(1), &[(other, 1)], Version::ZERO);
        assert_eq!((locals.connected(one), locals.connected(other)), (1, 1));
        assert_eq!(locals.connect(SessionId(1), &[], Version::ZERO), None);
        assert_eq!(locals.of(SessionId(1)), Some(other), "there is no other one to choose");
        locals.close_crew(crew);
        locals.close(SessionId(1));
        assert_eq!((locals.connected(one), locals.connected(other), locals.of(SessionId(1))), (0, 0, None));
    }
}
