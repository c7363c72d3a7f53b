//! One database that the cluster serves: its number in records, its catalogue, object ids, sequences and workload.
//!
//! A cluster serves one database today. Everything that depends on the database asks this handle, so that several
//! databases become several handles.

pub(crate) mod oid_map;
pub(crate) mod placement_advice;
mod table_sizes;
pub(crate) mod workload_stats;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use cluster::ids::{ClusterId, Identity, ReplicaId, ServiceId, Version};
use cluster::parts::sequences::Sequences;
use cluster::record::Header;
use sql::Catalogue;

use crate::backend::{Address, Served};
use oid_map::OidMap;
use table_sizes::TableSizes;
use workload_stats::WorkloadStats;

/// The number of the one service that a database has.
const ONLY_SERVICE: ServiceId = ServiceId(0);

#[derive(Debug)]
pub(crate) struct Database {
    service: ServiceId,
    /// The database at each server, and the account that Onecopy uses there.
    pub(crate) served: Served,
    /// Statistics of clients' statements and transactions.
    pub(crate) workload: WorkloadStats,
    /// Sizes of its tables, if the protocol asks for them.
    pub(crate) table_sizes: TableSizes,
    catalogue: RwLock<Arc<Catalogue>>,
    sequences: Mutex<Sequences>,
    oid_maps: RwLock<OidMaps>,
    /// The edition of `oid_maps`, readable without its lock.
    oid_edition: AtomicU64,
}

/// The anchor's object ids, for each other replica.
#[derive(Debug, Default)]
struct OidMaps {
    edition: u64,
    of: BTreeMap<ReplicaId, Arc<OidMap>>,
}

impl Database {
    /// A database whose catalogue is not known yet.
    pub(crate) fn new(served: Served) -> Arc<Self> {
        let unread = sql::Contents { database: served.id, ..sql::Contents::default() };
        Arc::new(Self {
            service: ONLY_SERVICE,
            served,
            workload: WorkloadStats::default(),
            table_sizes: TableSizes::default(),
            catalogue: RwLock::new(Arc::new(Catalogue::new(unread))),
            sequences: Mutex::default(),
            oid_maps: RwLock::default(),
            oid_edition: AtomicU64::new(0),
        })
    }

    /// The header of a record of this database.
    pub(crate) fn header(&self, cluster: ClusterId, identity: Identity, version: Version) -> Header {
        let (database, service) = (self.served.id, self.service);
        Header { cluster, identity, first: version, last: version, database, service }
    }

    /// The catalogue that statements are classified with.
    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.catalogue.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a catalogue unless the present one is newer. A catalogue that was requested earlier may arrive later.
    pub(crate) fn take_catalogue(&self, catalogue: Catalogue) {
        let mut present = self.catalogue.write().unwrap_or_else(PoisonError::into_inner);
        if catalogue.generation() >= present.generation() {
            *present = Arc::new(catalogue);
        }
    }

    /// The marks of sequences, and the leases of replicas.
    pub(crate) fn sequences(&self) -> MutexGuard<'_, Sequences> {
        self.sequences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A term begins. Marks that a former term of this process had appended may not be in the log, so they count no more; the replicas'
    /// marks are read from the log anew.
    pub(crate) fn begin_term(&self) {
        *self.sequences() = Sequences::default();
    }

    /// The edition of the object ids, and the map from a replica's to the anchor's; the anchor itself has none.
    pub(crate) fn oid_map(&self, replica: ReplicaId) -> (u64, Option<Arc<OidMap>>) {
        let maps = self.oid_maps.read().unwrap_or_else(PoisonError::into_inner);
        (maps.edition, maps.of.get(&replica).cloned())
    }

    /// The present edition of the object ids.
    pub(crate) fn oid_edition(&self) -> u64 {
        self.oid_edition.load(Ordering::Acquire)
    }

    /// Forgets all object ids, since a server came up anew or another replica is the anchor. `others` are the members
    /// beside the anchor.
    pub(crate) fn forget_oids<'a>(
        &self,
        anchor: &Address,
        others: impl Iterator<Item = (ReplicaId, &'a Address)>,
    ) {
        let unknown =
            |address: &Address| Arc::new(OidMap::new(address.clone(), anchor.clone(), self.served.clone()));
        let mut maps = self.oid_maps.write().unwrap_or_else(PoisonError::into_inner);
        let edition = self.oid_edition.fetch_add(1, Ordering::AcqRel) + 1;
        let of = others.map(|(replica, address)| (replica, unknown(address))).collect();
        *maps = OidMaps { edition, of };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_a_former_term_covers_nothing_in_the_next_one() {
        let database = Database::new(Served::of_new_servers());
        database.sequences().note(Version(7), cluster::record::Sequence::default());
        assert_eq!(database.sequences().all_marks().len(), 1);
        database.begin_term();
        assert!(database.sequences().all_marks().is_empty(), "its record may not be in the log");
    }
}
