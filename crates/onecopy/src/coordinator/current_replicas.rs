//! Where sessions may place reads without asking the core.
//!
//! A replica that has every durable version can serve any read of the present catalogue: no version that the read might need is
//! missing there, whatever it reads. So a session that loads the durable version, and then finds a replica that has it, knows
//! what the core would say. It needs no footprint, no lock and no note. If the replica is behind, the core is asked, which looks at
//! what was written.
//!
//! ```text
//! session: durable = 7        replica 1: incarnation 3, has 7   -> the read runs there
//! session: durable = 8        replica 1: incarnation 3, has 7   -> the core is asked
//! ```
//!
//! On a node that follows, the leader tells what replicas offer now and then, and each statement that it lets run tells what its replica
//! has. What is known may be old; it is true all the same, since a replica never has less in one incarnation. There a session chooses
//! among the replicas, too, so that no read is a question to the leader.
//!
//! Invariant: the core stores what a replica has before anyone can learn of it otherwise, and takes it back before the next
//! incarnation is stored. So a pair that is read between two equal incarnations is true. A session uses only connections of that
//! incarnation.
//!
//! Non-goal: the choice between replicas where the core is. A session only stays where its last read ran, while that is about as good as
//! the best. The core chooses, and hears of the load here.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use cluster::Cluster;
use cluster::ids::{Incarnation, ReplicaId, Version};
use cluster::parts::balancer::{STAYS, may_stay};
use cluster::parts::replica::{Offer, Outside};
use cluster::placement::REPLICAS_MAX;

/// Stands for "takes no reads".
const NOTHING: u64 = 0;

/// What one replica offers, and what sessions have placed there.
#[derive(Debug, Default)]
struct Slot {
    incarnation: AtomicU64,
    /// One more than the version up to which it has all, or [`NOTHING`].
    applied: AtomicU64,
    /// Expected time of what the core has placed there.
    load_us: AtomicU64,
    /// The same of what sessions of this node have placed there.
    outside_us: AtomicU64,
    running: AtomicU32,
    reads: AtomicU64,
    /// Questions whether a session may stay.
    asked: AtomicU32,
}

impl Slot {
    fn offer(&self, offer: Option<Offer>) {
        let Some(Offer { incarnation, applied, load_us }) = offer else {
            store(&self.applied, NOTHING);
            return;
        };
        if self.incarnation.load(Ordering::Relaxed) != incarnation.0 {
            self.applied.store(NOTHING, Ordering::Release);
            self.incarnation.store(incarnation.0, Ordering::Release);
        }
        store(&self.applied, applied.0 + 1);
        store(&self.load_us, load_us);
    }

    /// The version up to which it has all, with the incarnation of which that is true.
    fn applied(&self) -> Option<(Incarnation, Version)> {
        let incarnation = self.incarnation.load(Ordering::Acquire);
        let applied = self.applied.load(Ordering::Acquire);
        let is_same = self.incarnation.load(Ordering::Acquire) == incarnation;
        (is_same && applied != NOTHING).then(|| (Incarnation(incarnation), Version(applied - 1)))
    }

    fn wait_us(&self) -> u64 {
        self.load_us.load(Ordering::Relaxed) + self.outside_us.load(Ordering::Relaxed)
    }

    fn fresh(&self, replica: ReplicaId, needs: Version) -> Option<FreshReplica> {
        let (incarnation, applied) = self.applied()?;
        (applied >= needs).then_some(FreshReplica { replica, incarnation, applied })
    }

    fn outside(&self) -> Outside {
        Outside {
            outstanding_us: self.outside_us.load(Ordering::Relaxed),
            running: self.running.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
        }
    }
}

/// A replica that has all that a read needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreshReplica {
    pub(crate) replica: ReplicaId,
    pub(crate) incarnation: Incarnation,
    /// It has every version up to this one.
    pub(crate) applied: Version,
}

/// What all replicas offer.
#[derive(Debug)]
pub(crate) struct CurrentReplicas {
    slots: Box<[Slot]>,
    /// The number of slots that were ever used.
    used: AtomicUsize,
}

impl Default for CurrentReplicas {
    fn default() -> Self {
        Self { slots: (0..REPLICAS_MAX).map(|_| Slot::default()).collect(), used: AtomicUsize::new(0) }
    }
}

impl CurrentReplicas {
    /// The replica where a session was last, if a read may run there that needs everything up to a version. The session loads the
    /// version, and checks its catalogue, before this.
    pub(super) fn stay(&self, last: ReplicaId, needs: Version, cost_us: u32) -> Option<FreshReplica> {
        let slot = &self.slots[usize::from(last.0)];
        let found = slot.fresh(last, needs)?;
        let has_turn = slot.asked.fetch_add(1, Ordering::Relaxed) % STAYS == STAYS - 1;
        let offered = self.used().iter().filter(|slot| slot.applied.load(Ordering::Relaxed) != NOTHING);
        let least_us = offered.map(Slot::wait_us).min().unwrap_or(0);
        (!has_turn && may_stay(slot.wait_us(), least_us, cost_us)).then_some(found)
    }

