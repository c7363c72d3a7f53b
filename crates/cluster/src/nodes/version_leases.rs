//! Version leases: a node that follows places reads without asking the leader, and misses nothing (design 1.4).
//!
//! ```text
//! node                                        leader
//!  request, sent at 10.000 by its clock  ->
//!                                        <-   Granted { for what is left of the term lease: 0.450, noted: 7 }
//!  reads until 10.450 need version 7          assigns version 8, appends it
//!                                        <-   Assigned { 8 }
//!  reads need version 8, Noted { 8 }     ->
//!                                             version 8 is durable, and noted: clients are answered
//! ```
//!
//! - *No version is answered before it is noted.* [`VersionLeases`] tells the core that a version is durable when it is, and every node whose
//!   lease lives has noted it. A node that does not answer costs the time that is left of its lease.
//! - *No lease outlives the leader's.* It is granted for what is left of the term lease, and counts from when the node has sent its request. So a
//!   successor that outwaits the leader's lease ([`super::Timing::lease_is_over_us`]) has outwaited these.
//! - *A grant brings every version that is assigned*, since none was told to the node while it had no lease.
//!
//! Why a read is fresh: version v was answered before the read began. If the lease of the node lived then, by the leader's clock, v was noted
//! before. If not, the node's lease was over, too; the one under which it reads was granted later, and brought v.
//!
//! Invariant: [`ReadLease`] changes the version before it becomes longer, and a reader looks at the lease first.
//!
//! Not here: whether a replica has the version, and who sends the messages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Rules, Timing};
use crate::ids::{CrewId, Version};
use crate::time::Time;

/// What a leader grants to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Granted {
    /// The lease lasts so long from when the node has sent its request.
    pub lasts_us: u64,
    /// Everything up to this version is assigned.
    pub noted: Version,
}

/// The lease of one node, as the leader knows it.
#[derive(Debug)]
struct Lease {
    /// By the leader's clock it is over then, whatever the node's clock shows.
    until: Time,
    noted: Version,
}

/// The leases that a leader has granted, and the versions that wait for them.
#[derive(Debug)]
pub struct VersionLeases {
    timing: Timing,
    rules: Rules,
    assigned: Version,
    durable: Version,
    /// What the core was told.
    told: Version,
    leases: BTreeMap<CrewId, Lease>,
}

impl VersionLeases {
    /// The leases of a term that begins with this log.
    ///
    /// ```
    /// use cluster::ids::{CrewId, Version};
    /// use cluster::nodes::version_leases::{Granted, VersionLeases};
    /// use cluster::nodes::{Rules, Timing};
    /// use cluster::time::Time;
    ///
    /// let at = |us| Time { us };
    /// let node = CrewId(1);
    /// let mut leases = VersionLeases::new(Timing::default(), Rules::default(), Version(7));
    /// assert_eq!(leases.grant(node, at(500_000), at(50_000)), Some(Granted { lasts_us: 450_000, noted: Version(7) }));
    /// leases.noted(node, Version(7));
    /// assert_eq!(leases.assigned(Version(8), at(60_000)), [node]);
    /// leases.durable(Version(8));
    /// assert_eq!(leases.logged(at(61_000)), None, "the node has not noted it");
    /// leases.noted(node, Version(8));
    /// assert_eq!(leases.logged(at(62_000)), Some(Version(8)));
    /// ```
    pub fn new(timing: Timing, rules: Rules, last: Version) -> Self {
        Self { timing, rules, assigned: last, durable: last, told: last, leases: BTreeMap::new() }
    }

    /// A node asks for a lease, and the term lease ends at the first of these times. `None` if nothing is left of it.
    pub fn grant(&mut self, crew: CrewId, ends: Time, now: Time) -> Option<Granted> {
        let lasts_us = ends.since_us(now);
        if lasts_us == 0 {
            return None;
        }
        let until = now.after_us(self.timing.outwaited_us(lasts_us));
        // Without the rule the leader takes what it has not told for noted.
        let brings = self.rules.grants_bring_versions;
        let (noted, told) =
            if brings { (self.assigned, Version::ZERO) } else { (Version::ZERO, self.assigned) };
        let lease = self.leases.entry(crew).or_insert(Lease { until, noted: told });
        lease.until = lease.until.max(until);
        Some(Granted { lasts_us, noted })
    }

    /// A version is assigned. Returns the nodes that have to note it.
    pub fn assigned(&mut self, version: Version, now: Time) -> Vec<CrewId> {
        self.assigned = version;
        let living = self.leases.iter().filter(|(_, lease)| now < lease.until);
        living.map(|(crew, _)| *crew).collect()
    }

    /// A node has noted everything up to a version.
    pub fn noted(&mut self, crew: CrewId, upto: Version) {
        if let Some(lease) = self.leases.get_mut(&crew) {
            lease.noted = lease.noted.max(upto);
        }
    }

    /// A node has ended its lease itself, and reads by it no more.
    pub fn ended(&mut self, crew: CrewId) {
        self.leases.remove(&crew);
    }

    /// Everything up to a version is durable.
    pub fn durable(&mut self, upto: Version) {
        self.durable = self.durable.max(upto);
    }

