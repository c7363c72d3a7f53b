//! The copy: all that etcd has made durable, in files of this node.
//!
//! Etcd keeps a window of the newest batches. The history is here, in the files of [`FileLog`], and readers read from here. What etcd
//! has just acknowledged and the disk has not written yet is kept in memory, so a record can be read as soon as it is
//! reported durable.
//!
//! ```text
//! etcd          log/41 log/44                  a window, trimmed behind what all copies have on their disks
//! in memory                45                  acknowledged, on its way to the disk
//! files     1 2 3 .. 41 42 43 44
//! ```
//!
//! Invariant: the copy never holds a record that is not durable on etcd. So it can be thrown away, and it is never ahead, unless etcd
//! was put back to an older state: then the node does not start.
//!
//! Not here: the reading from etcd ([`super::window`]).

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::ids::{ClusterId, Epoch, Identity, Version};
use cluster::record::Record;

use crate::engine::{LogEngine, NEWEST_IDENTITIES, Notices, Recovered};
use crate::error::{LogError, LogFailure};
use crate::file::{self, FileLog, Origin, Sizes, SpillFolder};

/// How often a thread that waits for the copy looks whether it should stop.
const LOOK: Duration = Duration::from_millis(50);

/// A node's copy of the log.
pub struct LogCopy {
    pub(super) dir: PathBuf,
    pub(super) cluster: ClusterId,
    pub(super) file: FileLog,
    pub(super) spills: SpillFolder,
    sizes: Sizes,
    state: Arc<State>,
    /// No log was here, and none had been anywhere.
    begun: bool,
    was_torn: bool,
}

#[derive(Default)]
struct State {
    inner: Mutex<Inner>,
    /// Something was written, or the writing has failed.
    written: Condvar,
}

type OnFailure = Box<dyn Fn(LogFailure) + Send>;

#[derive(Default)]
struct Inner {
    last: Version,
    last_epoch: Epoch,
    /// Records that the disk does not have yet.
    waiting: VecDeque<Arc<Record>>,
    identities: VecDeque<(Identity, Version)>,
    has_failed: bool,
    failure: Option<LogFailure>,
    on_failure: Option<OnFailure>,
}

impl State {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogCopy {
    /// Opens the copy in this folder, or the log of a node that had no etcd before, or begins one.
    pub fn open(dir: &Path, cluster: ClusterId) -> Result<Self, LogError> {
        Self::open_at(dir, Origin { cluster, first: Version::ZERO.next() }, Sizes::default())
    }

    pub(super) fn open_at(dir: &Path, origin: Origin, sizes: Sizes) -> Result<Self, LogError> {
        let (file, recovered) = FileLog::open_at(dir, origin, sizes)?;
        let cluster = origin.cluster;
        let state = Arc::new(State::default());
        *state.inner() = Inner {
            last: recovered.last,
            last_epoch: recovered.last_epoch,
            identities: recovered.identities,
            ..Inner::default()
        };
        let (durable, failed) = (Arc::clone(&state), Arc::clone(&state));
        file.start(Notices {
            durable: Box::new(move |upto| {
                let mut inner = durable.inner();
                while inner.waiting.front().is_some_and(|record| record.header().last <= upto) {
                    inner.waiting.pop_front();
                }
                durable.written.notify_all();
            }),
            failed: Box::new(move |failure| {
                let mut inner = failed.inner();
                inner.has_failed = true;
                match &inner.on_failure {
                    Some(told) => told(failure),
                    None => inner.failure = Some(failure),
                }
                failed.written.notify_all();
            }),
        })?;
        Ok(Self {
            dir: dir.to_owned(),
            cluster,
            file,
            spills: SpillFolder::new(dir, cluster),
            sizes,
            state,
            begun: recovered.begun,
            was_torn: recovered.was_torn,
        })
    }

    /// Puts the files aside, because what follows them is not on etcd any more, and begins a copy with the version `first`.
    pub(super) fn begin_anew(self, first: Version) -> Result<Self, LogError> {
        let Self { dir, cluster, file, sizes, .. } = self;
        let last = file.durable();
        // Its lock is on the folder.
        file.close();
        drop(file);
        let aside = file::set_aside(&dir, &format!("behind-{last}"))?;
        if last == Version::ZERO {
            // There was nothing in it.
            fs::remove_dir_all(&aside).map_err(|source| LogError::io("delete", &aside, source))?;
        } else {
            tracing::error!(
                from = %dir.display(), to = %aside.display(), %last, %first,
                "the copy of the log was behind what etcd still holds, so its files were moved; \
                 a new copy begins, and replicas that need older versions must be rebuilt"
            );
        }
        Ok(Self::open_at(&dir, Origin { cluster, first }, sizes)?.of_a_known_log())
    }

