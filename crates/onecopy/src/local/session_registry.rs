//! The sessions of the node, the work of each, and PAUSE.
//!
//! Each session has an entry here that it alone writes, without locks. `SHOW CLIENTS` and the metrics read all
//! entries. When a session ends, its counts are added to the totals, so totals never fall.
//!
//! PAUSE and a starting session could miss each other. So a session marks itself active before it checks for a pause,
//! and PAUSE sets its mark before it looks for active sessions. At least one of them sees the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use cluster::ids::{ReplicaId, SessionId};
use serde::{Deserialize, Serialize};

use crate::local::pauses::Pauses;
use crate::local::pins::Pins;

/// Period of averages, like PgBouncer's `stats_period`.
pub(crate) const STATS_PERIOD: Duration = Duration::from_mins(1);

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Activity {
    /// It waits for its client, outside a transaction.
    Idle,
    /// It waits for its client inside a transaction.
    InTransaction,
    /// It executes something.
    Active,
    /// It waits for a replica that can take its statement.
    Waiting,
    /// It waits for RESUME.
    Paused,
}

impl Activity {
    /// All states.
    pub(crate) const ALL: [Self; 5] =
        [Self::Idle, Self::InTransaction, Self::Active, Self::Waiting, Self::Paused];

    /// The word in SHOW CLIENTS, PgBouncer's if it has one.
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

/// Counts of sessions. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionCounts {
    /// Transactions that have ended, with implicit ones.
    pub(crate) transactions: u64,
    /// Query messages, and batches of the extended protocol.
    pub(crate) queries: u64,
    /// Bytes from clients.
    pub(crate) received_bytes: u64,
    /// Bytes to clients.
    pub(crate) sent_bytes: u64,
    /// Time inside transactions.
    pub(crate) transaction_us: u64,
    /// Time inside queries.
    pub(crate) query_us: u64,
    /// Time spent waiting for a replica.
    pub(crate) wait_us: u64,
    /// Opened server connections.
    pub(crate) connections: u64,
}

impl SessionCounts {
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

    /// The difference to an earlier sample.
    pub(crate) fn since(mut self, mut earlier: Self) -> Self {
        for (now, then) in self.fields().into_iter().zip(earlier.fields()) {
            *now = now.saturating_sub(*then);
        }
        self
    }
}

/// The identity of a session's client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientInfo {
    pub(crate) user: String,
    /// `application_name` at start-up.
    pub(crate) application_name: String,
    /// The client's address.
    pub(crate) peer: Option<SocketAddr>,
    /// The local address at which it connected.
    pub(crate) local: Option<SocketAddr>,
}

/// A session, as others see it.
#[derive(Debug)]
pub(crate) struct SessionEntry {
    pub(crate) id: SessionId,
    /// Its client.
    pub(crate) client_info: ClientInfo,
    /// Time of its log-in.
    pub(crate) connected: SystemTime,
    start: Instant,
    activity: AtomicU8,
    /// Start of its present state, query and transaction, in microseconds after `start`.
    since_us: AtomicU64,
    query_since_us: AtomicU64,
    transaction_since_us: AtomicU64,
    is_in_transaction: AtomicBool,
    counted: [AtomicU64; 8],
    servers: Mutex<BTreeMap<ReplicaId, i32>>,
    /// The replica of its open transaction when it last waited for its client, plus one.
    open_at: AtomicU32,
    /// Its [`crate::local::pins::Pins`], as bits.
    pub(crate) pins: AtomicU16,
}

impl SessionEntry {
    /// Logs the start of the session. Call it within the session's span.
    pub(crate) fn tell_beginning(&self) {
        let ClientInfo { user, application_name, peer, .. } = &self.client_info;
        let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
        tracing::info!(role = user, application_name, peer, "the session begins");
    }

    /// An entry that is in no list, for what works on behalf of a session beside it.
    pub(crate) fn unlisted(id: SessionId) -> Arc<Self> {
        let (user, application_name) = (String::new(), String::new());
        Arc::new(Self::new(id, ClientInfo { user, application_name, peer: None, local: None }))
    }

