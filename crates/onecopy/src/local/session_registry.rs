//! Who is connected, what each session does, and whether sessions may begin anything.
//!
//! Each session has a entry here that it alone writes, without locks; `SHOW CLIENTS` and the metrics read the entries of
//! all. What a session has counted is added to the totals when it leaves, so totals never fall.
//!
//! PAUSE works over the entries: a session marks itself active before it checks for a pause, and PAUSE sets its mark
//! before it looks for active sessions. So at least one of the two sees the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use cluster::ids::{ReplicaId, SessionId};
use tokio::sync::watch;

use crate::local::pins::Pins;

/// What averages are taken over, as PgBouncer's `stats_period`.
pub(crate) const STATS_PERIOD: Duration = Duration::from_mins(1);

/// What a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Doing {
    /// It waits for its client, and no transaction is open.
    Idle,
    /// It waits for its client inside a transaction.
    InTransaction,
    /// It runs something.
    Active,
    /// It waits for a replica that can take its statement.
    Waiting,
    /// It waits for RESUME.
    Paused,
}

impl Doing {
    /// All there are.
    pub(crate) const ALL: [Self; 5] =
        [Self::Idle, Self::InTransaction, Self::Active, Self::Waiting, Self::Paused];

    /// The word that people see; PgBouncer's where it has one.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::InTransaction => "idle in transaction",
            Self::Active => "active",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
        }
    }
}

/// What is counted of sessions, in numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Transactions that have ended, implicit ones among them.
    pub(crate) transactions: u64,
    /// Query messages, and batches of the extended protocol.
    pub(crate) queries: u64,
    /// Bytes from clients.
    pub(crate) received_bytes: u64,
    /// Bytes to clients.
    pub(crate) sent_bytes: u64,
    /// Time in transactions.
    pub(crate) transaction_us: u64,
    /// Time in queries.
    pub(crate) query_us: u64,
    /// Time of waiting for a replica.
    pub(crate) wait_us: u64,
    /// Server connections that were opened.
    pub(crate) connections: u64,
}

impl Counted {
    fn fields(&mut self) -> [&mut u64; 8] {
        let Self {
            transactions,
            queries,
            received_bytes,
            sent_bytes,
            transaction_us,
            query_us,
            wait_us,
            connections,
        } = self;
        [transactions, queries, received_bytes, sent_bytes, transaction_us, query_us, wait_us, connections]
    }

    fn add(&mut self, mut other: Self) {
        for (sum, more) in self.fields().into_iter().zip(other.fields()) {
            *sum += *more;
        }
    }

    /// What came in since an earlier look.
    pub(crate) fn since(mut self, mut earlier: Self) -> Self {
        for (now, then) in self.fields().into_iter().zip(earlier.fields()) {
            *now = now.saturating_sub(*then);
        }
        self
    }
}

/// Who a session is for.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    /// The role.
    pub(crate) user: String,
    /// What the client called itself when it came.
    pub(crate) application_name: String,
    /// Where it comes from.
    pub(crate) peer: Option<SocketAddr>,
    /// Where it came to.
    pub(crate) local: Option<SocketAddr>,
}

/// A session, as others see it.
#[derive(Debug)]
pub(crate) struct SessionEntry {
    /// The session.
    pub(crate) id: SessionId,
    /// Whom it serves.
    pub(crate) who: Who,
    /// When it came.
    pub(crate) connected: SystemTime,
    start: Instant,
    doing: AtomicU8,
    /// When it began to do that, and when its query and its transaction began, in microseconds after `start`.
    since_us: AtomicU64,
    query_since_us: AtomicU64,
    transaction_since_us: AtomicU64,
    is_in_transaction: AtomicBool,
    counted: [AtomicU64; 8],
    servers: Mutex<BTreeMap<ReplicaId, i32>>,
    /// Where its transaction was open when it rested last; one more than the number of the replica.
    open_at: AtomicU32,
    /// Why it keeps connections that sessions share, as bits.
    pub(crate) pins: AtomicU16,
}

