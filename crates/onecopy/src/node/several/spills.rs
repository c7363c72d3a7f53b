//! Where sessions of one of several nodes put rows that are too many for a record: into the leader's log, which is in this process, or at
//! the other end of the link.
//!
//! Invariant: a transaction keeps all its rows with one leader, because it ends with the term.

use std::io;
use std::sync::{Arc, OnceLock, Weak};

use cluster::ids::Identity;
use cluster::record::{Chunk, Record};
use commitlog::{BoxFuture, LogError, SpillReader, SpillStore, SpillWriter};

use crate::coordinator::node_link::SpillPart;
use crate::coordinator::{Coordinator, Leading};

/// A longer chunk does not fit into a message. Rows are cut into shorter ones, so one row is that long.
const CHUNK_BYTES_MAX: usize = 48 << 20;

/// The rows of the leader's log.
#[derive(Debug)]
pub(super) struct LeaderSpills {
    leading: Weak<Leading>,
    coordinator: OnceLock<Weak<Coordinator>>,
}

impl LeaderSpills {
    pub(super) fn new(leading: &Arc<Leading>) -> Self {
        Self { leading: Arc::downgrade(leading), coordinator: OnceLock::new() }
    }

    /// Reaches leaders of other nodes by this coordinator.
    pub(super) fn reach_by(&self, coordinator: &Arc<Coordinator>) {
        let is_first = self.coordinator.set(Arc::downgrade(coordinator)).is_ok();
        debug_assert!(is_first, "a node has one coordinator of sessions");
    }

    /// The store of the leader in this process, if there is one.
    fn here(&self) -> Option<Arc<dyn SpillStore>> {
        self.leading.upgrade()?.get().map(|leader| leader.log.spills())
    }

    fn there(&self) -> io::Result<Arc<Coordinator>> {
        let coordinator = self.coordinator.get().and_then(Weak::upgrade);
        coordinator.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl SpillStore for LeaderSpills {
    fn create(&self, identity: Identity) -> BoxFuture<'_, io::Result<Box<dyn SpillWriter>>> {
        Box::pin(async move {
            match self.here() {
                Some(store) => store.create(identity).await,
                None => Ok(Box::new(LinkedWriter { coordinator: self.there()?, identity, is_open: true })
                    as Box<dyn SpillWriter>),
            }
        })
    }

    fn remove(&self, identity: Identity) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            match self.here() {
                Some(store) => store.remove(identity).await,
                None => self.there()?.core.spill(identity, SpillPart::Remove).await,
            }
        })
    }

    fn open(&self, record: Arc<Record>) -> BoxFuture<'_, Result<Box<dyn SpillReader>, LogError>> {
        Box::pin(async move {
            // Only agents read rows, and they are with the leader.
            let store = self.here();
            let store =
                store.ok_or_else(|| LogError::Interrupted { source: io::ErrorKind::NotFound.into() })?;
            store.open(record).await
        })
    }
}

/// Sends the rows of one transaction to the leader.
#[derive(Debug)]
struct LinkedWriter {
    coordinator: Arc<Coordinator>,
    identity: Identity,
    /// Rows were sent that belong to no record yet.
    is_open: bool,
}

impl SpillWriter for LinkedWriter {
    fn append(&mut self, chunk: Chunk) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            if chunk.bytes().len() > CHUNK_BYTES_MAX {
                return Err(io::ErrorKind::Unsupported.into());
            }
            self.coordinator.core.spill(self.identity, SpillPart::Chunk(chunk)).await
        })
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(async move {
            self.coordinator.core.spill(self.identity, SpillPart::Finish).await?;
            self.is_open = false;
            Ok(())
        })
    }
}

impl Drop for LinkedWriter {
    fn drop(&mut self) {
        if self.is_open
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (coordinator, identity) = (Arc::clone(&self.coordinator), self.identity);
            // The leader deletes what is left when the link ends, too.
            runtime.spawn(async move { drop(coordinator.core.spill(identity, SpillPart::Remove).await) });
        }
    }
}
