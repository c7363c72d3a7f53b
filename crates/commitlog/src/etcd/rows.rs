//! Spilled rows on etcd: beside the file of this node, so that other nodes get them.
//!
//! A chunk goes to the file and, in pieces of a megabyte, to keys under the transaction's identity. Both are complete before the
//! record is appended. They are read from the file: a node that gets a record from etcd gets its rows before.
//!
//! Invariant: where a record is on etcd, its pieces are. Pieces without a record are those of an open transaction, or a leftover that
//! the next term deletes.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cluster::ids::Identity;
use cluster::record::{Chunk, Record};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::sequencer::VALUE_BYTES;
use super::shared::Shared;
use super::store::{Compare, Operation, StoreError, Txn};
use crate::engine::{BoxFuture, LogEngine};
use crate::error::LogError;
use crate::spill::{SpillReader, SpillStore, SpillWriter};

/// How long one piece may take before the transaction fails.
const PATIENCE: Duration = Duration::from_secs(10);
const CALL_DEADLINE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// The place of spilled rows of a node that leads.
pub(super) struct EtcdRows {
    shared: Arc<Shared>,
    local: Arc<dyn SpillStore>,
}

impl EtcdRows {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let local = shared.copy.file.spills();
        Self { shared, local }
    }
}

impl std::fmt::Debug for EtcdRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdRows").field("local", &self.local).finish_non_exhaustive()
    }
}

impl SpillStore for EtcdRows {
    fn create(&self, identity: Identity) -> BoxFuture<'_, io::Result<Box<dyn SpillWriter>>> {
        Box::pin(async move {
            let local = self.local.create(identity).await?;
            let pieces = Pieces { shared: Arc::clone(&self.shared), identity, k: 0, is_complete: false };
            Ok(Box::new(RowsWriter { local: Some(local), pieces: Some(pieces), buffer: Vec::new() })
                as Box<dyn SpillWriter>)
        })
    }

    fn remove(&self, identity: Identity) -> BoxFuture<'_, io::Result<()>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            self.local.remove(identity).await?;
            // What stays is deleted by the next term.
            spawn_blocking(move || delete(&shared, identity)).await?;
            Ok(())
        })
    }

    fn open(&self, record: Arc<Record>) -> BoxFuture<'_, Result<Box<dyn SpillReader>, LogError>> {
        self.local.open(record)
    }
}

struct RowsWriter {
    local: Option<Box<dyn SpillWriter>>,
    /// `None` after an error.
    pieces: Option<Pieces>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for RowsWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowsWriter").field("local", &self.local).finish_non_exhaustive()
    }
}

/// The pieces on etcd. They are deleted on drop, unless they are complete.
struct Pieces {
    shared: Arc<Shared>,
    identity: Identity,
    k: usize,
    is_complete: bool,
}

impl SpillWriter for RowsWriter {
    fn append(&mut self, chunk: Chunk) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.buffer.extend_from_slice(chunk.bytes());
            let mut local = self.local.take().ok_or_else(given_up)?;
            local.append(chunk).await?;
            self.local = Some(local);
            while self.buffer.len() >= VALUE_BYTES {
                let rest = self.buffer.split_off(VALUE_BYTES);
                let piece = std::mem::replace(&mut self.buffer, rest);
                self.pieces = Some(put(self.pieces.take(), piece).await?);
            }
            Ok(())
        })
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(async move {
            let local = self.local.take().ok_or_else(given_up)?;
            if !self.buffer.is_empty() {
                let rest = std::mem::take(&mut self.buffer);
                self.pieces = Some(put(self.pieces.take(), rest).await?);
            }
            let pieces = self.pieces.take().ok_or_else(given_up)?;
            local.finish().await?;
            pieces.complete();
            Ok(())
        })
    }
}

fn given_up() -> io::Error {
    io::Error::other("the rows were given up after an earlier failure")
}

async fn put(pieces: Option<Pieces>, piece: Vec<u8>) -> io::Result<Pieces> {
    let mut pieces = pieces.ok_or_else(given_up)?;
    spawn_blocking(move || pieces.put(piece).map(|()| pieces)).await?
}

impl Pieces {
    fn complete(mut self) {
        self.is_complete = true;
    }

    fn put(&mut self, piece: Vec<u8>) -> io::Result<()> {
        let etcd = &self.shared.etcd;
        let txn = Txn {
            compares: vec![Compare::WrittenAt(etcd.keys.lead(), self.shared.claim.revision)],
            then: vec![Operation::Put(etcd.keys.row(self.identity, self.k), piece)],
            otherwise: Vec::new(),
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            match etcd.store.txn(&txn, CALL_DEADLINE) {
                Ok(answer) if answer.succeeded => {
                    self.k += 1;
                    return Ok(());
                }
                Ok(_) => return Err(io::Error::other("another node has taken over the log")),
                Err(StoreError::NoSpace) => return Err(io::ErrorKind::StorageFull.into()),
                Err(error) if error.is_ambiguous() && Instant::now() < deadline => thread::sleep(PAUSE),
                Err(error) => return Err(io::Error::new(io::ErrorKind::TimedOut, error)),
            }
        }
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if self.is_complete || self.k == 0 {
            return;
        }
        let (shared, identity) = (Arc::clone(&self.shared), self.identity);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || delete(&shared, identity));
        }
    }
}

fn delete(shared: &Shared, identity: Identity) {
    let keys = &shared.etcd.keys;
    let txn = Txn {
        compares: vec![Compare::WrittenAt(keys.lead(), shared.claim.revision)],
        then: vec![Operation::Delete(keys.rows(identity), keys.rows_end(identity))],
        otherwise: Vec::new(),
    };
    if let Err(error) = shared.etcd.store.txn(&txn, CALL_DEADLINE) {
        tracing::debug!(%identity, "spilled rows stay on etcd until the next term: {error}");
    }
}
