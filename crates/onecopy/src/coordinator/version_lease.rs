//! The version lease of a node that follows: which reads it places without asking the leader.
//!
//! [`cluster::nodes::version_leases`] says why such a read is fresh. Here is its cell, which the task of the link writes, and which every
//! read looks at. A read needs a catalogue of the last assigned schema change, too: by an older one it could be taken for a read wrongly.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::ids::Version;
use cluster::nodes::version_leases::{Granted, ReadLease};
use cluster::time::Time;

/// What is behind the lock.
#[derive(Debug)]
struct Leased {
    /// `None` once the node stops.
    lease: Option<ReadLease>,
    /// The last assigned version that may have changed the schema.
    last_ddl: Version,
}

impl Default for Leased {
    fn default() -> Self {
        Self { lease: Some(ReadLease::default()), last_ddl: Version::ZERO }
    }
}

/// The lease of this node.
#[derive(Debug)]
pub(crate) struct VersionLease {
    /// When its clock began.
    start: Instant,
    leased: Mutex<Leased>,
}

impl VersionLease {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), leased: Mutex::default() }
    }

    /// The time of a request that is sent now; `None` if the node stops.
    pub(super) fn request(&self) -> Option<Time> {
        self.leased().lease.map(|_| self.now())
    }

    fn now(&self) -> Time {
        Time { us: u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX) }
    }

    /// The version that a replica must have for a read with a catalogue of this generation, which begins now; `None` if the leader
    /// has to be asked.
    pub(super) fn needs(&self, generation: Version) -> Option<Version> {
        let leased = self.leased();
        // The read has begun before this looks at the clock.
        leased.lease?.needs(self.now()).filter(|_| generation >= leased.last_ddl)
    }

    /// How long the lease lasts from now on.
    pub(crate) fn left(&self) -> Duration {
        let until = self.leased().lease.unwrap_or_default().until();
        Duration::from_micros(until.since_us(self.now()))
    }

    /// The leader has granted a request that was sent at this time.
    pub(super) fn granted(&self, sent: Time, granted: Granted, last_ddl: Version) {
        let mut leased = self.leased();
        leased.last_ddl = leased.last_ddl.max(last_ddl);
        if let Some(lease) = &mut leased.lease {
            lease.granted(sent, granted);
        }
    }

    /// A version is assigned.
    pub(super) fn note(&self, version: Version, may_change_schema: bool) {
        let mut leased = self.leased();
        if may_change_schema {
            leased.last_ddl = leased.last_ddl.max(version);
        }
        if let Some(lease) = &mut leased.lease {
            lease.note(version);
        }
    }

    /// The node follows no leader, or another one.
    pub(super) fn end(&self) {
        let mut leased = self.leased();
        let lease = leased.lease.map(|_| ReadLease::default());
        *leased = Leased { lease, last_ddl: Version::ZERO };
    }

    /// The node stops: no lease counts any more.
    pub(super) fn close(&self) {
        self.leased().lease = None;
    }

    fn leased(&self) -> MutexGuard<'_, Leased> {
        self.leased.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_needs_a_lease_the_noted_version_and_the_catalogue_of_the_last_schema_change() {
        let lease = VersionLease::new();
        assert_eq!(lease.needs(Version(9)), None, "none was granted");
        let granted = |noted| Granted { lasts_us: 3_600_000_000, noted: Version(noted) };
        lease.granted(lease.now(), granted(7), Version(5));
        assert_eq!(lease.needs(Version(4)), None, "the schema has changed since");
        assert_eq!(lease.needs(Version(5)), Some(Version(7)));
        lease.note(Version(8), false);
        assert_eq!(lease.needs(Version(5)), Some(Version(8)));
        lease.note(Version(9), true);
        assert_eq!(lease.needs(Version(5)), None);
        assert_eq!(lease.needs(Version(9)), Some(Version(9)));
        lease.end();
        assert_eq!(lease.needs(Version(9)), None);
        lease.granted(lease.now(), granted(7), Version(7));
        assert_eq!(lease.needs(Version(7)), Some(Version(7)), "the next leader's log ends earlier");
        assert!(lease.request().is_some());
        lease.close();
        assert_eq!(lease.request(), None);
        lease.granted(lease.now(), granted(7), Version(7));
        assert_eq!(lease.needs(Version(7)), None, "the node stops");
    }
}