    /// The replica for a read that needs everything up to a version: the last one, if there is one, while that is about as good as the
    /// best.
    pub(super) fn choose(
        &self,
        last: Option<ReplicaId>,
        needs: Version,
        cost_us: u32,
    ) -> Option<FreshReplica> {
        let last_slot = &self.slots[last.map_or(0, |last| usize::from(last.0))];
        let asked = last_slot.asked.fetch_add(1, Ordering::Relaxed);
        let slots = self.used();
        // Where the search begins changes, so equals take turns.
        let numbers = (0..slots.len()).map(|step| (asked as usize / STAYS as usize + step) % slots.len());
        let fresh = numbers.filter_map(|number| {
            let found = slots[number].fresh(ReplicaId(u16::try_from(number).ok()?), needs)?;
            Some((slots[number].wait_us(), found))
        });
        let (least_us, best) = fresh.min_by_key(|(wait_us, _)| *wait_us)?;
        let has_turn = asked % STAYS == STAYS - 1;
        let stays = !has_turn && may_stay(last_slot.wait_us(), least_us, cost_us);
        let near = last.filter(|_| stays).and_then(|last| last_slot.fresh(last, needs));
        Some(near.unwrap_or(best))
    }

    fn used(&self) -> &[Slot] {
        &self.slots[..self.used.load(Ordering::Relaxed)]
    }