    /// There was a log already, even if this copy is new.
    pub(super) fn of_a_known_log(mut self) -> Self {
        self.begun = false;
        self
    }

    /// The last version, whether on the disk or in memory.
    pub fn last(&self) -> Version {
        self.state.inner().last
    }

    /// The highest epoch of all records.
    pub fn last_epoch(&self) -> Epoch {
        self.state.inner().last_epoch
    }

    /// The last version on the disk.
    pub fn synced(&self) -> Version {
        self.file.durable()
    }

    /// Adds records that are durable on etcd. They can be read from here on.
    pub(super) fn add(&self, records: Vec<Arc<Record>>) {
        // The lock is held while the file log takes them: their order must be that of the versions.
        let mut inner = self.state.inner();
        for record in records {
            let header = *record.header();
            inner.last = header.last;
            inner.last_epoch = inner.last_epoch.max(header.identity.epoch);
            inner.identities.push_back((header.identity, header.last));
            if inner.identities.len() > NEWEST_IDENTITIES {
                inner.identities.pop_front();
            }
            inner.waiting.push_back(Arc::clone(&record));
            self.file.append(record);
        }
    }

    /// Waits until the copy can take more; false if `wanted` says no before, or its disk has failed.
    pub(super) fn wait_for_room(&self, wanted: impl Fn() -> bool) -> bool {
        let mut inner = self.state.inner();
        while !self.file.has_room() || self.file.refusal().is_some() {
            if !wanted() || inner.has_failed {
                return false;
            }
            let (next, _) =
                self.state.written.wait_timeout(inner, LOOK).unwrap_or_else(PoisonError::into_inner);
            inner = next;
        }
        !inner.has_failed
    }

    /// Waits until the disk has all; false after the deadline, or when the disk has failed.
    pub fn wait_until_synced(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut inner = self.state.inner();
        while !inner.waiting.is_empty() {
            if inner.has_failed || Instant::now() >= deadline {
                return false;
            }
            let (next, _) =
                self.state.written.wait_timeout(inner, LOOK).unwrap_or_else(PoisonError::into_inner);
            inner = next;
        }
        true
    }

    /// Tells of a failure of the disk from now on, and of one that was.
    pub(super) fn on_failure(&self, tell: OnFailure) {
        let mut inner = self.state.inner();
        if let Some(failure) = inner.failure.take() {
            tell(failure);
        }
        inner.on_failure = Some(tell);
    }

    /// Records that the disk does not have yet: those from `version` on, or `None` if it has that one.
    fn read_waiting(&self, version: Version, max_bytes: usize) -> Option<Vec<Arc<Record>>> {
        let inner = self.state.inner();
        if version > inner.last {
            return Some(Vec::new());
        }
        let first = inner.waiting.front()?.header().first;
        if version < first {
            return None;
        }
        let (mut records, mut bytes) = (Vec::new(), 0);
        for record in inner.waiting.iter().filter(|record| record.header().last >= version) {
            bytes += record.bytes().len();
            if bytes > max_bytes && !records.is_empty() {
                break;
            }
            records.push(Arc::clone(record));
        }
        Some(records)
    }

    /// As [`LogEngine::read_from`].
    pub async fn read_from(&self, version: Version, max_bytes: usize) -> Result<Vec<Arc<Record>>, LogError> {
        match self.read_waiting(version, max_bytes) {
            Some(records) => Ok(records),
            None => self.file.read_from(version, max_bytes).await,
        }
    }

    /// A record, without a runtime; blocks on the disk.
    pub(super) fn read_blocking(&self, version: Version) -> Result<Vec<Arc<Record>>, LogError> {
        match self.read_waiting(version, 1) {
            Some(records) => Ok(records),
            None => self.file.read_blocking(version),
        }
    }

    /// What a node that opens the log learns.
    pub(super) fn recovered(&self) -> Recovered {
        let inner = self.state.inner();
        Recovered {
            last: inner.last,
            last_epoch: inner.last_epoch,
            identities: inner.identities.clone(),
            begun: self.begun,
            was_torn: self.was_torn,
        }
    }
}

impl std::fmt::Debug for LogCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogCopy").field("dir", &self.dir).field("last", &self.last()).finish_non_exhaustive()
    }
}
