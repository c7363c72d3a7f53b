//! The state that callers, the sequencer and the trimmer share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::ids::{Identity, Version};
use cluster::record::Record;

use super::chair::Claim;
use super::copy::LogCopy;
use super::window::EtcdKeys;
use crate::engine::{LogEngine, LogRefusal};
use crate::error::LogFailure;

/// Above this there is no room in the queue.
const QUEUE_LIMIT_BYTES: usize = 64 << 20;
/// Above this there is no room in the queue.
const QUEUE_LIMIT_RECORDS: usize = 1 << 16;
/// A batch takes records up to this size, and a larger one alone. Etcd's limit for a request is 1.5 MiB.
const BATCH_BYTES: usize = 256 << 10;

pub(super) struct Shared {
    pub(super) etcd: EtcdKeys,
    pub(super) claim: Claim,
    pub(super) copy: LogCopy,
    pub(super) node: String,
    /// How long etcd may be away before new commits are refused.
    patience: Duration,
    queue: Mutex<Queue>,
    wake: Condvar,
    contact: Mutex<Contact>,
    /// An append found no space.
    pub(super) append_found_no_space: AtomicBool,
    /// The quota is nearly reached.
    pub(super) quota_is_near: AtomicBool,
    window: Mutex<Window>,
}

/// Records that were appended and are not being written yet.
struct Queue {
    records: VecDeque<Arc<Record>>,
    bytes: usize,
    next: Version,
    closed_at: Option<Instant>,
    has_failed: bool,
    copy_failure: Option<LogFailure>,
}

/// When etcd has answered.
#[derive(Clone, Copy)]
struct Contact {
    confirmed_at: Instant,
    /// The first of the calls since then that were not answered.
    unanswered_since: Option<Instant>,
}

/// What this term knows to be on etcd.
#[derive(Default)]
pub(super) struct Window {
    /// The first version of each batch, in order.
    pub(super) firsts: VecDeque<Version>,
    /// Records with spilled rows there.
    pub(super) spilled: Vec<(Version, Identity)>,
    /// The node needs nothing up to this version any more.
    pub(super) allowed: Version,
}

/// What the sequencer does next.
pub(super) enum Work {
    Append(Vec<Arc<Record>>),
    /// Nothing has come for a while.
    Confirm,
    Fail(LogFailure),
    End,
}

impl Shared {
    pub(super) fn new(
        etcd: EtcdKeys,
        claim: Claim,
        copy: LogCopy,
        node: String,
        patience: Duration,
        window: Window,
    ) -> Self {
        let contact = Contact { confirmed_at: claim.sent_at, unanswered_since: None };
        let queue = Queue {
            records: VecDeque::new(),
            bytes: 0,
            next: copy.last().next(),
            closed_at: None,
            has_failed: false,
            copy_failure: None,
        };
        Self {
            etcd,
            claim,
            copy,
            node,
            patience,
            queue: Mutex::new(queue),
            wake: Condvar::new(),
            contact: Mutex::new(contact),
            append_found_no_space: AtomicBool::new(false),
            quota_is_near: AtomicBool::new(false),
            window: Mutex::new(window),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contact(&self) -> MutexGuard<'_, Contact> {
        self.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn append(&self, record: Arc<Record>) {
        let header = *record.header();
        assert_eq!(header.cluster, self.copy.cluster, "a record goes to the log of its own cluster");
        let mut queue = self.queue();
        assert_eq!(header.first, queue.next, "records are appended in version order, without gaps");
        queue.next = header.last.next();
        if queue.closed_at.is_some() || queue.has_failed {
            return;
        }
        queue.bytes += record.bytes().len();
        queue.records.push_back(record);
        drop(queue);
        self.wake.notify_all();
    }

    pub(super) fn has_room(&self) -> bool {
        let queue = self.queue();
        let has_room = queue.bytes < QUEUE_LIMIT_BYTES && queue.records.len() < QUEUE_LIMIT_RECORDS;
        drop(queue);
        has_room && self.copy.file.has_room()
    }

    pub(super) fn refusal(&self) -> Option<LogRefusal> {
        let unanswered_since = self.contact().unanswered_since;
        if unanswered_since.is_some_and(|since| since.elapsed() >= self.patience) {
            return Some(LogRefusal::NoMajority);
        }
        let is_full = self.append_found_no_space.load(Ordering::Relaxed);
        if is_full || self.quota_is_near.load(Ordering::Relaxed) {
            return Some(LogRefusal::QuotaReached);
        }
        self.copy.file.refusal()
    }

    pub(super) fn close(&self) {
        self.queue().closed_at.get_or_insert_with(Instant::now);
        self.wake.notify_all();
    }

    /// How long the log has been closed.
    pub(super) fn closed_for(&self) -> Option<Duration> {
        self.queue().closed_at.map(|at| at.elapsed())
    }

    /// The copy cannot be written any more; the sequencer tells it.
    pub(super) fn note_copy_failure(&self, failure: LogFailure) {
        self.queue().copy_failure = Some(failure);
        self.wake.notify_all();
    }

    pub(super) fn take_copy_failure(&self) -> Option<LogFailure> {
        self.queue().copy_failure.take()
    }

    /// After a failure: queued records will never be written.
    pub(super) fn give_up(&self) {
        let mut queue = self.queue();
        queue.has_failed = true;
        queue.records.clear();
        queue.bytes = 0;
    }

    /// Waits for work. Asks to confirm the claim when none came for so long.
    pub(super) fn next_work(&self, confirm_after: Duration) -> Work {
        let deadline = Instant::now() + confirm_after;
        let mut queue = self.queue();
        loop {
            if let Some(failure) = queue.copy_failure.take() {
                return Work::Fail(failure);
            }
            if !queue.records.is_empty() {
                return Work::Append(queue.take_batch());
            }
            if queue.closed_at.is_some() {
                return Work::End;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Work::Confirm;
            }
            let (next, _) = self.wake.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner);
            queue = next;
        }
    }

    /// Sleeps until the log is closed, or so long. Returns whether it is closed.
    pub(super) fn sleep_until_closed(&self, pause: Duration) -> bool {
        let deadline = Instant::now() + pause;
        let mut queue = self.queue();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if queue.closed_at.is_some() || queue.has_failed || left.is_zero() {
                return queue.closed_at.is_some() || queue.has_failed;
            }
            let (next, _) = self.wake.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner);
            queue = next;
        }
    }

    /// A call that was sent then has shown that the claim is in force.
    pub(super) fn note_confirmed(&self, sent_at: Instant) {
        let mut contact = self.contact();
        contact.confirmed_at = contact.confirmed_at.max(sent_at);
        if let Some(since) = contact.unanswered_since.take() {
            tracing::warn!(away_ms = since.elapsed().as_millis(), "etcd answers again");
        }
    }

    /// A call that was sent then has no answer. Returns whether the one before it had.
    pub(super) fn note_unanswered(&self, sent_at: Instant) -> bool {
        let mut contact = self.contact();
        let is_first = contact.unanswered_since.is_none();
        contact.unanswered_since.get_or_insert(sent_at);
        is_first
    }

    pub(super) fn confirmed_at(&self) -> Instant {
        self.contact().confirmed_at
    }
}

impl Queue {
    fn take_batch(&mut self) -> Vec<Arc<Record>> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(record) = self.records.front() {
            bytes += record.bytes().len();
            if bytes > BATCH_BYTES && !taken.is_empty() {
                break;
            }
            self.bytes -= record.bytes().len();
            taken.extend(self.records.pop_front());
        }
        taken
    }
}
