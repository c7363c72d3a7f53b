//! The update transactions that are open, as far as all of them together matter: the memory that their captured rows
//! take, how much one of them may capture, and what `SHOW TRANSACTIONS` tells.
//!
//! A transaction keeps some of its rows in memory and puts the rest into a file of the log. How much it may keep is a
//! constant as long as all of them together keep little; beyond that even small ones make room.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cluster::ids::{ReplicaId, SessionId};
use sql::accesses::Accesses;

/// How much a transaction's rows may take in memory.
const TRANSACTION_BYTES: usize = 4 << 20;
/// How much the rows of all transactions together may take before even small ones make room.
const NODE_BYTES: usize = 256 << 20;
/// What a transaction may keep when that is the case, at all times.
const CROWDED_BYTES: usize = 64 << 10;
/// Another [`TRANSACTION_BYTES`], for tests.
const SPILL_VARIABLE: &str = "ONECOPY_TEST_SPILL_BYTES";

/// Where an update transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// There is none.
    None,
    /// Its statements run, or it waits for the next one.
    Open,
    /// Rows are written to its file.
    Spilling,
    /// What could fail is done before the commit.
    Checking,
    /// Its record is on the way to the disk.
    Logging,
    /// It is acknowledged; its COMMIT waits for its turn at home.
    Committing,
}

impl Phase {
    const ALL: [Self; 6] =
        [Self::None, Self::Open, Self::Spilling, Self::Checking, Self::Logging, Self::Committing];

    /// The word that people see.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Open => "open",
            Self::Spilling => "spilling",
            Self::Checking => "checking",
            Self::Logging => "logging",
            Self::Committing => "committing",
        }
    }
}

/// How far the update transaction of one session is; written by the session alone, without locks.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    phase: AtomicU8,
    since_us: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    spilled_bytes: AtomicU64,
    home: AtomicU16,
    /// What the statement touches that waits for others.
    wanted: Mutex<Option<Arc<Accesses>>>,
}

/// A statement waits for others, as long as this lives.
#[derive(Debug)]
pub(crate) struct Wanted(Arc<Progress>);

impl Drop for Wanted {
    fn drop(&mut self) {
        *self.0.wanted.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Progress {
    /// A statement that touches this begins to wait.
    pub(crate) fn want(self: &Arc<Self>, touched: Option<Arc<Accesses>>) -> Wanted {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = touched;
        Wanted(Arc::clone(self))
    }

    /// It moves on.
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// What it has captured so far, and how much of that is in its file.
    pub(crate) fn set_captured(&self, rows: u64, bytes: u64, spilled_bytes: u64) {
        self.rows.store(rows, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.spilled_bytes.store(spilled_bytes, Ordering::Relaxed);
    }
}

/// What is shown of one transaction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shown {
    pub(crate) session: SessionId,
    pub(crate) home: ReplicaId,
    pub(crate) phase: Phase,
    pub(crate) age_s: f64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) spilled_bytes: u64,
}

/// Shared by all sessions.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit_bytes: u64,
    transaction_bytes: usize,
    held_bytes: AtomicUsize,
    open: Mutex<BTreeMap<SessionId, Arc<Progress>>>,
    start: Instant,
}

impl MemoryBudget {
    /// None are open; one may capture so many bytes.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        let asked = std::env::var(SPILL_VARIABLE).ok().and_then(|text| text.parse().ok());
        Self {
            limit_bytes,
            transaction_bytes: asked.unwrap_or(TRANSACTION_BYTES),
            held_bytes: AtomicUsize::new(0),
            open: Mutex::default(),
            start: Instant::now(),
        }
    }

    /// What all of them hold in memory, in bytes, and about how much that may be.
    pub(crate) fn in_memory(&self) -> (usize, usize) {
        (self.held_bytes.load(Ordering::Relaxed), NODE_BYTES)
    }

    /// The most that one transaction may capture.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Whether a transaction that holds so many bytes in memory has to make room.
    pub(crate) fn is_too_much(&self, held_bytes: usize) -> bool {
        held_bytes >= self.transaction_bytes
            || (held_bytes >= CROWDED_BYTES && self.held_bytes.load(Ordering::Relaxed) >= NODE_BYTES)
    }

    /// A transaction holds `now` bytes instead of `before`. Small amounts need not be told.
    pub(crate) fn hold(&self, before: usize, now: usize) {
        if now >= before {
            self.held_bytes.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.held_bytes.fetch_sub(before - now, Ordering::Relaxed);
        }
    }

    /// A session begins; what it writes here is shown.
    pub(crate) fn register(&self, session: SessionId) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(session, Arc::clone(&progress));
        progress
    }

    /// A session has ended.
    pub(crate) fn remove(&self, session: SessionId) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }

    /// An update transaction begins at its home.
    pub(crate) fn begin(&self, progress: &Progress, home: ReplicaId) {
        progress.home.store(home.0, Ordering::Relaxed);
        let now_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        progress.since_us.store(now_us, Ordering::Relaxed);
        progress.set_captured(0, 0, 0);
        progress.set_phase(Phase::Open);
    }

    /// What the statement touches of a session that waits for others, if that is known.
    pub(crate) fn wanted(&self, session: SessionId) -> Option<Arc<Accesses>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&session)?.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All update transactions, by session.
    pub(crate) fn show(&self) -> Vec<Shown> {
        let now_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = |(session, progress): (&SessionId, &Arc<Progress>)| {
            let phase = Phase::ALL[usize::from(progress.phase.load(Ordering::Relaxed))];
            let age_us = now_us.saturating_sub(progress.since_us.load(Ordering::Relaxed));
            (phase != Phase::None).then(|| Shown {
                session: *session,
                home: ReplicaId(progress.home.load(Ordering::Relaxed)),
                phase,
                age_s: std::time::Duration::from_micros(age_us).as_secs_f64(),
                rows: progress.rows.load(Ordering::Relaxed),
                bytes: progress.bytes.load(Ordering::Relaxed),
                spilled_bytes: progress.spilled_bytes.load(Ordering::Relaxed),
            })
        };
        open.iter().filter_map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_transactions_make_room_together() {
        let all = MemoryBudget::new(1);
        assert!(!all.is_too_much(CROWDED_BYTES));
        assert!(all.is_too_much(all.transaction_bytes));
        all.hold(0, NODE_BYTES);
        assert!(all.is_too_much(CROWDED_BYTES) && !all.is_too_much(CROWDED_BYTES - 1));
        all.hold(NODE_BYTES, 0);
        assert!(!all.is_too_much(CROWDED_BYTES));
    }

    #[test]
    fn a_transaction_is_shown_while_it_is_open() {
        let all = MemoryBudget::new(1);
        let progress = all.register(SessionId(4));
        assert_eq!(all.show(), []);
        all.begin(&progress, ReplicaId(2));
        progress.set_captured(3, 200, 100);
        progress.set_phase(Phase::Spilling);
        let shown = all.show();
        let first = &shown[0];
        assert_eq!((first.session, first.home, first.phase), (SessionId(4), ReplicaId(2), Phase::Spilling));
        assert_eq!((first.rows, first.bytes, first.spilled_bytes), (3, 200, 100));
        progress.set_phase(Phase::None);
        assert_eq!(all.show(), []);
        let wanted = progress.want(Some(Arc::default()));
        assert!(all.wanted(SessionId(4)).is_some());
        drop(wanted);
        assert_eq!(all.wanted(SessionId(4)), None);
        all.remove(SessionId(4));
    }
}
