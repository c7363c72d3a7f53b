//! The memory of all open update transactions together, the size limit of each, and the rows of `SHOW TRANSACTIONS`.
//!
//! A transaction keeps its first rows in memory and spills the rest to a file of the log. While all transactions
//! together need little memory, each may keep 4 MB. Beyond 256 MB in all, each may keep only 64 kB.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cluster::ids::{ReplicaId, SessionId};
use sql::accesses::Accesses;

/// Memory that one transaction may use for rows.
const TRANSACTION_BYTES: usize = 4 << 20;
/// Memory of all transactions together, beyond which even small ones spill.
const NODE_BYTES: usize = 256 << 20;
/// Memory that one transaction may use in that case.
const CROWDED_BYTES: usize = 64 << 10;
/// Overrides [`TRANSACTION_BYTES`], for tests.
const SPILL_VARIABLE: &str = "ONECOPY_TEST_SPILL_BYTES";

/// The state of an update transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No transaction is open.
    None,
    /// Its statements run, or it waits for the next one.
    Open,
    /// It writes rows to its file.
    Spilling,
    /// It does everything that could fail before the commit.
    Checking,
    /// Its record is being written to the log.
    Logging,
    /// It is durable; its COMMIT waits for its turn at the home.
    Committing,
}

impl Phase {
    const ALL: [Self; 6] =
        [Self::None, Self::Open, Self::Spilling, Self::Checking, Self::Logging, Self::Committing];

    /// The word in SHOW TRANSACTIONS.
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

/// Progress of a session's update transaction. Only the session writes it, without locks.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    phase: AtomicU8,
    since_us: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    spilled_bytes: AtomicU64,
    home: AtomicU16,
    /// The accesses of a statement that waits for other transactions.
    wanted: Mutex<Option<Arc<Accesses>>>,
}

/// A statement waits for other transactions as long as this lives.
#[derive(Debug)]
pub(crate) struct StatementWait(Arc<Progress>);

impl Drop for StatementWait {
    fn drop(&mut self) {
        *self.0.wanted.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Progress {
    /// A statement with these accesses starts to wait.
    pub(crate) fn want(self: &Arc<Self>, touched: Option<Arc<Accesses>>) -> StatementWait {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = touched;
        StatementWait(Arc::clone(self))
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Sets the captured size, and the part of it that was spilled.
    pub(crate) fn set_captured(&self, rows: u64, bytes: u64, spilled_bytes: u64) {
        self.rows.store(rows, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.spilled_bytes.store(spilled_bytes, Ordering::Relaxed);
    }
}

/// A row of SHOW TRANSACTIONS.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenUpdate {
    pub(crate) session: SessionId,
    pub(crate) home: ReplicaId,
    pub(crate) phase: Phase,
    pub(crate) age_s: f64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) spilled_bytes: u64,
}

/// Shared by all sessions of the node.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit_bytes: u64,
    transaction_bytes: usize,
    held_bytes: AtomicUsize,
    open: Mutex<BTreeMap<SessionId, Arc<Progress>>>,
    start: Instant,
}

impl MemoryBudget {
    /// A budget in which one transaction may capture up to `limit_bytes`.
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

    /// Bytes of rows in memory, and the amount beyond which even small transactions spill.
    pub(crate) fn in_memory(&self) -> (usize, usize) {
        (self.held_bytes.load(Ordering::Relaxed), NODE_BYTES)
    }

    /// Largest size that one transaction may capture.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Whether a transaction that holds this much memory must spill.
    pub(crate) fn is_too_much(&self, held_bytes: usize) -> bool {
        held_bytes >= self.transaction_bytes
            || (held_bytes >= CROWDED_BYTES && self.held_bytes.load(Ordering::Relaxed) >= NODE_BYTES)
    }

    /// Changes a transaction's memory from `before` to `now`. Small changes need not be reported.
    pub(crate) fn hold(&self, before: usize, now: usize) {
        if now >= before {
            self.held_bytes.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.held_bytes.fetch_sub(before - now, Ordering::Relaxed);
        }
    }

    /// Adds a session.
    pub(crate) fn register(&self, session: SessionId) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(session, Arc::clone(&progress));
        progress
    }

    /// Removes a session that has ended.
    pub(crate) fn remove(&self, session: SessionId) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }

    /// Starts an update transaction at its home.
    pub(crate) fn begin(&self, progress: &Progress, home: ReplicaId) {
        progress.home.store(home.0, Ordering::Relaxed);
        let now_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        progress.since_us.store(now_us, Ordering::Relaxed);
        progress.set_captured(0, 0, 0);
        progress.set_phase(Phase::Open);
    }

    /// The accesses of a session's waiting statement, if they are known.
    pub(crate) fn wanted(&self, session: SessionId) -> Option<Arc<Accesses>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&session)?.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All update transactions, by session.
    pub(crate) fn show(&self) -> Vec<OpenUpdate> {
        let now_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = |(session, progress): (&SessionId, &Arc<Progress>)| {
            let phase = Phase::ALL[usize::from(progress.phase.load(Ordering::Relaxed))];
            let age_us = now_us.saturating_sub(progress.since_us.load(Ordering::Relaxed));
            (phase != Phase::None).then(|| OpenUpdate {
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
