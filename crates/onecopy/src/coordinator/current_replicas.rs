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
//! Invariant: the core stores what a replica has before anyone can learn of it otherwise, and takes it back before the next
//! incarnation is stored. So a pair that is read between two equal incarnations is true. A session uses only connections of that
//! incarnation.
//!
//! Non-goal: the choice between replicas. A session only stays where its last read ran, while that is about as good as the
//! best. The core chooses, and hears of the load here.

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
    /// The same of what sessions have placed there.
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

    fn outside(&self) -> Outside {
        Outside {
            outstanding_us: self.outside_us.load(Ordering::Relaxed),
            running: self.running.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
        }
    }
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
    /// The incarnation of a replica, and what it has, if a read may run there that needs everything up to a version. The session
    /// was there last. It loads the version, and checks its catalogue, before this.
    pub(super) fn stay(
        &self,
        replica: ReplicaId,
        durable: Version,
        cost_us: u32,
    ) -> Option<(Incarnation, Version)> {
        let slot = &self.slots[usize::from(replica.0)];
        let found = slot.applied().filter(|(_, applied)| *applied >= durable)?;
        let has_turn = slot.asked.fetch_add(1, Ordering::Relaxed) % STAYS == STAYS - 1;
        (!has_turn && may_stay(slot.wait_us(), self.least_wait_us(), cost_us)).then_some(found)
    }

    fn least_wait_us(&self) -> u64 {
        let slots = &self.slots[..self.used.load(Ordering::Relaxed)];
        let offered = slots.iter().filter(|slot| slot.applied.load(Ordering::Relaxed) != NOTHING);
        offered.map(Slot::wait_us).min().unwrap_or(0)
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

    /// Tells the core what sessions have placed.
    pub(super) fn tell(&self, core: &mut Cluster) {
        for (number, slot) in (0..).zip(&self.slots[..self.used.load(Ordering::Relaxed)]) {
            core.note_outside(ReplicaId(number), slot.outside());
        }
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
        assert_eq!(replicas.stay(HERE, Version(7), 10), Some((Incarnation(3), Version(7))));
        assert_eq!(replicas.stay(HERE, Version(8), 10), None, "version 8 is missing");
        assert_eq!(replicas.stay(ReplicaId(0), Version(7), 10), None, "it offers nothing");
        replicas.slots[1].offer(None);
        assert_eq!(replicas.stay(HERE, Version(7), 10), None, "it was lost");
    }

    #[test]
    fn an_empty_log_is_complete_at_a_new_replica() {
        let replicas = offered([None, Some(offer(1, 0, 0))]);
        assert_eq!(replicas.stay(HERE, Version(0), 10), Some((Incarnation(1), Version(0))));
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