    fn new(id: SessionId, client_info: ClientInfo) -> Self {
        Self {
            id,
            client_info,
            connected: SystemTime::now(),
            start: Instant::now(),
            activity: AtomicU8::new(Activity::Idle as u8),
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

    /// Marks the session as active: its client has sent something.
    pub(crate) fn work(&self) {
        let now_us = self.now_us();
        self.query_since_us.store(now_us, Ordering::Relaxed);
        if !self.is_in_transaction.swap(true, Ordering::Relaxed) {
            self.transaction_since_us.store(now_us, Ordering::Relaxed);
        }
        self.since_us.store(now_us, Ordering::Relaxed);
        self.activity.store(Activity::Active as u8, Ordering::SeqCst);
    }

    /// Sets the replica of the open transaction; `None` if there is none.
    pub(crate) fn open_at(&self, replica: Option<ReplicaId>) {
        self.open_at.store(replica.map_or(0, |replica| u32::from(replica.0) + 1), Ordering::Relaxed);
    }

    /// Whether its transaction is open at this replica, or was when it last waited for its client.
    pub(crate) fn is_open_at(&self, replica: ReplicaId) -> bool {
        self.open_at.load(Ordering::Relaxed) == u32::from(replica.0) + 1
    }

    /// The client has its answer. The byte counts are totals of the connection.
    pub(crate) fn rest(&self, is_open: bool, received_bytes: u64, sent_bytes: u64) {
        if matches!(self.activity(), Activity::Idle | Activity::InTransaction) {
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
        let activity = if is_open { Activity::InTransaction } else { Activity::Idle };
        self.activity.store(activity as u8, Ordering::SeqCst);
    }

    /// Marks the session as waiting until the guard is dropped.
    pub(crate) fn wait(self: &Arc<Self>, what: Activity) -> WaitGuard {
        self.since_us.store(self.now_us(), Ordering::Relaxed);
        self.activity.store(what as u8, Ordering::SeqCst);
        WaitGuard(Arc::clone(self))
    }

    /// Shows a new server connection until the guard is dropped.
    pub(crate) fn connect(self: &Arc<Self>, replica: ReplicaId, pid: i32) -> Connected {
        self.count(7, 1);
        self.use_server(replica, pid)
    }

    /// Shows a reused server connection until the guard is dropped.
    pub(crate) fn use_server(self: &Arc<Self>, replica: ReplicaId, pid: i32) -> Connected {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).insert(replica, pid);
        Connected { entry: Arc::clone(self), replica, pid }
    }

    pub(crate) fn activity(&self) -> Activity {
        Activity::ALL[usize::from(self.activity.load(Ordering::SeqCst))]
    }

    /// Time since its present state began.
    pub(crate) fn since(&self) -> Duration {
        Duration::from_micros(self.now_us().saturating_sub(self.since_us.load(Ordering::Relaxed)))
    }

    /// Start of its last query.
    pub(crate) fn last_query(&self) -> SystemTime {
        self.connected + Duration::from_micros(self.query_since_us.load(Ordering::Relaxed))
    }

    /// Its server connections: replica, and process number there.
    pub(crate) fn servers(&self) -> BTreeMap<ReplicaId, i32> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn counted(&self) -> SessionCounts {
        let mut counted = SessionCounts::default();
        for (field, counter) in counted.fields().into_iter().zip(&self.counted) {
            *field = counter.load(Ordering::Relaxed);
        }
        counted
    }
}

/// The session counts as waiting as long as this lives.
pub(crate) struct WaitGuard(Arc<SessionEntry>);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let entry = &self.0;
        entry.count(6, u64::try_from(entry.since().as_micros()).unwrap_or(u64::MAX));
        entry.since_us.store(entry.now_us(), Ordering::Relaxed);
        entry.activity.store(Activity::Active as u8, Ordering::SeqCst);
    }
}

/// The server connection is shown as long as this lives.
#[derive(Debug)]
pub(crate) struct Connected {
    entry: Arc<SessionEntry>,
    replica: ReplicaId,
    pid: i32,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut servers = self.entry.servers.lock().unwrap_or_else(PoisonError::into_inner);
        // A newer connection may have replaced this one.
        if servers.get(&self.replica) == Some(&self.pid) {
            servers.remove(&self.replica);
        }
    }
}

#[derive(Debug, Default)]
struct Inside {
    entries: BTreeMap<SessionId, Arc<SessionEntry>>,
    /// Counts of sessions that have ended.
    past: SessionCounts,
    /// The totals one and two periods ago.
    samples: [SessionCounts; 2],
}

/// The sessions of a node.
#[derive(Debug)]
pub(crate) struct SessionRegistry {
    inside: Mutex<Inside>,
    /// Why they begin no work, if anything keeps them from it.
    pub(crate) pauses: Pauses,
    is_open: AtomicBool,
    /// DRAIN NODE was said.
    is_drained: AtomicBool,
    /// Number of drains so far.
    drains: AtomicU64,
    /// The anchor that is about to be replaced, plus one.
    leaving: AtomicU32,
}

impl Default for SessionRegistry {
    fn default() -> Self {
        Self {
            inside: Mutex::default(),
            pauses: Pauses::default(),
            is_open: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
            drains: AtomicU64::new(0),
            leaving: AtomicU32::new(0),
        }
    }
}

impl SessionRegistry {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_drain(&self) {
        self.drains.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn drains(&self) -> u64 {
        self.drains.load(Ordering::Acquire)
    }

    /// Marks the anchor as about to be replaced, while its connections are still good. `None` ends that.
    pub(crate) fn leave(&self, anchor: Option<ReplicaId>) {
        self.leaving.store(anchor.map_or(0, |anchor| u32::from(anchor.0) + 1), Ordering::SeqCst);
    }

    /// Whether this replica is such an anchor.
    pub(crate) fn is_leaving(&self, replica: ReplicaId) -> bool {
        self.leaving.load(Ordering::SeqCst) == u32::from(replica.0) + 1
    }