impl SessionEntry {
    /// What is told of every session; to be called within its span.
    pub(crate) fn tell_beginning(&self) {
        let Who { user, application_name, peer, .. } = &self.who;
        let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
        tracing::info!(role = user, application_name, peer, "the session begins");
    }

    fn new(id: SessionId, who: Who) -> Self {
        Self {
            id,
            who,
            connected: SystemTime::now(),
            start: Instant::now(),
            doing: AtomicU8::new(Doing::Idle as u8),
            since_us: AtomicU64::new(0),
            query_since_us: AtomicU64::new(0),
            transaction_since_us: AtomicU64::new(0),
            is_in_transaction: AtomicBool::new(false),
            counted: Default::default(),
            servers: Mutex::default(),
            open_at: AtomicU32::new(0),
            pins: AtomicU16::new(0),
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn count(&self, field: usize, more: u64) {
        self.counted[field].fetch_add(more, Ordering::Relaxed);
    }

    /// The client has sent something; it is being worked on.
    pub(crate) fn work(&self) {
        let now_us = self.now_us();
        self.query_since_us.store(now_us, Ordering::Relaxed);
        if !self.is_in_transaction.swap(true, Ordering::Relaxed) {
            self.transaction_since_us.store(now_us, Ordering::Relaxed);
        }
        self.since_us.store(now_us, Ordering::Relaxed);
        self.doing.store(Doing::Active as u8, Ordering::SeqCst);
    }

    /// Its transaction is open there, or none is open anywhere.
    pub(crate) fn open_at(&self, replica: Option<ReplicaId>) {
        self.open_at.store(replica.map_or(0, |replica| u32::from(replica.0) + 1), Ordering::Relaxed);
    }

    /// Whether its transaction is open at a replica, or was when it rested last.
    pub(crate) fn is_open_at(&self, replica: ReplicaId) -> bool {
        self.open_at.load(Ordering::Relaxed) == u32::from(replica.0) + 1
    }

    /// The client has its answer; so many bytes have come from it and gone to it in all.
    pub(crate) fn rest(&self, is_open: bool, received_bytes: u64, sent_bytes: u64) {
        if matches!(self.doing(), Doing::Idle | Doing::InTransaction) {
            return;
        }
        let now_us = self.now_us();
        self.count(1, 1);
        self.counted[2].store(received_bytes, Ordering::Relaxed);
        self.counted[3].store(sent_bytes, Ordering::Relaxed);
        self.count(5, now_us.saturating_sub(self.query_since_us.load(Ordering::Relaxed)));
        if !is_open {
            self.is_in_transaction.store(false, Ordering::Relaxed);
            self.count(0, 1);
            self.count(4, now_us.saturating_sub(self.transaction_since_us.load(Ordering::Relaxed)));
        }
        self.since_us.store(now_us, Ordering::Relaxed);
        let doing = if is_open { Doing::InTransaction } else { Doing::Idle };
        self.doing.store(doing as u8, Ordering::SeqCst);
    }

    /// It waits for something, until the guard is dropped.
    pub(crate) fn wait(self: &Arc<Self>, what: Doing) -> Waits {
        self.since_us.store(self.now_us(), Ordering::Relaxed);
        self.doing.store(what as u8, Ordering::SeqCst);
        Waits(Arc::clone(self))
    }

    /// It has a connection to a server, until the guard is dropped.
    pub(crate) fn connect(self: &Arc<Self>, replica: ReplicaId, pid: i32) -> Connected {
        self.count(7, 1);
        self.use_server(replica, pid)
    }

    /// It uses one that was opened before, until the guard is dropped.
    pub(crate) fn use_server(self: &Arc<Self>, replica: ReplicaId, pid: i32) -> Connected {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).insert(replica, pid);
        Connected { entry: Arc::clone(self), replica, pid }
    }

    /// What it does.
    pub(crate) fn doing(&self) -> Doing {
        Doing::ALL[usize::from(self.doing.load(Ordering::SeqCst))]
    }

    /// For how long it has done that.
    pub(crate) fn since(&self) -> Duration {
        Duration::from_micros(self.now_us().saturating_sub(self.since_us.load(Ordering::Relaxed)))
    }

    /// When its last query began.
    pub(crate) fn last_query(&self) -> SystemTime {
        self.connected + Duration::from_micros(self.query_since_us.load(Ordering::Relaxed))
    }

    /// Its server connections: replica, and process there.
    pub(crate) fn servers(&self) -> BTreeMap<ReplicaId, i32> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn counted(&self) -> Counted {
        let mut counted = Counted::default();
        for (field, counter) in counted.fields().into_iter().zip(&self.counted) {
            *field = counter.load(Ordering::Relaxed);
        }
        counted
    }
}

/// A session waits as long as this lives.
pub(crate) struct Waits(Arc<SessionEntry>);

impl Drop for Waits {
    fn drop(&mut self) {
        let entry = &self.0;
        entry.count(6, u64::try_from(entry.since().as_micros()).unwrap_or(u64::MAX));
        entry.since_us.store(entry.now_us(), Ordering::Relaxed);
        entry.doing.store(Doing::Active as u8, Ordering::SeqCst);
    }
}

/// A server connection is shown as long as this lives.
#[derive(Debug)]
pub(crate) struct Connected {
    entry: Arc<SessionEntry>,
    replica: ReplicaId,
    pid: i32,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut servers = self.entry.servers.lock().unwrap_or_else(PoisonError::into_inner);
        // Its successor may be there already.
        if servers.get(&self.replica) == Some(&self.pid) {
            servers.remove(&self.replica);
        }
    }
}

