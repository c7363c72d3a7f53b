//! How one session shares connections: the pools, the kind of connections that fit it, and the permits that it holds.
//!
//! Invariant: a permit is held for a replica where the session has no connection. Opening the connection consumes it.

use std::sync::Arc;

use cluster::ids::{ReplicaId, SessionId};

use super::kind::Kind;
use super::permit::Permit;
use super::pools::Pools;
use super::request::{Requester, Thread};
use super::shared_connection::SharedConnection;
use crate::client::settings::Settings;
use crate::error::{Fault, broken};
use crate::security::scram::Secret;

/// How a session shares its connections with others.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub(super) pools: Arc<Pools>,
    pub(super) kind: Arc<Kind>,
    /// The thread of the session.
    pub(super) thread: Thread,
    /// Connections that it may open.
    permits: Vec<(ReplicaId, Permit)>,
}

impl Sharing {
    /// None if sessions do not share connections.
    pub(crate) fn of(
        pools: &Arc<Pools>,
        thread: Thread,
        settings: &Settings,
        secret: &Secret,
    ) -> Option<Self> {
        pools.pooling.is_shared.then(|| Self {
            kind: pools.kind(settings, secret),
            pools: Arc::clone(pools),
            thread,
            permits: Vec::new(),
        })
    }

    /// Takes the permit for a connection that is about to be opened.
    pub(super) fn claimed(
        &mut self,
        replica: ReplicaId,
        session: SessionId,
    ) -> Result<SharedConnection, Fault> {
        let claimed = self.permits.iter().position(|(at, _)| *at == replica);
        let claimed = claimed.ok_or_else(|| broken("a connection was not claimed before it was opened"))?;
        let (_, permit) = self.permits.swap_remove(claimed);
        let epoch = self.pools.epoch(self.kind.role());
        let owner = Requester { session, thread: self.thread };
        Ok(SharedConnection::new(Arc::clone(&self.kind), epoch, permit, owner))
    }

    /// Keeps a permit for a connection to the replica.
    pub(super) fn add_permit(&mut self, replica: ReplicaId, permit: Permit) {
        self.permits.push((replica, permit));
    }

    /// Whether it may open a connection to the replica.
    pub(super) fn has_permit(&self, replica: ReplicaId) -> bool {
        self.permits.iter().any(|(at, _)| *at == replica)
    }

    /// Whether it may open a connection to another replica.
    pub(super) fn has_other_permits(&self, replica: ReplicaId) -> bool {
        self.permits.iter().any(|(at, _)| *at != replica)
    }

    /// Returns permits for other replicas than this to the pools.
    pub(super) fn drop_permits(&mut self, keep: Option<ReplicaId>) {
        self.permits.retain(|(at, _)| keep == Some(*at));
    }
}