    pub(crate) fn register(&self, id: SessionId, client_info: ClientInfo) -> Arc<SessionEntry> {
        let entry = Arc::new(SessionEntry::new(id, client_info));
        self.inside().entries.insert(id, Arc::clone(&entry));
        entry
    }

    pub(crate) fn remove(&self, id: SessionId) {
        let mut inside = self.inside();
        if let Some(entry) = inside.entries.remove(&id) {
            inside.past.add(entry.counted());
        }
    }

    /// The entries, by session number.
    pub(crate) fn entries(&self) -> Vec<Arc<SessionEntry>> {
        self.inside().entries.values().map(Arc::clone).collect()
    }

    /// The session that each server process works for at present.
    pub(crate) fn backends(&self) -> BTreeMap<(ReplicaId, i32), SessionId> {
        let inside = self.inside();
        let of_card = |entry: &Arc<SessionEntry>| {
            let id = entry.id;
            entry.servers().into_iter().map(move |backend| (backend, id))
        };
        inside.entries.values().flat_map(of_card).collect()
    }

    /// The backends of sessions that have left state at a server.
    pub(crate) fn backends_with_state(&self) -> Vec<(ReplicaId, i32)> {
        let inside = self.inside();
        let has_state = |entry: &&Arc<SessionEntry>| !Pins::of(entry.pins.load(Ordering::Relaxed)).is_empty();
        inside.entries.values().filter(has_state).flat_map(|entry| entry.servers()).collect()
    }

    /// The totals of all sessions, with those that have ended.
    pub(crate) fn totals(&self) -> SessionCounts {
        let inside = self.inside();
        let mut totals = inside.past;
        inside.entries.values().for_each(|entry| totals.add(entry.counted()));
        totals
    }

    /// Ends a period. Call it every [`STATS_PERIOD`].
    pub(crate) fn end_period(&self) {
        let totals = self.totals();
        let mut inside = self.inside();
        inside.samples = [totals, inside.samples[0]];
    }

    /// The counts of the last full period.
    pub(crate) fn last_period(&self) -> SessionCounts {
        let inside = self.inside();
        inside.samples[0].since(inside.samples[1])
    }

    /// Whether clients may log in.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Whether new clients are served.
    pub(crate) fn takes_clients(&self) -> bool {
        self.is_open() && !self.is_drained()
    }

    /// Whether the node is drained: it lets no new clients in.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::SeqCst)
    }

    /// Drains the node, or ends that.
    pub(crate) fn set_drained(&self, is_drained: bool) {
        self.is_drained.store(is_drained, Ordering::SeqCst);
    }

    /// Lets clients log in, or not.
    pub(crate) fn open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// Number of sessions with state on one connection.
    pub(crate) fn holders(&self) -> usize {
        let holds =
            |entry: &&Arc<SessionEntry>| !Pins::of(entry.pins.load(Ordering::Relaxed)).held().is_empty();
        self.inside().entries.values().filter(holds).count()
    }

    /// Number of sessions inside a transaction or a statement.
    pub(crate) fn busy(&self) -> usize {
        let busy =
            |entry: &&Arc<SessionEntry>| !matches!(entry.activity(), Activity::Idle | Activity::Paused);
        self.inside().entries.values().filter(busy).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_info() -> ClientInfo {
        ClientInfo { user: "joe".to_owned(), application_name: String::new(), peer: None, local: None }
    }

    #[test]
    fn what_a_session_counted_stays_in_the_totals() {
        let clients = SessionRegistry::default();
        let entry = clients.register(SessionId(1), client_info());
        entry.work();
        entry.rest(true, 10, 20);
        entry.work();
        drop(entry.wait(Activity::Waiting));
        entry.rest(false, 15, 40);
        // A second rest counts nothing.
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
        assert_eq!(clients.last_period(), SessionCounts::default());
    }

    #[test]
    fn whoever_is_in_a_transaction_is_busy() {
        let clients = SessionRegistry::default();
        let entry = clients.register(SessionId(1), client_info());
        assert_eq!(clients.busy(), 0);
        entry.work();
        assert_eq!((clients.busy(), entry.activity()), (1, Activity::Active));
        let paused = entry.wait(Activity::Paused);
        assert_eq!(clients.busy(), 0);
        drop(paused);
        entry.rest(true, 0, 0);
        assert_eq!((clients.busy(), entry.activity()), (1, Activity::InTransaction));
        entry.work();
        entry.rest(false, 0, 0);
        assert_eq!(clients.busy(), 0);
    }

    #[test]
    fn a_server_connection_is_shown_while_it_lives() {
        let clients = SessionRegistry::default();
        let entry = clients.register(SessionId(1), client_info());
        let first = entry.connect(ReplicaId(2), 70);
        let second = entry.connect(ReplicaId(2), 71);
        drop(first);
        assert_eq!(entry.servers(), BTreeMap::from([(ReplicaId(2), 71)]));
        drop(second);
        assert_eq!(entry.servers(), BTreeMap::new());
        assert_eq!(clients.totals().connections, 2);
    }
}