#[derive(Debug, Default)]
struct Inside {
    entries: BTreeMap<SessionId, Arc<SessionEntry>>,
    /// Of sessions that have left.
    past: Counted,
    /// The totals one and two periods ago.
    samples: [Counted; 2],
}

/// All sessions.
#[derive(Debug)]
pub(crate) struct SessionRegistry {
    inside: Mutex<Inside>,
    is_paused: watch::Sender<bool>,
    is_open: AtomicBool,
    /// How often a replica was drained.
    drains: AtomicU64,
    /// The anchor while it is about to give its place up; one more than its number.
    leaving: AtomicU32,
}

impl Default for SessionRegistry {
    fn default() -> Self {
        Self {
            inside: Mutex::default(),
            is_paused: watch::channel(false).0,
            is_open: AtomicBool::new(false),
            drains: AtomicU64::new(0),
            leaving: AtomicU32::new(0),
        }
    }
}

impl SessionRegistry {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A replica is drained.
    pub(crate) fn note_drain(&self) {
        self.drains.fetch_add(1, Ordering::Release);
    }

    /// How often one was.
    pub(crate) fn drains(&self) -> u64 {
        self.drains.load(Ordering::Acquire)
    }

    /// The anchor is about to give its place up, and its connections are still good; or none is.
    pub(crate) fn leave(&self, anchor: Option<ReplicaId>) {
        self.leaving.store(anchor.map_or(0, |anchor| u32::from(anchor.0) + 1), Ordering::SeqCst);
    }

    /// Whether this is so of a replica.
    pub(crate) fn is_leaving(&self, replica: ReplicaId) -> bool {
        self.leaving.load(Ordering::SeqCst) == u32::from(replica.0) + 1
    }

    /// A session begins.
    pub(crate) fn register(&self, id: SessionId, who: Who) -> Arc<SessionEntry> {
        let entry = Arc::new(SessionEntry::new(id, who));
        self.inside().entries.insert(id, Arc::clone(&entry));
        entry
    }

    /// A session has ended.
    pub(crate) fn remove(&self, id: SessionId) {
        let mut inside = self.inside();
        if let Some(entry) = inside.entries.remove(&id) {
            inside.past.add(entry.counted());
        }
    }

    /// The sessions, by number.
    pub(crate) fn entries(&self) -> Vec<Arc<SessionEntry>> {
        self.inside().entries.values().map(Arc::clone).collect()
    }

    /// The session that each server process serves at present.
    pub(crate) fn backends(&self) -> BTreeMap<(ReplicaId, i32), SessionId> {
        let inside = self.inside();
        let of_card = |entry: &Arc<SessionEntry>| {
            let id = entry.id;
            entry.servers().into_iter().map(move |backend| (backend, id))
        };
        inside.entries.values().flat_map(of_card).collect()
    }