    /// Everything up to this version is durable and noted, and the core does not know it yet. A node that is lost keeps its lease until
    /// it is over.
    pub fn logged(&mut self, now: Time) -> Option<Version> {
        self.leases.retain(|_, lease| now < lease.until);
        let noted = self.leases.values().map(|lease| lease.noted).min();
        let noted = noted.filter(|_| self.rules.answered_when_noted);
        let upto = noted.map_or(self.durable, |noted| noted.min(self.durable));
        if upto <= self.told {
            return None;
        }
        self.told = upto;
        Some(upto)
    }

    /// When the first lease is over for which a durable version waits.
    pub fn due(&self) -> Option<Time> {
        if self.told == self.durable {
            return None;
        }
        self.leases.values().filter(|lease| lease.noted < self.durable).map(|lease| lease.until).min()
    }
}

/// The lease of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadLease {
    until: Time,
    noted: Version,
}

impl ReadLease {
    /// The leader has granted a request that was sent at this time.
    pub fn granted(&mut self, sent: Time, granted: Granted) {
        self.note(granted.noted);
        self.until = self.until.max(sent.after_us(granted.lasts_us));
    }

    /// Everything up to a version is assigned.
    pub fn note(&mut self, upto: Version) {
        self.noted = self.noted.max(upto);
    }

    /// The version that a replica must have for any read that begins now; `None` if the leader has to be asked.
    pub fn needs(&self, now: Time) -> Option<Version> {
        (now < self.until).then_some(self.noted)
    }

    /// When the lease is over, unless it is renewed.
    pub fn until(&self) -> Time {
        self.until
    }

    /// The node follows no leader, or another one.
    pub fn end(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: CrewId = CrewId(1);
    const B: CrewId = CrewId(2);
    const END: Time = Time { us: 500_000 };

    fn leases() -> VersionLeases {
        VersionLeases::new(Timing::default(), Rules::default(), Version(7))
    }

    fn at(us: u64) -> Time {
        Time { us }
    }

    #[test]
    fn nothing_waits_without_a_lease() {
        let mut leases = leases();
        assert!(leases.assigned(Version(8), at(0)).is_empty());
        leases.durable(Version(8));
        assert_eq!((leases.logged(at(0)), leases.logged(at(0))), (Some(Version(8)), None));
    }

    #[test]
    fn each_living_lease_is_waited_for() {
        let mut leases = leases();
        for crew in [A, B] {
            leases.grant(crew, END, at(0)).unwrap();
            leases.noted(crew, Version(7));
        }
        assert_eq!(leases.assigned(Version(8), at(10)), [A, B]);
        assert_eq!(leases.assigned(Version(9), at(10)), [A, B]);
        leases.noted(A, Version(9));
        leases.durable(Version(9));
        assert_eq!(leases.logged(at(20)), None);
        leases.noted(B, Version(8));
        assert_eq!(leases.logged(at(30)), Some(Version(8)));
        leases.noted(B, Version(9));
        assert_eq!(leases.logged(at(30)), Some(Version(9)));
    }

    #[test]
    fn a_node_that_says_nothing_is_outwaited() {
        let mut leases = leases();
        leases.grant(A, END, at(100_000)).unwrap();
        leases.assigned(Version(8), at(100_000));
        leases.durable(Version(8));
        // 400 ms by a clock that is 5 % slow, seen by one that is 5 % fast.
        let over = leases.due().unwrap();
        assert_eq!(over, at(100_000 + 400_000 * 105 / 95 + 1));
        assert_eq!(leases.logged(at(over.us - 1)), None);
        assert_eq!(leases.logged(over), Some(Version(8)));
        assert_eq!(leases.due(), None);
        assert!(leases.assigned(Version(9), over).is_empty());
    }

    #[test]
    fn a_node_that_has_ended_its_lease_is_not_waited_for() {
        let mut leases = leases();
        for crew in [A, B] {
            leases.grant(crew, END, at(0)).unwrap();
        }
        leases.assigned(Version(8), at(10));
        leases.durable(Version(8));
        leases.noted(B, Version(8));
        assert_eq!(leases.logged(at(20)), None);
        leases.ended(A);
        assert_eq!(leases.logged(at(20)), Some(Version(8)));
        assert_eq!(leases.assigned(Version(9), at(30)), [B]);
    }

    #[test]
    fn a_grant_brings_what_is_assigned_and_ends_with_the_term_lease() {
        let mut leases = leases();
        leases.assigned(Version(9), at(0));
        let granted = leases.grant(A, END, at(499_999)).unwrap();
        assert_eq!(granted, Granted { lasts_us: 1, noted: Version(9) });
        assert_eq!(leases.grant(A, END, END), None);
    }

    #[test]
    fn a_node_reads_until_its_lease_is_over() {
        let mut lease = ReadLease::default();
        assert_eq!(lease.needs(at(0)), None);
        lease.granted(at(1_000), Granted { lasts_us: 500, noted: Version(7) });
        lease.note(Version(8));
        lease.granted(at(900), Granted { lasts_us: 500, noted: Version(7) });
        assert_eq!((lease.needs(at(1_499)), lease.needs(at(1_500))), (Some(Version(8)), None));
        lease.granted(at(1_400), Granted { lasts_us: 500, noted: Version(9) });
        lease.end();
        assert_eq!(lease.needs(at(1_450)), None);
    }
}
