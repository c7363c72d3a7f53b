//! Spilled rows: the rows of a transaction that is too large for memory, kept outside of its record.
//!
//! A transaction's first items leave memory as chunks ([`cluster::record::Chunk`]), one after the other. The transaction's
//! identity names them, so the record need not say where they are. They are durable before the record is appended, belong to
//! it from then on, and are kept until it is trimmed. Rows without a record are the leftover of a transaction that did
//! not commit. They are deleted when the transaction ends, or when the log is opened.
//!
//! Invariant: where a record is in the log, its spilled rows are complete. If they are missing or damaged, the log is
//! damaged; a crash cannot be the cause.

use std::fmt;
use std::io;
use std::sync::Arc;

use cluster::ids::Identity;
use cluster::record::{Chunk, Record};

use crate::engine::BoxFuture;
use crate::error::LogError;

/// The place of spilled rows.
pub trait SpillStore: fmt::Debug + Send + Sync {
    /// Begins to keep rows of a transaction.
    fn create(&self, identity: Identity) -> BoxFuture<'_, io::Result<Box<dyn SpillWriter>>>;

    /// Deletes the rows of a transaction whose record is not in the log.
    fn remove(&self, identity: Identity) -> BoxFuture<'_, io::Result<()>>;

    /// Opens the rows of a record.
    fn open(&self, record: Arc<Record>) -> BoxFuture<'_, Result<Box<dyn SpillReader>, LogError>>;
}

/// Takes the rows of one transaction. When it is dropped before [`SpillWriter::finish`], or after an error, they are deleted.
pub trait SpillWriter: fmt::Debug + Send {
    /// Adds a chunk. It takes as long as the disk takes, so rows are taken from a server no faster than they can be kept.
    /// An error of the kind `StorageFull` says that the disk has no room.
    fn append(&mut self, chunk: Chunk) -> BoxFuture<'_, io::Result<()>>;

    /// Makes the rows durable. From then on they belong to the record: the caller appends it, or removes them.
    fn finish(self: Box<Self>) -> BoxFuture<'static, io::Result<()>>;
}

/// Reads the rows of one record, chunk by chunk.
pub trait SpillReader: fmt::Debug + Send {
    /// The next chunk without what was undone; `None` after the last.
    fn next_chunk(&mut self) -> BoxFuture<'_, Result<Option<Chunk>, LogError>>;
}