    /// What all sessions have counted, those that have left included.
    pub(crate) fn totals(&self) -> Counted {
        let inside = self.inside();
        let mut totals = inside.past;
        inside.entries.values().for_each(|entry| totals.add(entry.counted()));
        totals
    }

    /// Ends a period; to be called every [`STATS_PERIOD`].
    pub(crate) fn end_period(&self) {
        let totals = self.totals();
        let mut inside = self.inside();
        inside.samples = [totals, inside.samples[0]];
    }

    /// What was counted in the last period that is over.
    pub(crate) fn last_period(&self) -> Counted {
        let inside = self.inside();
        inside.samples[0].since(inside.samples[1])
    }

    /// Whether clients are let in.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// From now on they are, or not.
    pub(crate) fn open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// Whether sessions may begin nothing at present.
    pub(crate) fn is_paused(&self) -> bool {
        *self.is_paused.borrow()
    }

    /// From now on, or no longer.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.is_paused.send_replace(is_paused);
    }

    /// Waits until sessions may begin something.
    pub(crate) async fn resumed(&self) {
        let mut changes = self.is_paused.subscribe();
        // The sender lives as long as this.
        let _ = changes.wait_for(|is_paused| !is_paused).await;
    }

    /// How many sessions hold what they have on one connection alone.
    pub(crate) fn holders(&self) -> usize {
        let holds =
            |entry: &&Arc<SessionEntry>| !Pins::of(entry.pins.load(Ordering::Relaxed)).held().is_empty();
        self.inside().entries.values().filter(holds).count()
    }

    /// How many sessions are in the middle of something.
    pub(crate) fn busy(&self) -> usize {
        let busy = |entry: &&Arc<SessionEntry>| !matches!(entry.doing(), Doing::Idle | Doing::Paused);
        self.inside().entries.values().filter(busy).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who() -> Who {
        Who { user: "joe".to_owned(), application_name: String::new(), peer: None, local: None }
    }

    #[test]
    fn what_a_session_counted_stays_in_the_totals() {
        let clients = SessionRegistry::default();
        let entry = clients.register(SessionId(1), who());
        entry.work();
        entry.rest(true, 10, 20);
        entry.work();
        drop(entry.wait(Doing::Waiting));
        entry.rest(false, 15, 40);
        // Resting twice counts once.
        entry.rest(false, 15, 40);
        let totals = clients.totals();
        assert_eq!((totals.transactions, totals.queries), (1, 2));
        assert_eq!((totals.received_bytes, totals.sent_bytes), (15, 40));
        clients.remove(SessionId(1));
        assert_eq!(clients.totals(), totals);
        assert!(clients.entries().is_empty());
        clients.end_period();
        assert_eq!(clients.last_period().queries, 2);
        clients.end_period();
        assert_eq!(clients.last_period(), Counted::default());
    }

    #[test]
    fn whoever_is_in_a_transaction_is_busy() {
        let clients = SessionRegistry::default();
        let entry = clients.register(SessionId(1), who());
        assert_eq!(clients.busy(), 0);
        entry.work();
        assert_eq!((clients.busy(), entry.doing()), (1, Doing::Active));
        let paused = entry.wait(Doing::Paused);
        assert_eq!(clients.busy(), 0);
        drop(paused);
        entry.rest(true, 0, 0);
        assert_eq!((clients.busy(), entry.doing()), (1, Doing::InTransaction));
        entry.work();
        entry.rest(false, 0, 0);
        assert_eq!(clients.busy(), 0);
    }

    #[test]
    fn a_server_connection_is_shown_while_it_lives() {
        let clients = SessionRegistry::default();
        let entry = clients.register(SessionId(1), who());
        let first = entry.connect(ReplicaId(2), 70);
        let second = entry.connect(ReplicaId(2), 71);
        drop(first);
        assert_eq!(entry.servers(), BTreeMap::from([(ReplicaId(2), 71)]));
        drop(second);
        assert_eq!(entry.servers(), BTreeMap::new());
        assert_eq!(clients.totals().connections, 2);
    }
}
