//! What a node needs of its log, whatever keeps it.
//!
//! The files of this crate are one engine ([`crate::FileLog`]). Every engine has to pass the tests in `conformance.rs`.
//!
//! Promises of every engine:
//!
//! - Records have dense versions. Readers see them in version order, and only those that are durable.
//! - A version that was reported durable is found again whenever the log is opened, until it is trimmed.
//! - [`LogEngine::append`] never waits. What may wait for a disk or a network is a future.
//! - A failure is final: after [`Notices::failed`] nothing more is reported durable.
//!
//! Not here: how a log is opened, which differs from engine to engine, and what records mean.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use cluster::ids::{Epoch, Identity, Version};
use cluster::record::Record;
use serde::{Deserialize, Serialize};

use crate::error::{LogError, LogFailure};
use crate::spill::SpillStore;

/// A future that a caller can keep, whatever engine made it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A report of an opened log has so many of the newest identities. Replicas that are up ask for no older ones, bursts
/// included; those stand in the records.
pub const NEWEST_IDENTITIES: usize = 100_000;

/// An open log. Its futures run on a tokio runtime; to drop one early does no harm.
pub trait LogEngine: Send + Sync {
    /// Begins to write; to be called once, before the first append.
    fn start(&self, notices: Notices) -> Result<(), LogError>;

    /// Queues a record; never waits. The caller holds the lock under which it chose the version.
    ///
    /// Ordering duty: records come densely, in version order. After the log has failed, or was closed, the record is
    /// dropped: it is not durable and never will be, and `failed` has said so.
    fn append(&self, record: Arc<Record>);

    /// Whether the queue is below its limits; the caller asks before it lets a transaction begin to commit.
    fn has_room(&self) -> bool;

    /// Why the log takes no new records at present. What was appended already is still written when the reason is gone.
    fn refusal(&self) -> Option<LogRefusal>;

    /// The highest durable version.
    fn durable(&self) -> Version;

    /// The lowest version that can be read.
    fn first_retained(&self) -> Version;

    /// Durable records from `version` on: at most `max_bytes` of them, but at least one if there is one.
    fn read_from(
        &self,
        version: Version,
        max_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<Arc<Record>>, LogError>>;

    /// The rows that are too many for records.
    fn spills(&self) -> Arc<dyn SpillStore>;

    /// Deletes records that are not needed any more: those up to `upto`, as far as the engine can delete them apart from
    /// others. Returns the lowest version after that.
    fn trim(&self, upto: Version) -> BoxFuture<'_, Result<Version, LogError>> {
        self.shrink(upto, 0)
    }

    /// As [`LogEngine::trim`], but only until the log takes no more than `max_bytes`.
    fn shrink(&self, upto: Version, max_bytes: u64) -> BoxFuture<'_, Result<Version, LogError>>;

    /// How much of the disk the log takes.
    fn bytes(&self) -> u64;

    /// The newest durable records, which are kept in memory.
    fn in_memory(&self) -> InMemory;

    /// Just before the last call was sent whose answer has shown that no other node leads: a term lease counts from here. `None`
    /// if no other node can take the log over.
    fn confirmed_at(&self) -> Option<Instant> {
        None
    }

    /// Writes what is queued, and stops. Waits for that, so it must not be called from a notice.
    fn close(&self);
}

/// The calls by which an engine reports; it makes them without holding any lock.
pub struct Notices {
    /// Everything up to this version is durable.
    pub durable: Box<dyn Fn(Version) + Send>,
    /// The log has failed for good: nothing more will be reported durable until it was opened anew.
    pub failed: Box<dyn Fn(LogFailure) + Send>,
}

/// Why a log takes no new records at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LogRefusal {
    /// The disk of the log is full.
    DiskFull,
    /// Etcd has no majority, or none that this node reaches.
    NoMajority,
    /// Etcd is about to reach its quota, or has reached it.
    QuotaReached,
}

/// What a log keeps in memory for readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InMemory {
    /// How many records.
    pub records: usize,
    /// Their bytes.
    pub bytes: usize,
    /// At most so many bytes.
    pub limit_bytes: usize,
}

/// What an opened log holds.
#[derive(Debug)]
pub struct Recovered {
    /// The last version; all up to it are durable.
    pub last: Version,
    /// The highest epoch that was ever written.
    pub last_epoch: Epoch,
    /// The identities of the newest records, in version order; at most [`NEWEST_IDENTITIES`].
    pub identities: VecDeque<(Identity, Version)>,
    /// There was no log, and one was begun: wrong, if a replica has applied anything.
    pub begun: bool,
    /// A crash had left an incomplete write at the end. It was cut off; nothing in it had been acknowledged.
    pub was_torn: bool,
}