    /// A read of this expected time runs at a replica.
    pub(crate) fn begins(&self, replica: ReplicaId, cost_us: u32) {
        let slot = &self.slots[usize::from(replica.0)];
        slot.outside_us.fetch_add(u64::from(cost_us), Ordering::Relaxed);
        slot.running.fetch_add(1, Ordering::Relaxed);
        slot.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// It has ended.
    pub(crate) fn ends(&self, replica: ReplicaId, cost_us: u32) {
        let slot = &self.slots[usize::from(replica.0)];
        slot.outside_us.fetch_sub(u64::from(cost_us), Ordering::Relaxed);
        slot.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes over what the replicas offer. Only the holder of the core's lock may call this.
    pub(super) fn note(&self, core: &Cluster) {
        let members = core.seats().min(self.slots.len());
        let used = self.used.load(Ordering::Relaxed).max(members);
        self.used.store(used, Ordering::Relaxed);
        for (number, slot) in (0..).zip(&self.slots[..used]) {
            slot.offer(core.offer(ReplicaId(number)));
        }
    }

    /// Takes over what the leader has told. Only the task of the link may call this, and what follows.
    pub(super) fn take(&self, offers: &[Option<Offer>]) {
        let used = self.used.load(Ordering::Relaxed).max(offers.len().min(self.slots.len()));
        self.used.store(used, Ordering::Relaxed);
        for (slot, offer) in self.slots.iter().zip(offers) {
            slot.offer(*offer);
        }
    }

    /// A statement may run at a replica, which has everything up to a version.
    pub(super) fn learn(&self, replica: ReplicaId, incarnation: Incarnation, applied: Version) {
        let slot = &self.slots[usize::from(replica.0)];
        // A replica that offers nothing takes no reads, whatever it has.
        if slot.applied().is_some_and(|(known, has)| known == incarnation && has < applied) {
            store(&slot.applied, applied.0 + 1);
        }
    }

    /// A replica takes no reads until it offers something again.
    pub(super) fn withdraw(&self, replica: ReplicaId) {
        self.slots[usize::from(replica.0)].offer(None);
    }

    /// The same of all.
    pub(super) fn withdraw_all(&self) {
        self.slots.iter().for_each(|slot| slot.offer(None));
    }

    /// Another link begins: the reads before it were told on the former one.
    pub(super) fn count_anew(&self) {
        self.slots.iter().for_each(|slot| slot.reads.store(0, Ordering::Relaxed));
    }

    /// Tells the core what sessions have placed, here and at other nodes.
    pub(super) fn tell(&self, elsewhere: &[Outside], core: &mut Cluster) {
        for (number, slot) in (0..).zip(self.used()) {
            let elsewhere = elsewhere.get(usize::from(number)).copied().unwrap_or_default();
            core.note_outside(ReplicaId(number), slot.outside().plus(elsewhere));
        }
    }

    /// What sessions of this node have placed.
    pub(super) fn outside(&self) -> Vec<Outside> {
        self.used().iter().map(Slot::outside).collect()
    }
}

/// Most events change nothing of a replica, so most calls only read.
fn store(at: &AtomicU64, value: u64) {
    if at.load(Ordering::Relaxed) != value {
        at.store(value, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: ReplicaId = ReplicaId(1);

    fn offer(incarnation: u64, applied: u64, load_us: u64) -> Offer {
        Offer { incarnation: Incarnation(incarnation), applied: Version(applied), load_us }
    }

    fn fresh(replica: u16, incarnation: u64, applied: u64) -> FreshReplica {
        let (incarnation, applied) = (Incarnation(incarnation), Version(applied));
        FreshReplica { replica: ReplicaId(replica), incarnation, applied }
    }

    /// Replica 0 and replica 1, which offer this.
    fn offered(offers: [Option<Offer>; 2]) -> CurrentReplicas {
        let replicas = CurrentReplicas::default();
        replicas.used.store(offers.len(), Ordering::Relaxed);
        for (slot, offer) in replicas.slots.iter().zip(offers) {
            slot.offer(offer);
        }
        replicas
    }

    #[test]
    fn a_read_stays_only_where_every_durable_version_is() {
        let replicas = offered([None, Some(offer(3, 7, 0))]);
        assert_eq!(replicas.stay(HERE, Version(7), 10), Some(fresh(1, 3, 7)));
        assert_eq!(replicas.stay(HERE, Version(8), 10), None, "version 8 is missing");
        assert_eq!(replicas.stay(ReplicaId(0), Version(7), 10), None, "it offers nothing");
        replicas.slots[1].offer(None);
        assert_eq!(replicas.stay(HERE, Version(7), 10), None, "it was lost");
    }

    #[test]
    fn an_empty_log_is_complete_at_a_new_replica() {
        let replicas = offered([None, Some(offer(1, 0, 0))]);
        assert_eq!(replicas.stay(HERE, Version(0), 10), Some(fresh(1, 1, 0)));
    }

    #[test]
    fn a_session_goes_where_the_core_says_when_others_are_freer_and_once_in_many_reads() {
        let replicas = offered([Some(offer(1, 7, 0)), Some(offer(3, 7, 5_000))]);
        assert_eq!(replicas.stay(HERE, Version(7), 10), None, "replica 0 is idle");
        replicas.begins(ReplicaId(0), 5_000);
        assert!(replicas.stay(HERE, Version(7), 10).is_some(), "both are busy");
        replicas.ends(ReplicaId(0), 5_000);
        assert_eq!(replicas.stay(HERE, Version(7), 10), None);
        let replicas = offered([None, Some(offer(3, 7, 0))]);
        let asked = (0..10 * STAYS).filter(|_| replicas.stay(HERE, Version(7), 10).is_none());
        assert_eq!(asked.count(), 10);
    }

    #[test]
    fn without_asking_a_session_stays_and_goes_to_the_best_in_its_turn_or_when_it_is_freer() {
        let replicas = offered([Some(offer(1, 7, 0)), Some(offer(3, 7, 0))]);
        let chosen: Vec<_> =
            (0..STAYS * 4).map(|_| replicas.choose(Some(HERE), Version(7), 10).unwrap()).collect();
        let elsewhere = chosen.iter().filter(|found| found.replica != HERE).count();
        assert_eq!(elsewhere, 2, "of equals each has its turn");
        assert_eq!(replicas.choose(Some(HERE), Version(8), 10), None, "version 8 is missing");
        assert!(replicas.choose(None, Version(7), 10).is_some(), "the first read of a session");
        replicas.begins(HERE, 5_000);
        assert_eq!(replicas.choose(Some(HERE), Version(7), 10), Some(fresh(0, 1, 7)), "replica 0 is freer");
        replicas.withdraw(ReplicaId(0));
        assert_eq!(replicas.choose(Some(HERE), Version(7), 10), Some(fresh(1, 3, 7)));
    }

    #[test]
    fn a_node_learns_from_statements_what_a_replica_has_in_this_incarnation() {
        let replicas = offered([None, Some(offer(3, 7, 0))]);
        replicas.learn(HERE, Incarnation(3), Version(9));
        replicas.learn(HERE, Incarnation(3), Version(8));
        assert_eq!(replicas.choose(Some(HERE), Version(9), 10), Some(fresh(1, 3, 9)));
        replicas.learn(HERE, Incarnation(4), Version(12));
        assert_eq!(
            replicas.choose(Some(HERE), Version(12), 10),
            None,
            "it is not known yet to take reads again"
        );
        replicas.learn(ReplicaId(0), Incarnation(0), Version(12));
        assert_eq!(replicas.choose(Some(HERE), Version(12), 10), None, "replica 0 takes none");
        replicas.withdraw_all();
        assert_eq!(replicas.choose(Some(HERE), Version(0), 10), None);
    }

    #[test]
    fn reads_are_told_once_though_the_link_breaks_while_they_run() {
        let replicas = offered([None, Some(offer(3, 7, 0))]);
        replicas.begins(HERE, 10);
        replicas.count_anew();
        let Outside { reads, running, .. } = replicas.outside()[1];
        assert_eq!((reads, running), (0, 1));
    }

    #[test]
    fn a_version_never_goes_with_the_incarnation_of_another_one() {
        // An odd incarnation has version 1000, an even one has nothing.
        let slot = Slot::default();
        let has = |incarnation: u64| incarnation % 2 * 1_000;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for incarnation in 1..200_000 {
                    slot.offer(Some(offer(incarnation, has(incarnation), 0)));
                }
            });
            while !writer.is_finished() {
                if let Some((Incarnation(incarnation), Version(applied))) = slot.applied() {
                    assert_eq!(applied, has(incarnation), "of incarnation {incarnation}");
                }
            }
        });
    }
}
