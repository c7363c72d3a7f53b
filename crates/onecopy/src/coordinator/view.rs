//! The part of the cluster's state that sessions and agents read without asking the core.
//!
//! The core writes it under its lock, with each event ([`super::core`]). For example, a statement compares the
//! generation of its catalogue with [`View::last_ddl`]: one load, no lock. Each value is at least as new as the last
//! effect that the reader has received, so a schema change whose COMMIT was sent anywhere is in it. A kind of node
//! without a core writes the durable version itself, and has no schema changes to watch.
//!
//! Non-goal: a consistent pair of values. A reader that needs two values of the same moment asks the core.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::Cluster;
use cluster::ids::{ReplicaId, Version};
use cluster::placement::Edition;

use super::current_replicas::{CurrentReplicas, FreshReplica};
use super::version_lease::VersionLease;

/// The anchor and the versions that matter to every node.
#[derive(Debug)]
pub(crate) struct View {
    anchor: AtomicU16,
    durable: AtomicU64,
    last_ddl: AtomicU64,
    is_partial: AtomicBool,
    edition: AtomicU32,
    lease: Lease,
    /// For how long, and from which version on, reads are placed here. `None` if the core is on this node and shows its versions at once.
    pub(crate) version_lease: Option<VersionLease>,
    /// Where sessions may place reads by themselves.
    pub(crate) current_replicas: CurrentReplicas,
}

/// How long statements may run without another confirmation of the term.
#[derive(Debug)]
struct Lease {
    start: Instant,
    /// Counted from the start; the highest number if there is no lease.
    until_us: AtomicU64,
}

impl Default for Lease {
    fn default() -> Self {
        Self { start: Instant::now(), until_us: AtomicU64::new(u64::MAX) }
    }
}

impl View {
    /// At the start of a term, with this last durable version.
    pub(super) fn new(anchor: ReplicaId, durable: Version) -> Self {
        let (anchor, durable) = (AtomicU16::new(anchor.0), AtomicU64::new(durable.0));
        Self {
            anchor,
            durable,
            last_ddl: AtomicU64::new(0),
            is_partial: AtomicBool::new(false),
            edition: AtomicU32::new(0),
            lease: Lease::default(),
            version_lease: None,
            current_replicas: CurrentReplicas::default(),
        }
    }

    /// Of a node whose core is at a leader that is not known yet.
    pub(super) fn following(anchor: ReplicaId) -> Self {
        Self { version_lease: Some(VersionLease::new()), ..Self::new(anchor, Version::ZERO) }
    }

    /// The home of updates that cannot be bounded, and the server of the catalogues.
    pub(crate) fn anchor(&self) -> ReplicaId {
        ReplicaId(self.anchor.load(Ordering::Acquire))
    }

    /// The last version that is durable and that replicas may have.
    pub(crate) fn durable(&self) -> Version {
        Version(self.durable.load(Ordering::Acquire))
    }

    /// The last durable version that may have changed the schema.
    pub(crate) fn last_ddl(&self) -> Version {
        Version(self.last_ddl.load(Ordering::Acquire))
    }

    /// Where a read with a catalogue of this generation may run without asking the core: at this replica, where the session was last, or
    /// at another one if the core is at another node. If nowhere, the core says where.
    pub(crate) fn place(
        &self,
        last: Option<ReplicaId>,
        generation: Version,
        cost_us: u32,
    ) -> Option<FreshReplica> {
        // What is acknowledged before the read was sent is in the version that is loaded first.
        let needs = match &self.version_lease {
            Some(lease) => lease.needs(generation)?,
            None => Some(self.durable()).filter(|_| self.has_lease())?,
        };
        if self.is_outdated(generation) {
            return None;
        }
        match &self.version_lease {
            Some(_) => self.current_replicas.choose(last, needs, cost_us),
            None => self.current_replicas.stay(last?, needs, cost_us),
        }
    }

    /// Whether no other node can have taken the lead: then statements may run and kept answers be given. Always so with a log that no
    /// other node can take over.
    pub(crate) fn has_lease(&self) -> bool {
        let until_us = self.lease.until_us.load(Ordering::Acquire);
        until_us == u64::MAX || self.lease.start.elapsed() < Duration::from_micros(until_us)
    }

    /// How long the term lease lasts from now on; `None` if there is no lease.
    pub(crate) fn lease_left(&self) -> Option<Duration> {
        let until_us = self.lease.until_us.load(Ordering::Acquire);
        let left = Duration::from_micros(until_us).saturating_sub(self.lease.start.elapsed());
        (until_us != u64::MAX).then_some(left)
    }

    /// The term lease lasts until this moment.
    pub(super) fn set_lease(&self, until: Instant) {
        let until_us = until.saturating_duration_since(self.lease.start).as_micros();
        let until_us = u64::try_from(until_us).unwrap_or(u64::MAX - 1);
        self.lease.until_us.store(until_us, Ordering::Release);
    }

    /// Whether some replica holds only a part of the data. Otherwise each holds everything, and the core need not be asked.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial.load(Ordering::Acquire)
    }

    /// The edition of which tables are split ([`cluster::placement`]).
    pub(crate) fn edition(&self) -> Edition {
        Edition(self.edition.load(Ordering::Acquire))
    }

    /// Whether a conclusion from a catalogue of this generation may be out of date. Rows written after a schema change
    /// are captured after it is durable, so for these rows the answer is exact.
    pub(crate) fn is_outdated(&self, generation: Version) -> bool {
        generation < self.last_ddl()
    }

    /// The versions, as the leader shows them.
    pub(super) fn show_versions(&self, durable: Version, last_ddl: Version) {
        raise(&self.last_ddl, last_ddl);
        raise(&self.durable, durable);
    }

    /// Which tables are split, as the leader shows it.
    pub(super) fn show_placement(&self, is_partial: bool, edition: Edition) {
        self.is_partial.store(is_partial, Ordering::Release);
        self.edition.store(edition.0, Ordering::Release);
    }

    pub(super) fn set_anchor(&self, replica: ReplicaId) {
        self.anchor.store(replica.0, Ordering::Release);
    }

    /// The log has every version up to this one on disk. Only a kind of node without a core calls this, before its
    /// scheduler learns of it.
    pub(crate) fn note_durable(&self, upto: Version) {
        raise(&self.durable, upto);
    }

    /// Takes the versions over from the core. Only the holder of its lock may call this.
    pub(super) fn note(&self, core: &Cluster) {
        // A reader that sees a durable version must also see the schema change in it.
        raise(&self.last_ddl, core.last_ddl());
        raise(&self.durable, core.durable());
        self.current_replicas.note(core);
        if self.is_partial.load(Ordering::Relaxed) != core.is_partial() {
            self.is_partial.store(core.is_partial(), Ordering::Release);
        }
        let edition = core.placement().map(|placement| placement.edition().0).unwrap_or_default();
        if self.edition.load(Ordering::Relaxed) != edition {
            self.edition.store(edition, Ordering::Release);
        }
    }
}

/// Most events change no version, so most calls only read.
fn raise(at: &AtomicU64, version: Version) {
    if at.load(Ordering::Relaxed) != version.0 {
        at.store(version.0, Ordering::Release);
    }
}
