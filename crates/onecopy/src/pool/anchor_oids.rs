//! The anchor's OIDs for the objects of one server, as far as its connection has needed them ([`crate::database::oid_map`]).

use std::sync::Arc;

use cluster::ids::ReplicaId;

use crate::coordinator::Coordinator;
use crate::database::oid_map::{OidMap, Pairs};

/// The anchor's OIDs for the objects of a server.
#[derive(Debug)]
pub(crate) struct AnchorOids {
    /// The edition of the maps that this one is of.
    edition: u64,
    /// None at the anchor itself.
    pub(crate) names: Option<ServerNames>,
}

/// The anchor's OIDs for the objects of a server other than the anchor.
#[derive(Debug)]
pub(crate) struct ServerNames {
    /// The map that unknown OIDs are looked up in.
    pub(crate) source: Arc<OidMap>,
    /// The pairs known so far.
    pub(crate) pairs: Arc<Pairs>,
}

impl AnchorOids {
    pub(super) fn of(coordinator: &Coordinator, replica: ReplicaId) -> Self {
        let (edition, source) = coordinator.database.oid_map(replica);
        Self { edition, names: source.map(|source| ServerNames { pairs: source.pairs(), source }) }
    }

    /// Takes the present maps, if they are others than before.
    pub(super) fn refresh(&mut self, coordinator: &Coordinator, replica: ReplicaId) {
        if self.edition != coordinator.database.oid_edition() {
            *self = Self::of(coordinator, replica);
        }
    }
}
